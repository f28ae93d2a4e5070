//! Dead ranges: stretches of keys whose entries are all hidden. Each entry is a tombstone, a
//! version of a deleted key, or expired. Walks jump over dead ranges, in both directions. A queue
//! or a stack deletes its keys where the next walk begins, so without ranges, each key that is
//! taken would cost more than the one before, until a compaction runs.
//!
//! Up to 64 ranges are known per keyspace, in memory only. Each range is safe to use by itself:
//!
//! 1. *Watch.* A dead range changes only under the commit lock. From sequence number `since` on,
//!    each write that falls into `from..to` narrows the range and the watch before it becomes
//!    visible. A write inside the range splits it, and leaves a dead range and a watch on both
//!    sides. A delete narrows nothing, because it makes no entry visible.
//! 2. *Prove.* A walk sees the store as of its sequence number. Suppose that the walk passed
//!    `low..high` and saw nothing, and that its sequence number is not below `since`. Then it
//!    proves that the part of `low..high` which is still watched is dead: the walk would have seen
//!    earlier writes, and later writes have narrowed the watch.
//! 3. *Use.* A walk jumps over the range if the walk's sequence number is not below those of the
//!    proofs. It gets its sequence number before it looks at the range. So if the walk can see a
//!    write that the proofs could not see, that write has already narrowed the range.
//! 4. If a walk could not prove all that it passed, the watch begins again, over all keys. The
//!    proved part stays proved, since it was watched all the time. The next walk proves the rest.
//! 5. *Expiry.* A range knows when the last of its expired entries expired. A walk whose clock
//!    shows an earlier time does not jump, because it can still see that entry.
//!
//! A dead range ends at its last hidden key, not at the next visible key. So a key that is appended
//! to a queue is outside the range. Without ranges, a put costs one additional atomic load. With
//! ranges, it also costs one or two comparisons of keys for each range. A dead range that no walk
//! used while a memtable filled is forgotten.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};

use arc_swap::ArcSwapOption;

use crate::keys::SeqNo;

/// The most ranges that a keyspace knows. Each costs a put one or two comparisons. All of them
/// together cost about as much as the put itself, while a walk without its range costs up to a
/// hundred times that.
const MOST_RANGES: usize = 64;

const _: () = assert!(MOST_RANGES <= 64, "`used` has no bit for some ranges");

/// If a walk passed fewer hidden entries than this, it does not report them, because a report takes
/// the commit lock. The number is smaller in builds with seeded bugs, so that small stores have
/// ranges.
const LEAST_ENTRIES: u64 = if cfg!(feature = "seeded-bugs") { 4 } else { 16 };

/// Hidden entries that a walk passed in a row: all keys from `low` (inclusive) to `high`
/// (exclusive).
#[derive(Debug, Default)]
pub(crate) struct Walk {
    low: Vec<u8>,
    high: Vec<u8>,
    entries: u64,
    /// The latest expiry among these entries, in milliseconds since 1970; 0 if none has expired.
    /// Has no meaning before the first entry.
    expired_ms: u64,
    /// Entries to pass until the walk looks for a dead range again.
    patience: u64,
}

impl Walk {
    /// Begins a new run of hidden entries.
    #[inline]
    pub fn clear(&mut self) {
        self.entries = 0;
        self.patience = 0;
    }

