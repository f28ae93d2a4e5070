//! A keyspace: an ordered map inside a store, with a tree and options of its own. Batches and
//! snapshots span all keyspaces of a store.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::Ordering::*;
use std::time::Instant;

use runstone_policy::policy::LevelTarget;
use runstone_policy::shape::Shape;

use super::{Inner, KeyspaceInner, Snapshot, View};
use crate::base::error::{Error, Result};
use crate::base::key::{Kind, SeqNo, is_pointer, kind_of};
use crate::base::metrics::{Counter, sampled};
use crate::base::options::{KeyspaceOptions, WriteOptions};
use crate::format::filter;
use crate::memtable::btree::RecordRef;
use crate::read::cursor::{Cursor, ReadOptions, Scan};
use crate::table::iterator::Access;
use crate::table::reader::ProbeStats;
use crate::values::file::ValueUsage;
use crate::values::separation::ValueFiles;
use crate::values::{INLINE_BYTES, Value};
use crate::wal::batch::{Batch, KeyspaceId, check_sizes};

/// What a reader holds who looks more than once: see [`Keyspace::moment`].
pub(crate) struct Moment {
    pub(crate) view: Arc<View>,
    /// All that the view leads to.
    pub(crate) values: Arc<ValueFiles>,
    /// There, if values are apart.
    pub(crate) held: Option<Snapshot>,
}

/// A handle to a keyspace; cheap to clone.
#[derive(Clone, Debug)]
pub struct Keyspace {
    pub(crate) store: Arc<Inner>,
    pub(crate) inner: Arc<KeyspaceInner>,
}

impl Keyspace {
    pub(crate) fn new(store: Arc<Inner>, inner: Arc<KeyspaceInner>) -> Keyspace {
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
        let share = crate::write::commit::Share {
            keyspace: &self.inner,
            count: 1,
            user_bytes: batch.user_bytes(),
        };
        let outcome = self.store.commit(&batch, &[share], self.store.durability(options));
        batch.shrink();
        BATCH.set(batch);
        outcome
    }

