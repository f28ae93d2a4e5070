//! What the stores of a process share: one memory budget, the threads that work in the background,
//! the files that are open, and the rate at which the background writes.

use std::mem;
use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use runstone_storage::Storage;
use runstone_storage::fork::Process;

use super::Store;
use super::open::{open_on, open_path};
use super::open_files::OpenList;
use crate::cache::{Budget, Cache};
use crate::env::Common;
use crate::error::{Error, Result};
use crate::jobs::workers::Workers;
use crate::memtable::arena::ChunkPool;
use crate::metrics::MemoryUse;
use crate::options::store::{
    Background, LEAST_RATE_BYTES, MAPPED_LOG_FRACTION, MIN_SEGMENT_BYTES, Options,
    SHARED_MAPPED_SEGMENTS, check_threads,
};
use crate::pace::io_rate::IoRate;
use crate::sync::threads::Bell;
use crate::write::siblings::Siblings;
use crate::write::syncing::Syncing;

/// The most bytes of memory chunks that are kept for the next memtable while there are writers, and
/// the largest fraction of the memory budget that they may use.
const POOL_BYTES: u64 = 64 << 20;
const POOL_FRACTION: u64 = 8;

/// Log segments are as small as if there were this many stores, even if there are fewer.
const FEW_STORES: u64 = 64;

/// Resources that any number of stores of a process share. A program that opens many stores gives
/// all of them the same resources, so that a thousand stores use no more memory, threads and
/// descriptors than a few. A clone is cheap. The resources last until the last store that was
/// opened with them is closed.
///
/// ```
/// # fn main() -> runstone::Result<()> {
/// # let dir = tempfile::tempdir().expect("a directory");
/// use runstone::{Options, Resources};
///
/// let resources = Resources::builder()
///     .memory_budget(64 << 20)
///     .threads(2)
///     .max_open_files(200)
///     .background_bytes_per_second(100 << 20)
///     .build()?;
/// let stores: Vec<_> = (0..10)
///     .map(|n| resources.open(dir.path().join(n.to_string()), Options::default()))
///     .collect::<runstone::Result<_>>()?;
/// for store in &stores {
///     store.put("key", "value")?;
/// }
/// assert!(resources.memory().memtable_bytes < 64 << 20);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Resources(Arc<Parts>);

/// Builds [`Resources`]. Values that are not set are the defaults of a store's options.
#[derive(Clone, Debug)]
#[must_use = "`build` makes them"]
pub struct ResourcesBuilder {
    options: Options,
    background_bytes_per_second: Option<u64>,
}

/// The parts of the resources of one store or of many.
#[derive(Debug)]
pub(super) struct Parts {
    pub(super) budget: Arc<Budget>,
    pub(super) pool: Arc<ChunkPool>,
    pub(super) common: Common,
    pub(super) siblings: Arc<Siblings>,
    pub(super) syncing: Arc<Syncing>,
    pub(super) files: Arc<OpenList>,
    /// `None` if callers run the jobs, or nothing is to be written.
    pub(super) workers: Option<Workers>,
    /// The options for all stores.
    options: Options,
    /// Stores that are open.
    stores: AtomicU64,
    /// The number of caches that were made.
    caches: AtomicU64,
    process: Process,
}

impl Resources {
    /// Begins to build resources.
    pub fn builder() -> ResourcesBuilder {
        ResourcesBuilder { options: Options::default(), background_bytes_per_second: None }
    }

    /// Opens the store in a directory, or makes one there. The store uses these resources, so its
    /// options `memory_budget_bytes`, `background` (unless jobs are run by hand) and
    /// `max_open_files` are ignored.
    ///
    /// # Errors
    /// Those of [`Store::open`].
    pub fn open(&self, path: impl AsRef<Path>, options: Options) -> Result<Store> {
        self.check_process()?;
        open_path(path.as_ref(), options, Some(&self.0))
    }

