//! The range deletes of a memtable, or of all tables of a tree: which number deletes a key, as seen
//! at some number. Immutable; a set with one more shares most of the old one.
//!
//! A range delete hides each older entry of its keys, wherever that lies. So a reader asks for the
//! largest number over a key, and what is older is hidden. No order of sources is needed.
//!
//! 1. A *skyline* is the largest number over each key, as steps: it changes at some keys, and a map
//!    holds the number from each such key on. A range delete that is newer than all of a skyline
//!    replaces the steps inside. O(log n), amortised.
//! 2. A snapshot must not see later range deletes. The map is persistent, so the set keeps the
//!    skyline after each range delete, and a reader takes the last one that it may see. O(log n).
//! 3. Most readers see all of a set, and each step in a map of ten thousand is a cache miss or two.
//!    So when a set was asked often enough to pay for it, the last skyline becomes arrays.

use std::ops::Bound::{Excluded, Included, Unbounded};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use rpds::{RedBlackTreeMapSync, VectorSync};
use runstone_policy::shape::range_delete::RangeDelete;

use crate::base::key::{HeadRule, SeqNo};

type Key = Arc<[u8]>;

/// Keys under one number: from `start` to `end`, or without a bound on that side.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stretch {
    /// The first key.
    pub start: Option<Key>,
    /// The least key behind.
    pub end: Option<Key>,
    /// The number that deletes what is older; 0 if none does.
    pub seq: SeqNo,
}

impl Stretch {
    /// Whether the key lies inside.
    #[inline]
    pub fn holds(&self, key: &[u8]) -> bool {
        self.start.as_ref().is_none_or(|start| **start <= *key)
            && self.end.as_ref().is_none_or(|end| *key < **end)
    }

    /// What both hold, under the larger number. They have a key in common.
    pub fn narrowed(self, other: Stretch) -> Stretch {
        let end = match (self.end, other.end) {
            (Some(one), Some(two)) => Some(one.min(two)),
            (one, two) => one.or(two),
        };
        Stretch { start: self.start.max(other.start), end, seq: self.seq.max(other.seq) }
    }
}

/// The largest number over each key.
#[derive(Clone, Debug, Default)]
pub struct Skyline(RedBlackTreeMapSync<Key, SeqNo>);

impl Skyline {
    /// The number that deletes older entries of a key; 0 if none does. O(log n).
    pub fn over(&self, key: &[u8]) -> SeqNo {
        let steps = (Unbounded, Included(key));
        self.0.range::<[u8], _>(steps).next_back().map_or(0, |(_, seq)| *seq)
    }

    /// The stretch around a key. O(log n).
    pub fn stretch(&self, key: &[u8]) -> Stretch {
        let before = self.0.range::<[u8], _>((Unbounded, Included(key))).next_back();
        let after = self.0.range::<[u8], _>((Excluded(key), Unbounded)).next();
        Stretch {
            start: before.map(|(start, _)| Arc::clone(start)),
            end: after.map(|(end, _)| Arc::clone(end)),
            seq: before.map_or(0, |(_, seq)| *seq),
        }
    }

    /// The smallest number over the keys from one to the other, both included. O(steps inside).
    pub fn over_all(&self, min_key: &[u8], max_key: &[u8]) -> SeqNo {
        self.inside(min_key, max_key).fold(self.over(min_key), SeqNo::min)
    }

    /// The largest number over a key between the two, both included. O(steps inside).
    pub fn over_any(&self, min_key: &[u8], max_key: &[u8]) -> SeqNo {
        self.inside(min_key, max_key).fold(self.over(min_key), SeqNo::max)
    }

    /// The smallest number over the keys of a range delete. O(steps inside).
    pub fn over_range(&self, range: &RangeDelete) -> SeqNo {
        let behind = range.end.as_deref().map_or(Unbounded, Excluded);
        if range.end.as_ref().is_some_and(|end| **end <= *range.start) {
            return SeqNo::MAX;
        }
        let steps = self.0.range::<[u8], _>((Excluded(&*range.start), behind));
        steps.map(|(_, seq)| *seq).fold(self.over(&range.start), SeqNo::min)
    }

    /// The largest number over a key from `low` on and below `high`, if there is one. O(steps
    /// inside).
    pub fn newest(&self, low: &[u8], high: Option<&[u8]>) -> SeqNo {
        if high.is_some_and(|high| high <= low) {
            return 0;
        }
        let inside = (Excluded(low), high.map_or(Unbounded, Excluded));
        let steps = self.0.range::<[u8], _>(inside);
        steps.map(|(_, seq)| *seq).fold(self.over(low), SeqNo::max)
    }

