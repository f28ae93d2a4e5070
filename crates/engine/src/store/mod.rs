//! The store as its users see it, and how its parts are put together.
//!
//! - [`engine`]: the parts of an open store.
//! - [`open`]: opening; `recovery`: replaying the log; `lost_log`: records that are not used.
//!   [`close`]: the orderly shutdown.
//! - [`builder`]: opening a store step by step. [`resources`]: what a store shares with other
//!   stores of the process.
//! - [`keyspace`]: the handle to a keyspace; `keyspaces`: making, changing and dropping them;
//!   `bulk`: bulk loads; [`sorted`]: files of sorted entries; `ingest`: loads of such files.
//! - [`transaction`]: beginning and committing transactions; `single_keys`: changes of one key that
//!   depend on its value.
//! - `directory`: the directory that log, manifest and value files share; `open_files`: how many
//!   tables and value files are open; `owner`: whether the directory still belongs to this process.
//! - `scrub`: reads everything now and then.
//! - `survey`: which keys are big.
//! - `metrics`, `verify`, `checkpoint`: measuring, checking and copying a store; `repair`: making
//!   a new one out of a damaged one.
//! - `live`: the reports of an open store to other processes, and their requests.
//! - [`unstable`]: looks inside a store, without a promise of stability.

pub(crate) mod backup;
pub(crate) mod builder;
mod bulk;
pub(crate) mod changes;
mod checkpoint;
mod close;
mod destroy;
mod directory;
mod engine;
pub(crate) mod follow;
mod ingest;
mod keyspace;
mod keyspaces;
mod live;
mod live_count;
mod lost_log;
mod metrics;
pub(crate) mod mirror;
mod open;
mod open_files;
mod owner;
mod queries;
mod recovery;
pub(crate) mod repair;
pub(crate) mod resources;
mod scrub;
mod single_keys;
pub mod sorted;
mod survey;
mod transaction;
mod unfinished;
pub mod unstable;
mod verify;
mod write_back;

use std::mem;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use crate::sync::{Mutex, rank};
use runstone_storage::Storage;

pub use crate::visibility::snapshot::Snapshot;
pub use follow::Follower;
pub use keyspace::Keyspace;
pub use live::LiveState;
pub use live::request::LiveRequest;
pub use live::settings::{LiveChange, LiveSetting};
pub use live::watch::Watch;
pub use queries::RangeEstimate;
pub use repair::RepairOptions;
pub use repair::report::{Doubt, DoubtReason, RepairBasis, RepairReport};
pub use survey::{KeySurvey, PrefixBytes, SurveyedKey};
pub use transaction::Transaction;
pub use verify::{Damage, VerifyReport};

use crate::error::{Error, Result};
use crate::metrics::{KeyspaceHeat, MetricsSnapshot};
use crate::options::store::{KeyspaceOptions, Options, WriteOptions};
use crate::values::Value;
use crate::wal::batch::Batch;
use crate::write::later::Commit;
use crate::write::siblings::Sibling;
use engine::Engine;
use live::publish::House;
use resources::Parts;

/// The name of the keyspace that every store has.
pub const DEFAULT_KEYSPACE: &str = "default";

/// A handle to an open store. Cloning it is cheap. The store is closed cleanly when its last handle
/// is dropped, or at once by [`Store::close`], which also reports errors.
///
/// All methods take `&self` and may be called from any number of threads. In a fork of the process
/// that opened the store they fail with [`Error::OtherProcess`], and dropping it does nothing.
/// Methods that cannot return an error return zeros or an empty list there.
///
/// Of the other handles, threads may share [`Keyspace`], [`Snapshot`], [`crate::Resources`],
/// [`Follower`], [`Watch`], [`crate::Backups`] and [`LiveRequest`] as they share a store (`Send`
/// and `Sync`). [`crate::Cursor`], [`crate::Scan`], [`Transaction`], [`crate::Commit`],
/// [`crate::Changes`], [`crate::Mirror`], [`crate::Archiver`] and [`crate::SortedWriter`] serve one
/// caller at a time, and may be sent to another thread (`Send`).
#[derive(Clone, Debug)]
pub struct Store {
    inner: Arc<Engine>,
    default: Keyspace,
    opening: Arc<Opening>,
}

