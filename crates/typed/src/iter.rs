//! Iterators and cursors that show typed entries.

use std::fmt;
use std::marker::PhantomData;

use runstone::{Cursor, Keyspace, Result, Scan, Value};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::format::{self, Json, ValueFormat};
use crate::{Types, key};

/// Iterates over entries in the order of their keys, from both ends. An entry that does not have
/// these types is an error, after which the iterator continues.
pub struct TypedScan<K, V, F = Json, S = Scan> {
    scan: S,
    keyspace: Keyspace,
    types: Types<(K, V, F)>,
}

impl<K, V, F, S> TypedScan<K, V, F, S> {
    pub(crate) fn new(scan: S, keyspace: &Keyspace) -> Self {
        TypedScan { scan, keyspace: keyspace.clone(), types: PhantomData }
    }
}

impl<K: DeserializeOwned, V, F: ValueFormat<V>, S> TypedScan<K, V, F, S> {
    fn typed(&self, entry: Result<(Vec<u8>, Value)>) -> Result<(K, V)> {
        let (bytes, value) = entry?;
        let key = key::decode_of(self.keyspace.name(), &bytes)?;
        Ok((key, format::decode::<V, F>(&value, &bytes, self.keyspace.name())?))
    }
}

impl<K: DeserializeOwned, V, F> TypedScan<K, V, F> {
    /// The keys alone. Values are neither decoded nor, if they are separated, read.
    pub fn keys(self) -> impl DoubleEndedIterator<Item = Result<K>> {
        let TypedScan { scan, keyspace, .. } = self;
        scan.keys().map(move |bytes| key::decode_of(keyspace.name(), &bytes?))
    }
}

impl<K, V, F, S> Iterator for TypedScan<K, V, F, S>
where
    K: DeserializeOwned,
    F: ValueFormat<V>,
    S: Iterator<Item = Result<(Vec<u8>, Value)>>,
{
    type Item = Result<(K, V)>;

    fn next(&mut self) -> Option<Self::Item> {
        let entry = self.scan.next()?;
        Some(self.typed(entry))
    }
}

impl<K, V, F, S> DoubleEndedIterator for TypedScan<K, V, F, S>
where
    K: DeserializeOwned,
    F: ValueFormat<V>,
    S: DoubleEndedIterator<Item = Result<(Vec<u8>, Value)>>,
{
    fn next_back(&mut self) -> Option<Self::Item> {
        let entry = self.scan.next_back()?;
        Some(self.typed(entry))
    }
}

impl<K, V, F, S: fmt::Debug> fmt::Debug for TypedScan<K, V, F, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TypedScan").field(&self.scan).finish()
    }
}

/// A [`Cursor`] over typed entries: it seeks, and decodes only the keys and values that the caller
/// reads.
pub struct TypedCursor<K, V, F = Json> {
    cursor: Cursor,
    keyspace: Keyspace,
    types: Types<(K, V, F)>,
}

impl<K, V, F> TypedCursor<K, V, F>
where
    K: Serialize + DeserializeOwned,
    F: ValueFormat<V>,
{
    pub(crate) fn new(cursor: Cursor, keyspace: &Keyspace) -> Self {
        TypedCursor { cursor, keyspace: keyspace.clone(), types: PhantomData }
    }

    /// Whether the cursor is on an entry.
    pub fn valid(&self) -> bool {
        self.cursor.valid()
    }

    /// The current key; `None` if the cursor is not on an entry.
    ///
    /// # Errors
    /// If the key is not a `K`.
    pub fn key(&self) -> Result<Option<K>> {
        let key = || key::decode_of(self.keyspace.name(), self.cursor.key());
        self.valid().then(key).transpose()
    }

    /// The current value; `None` if the cursor is not on an entry.
    ///
    /// # Errors
    /// If the value is not a `V`.
    pub fn value(&self) -> Result<Option<V>> {
        let (key, value) = (self.cursor.key(), self.cursor.value());
        let value = || format::decode::<V, F>(value, key, self.keyspace.name());
        self.valid().then(value).transpose()
    }

    /// Moves to the first key >= `key`.
    pub fn seek(&mut self, key: &K) -> Result<()> {
        self.cursor.seek(&key::encode_of(key)?)
    }

    /// Moves to the last key <= `key`.
    pub fn seek_for_prev(&mut self, key: &K) -> Result<()> {
        self.cursor.seek_for_prev(&key::encode_of(key)?)
    }

    /// Moves to the first key.
    pub fn seek_to_first(&mut self) -> Result<()> {
        self.cursor.seek_to_first()
    }

    /// Moves to the last key.
    pub fn seek_to_last(&mut self) -> Result<()> {
        self.cursor.seek_to_last()
    }

    /// Moves to the next key.
    #[expect(clippy::should_implement_trait, reason = "a cursor lends, an iterator cannot")]
    pub fn next(&mut self) -> Result<()> {
        self.cursor.next()
    }

    /// Moves to the previous key.
    pub fn prev(&mut self) -> Result<()> {
        self.cursor.prev()
    }
}

impl<K, V, F> fmt::Debug for TypedCursor<K, V, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TypedCursor").field(&self.cursor).finish()
    }
}
