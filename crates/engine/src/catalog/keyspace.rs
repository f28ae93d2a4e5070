//! A keyspace of an open store: the state that all handles to it share.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};

use crate::sync::{Mutex, rank};
use arc_swap::ArcSwap;
use runstone_policy::options::Numbers;
use runstone_policy::prefix::Prefixer;
use runstone_policy::shape::range_delete::RangeDelete;
use runstone_policy::shape::{Shape, Table};
use runstone_random::mix64;
use runstone_storage::fork::Process;

use crate::callbacks::compaction_filter::Filtering;
use crate::callbacks::event::Event;
use crate::callbacks::merge_operator::Merging;
use crate::catalog::dead_ranges::DeadRanges;
use crate::catalog::settle::settle_prefixer;
use crate::env::Env;
use crate::error::{Error, Result};
use crate::keys::{KeyspaceId, SeqNo};
use crate::log::{LOG_FORMAT, newer_format};
use crate::memtable::Memtable;
use crate::memtable::arena::ChunkPool;
use crate::memtable::btree::Record;
use crate::metrics::Work;
use crate::options::store::KeyspaceOptions;
use crate::ranges::RangeDeletes;
use crate::table::handle::{TableContext, TableHandle};
use crate::tree::manifest::KeyspaceState;
use crate::tree::version::{RangeChange, Version};
use crate::values::file::ValueFile;
use crate::values::separation::ValueFiles;

/// A memtable up to this size is flushed together with others, because the syncs of its flush take
/// longer than writing it.
const SMALL_FLUSH_BYTES: usize = 1 << 20;

/// The state that a reader of a keyspace sees. It is replaced as a whole, and read without a lock.
#[derive(Debug)]
pub(crate) struct View {
    pub(crate) active: Arc<Memtable>,
    /// Memtables that wait for their flush, newest first.
    pub(crate) immutable: Vec<Arc<Memtable>>,
    pub(crate) version: Arc<Version>,
    /// The sequence number of the last bulk load that is in the version or has failed.
    pub(crate) loaded: SeqNo,
}

impl View {
    /// The memtables, newest first.
    pub(crate) fn memtables(&self) -> impl Iterator<Item = &Arc<Memtable>> {
        std::iter::once(&self.active).chain(&self.immutable)
    }

    /// Memory of entries that are not flushed.
    pub(crate) fn memtable_bytes(&self) -> u64 {
        let waiting = self.immutable.iter().map(|memtable| memtable.allocated_bytes());
        // An empty memtable takes memory too, but none of it waits for a flush.
        let active = if self.active.is_empty() { 0 } else { self.active.allocated_bytes() };
        (active + waiting.sum::<usize>()) as u64
    }

    /// The newest record of a key in a memtable that a reader at `seq` sees. Most keyspaces have
    /// one memtable, and a chain of iterators would cost each get 40 instructions more.
    #[inline]
    pub(crate) fn in_memtables(&self, key: &[u8], seq: SeqNo) -> Option<(&Arc<Memtable>, &Record)> {
        if let Some(record) = self.active.get(key, seq) {
            return Some((&self.active, record));
        }
        self.immutable.iter().find_map(|memtable| Some((memtable, memtable.get(key, seq)?)))
    }

    /// Whether a range delete that a reader at `seq` sees hides an entry with this sequence number.
    /// O(1) without newer range deletes, otherwise O(log n) for each source that has some.
    #[inline]
    pub(crate) fn hides(&self, key: &[u8], entry: SeqNo, seq: SeqNo) -> bool {
        self.memtables_hide(key, entry, seq) || self.version.hides(key, entry, seq)
    }

    /// As `hides`, for an entry of a memtable: the tables contain no newer range delete. Inlined,
    /// because a call would cost 20 of the 1,540 instructions of a get that hits a memtable.
    #[inline(always)]
    pub(crate) fn memtables_hide(&self, key: &[u8], entry: SeqNo, seq: SeqNo) -> bool {
        self.active.hides(key, entry, seq)
            || self.immutable.iter().any(|memtable| memtable.hides(key, entry, seq))
    }
}

