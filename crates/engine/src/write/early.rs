//! Writes the large values of a batch to their files before the batch is logged (`values::early`).
//! The log and the memtables then contain the places of these values.
//!
//! A synced write keeps its values in the log: one sync costs less than two, and the flush writes
//! them to their file as before. So does a write on a full disk: there may be room in the log or in
//! the file, but not in both.

use std::sync::Arc;
use std::sync::atomic::Ordering::*;

use crate::catalog::keyspace::KeyspaceCore;
use crate::error::{Error, Result};
use crate::format::record::fits_record;
use crate::keys::{Kind, SeqNo};
use crate::memtable::Memtable;
use crate::metrics::Counter;
use crate::options::store::Durability;
use crate::values::early::EarlyWrites;
use crate::values::file::ValueFile;
use crate::wal::batch::{Batch, Operation};
use crate::write::commit::{Committer, place_of};
use crate::write::conditional::Condition;

/// A batch whose large values are in their files.
pub(super) struct EarlyBatch {
    pub(super) batch: Batch,
    /// The early writes of each keyspace, in the order of the batch's keyspaces.
    writes: Vec<Option<EarlyWrites>>,
    /// The memtables that were active before the values were written.
    actives: Vec<Arc<Memtable>>,
}

impl EarlyBatch {
    /// Ends the batch, which is visible up to this sequence number.
    fn end(self, last_seq: SeqNo) {
        for (active, writes) in self.actives.iter().zip(self.writes) {
            if let Some(mut writes) = writes {
                active.note_apart(writes.bytes());
                writes.committed(last_seq);
            }
        }
    }
}

impl Committer {
    /// Writes large values of a batch to their files, and commits the batch, if the condition
    /// holds. Returns its last sequence number. After an error the values are garbage.
    // If this were inlined, every small commit would pay for its large stack frame.
    #[cold]
    #[inline(never)]
    pub(super) fn commit_early(
        &self,
        batch: &Batch,
        keyspaces: &[Arc<KeyspaceCore>],
        durability: Durability,
        condition: Option<&mut dyn Condition>,
    ) -> Result<SeqNo> {
        let early = self.append_early(batch, keyspaces, durability)?;
        let logged = early.as_ref().map_or(batch, |early| &early.batch);
        let last_seq = match condition {
            Some(condition) => self.commit_logged_if(logged, keyspaces, condition)?,
            None => self.commit_logged(logged, keyspaces)?,
        };
        if let Some(early) = early {
            early.end(last_seq);
        }
        Ok(last_seq)
    }

    /// Writes the early values of a batch to their files. `None` if there are none.
    fn append_early(
        &self,
        batch: &Batch,
        keyspaces: &[Arc<KeyspaceCore>],
        durability: Durability,
    ) -> Result<Option<EarlyBatch>> {
        let bytes = batch.encoded().len() as u64;
        let may = |keyspace: &Arc<KeyspaceCore>| keyspace.early_at.load(Relaxed) <= bytes;
        let stays = durability == Durability::Sync
            || self.env.is_out_of_space()
            || !self.env.options.has_log();
        if stays || !keyspaces.iter().any(may) {
            return Ok(None);
        }
        let mut records: Vec<Vec<(&[u8], &[u8])>> = vec![Vec::new(); keyspaces.len()];
        let mut which = vec![Vec::new(); keyspaces.len()];
        for (index, operation) in batch.operations().enumerate() {
            let at = place_of(keyspaces, operation.keyspace);
            if is_early(&keyspaces[at], &operation) {
                records[at].push((operation.key, operation.value));
                which[at].push(index);
            }
        }
        let mut writes = Vec::with_capacity(keyspaces.len());
        for (keyspace, records) in keyspaces.iter().zip(&records) {
            writes.push(self.append_of(keyspace, records)?);
        }
        if writes.iter().all(Option::is_none) {
            return Ok(None);
        }
        reached!(EarlyValuesWritten);
        let batch = with_places(batch, keyspaces, (&which, &writes));
        let active = |keyspace: &Arc<KeyspaceCore>| Arc::clone(&keyspace.view.load().active);
        Ok(Some(EarlyBatch { batch, writes, actives: keyspaces.iter().map(active).collect() }))
    }

    fn append_of(
        &self,
        keyspace: &KeyspaceCore,
        records: &[(&[u8], &[u8])],
    ) -> Result<Option<EarlyWrites>> {
        let values = keyspace.values.load();
        let Some(file) = values.log_file().filter(|_| !records.is_empty()) else { return Ok(None) };
        reached!(BatchAdmitted);
        let appended = file.append_early(records);
        let appended = appended.inspect_err(|error| {
            if !matches!(error, Error::Closed) {
                self.env.note_job_error(error);
            }
        })?;
        if let Some(appended) = &appended {
            self.note_unsynced(file);
            self.env.metrics.add(Counter::value_bytes_written, appended.bytes());
        }
        Ok(appended)
    }

    /// Remembers that a sync of the log must sync this file first. The flag is set under the lock
    /// of the list: a thread that finds it set relies on the file being in the list.
    fn note_unsynced(&self, file: &Arc<ValueFile>) {
        if file.has_unsynced.load(Acquire) {
            return;
        }
        reached!(EarlyFileUnnoted);
        let mut files = self.unsynced_values.lock();
        if !file.has_unsynced.swap(true, AcqRel) {
            files.push(Arc::clone(file));
        }
    }

    /// Syncs the early values of all batches that were logged before the call.
    pub(super) fn sync_early(&self) -> Result<()> {
        let files = std::mem::take(&mut *self.unsynced_values.lock());
        for file in files {
            // A value that is appended from here on is noted again.
            file.has_unsynced.store(false, Release);
            if !seeded!(EarlyValuesNotSynced) {
                file.sync()?;
            }
        }
        Ok(())
    }
}

/// Whether the value of an operation is written to its file first.
fn is_early(keyspace: &KeyspaceCore, operation: &Operation<'_>) -> bool {
    operation.kind == Kind::Put
        && operation.value.len() as u64 >= keyspace.early_at.load(Relaxed)
        && fits_record(operation.key.len(), operation.value.len())
}

/// Returns the batch with places instead of the values that were written. `which` has the indexes
/// of these operations, by keyspace.
fn with_places(
    batch: &Batch,
    keyspaces: &[Arc<KeyspaceCore>],
    (which, writes): (&[Vec<usize>], &[Option<EarlyWrites>]),
) -> Batch {
    let mut placed = batch.without_writes();
    let mut next = vec![0; writes.len()];
    let (mut pointer, mut place) = (Vec::new(), Vec::new());
    for (index, operation) in batch.operations().enumerate() {
        let at = place_of(keyspaces, operation.keyspace);
        let Operation { keyspace, key, value, .. } = operation;
        let is_next = which[at].get(next[at]) == Some(&index);
        match writes[at].as_ref().filter(|_| is_next) {
            None => placed.push_same(&operation),
            Some(own) => {
                own.encode(next[at], &mut pointer, &mut place);
                next[at] += 1;
                placed.push_early(keyspace, key, (&pointer, &place), value.len());
            }
        }
    }
    placed
}