    fn inside<'a>(
        &'a self,
        min_key: &'a [u8],
        max_key: &'a [u8],
    ) -> impl Iterator<Item = SeqNo> + 'a {
        let last = max_key.max(min_key);
        self.0.range::<[u8], _>((Excluded(min_key), Included(last))).map(|(_, seq)| *seq)
    }

    /// Adds a range delete that is newer than all others.
    fn add(&mut self, range: &RangeDelete) {
        let end = range.end.as_deref();
        if end.is_some_and(|end| *end <= *range.start) {
            return;
        }
        let behind = end.map(|end| (Key::from(end), self.over(end)));
        let inside = (Included(&*range.start), end.map_or(Unbounded, Excluded));
        let inside: Vec<Key> =
            self.0.range::<[u8], _>(inside).map(|(key, _)| Arc::clone(key)).collect();
        inside.iter().for_each(|key| _ = self.0.remove_mut(&**key));
        if let Some((end, seq)) = behind {
            self.0.insert_mut(end, seq);
        }
        self.0.insert_mut(Key::from(&*range.start), range.seq);
    }
}

/// A skyline as arrays: the steps in order.
#[derive(Debug)]
struct Steps {
    rule: HeadRule,
    /// Heads of the keys, which decide most searches.
    heads: Vec<u64>,
    steps: Vec<(Key, SeqNo)>,
}

impl Steps {
    /// O(steps).
    fn of(skyline: &Skyline) -> Steps {
        let steps: Vec<(Key, SeqNo)> =
            skyline.0.iter().map(|(key, seq)| (Arc::clone(key), *seq)).collect();
        let rule = match (steps.first(), steps.last()) {
            (Some((first, _)), Some((last, _))) => HeadRule::between(first, last),
            _ => HeadRule::WHOLE,
        };
        Steps { rule, heads: steps.iter().map(|(key, _)| rule.head(key)).collect(), steps }
    }

    /// The number over a key, as [`Skyline::over`] gives it. O(log steps).
    fn over(&self, key: &[u8]) -> SeqNo {
        let head = self.rule.head(key);
        let low = self.heads.partition_point(|other| *other < head);
        let alike = self.heads[low..].partition_point(|other| *other == head);
        let alike = &self.steps[low..low + alike];
        let behind = low + alike.partition_point(|(other, _)| **other <= *key);
        behind.checked_sub(1).map_or(0, |last| self.steps[last].1)
    }
}

/// The last skyline as arrays, and how often it was asked while there were none.
#[derive(Debug, Default)]
struct Arrays {
    asked: AtomicUsize,
    steps: OnceLock<Steps>,
}

impl Arrays {
    /// A map of fewer steps stays in the cache.
    const LEAST_STEPS: usize = 32;
    /// A search in the map costs about as much as eight steps of building the arrays.
    const STEPS_A_SEARCH: usize = 8;

    /// The arrays, if they are worth it. Readers count side by side only until they are.
    fn get(&self, skyline: &Skyline) -> Option<&Steps> {
        if let Some(steps) = self.steps.get() {
            return Some(steps);
        }
        let count = skyline.0.size();
        if count < Arrays::LEAST_STEPS {
            return None;
        }
        let asked = self.asked.fetch_add(1, Relaxed);
        (asked * Arrays::STEPS_A_SEARCH >= count)
            .then(|| self.steps.get_or_init(|| Steps::of(skyline)))
    }
}

/// Whether the number over a key deletes an entry of the key: one that is older.
#[inline]
pub(crate) fn deletes(over: SeqNo, entry: SeqNo) -> bool {
    over > entry || over > 0 && seeded!(RangeDeletesHideNewer)
}

/// A set of range deletes.
#[derive(Debug, Default)]
pub struct RangeDeletes {
    /// By number, each with the skyline after it.
    history: VectorSync<(Arc<RangeDelete>, Skyline)>,
    arrays: Arrays,
}

/// Who copies a set adds to it, and the arrays go then.
impl Clone for RangeDeletes {
    fn clone(&self) -> RangeDeletes {
        RangeDeletes { history: self.history.clone(), arrays: Arrays::default() }
    }
}

impl RangeDeletes {
    /// The set of these, in any order. O(n log n).
    pub fn of(mut all: Vec<Arc<RangeDelete>>) -> RangeDeletes {
        all.sort_by_key(|range| range.seq);
        let mut set = RangeDeletes::default();
        all.into_iter().for_each(|range| set.push(range));
        set
    }

    /// Adds a range delete. O(log n), and more for those that were added before with larger
    /// numbers: writers insert side by side.
    pub fn add(&mut self, range: RangeDelete) {
        let mut later = Vec::new();
        while let Some((last, _)) = self.history.last().filter(|(last, _)| last.seq > range.seq) {
            later.push(Arc::clone(last));
            self.history.drop_last_mut();
        }
        self.push(Arc::new(range));
        later.into_iter().rev().for_each(|range| self.push(range));
    }

    fn push(&mut self, range: Arc<RangeDelete>) {
        let mut skyline = self.history.last().map_or_else(Skyline::default, |(_, s)| s.clone());
        skyline.add(&range);
        self.history.push_back_mut((range, skyline));
        self.arrays = Arrays::default();
    }

    /// The skyline that a reader at this number sees; `None` if it sees no range delete. O(log n).
    #[inline]
    pub fn at(&self, seq: SeqNo) -> Option<&Skyline> {
        let (last, skyline) = self.history.last()?;
        match last.seq <= seq || seeded!(RangeDeletesForAllSnapshots) {
            true => Some(skyline),
            false => self.search(seq),
        }
    }