    /// Whether no entry was passed.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.entries == 0
    }

    /// Passes a hidden entry on a walk upward; `expired_ms` is when it expired, or 0. Returns
    /// whether it is time to look for a dead range.
    pub fn pass_up(&mut self, key: &[u8], expired_ms: u64) -> bool {
        if self.entries == 0 {
            put(&mut self.low, key);
            self.high.clear();
        }
        self.count(1, expired_ms)
    }

    /// Passes a key with all its entries on a walk downward; `expired_ms` is when the newest entry
    /// that the walk sees expired, or 0. Returns whether it is time to look for a dead range.
    pub fn pass_down(&mut self, key: &[u8], entries: u64, expired_ms: u64) -> bool {
        if self.entries == 0 {
            put(&mut self.high, key);
            self.high.push(0);
        }
        put(&mut self.low, key);
        self.count(entries, expired_ms)
    }

    fn count(&mut self, entries: u64, expired_ms: u64) -> bool {
        self.expired_ms =
            if self.is_empty() { expired_ms } else { self.expired_ms.max(expired_ms) };
        self.entries += entries;
        let is_time = self.patience == 0;
        self.patience = if is_time { LEAST_ENTRIES } else { self.patience.saturating_sub(entries) };
        is_time
    }

    /// Jumps over a dead range to its end, where another range may begin.
    pub fn jump_up(&mut self, range: &DeadRange) {
        put(&mut self.high, &range.high);
        self.expired_ms = self.expired_ms.max(range.expired_ms);
        self.patience = 0;
    }

    /// Jumps over a dead range to its beginning.
    pub fn jump_down(&mut self, range: &DeadRange) {
        put(&mut self.low, &range.low);
        self.expired_ms = self.expired_ms.max(range.expired_ms);
        self.patience = 0;
    }

    /// Ends a walk upward; `last` is the last key whose entries were all passed.
    pub fn end_up(&mut self, last: &[u8]) {
        if self.high.as_slice() <= last {
            put(&mut self.high, last);
            self.high.push(0);
        }
    }

    /// Whether enough entries were passed to report them.
    #[inline]
    pub fn is_long(&self) -> bool {
        self.entries >= LEAST_ENTRIES
    }
}

/// Receives the reports of walks, under the commit lock.
pub(crate) trait WalkNotes: std::fmt::Debug + Send + Sync {
    /// Notes the hidden entries that a walk with this sequence number passed in a keyspace.
    fn note_walk(&self, ranges: &DeadRanges, walk: &Walk, seq: SeqNo);
}

fn put(into: &mut Vec<u8>, key: &[u8]) {
    into.clear();
    into.extend_from_slice(key);
}

/// The smallest key greater than this one.
fn behind(key: &[u8]) -> Vec<u8> {
    [key, &[0]].concat()
}

/// A dead range and its watch, which covers at least the same keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DeadRange {
    /// The first key of the range. If it equals `high`, nothing is proved yet.
    pub low: Vec<u8>,
    /// The smallest key greater than all keys of the range.
    pub high: Vec<u8>,
    /// The largest sequence number of its proofs.
    seq: SeqNo,
    /// The latest expiry of the expired entries inside, in milliseconds since 1970; 0 if there are
    /// none.
    expired_ms: u64,
    /// The approximate number of hidden entries that walks passed inside. The range with the fewest
    /// entries is replaced by a new one.
    entries: u64,
    from: Vec<u8>,
    /// `None` means that the watch has no upper end.
    to: Option<Vec<u8>>,
    since: SeqNo,
}

impl DeadRange {
    /// An empty range that watches all keys from now on, so that the next walk can prove that what
    /// this walk passed is dead.
    fn watch(walk: &Walk, now: SeqNo) -> DeadRange {
        let (low, high) = (walk.low.clone(), walk.low.clone());
        let (from, to, entries) = (Vec::new(), None, walk.entries);
        DeadRange { low, high, seq: 0, expired_ms: 0, entries, from, to, since: now }
    }

    fn is_empty(&self) -> bool {
        self.low >= self.high
    }

    /// Whether a walk at this key may jump over the range. The clock is read only if the range has
    /// expired entries.
    fn covers(&self, key: &[u8], seq: SeqNo, now_ms: &impl Fn() -> u64) -> bool {
        let is_late = seq >= self.seq || seeded!(DeadRangesForAllSnapshots);
        is_late
            && self.low.as_slice() <= key
            && key < self.high.as_slice()
            && (self.expired_ms == 0
                || self.expired_ms <= now_ms()
                || seeded!(DeadRangesIgnoreClocks))
    }

    fn watches(&self, key: &[u8]) -> bool {
        self.from.as_slice() <= key && self.to.as_deref().is_none_or(|to| key < to)
    }

