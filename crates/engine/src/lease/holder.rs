//! The reader's side of a lease.

use std::collections::BTreeMap;
use std::sync::Arc;

use runstone_storage::fork::Process;
use runstone_storage::{Category, LockMode, Storage, StorageFile, StorageLock};

use super::{EditPlace, LEASE_BYTES, MOST_LEASES, lease_name};
use crate::error::{Error, Result};
use crate::sync::{Mutex, rank};

/// A lease, held by views of the store. The oldest view decides which files the lease keeps.
#[derive(Debug)]
pub(crate) struct Lease {
    storage: Arc<dyn Storage>,
    name: String,
    id: u64,
    file: Arc<dyn StorageFile>,
    /// The number of views that have read exactly up to this place.
    views: Mutex<rank::LeaseViews, BTreeMap<EditPlace, usize>>,
    /// The process that took the lease. A fork has the same file, and must not change what it says
    /// for the views of its parent.
    process: Process,
    _lock: Box<dyn StorageLock>,
}

/// A view's part of a lease. Dropping it lets the writer free what only this view needs.
#[derive(Debug)]
pub(crate) struct LeasePart {
    lease: Arc<Lease>,
    place: EditPlace,
}

impl Lease {
    /// Takes a lease on everything. Called before the manifest is read.
    pub(crate) fn take(storage: &Arc<dyn Storage>, id: u64) -> Result<Arc<Lease>> {
        for number in 0..MOST_LEASES {
            let name = lease_name(number);
            let Some(lock) = storage.lock(&name, LockMode::Exclusive)? else { continue };
            let file = match storage.open(&name, Category::Other) {
                Err(error) if error.is_not_found() => storage.create(&name, Category::Other)?,
                file => file?,
            };
            file.write_at(0, &EditPlace::START.encode(id))?;
            // A writer that revoked an earlier lease may have replaced the file meanwhile.
            if lock.check().is_err() {
                continue;
            }
            let (storage, views) = (Arc::clone(storage), Mutex::default());
            let process = Process::current();
            return Ok(Arc::new(Lease { storage, name, id, file, views, process, _lock: lock }));
        }
        Err(Error::invalid(
            format!("{MOST_LEASES} followers read this store already"),
            "stop one of them",
        ))
    }

    /// Whether the writer has revoked the lease.
    pub(crate) fn is_revoked(&self) -> bool {
        let id = || -> runstone_storage::Result<Option<u64>> {
            let file = self.storage.open(&self.name, Category::Other)?;
            if file.len()? < LEASE_BYTES as u64 {
                return Ok(None);
            }
            let bytes = file.read_vec(0, LEASE_BYTES)?;
            Ok(EditPlace::decode(&bytes).map(|(id, _)| id))
        };
        match id() {
            Ok(id) => id != Some(self.id),
            Err(error) => error.is_not_found(),
        }
    }

    /// Refuses a call from a fork of the process that took the lease.
    fn check_process(&self) -> Result<()> {
        if self.process.is_current() { Ok(()) } else { Err(Error::OtherProcess) }
    }

    /// The part of a view that has read up to `place`.
    pub(crate) fn part(self: &Arc<Self>, place: EditPlace) -> Result<LeasePart> {
        self.check_process()?;
        let mut views = self.views.lock();
        *views.entry(place).or_default() += 1;
        self.tell(&views)?;
        Ok(LeasePart { lease: Arc::clone(self), place })
    }

    /// Writes the place up to which the oldest view has read.
    fn tell(&self, views: &BTreeMap<EditPlace, usize>) -> Result<()> {
        let Some(oldest) = views.keys().next() else { return Ok(()) };
        Ok(self.file.write_at(0, &oldest.encode(self.id))?)
    }

    /// Turns the error of a read into [`Error::LeaseRevoked`] if the lease was revoked.
    pub(crate) fn explain(&self, error: Error) -> Error {
        match self.is_revoked() {
            true => Error::LeaseRevoked { path: self.storage.location() },
            false => error,
        }
    }
}

impl LeasePart {
    /// Returns a value that was read from files that this part kept. The value counts only if the
    /// part kept the files to the end: otherwise the writer may have overwritten them during the
    /// read.
    pub(crate) fn judge<T>(&self, outcome: Result<T>) -> Result<T> {
        match self.lease.is_revoked() {
            true => Err(Error::LeaseRevoked { path: self.lease.storage.location() }),
            false => outcome,
        }
    }
}

impl Drop for LeasePart {
    fn drop(&mut self) {
        if self.lease.check_process().is_err() {
            return;
        }
        let mut views = self.lease.views.lock();
        if let Some(count) = views.get_mut(&self.place) {
            *count -= 1;
            if *count == 0 {
                views.remove(&self.place);
            }
        }
        if let Err(error) = self.lease.tell(&views) {
            tracing::debug!(%error, "a lease keeps more than it needs");
        }
    }
}
