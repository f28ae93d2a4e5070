//! A registered point in the store's history: compactions keep what it can see, until it is
//! dropped.

use std::sync::Arc;

use crate::base::key::SeqNo;
use crate::store::Inner;

/// A view of all keyspaces that later writes do not change (P5). Dropping it lets compactions drop
/// what only it could see.
#[derive(Debug)]
pub struct Snapshot {
    store: Arc<Inner>,
    seq: SeqNo,
}

impl Snapshot {
    pub(crate) fn new(store: Arc<Inner>) -> Snapshot {
        // Reading the number and registering it is one step for the compactions, which collect live
        // snapshots under the same lock.
        let mut live = store.snapshots.lock();
        let seq = store.publisher.visible();
        *live.entry(seq).or_default() += 1;
        drop(live);
        Snapshot { store, seq }
    }

    /// Sequence number: all writes up to it are visible.
    pub fn seq(&self) -> SeqNo {
        self.seq
    }

    pub(crate) fn is_of(&self, store: &Arc<Inner>) -> bool {
        Arc::ptr_eq(&self.store, store)
    }
}

impl Clone for Snapshot {
    fn clone(&self) -> Snapshot {
        *self.store.snapshots.lock().entry(self.seq).or_default() += 1;
        Snapshot { store: Arc::clone(&self.store), seq: self.seq }
    }
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        let mut live = self.store.snapshots.lock();
        if let Some(count) = live.get_mut(&self.seq) {
            *count -= 1;
            if *count == 0 {
                live.remove(&self.seq);
            }
        }
    }
}

impl Inner {
    /// Sequence numbers that compactions must keep visible, ascending: live snapshots and "now".
    pub(crate) fn visible_points(&self) -> Vec<SeqNo> {
        let live = self.snapshots.lock();
        let now = self.publisher.visible();
        let mut points: Vec<SeqNo> = live.keys().copied().collect();
        points.push(now);
        points.dedup();
        points
    }
}