/// The state that all handles to a keyspace share.
#[derive(Debug)]
pub(crate) struct KeyspaceCore {
    pub(crate) id: KeyspaceId,
    pub(crate) name: String,
    pub(crate) options: ArcSwap<KeyspaceOptions>,
    pub(crate) view: ArcSwap<View>,
    /// Held to replace the view.
    pub(crate) view_lock: Mutex<rank::View, ()>,
    pub(crate) dropped: AtomicBool,
    /// Set once the drop can no longer fail.
    pub(crate) removed: AtomicBool,
    /// Set when the store has closed: its files may belong to another process now.
    pub(crate) closed: AtomicBool,
    /// The process that opened the store.
    process: Process,
    /// The last sequence number that a bulk load got. Set under the commit lock.
    pub(crate) last_load: AtomicU64,
    /// The sequence number of the last load that has ended. Set before it is published.
    ended_load: AtomicU64,
    pub(crate) dead_ranges: DeadRanges,
    /// The rule that cuts tables by key prefix, once it is chosen.
    pub(crate) prefixer: Mutex<rank::Prefixer, Option<Prefixer>>,
    /// The merge operator of its operands.
    pub(crate) merging: ArcSwap<Merging>,
    /// The compaction filter of its entries.
    pub(crate) filtering: ArcSwap<Filtering>,
    /// The time to live of writes that have none of their own, in milliseconds. 0 means for ever.
    pub(crate) ttl_ms: AtomicU64,
    /// The files that contain its values.
    pub(crate) values: ArcSwap<ValueFiles>,
    /// Values of at least this size are written to their file before the write is logged. If there
    /// are no such values, this is the largest number.
    pub(crate) early_at: AtomicU64,
    /// Held while a plan is installed part by part: the tree records at most one such plan.
    pub(crate) parting: Mutex<rank::Parting, ()>,
    /// Counts of what flushes and compactions did to the keyspace.
    pub(crate) work: Work,
    /// How many times [`KeyspaceCore::bytes_to_sample`] was called.
    samples: AtomicU64,
}

/// A cursor samples about one entry for this many bytes that it shows, as in LevelDB.
const SAMPLE_BYTES: u64 = 1 << 20;

/// A version that is not in force yet.
#[derive(Debug)]
pub(crate) struct NextVersion {
    pub(crate) version: Version,
    /// The version that this one is derived from and replaces.
    pub(crate) after: Arc<Version>,
}

impl KeyspaceCore {
    /// The keyspace that the manifest describes, with an empty memtable. The operator, filter and
    /// prefix rule that the options name are looked up among those registered with the store.
    pub(crate) fn open(
        id: KeyspaceId,
        state: &KeyspaceState,
        tables: &Arc<TableContext>,
        pool: &Arc<ChunkPool>,
        env: &Env,
    ) -> Result<KeyspaceCore> {
        KeyspaceCore::open_after(&Version::default(), (id, state), tables, pool, env)
    }

    /// As `open`, but with the open tables of an earlier version.
    pub(crate) fn open_after(
        before: &Version,
        (id, state): (KeyspaceId, &KeyspaceState),
        tables: &Arc<TableContext>,
        pool: &Arc<ChunkPool>,
        env: &Env,
    ) -> Result<KeyspaceCore> {
        let registered = &env.options;
        // The record's checksum is right, so this is not corruption: a newer release wrote the
        // text.
        let options = KeyspaceOptions::from_toml(&state.options).map_err(|error| {
            tracing::error!(keyspace = state.name, %error, "stored options are not understood");
            newer_format("manifest (options of a keyspace)", LOG_FORMAT + 1)
        })?;
        let extractors = &registered.prefix_extractors;
        let prefixer = settle_prefixer(state.shape.state.prefix.as_ref(), &options, extractors)?;
        let (operators, filters) = (&registered.merge_operators, &registered.compaction_filters);
        let merging = Merging::find(&options.merge_operator, operators, env.opening);
        let filtering = Filtering::find(&options.compaction_filter, filters, env.opening);
        let mut version = version_after(before, &state.shape, tables)?;
        if !registered.read_only {
            version = version.with_seeks_of(options.numbers());
        }
        version.count_memory(before, &tables.cache);
        let limit_bytes = tables.cache.memtable_bytes(options.write_buffer_bytes);
        let active = Memtable::new(pool, limit_bytes as usize);
        let mut values = ValueFiles::default();
        for layout in &state.values {
            let store = Arc::new(ValueFile::open(tables, layout.clone())?);
            match store.retired_at() {
                0 => values.current = Some(store),
                _ => values.retired.push(store),
            }
        }
        let (ttl_ms, early_at) = (options.ttl_seconds * 1000, options.values.early_at());
        env.has_early.fetch_or(early_at < u64::MAX, Relaxed);
        Ok(KeyspaceCore {
            id,
            name: state.name.clone(),
            options: ArcSwap::from_pointee(options),
            view: ArcSwap::from_pointee(View {
                active: Arc::new(active),
                immutable: Vec::new(),
                version: Arc::new(version),
                loaded: 0,
            }),
            view_lock: Mutex::new(()),
            dropped: AtomicBool::new(false),
            removed: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            process: Process::current(),
            last_load: AtomicU64::new(0),
            ended_load: AtomicU64::new(0),
            dead_ranges: DeadRanges::default(),
            prefixer: Mutex::new(prefixer),
            merging: ArcSwap::from_pointee(merging),
            filtering: ArcSwap::from_pointee(filtering),
            ttl_ms: AtomicU64::new(ttl_ms),
            early_at: AtomicU64::new(early_at),
            values: ArcSwap::from_pointee(values),
            parting: Mutex::new(()),
            work: Work::default(),
            samples: AtomicU64::new(0),
        })
    }

