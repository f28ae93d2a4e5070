//! The sequence number of a bulk load, under which all its entries become visible at once. The data
//! of the load are written elsewhere (`jobs/load.rs`).
//!
//! The log has no entry for a load, but every sequence number has a place in it: recovery treats a
//! missing sequence number as a lost record. So the sequence number of a load belongs to a record
//! with one operation, whose keyspace does not exist, and whose value says which keyspace is loaded
//! and which tables the load made. Replays skip it, as they skip writes to a dropped keyspace.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use crate::sync::MutexGuard;
use runstone_policy::shape::Table;

use crate::catalog::keyspace::KeyspaceCore;
use crate::error::Result;
use crate::keys::codec::put_varint;
use crate::keys::{KeyspaceId, Kind, NO_KEYSPACE, SeqNo};
use crate::wal::batch::Batch;
use crate::write::commit::Committer;

/// The sequence number of a load. Dropping this value publishes the number, so that later writes
/// become visible, whether the load is in the tree or has failed.
pub(crate) struct LoadNumber<'a> {
    committer: &'a Committer,
    keyspace: Arc<KeyspaceCore>,
    seq: SeqNo,
    _one_at_a_time: MutexGuard<'a, ()>,
}

impl LoadNumber<'_> {
    pub(crate) fn seq(&self) -> SeqNo {
        self.seq
    }
}

impl Drop for LoadNumber<'_> {
    fn drop(&mut self) {
        // Logged before the sequence number is published, and so before any write that sees the
        // load.
        self.committer.log_load_end(self.seq);
        self.keyspace.end_load();
        self.committer.catalog.load.end();
        reached!(LoadShown);
        self.committer.visibility.publisher.publish(self.seq, self.seq);
        if !self.committer.env.options.has_log() {
            self.committer.schedule.set_flush_limit(u64::MAX);
            self.committer.schedule.wake();
        }
    }
}

/// The record of a load in the log.
fn load_batch(keyspace: KeyspaceId, tables: &[Arc<Table>]) -> Result<Batch> {
    let (mut batch, mut value) = (Batch::new(), Vec::new());
    put_varint(&mut value, u64::from(keyspace));
    put_varint(&mut value, tables.len() as u64);
    tables.iter().for_each(|table| put_varint(&mut value, table.id));
    batch.push(Kind::Put, NO_KEYSPACE, &[], &value)?;
    Ok(batch)
}

impl Committer {
    /// Takes the next sequence number for a load into a keyspace. Replaces the active memtable with
    /// an empty one, so that older and newer writes are in different memtables.
    pub(crate) fn number_load(
        &self,
        keyspace: &Arc<KeyspaceCore>,
        tables: &[Arc<Table>],
    ) -> Result<LoadNumber<'_>> {
        let batch = load_batch(keyspace.id, tables)?;
        let alone = std::slice::from_ref(keyspace);
        let fresh = Arc::new(self.catalog.new_memtable(&keyspace.options.load(), None));
        let one_at_a_time = self.loading.lock();
        let turn = (!self.env.options.has_log()).then(|| self.take_turn());
        let mut state = self.lock_commit();
        self.check_batch(&state, &batch, alone)?;
        let seq = state.next_seq;
        let segment = match self.append_to_log(&mut state, &batch) {
            Ok(segment) => segment,
            Err(error) => {
                drop(state);
                self.env.note_job_error(&error);
                return Err(error);
            }
        };
        self.note_logged(&mut state, &batch, segment);
        state.note_held(1, batch.encoded().len() as u64);
        if !seeded!(LoadsNotChecked) {
            state.extra.pass_over(seq);
        }
        keyspace.last_load.store(seq, Relaxed);
        self.catalog.load.begin(seq, segment);
        self.replace_active(keyspace, None, fresh, |active| !active.is_empty());
        keyspace.dead_ranges.forget_all();
        if turn.is_some() {
            // Later generations become visible only after the load, and their flush would wait for
            // that.
            self.schedule.set_flush_limit(seq - 1);
            state.begin_moment(seq - 1);
        }
        drop(state);
        if let Some(turn) = turn {
            self.end_moment(turn, seq - 1);
            self.schedule.wake();
        }
        let keyspace = Arc::clone(keyspace);
        Ok(LoadNumber { committer: self, keyspace, seq, _one_at_a_time: one_at_a_time })
    }
}
