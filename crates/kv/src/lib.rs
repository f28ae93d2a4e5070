//! The operations that every key-value store offers, whatever its implementation. The command line,
//! the benchmarks and the peers use this trait. [`runstone::Store`] offers more.

#![forbid(unsafe_code)]

mod error;

use std::ops::Bound;

pub use error::{Error, Result};
use runstone::{Batch, Durability, ReadOptions, Store, Value, WriteOptions};

/// One write of an atomic batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KvWrite<'a> {
    /// Stores a value.
    Put {
        /// The key; an earlier value of it is replaced.
        key: &'a [u8],
        /// The value; it may be empty.
        value: &'a [u8],
    },
    /// Removes a key.
    Delete {
        /// The key to remove; it need not exist.
        key: &'a [u8],
    },
}

/// Direction of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Ascending keys.
    Forward,
    /// Descending keys.
    Reverse,
}

/// The function that a scan calls with each key and value. If it returns `false`, the scan ends.
pub type Visit<'a> = dyn FnMut(&[u8], &[u8]) -> bool + 'a;

/// The costs of a store. A field is zero if the store does not report it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KvMetrics {
    /// Bytes written to the device or file system, log included.
    pub bytes_written: u64,
    /// Bytes read from the device or file system.
    pub bytes_read: u64,
    /// Key and value bytes that users wrote.
    pub user_bytes_written: u64,
    /// Bytes that the store uses on disk, log included.
    pub disk_bytes: u64,
    /// Memory that the store accounts for: buffers, cache, index, filters.
    pub memory_bytes: u64,
    /// Table bytes written by flushes.
    pub flush_bytes_written: u64,
    /// Table bytes written by compactions.
    pub compaction_bytes_written: u64,
    /// Log bytes written.
    pub log_bytes_written: u64,
}

/// Keys that a store without range deletes removes in one batch.
const DELETED_AT_ONCE: usize = 1000;

/// Entries that a store without bulk loads puts in one batch.
const LOADED_AT_ONCE: usize = 1000;

/// A key-value store, as benchmarks and tools see it.
pub trait KvStore: Send + Sync {
    /// The name of the store in reports.
    fn name(&self) -> String;

    /// Stores a value.
    fn put(&self, key: &[u8], value: &[u8], durability: Durability) -> Result<()> {
        self.write(&[KvWrite::Put { key, value }], durability)
    }

    /// Removes a key. Removing an absent key is not an error.
    fn delete(&self, key: &[u8], durability: Durability) -> Result<()> {
        self.write(&[KvWrite::Delete { key }], durability)
    }

