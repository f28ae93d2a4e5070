//! Generations of memtables, in a store without a log. A crash loses everything that is not
//! flushed, and the rest must be the store as of one moment (P2, P3). So the memtables of all
//! keyspaces are replaced as if at one moment, and the memtables with writes from before that
//! moment are a generation. One edit of the manifest makes a whole generation durable, and
//! generations are flushed in order.
//!
//! A store with a log flushes each keyspace separately: the log keeps the earlier writes of the
//! others.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::catalog::keyspace::KeyspaceCore;
use crate::error::{Error, Result};
use crate::keys::SeqNo;
use crate::memtable::Memtable;
use crate::options::store::Durability;
use crate::sync::{Mutex, MutexGuard, rank};
use crate::write::commit::{CommitState, Committer};

/// The generations that are not flushed.
#[derive(Debug, Default)]
pub(crate) struct Generations {
    /// Held by the thread that ends a generation. So each generation has at most one memtable of a
    /// keyspace.
    turn: Mutex<rank::Turning, ()>,
    /// The last sequence number of each generation, ascending.
    moments: Mutex<rank::Moments, VecDeque<SeqNo>>,
}

impl Generations {
    /// The last sequence number of the oldest generation.
    pub(crate) fn oldest(&self) -> Option<SeqNo> {
        self.moments.lock().front().copied()
    }

    /// Whether no generation has a write up to this sequence number.
    pub(crate) fn are_flushed(&self, seq: SeqNo) -> bool {
        self.oldest().is_none_or(|moment| moment > seq)
    }

    /// Removes a generation that is flushed or empty, if it is the oldest.
    fn remove(&self, moment: SeqNo) {
        let mut moments = self.moments.lock();
        if moments.front() == Some(&moment) {
            moments.pop_front();
        }
    }
}

impl Committer {
    /// Ends a generation if one of these keyspaces has an active memtable that is `wanted` and not
    /// empty. Returns a sequence number that was the last one assigned at some moment of
    /// the call.
    pub(super) fn end_generation(
        &self,
        keyspaces: &[Arc<KeyspaceCore>],
        wanted: impl Fn(&Arc<Memtable>) -> bool,
    ) -> SeqNo {
        let turn = self.generations.turn.lock();
        let is_wanted = |keyspace: &Arc<KeyspaceCore>| {
            let active = &keyspace.view.load().active;
            !active.is_empty() && wanted(active)
        };
        match keyspaces.iter().any(is_wanted) {
            true => self.rotate_all_in(turn).1,
            false => self.state.lock().next_seq - 1,
        }
    }

    /// Replaces all memtables as if at one moment, which ends a generation. See
    /// [`Committer::rotate_all`].
    pub(super) fn rotate_all_in(
        &self,
        turn: MutexGuard<'_, ()>,
    ) -> (Vec<Arc<KeyspaceCore>>, SeqNo) {
        let moment = {
            let mut state = self.state.lock();
            let moment = state.next_seq - 1;
            state.begin_moment(moment);
            moment
        };
        (self.end_moment(turn, moment), moment)
    }

    /// Replaces the memtables that have writes up to a moment that is known to writers. Returns
    /// their keyspaces.
    pub(super) fn end_moment(
        &self,
        turn: MutexGuard<'_, ()>,
        moment: SeqNo,
    ) -> Vec<Arc<KeyspaceCore>> {
        let keyspaces = self.replace_up_to(moment);
        debug_assert!(!self.env.options.has_log(), "only without a log is there a generation");
        if self.holds_up_to(moment) {
            self.generations.moments.lock().push_back(moment);
        }
        drop(turn);
        keyspaces
    }

    /// Takes the turn to end a generation.
    pub(super) fn take_turn(&self) -> MutexGuard<'_, ()> {
        self.generations.turn.lock()
    }

    /// The nominal beginning of the log in a store without one, once everything up to `seq` is in
    /// tables.
    pub(crate) fn log_start_after(&self, seq: SeqNo) -> (u64, SeqNo) {
        self.state.lock().wal.floor(None, seq + 1)
    }

    /// Whether a memtable that was replaced has writes up to a moment.
    fn holds_up_to(&self, moment: SeqNo) -> bool {
        self.catalog.unflushed.find_map(|one| (!one.is_flushed(moment)).then_some(())).is_some()
    }

    /// Removes the oldest generations that are empty: they were flushed, or their keyspaces were
    /// dropped. Returns whether there were any.
    pub(crate) fn remove_empty_generations(&self) -> bool {
        let mut were_any = false;
        while let Some(moment) = self.generations.oldest().filter(|one| !self.holds_up_to(*one)) {
            self.generations.remove(moment);
            were_any = true;
        }
        were_any
    }

    /// Whether a bulk load has a sequence number that is not published: if so, no collection may
    /// begin that writes after it.
    pub(crate) fn is_loading(&self) -> bool {
        self.loading.is_locked()
    }

    /// Refuses a promise that only a log can keep.
    #[inline(always)]
    pub(super) fn check_durability(&self, durability: Durability) -> Result<()> {
        if durability == Durability::Sync && !self.env.options.has_log() {
            return Err(Error::invalid(
                "a synced write needs the log that wal_mode \"off\" leaves out",
                "write without sync and call flush, or open the store with another wal_mode",
            ));
        }
        Ok(())
    }
}

impl CommitState {
    /// Makes a moment known to writers: a batch first replaces the active memtables of its
    /// keyspaces that have writes from before the moment.
    pub(super) fn begin_moment(&mut self, moment: SeqNo) {
        self.extra.moment = Some(moment);
        self.has_extra = true;
    }
}
