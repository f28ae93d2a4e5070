//! The store: what users hold, and how its parts are put together.
//!
//! * [`engine`]: the parts of an open store.
//! * [`open`]: opening; `recovery`: what the log adds. [`close`]: the orderly end.
//! * [`keyspace`]: the handle to a keyspace; `keyspaces`: they are made, changed and dropped.
//! * [`kv`]: what every key-value store can do.
//! * `metrics`, `verify`, `checkpoint`: the store looked at, checked and copied.
//! * [`unstable`]: looks inside, without a promise.

mod checkpoint;
mod close;
mod directory;
mod engine;
mod keyspace;
mod keyspaces;
pub mod kv;
mod metrics;
mod open;
mod recovery;
pub mod unstable;
mod verify;

use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;

use runstone_storage::Storage;

pub use crate::visibility::snapshot::Snapshot;
pub use keyspace::Keyspace;
pub use verify::{Damage, VerifyReport};

use crate::base::error::{Error, Result};
use crate::base::event::check_outside;
use crate::base::metrics::MetricsSnapshot;
use crate::base::options::{KeyspaceOptions, Options, WriteOptions};
use crate::values::Value;
use crate::wal::batch::Batch;
use engine::Engine;

/// Name of the keyspace that every store has.
pub const DEFAULT_KEYSPACE: &str = "default";

/// An open store. Dropping it closes it in order; [`Store::close`] also reports errors.
///
/// All methods take `&self` and may be called from any number of threads.
#[derive(Debug)]
pub struct Store {
    inner: Arc<Engine>,
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
        let found = self.inner.catalog.find_keyspace(name);
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
        self.inner.catalog.all().iter().map(|keyspace| keyspace.name.clone()).collect()
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
        self.inner.visibility.snapshot()
    }

    /// Makes every acknowledged write durable, without flushing memtables.
    pub fn sync(&self) -> Result<()> {
        self.inner.committer.sync_all()
    }

    /// Writes all memtables to tables; returns when that is done and durable.
    pub fn flush(&self) -> Result<()> {
        self.inner.runner.flush_all()
    }

    /// Waits until no flush or compact is running or due.
    pub fn wait_idle(&self) -> Result<()> {
        self.inner.runner.wait_idle()
    }

    /// Flushes, compacts every keyspace into a single run, dropping all that is obsolete, and
    /// collects the garbage of value files.
    pub fn compact(&self) -> Result<()> {
        self.flush()?;
        let all = self.inner.catalog.all();
        all.iter().try_for_each(|keyspace| self.inner.runner.compact(keyspace))?;
        self.collect_values()
    }

    /// Runs one flush or compact if one is due; with [`crate::Background::Manual`] nobody else
    /// does.
    pub fn run_one_job(&self) -> Result<bool> {
        self.inner.runner.run_one_job()
    }

    /// Collects garbage of value files until no group promises a slot, and gives the space back,
    /// on a full disk as well: it is what makes room.
    pub fn collect_values(&self) -> Result<()> {
        self.inner.env.check_not_stopped()?;
        let all = self.inner.catalog.all();
        let outcome =
            all.iter().try_for_each(|keyspace| self.inner.runner.collect_all_values(keyspace));
        self.inner.runner.note_outcome(outcome)
    }

    /// Makes a copy of the store, as of now, in a new directory: hard links where possible.
    pub fn checkpoint(&self, path: impl AsRef<Path>) -> Result<()> {
        self.inner.checkpoint(path.as_ref())
    }

    /// Counters, sizes and latencies.
    pub fn metrics(&self) -> MetricsSnapshot {
        self.inner.metrics_snapshot()
    }

    /// Bytes that the store takes on disk now: tables, values, log and manifest.
    pub fn disk_bytes(&self) -> u64 {
        self.inner.disk_bytes()
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
        check_outside(self.inner.env.opening)?;
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
