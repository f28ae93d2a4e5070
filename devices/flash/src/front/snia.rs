//! An API in the style of SNIA's key-value storage API: key spaces, store modes, retrieve and
//! delete, an existence bitmap, and iterators over the keys whose first four bytes match.
//!
//! Keys on the device, by their first byte:
//!
//! * 0, name: a key space; the value is its number, four bytes, big-endian. It is kept in RAM too.
//! * 1, number, key: a pair of the key space with that number.
//! * 2, number: a key space whose pairs are being removed. A removal that was cut short is finished
//!   when the device is next opened by this API. A removal that a full device refused is also
//!   finished at the next removal. Until a removal is finished, its number is not free for a new
//!   key space.

use std::collections::{BTreeMap, BTreeSet};

use crate::error::Error;
use crate::kvssd::{Direction, KvSsd, Write};

const MIN_KEY_BYTES: usize = 4;
const MAX_KEY_BYTES: usize = 255;
const MAX_VALUE_BYTES: usize = 2 << 20;
const MAX_ITERATORS: usize = 16;
/// How many pairs are removed at a time when a key space is removed.
const REMOVED_PAIRS: usize = 256;
/// The first byte and the number before the key of a pair.
const PREFIX_BYTES: usize = 5;

const NAME: u8 = 0;
const PAIR: u8 = 1;
const DOOMED: u8 = 2;

/// Errors of the API, with SNIA's names.
#[derive(Debug, thiserror::Error)]
pub enum SniaError {
    /// The key does not have 4 to 255 bytes, or is too long for the device.
    #[error("a key of {0} bytes: it has 4 to 255, and what the device takes")]
    KeyLengthInvalid(usize),
    /// The value is longer than 2 MiB, or too long for the device.
    #[error("a value of {0} bytes: it has at most 2 MiB, and what the device takes")]
    ValueLengthInvalid(usize),
    /// The key does not exist.
    #[error("the key does not exist")]
    KeyNotExist,
    /// The key exists, and the store must not overwrite.
    #[error("the key exists, and must not be overwritten")]
    UpdateNotAllowed,
    /// The offset is beyond the end of the value.
    #[error("offset {0} is past the end of the value")]
    ValueOffsetInvalid(usize),
    /// The buffer is too small for the result.
    #[error("the buffer is too small: {0} bytes are needed")]
    BufferSmall(usize),
    /// The key space exists already.
    #[error("the key space exists")]
    KeySpaceExist,
    /// The key space does not exist.
    #[error("the key space does not exist")]
    KeySpaceNotExist,
    /// The name is empty or longer than a key.
    #[error("a name of a key space has 1 to 255 bytes, and what the device takes")]
    KeySpaceNameInvalid,
    /// Too many iterators are open.
    #[error("no more iterators: close one")]
    IteratorMax,
    /// The iterator does not exist.
    #[error("the iterator does not exist")]
    IteratorNotExist,
    /// The device is full, or iterators hold as many versions of a key as the device can keep.
    #[error("the device is full")]
    CapacityExceeded,
    /// The device failed in another way.
    #[error("{0}")]
    Device(Error),
}

impl From<Error> for SniaError {
    fn from(error: Error) -> SniaError {
        match error {
            Error::Full { .. } | Error::OutOfBlocks | Error::VersionsHeld { .. } => {
                SniaError::CapacityExceeded
            }
            Error::KeySize { bytes, .. } => {
                SniaError::KeyLengthInvalid(bytes.saturating_sub(PREFIX_BYTES))
            }
            Error::ValueSize { bytes, .. } => SniaError::ValueLengthInvalid(bytes),
            other => SniaError::Device(other),
        }
    }
}

type Result<T> = std::result::Result<T, SniaError>;

/// An open key space. If it was deleted since, every call returns an error that says so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeySpace {
    name: Vec<u8>,
    number: u32,
}

/// What a store does with an older value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreMode {
    /// Replaces the older value, if there is one.
    Post,
    /// Replaces the older value, which must exist.
    UpdateOnly,
    /// Stores the value only if there is no older one.
    NoOverwrite,
    /// Appends to the older value. If there is none, stores the value.
    Append,
}

/// Whether a pair stays after it was retrieved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnRetrieve {
    /// It stays.
    Keep,
    /// It is removed, if its whole value fitted the buffer.
    Delete,
}