    /// The same keyspace with another view, for readers of another moment. Handles to the original
    /// are not affected.
    pub(crate) fn with_view(&self, view: View) -> KeyspaceCore {
        KeyspaceCore {
            id: self.id,
            name: self.name.clone(),
            options: ArcSwap::new(self.options.load_full()),
            view: ArcSwap::from_pointee(view),
            view_lock: Mutex::new(()),
            dropped: AtomicBool::new(false),
            removed: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            process: self.process,
            last_load: AtomicU64::new(0),
            ended_load: AtomicU64::new(0),
            dead_ranges: DeadRanges::default(),
            prefixer: Mutex::new(self.prefixer.lock().clone()),
            merging: ArcSwap::new(self.merging.load_full()),
            filtering: ArcSwap::new(self.filtering.load_full()),
            ttl_ms: AtomicU64::new(self.ttl_ms.load(Relaxed)),
            early_at: AtomicU64::new(self.early_at.load(Relaxed)),
            values: ArcSwap::new(self.values.load_full()),
            parting: Mutex::new(()),
            work: Work::default(),
            samples: AtomicU64::new(0),
        }
    }

    /// Reports to the listener if the compaction filter that the options name is not registered.
    pub(crate) fn tell_missing_filter(&self, env: &Env) {
        if let Some(filter) = self.filtering.load().missing() {
            let (keyspace, filter) = (self.name.clone(), filter.to_string());
            tracing::warn!(keyspace, filter, "the compaction filter is not registered");
            env.emit(|| Event::CompactionFilterMissing { keyspace, filter });
        }
    }

    /// Refuses a keyspace that is dropped.
    pub(crate) fn check_exists(&self) -> Result<()> {
        match self.dropped.load(Acquire) {
            true => Err(Error::UnknownKeyspace { name: self.name.clone() }),
            false => Ok(()),
        }
    }

    /// Whether this process opened the store, and is not a fork of that process.
    pub(crate) fn is_at_home(&self) -> bool {
        self.process.is_current()
    }

    /// The process that opened the store.
    pub(crate) fn process(&self) -> Process {
        self.process
    }

    /// How many bytes a cursor shows before it samples an entry. The number is drawn anew for each
    /// cursor and each sample, so that short scans and all parts of long scans count alike.
    pub(crate) fn bytes_to_sample(&self) -> u64 {
        mix64(self.samples.fetch_add(1, Relaxed)) % (2 * SAMPLE_BYTES)
    }

    /// Refuses a keyspace whose store has closed, or was opened before a fork.
    #[inline]
    pub(crate) fn check_open(&self) -> Result<()> {
        match (self.process.is_current(), self.closed.load(Acquire)) {
            (false, _) => Err(Error::OtherProcess),
            (true, true) => Err(Error::Closed),
            (true, false) => Ok(()),
        }
    }

