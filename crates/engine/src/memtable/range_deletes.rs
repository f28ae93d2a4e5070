//! The range deletes of a memtable. Readers load the current set; writers replace it, one at a
//! time.

use std::sync::Arc;

use crate::sync::{Mutex, rank};
use arc_swap::ArcSwap;
use runstone_policy::shape::range_delete::RangeDelete;

use crate::keys::SeqNo;
use crate::ranges::RangeDeletes;

/// The memory of a set is counted in steps of this size.
const COUNTED_BYTES: usize = 4 << 10;

/// The range deletes of a memtable.
#[derive(Debug, Default)]
pub(super) struct OwnRangeDeletes {
    set: ArcSwap<RangeDeletes>,
    /// The bytes of the set that were counted. Its lock is held by the writer that replaces the
    /// set.
    counted: Mutex<rank::CountedRanges, usize>,
}

impl OwnRangeDeletes {
    /// Adds range deletes; see [`RangeDeletes::add`]. Returns the additional bytes to be counted.
    pub(super) fn add(&self, ranges: Vec<Arc<RangeDelete>>, settled: SeqNo) -> usize {
        let mut counted = self.counted.lock();
        let mut set = RangeDeletes::clone(&self.set.load());
        set.add(ranges, settled);
        let bytes = set.bytes();
        self.set.store(Arc::new(set));
        if bytes < *counted + COUNTED_BYTES {
            return 0;
        }
        bytes - std::mem::replace(&mut *counted, bytes)
    }

    /// All current range deletes.
    pub(super) fn set(&self) -> Arc<RangeDeletes> {
        self.set.load_full()
    }

    /// See [`RangeDeletes::hide`].
    pub(super) fn hide(&self, key: &[u8], entry: SeqNo, seq: SeqNo) -> bool {
        self.set.load().hide(key, entry, seq)
    }
}