/// Keys whose first four bytes equal those of `pattern` in all bits where `mask` has ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyFilter {
    /// The bits that count.
    pub mask: [u8; 4],
    /// The values of these bits.
    pub pattern: [u8; 4],
}

impl KeyFilter {
    fn admits(&self, key: &[u8]) -> bool {
        let bits = key.iter().zip(&self.mask).zip(&self.pattern);
        bits.clone().count() == 4 && bits.into_iter().all(|((k, m), p)| k & m == p & m)
    }

    /// The bytes with which every admitted key begins.
    fn prefix(&self) -> &[u8] {
        let whole = self.mask.iter().take_while(|mask| **mask == 0xff).count();
        &self.pattern[..whole]
    }
}

/// An open iterator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct IteratorId(u64);

/// The state of an iterator, which shows a snapshot from the time when it was opened.
#[derive(Debug)]
struct Cursor {
    filter: KeyFilter,
    snapshot: u64,
    /// The key on the device from which it continues.
    next: Vec<u8>,
    /// The prefix of the keys on the device.
    prefix: Vec<u8>,
}

/// The API of a device. Its iterators end with it.
#[derive(Debug)]
pub struct Snia<'a> {
    device: &'a mut KvSsd,
    /// Key spaces: names and numbers.
    spaces: BTreeMap<Vec<u8>, u32>,
    /// Numbers of removed key spaces that may still have pairs.
    doomed: BTreeSet<u32>,
    /// The numbers of existing and of removed key spaces.
    used: BTreeSet<u32>,
    /// All numbers below are used.
    first_free: u32,
    cursors: BTreeMap<IteratorId, Cursor>,
    last_iterator: u64,
}

impl Drop for Snia<'_> {
    fn drop(&mut self) {
        for cursor in self.cursors.values() {
            self.device.release(cursor.snapshot);
        }
    }
}