    /// Refuses to read the present content of a dropped or closed keyspace. A snapshot continues to
    /// see a keyspace that was dropped after it was taken (P5).
    #[inline]
    pub(crate) fn check_readable(&self) -> Result<()> {
        self.check_open()?;
        self.check_exists()
    }

    /// Whether no memtable with a sequence number up to `last_seq` waits for its flush.
    pub(crate) fn is_flushed(&self, last_seq: SeqNo) -> bool {
        self.view.load().immutable.last().is_none_or(|oldest| oldest.first_seq() > last_seq)
    }

    /// The first sequence number that may be in a memtable; the largest possible one if all are
    /// empty.
    pub(crate) fn unflushed_from(&self) -> SeqNo {
        let view = self.view.load();
        view.memtables().map(|memtable| memtable.first_seq()).min().unwrap_or(SeqNo::MAX)
    }

    /// Whether the oldest waiting memtable may be flushed together with others: its flush takes
    /// little time, and waits for no collection of values.
    pub(crate) fn is_flush_small(&self) -> bool {
        let view = self.view.load();
        let is_small = |oldest: &Arc<Memtable>| oldest.reserved_bytes() <= SMALL_FLUSH_BYTES;
        view.immutable.last().is_some_and(is_small) && self.values.load().is_empty()
    }

    /// Whether the keyspace contains writes that are only in the log.
    pub(crate) fn holds_writes(&self) -> bool {
        let view = self.view.load();
        !view.active.is_empty() || !view.immutable.is_empty()
    }

    /// Replaces the version, and removes the `flushed` oldest waiting memtables from the view.
    pub(crate) fn swap_version(&self, next: NextVersion, flushed: usize) {
        let version = Arc::new(next.version);
        let _view = self.view_lock.lock();
        let old = self.view.load_full();
        let is_next = Arc::ptr_eq(&old.version, &next.after);
        assert!(is_next, "another edit came between an edit and its view (I6)");
        assert!(flushed <= old.immutable.len(), "more memtables are flushed than wait");
        let keep = old.immutable.len() - flushed;
        self.view.store(Arc::new(View {
            active: Arc::clone(&old.active),
            immutable: old.immutable[..keep].to_vec(),
            version: Arc::clone(&version),
            loaded: old.loaded,
        }));
        old.immutable[keep..].iter().for_each(|flushed| flushed.leave());
        old.version.left_by(&version).for_each(|handle| handle.mark_obsolete());
    }

    /// Makes reads charge tables according to changed options. Called with the manifest lock held.
    pub(crate) fn change_seeks(&self, options: &Numbers) {
        let after = Arc::clone(&self.view.load().version);
        let version = Version::clone(&after).with_seeks_of(options);
        self.swap_version(NextVersion { version, after }, 0);
    }

    /// Puts `fresh` in the place of the active memtable if the active one is `wanted`. Puts
    /// `filled`, which a large batch wrote, between them. Called under the commit lock, so that
    /// every sequence number in an older memtable is below those in a newer one.
    pub(crate) fn replace_active(
        &self,
        filled: Option<&Arc<Memtable>>,
        fresh: Arc<Memtable>,
        wanted: impl Fn(&Arc<Memtable>) -> bool,
    ) -> bool {
        let _view = self.view_lock.lock();
        let old = self.view.load_full();
        if !wanted(&old.active) {
            return false;
        }
        let used = Some(&old.active).filter(|active| !active.is_empty());
        assert!(fresh.is_empty(), "an active memtable begins empty");
        let newest = filled.into_iter().chain(used).chain(&old.immutable);
        let by_age = newest.clone().zip(newest.clone().skip(1));
        assert!(
            by_age.into_iter().all(|(newer, older)| newer.first_seq() > older.max_seq()),
            "a memtable holds numbers of a newer one (I1)"
        );
        let (immutable, version) = (newest.cloned().collect(), Arc::clone(&old.version));
        let loaded = old.loaded;
        self.view.store(Arc::new(View { active: fresh, immutable, version, loaded }));
        self.dead_ranges.forget_unused();
        true
    }