/// Closes the store when its last handle is dropped.
#[derive(Debug)]
struct Opening {
    inner: Arc<Engine>,
    /// The resources that the store uses, until it is closed.
    parts: Mutex<rank::StoreParts, Option<Arc<Parts>>>,
    /// The outcome of the close, once it has ended. The lock is held during a close, so that others
    /// wait for it.
    closed: Mutex<rank::StoreClosed, Option<Result<()>>>,
}

impl Store {
    /// Opens the store in a directory, or makes one there.
    ///
    /// # Errors
    /// [`Error::NotAStore`], [`Error::ForeignFiles`], [`Error::OtherDatabase`], [`Error::InUse`],
    /// [`Error::NewerFormat`], [`Error::Corruption`], an invalid option, or a storage error.
    pub fn open(path: impl AsRef<Path>, options: Options) -> Result<Store> {
        open::open_path(path.as_ref(), options, None)
    }

    /// Opens the store on a storage, or makes one there.
    pub fn open_on(storage: Arc<dyn Storage>, options: Options) -> Result<Store> {
        open::open_on(storage, options, None)
    }

    /// Removes the store in a directory: all its files, even damaged ones, and no others. The
    /// directory stays.
    ///
    /// ```
    /// # fn main() -> runstone::Result<()> {
    /// # let dir = tempfile::tempdir().expect("a directory");
    /// use runstone::{Error, Options, Store};
    ///
    /// let path = dir.path().join("store");
    /// let store = Store::open(&path, Options::default())?;
    /// assert!(matches!(Store::destroy(&path), Err(Error::InUse { .. })));
    /// store.close()?;
    /// Store::destroy(&path)?;
    /// assert!(matches!(Store::destroy(&path), Err(Error::NotAStore { .. })));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::NotAStore`], [`Error::OtherDatabase`], [`Error::InUse`], or a storage error.
    pub fn destroy(path: impl AsRef<Path>) -> Result<()> {
        destroy::destroy(path.as_ref())
    }

    /// Makes a new store in `to`, a new or empty directory, from the readable contents of the
    /// damaged store in `from`. The damaged store is only read. Each key of the new store is right,
    /// or one of the report's doubts covers it. If the store is healthy, the report says so, and
    /// `to` is not made.
    ///
    /// ```
    /// # fn main() -> runstone::Result<()> {
    /// # let dir = tempfile::tempdir().expect("a directory");
    /// use runstone::{Options, RepairOptions, Store};
    ///
    /// let (from, to) = (dir.path().join("damaged"), dir.path().join("repaired"));
    /// let store = Store::open(&from, Options::default())?;
    /// store.put("key", "value")?;
    /// store.close()?;
    /// assert!(Store::repair(&from, &to, RepairOptions::default())?.is_healthy);
    ///
    /// std::fs::remove_file(from.join("CURRENT")).expect("it is there");
    /// let report = Store::repair(&from, &to, RepairOptions::default())?;
    /// assert!(!report.is_healthy && report.doubts.is_empty());
    /// let store = Store::open(&to, Options::default())?;
    /// assert!(store.get("key")?.is_some());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::NotAStore`], [`Error::OtherDatabase`], [`Error::NewerFormat`]; [`Error::InUse`] if
    /// somebody has the store open for writing; if `to` exists and is not empty; or a storage error
    /// in `to`.
    pub fn repair(
        from: impl AsRef<Path>,
        to: impl AsRef<Path>,
        options: RepairOptions,
    ) -> Result<RepairReport> {
        repair::repair(from.as_ref(), to.as_ref(), options)
    }

    /// Does the same for a store on a storage. Unless the store is healthy, `to` is called to get
    /// an empty storage for the new store.
    ///
    /// # Errors
    /// Those of [`Store::repair`].
    pub fn repair_on(
        from: &Arc<dyn Storage>,
        to: impl FnOnce() -> Result<Arc<dyn Storage>>,
        options: RepairOptions,
    ) -> Result<RepairReport> {
        repair::repair_on(from, to, options)
    }

    /// The keyspace that every store has.
    pub fn default_keyspace(&self) -> &Keyspace {
        &self.default
    }

