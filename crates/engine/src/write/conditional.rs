//! Commits a batch only if its condition still holds. Transactions commit in this way, and gets
//! write values back in this way.
//!
//! 1. Under the commit lock for a moment: from now on, the keys that anybody writes are noted
//!    (`recent`).
//! 2. Without the lock, when all earlier writes are visible: the condition looks at the tree.
//! 3. Under the lock again: the condition looks at the writes noted since, if they are few. If they
//!    are many, the lock is released for that look, and this step is repeated. If they are not all
//!    known, because a large batch or a load came in between or too much was written to be noted,
//!    step 2 is repeated.
//! 4. The lock is kept: the batch gets the next sequence numbers, so no other write comes in
//!    between.
//!
//! Each look covers what was written during the previous look. So the looks become shorter, as long
//! as it takes less time to look at a write than to make it. Batches that are too long to be noted
//! wait for a commit that has looked several times (`Committer::unnoted`). After [`MOST_ROUNDS`]
//! the commit is refused as if there were a conflict, because other writers are too fast for it.
//!
//! Rejected: a queue of committing transactions, each of which is checked against those before it
//! (as in RocksDB's parallel validation). It would release the lock earlier. But lone puts are not
//! part of such a queue, and must conflict too.
//!
//! Replaced: a search of the memtables under the lock. It waited under the lock until all writers
//! had inserted, and took longer the larger the transaction was.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use crate::sync::MutexGuard;

use crate::catalog::keyspace::KeyspaceCore;
use crate::error::{Error, Result};
use crate::keys::SeqNo;
use crate::options::store::Durability;
use crate::schedule::Relief;
use crate::wal::batch::Batch;
use crate::wal::segments::Wal;
use crate::write::commit::{CommitState, Committer};
use crate::write::held::MOST_OF_A_KIND;
use crate::write::recent::{Noted, is_noted};

/// How many times a condition looks before the commit is refused.
const MOST_ROUNDS: u32 = 16;

/// From this round on, batches that are not noted wait for the condition. Otherwise a single writer
/// of such batches could make it look at the tree each time.
const PATIENT_ROUNDS: u32 = 3;

/// What must hold when a batch gets its sequence numbers.
pub(crate) trait Condition {
    /// Looks at the tree, which may take a long time, and returns the sequence number up to which
    /// it saw all writes. Called without the commit lock. An error means that the condition does
    /// not hold.
    fn prepare(&mut self) -> Result<SeqNo>;

    /// Looks at the writes after those that it has seen. Reads only memory.
    fn look(&mut self, noted: &Noted) -> Result<()>;

    /// Tells the condition that it saw all writes up to this sequence number.
    fn has_seen(&mut self, last_seq: SeqNo);

    /// Keeps others from writes that would break the condition, if they use locks. Called without
    /// the commit lock.
    fn lock(&mut self) -> Result<()> {
        Ok(())
    }

    /// Whether the batch may be written, according to the conditions that depend on no write.
    /// `false` means that [`Condition::lock`] must be called. Called under the commit lock.
    fn holds(&mut self) -> Result<bool> {
        Ok(true)
    }

    /// The error of a commit for which other writers are too fast.
    fn outrun(&self) -> Error;

    /// Tells the condition that the batch is written, up to this sequence number. Others may begin
    /// the writes from which the condition kept them as soon as the batch is visible, before it is
    /// synced.
    fn end(&mut self, _last_seq: SeqNo) {}
}

/// While this value exists, writes are noted.
struct Watch<'a> {
    committer: &'a Committer,
    is_over: bool,
}

impl Watch<'_> {
    fn end(mut self, state: &mut CommitState) {
        self.is_over = true;
        state.extra.unwatch();
        state.has_extra = !state.extra.is_empty();
    }
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            let mut state = self.committer.lock_commit();
            state.extra.unwatch();
            state.has_extra = !state.extra.is_empty();
        }
    }
}

impl Committer {
    /// Commits a batch like [`Committer::commit`] if the condition holds. If the condition returns
    /// an error, nothing is written. The batch is not empty.
    pub(crate) fn commit_if(
        &self,
        batch: &Batch,
        keyspaces: &[Arc<KeyspaceCore>],
        durability: Durability,
        relief: &dyn Relief,
        condition: &mut dyn Condition,
    ) -> Result<()> {
        self.check_durability(durability)?;
        self.admit(batch, relief)?;
        let last_seq = if self.env.has_early.load(Relaxed) {
            self.commit_early(batch, keyspaces, durability, Some(&mut *condition))?
        } else {
            self.commit_logged_if(batch, keyspaces, condition)?
        };
        condition.end(last_seq);
        self.end_commit(batch, last_seq, durability)
    }

