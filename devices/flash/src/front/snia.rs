//! An API in the style of SNIA's key-value storage API: key spaces, store modes, retrieve and
//! delete, an existence bitmap, and iterators over the keys whose first four bytes match.
//!
//! Keys on the device, by their first byte:
//!
//! * 0, name: a key space; the value is its number, four bytes, big-endian. Kept in RAM too.
//! * 1, number, key: a pair of that space.
//! * 2, number: a space whose pairs are being removed. A removal that was cut short ends when the
//!   device is next opened by this API, and one that a full device refused also at the next
//!   removal. Only then is its number free for a new space.

use std::collections::{BTreeMap, BTreeSet};

use crate::error::Error;
use crate::kvssd::{Direction, KvSsd, Write};

const MIN_KEY_BYTES: usize = 4;
const MAX_KEY_BYTES: usize = 255;
const MAX_VALUE_BYTES: usize = 2 << 20;
const MAX_ITERATORS: usize = 16;
/// Pairs that a removed key space loses at a time.
const REMOVED_PAIRS: usize = 256;
/// First byte and number before a pair's key.
const PREFIX_BYTES: usize = 5;

const NAME: u8 = 0;
const PAIR: u8 = 1;
const DOOMED: u8 = 2;

/// What the API refuses, after SNIA's names.
#[derive(Debug, thiserror::Error)]
pub enum SniaError {
    /// The key has not 4 to 255 bytes, or more than the device takes.
    #[error("a key of {0} bytes: it has 4 to 255, and what the device takes")]
    KeyLengthInvalid(usize),
    /// The value is longer than 2 MiB, or than the device takes.
    #[error("a value of {0} bytes: it has at most 2 MiB, and what the device takes")]
    ValueLengthInvalid(usize),
    /// There is no such key.
    #[error("the key does not exist")]
    KeyNotExist,
    /// The key exists, and the store must not overwrite.
    #[error("the key exists, and must not be overwritten")]
    UpdateNotAllowed,
    /// The offset is past the end of the value.
    #[error("offset {0} is past the end of the value")]
    ValueOffsetInvalid(usize),
    /// The buffer holds less than what is to be handed over.
    #[error("the buffer is too small: {0} bytes are needed")]
    BufferSmall(usize),
    /// There is such a key space already.
    #[error("the key space exists")]
    KeySpaceExist,
    /// There is no such key space.
    #[error("the key space does not exist")]
    KeySpaceNotExist,
    /// The name is empty or longer than a key.
    #[error("a name of a key space has 1 to 255 bytes, and what the device takes")]
    KeySpaceNameInvalid,
    /// Too many iterators are open.
    #[error("no more iterators: close one")]
    IteratorMax,
    /// There is no such iterator.
    #[error("the iterator does not exist")]
    IteratorNotExist,
    /// The device is full, or iterators hold as much of a key's history as it can keep.
    #[error("the device is full")]
    CapacityExceeded,
    /// The device failed otherwise.
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

/// An open key space. It may be gone when it is used, if it was deleted: then every call says so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeySpace {
    name: Vec<u8>,
    number: u32,
}

/// What a store does with an older value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreMode {
    /// Replaces it, if there is one.
    Post,
    /// Replaces it, and there must be one.
    UpdateOnly,
    /// Nothing: there must be none.
    NoOverwrite,
    /// Is added at its end; without one it is the value.
    Append,
}

/// Whether a pair stays when it was retrieved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnRetrieve {
    /// It stays.
    Keep,
    /// It goes, if the buffer took its value whole.
    Delete,
}

/// Keys whose first four bytes, where `mask` has ones, are those of `pattern`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyFilter {
    /// Bits that count.
    pub mask: [u8; 4],
    /// What they must be.
    pub pattern: [u8; 4],
}

impl KeyFilter {
    fn admits(&self, key: &[u8]) -> bool {
        let bits = key.iter().zip(&self.mask).zip(&self.pattern);
        bits.clone().count() == 4 && bits.into_iter().all(|((k, m), p)| k & m == p & m)
    }

    /// Bytes that every admitted key begins with.
    fn prefix(&self) -> &[u8] {
        let whole = self.mask.iter().take_while(|mask| **mask == 0xff).count();
        &self.pattern[..whole]
    }
}

/// An open iterator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct IteratorId(u64);

/// Where an iterator is: a view of the time when it was opened.
#[derive(Debug)]
struct Cursor {
    filter: KeyFilter,
    snapshot: u64,
    /// Key on the device to go on from.
    next: Vec<u8>,
    /// What the keys on the device begin with.
    prefix: Vec<u8>,
}

/// The API on a device. Its iterators end with it.
#[derive(Debug)]
pub struct Snia<'a> {
    device: &'a mut KvSsd,
    /// Key spaces: names and numbers.
    spaces: BTreeMap<Vec<u8>, u32>,
    /// Numbers of spaces that are gone, of which pairs may be left.
    doomed: BTreeSet<u32>,
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
    /// Speaks for a device, and ends removals that were cut short.
    pub fn new(device: &'a mut KvSsd) -> Result<Snia<'a>> {
        let (spaces, doomed, cursors) = Default::default();
        let mut api = Snia { device, spaces, doomed, cursors, last_iterator: 0 };
        for (key, number) in api.collect(&[NAME], usize::MAX)? {
            api.spaces.insert(key[1..].to_vec(), number_of(&number)?);
        }
        for (key, _) in api.collect(&[DOOMED], usize::MAX)? {
            api.doomed.insert(number_of(&key[1..])?);
        }
        api.empty_doomed()?;
        Ok(api)
    }

    /// Makes a key space. The name has 1 to 255 bytes, and not more than the device takes.
    pub fn create_key_space(&mut self, name: &[u8]) -> Result<KeySpace> {
        let most = MAX_KEY_BYTES.min(self.device.max_key_bytes().saturating_sub(1));
        if !(1..=most).contains(&name.len()) {
            return Err(SniaError::KeySpaceNameInvalid);
        }
        if self.spaces.contains_key(name) {
            return Err(SniaError::KeySpaceExist);
        }
        let used: BTreeSet<u32> = self.spaces.values().chain(&self.doomed).copied().collect();
        let number = (1..).find(|number| !used.contains(number));
        let number = number.ok_or(SniaError::CapacityExceeded)?;
        self.device.put(&[&[NAME], name].concat(), &number.to_be_bytes())?;
        self.spaces.insert(name.to_vec(), number);
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

    /// Removes a key space and its pairs: the name at once, the pairs in groups. Where a full
    /// device refuses a group, the rest goes later. An error other than that it is full may come
    /// after the name has gone.
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

    /// One bit per key, lowest first in each byte: whether it exists.
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

    /// The next pairs, sorted: as many as have keys and values of at most `limit_bytes` together.
    /// Nothing is the end; [`SniaError::BufferSmall`] says that not even one fits.
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
            // The pair was not handed over, so the next call finds it again.
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

    /// Ends removals, as far as a full device lets it.
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
                return Ok(());
            }
            let writes = pairs.iter().map(|(key, _)| Write::Delete { key }).collect::<Vec<_>>();
            match self.device.write(&writes) {
                // A full device may have room for the deletes of some, and iterators may hold too
                // much of the history of others.
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

/// Reads the number of a key space. This front writes no number of another length.
fn number_of(bytes: &[u8]) -> Result<u32> {
    let why = || format!("its number has {} bytes", bytes.len());
    let foreign = |_| Error::Corrupt { what: "key space", why: why() };
    Ok(bytes.try_into().map(u32::from_be_bytes).map_err(foreign)?)
}
