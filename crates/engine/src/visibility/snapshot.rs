//! A registered point in the store's history: compactions keep what it can see, until it is
//! dropped.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::base::key::SeqNo;
use crate::visibility::publish::Publisher;

/// Which writes readers see, and which moments live snapshots hold.
#[derive(Debug)]
pub(crate) struct Visibility {
    pub(crate) publisher: Publisher,
    /// Live snapshots: sequence number and how many hold it.
    live: Mutex<BTreeMap<SeqNo, usize>>,
}

impl Visibility {
    pub(crate) fn new(visible: SeqNo) -> Visibility {
        Visibility { publisher: Publisher::new(visible), live: Mutex::default() }
    }

    /// The newest visible write.
    #[inline]
    pub(crate) fn now(&self) -> SeqNo {
        self.publisher.visible()
    }

    /// Registers the present moment.
    pub(crate) fn snapshot(self: &Arc<Self>) -> Snapshot {
        // Reading the number and registering it is one step for the compactions, which collect live
        // snapshots under the same lock.
        let mut live = self.live.lock();
        let seq = self.now();
        *live.entry(seq).or_default() += 1;
        drop(live);
        Snapshot { visibility: Arc::clone(self), seq }
    }

    /// Sequence numbers that compactions must keep visible, ascending: live snapshots and "now".
    pub(crate) fn points(&self) -> Vec<SeqNo> {
        let live = self.live.lock();
        let now = self.now();
        let mut points: Vec<SeqNo> = live.keys().copied().collect();
        points.push(now);
        points.dedup();
        points
    }
}

/// A view of all keyspaces that later writes do not change (P5). Dropping it lets compactions drop
/// what only it could see.
#[derive(Debug)]
pub struct Snapshot {
    visibility: Arc<Visibility>,
    seq: SeqNo,
}

impl Snapshot {
    /// Sequence number: all writes up to it are visible.
    pub fn seq(&self) -> SeqNo {
        self.seq
    }

    /// Whether the snapshot is of the store with this visibility.
    pub(crate) fn is_of(&self, visibility: &Arc<Visibility>) -> bool {
        Arc::ptr_eq(&self.visibility, visibility)
    }
}

impl Clone for Snapshot {
    fn clone(&self) -> Snapshot {
        *self.visibility.live.lock().entry(self.seq).or_default() += 1;
        Snapshot { visibility: Arc::clone(&self.visibility), seq: self.seq }
    }
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        let mut live = self.visibility.live.lock();
        if let Some(count) = live.get_mut(&self.seq) {
            *count -= 1;
            if *count == 0 {
                live.remove(&self.seq);
            }
        }
    }
}