    /// The handle to an existing keyspace.
    pub fn keyspace(&self, name: &str) -> Result<Keyspace> {
        self.inner.env.check_process()?;
        let found = self.inner.catalog.find_keyspace(name);
        let found = found.ok_or_else(|| Error::UnknownKeyspace { name: name.to_string() })?;
        Ok(Keyspace::new(Arc::clone(&self.inner), found))
    }

    /// The handle to a keyspace, which is made with `options` if it does not exist. If it exists,
    /// `options` replace the stored ones, unless they are `None`.
    pub fn open_keyspace(&self, name: &str, options: Option<KeyspaceOptions>) -> Result<Keyspace> {
        self.inner.open_keyspace(name, options)?;
        self.keyspace(name)
    }

    /// Drops a keyspace and its files. From then on, reads and writes of old handles fail with
    /// [`Error::UnknownKeyspace`]. Snapshots and cursors from before the drop still work.
    pub fn drop_keyspace(&self, name: &str) -> Result<()> {
        self.inner.drop_keyspace(name)
    }

    /// The names of all keyspaces, in order of creation.
    pub fn keyspaces(&self) -> Vec<String> {
        match self.inner.env.check_process() {
            Ok(()) => self.inner.catalog.all().iter().map(|one| one.name.clone()).collect(),
            Err(_) => Vec::new(),
        }
    }

