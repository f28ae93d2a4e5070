//! Store locks inside one process, for the storages that have no lock file. Not for directories:
//! those lock a real file, so that other processes see it.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::{LockMode, StorageLock};

/// Who holds which name. Clones share the table.
#[derive(Clone, Debug, Default)]
pub struct LockTable {
    held: Arc<Mutex<BTreeMap<String, Held>>>,
}

#[derive(Debug)]
enum Held {
    Exclusive,
    Shared { holder_count: usize },
}

impl LockTable {
    /// Takes the lock, or `None` if another holder excludes it.
    pub fn take(&self, name: String, mode: LockMode) -> Option<Box<dyn StorageLock>> {
        let mut held = self.held.lock();
        match (held.get_mut(&name), mode) {
            (None, LockMode::Exclusive) => {
                held.insert(name.clone(), Held::Exclusive);
            }
            (None, LockMode::Shared) => {
                held.insert(name.clone(), Held::Shared { holder_count: 1 });
            }
            (Some(Held::Shared { holder_count }), LockMode::Shared) => *holder_count += 1,
            _ => return None,
        }
        Some(Box::new(TableLock { table: self.clone(), name }))
    }
}

#[derive(Debug)]
struct TableLock {
    table: LockTable,
    name: String,
}

impl StorageLock for TableLock {}

impl Drop for TableLock {
    fn drop(&mut self) {
        let mut held = self.table.held.lock();
        match held.get_mut(&self.name) {
            Some(Held::Shared { holder_count }) if *holder_count > 1 => *holder_count -= 1,
            _ => {
                held.remove(&self.name);
            }
        }
    }
}