    /// Looks a key up. The value is pinned in the block cache where that spares a copy.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        // The view before the number: whatever the view has lost to compactions is shadowed by
        // writes that were visible when the view was made.
        let key = key.as_ref();
        let view = self.inner.view.load();
        let seq = self.store.publisher.visible();
        reached!(GetBegun);
        match self.get_in(&view, key, seq)? {
            Got::Value(value) => Ok(value),
            Got::Moved if seeded!(GetDoesNotLookAgain) => Ok(None),
            Got::Moved => {
                // The version was replaced meanwhile, and its value collected. Who registers first
                // is not overtaken again.
                drop(view);
                self.get_at(key, &Snapshot::new(Arc::clone(&self.store)))
            }
        }
    }

    /// Looks a key up as of a snapshot of the same store.
    pub fn get_at(&self, key: impl AsRef<[u8]>, snapshot: &Snapshot) -> Result<Option<Value>> {
        self.check_snapshot(snapshot)?;
        self.get_registered(key.as_ref(), snapshot.seq())
    }

    /// Looks up at a number that a snapshot holds: its values are kept.
    fn get_registered(&self, key: &[u8], seq: SeqNo) -> Result<Option<Value>> {
        // A compaction may have taken the version's value to another file since the view was
        // loaded; the next view says so. A file goes after the tree that led to it, so with the
        // same view the value is gone.
        let mut view = self.inner.view.load();
        loop {
            if let Got::Value(value) = self.get_in(&view, key, seq)? {
                return Ok(value);
            }
            let before = std::mem::replace(&mut view, self.inner.view.load());
            if Arc::ptr_eq(&before, &view) {
                let what = format!("the value of key \"{}\" is gone", key.escape_ascii());
                return Err(Error::corruption("a value file", 0, what));
            }
        }
    }

    /// Looks many keys up at one moment; results are in the order of the keys. Keys are searched in
    /// sorted order, so that neighbours share blocks while those are in the processor's cache.
    pub fn multi_get<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Value>>> {
        let Moment { view, held, .. } = self.moment(None);
        let now = || self.store.publisher.visible();
        let seq = held.as_ref().map_or_else(now, Snapshot::seq);
        reached!(GetBegun);
        let mut order: Vec<usize> = (0..keys.len()).collect();
        order.sort_unstable_by(|a, b| keys[*a].as_ref().cmp(keys[*b].as_ref()));
        let mut values = vec![None; keys.len()];
        for i in order {
            let key = keys[i].as_ref();
            values[i] = match self.get_in(&view, key, seq)? {
                Got::Value(value) => value,
                Got::Moved => self.get_registered(key, seq)?,
            };
        }
        Ok(values)
    }

    /// What several looks at one moment need. Where values are collected, only a snapshot keeps
    /// those of one moment, and it is taken before the view; else the view is taken before the
    /// number, as by gets. Value files come before the tree that leads to them, and go after it: a
    /// view that was loaded while they stayed the same leads to no others.
    pub(crate) fn moment(&self, given: Option<&Snapshot>) -> Moment {
        let mut held = given.cloned();
        loop {
            let values = self.inner.values.load_full();
            if held.is_none() && !values.is_empty() && !seeded!(CursorDoesNotRegister) {
                held = Some(Snapshot::new(Arc::clone(&self.store)));
            }
            let view = self.inner.view.load_full();
            reached!(ViewLoaded);
            if Arc::ptr_eq(&values, &self.inner.values.load()) {
                return Moment { view, values, held };
            }
        }
    }

    fn get_in(&self, view: &View, key: &[u8], seq: SeqNo) -> Result<Got> {
        let started = sampled().then(Instant::now);
        let mut stats = ProbeStats::default();
        let value = self.get_value(view, key, seq, &mut stats)?;
        self.store.metrics.add_all(&[
            (Counter::gets, 1),
            (hit_counter(&stats), u64::from(stats.in_memtable || stats.hit_level.is_some())),
            (Counter::get_hits, u64::from(matches!(value, Got::Value(Some(_))))),
            (Counter::tables_probed, stats.tables),
            (Counter::filter_negatives, stats.filter_negatives),
            (Counter::filter_false_positives, stats.false_positives),
            (Counter::blocks_searched, stats.blocks),
            (Counter::blocks_read, stats.block_reads),
        ]);
        if stats.hot {
            self.inner.changes.fetch_add(1, AcqRel);
            self.store.wake_background();
        }
        if let Some(started) = started {
            self.store.metrics.get_ns.record(started.elapsed());
        }
        Ok(value)
    }

    fn get_value(
        &self,
        view: &View,
        key: &[u8],
        seq: SeqNo,
        stats: &mut ProbeStats,
    ) -> Result<Got> {
        for memtable in std::iter::once(&view.active).chain(&view.immutable) {
            if let Some(record) = memtable.get(key, seq) {
                stats.in_memtable = true;
                let (trailer, value) = (record.trailer(), record.value());
                if kind_of(trailer) == Kind::Delete as u8 {
                    return Ok(Got::Value(None));
                }
                if is_pointer(trailer) {
                    return self.follow(key, trailer, value);
                }
                return Ok(Got::Value(Some(match value.len() {
                    0..=INLINE_BYTES => Value::owned(value),
                    _ => Value::in_memtable(Arc::clone(memtable), RecordRef::new(record)),
                })));
            }
        }
        let Some((found, block)) = view.version.get(key, filter::hash(key), seq, stats)? else {
            return Ok(Got::Value(None));
        };
        match Kind::from_u8(kind_of(found.trailer)) {
            Some(Kind::Delete) => Ok(Got::Value(None)),
            Some(Kind::Put) => {
                Ok(Got::Value(Some(Value::pinned(block, found.value_at, found.value_len))))
            }
            Some(Kind::ValuePointer | Kind::Relocate) => {
                self.follow(key, found.trailer, block.slice(found.value_at, found.value_len))
            }
            _ => Err(unsupported_kind(found.trailer)),
        }
    }

    fn follow(&self, key: &[u8], trailer: u64, pointer: &[u8]) -> Result<Got> {
        self.store.metrics.add(Counter::values_read, 1);
        reached!(PointerFound);
        let access = Access::Cached { fill: true };
        let value = self.inner.values.load().resolve(key, trailer, pointer, access)?;
        Ok(value.map_or(Got::Moved, |value| Got::Value(Some(value))))
    }

    /// What the keyspace's value files hold; empty where all values are inline.
    pub fn value_usage(&self) -> Vec<ValueUsage> {
        let points = self.store.visible_points();
        self.inner.values.load().all().map(|store| store.usage(&points)).collect()
    }

    /// A cursor over the keyspace as of now; position it before use.
    pub fn cursor(&self, options: ReadOptions) -> Result<Cursor> {
        Cursor::open(self, options)
    }

    /// An iterator over the keys from `start` (inclusive) to `end` (exclusive), in both directions.
    pub fn range(&self, start: Option<&[u8]>, end: Option<&[u8]>) -> Result<Scan> {
        Scan::open(self, ReadOptions::default().with_bounds(start, end))
    }

    /// An iterator over the keys that start with `prefix`.
    pub fn prefix(&self, prefix: &[u8]) -> Result<Scan> {
        Scan::open(self, ReadOptions::default().with_prefix(prefix))
    }

    /// An iterator over everything.
    pub fn iter(&self) -> Result<Scan> {
        Scan::open(self, ReadOptions::default())
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
        self.store.flush_all()?;
        self.store.compact(&self.inner)?;
        self.store.collect_all_values(&self.inner)
    }

    pub(crate) fn check_snapshot(&self, snapshot: &Snapshot) -> Result<()> {
        if snapshot.is_of(&self.store) {
            return Ok(());
        }
        Err(Error::invalid("the snapshot is of another store", "take it from the same store"))
    }
}

/// What a look-up found.
enum Got {
    /// The value, or that there is none.
    Value(Option<Value>),
    /// A version whose value was collected: a newer one exists.
    Moved,
}

/// Where a get ended.
fn hit_counter(stats: &ProbeStats) -> Counter {
    match stats.hit_level {
        None => Counter::hits_memtable,
        Some(0) => Counter::hits_level_0,
        Some(1) => Counter::hits_level_1,
        Some(2) => Counter::hits_level_2,
        Some(3) => Counter::hits_level_3,
        Some(_) => Counter::hits_deeper,
    }
}

/// The error for a kind of entry that this release does not write.
pub(crate) fn unsupported_kind(trailer: u64) -> Error {
    Error::corruption("a table", 0, format!("entry of unsupported kind {}", kind_of(trailer)))
}