    /// Stores a value in the default keyspace.
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.default.put(key, value)
    }

    /// Looks up a key of the default keyspace.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        self.default.get(key)
    }

    /// Removes a key of the default keyspace. Removing an absent key is not an error.
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<()> {
        self.default.delete(key)
    }

    /// Applies all writes of a batch or none (P3). An empty batch with
    /// [`crate::Durability::Sync`] syncs the log as [`Store::sync`] does.
    ///
    /// # Errors
    /// If the options give a time to live: the entries of a batch have their own
    /// ([`Batch::put_with_ttl`]).
    pub fn write(&self, batch: &Batch, options: WriteOptions) -> Result<()> {
        options.check_no_ttl("a batch")?;
        self.inner.write(batch, options)
    }

    /// Applies all writes of a batch or none (P3), and returns as soon as they are visible. The
    /// commit is ready when they are as durable as `options` say, see [`Commit`]. A task that
    /// awaits it blocks no thread while the disk syncs.
    ///
    /// ```
    /// # fn main() -> runstone::Result<()> {
    /// # let dir = tempfile::tempdir().expect("a directory");
    /// # let store = runstone::Store::open(dir.path(), runstone::Options::default())?;
    /// use runstone::{Batch, WriteOptions};
    ///
    /// let accounts = store.default_keyspace();
    /// let mut batch = Batch::new();
    /// batch.put(accounts, "alice", "10")?;
    /// batch.delete(accounts, "bob")?;
    /// let commit = store.write_later(&batch, WriteOptions::sync())?;
    /// assert!(accounts.get("alice")?.is_some());
    /// // In an async function: commit.await?
    /// commit.wait()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [`Store::write`], if nothing was written, or if the store cannot start the thread
    /// that syncs.
    pub fn write_later(&self, batch: &Batch, options: WriteOptions) -> Result<Commit> {
        options.check_no_ttl("a batch")?;
        self.inner.write_later(batch, options)
    }

    /// A view of all keyspaces that later writes do not change (P5).
    pub fn snapshot(&self) -> Snapshot {
        self.inner.visibility.snapshot()
    }

    /// Makes every acknowledged write durable, even on a full disk. It flushes no memtable, except
    /// in a store without a log (`wal_mode = "off"`), which flushes all.
    pub fn sync(&self) -> Result<()> {
        // A refused call does not affect the commits that are awaited.
        self.inner.env.check_caller()?;
        if !self.inner.env.options.has_log() {
            return self.flush();
        }
        let synced = self.inner.committer.sync_all();
        self.inner.committer.synced_by_hand(&synced);
        synced
    }

    /// Writes all memtables to tables, and returns when the tables are durable.
    pub fn flush(&self) -> Result<()> {
        self.inner.runner.flush_all()
    }

    /// Waits until no flush or compaction is running or due.
    pub fn wait_idle(&self) -> Result<()> {
        self.inner.runner.wait_idle()
    }

    /// Flushes, compacts every keyspace into a single run without obsolete entries, and collects
    /// the garbage in value files.
    pub fn compact(&self) -> Result<()> {
        self.flush()?;
        self.inner.runner.compact_whole(&self.inner.catalog.all())
    }

    /// Runs one job, such as a flush or a compaction, if one is due. With
    /// [`crate::Background::Manual`] jobs run in no other way.
    pub fn run_one_job(&self) -> Result<bool> {
        self.inner.runner.run_one_job()
    }

    /// Runs one job of those that a store runs when nobody has written to it for long.
    #[cfg(feature = "seeded-bugs")]
    #[doc(hidden)]
    pub fn run_idle_job(&self) -> Result<bool> {
        self.inner.runner.run_idle_job()
    }

    /// Collects garbage in value files until no group can free a slot, and returns the space to the
    /// file system. It works on a full disk too, because it frees space.
    pub fn collect_values(&self) -> Result<()> {
        self.inner.env.check_not_stopped()?;
        let all = self.inner.catalog.all();
        let outcome =
            all.iter().try_for_each(|keyspace| self.inner.runner.collect_all_values(keyspace));
        self.inner.runner.note_outcome(outcome)
    }

    /// Copies the store, as of now, into a new directory. Tables are hard links where possible.
    /// Nothing is flushed: writes that are not in tables yet are in a copy of the log. Only a store
    /// with [`crate::WalMode::Off`] is flushed first. O(tables + bytes of values and of the log).
    ///
    /// ```
    /// # fn main() -> runstone::Result<()> {
    /// # let dir = tempfile::tempdir().expect("a directory");
    /// # let options = runstone::Options::default;
    /// use runstone::Store;
    ///
    /// let store = Store::open(dir.path().join("store"), options())?;
    /// store.put("key", "value")?;
    /// store.checkpoint(dir.path().join("copy"))?;
    /// let copy = Store::open(dir.path().join("copy"), options())?;
    /// assert!(copy.get("key")?.is_some());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If the directory is not empty; if the store is closed meanwhile; or a storage error. Nothing
    /// of the copy stays.
    pub fn checkpoint(&self, path: impl AsRef<Path>) -> Result<()> {
        self.inner.checkpoint(path.as_ref(), follow::cut::Tables::Linked)
    }

    /// Does the same as [`Store::checkpoint`], and copies the tables too: damage to a file of the
    /// store does not reach the copy.
    ///
    /// # Errors
    /// Those of [`Store::checkpoint`].
    pub fn checkpoint_copied(&self, path: impl AsRef<Path>) -> Result<()> {
        self.inner.checkpoint(path.as_ref(), follow::cut::Tables::Copied)
    }

    /// The counters, sizes and latencies of the store.
    pub fn metrics(&self) -> MetricsSnapshot {
        self.inner.metrics_snapshot()
    }

    /// The keys and prefixes that are read most, of the 64 keyspaces with the most reads. This is
    /// an estimate from a sample of the last minutes. Keyspaces without a sampled read are missing.
    ///
    /// ```
    /// # fn main() -> runstone::Result<()> {
    /// # let dir = tempfile::tempdir().expect("a directory");
    /// # let store = runstone::Store::open(dir.path(), runstone::Options::default())?;
    /// for number in 0..10_000 {
    ///     store.get(if number % 2 == 0 { "hot".into() } else { format!("cold {number}") })?;
    /// }
    /// let heat = &store.heat()[0];
    /// let hot = &heat.keys[0];
    /// assert_eq!((heat.keyspace.as_str(), &hot.key[..]), ("default", &b"hot"[..]));
    /// let permille = hot.samples * 1000 / heat.samples;
    /// assert!((300..700).contains(&permille), "about half of all reads");
    /// # Ok(())
    /// # }
    /// ```
    pub fn heat(&self) -> Vec<KeyspaceHeat> {
        self.inner.heat(Instant::now())
    }

    /// Bytes that the store uses on disk now: tables, values, log and manifest.
    pub fn disk_bytes(&self) -> u64 {
        self.inner.disk_bytes()
    }

    /// Reads every byte of every table and value file, and checks it against checksums, order and
    /// metadata. The report lists the damage.
    pub fn verify(&self) -> Result<VerifyReport> {
        self.inner.verify()
    }

    /// Closes the store for all its handles: stops background work, flushes memtables and releases
    /// the lock. Other handles fail with [`Error::Closed`] from then on. If another handle closes
    /// the store, this call waits for it and returns the same result.
    ///
    /// On a full disk memtables are not flushed. The log is synced and stays, so nothing is lost.
    ///
    /// # Errors
    /// The first failure of a write or a sync. Only a store without a log returns
    /// [`Error::NoSpace`]; its unflushed writes are then lost.
    pub fn close(self) -> Result<()> {
        self.opening.close_outside()
    }
}

