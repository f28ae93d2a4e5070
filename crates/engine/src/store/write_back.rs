//! Writes back what a get made of many operands, so that later gets stop at it. Flushes and
//! compactions fold what meets in them; operands of an operator that makes no one operand of two
//! stay until they meet their base, and each get applies them all.
//!
//! 1. The value becomes a put of the key, if nobody has written to the key since the get saw it. It
//!    has a number of its own: snapshots see the operands until they go, and the next flush or
//!    compaction that finds both drops the operands.
//! 2. It is left to a later get where it would wait, where somebody has locked the key, or where a
//!    snapshot sees the newest operand: a transaction may hold that, and would take the put for a
//!    conflict. What begins after this look may still do so, as beside any write.
//! 3. A value whose base will expire is not written: from then on the operands apply to nothing,
//!    which no single entry can say.
//!
//! Rejected: to compact the keys' range first. That rewrites tables for one key, and is a full
//! compaction under policies whose runs must stay whole; this writes the value, under any policy. A
//! background thread, which would need a queue with a limit and its own get of the key: with a
//! write that never waits, the reader pays a log record and an insert, less than the get has cost.

use std::sync::Arc;
use std::time::Duration;

use crate::catalog::keyspace::KeyspaceCore;
use crate::keys::Kind;
use crate::metrics::Counter;
use crate::read::fold::Folded;
use crate::store::engine::Engine;
use crate::transaction::locks::Locks;
use crate::wal::batch::Batch;

impl Engine {
    /// Puts the value of a key that a get has just worked out. The reader has its value already, so
    /// no failure is told: that of a log has stopped the store (P7), and others change nothing.
    #[cold]
    pub(crate) fn write_back(&self, keyspace: &Arc<KeyspaceCore>, key: &[u8], folded: &Folded) {
        reached!(ValueFolded);
        let mut batch = Batch::new();
        if batch.push(Kind::Put, keyspace.id, key, folded.value).is_err() {
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
