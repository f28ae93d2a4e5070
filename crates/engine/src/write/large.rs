//! Commits batches that do not fit into a log segment: a value of many megabytes, or a million
//! small ones. Other writers wait for a few steps of such a batch, not for its bytes.
//!
//! 1. Without the commit lock: the operations are written to a log segment of their own and synced.
//!    Only the beginning of the segment is missing, and without it nobody mistakes the file for a
//!    segment. The operations are also inserted into memtables of their own, under sequence numbers
//!    above all that readers see.
//! 2. Under the commit lock: the batch gets its sequence numbers, and the beginning of the segment
//!    is written. The memtables are placed after those with earlier sequence numbers, as if the
//!    active ones had been full.
//! 3. Without the lock: the entries get their sequence numbers, which takes some 10 ns each.
//!    Writers with later sequence numbers wait for that. Then the batch is published like any
//!    other.
//!
//! Only one large batch is written at a time. It needs its own size in memory in addition to the
//! caller's copy, and its memtables are flushed at once.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use crate::sync::MutexGuard;

use crate::catalog::keyspace::KeyspaceCore;
use crate::error::{Error, Result};
use crate::keys::{MAX_SEQ, SeqNo};
use crate::log::FRAME_BYTES;
use crate::memtable::Memtable;
use crate::memtable::btree::RecordRef;
use crate::wal::batch::Batch;
use crate::wal::segments::LargeSegment;
use crate::write::commit::{CommitState, Committer, place_of};
use crate::write::held::MOST_OF_A_KIND;

/// The memtables of a large batch in one keyspace.
struct Own {
    keyspace: Arc<KeyspaceCore>,
    /// Contains the batch's entries.
    filled: Arc<Memtable>,
    /// All entries of the batch.
    records: Vec<RecordRef>,
    /// Receives the writes that follow the batch.
    fresh: Arc<Memtable>,
}

impl Committer {
    /// Commits a large batch, and returns its last sequence number. `lock` takes the commit lock at
    /// a moment at which the batch may be numbered.
    // If this were inlined, every small commit would pay for its large stack frame.
    #[inline(never)]
    pub(super) fn commit_large<'a>(
        &'a self,
        batch: &Batch,
        keyspaces: &[Arc<KeyspaceCore>],
        lock: impl FnOnce() -> Result<MutexGuard<'a, CommitState>>,
    ) -> Result<SeqNo> {
        let _turn = self.large.lock();
        let id = {
            let mut state = self.state.lock();
            self.check_batch(&state, batch, keyspaces)?;
            state.wal.next_id()
        };
        let logged = LargeSegment::write(&self.wal_files, id, batch.encoded());
        let mut large = logged.inspect_err(|error| self.env.note_job_error(error))?;
        let owns = self.fill(batch, keyspaces);

        let mut state = lock()?;
        self.env.check_not_stopped()?;
        self.check_and_note(&state, batch, keyspaces)?;
        let first_seq = state.next_seq;
        let unsynced = first_seq - 1 - self.catalog.durable_seq.load(Relaxed);
        let appended = state.wal.append_large(&mut large, (first_seq, unsynced, batch.len()));
        let (segment, passed_over) = match appended {
            Ok(appended) => appended,
            Err(error) => {
                drop(state);
                if !matches!(error, Error::InvalidArgument { .. }) {
                    self.env.note_job_error(&error);
                }
                return Err(error);
            }
        };
        self.note_logged(&mut state, batch, segment);
        let last_seq = first_seq + batch.len() - 1;
        state.extra.pass_over(last_seq);
        self.note_large(&mut state, keyspaces);
        for own in &owns {
            // This is the only announcement to this memtable.
            let _ = own.filled.announce(first_seq, batch.len(), batch.deletes(), segment);
            self.replace_active(&own.keyspace, Some(&own.filled), Arc::clone(&own.fresh), |_| true);
            self.catalog.unflushed.add(&own.keyspace);
        }
        drop(state);
        reached!(LargeBatchLogged);
        owns.iter().for_each(|own| own.filled.number(&own.records, first_seq));
        for (id, ranges) in batch.range_deletes(first_seq) {
            // The memtable has only this batch.
            owns[place_of(keyspaces, id)].filled.note_range_deletes(ranges, MAX_SEQ);
        }
        let last_seq = self.publish(first_seq, batch)?;
        drop(passed_over);
        self.pressure.refresh(keyspaces);
        self.schedule.wake();
        Ok(last_seq)
    }

    /// Counts the work for a large batch under the commit lock.
    fn note_large(&self, state: &mut CommitState, keyspaces: &[Arc<KeyspaceCore>]) {
        let count = keyspaces.len() as u64;
        let (entries, bytes) = (count + state.extra.take_looked(), FRAME_BYTES);
        state.has_extra = !state.extra.is_empty();
        match count > MOST_OF_A_KIND {
            true => state.note_unbounded(entries, bytes),
            false => state.note_held(entries, bytes),
        }
    }

    /// Makes memtables with the operations of a batch.
    fn fill(&self, batch: &Batch, keyspaces: &[Arc<KeyspaceCore>]) -> Vec<Own> {
        let own = |keyspace: &Arc<KeyspaceCore>| {
            let options = keyspace.options.load();
            let new = || Arc::new(self.catalog.new_memtable(&options, None));
            let (filled, fresh, keyspace) = (new(), new(), Arc::clone(keyspace));
            Own { keyspace, filled, records: Vec::new(), fresh }
        };
        let mut owns: Vec<Own> = keyspaces.iter().map(own).collect();
        for (index, operation) in (0..).zip(batch.operations()) {
            let filled = &owns[place_of(keyspaces, operation.keyspace)].filled;
            filled.insert_unnumbered(index, operation.kind, operation.key, operation.value);
        }
        owns.iter_mut().for_each(|own| own.records = own.filled.records());
        owns
    }
}