    fn search(&self, seq: SeqNo) -> Option<&Skyline> {
        let (mut low, mut high) = (0, self.history.len());
        while low < high {
            let middle = low.midpoint(high);
            match self.history.get(middle) {
                Some((range, _)) if range.seq <= seq => low = middle + 1,
                _ => high = middle,
            }
        }
        self.history.get(low.checked_sub(1)?).map(|(_, skyline)| skyline)
    }

    /// The number that deletes older entries of a key, as a reader at `seq` sees it; 0 if none
    /// does. O(log n).
    pub fn over(&self, key: &[u8], seq: SeqNo) -> SeqNo {
        let is_last = |(last, _): &&(Arc<RangeDelete>, Skyline)| last.seq <= seq;
        match self.history.last().filter(is_last) {
            Some((_, skyline)) => match self.arrays.get(skyline) {
                Some(steps) => steps.over(key),
                None => skyline.over(key),
            },
            None => self.at(seq).map_or(0, |skyline| skyline.over(key)),
        }
    }

    /// Whether one that a reader at `seq` sees hides an entry of this number. O(1) if the entry is
    /// newer than all of them, else O(log n). Not inlined: most stores have no range deletes.
    #[inline(never)]
    pub fn hide(&self, key: &[u8], entry: SeqNo, seq: SeqNo) -> bool {
        self.history.last().is_some_and(|(last, _)| deletes(last.seq, entry))
            && deletes(self.over(key, seq), entry)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.history.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A set that is asked often answers from arrays, with the same numbers, and a copy that got
    /// one more does not go by the old ones.
    #[test]
    fn arrays_answer_as_the_map_does() {
        let key = |i: u32| format!("{}{i:05}", if i < 400 { "a" } else { "a long beginning/" });
        let bytes = |i: u32| -> Box<[u8]> { key(i).into_bytes().into() };
        let all = (0..500).map(|i| {
            let from = i * 7919 % 800;
            RangeDelete { start: bytes(from), end: Some(bytes(from + 30)), seq: u64::from(i) + 1 }
        });
        let mut set = RangeDeletes::of(all.map(Arc::new).collect());
        let check = |set: &RangeDeletes| {
            let skyline = set.at(SeqNo::MAX).expect("it has some").clone();
            for i in 0..1000 {
                for key in [key(i), key(i) + "x", key(i)[..1 + i as usize % 5].to_string()] {
                    assert_eq!(
                        set.over(key.as_bytes(), 501),
                        skyline.over(key.as_bytes()),
                        "{key}"
                    );
                }
            }
        };
        check(&set);
        assert!(set.arrays.steps.get().is_some(), "3,000 questions are enough");
        let before = set.clone();
        set.add(RangeDelete { start: bytes(0), end: None, seq: 501 });
        assert_eq!(set.over(b"a00001", 501), 501);
        assert!(set.over(b"a00001", 500) < 501 && before.over(b"a00001", 501) < 501);
        check(&set);
    }

    fn range(start: u8, end: Option<u8>, seq: SeqNo) -> RangeDelete {
        RangeDelete { start: [start].into(), end: end.map(|end| [end].into()), seq }
    }

    proptest! {
        /// A set answers as a look at each range delete does, for every key and number, in whatever
        /// order its members came.
        #[test]
        fn the_newest_visible_range_delete_decides(
            drawn in prop::collection::vec((0..20u8, prop::option::of(0..22u8)), 0..12),
            rotate in 0..12usize,
        ) {
            let all: Vec<RangeDelete> =
                (1..).zip(&drawn).map(|(i, (start, end))| range(*start, *end, 10 * i)).collect();
            let mut order = all.clone();
            order.rotate_left(rotate.min(all.len()));
            let mut set = RangeDeletes::default();
            order.into_iter().for_each(|one| set.add(one));
            for key in 0..24u8 {
                for seq in 0..130 {
                    let over = |range: &&RangeDelete| {
                        range.seq <= seq && range.covers(&[key], &[key])
                    };
                    let expected = all.iter().filter(over).map(|range| range.seq).max();
                    let expected = expected.unwrap_or(0);
                    prop_assert_eq!(set.over(&[key], seq), expected, "key {} at {}", key, seq);
                    for entry in [expected.saturating_sub(1), expected, seq] {
                        prop_assert_eq!(set.hide(&[key], entry, seq), expected > entry);
                    }
                    let Some(skyline) = set.at(seq) else { continue };
                    let stretch = skyline.stretch(&[key]);
                    prop_assert!(stretch.holds(&[key]) && stretch.seq == expected);
                    let to = [key + 3];
                    let between = || (key..=key + 3).map(|key| set.over(&[key], seq));
                    prop_assert!(skyline.over_all(&[key], &to) <= between().min().unwrap_or(0));
                    prop_assert!(skyline.over_any(&[key], &to) >= between().max().unwrap_or(0));
                    let below = (key..key + 3).map(|key| set.over(&[key], seq)).max();
                    prop_assert!(skyline.newest(&[key], Some(&to)) >= below.unwrap_or(0));
                    prop_assert!(skyline.newest(&[key], None) >= below.unwrap_or(0));
                }
            }
        }
    }
}
