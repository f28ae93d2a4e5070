//! Snapshots: registered points in the store's history. Compactions keep what a snapshot can see
//! until it is dropped.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::base::key::SeqNo;
use crate::visibility::publish::Publisher;

/// The writes that readers see, and the moments that live snapshots hold.
#[derive(Debug)]
pub(crate) struct Visibility {
    pub(crate) publisher: Publisher,
    /// Live snapshots: their sequence numbers, and how many handles hold each.
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
        // To compactions, reading the number and registering it is one step, because they collect
        // live snapshots under the same lock.
        let mut live = self.live.lock();
        let seq = self.now();
        *live.entry(seq).or_default() += 1;
        drop(live);
        Snapshot { visibility: Arc::clone(self), seq }
    }

    /// The sequence numbers that compactions must keep visible, ascending: those of live snapshots,
    /// and the present.
    pub(crate) fn points(&self) -> Vec<SeqNo> {
        let live = self.live.lock();
        let now = self.now();
        let mut points: Vec<SeqNo> = live.keys().copied().collect();
        points.push(now);
        points.dedup();
        points
    }

    /// The number of the newest snapshot; 0 if there is none.
    pub(crate) fn newest_snapshot(&self) -> SeqNo {
        self.live.lock().keys().next_back().copied().unwrap_or(0)
    }
}

/// A view of all keyspaces that later writes do not change (P5). Dropping it lets compactions
/// remove what only it could see.
///
/// ```
/// # fn main() -> runstone::Result<()> {
/// # let dir = tempfile::tempdir().expect("a directory");
/// # let store = runstone::Store::open(dir.path(), runstone::Options::default())?;
/// use runstone::ReadOptions;
///
/// store.put("k", "v")?;
/// let snapshot = store.snapshot();
/// store.delete("k")?;
/// let mut cursor = store.default_keyspace().cursor(ReadOptions::default().at(&snapshot))?;
/// cursor.seek_to_first()?;
/// assert_eq!((cursor.key(), cursor.value()), (&b"k"[..], &b"v"[..]));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Snapshot {
    visibility: Arc<Visibility>,
    seq: SeqNo,
}

impl Snapshot {
    /// The sequence number of the snapshot: it sees all writes up to this one.
    pub fn seq(&self) -> SeqNo {
        self.seq
    }

    /// Whether the snapshot belongs to the store with this visibility.
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