impl Opening {
    /// The opening of a view that a follower made. Nothing has to be closed.
    fn of_view(inner: Arc<Engine>, parts: &Arc<Parts>) -> Opening {
        let parts = Mutex::new(Some(Arc::clone(parts)));
        Opening { inner, parts, closed: Mutex::new(Some(Ok(()))) }
    }

    /// Hands an open store to the background threads.
    fn begin(inner: Arc<Engine>, parts: Arc<Parts>) -> Opening {
        let (env, opening) = (&inner.env, inner.env.opening);
        parts.count(true);
        if parts.is_sharing() && !env.options.read_only {
            parts.siblings.add(opening, Arc::clone(&inner.committer) as Arc<dyn Sibling>);
        }
        if let Some(workers) = parts.workers.as_ref().filter(|_| !env.is_manual())
            && !env.options.read_only
        {
            let house = Box::new(House::of(&inner, &parts));
            workers.add(opening, &inner.runner, house);
        }
        Opening { inner, parts: Mutex::new(Some(parts)), closed: Mutex::default() }
    }

    /// Closes the store, unless the caller is a callback of the store: closing would wait for the
    /// job that called it.
    fn close_outside(&self) -> Result<()> {
        match self.inner.env.check_caller() {
            Ok(()) => self.inner.schedule.check_not_loading(None)?,
            Err(refused @ Error::InsideCallback) => return Err(refused),
            // A fork takes no lock.
            Err(_) => {}
        }
        self.close()
    }

    fn close(&self) -> Result<()> {
        // A callback must not wait for another thread's close, because that close waits for the
        // callback.
        let mut closed = match self.closed.try_lock() {
            Some(closed) => closed,
            None => {
                self.inner.env.check_caller()?;
                self.closed.lock()
            }
        };
        if closed.is_none() {
            *closed = Some(self.close_now());
        }
        closed.clone().unwrap_or(Ok(()))
    }

    fn close_now(&self) -> Result<()> {
        let parts = self.parts.lock().take();
        if let Err(refused @ Error::OtherProcess) = self.inner.env.check_caller() {
            // The threads do not exist in this process, and everything else belongs to the other
            // process.
            mem::forget(parts);
            mem::forget(Arc::clone(&self.inner));
            return Err(refused);
        }
        let outcome = self.inner.shut_down();
        if let Some(parts) = &parts {
            self.leave(parts);
        }
        // The last handle was dropped inside a callback, for which a close would wait. The log, if
        // there is one, keeps the contents of memory.
        let may_wait = self.inner.env.check_caller();
        if let Err(refused) = may_wait.and_then(|()| self.inner.schedule.check_not_loading(None)) {
            if let Some(parts) = parts.and_then(Arc::into_inner) {
                parts.abandon();
            }
            self.inner.committer.end_awaited(&Err(Error::Closed), false);
            return Err(refused);
        }
        if let Some(parts) = &parts {
            parts.syncing.finish(self.inner.env.opening);
        }
        // Threads that serve no other store end here.
        drop(parts);
        outcome.and_then(|()| self.inner.finish_close())
    }

    /// Removes the store from the resources that it shares with others.
    fn leave(&self, parts: &Parts) {
        let opening = self.inner.env.opening;
        parts.count(false);
        parts.siblings.remove(opening);
        if let Some(workers) = &parts.workers {
            workers.remove(opening);
        }
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        if self.inner.env.check_process().is_err() {
            // The close of a view does nothing, and freeing its memory takes locks of the budget,
            // which a thread of the parent may have held.
            mem::forget((self.parts.get_mut().take(), Arc::clone(&self.inner)));
        }
        if let Err(error) = self.close()
            && !matches!(error, Error::OtherProcess)
        {
            tracing::warn!(%error, "closing the store failed; a log keeps what was not flushed");
        }
    }
}
