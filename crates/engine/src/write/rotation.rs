//! Replaces memtables: one that is full, those that hold a log which is too long, or all for a
//! flush.

use std::collections::HashSet;
use std::sync::Arc;

use crate::base::key::SeqNo;
use crate::catalog::keyspace::{KeyspaceCore, View};
use crate::memtable::Memtable;
use crate::write::commit::Committer;

impl Committer {
    /// Begins the flushes that keep memtables within their part of the budget.
    pub(super) fn flush_early(&self) {
        let (keyspaces, memtables): (Vec<_>, Vec<_>) =
            self.pressure.memtables_to_flush().into_iter().unzip();
        if !keyspaces.is_empty() {
            let chosen: HashSet<_> = memtables.iter().map(Arc::as_ptr).collect();
            self.rotate(&keyspaces, |active| chosen.contains(&Arc::as_ptr(active)));
            self.schedule.wake();
        }
    }

    /// Replaces the active memtable of a view if it is full.
    #[inline]
    pub(super) fn rotate_if_full(&self, keyspace: &Arc<KeyspaceCore>, view: &View) {
        if view.active.is_full() {
            self.rotate_if_active(keyspace, &view.active);
        }
    }

    /// Replaces `memtable` by a new one if it is still the active one of its keyspace.
    pub(crate) fn rotate_if_active(&self, keyspace: &Arc<KeyspaceCore>, memtable: &Arc<Memtable>) {
        if !Arc::ptr_eq(&keyspace.view.load().active, memtable) {
            return;
        }
        self.rotate(std::slice::from_ref(keyspace), |active| Arc::ptr_eq(active, memtable));
        self.schedule.wake();
    }

    /// Replaces the active memtable of each keyspace if it holds anything and `wanted` agrees. All
    /// are replaced at one moment, so no batch is split. Returns the last sequence number given out
    /// before that.
    ///
    /// The switch happens under the commit lock, so that every number in an older memtable is below
    /// those in a newer one. Slow work, such as memory for the new memtables, is done before.
    pub(crate) fn rotate(
        &self,
        keyspaces: &[Arc<KeyspaceCore>],
        wanted: impl Fn(&Arc<Memtable>) -> bool,
    ) -> SeqNo {
        let fresh = |keyspace: &Arc<KeyspaceCore>| {
            self.catalog.new_memtable(&keyspace.options.load(), Some(&keyspace.view.load().active))
        };
        let fresh: Vec<Arc<Memtable>> = keyspaces.iter().map(fresh).map(Arc::new).collect();
        let last_seq = {
            let commit = self.state.lock();
            for (keyspace, fresh) in keyspaces.iter().zip(fresh) {
                keyspace.replace_active(None, fresh, |active| !active.is_empty() && wanted(active));
            }
            commit.next_seq - 1
        };
        reached!(MemtableReplaced);
        self.pressure.refresh(keyspaces);
        last_seq
    }

    /// Flushes the keyspaces whose unflushed writes hold the oldest segment of a log over its
    /// limit, however idle they are.
    pub(super) fn shorten_log(&self) {
        let oldest = |keyspace: &Arc<KeyspaceCore>| {
            let view = keyspace.view.load();
            let waiting = view.immutable.last().and_then(|memtable| memtable.first_segment());
            waiting.or(view.active.first_segment())
        };
        let keyspaces = self.catalog.unflushed.all();
        let first = keyspaces.iter().filter_map(oldest).min();
        let idle = |keyspace: &Arc<KeyspaceCore>| {
            oldest(keyspace) == first && keyspace.view.load().immutable.is_empty()
        };
        let holders: Vec<_> = keyspaces.into_iter().filter(idle).collect();
        self.rotate(&holders, |active| active.first_segment() == first);
        self.schedule.wake();
    }
}
