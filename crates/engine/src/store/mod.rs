//! The store: handles, shared state, and who holds which lock.
//!
//! Lock order (a later one may be taken while an earlier one is held, never the reverse):
//! `manifest` -> `commit` -> `view_lock` of a keyspace -> the throttle's `refreshing` ->
//! `keyspaces` -> leaf locks (`snapshots`, `purge`, throttle, syncer). The scheduler's lock is a
//! leaf for everyone but the scheduler, which takes view loads (lock-free) and `keyspaces` under
//! it.

mod close;
mod directory;
pub(crate) mod inspect;
mod keyspace;
pub mod kv;
mod open;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::thread::JoinHandle;

use arc_swap::ArcSwap;
use crossbeam_utils::CachePadded;
use parking_lot::{Mutex, RwLock};
use runstone_policy::prefix::Prefixer;
use runstone_storage::{Storage, StorageLock};

pub use crate::visibility::snapshot::Snapshot;
pub(crate) use close::{Health, NO_SPACE_RETRY};
pub use inspect::{Damage, TableDump, VerifyReport};
pub use keyspace::Keyspace;
pub(crate) use keyspace::{Moment, unsupported_kind};

use crate::base::error::{Error, Result};
use crate::base::event::{Event, Inside, check_outside};
use crate::base::key::SeqNo;
use crate::base::metrics::{Metrics, MetricsSnapshot};
use crate::base::options::{Durability, KeyspaceOptions, Options, WriteOptions};
use crate::base::threads::Bell;
use crate::cache::Cache;
use crate::catalog::dead_ranges::DeadRanges;
use crate::jobs::scheduler::Scheduler;
use crate::memtable::Memtable;
use crate::memtable::arena::ChunkPool;
use crate::table::handle::TableContext;
use crate::tree::manifest::Manifest;
use crate::tree::version::Version;
use crate::values::Value;
use crate::values::separation::ValueFiles;
use crate::visibility::publish::{Publisher, Syncer};
use crate::wal::batch::{Batch, KeyspaceId};
use crate::wal::segments::WalFiles;
use crate::write::commit::{CommitState, Share};
use crate::write::pressure::Throttle;

/// Name of the keyspace that every store has.
pub const DEFAULT_KEYSPACE: &str = "default";

/// What a reader of a keyspace sees: replaced as a whole, read without a lock.
#[derive(Debug)]
pub(crate) struct View {
    pub(crate) active: Arc<Memtable>,
    /// Waiting for their flush, newest first.
    pub(crate) immutable: Vec<Arc<Memtable>>,
    pub(crate) version: Arc<Version>,
}

/// A keyspace's shared state.
#[derive(Debug)]
pub(crate) struct KeyspaceInner {
    pub(crate) id: KeyspaceId,
    pub(crate) name: String,
    pub(crate) options: ArcSwap<KeyspaceOptions>,
    pub(crate) view: ArcSwap<View>,
    /// Held to replace the view.
    pub(crate) view_lock: Mutex<()>,
    pub(crate) pressure_permille: AtomicU32,
    pub(crate) dropped: AtomicBool,
    pub(crate) dead_ranges: DeadRanges,
    /// Grows when anything changes that a policy looks at: tree, options, heat.
    pub(crate) changes: AtomicU64,
    /// `changes` when the policy last had nothing to do and no compaction ran.
    pub(crate) quiet_at: AtomicU64,
    /// How tables are cut by key prefix, once that is known.
    pub(crate) prefixer: Mutex<Option<Prefixer>>,
    /// Where its values lie.
    pub(crate) values: ArcSwap<ValueFiles>,
    /// Held by the plan that is installed part by part: the tree notes one at most.
    pub(crate) parting: Mutex<()>,
}

/// The manifest, and what it last said.
#[derive(Debug)]
pub(crate) struct ManifestState {
    /// `None` in a store opened for reading only.
    pub(crate) log: Option<Manifest>,
    /// Flushed sequence number by keyspace.
    pub(crate) flushed: BTreeMap<KeyspaceId, SeqNo>,
    pub(crate) next_keyspace: KeyspaceId,
    /// Random id of the store.
    pub(crate) uid: u64,
    /// First log segment that recovery would read, and the sequence number of its first record.
    pub(crate) log_start: (u64, SeqNo),
}