    /// Applies all writes or none.
    fn write(&self, writes: &[KvWrite<'_>], durability: Durability) -> Result<()>;

    /// Removes the keys from `start` up to `end`, or to the last key. A store without range deletes
    /// finds the keys and deletes them in batches. If a batch fails, earlier ones stay deleted.
    fn delete_range(&self, start: &[u8], end: Option<&[u8]>, durability: Durability) -> Result<()> {
        let mut from = start.to_vec();
        loop {
            let mut keys: Vec<Vec<u8>> = Vec::new();
            self.scan(Some(&from), Direction::Forward, &mut |key, _| {
                let is_inside = end.is_none_or(|end| key < end);
                keys.extend(is_inside.then(|| key.to_vec()));
                is_inside && keys.len() < DELETED_AT_ONCE
            })?;
            let Some(last) = keys.last() else { return Ok(()) };
            from = [last, &[0][..]].concat();
            let deletes: Vec<KvWrite<'_>> =
                keys.iter().map(|key| KvWrite::Delete { key }).collect();
            self.write(&deletes, durability)?;
        }
    }

    /// Stores entries with strictly ascending keys, durably, and returns how many. A store without
    /// bulk loads puts them in batches. If a batch fails, earlier ones stay stored.
    fn load(&self, entries: &mut dyn Iterator<Item = (Vec<u8>, Vec<u8>)>) -> Result<u64> {
        let mut count = 0;
        loop {
            let some: Vec<_> = (&mut *entries).take(LOADED_AT_ONCE).collect();
            if some.is_empty() {
                return Ok(count);
            }
            let puts: Vec<KvWrite<'_>> =
                some.iter().map(|(key, value)| KvWrite::Put { key, value }).collect();
            self.write(&puts, Durability::Sync)?;
            count += some.len() as u64;
        }
    }

    /// Looks up a key.
    fn get(&self, key: &[u8]) -> Result<Option<Value>>;

    /// Looks up several keys, and returns the results in the order of the keys.
    fn multi_get(&self, keys: &[&[u8]]) -> Result<Vec<Option<Value>>> {
        keys.iter().map(|key| self.get(key)).collect()
    }

    /// Visits entries of one consistent view until `visit` returns false. It starts at the first
    /// key >= `from`, or in reverse at the last key <= `from`. With `None` it starts at the first
    /// key, or in reverse at the last.
    fn scan(&self, from: Option<&[u8]>, direction: Direction, visit: &mut Visit<'_>) -> Result<()>;

    /// Makes all acknowledged writes durable and moves them to tables if the store has any.
    fn flush(&self) -> Result<()>;

    /// Waits until the store's policy has no compaction left to run.
    fn wait_idle(&self) -> Result<()>;

    /// Rewrites the whole store into its smallest form.
    fn compact(&self) -> Result<()>;

    /// The costs since the store was opened.
    fn metrics(&self) -> Result<KvMetrics>;
}

impl KvStore for Store {
    fn name(&self) -> String {
        "runstone".to_string()
    }

    fn put(&self, key: &[u8], value: &[u8], durability: Durability) -> Result<()> {
        let options = WriteOptions::default().durability(durability);
        Ok(self.default_keyspace().put_with(key, value, options)?)
    }

    fn delete(&self, key: &[u8], durability: Durability) -> Result<()> {
        let options = WriteOptions::default().durability(durability);
        Ok(self.default_keyspace().delete_with(key, options)?)
    }

    fn write(&self, writes: &[KvWrite<'_>], durability: Durability) -> Result<()> {
        let mut batch = Batch::new();
        for write in writes {
            match write {
                KvWrite::Put { key, value } => batch.put(self.default_keyspace(), key, value)?,
                KvWrite::Delete { key } => batch.delete(self.default_keyspace(), key)?,
            }
        }
        Ok(Store::write(self, &batch, WriteOptions::default().durability(durability))?)
    }

    fn delete_range(&self, start: &[u8], end: Option<&[u8]>, durability: Durability) -> Result<()> {
        let options = WriteOptions::default().durability(durability);
        let end = end.map_or(Bound::Unbounded, Bound::Excluded);
        Ok(self.default_keyspace().delete_range_with((Bound::Included(start), end), options)?)
    }

    fn load(&self, entries: &mut dyn Iterator<Item = (Vec<u8>, Vec<u8>)>) -> Result<u64> {
        Ok(self.default_keyspace().bulk_load(entries)?)
    }

    fn get(&self, key: &[u8]) -> Result<Option<Value>> {
        Ok(self.default_keyspace().get(key)?)
    }

    fn multi_get(&self, keys: &[&[u8]]) -> Result<Vec<Option<Value>>> {
        Ok(self.default_keyspace().multi_get(keys)?)
    }

    fn scan(&self, from: Option<&[u8]>, direction: Direction, visit: &mut Visit<'_>) -> Result<()> {
        let mut cursor = self.default_keyspace().cursor(ReadOptions::default())?;
        match (from, direction) {
            (Some(key), Direction::Forward) => cursor.seek(key)?,
            (None, Direction::Forward) => cursor.seek_to_first()?,
            (Some(key), Direction::Reverse) => cursor.seek_for_prev(key)?,
            (None, Direction::Reverse) => cursor.seek_to_last()?,
        }
        while cursor.valid() && visit(cursor.key(), cursor.value()) {
            match direction {
                Direction::Forward => cursor.next()?,
                Direction::Reverse => cursor.prev()?,
            }
        }
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        Ok(Store::flush(self)?)
    }

    fn wait_idle(&self) -> Result<()> {
        Ok(Store::wait_idle(self)?)
    }

    fn compact(&self) -> Result<()> {
        Ok(Store::compact(self)?)
    }

    fn metrics(&self) -> Result<KvMetrics> {
        let metrics = Store::metrics(self);
        let written = |name: &str| {
            let found = metrics.io.iter().find(|io| io.category == name);
            found.map_or(0, |io| io.written_bytes)
        };
        let memory = &metrics.memory;
        Ok(KvMetrics {
            bytes_written: metrics.io.iter().map(|io| io.written_bytes).sum(),
            bytes_read: metrics.io.iter().map(|io| io.read_bytes).sum(),
            user_bytes_written: metrics.counters.user_bytes_written,
            disk_bytes: self.disk_bytes(),
            memory_bytes: memory.memtable_bytes
                + memory.pinned_bytes
                + memory.held_bytes
                + memory.cache_bytes,
            flush_bytes_written: metrics.counters.flush_bytes_written,
            compaction_bytes_written: metrics.counters.compaction_bytes_written,
            log_bytes_written: written("wal"),
        })
    }
}