    /// Whether the range overlaps `low..high`.
    fn touches(&self, low: &[u8], high: &[u8]) -> bool {
        !self.is_empty() && low <= self.high.as_slice() && self.low.as_slice() <= high
    }

    /// Whether another range makes this one useless.
    fn lies_in(&self, other: &DeadRange) -> bool {
        other.low <= self.low && self.high <= other.high
    }

    /// The parts that remain below and above a written key that is watched.
    fn after_put(&self, key: &[u8]) -> [Option<DeadRange>; 2] {
        let below = || DeadRange { to: Some(key.to_vec()), ..self.clone() };
        let above = || DeadRange { from: behind(key), ..self.clone() };
        if key < self.low.as_slice() {
            return [None, Some(above())];
        }
        if key >= self.high.as_slice() {
            return [Some(below()), None];
        }
        // If the key is at an end of the range, one piece remains. If the key is inside, two pieces
        // remain. Nobody knows how many entries each has, so each gets half.
        let is_split = key > self.low.as_slice() && behind(key) < self.high;
        let entries = if is_split { self.entries / 2 } else { self.entries.saturating_sub(1) };
        let below = DeadRange { high: key.to_vec(), entries, ..below() };
        let above = DeadRange { low: behind(key), entries, ..above() };
        let is_worth = |range: &DeadRange| !range.is_empty() && entries > LEAST_ENTRIES / 8;
        [Some(below).filter(is_worth), Some(above).filter(is_worth)]
    }

    /// The range after a walk over keys that touch it, or over the first keys of an empty range.
    /// `None` if the walk changes nothing. `now` is the last sequence number given out.
    fn after_walk(&self, walk: &Walk, seq: SeqNo, now: SeqNo) -> Option<DeadRange> {
        if seq < self.since && !seeded!(DeadRangesProvedUnwatched) {
            return None;
        }
        let low = walk.low.as_slice().max(&self.from);
        let high = self.to.as_deref().map_or(walk.high.as_slice(), |to| to.min(&walk.high));
        let mut range = self.clone();
        if low < high && self.is_empty() {
            put(&mut range.low, low);
            put(&mut range.high, high);
            (range.entries, range.seq) = (walk.entries, seq);
            range.expired_ms = walk.expired_ms;
        } else if low < high && self.touches(low, high) && (low < &*self.low || &*self.high < high)
        {
            put(&mut range.low, low.min(&self.low));
            put(&mut range.high, high.max(&self.high));
            (range.entries, range.seq) = (self.entries + walk.entries, self.seq.max(seq));
            range.expired_ms = self.expired_ms.max(walk.expired_ms);
        }
        if low != walk.low || high != walk.high {
            (range.from, range.to, range.since) = (Vec::new(), None, now);
        }
        (range != *self).then_some(range)
    }
}

type Ranges = [Option<Arc<DeadRange>>; MOST_RANGES];

const NO_RANGES: Ranges = [const { None }; MOST_RANGES];

/// The dead ranges of a keyspace.
#[derive(Debug, Default)]
pub(crate) struct DeadRanges {
    /// Whether there are any ranges. If there are none, nothing else is read.
    are_there: AtomicBool,
    ranges: ArcSwapOption<Ranges>,
    /// A bit for each range that a walk used or changed since a memtable was replaced.
    used: AtomicU64,
}

impl DeadRanges {
    /// The range that a walk at this key may jump over, if there is one; `now_ms` is the walk's
    /// clock.
    pub fn over(&self, key: &[u8], seq: SeqNo, now_ms: impl Fn() -> u64) -> Option<Arc<DeadRange>> {
        if !self.are_there.load(Acquire) {
            return None;
        }
        let ranges = self.ranges.load();
        let known = ranges.as_deref()?.iter().enumerate();
        let covers = |range: &Option<Arc<DeadRange>>| {
            range.as_ref().is_some_and(|range| range.covers(key, seq, &now_ms))
        };
        let (at, range) = known.into_iter().find(|(_, range)| covers(range))?;
        self.used.fetch_or(1 << at, Relaxed);
        range.clone()
    }