/// A store's shared state.
#[derive(Debug)]
pub(crate) struct Inner {
    /// Which opening of a store this is in the process: batches are bound to one.
    pub(crate) opening: u64,
    pub(crate) options: Options,
    pub(crate) storage: Arc<dyn Storage>,
    pub(crate) tables: Arc<TableContext>,
    pub(crate) cache: Arc<Cache>,
    pub(crate) pool: Arc<ChunkPool>,
    pub(crate) metrics: Metrics,
    pub(crate) next_file: Arc<AtomicU64>,
    pub(crate) wal_files: Arc<WalFiles>,
    pub(crate) keyspaces: RwLock<BTreeMap<KeyspaceId, Arc<KeyspaceInner>>>,
    pub(crate) commit: CachePadded<Mutex<CommitState>>,
    /// What readers may see.
    pub(crate) publisher: Publisher,
    /// Largest sequence number known to survive a power loss.
    pub(crate) durable_seq: CachePadded<AtomicU64>,
    /// Set when the log passes its limit; cleared by the writer that asks for flushes.
    pub(crate) log_too_long: AtomicBool,
    /// Memtables with a larger number are not flushed: a checkpoint waits for all keyspaces to
    /// reach the same moment.
    pub(crate) flush_limit: AtomicU64,
    /// Held by the checkpoint that set the limit.
    pub(crate) checkpointing: Mutex<()>,
    pub(crate) syncer: Syncer<Error>,
    /// Live snapshots: sequence number and how many hold it.
    pub(crate) snapshots: Mutex<BTreeMap<SeqNo, usize>>,
    pub(crate) manifest: Mutex<ManifestState>,
    pub(crate) scheduler: Scheduler,
    pub(crate) bell: Arc<Bell>,
    pub(crate) throttle: Throttle,
    pub(crate) health: Health,
    /// Released at close, even while handles to the store are kept.
    pub(crate) lock: Mutex<Option<Box<dyn StorageLock>>>,
}

/// An open store. Dropping it closes it in order; [`Store::close`] also reports errors.
///
/// All methods take `&self` and may be called from any number of threads.
#[derive(Debug)]
pub struct Store {
    pub(crate) inner: Arc<Inner>,
    default: Keyspace,
    threads: Vec<JoinHandle<()>>,
    closed: bool,
}

impl Store {
    /// Opens (or makes) the store in a directory.
    ///
    /// # Errors
    /// [`Error::NotAStore`], [`Error::ForeignFiles`], [`Error::InUse`], [`Error::NewerFormat`],
    /// [`Error::Corruption`], an invalid option, or a storage error.
    pub fn open(path: impl AsRef<Path>, options: Options) -> Result<Store> {
        open::open_path(path.as_ref(), options)
    }

    /// Opens (or makes) a store on a storage.
    pub fn open_on(storage: Arc<dyn Storage>, options: Options) -> Result<Store> {
        open::open_on(storage, options)
    }

    /// The keyspace that every store has.
    pub fn default_keyspace(&self) -> &Keyspace {
        &self.default
    }

    /// An existing keyspace.
    pub fn keyspace(&self, name: &str) -> Result<Keyspace> {
        let found = self.inner.find_keyspace(name);
        let found = found.ok_or_else(|| Error::UnknownKeyspace { name: name.to_string() })?;
        Ok(Keyspace::new(Arc::clone(&self.inner), found))
    }

    /// A keyspace, made with `options` if it does not exist. For an existing one, options that are
    /// given replace the stored ones.
    pub fn open_keyspace(&self, name: &str, options: Option<KeyspaceOptions>) -> Result<Keyspace> {
        self.inner.open_keyspace(name, options)?;
        self.keyspace(name)
    }

    /// Drops a keyspace and its tables. Handles to it get [`Error::UnknownKeyspace`] on writes.
    pub fn drop_keyspace(&self, name: &str) -> Result<()> {
        self.inner.drop_keyspace(name)
    }

    /// Names of all keyspaces, in order of creation.
    pub fn keyspaces(&self) -> Vec<String> {
        self.inner.keyspaces.read().values().map(|keyspace| keyspace.name.clone()).collect()
    }

