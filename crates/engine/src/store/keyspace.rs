//! The handle to a keyspace: an ordered map inside a store, with a tree and options of its own.
//! Batches and snapshots span all keyspaces of a store.

use std::cell::RefCell;
use std::sync::Arc;

use runstone_policy::policy::LevelTarget;
use runstone_policy::shape::Shape;

use crate::base::error::Result;
use crate::base::key::{KeyspaceId, Kind};
use crate::base::options::{KeyspaceOptions, WriteOptions};
use crate::catalog::keyspace::KeyspaceCore;
use crate::read::cursor::{Cursor, ReadOptions, Scan};
use crate::store::engine::Engine;
use crate::values::Value;
use crate::values::file::ValueUsage;
use crate::visibility::snapshot::Snapshot;
use crate::wal::batch::{Batch, check_sizes};

/// A handle to a keyspace; cheap to clone.
#[derive(Clone, Debug)]
pub struct Keyspace {
    pub(crate) store: Arc<Engine>,
    pub(crate) inner: Arc<KeyspaceCore>,
}

impl Keyspace {
    pub(crate) fn new(store: Arc<Engine>, inner: Arc<KeyspaceCore>) -> Keyspace {
        Keyspace { store, inner }
    }

    /// Id inside the store, unique while it is open. A later open may give that of a dropped
    /// keyspace to a new one: by then no record that counts names it.
    pub fn id(&self) -> KeyspaceId {
        self.inner.id
    }

    /// Name.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// Options in force.
    pub fn options(&self) -> Arc<KeyspaceOptions> {
        self.inner.options.load_full()
    }

    /// Stores a value with the store's durability.
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.put_with(key, value, WriteOptions::default())
    }

    /// Stores a value.
    pub fn put_with(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        options: WriteOptions,
    ) -> Result<()> {
        self.write_one(Kind::Put, key.as_ref(), value.as_ref(), options)
    }

    /// Removes a key with the store's durability; removing an absent one is legal.
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<()> {
        self.delete_with(key, WriteOptions::default())
    }

    /// Removes a key; removing an absent one is legal.
    pub fn delete_with(&self, key: impl AsRef<[u8]>, options: WriteOptions) -> Result<()> {
        self.write_one(Kind::Delete, key.as_ref(), &[], options)
    }

    fn write_one(&self, kind: Kind, key: &[u8], value: &[u8], options: WriteOptions) -> Result<()> {
        thread_local! {
            static BATCH: RefCell<Batch> = RefCell::new(Batch::new());
        }
        check_sizes(key.len(), value.len())?;
        // Taken, not borrowed: a listener that the write meets may write to another store.
        let mut batch = BATCH.take();
        batch.clear();
        batch.push(kind, self.inner.id, key, value)?;
        let outcome = self.store.committer.commit(
            &batch,
            std::slice::from_ref(&self.inner),
            self.store.env.durability(options),
            &*self.store.runner,
        );
        batch.shrink();
        BATCH.set(batch);
        outcome
    }

    /// Looks a key up. The value is pinned in the block cache where that spares a copy.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        self.store.reader.get(&self.inner, key.as_ref())
    }

    /// Looks a key up as of a snapshot of the same store.
    pub fn get_at(&self, key: impl AsRef<[u8]>, snapshot: &Snapshot) -> Result<Option<Value>> {
        self.store.reader.get_at(&self.inner, key.as_ref(), snapshot)
    }

    /// Looks many keys up at one moment; results are in the order of the keys. Keys are searched in
    /// sorted order, so that neighbours share blocks while those are in the processor's cache.
    pub fn multi_get<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Value>>> {
        self.store.reader.multi_get(&self.inner, keys)
    }

    /// What the keyspace's value files hold; empty where all values are inline.
    pub fn value_usage(&self) -> Vec<ValueUsage> {
        let points = self.store.visibility.points();
        self.inner.values.load().all().map(|store| store.usage(&points)).collect()
    }

    /// A cursor over the keyspace as of now; position it before use.
    pub fn cursor(&self, options: ReadOptions) -> Result<Cursor> {
        Cursor::open(&self.store.reader, &self.inner, options)
    }

    /// An iterator over the keys from `start` (inclusive) to `end` (exclusive), in both directions.
    pub fn range(&self, start: Option<&[u8]>, end: Option<&[u8]>) -> Result<Scan> {
        Scan::open(&self.store.reader, &self.inner, ReadOptions::default().with_bounds(start, end))
    }

    /// An iterator over the keys that start with `prefix`.
    pub fn prefix(&self, prefix: &[u8]) -> Result<Scan> {
        Scan::open(&self.store.reader, &self.inner, ReadOptions::default().with_prefix(prefix))
    }

    /// An iterator over everything.
    pub fn iter(&self) -> Result<Scan> {
        Scan::open(&self.store.reader, &self.inner, ReadOptions::default())
    }

    /// The tree as policies see it.
    pub fn shape(&self) -> Shape {
        self.inner.view.load().version.shape.clone()
    }

    /// What each level may hold before it is over target.
    pub fn level_targets(&self) -> Vec<LevelTarget> {
        let options = self.inner.options.load();
        let view = self.inner.view.load();
        match options.compaction_policy() {
            Ok(policy) => policy.targets(&view.version.shape, &options.shape),
            Err(_) => Vec::new(),
        }
    }

    /// Bytes in memtables that are not flushed yet.
    pub fn memtable_bytes(&self) -> u64 {
        let view = self.inner.view.load();
        let waiting = view.immutable.iter().map(|memtable| memtable.allocated_bytes());
        // What an empty one takes is no data that waits.
        let active = if view.active.is_empty() { 0 } else { view.active.allocated_bytes() };
        (active + waiting.sum::<usize>()) as u64
    }

    /// Flushes the store, compacts this keyspace into a single run, and collects the garbage of its
    /// value file.
    pub fn compact(&self) -> Result<()> {
        self.store.runner.flush_all()?;
        self.store.runner.compact(&self.inner)?;
        self.store.runner.collect_all_values(&self.inner)
    }
}

impl Batch {
    /// Adds a put. Keys up to 64 KiB - 1, values up to 4 GiB - 1; both may be empty. A keyspace of
    /// another store than before is refused.
    pub fn put(
        &mut self,
        keyspace: &Keyspace,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> Result<()> {
        self.bind(keyspace.store.env.opening)?;
        self.push(Kind::Put, keyspace.id(), key.as_ref(), value.as_ref())
    }

    /// Adds a delete; deleting an absent key is legal.
    pub fn delete(&mut self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> Result<()> {
        self.bind(keyspace.store.env.opening)?;
        self.push(Kind::Delete, keyspace.id(), key.as_ref(), &[])
    }
}
