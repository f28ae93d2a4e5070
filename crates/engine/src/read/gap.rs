//! Where nothing is to be seen: a stretch of keys all of whose entries are hidden (deleted, or
//! versions of deleted keys). Walks forward jump over it. Without it a queue, whose keys are
//! deleted where the next walk begins, costs more with each key taken from it, until merges come.
//!
//! One gap is known per keyspace, in memory only. What makes it safe:
//!
//! 1. *Watch.* Whoever changes a gap holds the commit lock. From number `since` on, each write but
//!    a delete that falls into `from..to` narrows the gap and the watch, before it is visible. A
//!    delete shows nothing.
//! 2. *Prove.* A walk sees the store as it was after some number in its `sees`. If it passed
//!    `low..high` and saw nothing, and all of `sees` is at or after `since`, it proves that part of
//!    the stretch gone that is still watched: what was written by then it would have seen, what
//!    came later has narrowed the watch.
//! 3. *Use.* A walk jumps over the gap if all of its `sees` is at or after all of those of the
//!    proofs. It looks at the gap when its numbers are settled; so what it could see and the proofs
//!    could not has narrowed the gap.
//! 4. Where a walk could not prove all that it passed, the watch begins anew, over all keys; what
//!    is proved stays so, since it was watched all the time. The next walk proves the rest.
//!
//! A put into a keyspace without a gap pays one load; with one, two comparisons of keys. A gap that
//! no walk used while a memtable filled is forgotten.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::*};

use arc_swap::ArcSwapOption;

use crate::batch::{Batch, KeyspaceId};
use crate::key::{Kind, SeqNo};

/// A walk that passed fewer hidden entries tells nobody: that takes the commit lock. Small where
/// bugs are sought, so that small stores have gaps.
const LEAST_ENTRIES: u64 = if cfg!(feature = "seeded-bugs") { 4 } else { 64 };

/// Numbers of which one is that after which a walk sees the store. A cursor without a snapshot
/// loads what it reads before its number, and misses what a new memtable took in between.
pub(crate) type Sees = RangeInclusive<SeqNo>;

/// Hidden entries that a walk passed in a row.
#[derive(Debug, Default)]
pub(crate) struct Walk {
    /// Key of the first.
    low: Vec<u8>,
    entries: u64,
}

impl Walk {
    /// Begins anew.
    #[inline]
    pub fn clear(&mut self) {
        self.entries = 0;
    }

    /// Whether nothing was passed.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.entries == 0
    }

    /// Passes a hidden entry; whether it is time to ask for a gap.
    pub fn pass(&mut self, key: &[u8]) -> bool {
        if self.entries == 0 {
            self.low.clear();
            self.low.extend_from_slice(key);
        }
        self.entries += 1;
        self.entries % LEAST_ENTRIES == 1
    }

    /// Whether what was passed is worth telling.
    #[inline]
    pub fn is_long(&self) -> bool {
        self.entries >= LEAST_ENTRIES
    }
}

/// A gap and the watch over it. Ends are exclusive; `None` is behind all keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Gap {
    low: Vec<u8>,
    /// Where walks go on.
    pub high: Option<Vec<u8>>,
    /// The last number of its proofs.
    seq: SeqNo,
    /// Hidden entries that were met inside: of two gaps the larger is kept.
    entries: u64,
    from: Vec<u8>,
    to: Option<Vec<u8>>,
    since: SeqNo,
}

impl Gap {
    /// No gap yet; everything is watched from now on.
    fn watch(now: SeqNo) -> Gap {
        Gap { high: Some(Vec::new()), since: now, ..Gap::default() }
    }

    /// Whether a walk that is at the key may jump.
    fn covers(&self, key: &[u8], sees: &Sees) -> bool {
        let is_late = *sees.start() >= self.seq || seeded!(GapsForAllSnapshots);
        is_late && self.low.as_slice() <= key && is_below(key, self.high.as_deref())
    }

    /// After a write of the key, unless it changes nothing.
    fn after_put(&self, key: &[u8]) -> Option<Gap> {
        if key < self.from.as_slice() || !is_below(key, self.to.as_deref()) {
            return None;
        }
        let mut gap = self.clone();
        if key < self.low.as_slice() {
            gap.from = key.to_vec();
            gap.from.push(0);
        } else {
            gap.to = Some(key.to_vec());
            if is_below(key, self.high.as_deref()) {
                gap.high.clone_from(&gap.to);
                gap.entries = 0;
            }
        }
        Some(gap)
    }