    /// Stores a value in the default keyspace.
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.default.put(key, value)
    }

    /// Looks a key of the default keyspace up.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        self.default.get(key)
    }

    /// Removes a key of the default keyspace; removing an absent one is legal.
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<()> {
        self.default.delete(key)
    }

    /// Applies all writes of a batch or none (P3). An empty one with [`Durability::Sync`] does what
    /// [`Store::sync`] does.
    pub fn write(&self, batch: &Batch, options: WriteOptions) -> Result<()> {
        self.inner.write(batch, options)
    }

    /// A view of all keyspaces that later writes do not change (P5).
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::new(Arc::clone(&self.inner))
    }

    /// Makes every acknowledged write durable, without flushing memtables.
    pub fn sync(&self) -> Result<()> {
        self.inner.sync_all()
    }

    /// Writes all memtables to tables; returns when that is done and durable.
    pub fn flush(&self) -> Result<()> {
        self.inner.flush_all()
    }

    /// Waits until no flush or compact is running or due.
    pub fn wait_idle(&self) -> Result<()> {
        self.inner.wait_idle()
    }

    /// Flushes, compacts every keyspace into a single run, dropping all that is obsolete, and
    /// collects the garbage of value files.
    pub fn compact(&self) -> Result<()> {
        self.flush()?;
        let all: Vec<_> = self.inner.keyspaces.read().values().cloned().collect();
        all.iter().try_for_each(|keyspace| self.inner.compact(keyspace))?;
        self.collect_values()
    }

    /// Runs one flush or compact if one is due; with [`crate::Background::Manual`] nobody else
    /// does.
    pub fn run_one_job(&self) -> Result<bool> {
        self.inner.run_one_job()
    }

    /// Collects garbage of value files until no group promises a slot, and gives the space back,
    /// on a full disk as well: it is what makes room.
    pub fn collect_values(&self) -> Result<()> {
        self.inner.check_not_stopped()?;
        let all: Vec<_> = self.inner.keyspaces.read().values().cloned().collect();
        let outcome = all.iter().try_for_each(|keyspace| self.inner.collect_all_values(keyspace));
        self.inner.note_outcome(outcome)
    }

    /// Makes a copy of the store, as of now, in a new directory: hard links where possible.
    pub fn checkpoint(&self, path: impl AsRef<Path>) -> Result<()> {
        self.inner.checkpoint(path.as_ref())
    }

    /// Counters, sizes and latencies.
    pub fn metrics(&self) -> MetricsSnapshot {
        self.inner.metrics_snapshot()
    }

    /// Reads every byte of every table and checks it against checksums, order and metadata.
    pub fn verify(&self) -> Result<VerifyReport> {
        self.inner.verify()
    }

    /// Closes the store: stops background work, flushes memtables, releases the lock.
    pub fn close(mut self) -> Result<()> {
        self.close_once()
    }

    fn close_once(&mut self) -> Result<()> {
        if std::mem::replace(&mut self.closed, true) {
            return Ok(());
        }
        let outcome = self.inner.shut_down();
        // The job that told the listener would be waited for. The log keeps what is in memory.
        check_outside(self.inner.opening)?;
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
        outcome.and_then(|()| self.inner.finish_close())
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        if let Err(error) = self.close_once() {
            tracing::warn!(%error, "closing the store failed; the log keeps what was not flushed");
        }
    }
}

impl Inner {
    pub(crate) fn find_keyspace(&self, name: &str) -> Option<Arc<KeyspaceInner>> {
        self.keyspaces.read().values().find(|keyspace| keyspace.name == name).cloned()
    }

    /// A memtable to begin with, or one behind another: with a filter if that was filled, since
    /// it will be too.
    pub(crate) fn new_memtable(
        &self,
        options: &KeyspaceOptions,
        before: Option<&Memtable>,
    ) -> Memtable {
        let limit_bytes = options.write_buffer_bytes as usize;
        match before.is_some_and(|before| before.allocated_bytes() >= limit_bytes / 2) {
            true => Memtable::filtered(&self.pool, limit_bytes),
            false => Memtable::new(&self.pool, limit_bytes),
        }
    }

    pub(crate) fn emit(&self, event: impl FnOnce() -> Event) {
        if let Some(listener) = &self.options.listener {
            let _inside = Inside::of(self.opening);
            listener.on_event(&event());
        }
    }

    pub(crate) fn durability(&self, options: WriteOptions) -> Durability {
        options.durability.unwrap_or(self.options.durability)
    }

    /// Commits a batch of any keyspaces.
    pub(crate) fn write(&self, batch: &Batch, options: WriteOptions) -> Result<()> {
        batch.check_for(self.opening)?;
        let mut sums: BTreeMap<KeyspaceId, (u64, u64)> = BTreeMap::new();
        for operation in batch.operations() {
            let sum = sums.entry(operation.keyspace).or_default();
            sum.0 += 1;
            sum.1 += (operation.key.len() + operation.value.len()) as u64;
        }
        let keyspaces = self.keyspaces.read();
        let resolved: Vec<(Arc<KeyspaceInner>, u64, u64)> = sums
            .into_iter()
            .map(|(id, (count, user_bytes))| match keyspaces.get(&id) {
                Some(keyspace) => Ok((Arc::clone(keyspace), count, user_bytes)),
                None => Err(Error::UnknownKeyspace { name: format!("#{id}") }),
            })
            .collect::<Result<_>>()?;
        drop(keyspaces);
        let shares: Vec<Share<'_>> = resolved
            .iter()
            .map(|(keyspace, count, user_bytes)| Share {
                keyspace,
                count: *count,
                user_bytes: *user_bytes,
            })
            .collect();
        self.commit(batch, &shares, self.durability(options))
    }
}
