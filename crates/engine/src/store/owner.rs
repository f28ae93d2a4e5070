//! Whether this process still owns the directory of an open store. Two events end the ownership.
//! After a fork, the child has copies of all handles. And somebody may remove or replace the lock
//! file, so that another process can open the store. Code that changes a file checks here first.

use std::io;
use std::sync::{Arc, OnceLock, Weak};

use runstone_storage::{Error, Operation, Result, StorageLock};

use crate::error::StoreClosed;

/// The owner of a directory: the process that holds its lock.
#[derive(Debug, Default)]
pub(super) struct Owner {
    /// Empty in a store that is opened for reading only, because such a store changes nothing.
    lock: OnceLock<Weak<dyn StorageLock>>,
}

impl Owner {
    /// Owns the directory as long as the returned lock is held.
    pub(super) fn hold(&self, lock: Box<dyn StorageLock>) -> Box<dyn StorageLock> {
        let lock: Arc<dyn StorageLock> = Arc::from(lock);
        let _ = self.lock.set(Arc::downgrade(&lock));
        Box::new(Held(lock))
    }

    /// Whether this process took the directory, so that no other one changes its files.
    pub(super) fn is_known(&self) -> bool {
        self.lock.get().is_some()
    }

    /// Refuses a change if another process may own the directory.
    pub(super) fn check(&self) -> Result<()> {
        let Some(lock) = self.lock.get() else { return Ok(()) };
        match lock.upgrade() {
            Some(lock) => lock.check(),
            None => Err(Error::new(Operation::Lock, "the store", io::Error::other(StoreClosed))),
        }
    }
}

#[derive(Debug)]
struct Held(Arc<dyn StorageLock>);

impl StorageLock for Held {
    fn check(&self) -> Result<()> {
        self.0.check()
    }
}