    /// After a walk from `walk.low` to `high`, unless it changes nothing. `now` is the last number
    /// given out.
    fn after_walk(&self, walk: &Walk, high: Option<&[u8]>, sees: &Sees, now: SeqNo) -> Option<Gap> {
        if *sees.start() < self.since && !seeded!(GapsProvedUnwatched) {
            return None;
        }
        let low = walk.low.as_slice().max(&self.from);
        let proved = least_end(high, self.to.as_deref());
        let mut gap = self.clone();
        if is_below(low, proved) {
            let (old_low, old_high) = (self.low.as_slice(), self.high.as_deref());
            let is_empty = !is_below(old_low, old_high);
            let touches = !is_empty
                && old_high.is_none_or(|old| low <= old)
                && proved.is_none_or(|proved| old_low <= proved);
            if touches {
                gap.low = low.min(old_low).to_vec();
                let ends = proved.zip(old_high);
                gap.high = ends.map(|(proved, old)| proved.max(old).to_vec());
                gap.entries += walk.entries;
                gap.seq = self.seq.max(*sees.end());
            } else if is_empty || walk.entries > self.entries {
                gap.low = low.to_vec();
                gap.high = proved.map(<[u8]>::to_vec);
                gap.entries = walk.entries;
                gap.seq = *sees.end();
            }
        }
        if low != walk.low.as_slice() || proved != high {
            (gap.from, gap.to, gap.since) = (Vec::new(), None, now);
        }
        (gap != *self).then_some(gap)
    }
}

/// Whether the key is before an end.
fn is_below(key: &[u8], end: Option<&[u8]>) -> bool {
    end.is_none_or(|end| key < end)
}

fn least_end<'a>(a: Option<&'a [u8]>, b: Option<&'a [u8]>) -> Option<&'a [u8]> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

/// The gap of a keyspace.
#[derive(Debug, Default)]
pub(crate) struct KnownGap {
    /// Whether there is one: where there is none, nothing else is looked at.
    is_there: AtomicBool,
    gap: ArcSwapOption<Gap>,
    /// Whether a walk used it since a memtable was replaced.
    was_used: AtomicBool,
}

impl KnownGap {
    /// The gap, if a walk that is at the key may jump over it.
    pub fn over(&self, key: &[u8], sees: &Sees) -> Option<Arc<Gap>> {
        if !self.is_there.load(Acquire) {
            return None;
        }
        let gap = self.gap.load_full().filter(|gap| gap.covers(key, sees))?;
        self.was_used.store(true, Relaxed);
        Some(gap)
    }

    /// Takes what a batch puts into the keyspace of this id out of the gap. Under the commit lock,
    /// before the batch is visible.
    #[inline]
    pub fn note_batch(&self, batch: &Batch, id: KeyspaceId) {
        // Set under the same lock.
        if self.is_there.load(Relaxed) && !seeded!(GapsIgnorePuts) {
            let own = batch.operations().filter(|operation| operation.keyspace == id);
            let puts = own.filter(|operation| operation.kind != Kind::Delete);
            puts.for_each(|operation| self.note_put(operation.key));
        }
    }

    fn note_put(&self, key: &[u8]) {
        let next = self.gap.load().as_ref().and_then(|gap| gap.after_put(key));
        if let Some(next) = next {
            self.gap.store(Some(Arc::new(next)));
        }
    }

    /// Takes what a walk has passed into the gap. Under the commit lock; `now` is the last number
    /// given out.
    pub fn note_walk(&self, walk: &Walk, high: Option<&[u8]>, sees: &Sees, now: SeqNo) {
        let next = match &*self.gap.load() {
            Some(gap) => gap.after_walk(walk, high, sees, now),
            None => Some(Gap::watch(now)),
        };
        if let Some(next) = next {
            self.gap.store(Some(Arc::new(next)));
            self.is_there.store(true, Release);
            self.was_used.store(true, Relaxed);
        }
    }

    /// A memtable was replaced: a gap that was of no use goes. Under the commit lock.
    pub fn forget_unused(&self) {
        if self.is_there.load(Relaxed) && !self.was_used.swap(false, Relaxed) {
            self.is_there.store(false, Release);
            self.gap.store(None);
        }
    }
}