    /// Does the same as [`Self::open`] on a storage.
    pub fn open_on(&self, storage: Arc<dyn Storage>, options: Options) -> Result<Store> {
        self.check_process()?;
        open_on(storage, options, Some(&self.0))
    }

    /// The parts of the resources that a follower uses.
    pub(super) fn parts(&self) -> Result<&Arc<Parts>> {
        self.check_process()?;
        Ok(&self.0)
    }

    fn check_process(&self) -> Result<()> {
        if self.0.process.is_current() { Ok(()) } else { Err(Error::OtherProcess) }
    }

    /// The memory that all stores use together. In a fork of the process the cache counts as
    /// empty.
    pub fn memory(&self) -> MemoryUse {
        self.0.budget.usage()
    }

    /// How many stores are open, or followed.
    pub fn stores(&self) -> u64 {
        self.0.stores.load(Relaxed)
    }
}

impl Drop for Resources {
    /// The threads do not exist in a fork, and a lock may be held there for ever. So the fork keeps
    /// the memory.
    fn drop(&mut self) {
        if !self.0.process.is_current() {
            mem::forget(Arc::clone(&self.0));
        }
    }
}

impl ResourcesBuilder {
    /// The bound on memtables, mapped log segments, block cache, index and filters of all stores
    /// together. Each store with writes needs 192 KiB for its log, however small its part of the
    /// budget is.
    pub fn memory_budget(mut self, bytes: u64) -> Self {
        self.options.memory_budget_bytes = bytes;
        self
    }

    /// Threads for the flushes and compactions of all stores. With at least 2, a long compaction
    /// does not delay flushes.
    pub fn threads(mut self, count: usize) -> Self {
        self.options.background = Background::Threads(count);
        self
    }

    /// The number of tables, value files and manifests that are kept open. Each store has one more
    /// descriptor, for its lock, and one for its log if the file system cannot map the log. A
    /// follower has three: for its lease, and for the manifest and the log that it reads.
    pub fn max_open_files(mut self, count: usize) -> Self {
        self.options.max_open_files = Some(count);
        self
    }

    /// How fast flushes, compactions and collections may write, in bytes per second. Only
    /// compactions and collections wait, but bytes that flushes write count too. Compactions and
    /// collections do not wait while writers wait for them.
    pub fn background_bytes_per_second(mut self, bytes: u64) -> Self {
        self.background_bytes_per_second = Some(bytes);
        self
    }

    /// Starts the threads.
    ///
    /// # Errors
    /// If a number is not allowed, or no more threads can be started.
    pub fn build(self) -> Result<Resources> {
        // The field of a store's options has a different name from the method.
        if let Background::Threads(count) = self.options.background {
            check_threads("threads", count)?;
        }
        self.options.check()?;
        let rate = self.background_bytes_per_second;
        if let Some(bytes) = rate.filter(|bytes| *bytes < LEAST_RATE_BYTES) {
            let (name, least) = ("background_bytes_per_second", LEAST_RATE_BYTES);
            return Err(Error::invalid(
                format!("{name} is {bytes}, but must be at least {least}"),
                format!("set it to {least} or more, or leave it out for no limit"),
            ));
        }
        let io_rate = IoRate::new(rate);
        let parts = Parts::new(self.options, io_rate, true);
        parts.start()?;
        Ok(Resources(Arc::new(parts)))
    }
}

/// The error if the system allows no more threads.
pub(super) fn no_threads(error: &std::io::Error) -> Error {
    Error::invalid(
        format!("cannot start background threads: {error}"),
        "raise the limit of threads, or use fewer",
    )
}

/// How much of a budget free chunks may use.
fn pool_bytes(budget_bytes: u64) -> usize {
    POOL_BYTES.min(budget_bytes / POOL_FRACTION) as usize
}

impl Parts {
    /// The resources of one store alone.
    pub(super) fn of(options: &Options) -> Arc<Parts> {
        Arc::new(Parts::new(options.clone(), IoRate::new(None), false))
    }