    /// Commits a batch that was admitted, as it is, if the condition holds. Returns its last
    /// sequence number.
    pub(super) fn commit_logged_if(
        &self,
        batch: &Batch,
        keyspaces: &[Arc<KeyspaceCore>],
        condition: &mut dyn Condition,
    ) -> Result<SeqNo> {
        let is_large = Wal::is_large(&self.wal_files, batch.encoded().len());
        if is_large && !self.env.is_out_of_space() {
            return self
                .commit_large(batch, keyspaces, || self.lock_when(condition, is_noted(batch)));
        }
        let state = self.lock_when(condition, is_noted(batch))?;
        self.commit_locked(state, batch, keyspaces)
    }

    /// Commits a batch of one keyspace if the condition holds. It waits for nothing: not for
    /// another writer's turn, and not for pressure or space. It writes no segment of its own, as a
    /// large batch does. Returns whether it committed. No user requested the write, so it is not
    /// counted as a user's.
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
        // This takes the turn of a writer whose batch is not noted: otherwise a patient commit
        // would look again in vain.
        let turn = (!is_noted(batch)).then(|| self.unnoted.try_lock());
        if matches!(turn, Some(None)) {
            return Ok(false);
        }
        let Some(state) = self.state.try_lock() else { return Ok(false) };
        drop(turn);
        if self.visibility.now() + 1 < state.next_seq || !holds() {
            return Ok(false);
        }
        self.commit_locked(state, batch, std::slice::from_ref(keyspace))?;
        self.relieve_memory();
        Ok(true)
    }

    /// Waits until every write that already has a sequence number is visible.
    pub(crate) fn wait_for_writers(&self) {
        let last_seq = self.lock_commit().next_seq - 1;
        self.visibility.publisher.wait_visible(last_seq);
    }

    /// Takes the commit lock at a moment at which the condition holds, for a batch that is noted or
    /// not.
    pub(super) fn lock_when(
        &self,
        condition: &mut dyn Condition,
        is_noted: bool,
    ) -> Result<MutexGuard<'_, CommitState>> {
        let (watch, mut last_seq) = self.watch();
        // The sequence number up to which the condition saw all writes. `None` if it must look at
        // the tree.
        let mut seen = None;
        let mut turn = None;
        for round in 0..MOST_ROUNDS {
            if round == PATIENT_ROUNDS {
                turn = Some(self.unnoted.lock());
            }
            let seen_seq = match seen {
                Some(seen_seq) => seen_seq,
                None => {
                    // Earlier writes are not noted, so they must be in the tree.
                    self.visibility.publisher.wait_visible(last_seq);
                    condition.prepare()?
                }
            };
            condition.lock()?;
            reached!(TransactionChecked);
            let brief = (turn.is_none() && !is_noted).then(|| self.unnoted.lock());
            let mut state = self.lock_commit();
            last_seq = state.next_seq - 1;
            let is_little = last_seq - seen_seq < MOST_OF_A_KIND;
            if is_little && see(condition, &state, seen_seq)? && condition.holds()? {
                watch.end(&mut state);
                state.note_looks(last_seq - seen_seq);
                drop(turn);
                return Ok(state);
            }
            let noted = state.extra.recent.take_after(seen_seq);
            drop((state, brief));
            if let Some(noted) = &noted {
                noted.iter().try_for_each(|noted| condition.look(noted))?;
                condition.has_seen(last_seq);
            }
            seen = noted.map(|_| last_seq);
        }
        Err(condition.outrun())
    }

    /// Begins to note what is written. Returns the last sequence number that was assigned before.
    fn watch(&self) -> (Watch<'_>, SeqNo) {
        let mut state = self.lock_commit();
        let last_seq = state.next_seq - 1;
        state.extra.watch(last_seq);
        state.has_extra = true;
        (Watch { committer: self, is_over: false }, last_seq)
    }
}

/// Shows a condition the writes after a sequence number. Returns `false` if these are not all
/// known.
fn see(condition: &mut dyn Condition, state: &CommitState, seen_seq: SeqNo) -> Result<bool> {
    if seeded!(CheckedBeforeTheLock) {
        return Ok(true);
    }
    let Some(mut noted) = state.extra.recent.after(seen_seq) else { return Ok(false) };
    noted.try_for_each(|noted| condition.look(noted))?;
    Ok(true)
}