    /// Notes that the last load ended, before its sequence number is visible.
    pub(crate) fn end_load(&self) {
        let _view = self.view_lock.lock();
        let old = self.view.load_full();
        let (active, immutable) = (Arc::clone(&old.active), old.immutable.clone());
        let (version, loaded) = (Arc::clone(&old.version), self.last_load.load(Relaxed));
        self.view.store(Arc::new(View { active, immutable, version, loaded }));
        self.ended_load.store(loaded, Relaxed);
    }

    /// Whether a bulk load may be missing from the view of a reader that got its sequence number
    /// after the load. The reader could see writes after the load in a memtable, but not the load
    /// itself. It needs a view that was loaded after its sequence number.
    ///
    /// What counts is the last load that has ended, not the last that got a sequence number,
    /// because a load may have a sequence number and not have ended. If the last load ended after
    /// the reader's sequence number, an earlier load may be missing.
    #[inline]
    pub(crate) fn lacks_load(&self, view: &View) -> bool {
        // Relaxed: the reader's sequence number was published after its loads ended.
        self.ended_load.load(Relaxed) > view.loaded && !seeded!(LoadsMissedInViews)
    }

    /// Retired value files that nothing can point to any more: no table of `version`, and no
    /// memtable in which a collection of the file may have written pointers.
    pub(crate) fn files_left_behind(&self, version: &Version) -> Vec<u64> {
        let values = self.values.load();
        if values.retired.is_empty() {
            return Vec::new();
        }
        let least = version.handles().map(|handle| handle.meta().id).min().unwrap_or(u64::MAX);
        // Read before the memtables: meanwhile, a batch under way may be inserted into one of them.
        let needed: Vec<SeqNo> = values.retired.iter().map(|store| store.retired_seq()).collect();
        reached!(RetiredFilesLookedAt);
        let oldest = self.unflushed_from();
        let is_left = |(store, needed): &(&Arc<ValueFile>, SeqNo)| {
            least >= store.retired_at() && oldest > *needed
        };
        let left = values.retired.iter().zip(needed).filter(is_left);
        left.map(|(store, _)| store.number).collect()
    }
}

/// The version of a shape, with the open tables of an earlier version. Parts that are the same in
/// the earlier version are not allocated again: a follower makes a version at each flush that it
/// sees, perhaps of 100,000 tables.
///
/// Only the range deletes of added tables are read. Flushes wrote the range deletes that are newer
/// than all known ones (I1), and compactions rewrote the others. Nothing records which range
/// deletes compactions dropped. The dropped ones hide nothing any more, so a version keeps them
/// until there are too many of them.
fn version_after(before: &Version, shape: &Shape, tables: &Arc<TableContext>) -> Result<Version> {
    let last_seq = before.range_deletes.as_ref().map_or(0, |known| known.last_seq());
    let came = |table: &Table| before.handle(table.id).is_none();
    let mut newer = range_deletes_of(tables, shape, came)?;
    newer.retain(|range| range.seq > last_seq);
    let mut from = Cow::Borrowed(before);
    if before.would_know_too_many(newer.len(), shape) {
        newer = range_deletes_of(tables, shape, |_| true)?;
        from = Cow::Owned(before.without_range_deletes());
    }
    let newer = RangeDeletes::of(newer);
    let change = RangeChange { flushed: Some(&newer), left: &[] };
    Ok(from.next(shape.clone(), change, |table| {
        Arc::new(TableHandle::new(Arc::clone(tables), Arc::clone(table)))
    }))
}

/// The range deletes of some tables. Only tables that have some are read.
fn range_deletes_of(
    tables: &Arc<TableContext>,
    shape: &Shape,
    is_wanted: impl Fn(&Table) -> bool,
) -> Result<Vec<Arc<RangeDelete>>> {
    let mut all = Vec::new();
    let some = shape.tables().map(|(_, table)| table).filter(|table| table.range_deletes > 0);
    for table in some.filter(|table| is_wanted(table)) {
        let whole = match shape.trims.get(&table.id) {
            Some(min_key) => Arc::new(Table { min_key: min_key.clone(), ..Table::clone(table) }),
            None => Arc::clone(table),
        };
        let handle = TableHandle::new(Arc::clone(tables), whole);
        all.extend(handle.reader()?.range_deletes()?.into_iter().map(Arc::new));
    }
    Ok(all)
}