    fn new(options: Options, io_rate: IoRate, is_sharing: bool) -> Parts {
        let bell = Arc::new(Bell::default());
        let budget = Budget::new(options.memory_budget_bytes);
        let (pool_bytes, budget_bytes) = (pool_bytes(budget.bytes()), budget.shared_bytes());
        let cache = Arc::new(Cache::sharing(&budget, 0));
        let has_threads = options.background != Background::Manual && !options.read_only;
        let pool = ChunkPool::new(pool_bytes, Some(cache), Arc::clone(&bell));
        Parts {
            workers: has_threads.then(|| Workers::new(&pool, &budget)),
            pool,
            budget,
            common: Common { is_sharing, budget_bytes, bell, io_rate: Arc::new(io_rate) },
            siblings: Arc::default(),
            syncing: Arc::default(),
            files: OpenList::new(options.open_file_limit()),
            options,
            stores: AtomicU64::new(0),
            caches: AtomicU64::new(1),
            process: Process::current(),
        }
    }

    /// Starts the threads.
    pub(super) fn start(&self) -> Result<()> {
        let (Some(workers), Background::Threads(count)) = (&self.workers, self.options.background)
        else {
            return Ok(());
        };
        workers.start(count).map_err(|error| no_threads(&error))
    }

    pub(super) fn is_sharing(&self) -> bool {
        self.common.is_sharing
    }

    /// The options of a store that uses these parts. The more stores there are already, the smaller
    /// are its log segments.
    pub(super) fn apply(&self, mut options: Options) -> Options {
        if !self.is_sharing() {
            return options;
        }
        let budget_bytes = self.budget.bytes();
        let stores = (self.stores.load(Relaxed) + 1).max(FEW_STORES);
        let log_bytes = budget_bytes / MAPPED_LOG_FRACTION / SHARED_MAPPED_SEGMENTS / stores;
        options.wal_segment_bytes = options.wal_segment_bytes.min(log_bytes.max(MIN_SEGMENT_BYTES));
        options.memory_budget_bytes = budget_bytes;
        options.max_open_files = Some(self.options.open_file_limit());
        if options.background != Background::Manual {
            options.background = self.options.background;
        }
        options
    }

    /// Changes the memory budget of all stores that use these parts.
    pub(super) fn set_budget(&self, bytes: u64) {
        self.budget.set(bytes);
        self.pool.set_limit(pool_bytes(bytes));
    }

    /// A cache for a store that is being opened. Each attempt to open it gets a cache of its own: a
    /// store that was opened on a full disk reuses the numbers of files that the first attempt made
    /// and removed.
    pub(super) fn new_cache(&self) -> Cache {
        Cache::sharing(&self.budget, self.caches.fetch_add(1, Relaxed))
    }

    /// Ends the threads without waiting for them, see [`Workers::abandon`].
    pub(super) fn abandon(&self) {
        self.workers.iter().for_each(Workers::abandon);
        self.syncing.abandon();
    }

    /// Counts a store as open, or as closed.
    pub(super) fn count(&self, is_open: bool) {
        match is_open {
            true => self.stores.fetch_add(1, Relaxed),
            false => self.stores.fetch_sub(1, Relaxed),
        };
    }
}

/// Parts that a follower uses. The follower counts as an open store as long as this value exists.
#[derive(Debug)]
pub(super) struct Member(Arc<Parts>);

impl Member {
    pub(super) fn new(parts: Arc<Parts>) -> Member {
        parts.count(true);
        Member(parts)
    }
}

impl Deref for Member {
    type Target = Arc<Parts>;

    fn deref(&self) -> &Arc<Parts> {
        &self.0
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.0.count(false);
    }
}

impl Drop for Parts {
    fn drop(&mut self) {
        // In a fork the thread does not exist.
        if self.process.is_current() {
            self.syncing.end();
        }
    }
}
