//! The number of a bulk load, under which all of its entries become visible at once. What is loaded
//! is written elsewhere (`jobs/load.rs`).
//!
//! The log has no entry of a load, but each number has a place in it: recovery takes a number that
//! is missing for a lost record. So the load's number is that of a record with one operation, on no
//! keyspace, which replays pass over as they do writes to one that was dropped.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use parking_lot::MutexGuard;

use crate::base::error::Result;
use crate::base::key::{Kind, NO_KEYSPACE, SeqNo};
use crate::catalog::keyspace::KeyspaceCore;
use crate::wal::batch::Batch;
use crate::write::commit::Committer;

/// The number of a load. Dropping it publishes the number, so that later writes become visible,
/// whether the load is in the tree or failed.
pub(crate) struct LoadNumber<'a> {
    committer: &'a Committer,
    keyspace: Arc<KeyspaceCore>,
    seq: SeqNo,
    /// Who would wait for earlier numbers under the commit lock waits here, before it takes the
    /// lock: see [`Committer::lock_commit_behind_loads`].
    _one_at_a_time: MutexGuard<'a, ()>,
}

impl LoadNumber<'_> {
    pub(crate) fn seq(&self) -> SeqNo {
        self.seq
    }
}

impl Drop for LoadNumber<'_> {
    fn drop(&mut self) {
        self.keyspace.end_load();
        reached!(LoadShown);
        self.committer.visibility.publisher.publish(self.seq, self.seq);
        self.committer.lock_commit().is_loading = false;
    }
}

impl Committer {
    /// Takes the next number for a load into a keyspace, and puts an empty memtable in the place of
    /// the active one, so that older and newer writes are apart.
    pub(crate) fn number_load(&self, keyspace: &Arc<KeyspaceCore>) -> Result<LoadNumber<'_>> {
        let mut batch = Batch::new();
        batch.push(Kind::Put, NO_KEYSPACE, &[], &[])?;
        let alone = std::slice::from_ref(keyspace);
        let fresh = Arc::new(self.catalog.new_memtable(&keyspace.options.load(), None));
        let one_at_a_time = self.loading.lock();
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
        state.is_loading = true;
        if !seeded!(LoadsNotChecked) {
            state.extra.pass_over(seq);
        }
        keyspace.last_load.store(seq, Relaxed);
        keyspace.replace_active(None, fresh, |active| !active.is_empty());
        keyspace.dead_ranges.forget_all();
        let keyspace = Arc::clone(keyspace);
        Ok(LoadNumber { committer: self, keyspace, seq, _one_at_a_time: one_at_a_time })
    }
}
