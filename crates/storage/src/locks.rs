//! Store locks inside one process, for storages without lock files. Not for directories: these lock
//! a real file, so that other processes see the lock.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::{Error, LockMode, Operation, Result, StorageLock};

/// The holders of names. Clones share the table.
#[derive(Clone, Debug, Default)]
pub struct LockTable {
    locks: Arc<Mutex<Locks>>,
}

#[derive(Debug, Default)]
struct Locks {
    held: BTreeMap<String, Held>,
    /// File names are reused, so each lock has a number of its own.
    last_number: u64,
}

#[derive(Debug)]
struct Held {
    number: u64,
    mode: LockMode,
    holder_count: usize,
}

impl LockTable {
    /// Takes the lock, or `None` if another holder excludes it.
    pub fn take(&self, name: String, mode: LockMode) -> Option<Box<dyn StorageLock>> {
        let mut locks = self.locks.lock();
        locks.last_number += 1;
        let number = match locks.held.get_mut(&name) {
            Some(held) if (held.mode, mode) == (LockMode::Shared, LockMode::Shared) => {
                held.holder_count += 1;
                held.number
            }
            Some(_) => return None,
            None => {
                let number = locks.last_number;
                locks.held.insert(name.clone(), Held { number, mode, holder_count: 1 });
                number
            }
        };
        Some(Box::new(TableLock { table: self.clone(), name, number }))
    }

    /// Records that the name now belongs to another file. Existing locks belong to the old file.
    pub fn replace(&self, name: &str) {
        self.locks.lock().held.remove(name);
    }
}

#[derive(Debug)]
struct TableLock {
    table: LockTable,
    name: String,
    number: u64,
}

impl StorageLock for TableLock {
    fn check(&self) -> Result<()> {
        let locks = self.table.locks.lock();
        match locks.held.get(&self.name).filter(|held| held.number == self.number) {
            Some(_) => Ok(()),
            None => {
                let source = io::Error::other("the lock file was replaced");
                Err(Error::new(Operation::Lock, self.name.clone(), source))
            }
        }
    }
}

impl Drop for TableLock {
    fn drop(&mut self) {
        let mut locks = self.table.locks.lock();
        let own = locks.held.get_mut(&self.name).filter(|held| held.number == self.number);
        let Some(held) = own else { return };
        held.holder_count -= 1;
        if held.holder_count == 0 {
            locks.held.remove(&self.name);
        }
    }
}
