//! The reader's side: requests the measurements of a store that another process has open.

use std::path::Path;
use std::sync::Arc;

use runstone_random::Random;
use runstone_storage::Storage;
use runstone_storage::fork::Process;

use super::{LiveState, read};
use crate::error::{Error, Result};
use crate::lease::EditPlace;
use crate::lease::holder::{Lease, LeasePart};
use crate::store::Store;
use crate::store::follow::{Follower, cut};
use crate::store::open::LOCK_NAME;
use crate::sync::{Mutex, rank};
use crate::tree::tail::ManifestTail;

/// Gets the measurements of a store from the process that writes to it, without reading its data.
/// The writer reports once a second, in its own threads, as long as this value or a [`Follower`]
/// exists. The writer keeps no files for this value.
///
/// ```
/// # fn main() -> runstone::Result<()> {
/// # let dir = tempfile::tempdir().expect("a directory");
/// use std::time::Duration;
///
/// use runstone::{Options, Store};
///
/// let writer = Store::open(dir.path(), Options::default())?;
/// writer.put("key", "value")?;
/// // Usually in another process.
/// let watch = Store::watch(dir.path())?;
/// let told = loop {
///     match watch.live()?.filter(|told| told.is_current()) {
///         Some(told) => break told,
///         None => std::thread::sleep(Duration::from_millis(100)),
///     }
/// };
/// assert_eq!((told.process, told.metrics.counters.writes), (std::process::id(), 1));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Watch {
    /// The storage of the store: for reading, and for leases.
    storages: (Arc<dyn Storage>, Arc<dyn Storage>),
    /// The process that took the lease.
    process: Process,
    lease: Mutex<rank::Watching, Option<(Arc<Lease>, LeasePart)>>,
}

impl Store {
    /// Watches the store in a directory, whether or not another process writes to it.
    ///
    /// # Errors
    /// [`Error::NotAStore`], [`Error::NewerFormat`], [`Error::Corruption`], or a storage error.
    /// Also an error if 64 others follow the store already.
    pub fn watch(path: impl AsRef<Path>) -> Result<Watch> {
        Watch::begin(cut::open(path.as_ref())?)
    }

    /// Does the same as [`Store::watch`] on a storage.
    ///
    /// # Errors
    /// Those of [`Store::watch`].
    pub fn watch_on(storage: Arc<dyn Storage>) -> Result<Watch> {
        Watch::begin((Arc::clone(&storage), storage))
    }
}

impl Watch {
    fn begin(storages: (Arc<dyn Storage>, Arc<dyn Storage>)) -> Result<Watch> {
        // A directory that is not a store gets no lease.
        ManifestTail::open(&storages.0)?;
        let watch = Watch { storages, process: Process::current(), lease: Mutex::default() };
        watch.ask()?;
        Ok(watch)
    }

    /// Requests reports from the writer, unless that was done already. The writer may have revoked
    /// the lease, because followers kept too much. On a read-only file system nobody can request
    /// reports.
    fn ask(&self) -> Result<()> {
        let mut asked = self.lease.lock();
        if asked.as_ref().is_some_and(|(lease, _)| !lease.is_revoked()) {
            return Ok(());
        }
        *asked = None;
        let lease = match Lease::take(&self.storages.1, Random::from_entropy().draw()) {
            Err(Error::Storage(error)) if error.is_refused() => return Ok(()),
            taken => taken?,
        };
        let part = lease.part(EditPlace::END)?;
        *asked = Some((lease, part));
        Ok(())
    }

    /// The last report of the writer. `None` if there is none: less than a second has passed since
    /// the watch began, nobody has the store open for writing, or its jobs are run by hand. An old
    /// report comes from a process that has ended or that hangs: see [`LiveState::is_current`].
    ///
    /// # Errors
    /// A storage error, or an error if 64 others follow the store already; [`Error::OtherProcess`]
    /// in a fork.
    pub fn live(&self) -> Result<Option<LiveState>> {
        if !self.process.is_current() {
            return Err(Error::OtherProcess);
        }
        self.ask()?;
        read(&*self.storages.0)
    }

    /// The process that has the store open, if the system knows it.
    pub fn process(&self) -> Option<u32> {
        self.storages.0.lock_holder(LOCK_NAME)
    }
}

impl Follower {
    /// The writer's last report of its counters, sizes and back-pressure, as [`Watch::live`]
    /// returns it.
    ///
    /// # Errors
    /// A storage error.
    pub fn live(&self) -> Result<Option<LiveState>> {
        read(&*self.storage()?)
    }
}
