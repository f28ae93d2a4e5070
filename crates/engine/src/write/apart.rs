//! Writes the record of a batch that is too long to be copied under the commit lock, but fits into
//! a segment.
//!
//! 1. Under the lock, the batch gets its sequence numbers, and its record gets a place in the log.
//!    Other writers append after it.
//! 2. Without the lock, the record is written, before anything of the batch is inserted.
//! 3. Sequence numbers are published in order. So before the record is complete, nobody learns of a
//!    later write and no reader sees one. A process that is killed meanwhile leaves a log that ends
//!    before the place of the record. It loses writes that were not acknowledged, as it would if
//!    the lock were held.
//! 4. A sync of the log waits for the records that have a place, before it calls them synced.
//! 5. If the record cannot be written, the writes with later sequence numbers are after a gap in
//!    the log. The store stops, and their writers get the error. A copy into a mapped segment fails
//!    only if the device fails. A segment that is not mapped may need space for the write, and on a
//!    full disk the store would have to wait for space. So in that case the record is written under
//!    the lock.
//!
//! Rejected: a segment for each such batch, as for a batch that fits into no segment (`large`).
//! Batches of 300 KB then took 30 ms each, with one flush each, instead of 3 ms.

use std::sync::Arc;
use std::sync::atomic::Ordering::*;

use crate::sync::MutexGuard;

use crate::catalog::keyspace::KeyspaceCore;
use crate::error::{Error, Result};
use crate::keys::SeqNo;
use crate::wal::batch::Batch;
use crate::wal::segments::PlacedRecord;
use crate::write::commit::{CommitState, Committer, Views};

/// A record that has a place in the log. Dropping this value ends the wait of others for the
/// record, and reports a gap if it was not written.
struct Apart<'a> {
    committer: &'a Committer,
    record: PlacedRecord,
    first_seq: SeqNo,
    last_seq: SeqNo,
    is_written: bool,
}

impl Committer {
    /// Logs and announces a batch as [`Committer::log_locked`] does, and writes its record after
    /// the lock is released.
    // If this were inlined, every small commit would pay for its large stack frame.
    #[cold]
    #[inline(never)]
    pub(super) fn log_long(
        &self,
        mut state: MutexGuard<'_, CommitState>,
        batch: &Batch,
        keyspaces: &[Arc<KeyspaceCore>],
    ) -> Result<(SeqNo, Views)> {
        let noted = self.check_and_note(&state, batch, keyspaces)?;
        let first_seq = state.next_seq;
        let placed = match self.place_record(&mut state, batch) {
            Ok(Some((segment, record))) => Ok((segment, 0, Some(record))),
            Err(error) if !(error.is_no_space() && batch.only_deletes()) => Err(error),
            // The record is written under the lock. On a full disk, deletes use the reserve.
            _ => {
                let appended = self.append_to_log(&mut state, batch);
                appended.map(|segment| (segment, batch.encoded().len() as u64, None))
            }
        };
        let (segment, bytes, record) = match placed {
            Ok(placed) => placed,
            Err(error) => {
                drop(state);
                self.env.note_job_error(&error);
                return Err(error);
            }
        };
        let views = self.announce(&mut state, batch, keyspaces, (segment, noted, bytes));
        drop(state);
        record.map_or(Ok(()), |record: Apart<'_>| record.write(batch))?;
        Ok((first_seq, views))
    }

    /// Gives the record of a batch its place. Returns the segment's number, or `None` if the record
    /// must be written under the lock.
    fn place_record(
        &self,
        state: &mut CommitState,
        batch: &Batch,
    ) -> Result<Option<(u64, Apart<'_>)>> {
        let first_seq = state.next_seq;
        let unsynced = first_seq - 1 - self.catalog.durable_seq.load(Relaxed);
        let numbers = (first_seq, unsynced, batch.len());
        let reserved = state.wal.reserve(numbers, batch.encoded().len())?;
        let Some((segment, record)) = reserved else { return Ok(None) };
        state.extra.unwritten.push(first_seq);
        let last_seq = first_seq + batch.len() - 1;
        let apart = Apart { committer: self, record, first_seq, last_seq, is_written: false };
        Ok(Some((segment, apart)))
    }

    /// Returns once every record up to a sequence number is written, or once there is a gap.
    pub(super) fn wait_for_records(&self, through: SeqNo) -> Result<()> {
        let mut state = self.state.lock();
        while state.extra.unwritten.iter().any(|first_seq| *first_seq <= through) {
            self.written.wait(&mut state);
        }
        drop(state);
        self.check_whole(through)
    }

    /// Fails if the log has a gap at or before a sequence number. Called when that number is
    /// published.
    #[inline]
    pub(super) fn check_whole(&self, last_seq: SeqNo) -> Result<()> {
        // Relaxed is enough: `gap_seq` was set before the sequence number of the gap was published.
        if self.gap_seq.load(Relaxed) <= last_seq {
            return self.env.check_not_stopped();
        }
        Ok(())
    }
}

impl Apart<'_> {
    /// Writes the record. After that the batch may be inserted.
    fn write(mut self, batch: &Batch) -> Result<()> {
        reached!(RecordPlaced);
        let written = self.record.write(batch.encoded());
        self.is_written = written.is_ok();
        let stop = |error: Error| {
            self.committer.env.stop_writes(&error);
            Error::Stopped { cause: Box::new(error) }
        };
        written.map_err(stop)
    }
}

impl Drop for Apart<'_> {
    fn drop(&mut self) {
        let committer = self.committer;
        if !self.is_written {
            let unwritten = || Error::invalid("a write of the log panicked", "report the panic");
            committer.env.stop_writes(&unwritten());
            committer.gap_seq.fetch_min(self.first_seq, Relaxed);
        }
        committer.state.lock().extra.unwritten.retain(|seq| *seq != self.first_seq);
        committer.written.notify_all();
        if !self.is_written {
            committer.visibility.publisher.publish(self.first_seq, self.last_seq);
        }
    }
}