impl<'a> Snia<'a> {
    /// Opens the API of a device, and finishes removals that were cut short.
    pub fn new(device: &'a mut KvSsd) -> Result<Snia<'a>> {
        let (spaces, doomed, used, cursors) = Default::default();
        let mut api =
            Snia { device, spaces, doomed, used, first_free: 1, cursors, last_iterator: 0 };
        for (key, number) in api.collect(&[NAME], usize::MAX)? {
            api.spaces.insert(key[1..].to_vec(), number_of(&number)?);
        }
        for (key, _) in api.collect(&[DOOMED], usize::MAX)? {
            api.doomed.insert(number_of(&key[1..])?);
        }
        api.used = api.spaces.values().chain(&api.doomed).copied().collect();
        api.empty_doomed()?;
        Ok(api)
    }

    /// Makes a key space. The name has 1 to 255 bytes, and no more than the device allows.
    pub fn create_key_space(&mut self, name: &[u8]) -> Result<KeySpace> {
        let most = MAX_KEY_BYTES.min(self.device.max_key_bytes().saturating_sub(1));
        if !(1..=most).contains(&name.len()) {
            return Err(SniaError::KeySpaceNameInvalid);
        }
        if self.spaces.contains_key(name) {
            return Err(SniaError::KeySpaceExist);
        }
        let number = (self.first_free..=u32::MAX).find(|number| !self.used.contains(number));
        let number = number.ok_or(SniaError::CapacityExceeded)?;
        self.first_free = number;
        self.device.put(&[&[NAME], name].concat(), &number.to_be_bytes())?;
        self.spaces.insert(name.to_vec(), number);
        self.used.insert(number);
        Ok(KeySpace { name: name.to_vec(), number })
    }

    /// Opens a key space.
    pub fn open_key_space(&self, name: &[u8]) -> Result<KeySpace> {
        let number = *self.spaces.get(name).ok_or(SniaError::KeySpaceNotExist)?;
        Ok(KeySpace { name: name.to_vec(), number })
    }

    /// Names of all key spaces, sorted.
    pub fn key_spaces(&self) -> impl Iterator<Item = &[u8]> {
        self.spaces.keys().map(Vec::as_slice)
    }

    /// Removes a key space and its pairs: the name at once, the pairs in groups. If a full device
    /// refuses a group, the rest is removed later. An error other than a full device may occur
    /// after the name has been removed.
    pub fn delete_key_space(&mut self, space: KeySpace) -> Result<()> {
        self.check_space(&space)?;
        let doomed = numbered(DOOMED, space.number);
        self.device.write(&[
            Write::Delete { key: &[&[NAME], space.name.as_slice()].concat() },
            Write::Put { key: &doomed, value: &[] },
        ])?;
        self.spaces.remove(&space.name);
        self.doomed.insert(space.number);
        self.empty_doomed()
    }

    /// Stores a value of 0 to 2 MiB.
    pub fn store(
        &mut self,
        space: &KeySpace,
        key: &[u8],
        value: &[u8],
        mode: StoreMode,
    ) -> Result<()> {
        let at = self.pair_key(space, key)?;
        // An impossible size is refused before the key is looked up.
        self.check_value(value)?;
        if mode == StoreMode::Post {
            return self.put(&at, value);
        }
        match (mode, self.device.get(&at)?) {
            (StoreMode::UpdateOnly, None) => Err(SniaError::KeyNotExist),
            (StoreMode::NoOverwrite, Some(_)) => Err(SniaError::UpdateNotAllowed),
            (StoreMode::Append, Some(mut old)) => {
                old.extend_from_slice(value);
                self.put(&at, &old)
            }
            _ => self.put(&at, value),
        }
    }

    /// Fills the buffer from `offset_bytes` of the value on and returns the value's full size in
    /// bytes. With [`OnRetrieve::Delete`] a buffer without room for the rest is an error, and the
    /// pair stays.
    pub fn retrieve(
        &mut self,
        space: &KeySpace,
        key: &[u8],
        offset_bytes: usize,
        buffer: &mut [u8],
        then: OnRetrieve,
    ) -> Result<usize> {
        let at = self.pair_key(space, key)?;
        let value = self.device.get(&at)?.ok_or(SniaError::KeyNotExist)?;
        let rest = value.get(offset_bytes..).ok_or(SniaError::ValueOffsetInvalid(offset_bytes))?;
        if then == OnRetrieve::Delete {
            if rest.len() > buffer.len() {
                return Err(SniaError::BufferSmall(rest.len()));
            }
            self.device.delete(&at)?;
        }
        let part_bytes = rest.len().min(buffer.len());
        buffer[..part_bytes].copy_from_slice(&rest[..part_bytes]);
        Ok(value.len())
    }

    /// Removes a pair.
    pub fn delete(&mut self, space: &KeySpace, key: &[u8]) -> Result<()> {
        let at = self.pair_key(space, key)?;
        if self.device.get(&at)?.is_none() {
            return Err(SniaError::KeyNotExist);
        }
        Ok(self.device.delete(&at)?)
    }

    /// One bit per key, which says whether the key exists. The lowest bit of each byte comes first.
    pub fn exist(&mut self, space: &KeySpace, keys: &[&[u8]]) -> Result<Vec<u8>> {
        let mut bitmap = vec![0; keys.len().div_ceil(8)];
        for (bit, key) in keys.iter().enumerate() {
            let at = self.pair_key(space, key)?;
            bitmap[bit / 8] |= u8::from(self.device.get(&at)?.is_some()) << (bit % 8);
        }
        Ok(bitmap)
    }

    /// Opens an iterator over a key space as it is now; at most 16 are open.
    pub fn open_iterator(&mut self, space: &KeySpace, filter: KeyFilter) -> Result<IteratorId> {
        self.check_space(space)?;
        if self.cursors.len() >= MAX_ITERATORS {
            return Err(SniaError::IteratorMax);
        }
        let prefix = [&numbered(PAIR, space.number), filter.prefix()].concat();
        let snapshot = self.device.snapshot();
        self.last_iterator += 1;
        let id = IteratorId(self.last_iterator);
        self.cursors.insert(id, Cursor { filter, snapshot, next: prefix.clone(), prefix });
        Ok(id)
    }

    /// The next pairs, sorted: as many as fit into `limit_bytes` of keys and values together. An
    /// empty result is the end. [`SniaError::BufferSmall`] means that not even one pair fits.
    pub fn next_pairs(
        &mut self,
        id: IteratorId,
        limit_bytes: usize,
    ) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let cursor = self.cursors.get_mut(&id).ok_or(SniaError::IteratorNotExist)?;
        let (mut pairs, mut used, mut needed) = (Vec::new(), 0, None);
        let from = cursor.next.clone();
        let visit = &mut |at: &[u8], value: &[u8]| {
            if !at.starts_with(&cursor.prefix) {
                return false;
            }
            let key = &at[PREFIX_BYTES..];
            let bytes = if cursor.filter.admits(key) { key.len() + value.len() } else { 0 };
            if used + bytes > limit_bytes {
                needed = Some(bytes);
                return false;
            }
            if bytes > 0 {
                pairs.push((key.to_vec(), value.to_vec()));
                used += bytes;
            }
            cursor.next = [at, &[0]].concat();
            true
        };
        let scanned = self.device.scan(Some(&from), Direction::Forward, cursor.snapshot, visit);
        if let Err(error) = scanned {
            // The pair was not returned, so the next call finds it again.
            cursor.next = from;
            return Err(error.into());
        }
        match needed {
            Some(bytes) if pairs.is_empty() => Err(SniaError::BufferSmall(bytes)),
            _ => Ok(pairs),
        }
    }

