//! The directory of an open store. The log, the manifest and the value files share it, and one sync
//! covers the names of all of them. After one sync has failed, a later sync that succeeds proves
//! nothing (P7). Tables, value files and manifests are opened through [`OpenFiles`].

use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::sync::{Mutex, rank};
use runstone_storage::{
    Category, Counters, Error, FileInfo, LockMode, Operation, Result, Storage, StorageFile,
    StorageLock,
};

use super::open_files::{OpenFiles, OpenList};
use super::owner::Owner;
use crate::log::number_in;
use crate::pace::io_rate::IoRate;

/// A storage that refuses to sync its directory after one such sync has failed, and refuses to
/// change anything once another process may own it.
#[derive(Debug)]
pub(super) struct SharedDirectory {
    storage: Arc<dyn Storage>,
    files: Arc<OpenFiles>,
    owner: Arc<Owner>,
    /// The first error. Every sync holds this lock, so none succeeds while another one fails.
    failed: Mutex<rank::DirectorySync, Option<String>>,
}

impl SharedDirectory {
    /// After a failed sync, the refusal lasts until the store is closed: the next open starts from
    /// what is on disk.
    pub(super) fn new(
        storage: Arc<dyn Storage>,
        list: Arc<OpenList>,
        io_rate: Arc<IoRate>,
    ) -> SharedDirectory {
        let owner = Arc::new(Owner::default());
        let files = OpenFiles::new(Arc::clone(&storage), Arc::clone(&owner), list, io_rate);
        SharedDirectory { storage, files, owner, failed: Mutex::new(None) }
    }

    /// Takes over a lock of the directory that was acquired before this object existed.
    pub(super) fn hold(&self, lock: Box<dyn StorageLock>) -> Box<dyn StorageLock> {
        self.owner.hold(lock)
    }
}

/// Whether a file may be closed while it is in use. `CURRENT` must not be closed, because another
/// file takes over its name.
fn is_pooled(name: &str, category: Category) -> bool {
    match category {
        Category::Table | Category::Value => true,
        Category::Manifest => number_in(name, "manifest").is_some(),
        _ => false,
    }
}

impl Storage for SharedDirectory {
    fn sync_dir(&self) -> Result<()> {
        self.owner.check()?;
        let mut failed = self.failed.lock();
        if failed.is_none() {
            match self.files.attempt(|| self.storage.sync_dir()) {
                // The directory was not opened, so nothing was synced and nothing was lost.
                Err(error) if error.is_out_of_files() => return Err(error),
                outcome => *failed = outcome.err().map(|error| error.to_string()),
            }
        }
        match &*failed {
            // The error is never "no space": callers would wait for space, but what the failed sync
            // lost does not come back.
            Some(first) => {
                let source = io::Error::other(first.clone());
                Err(Error::new(Operation::SyncDir, self.storage.location(), source))
            }
            None => Ok(()),
        }
    }

    fn create(&self, name: &str, category: Category) -> Result<Arc<dyn StorageFile>> {
        self.owner.check()?;
        match is_pooled(name, category) {
            true => self.files.create(name, category),
            false => self.files.attempt(|| self.storage.create(name, category)),
        }
    }

    fn create_mapped(
        &self,
        name: &str,
        category: Category,
        capacity_bytes: u64,
    ) -> Result<Arc<dyn StorageFile>> {
        self.owner.check()?;
        self.files.attempt(|| self.storage.create_mapped(name, category, capacity_bytes))
    }

    fn open_mapped(&self, name: &str, category: Category) -> Result<Arc<dyn StorageFile>> {
        self.files.attempt(|| self.storage.open_mapped(name, category))
    }

    fn open(&self, name: &str, category: Category) -> Result<Arc<dyn StorageFile>> {
        match is_pooled(name, category) {
            true => self.files.open(name, category),
            false => self.files.attempt(|| self.storage.open(name, category)),
        }
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.owner.check()?;
        self.storage.rename(from, to)
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.owner.check()?;
        self.files.remove(name)
    }

    fn list(&self) -> Result<Vec<FileInfo>> {
        self.storage.list()
    }

    fn names(&self, extension: &str) -> Result<Vec<String>> {
        self.storage.names(extension)
    }

    fn file_number(&self, name: &str) -> u64 {
        self.storage.file_number(name)
    }

    fn lock(&self, name: &str, mode: LockMode) -> Result<Option<Box<dyn StorageLock>>> {
        let lock = self.storage.lock(name, mode)?;
        Ok(lock.map(|lock| match mode {
            LockMode::Exclusive => self.owner.hold(lock),
            LockMode::Shared => lock,
        }))
    }

    fn lock_holder(&self, name: &str) -> Option<u32> {
        self.storage.lock_holder(name)
    }

    fn check_owner(&self) -> Result<()> {
        self.owner.check()
    }

    fn create_sibling(&self, path: &Path) -> Result<Arc<dyn Storage>> {
        self.storage.create_sibling(path)
    }

    fn link_into(&self, name: &str, category: Category, target: &dyn Storage) -> Result<()> {
        self.files.attempt(|| self.storage.link_into(name, category, target))
    }

    fn free_bytes(&self) -> Option<u64> {
        self.storage.free_bytes()
    }

    fn is_read_only(&self) -> bool {
        self.storage.is_read_only()
    }

    fn counters(&self) -> &Counters {
        self.storage.counters()
    }

    fn location(&self) -> String {
        self.storage.location()
    }

    fn directory(&self) -> Option<&Path> {
        self.storage.directory()
    }
}
