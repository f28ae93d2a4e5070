//! Replaces memtables: one that is full, those that make the log too long, or all of them for a
//! flush.

use std::collections::HashSet;
use std::sync::Arc;

use crate::catalog::keyspace::{KeyspaceCore, View};
use crate::catalog::keyspaces::Unflushed;
use crate::keys::SeqNo;
use crate::memtable::Memtable;
use crate::write::buffers::Buffers;
use crate::write::commit::Committer;
use crate::write::siblings::{Candidate, Sibling};

/// How many memtables are replaced under one hold of the commit lock.
const SWITCHES_AT_ONCE: usize = 256;

impl Sibling for Committer {
    fn unflushed(&self) -> &Unflushed {
        &self.catalog.unflushed
    }

    fn flushes_by_itself(&self) -> bool {
        self.env.flushes_by_itself()
    }

    fn press(&self, buffers: Buffers) {
        self.pressure.take_over(buffers);
    }

    fn flush(&self, chosen: &[Candidate]) {
        let memtables: HashSet<_> = chosen.iter().map(|one| Arc::as_ptr(&one.memtable)).collect();
        let keyspaces: Vec<_> = chosen.iter().map(|one| Arc::clone(&one.keyspace)).collect();
        self.rotate(&keyspaces, |active| memtables.contains(&Arc::as_ptr(active)));
        self.schedule.wake();
    }
}

impl Committer {
    /// Begins the flushes that keep memtables within their part of the budget, also in other stores
    /// that share the budget.
    pub(super) fn flush_early(&self) {
        let mut chosen = self.pressure.memtables_to_flush();
        let store = |one: &Candidate| one.sibling.as_ref().map(|(number, _)| *number);
        chosen.sort_by_key(store);
        for together in chosen.chunk_by(|one, next| store(one) == store(next)) {
            match &together[0].sibling {
                None => self.flush(together),
                Some((_, sibling)) => sibling.flush(together),
            }
        }
    }

    /// Replaces the active memtable of a view if it is full.
    #[inline]
    pub(super) fn rotate_if_full(&self, keyspace: &Arc<KeyspaceCore>, view: &View) {
        if view.active.is_full() {
            self.rotate_if_active(keyspace, &view.active);
        }
    }

    /// Replaces `memtable` with a new one if it is still the active one of its keyspace.
    pub(crate) fn rotate_if_active(&self, keyspace: &Arc<KeyspaceCore>, memtable: &Arc<Memtable>) {
        if !Arc::ptr_eq(&keyspace.view.load().active, memtable) {
            return;
        }
        self.rotate(std::slice::from_ref(keyspace), |active| Arc::ptr_eq(active, memtable));
        self.schedule.wake();
    }

    /// Replaces the active memtable of each keyspace if it is not empty and `wanted` returns
    /// `true`. Returns a sequence number that was the last one assigned at some moment of the call.
    /// Writes up to it are in memtables that were replaced, if these are wanted.
    ///
    /// A memtable is replaced under the commit lock, so that every sequence number in an older
    /// memtable is below those in a newer one. The lock is released after every few keyspaces,
    /// however many there are. Others write in between, so the memtables end at different moments,
    /// and those that end later may contain half of a batch. The same is true of memtables that
    /// were full, and a flush first syncs the log up to the writes of other memtables that it
    /// relies on. Slow work, such as allocating the new memtables, is done before the lock is
    /// taken. Without a log all memtables are replaced (`generations`).
    pub(crate) fn rotate(
        &self,
        keyspaces: &[Arc<KeyspaceCore>],
        wanted: impl Fn(&Arc<Memtable>) -> bool,
    ) -> SeqNo {
        if !self.env.options.has_log() {
            return self.end_generation(keyspaces, wanted);
        }
        let last_seq = self.state.lock().next_seq - 1;
        self.rotate_in_steps(keyspaces, |active| !active.is_empty() && wanted(active));
        reached!(MemtableReplaced);
        self.pressure.refresh(keyspaces);
        last_seq
    }

    /// Replaces all nonempty memtables as if at one moment: no memtable has writes from both before
    /// and after it. Returns the keyspaces that have writes from before the moment, and the
    /// last sequence number before it.
    ///
    /// 1. Under the commit lock, the moment becomes known to writers. From now on, a batch first
    ///    replaces the active memtables of its keyspaces that have writes from before the moment
    ///    ([`Committer::replace_older`]).
    /// 2. The other memtables are replaced a few at a time. Every keyspace that has writes from
    ///    before the moment was listed by then, or when its first write was announced. So none is
    ///    missed, however new it is.
    pub(crate) fn rotate_all(&self) -> (Vec<Arc<KeyspaceCore>>, SeqNo) {
        self.rotate_all_in(self.take_turn())
    }

    /// Runs step 2. Returns the keyspaces that have writes up to the moment.
    pub(super) fn replace_up_to(&self, moment: SeqNo) -> Vec<Arc<KeyspaceCore>> {
        reached!(MomentKnown);
        let keyspaces = self.catalog.unflushed.all();
        self.rotate_in_steps(&keyspaces, |active| active.first_seq() <= moment);
        let mut state = self.state.lock();
        state.extra.moment = None;
        state.has_extra = !state.extra.is_empty();
        drop(state);
        self.pressure.refresh(&keyspaces);
        keyspaces
    }

    fn rotate_in_steps(
        &self,
        keyspaces: &[Arc<KeyspaceCore>],
        wanted: impl Fn(&Arc<Memtable>) -> bool,
    ) {
        for some in keyspaces.chunks(SWITCHES_AT_ONCE) {
            let fresh: Vec<_> = some.iter().map(|keyspace| self.fresh_memtable(keyspace)).collect();
            let mut state = self.state.lock();
            state.note_held(some.len() as u64, 0);
            for (keyspace, fresh) in some.iter().zip(fresh) {
                self.replace_active(keyspace, None, fresh, &wanted);
            }
        }
    }

    /// Replaces the active memtable of a keyspace if it has writes from before the moment of a
    /// checkpoint. Called under the commit lock.
    pub(super) fn replace_older(&self, keyspace: &Arc<KeyspaceCore>, moment: SeqNo) {
        let is_older = |active: &Arc<Memtable>| active.first_seq() <= moment;
        if is_older(&keyspace.view.load().active) {
            self.replace_active(keyspace, None, self.fresh_memtable(keyspace), is_older);
        }
    }

    /// Replaces the active memtable of a keyspace ([`KeyspaceCore::replace_active`]), and notes
    /// that it waits for its flush. Called under the commit lock.
    pub(super) fn replace_active(
        &self,
        keyspace: &Arc<KeyspaceCore>,
        filled: Option<&Arc<Memtable>>,
        fresh: Arc<Memtable>,
        wanted: impl Fn(&Arc<Memtable>) -> bool,
    ) {
        if keyspace.replace_active(filled, fresh, wanted) {
            self.catalog.unflushed.await_flush(keyspace);
        }
    }

    fn fresh_memtable(&self, keyspace: &KeyspaceCore) -> Arc<Memtable> {
        let before = Arc::clone(&keyspace.view.load().active);
        Arc::new(self.catalog.new_memtable(&keyspace.options.load(), Some(&before)))
    }

    /// Flushes the keyspaces whose unflushed writes keep the oldest segment of a log that is over
    /// its limit, however idle the keyspaces are.
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