    /// Closes an iterator.
    pub fn close_iterator(&mut self, id: IteratorId) -> Result<()> {
        let cursor = self.cursors.remove(&id).ok_or(SniaError::IteratorNotExist)?;
        self.device.release(cursor.snapshot);
        Ok(())
    }

    fn put(&mut self, at: &[u8], value: &[u8]) -> Result<()> {
        self.check_value(value)?;
        Ok(self.device.put(at, value)?)
    }

    fn check_value(&self, value: &[u8]) -> Result<()> {
        let is_legal = value.len() <= MAX_VALUE_BYTES.min(self.device.max_value_bytes());
        if is_legal { Ok(()) } else { Err(SniaError::ValueLengthInvalid(value.len())) }
    }

    fn pair_key(&self, space: &KeySpace, key: &[u8]) -> Result<Vec<u8>> {
        let most = MAX_KEY_BYTES.min(self.device.max_key_bytes().saturating_sub(PREFIX_BYTES));
        if !(MIN_KEY_BYTES..=most).contains(&key.len()) {
            return Err(SniaError::KeyLengthInvalid(key.len()));
        }
        self.check_space(space)?;
        Ok([&numbered(PAIR, space.number), key].concat())
    }

    fn check_space(&self, space: &KeySpace) -> Result<()> {
        let is_there = self.spaces.get(&space.name) == Some(&space.number);
        if is_there { Ok(()) } else { Err(SniaError::KeySpaceNotExist) }
    }

    /// Up to `count` entries of the device with a prefix.
    fn collect(&mut self, prefix: &[u8], count: usize) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let mut entries = Vec::new();
        self.device.scan(Some(prefix), Direction::Forward, u64::MAX, &mut |key, value| {
            let is_wanted = key.starts_with(prefix) && entries.len() < count;
            if is_wanted {
                entries.push((key.to_vec(), value.to_vec()));
            }
            is_wanted
        })?;
        Ok(entries)
    }

    /// Finishes the removals, except those that a full device refuses.
    fn empty_doomed(&mut self) -> Result<()> {
        for number in self.doomed.clone() {
            match self.empty(number) {
                Err(SniaError::CapacityExceeded) => {}
                other => other?,
            }
        }
        Ok(())
    }

    /// Removes the pairs of a doomed key space, then the mark that dooms it.
    fn empty(&mut self, number: u32) -> Result<()> {
        let prefix = numbered(PAIR, number);
        let mut most = REMOVED_PAIRS;
        loop {
            let pairs = self.collect(&prefix, most)?;
            if pairs.is_empty() {
                self.device.delete(&numbered(DOOMED, number))?;
                self.doomed.remove(&number);
                self.used.remove(&number);
                self.first_free = self.first_free.min(number);
                return Ok(());
            }
            let writes = pairs.iter().map(|(key, _)| Write::Delete { key }).collect::<Vec<_>>();
            match self.device.write(&writes) {
                // A full device may have room for the deletes of some pairs, and iterators may hold
                // too many versions of others.
                Err(Error::Full { .. } | Error::VersionsHeld { .. }) if most > 1 => most /= 2,
                other => other?,
            }
        }
    }
}

fn numbered(first: u8, number: u32) -> [u8; PREFIX_BYTES] {
    let [a, b, c, d] = number.to_be_bytes();
    [first, a, b, c, d]
}

/// Reads the number of a key space. A number of another length was not written by this API.
fn number_of(bytes: &[u8]) -> Result<u32> {
    let why = || format!("its number has {} bytes", bytes.len());
    let foreign = |_| Error::Corrupt { what: "key space", why: why() };
    Ok(bytes.try_into().map(u32::from_be_bytes).map_err(foreign)?)
}
