//! Commits a batch only if its condition still holds: how transactions commit, and how gets write
//! back.
//!
//! 1. Without the commit lock, the condition looks at what needs reading.
//! 2. Under it, when all earlier writes are visible, it looks at what came since, in memory. If it
//!    cannot tell so, the lock is given back and step 1 comes again.
//! 3. The lock is kept: the batch gets the next numbers, so nothing comes between.
//!
//! A queue of committing transactions, each checked against those before it (as in RocksDB's
//! parallel validation), would let go of the lock earlier; but lone puts are no part of such a
//! queue, and must conflict too.

use std::sync::Arc;

use parking_lot::MutexGuard;

use crate::base::error::Result;
use crate::base::key::SeqNo;
use crate::base::options::Durability;
use crate::catalog::keyspace::KeyspaceCore;
use crate::schedule::Relief;
use crate::wal::batch::Batch;
use crate::wal::segments::Wal;
use crate::write::commit::{CommitState, Committer, insert};

/// What must be true when a batch gets its numbers.
pub(crate) trait Condition {
    /// Looks as far as that may take long. Called without the commit lock.
    fn prepare(&mut self) -> Result<()>;

    /// Whether it holds after all writes up to `last_seq`, which are visible: an error if it does
    /// not, `false` if it must be prepared again. Called under the commit lock; reads memory only.
    fn holds(&mut self, last_seq: SeqNo) -> Result<bool>;

    /// The batch is written, up to this number. What the condition kept others from may begin as
    /// soon as that is visible, before it is synced.
    fn end(&mut self, last_seq: SeqNo);
}

impl Committer {
    /// Commits a batch like [`Committer::commit`] if the condition holds. An error of the condition
    /// leaves nothing written. The batch is not empty.
    pub(crate) fn commit_if(
        &self,
        batch: &Batch,
        keyspaces: &[Arc<KeyspaceCore>],
        durability: Durability,
        relief: &dyn Relief,
        condition: &mut dyn Condition,
    ) -> Result<()> {
        self.admit(batch, relief)?;
        let is_large = Wal::is_large(&self.wal_files, batch.encoded().len());
        let last_seq = match is_large && !self.env.is_out_of_space() {
            true => self.commit_large(batch, keyspaces, || self.lock_when(condition))?,
            false => {
                let state = self.lock_when(condition)?;
                self.commit_locked(state, batch, keyspaces)?
            }
        };
        condition.end(last_seq);
        self.end_commit(batch, last_seq, durability)
    }

    /// Commits a batch of one keyspace if the condition holds, and neither another writer's turn
    /// nor pressure, space or a segment of its own is to be waited for.
    /// Returns whether it did. Nobody has asked for the write, so it is not counted as a user's.
    pub(crate) fn commit_at_once(
        &self,
        batch: &Batch,
        keyspace: &Arc<KeyspaceCore>,
        holds: impl FnOnce() -> bool,
    ) -> Result<bool> {
        let is_large = Wal::is_large(&self.wal_files, batch.encoded().len());
        if is_large || self.holds_writers_up() || self.env.is_out_of_space() {
            return Ok(false);
        }
        self.env.check_writable()?;
        let Some(state) = self.state.try_lock() else { return Ok(false) };
        if self.visibility.now() + 1 < state.next_seq || !holds() {
            return Ok(false);
        }
        self.commit_locked(state, batch, std::slice::from_ref(keyspace))?;
        self.relieve_memory();
        Ok(true)
    }

    /// Waits until every write that has a number by now is visible.
    pub(crate) fn wait_for_writers(&self) {
        let last_seq = self.lock_commit().next_seq - 1;
        self.visibility.publisher.wait_visible(last_seq);
    }

    /// Takes the commit lock at a moment at which the condition holds.
    fn lock_when(&self, condition: &mut dyn Condition) -> Result<MutexGuard<'_, CommitState>> {
        loop {
            condition.prepare()?;
            reached!(TransactionChecked);
            let state = self.lock_commit_behind_loads();
            if seeded!(CheckedBeforeTheLock) {
                return Ok(state);
            }
            // Every writer with a number must have inserted, or its write would be missed.
            let last_seq = state.next_seq - 1;
            self.visibility.publisher.wait_visible(last_seq);
            if condition.holds(last_seq)? {
                return Ok(state);
            }
        }
    }

    fn commit_locked(
        &self,
        state: MutexGuard<'_, CommitState>,
        batch: &Batch,
        keyspaces: &[Arc<KeyspaceCore>],
    ) -> Result<SeqNo> {
        let (first_seq, views) = self.log_locked(state, batch, keyspaces)?;
        let last_seq = first_seq + batch.len() - 1;
        insert(batch, keyspaces, views.as_slice(), first_seq, self.visibility.now());
        self.visibility.publisher.publish(first_seq, last_seq);
        for (keyspace, view) in keyspaces.iter().zip(views.as_slice()) {
            self.rotate_if_full(keyspace, view);
        }
        Ok(last_seq)
    }
}