    /// Whether there are any ranges. Called under the commit lock: ranges are added and removed
    /// only under this lock.
    #[inline]
    pub fn are_there(&self) -> bool {
        self.are_there.load(Relaxed)
    }

    /// Forgets all ranges, because the keys of the next puts are not known. Called under the commit
    /// lock.
    pub fn forget_all(&self) {
        if self.are_there() {
            self.set(NO_RANGES);
        }
    }

    /// Removes a key, which is about to be put, from the ranges. Called under the commit lock,
    /// before the put is visible.
    pub fn note_put(&self, key: &[u8]) {
        if !self.are_there() || seeded!(DeadRangesIgnorePuts) {
            return;
        }
        let known = self.ranges.load();
        let Some(known) = known.as_deref() else { return };
        let is_watched = |range: &&Option<Arc<DeadRange>>| {
            range.as_ref().is_some_and(|range| range.watches(key))
        };
        if known.iter().find(is_watched).is_none() {
            return;
        }
        let mut ranges = known.clone();
        for at in 0..MOST_RANGES {
            if let Some(range) = known[at].as_ref().filter(|range| range.watches(key)) {
                let [below, above] = range.after_put(key).map(|range| range.map(Arc::new));
                let (kept, other) = if below.is_some() { (below, above) } else { (above, None) };
                ranges[at] = kept;
                if other.is_some()
                    && let Some(free) = ranges.iter().position(Option::is_none)
                {
                    ranges[free] = other;
                    self.used.fetch_or(1 << free, Relaxed);
                }
            }
        }
        self.set(ranges);
    }

    /// Adds the entries that a walk passed to the ranges. Called under the commit lock; `now` is
    /// the last sequence number given out.
    pub fn note_walk(&self, walk: &Walk, seq: SeqNo, now: SeqNo) {
        if walk.low >= walk.high {
            return;
        }
        let mut ranges = self.ranges.load().as_deref().cloned().unwrap_or(NO_RANGES);
        let find = |is_it: &dyn Fn(&DeadRange) -> bool| {
            ranges.iter().position(|range| range.as_deref().is_some_and(is_it))
        };
        let touching = find(&|range| range.touches(&walk.low, &walk.high));
        let is_begun = |range: &DeadRange| range.is_empty() && range.watches(&walk.low);
        let (at, next) = match touching.or_else(|| find(&is_begun)) {
            Some(at) => {
                (at, ranges[at].as_ref().and_then(|range| range.after_walk(walk, seq, now)))
            }
            None => (least(&ranges), Some(DeadRange::watch(walk, now))),
        };
        let Some(next) = next else { return };
        for range in ranges
            .iter_mut()
            .filter(|range| range.as_ref().is_some_and(|range| range.lies_in(&next)))
        {
            *range = None;
        }
        ranges[at] = Some(Arc::new(next));
        self.used.fetch_or(1 << at, Relaxed);
        self.set(ranges);
    }

    /// Forgets unused ranges when a memtable was replaced. Called under the commit lock.
    pub fn forget_unused(&self) {
        if self.are_there() {
            let used = self.used.swap(0, Relaxed);
            let mut ranges = self.ranges.load().as_deref().cloned().unwrap_or(NO_RANGES);
            for (at, range) in ranges.iter_mut().enumerate() {
                range.take_if(|_| used & 1 << at == 0);
            }
            self.set(ranges);
        }
    }

    fn set(&self, ranges: Ranges) {
        let are_there = ranges.iter().any(Option::is_some);
        self.ranges.store(are_there.then(|| Arc::new(ranges)));
        self.are_there.store(are_there, Release);
    }
}

/// The index of a free place, or of the range with the fewest entries.
fn least(ranges: &Ranges) -> usize {
    let entries = |at: &usize| ranges[*at].as_ref().map_or(0, |range| range.entries);
    (0..MOST_RANGES).min_by_key(entries).unwrap_or_default()
}
