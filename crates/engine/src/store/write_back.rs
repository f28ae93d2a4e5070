//! Writes back the value that a get computed from many operands, so that later gets stop at it.
//! Flushes and compactions fold the operands that they read. If an operator cannot join two
//! operands into one, the operands stay until a compaction combines them with their base value, and
//! each get applies them all.
//!
//! 1. The value becomes a put of the key, if nobody has written to the key since the get saw it.
//!    The put has its own sequence number: snapshots see the operands until they are released, and
//!    the next flush or compaction that finds both drops the operands.
//! 2. The put is left to a later get if this one would have to wait, if somebody has locked the
//!    key, or if a snapshot sees the newest operand: that snapshot may belong to a transaction,
//!    which would mistake the put for a conflict. A transaction that begins after this check may
//!    still conflict, as with any write.
//! 3. A value whose base will expire is not written: once the base has expired the operands apply
//!    to nothing, and no single entry can express that.
//!
//! Rejected: compacting the range of the keys first. That rewrites tables for one key, and is a
//! full compaction under policies whose runs must stay whole. A write of the value works under any
//! policy. Rejected: a background thread, which would need a queue with a limit and its own get of
//! the key. With a write that never waits, the reader pays for a log record and an insert, which
//! cost less than the get did.

use std::sync::Arc;
use std::time::Duration;

use crate::catalog::keyspace::KeyspaceCore;
use crate::metrics::Counter;
use crate::read::fold::Folded;
use crate::store::engine::Engine;
use crate::transaction::locks::Locks;
use crate::wal::batch::Batch;

impl Engine {
    /// Puts the value of a key that a get has just computed. The reader has its value already, so
    /// no failure is reported: a failure of the log has stopped the store (P7), and other failures
    /// change nothing.
    #[cold]
    pub(crate) fn write_back(&self, keyspace: &Arc<KeyspaceCore>, key: &[u8], folded: &Folded) {
        reached!(ValueFolded);
        let mut batch = Batch::new();
        if batch.push_folded(keyspace.id, key, folded.value).is_err() {
            return;
        }
        let mut locks = Locks::new(&self.locks, 1, Duration::ZERO);
        // The locks last until the put is visible.
        let holds = || {
            let is_newest = folded.is_newest(keyspace, key) || seeded!(FoldedOverNewer);
            is_newest
                && self.visibility.newest_held() < folded.newest
                && (!self.locks.is_used() || locks.try_acquire(keyspace, key))
        };
        if let Ok(true) = self.committer.commit_at_once(&batch, keyspace, holds) {
            self.env.metrics.add(Counter::folded_values_written, 1);
        }
    }
}
