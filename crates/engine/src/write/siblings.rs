//! The other stores whose memtables share a budget with the memtables of this one.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;

use crate::sync::{RwLock, rank};

use crate::catalog::keyspace::KeyspaceCore;
use crate::catalog::keyspaces::Unflushed;
use crate::memtable::Memtable;
use crate::write::buffers::Buffers;

/// Another store under the same budget.
pub(crate) trait Sibling: Debug + Send + Sync {
    /// Keyspaces of the store that have memtables.
    fn unflushed(&self) -> &Unflushed;

    /// Whether its flushes run by themselves. Nobody waits for the flushes of a store without
    /// space, of a store that was stopped, or of a store whose caller runs the jobs.
    fn flushes_by_itself(&self) -> bool;

    /// Tells the store how much memory all memtables under the budget use.
    fn press(&self, buffers: Buffers);

    /// Replaces those of the chosen memtables that are still active, and begins their flushes.
    fn flush(&self, chosen: &[Candidate]);
}

/// A memtable that may be flushed early.
#[derive(Debug)]
pub(crate) struct Candidate {
    /// The store it belongs to, if that is not the store that chose it.
    pub(super) sibling: Option<(u64, Arc<dyn Sibling>)>,
    pub(super) keyspace: Arc<KeyspaceCore>,
    pub(super) memtable: Arc<Memtable>,
    pub(super) bytes: u64,
}

/// Open stores under one budget, by the number of their opening. A store with a budget of its own
/// is in no list. A store is added when it is open, and removed when it closes. This list keeps it
/// alive until then.
#[derive(Debug, Default)]
pub(crate) struct Siblings(RwLock<rank::SiblingStores, BTreeMap<u64, Arc<dyn Sibling>>>);

impl Siblings {
    /// Adds a store that was opened.
    pub(crate) fn add(&self, opening: u64, store: Arc<dyn Sibling>) {
        self.0.write().insert(opening, store);
    }

    /// Removes a store that closes.
    pub(crate) fn remove(&self, opening: u64) {
        let removed = self.0.write().remove(&opening);
        // Dropping the last reference takes locks.
        drop(removed);
    }

    /// All stores except that of `opening`. Callers use them without the lock of the list, because
    /// a listener that one of them calls may open a store under the same budget.
    pub(super) fn beside(&self, opening: u64) -> Vec<(u64, Arc<dyn Sibling>)> {
        let all = self.0.read();
        let others = all.iter().filter(|(other, _)| **other != opening);
        others.map(|(number, store)| (*number, Arc::clone(store))).collect()
    }
}
