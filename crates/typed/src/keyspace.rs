//! A keyspace with types.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Bound, RangeBounds};
use std::time::Duration;

use runstone::{Error, Keyspace, ReadOptions, Result, Scan, Transaction, Value, WriteOptions};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::access::{Reads, Writes};
use crate::format::{self, Json, ValueFormat};
use crate::iter::{TypedCursor, TypedScan};
use crate::prefix::KeyPrefix;
use crate::{Types, key};

/// A keyspace whose keys are all a `K` and whose values are all a `V`. It is a handle, and stores
/// nothing about the types. If a keyspace is opened with other types, errors appear when entries
/// are read.
///
/// Keys are ordered by their bytes, whose form [`key`] describes. Integers, strings and chars keep
/// their usual order. Tuples, structs, enums, options and sequences have the order that they
/// derive. Floats are ordered by `total_cmp`, so that `-0.0` and `0.0` are two keys.
pub struct TypedKeyspace<K, V, F = Json> {
    keyspace: Keyspace,
    types: Types<(K, V, F)>,
}

impl<K, V, F> TypedKeyspace<K, V, F>
where
    K: Serialize + DeserializeOwned,
    F: ValueFormat<V>,
{
    /// Adds types to a keyspace.
    pub fn new(keyspace: Keyspace) -> Self {
        TypedKeyspace { keyspace, types: PhantomData }
    }

    /// The untyped keyspace, for everything that needs no types. [`key::encode`] makes its keys.
    pub fn keyspace(&self) -> &Keyspace {
        &self.keyspace
    }

    /// Stores a value with the default durability of the store.
    pub fn put(&self, key: &K, value: &V) -> Result<()> {
        self.put_with(key, value, WriteOptions::default())
    }

    /// Stores a value with the durability in `options`.
    pub fn put_with(&self, key: &K, value: &V, options: WriteOptions) -> Result<()> {
        self.keyspace.put_with(key::encode_of(key)?, format::encode::<V, F>(value)?, options)
    }

    /// Stores a value that expires after `ttl`, counted from now.
    pub fn put_with_ttl(&self, key: &K, value: &V, ttl: Duration) -> Result<()> {
        self.keyspace.put_with_ttl(key::encode_of(key)?, format::encode::<V, F>(value)?, ttl)
    }

    /// Adds a put to a batch or a transaction.
    pub fn put_in(&self, writes: &mut impl Writes, key: &K, value: &V) -> Result<()> {
        writes.put_bytes(&self.keyspace, &key::encode_of(key)?, &format::encode::<V, F>(value)?)
    }

    /// Looks up a key.
    ///
    /// # Errors
    /// If the value is not a `V`, and where [`Keyspace::get`] returns an error.
    pub fn get(&self, key: &K) -> Result<Option<V>> {
        let key = key::encode_of(key)?;
        self.typed(self.keyspace.get(&key)?, &key)
    }

    /// Looks up a key at a snapshot, or as a transaction sees it.
    pub fn get_in(&self, view: &impl Reads, key: &K) -> Result<Option<V>> {
        let key = key::encode_of(key)?;
        self.typed(view.get_bytes(&self.keyspace, &key)?, &key)
    }

    /// Locks a key in a pessimistic transaction, and looks it up as it is now.
    pub fn get_for_update(&self, transaction: &mut Transaction, key: &K) -> Result<Option<V>> {
        let key = key::encode_of(key)?;
        self.typed(transaction.get_for_update(&self.keyspace, &key)?, &key)
    }

    /// Looks up many keys at one moment, and returns the results in the order of the keys.
    pub fn multi_get<'k>(&self, keys: impl IntoIterator<Item = &'k K>) -> Result<Vec<Option<V>>>
    where
        K: 'k,
    {
        let keys = keys.into_iter().map(key::encode_of).collect::<Result<Vec<_>>>()?;
        let values = self.keyspace.multi_get(&keys)?;
        keys.iter().zip(values).map(|(key, value)| self.typed(value, key)).collect()
    }

    /// Whether the key has a value.
    pub fn contains_key(&self, key: &K) -> Result<bool> {
        self.keyspace.contains_key(key::encode_of(key)?)
    }

    /// The smallest key with its value.
    pub fn first_key_value(&self) -> Result<Option<(K, V)>> {
        self.iter()?.next().transpose()
    }

    /// The largest key with its value.
    pub fn last_key_value(&self) -> Result<Option<(K, V)>> {
        self.iter()?.next_back().transpose()
    }

    /// Removes a key. Removing an absent key is not an error.
    pub fn delete(&self, key: &K) -> Result<()> {
        self.keyspace.delete(key::encode_of(key)?)
    }

    /// Adds a delete to a batch or a transaction.
    pub fn delete_in(&self, writes: &mut impl Writes, key: &K) -> Result<()> {
        writes.delete_bytes(&self.keyspace, &key::encode_of(key)?)
    }

    /// Removes the keys of a range with one small record, as [`Keyspace::delete_range`] does.
    ///
    /// # Errors
    /// If the range ends before it starts.
    pub fn delete_range(&self, range: impl RangeBounds<K>) -> Result<()> {
        self.delete_between(self.bounds(&range)?)
    }

    /// Removes all keys that begin with `prefix`, with one small record.
    pub fn delete_prefix(&self, prefix: &impl KeyPrefix<K>) -> Result<()> {
        self.delete_between(bounds_of_prefix::<K>(prefix)?)
    }

    fn delete_between(&self, bounds: Bounds) -> Result<()> {
        self.keyspace.delete_range(range_of(bounds))
    }

    /// Removes all keys, as [`Keyspace::clear`] does.
    pub fn clear(&self) -> Result<()> {
        self.keyspace.clear()
    }

    /// Removes the smallest key and returns it with its value; `None` if there is no key.
    /// Concurrent callers get different keys.
    ///
    /// # Errors
    /// If the entry is not of the types: then it stays. Also those of [`Keyspace::pop_first`].
    pub fn pop_first(&self) -> Result<Option<(K, V)>> {
        self.pop_first_with(WriteOptions::default())
    }

    /// The same with the durability in `options`.
    pub fn pop_first_with(&self, options: WriteOptions) -> Result<Option<(K, V)>> {
        self.pop(options, |scan| scan.next())
    }

    /// Removes the largest key and returns it, as [`TypedKeyspace::pop_first`] does the smallest.
    pub fn pop_last(&self) -> Result<Option<(K, V)>> {
        self.pop_last_with(WriteOptions::default())
    }

    /// The same with the durability in `options`.
    pub fn pop_last_with(&self, options: WriteOptions) -> Result<Option<(K, V)>> {
        self.pop(options, |scan| scan.next_back())
    }

    /// Removes the first entries of a range, up to `most` of them, and returns them in order, as
    /// [`Keyspace::drain`] does: either all of them are removed or none.
    ///
    /// # Errors
    /// If the range ends before it starts, or an entry is not of the types: then all of them stay.
    /// Also those of [`Keyspace::drain`].
    pub fn drain(&self, range: impl RangeBounds<K>, most: usize) -> Result<Vec<(K, V)>> {
        self.drain_with(range, most, WriteOptions::default())
    }

    /// The same with the durability in `options`.
    pub fn drain_with(
        &self,
        range: impl RangeBounds<K>,
        most: usize,
        options: WriteOptions,
    ) -> Result<Vec<(K, V)>> {
        let range = range_of(self.bounds(&range)?);
        // Decoded before anything is removed, so that nothing is lost that is not of the types.
        let mut decoded: Vec<(Vec<u8>, (K, V))> = Vec::new();
        let decode = |key: &[u8], value: &[u8]| {
            // After a conflict, the range is read from its start again.
            while decoded.last().is_some_and(|(last, _)| &last[..] >= key) {
                decoded.pop();
            }
            decoded.push((key.to_vec(), self.decoded(key, value)?));
            Ok(true)
        };
        let taken = self.keyspace.drain_while(range, most, options, decode)?;
        // Smaller keys may be left from before a conflict: others took them.
        let mine = decoded.split_off(decoded.len() - taken.len());
        let is_first = mine.first().map(|(key, _)| key) == taken.first().map(|(key, _)| key);
        assert!(is_first, "the entries that were decoded last are those that were taken");
        Ok(mine.into_iter().map(|(_, entry)| entry).collect())
    }

    /// Removes the entry that `next` finds, and returns it. It is decoded before it is removed.
    fn pop(
        &self,
        options: WriteOptions,
        next: fn(&mut Scan) -> Option<<Scan as Iterator>::Item>,
    ) -> Result<Option<(K, V)>> {
        loop {
            let mut scan = self.keyspace.scan(ReadOptions::default())?;
            let Some((key, value)) = next(&mut scan).transpose()? else { return Ok(None) };
            drop(scan);
            let entry = self.decoded(&key, &value)?;
            let swapped = self.keyspace.compare_and_swap_with(&key, Some(&value), None, options)?;
            if swapped.is_ok() {
                return Ok(Some(entry));
            }
        }
    }

    fn decoded(&self, key: &[u8], value: &[u8]) -> Result<(K, V)> {
        let name = self.keyspace.name();
        Ok((key::decode_of(name, key)?, format::decode::<V, F>(value, key, name)?))
    }

    /// Iterates over all entries, in both directions.
    pub fn iter(&self) -> Result<TypedScan<K, V, F>> {
        self.range(..)
    }

    /// Iterates over the keys of a range, in both directions.
    ///
    /// # Errors
    /// If the range ends before it starts.
    pub fn range(&self, range: impl RangeBounds<K>) -> Result<TypedScan<K, V, F>> {
        let scan = self.keyspace.scan(options_of(self.bounds(&range)?))?;
        Ok(TypedScan::new(scan, &self.keyspace))
    }

    /// Iterates over the keys of a range at a snapshot, or as a transaction sees them.
    ///
    /// # Errors
    /// If the range ends before it starts.
    pub fn range_in<'r, R: Reads>(
        &self,
        view: &'r R,
        range: impl RangeBounds<K>,
    ) -> Result<TypedScan<K, V, F, R::Scan<'r>>> {
        let scan = view.scan_bytes(&self.keyspace, options_of(self.bounds(&range)?))?;
        Ok(TypedScan::new(scan, &self.keyspace))
    }

    /// Iterates over the keys that begin with `prefix`, in both directions.
    pub fn prefix(&self, prefix: &impl KeyPrefix<K>) -> Result<TypedScan<K, V, F>> {
        let scan = self.keyspace.scan(options_of(bounds_of_prefix::<K>(prefix)?))?;
        Ok(TypedScan::new(scan, &self.keyspace))
    }

    /// Iterates over the keys that begin with `prefix` at a snapshot, or as seen by a transaction.
    pub fn prefix_in<'r, R: Reads>(
        &self,
        view: &'r R,
        prefix: &impl KeyPrefix<K>,
    ) -> Result<TypedScan<K, V, F, R::Scan<'r>>> {
        let scan = view.scan_bytes(&self.keyspace, options_of(bounds_of_prefix::<K>(prefix)?))?;
        Ok(TypedScan::new(scan, &self.keyspace))
    }

    /// A cursor that can seek. Position it before use. Bounds in the options are encoded keys.
    pub fn cursor(&self, options: ReadOptions) -> Result<TypedCursor<K, V, F>> {
        Ok(TypedCursor::new(self.keyspace.cursor(options)?, &self.keyspace))
    }

    fn typed(&self, value: Option<Value>, key: &[u8]) -> Result<Option<V>> {
        let decode = |value: Value| format::decode::<V, F>(&value, key, self.keyspace.name());
        value.map(decode).transpose()
    }

    fn bounds(&self, range: &impl RangeBounds<K>) -> Result<Bounds> {
        // There is no key between a key and the same key with a zero byte appended.
        let behind = |key: &K| key::encode_of(key).map(|bytes| [&bytes[..], &[0]].concat());
        let start = match range.start_bound() {
            Bound::Included(key) => key::encode_of(key)?,
            Bound::Excluded(key) => behind(key)?,
            Bound::Unbounded => Vec::new(),
        };
        let end = match range.end_bound() {
            Bound::Included(key) => Some(behind(key)?),
            Bound::Excluded(key) => Some(key::encode_of(key)?),
            Bound::Unbounded => None,
        };
        if let Some(end) = end.as_ref().filter(|end| **end < start) {
            let (start, end) = (start.escape_ascii(), end.escape_ascii());
            let name = self.keyspace.name();
            return Err(Error::invalid(
                format!(
                    "the range \"{start}\" to \"{end}\" of keyspace {name:?} ends before its start"
                ),
                "give the smaller key first",
            ));
        }
        Ok((start, end))
    }
}

/// The first key, and the smallest key after the last one, if there is one.
type Bounds = (Vec<u8>, Option<Vec<u8>>);

fn range_of((start, end): Bounds) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
    (Bound::Included(start), end.map_or(Bound::Unbounded, Bound::Excluded))
}

fn bounds_of_prefix<K: DeserializeOwned>(prefix: &impl Serialize) -> Result<Bounds> {
    let start = key::encode_prefix_of::<K, _>(prefix)?;
    let mut end = start.clone();
    while end.pop_if(|last| *last == u8::MAX).is_some() {}
    let Some(last) = end.last_mut() else { return Ok((start, None)) };
    *last += 1;
    Ok((start, Some(end)))
}

fn options_of((start, end): Bounds) -> ReadOptions {
    ReadOptions::default().with_bounds(Some(&start), end.as_deref())
}

impl<K, V, F> Clone for TypedKeyspace<K, V, F> {
    fn clone(&self) -> Self {
        TypedKeyspace { keyspace: self.keyspace.clone(), types: PhantomData }
    }
}

impl<K, V, F> fmt::Debug for TypedKeyspace<K, V, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TypedKeyspace").field(&self.keyspace.name()).finish()
    }
}
