//! The free slots of a value file. The lowest slots are given out first, so that the end of the
//! file empties and can be cut off. A pure data structure, which is derived from the segments at
//! the open.

use std::collections::{BTreeMap, BTreeSet};
use std::iter;
use std::ops::Range;

/// Free slots of one file.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    /// Runs of free slots with a taken slot on either side: the first slot, and the number of
    /// slots.
    runs: BTreeMap<u32, u32>,
    /// The same runs by length: the number of slots, and the first slot.
    by_length: BTreeSet<(u32, u32)>,
    free_count: u64,
    /// Free slots whose space has not been given back to the file system since they were freed.
    unpunched: BTreeSet<u32>,
    /// The number of slots that the file has.
    end: u32,
}

impl Pool {
    /// The pool of a file in which these extents (first slot, slots) are taken. `None` if two of
    /// them overlap. It takes memory for every free slot below the last taken one, so the caller
    /// must have checked the extents against the length of the file.
    pub(crate) fn of_taken(taken: impl Iterator<Item = (u32, u32)>) -> Option<Pool> {
        let mut taken: Vec<(u32, u32)> = taken.collect();
        taken.sort_unstable();
        let mut pool = Pool::default();
        for (first, count) in taken {
            if first < pool.end {
                return None;
            }
            let end = first.checked_add(count)?;
            pool.free_run(pool.end..first);
            pool.end = end;
        }
        Some(pool)
    }

    /// Takes `count` neighbouring slots: the first of the lowest run that is long enough, or else
    /// slots at the end. `None` if the file would exceed 2^32 slots.
    pub(crate) fn take(&mut self, count: u32) -> Option<u32> {
        let lowest = self.runs.first_key_value().filter(|(_, len)| **len >= count);
        // Most values take one slot, so the lowest run is long enough for them.
        let found = lowest.map(|(first, _)| *first).or_else(|| self.runs_of(count).min());
        if let Some(first) = found {
            self.take_free(first..first + count);
            return Some(first);
        }
        // Free slots at the very end count too.
        let last = self.runs.last_key_value().filter(|(first, len)| *first + *len == self.end);
        let first = last.map_or(self.end, |(first, _)| *first);
        let end = first.checked_add(count)?;
        self.take_free(first..self.end);
        self.end = end;
        Some(first)
    }

    /// For each length of at least `count`, the lowest run of that length. The sum of all lengths
    /// is at most the number of free slots, so there are at most O(sqrt(free slots)) different
    /// lengths.
    fn runs_of(&self, count: u32) -> impl Iterator<Item = u32> {
        let lowest_of = |len| self.by_length.range((len, 0)..).next().copied();
        let longer = move |(len, _): &(u32, u32)| lowest_of(len.checked_add(1)?);
        iter::successors(lowest_of(count), longer).map(|(_, first)| first)
    }

    /// Takes these slots. Returns `false`, and takes none, if one of them is taken. The caller has
    /// checked that the file is long enough.
    pub(crate) fn take_at(&mut self, first: u32, count: u32) -> bool {
        let Some(end) = first.checked_add(count) else { return false };
        let known = first..end.min(self.end);
        if !known.is_empty() && !self.is_free(&known) {
            return false;
        }
        if end > self.end {
            self.free_run(self.end..end);
            self.end = end;
        }
        self.take_free(first..end);
        true
    }

    /// Frees slots.
    pub(crate) fn give(&mut self, first: u32, count: u32) {
        let end = u64::from(first) + u64::from(count);
        assert!(end <= u64::from(self.end), "slots of the file");
        let next = self.runs.range(..first + count).next_back();
        let is_taken = next.is_none_or(|(run, len)| run + len <= first);
        assert!(is_taken, "one of {count} slots from {first} on is freed twice");
        self.free_run(first..first + count);
    }

    /// Removes the free slots at the end, and returns the number of slots that remain.
    pub(crate) fn cut_end(&mut self) -> u32 {
        let last = self.runs.last_key_value().map(|(first, len)| (*first, *first + *len));
        if let Some((first, _)) = last.filter(|(_, end)| *end == self.end) {
            self.take_free(first..self.end);
            self.end = first;
        }
        self.end
    }

    /// Whether all of these slots are free.
    fn is_free(&self, slots: &Range<u32>) -> bool {
        let run = self.runs.range(..=slots.start).next_back();
        run.is_some_and(|(first, len)| slots.end <= first + len)
    }

    /// Adds slots to the free ones. None of them may be free already.
    fn free_run(&mut self, slots: Range<u32>) {
        if slots.is_empty() {
            return;
        }
        self.free_count += slots.len() as u64;
        self.unpunched.extend(slots.clone());
        let (mut from, mut to) = (slots.start, slots.end);
        let before = self.runs.range(..from).next_back().map(|(first, len)| (*first, first + len));
        if let Some((first, _)) = before.filter(|(_, end)| *end == from) {
            self.remove_run(first);
            from = first;
        }
        if let Some(len) = self.remove_run(to) {
            to += len;
        }
        self.add_run(from..to);
    }

    /// Removes neighbouring slots from the free ones. All of them must be free.
    fn take_free(&mut self, slots: Range<u32>) {
        if slots.is_empty() {
            return;
        }
        self.free_count -= slots.len() as u64;
        slots.clone().for_each(|slot| _ = self.unpunched.remove(&slot));
        let run = self.runs.range(..=slots.start).next_back();
        let (first, _) = run.expect("only free slots are taken");
        let first = *first;
        let end = first + self.remove_run(first).unwrap_or(0);
        self.add_run(first..slots.start);
        self.add_run(slots.end..end);
    }

    fn add_run(&mut self, run: Range<u32>) {
        if !run.is_empty() {
            let len = run.end - run.start;
            self.runs.insert(run.start, len);
            self.by_length.insert((len, run.start));
        }
    }

    /// Removes the run that begins at this slot, and returns its length.
    fn remove_run(&mut self, first: u32) -> Option<u32> {
        let len = self.runs.remove(&first)?;
        self.by_length.remove(&(len, first));
        Some(len)
    }

    /// The number of slots of the file.
    pub(crate) fn end(&self) -> u32 {
        self.end
    }

    /// The number of slots that are taken.
    pub(crate) fn used(&self) -> u64 {
        u64::from(self.end) - self.free_count
    }

    /// Free slots, ascending.
    pub(crate) fn free(&self) -> impl Iterator<Item = u32> {
        self.runs.iter().flat_map(|(first, len)| *first..*first + *len)
    }

    /// Free slots from this one on that have not been punched since they were freed, ascending.
    pub(crate) fn unpunched(&self, from: u32) -> impl Iterator<Item = u32> {
        self.unpunched.range(from..).copied()
    }

    /// Notes that the space of a free slot was given back to the file system.
    pub(crate) fn note_punched(&mut self, slot: u32) {
        assert!(self.is_free(&(slot..slot + 1)), "only free slots are punched");
        self.unpunched.remove(&slot);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn slots_are_taken_lowest_first_and_in_a_row() {
        let mut pool = Pool::of_taken([(5, 1), (0, 1), (2, 2)].into_iter()).expect("disjoint");
        assert_eq!((pool.end(), pool.used()), (6, 4), "1 and 4 are free");
        assert_eq!(pool.take(2), Some(6), "no two in a row");
        assert_eq!(pool.take(1), Some(1));
        assert_eq!(pool.take(1), Some(4));
        assert_eq!(pool.take(1), Some(8));
        pool.give(7, 2);
        assert_eq!(pool.take(4), Some(7), "grows from the free end");
        pool.give(5, 6);
        assert_eq!(pool.cut_end(), 5);
        assert_eq!((pool.end(), pool.used(), pool.unpunched(0).count()), (5, 5, 0));
    }

    /// Each punch is a system call.
    #[test]
    fn a_free_slot_is_punched_once() {
        let mut pool = Pool::of_taken([(4, 1)].into_iter()).expect("disjoint");
        [0, 2].into_iter().for_each(|slot| pool.note_punched(slot));
        assert_eq!(pool.unpunched(0).collect::<Vec<_>>(), [1, 3]);
        assert_eq!((pool.take(1), pool.take(1)), (Some(0), Some(1)));
        pool.give(0, 1);
        assert_eq!(pool.unpunched(0).collect::<Vec<_>>(), [0, 3]);
        assert_eq!(pool.unpunched(1).collect::<Vec<_>>(), [3]);
    }

    /// Once, a value of two slots searched all free slots, under a lock that writers need.
    #[test]
    fn a_search_for_a_long_run_looks_at_one_run_of_each_length() {
        let of_one = (0..100_000).map(|i| (3 * i + 1, 2));
        let of_three = (0..1000).map(|i| (300_000 + 4 * i + 3, 1));
        let mut pool = Pool::of_taken(of_one.chain(of_three)).expect("disjoint");
        assert_eq!(pool.runs_of(1).count(), 2);
        assert_eq!((pool.runs_of(2).count(), pool.take(2)), (1, Some(300_000)));
        assert_eq!(pool.take(1), Some(0));
        assert_eq!((pool.runs_of(4).count(), pool.take(4)), (0, Some(304_000)));
    }

    /// The pool as a list of slots: free and not punched, free and punched, or taken.
    #[derive(Default)]
    struct Slots(Vec<Option<bool>>);

    impl Slots {
        fn take(&mut self, count: usize) -> usize {
            let is_free = |slots: &[Option<bool>]| slots.iter().all(Option::is_some);
            let lowest = self.0.windows(count).position(is_free);
            let at_end = self.0.iter().rev().take_while(|slot| slot.is_some()).count();
            let first = lowest.unwrap_or(self.0.len() - at_end);
            self.0.resize(self.0.len().max(first + count), None);
            self.0[first..first + count].fill(None);
            first
        }

        fn take_at(&mut self, first: usize, count: usize) -> bool {
            let end = first + count;
            if self.0[first.min(self.0.len())..end.min(self.0.len())].iter().any(Option::is_none) {
                return false;
            }
            self.0.resize(self.0.len().max(end), Some(false));
            self.0[first..end].fill(None);
            true
        }
    }

    proptest! {
        #[test]
        fn runs_are_free_slots(
            steps in prop::collection::vec((0..6u8, 0..40u32, 1..6u32), 0..200),
        ) {
            let (mut pool, mut slots) = (Pool::default(), Slots::default());
            for (step, first, count) in steps {
                let range = first as usize..(first + count) as usize;
                let taken = slots.0.get(range.clone());
                match step {
                    0 | 1 => {
                        prop_assert_eq!(pool.take(count), Some(slots.take(count as usize) as u32));
                    }
                    2 => {
                        let expected = slots.take_at(first as usize, count as usize);
                        prop_assert_eq!(pool.take_at(first, count), expected);
                    }
                    3 | 4 if taken.is_some_and(|all| all.iter().all(Option::is_none)) => {
                        pool.give(first, count);
                        slots.0[range].fill(Some(false));
                    }
                    5 => {
                        while slots.0.pop_if(|slot| slot.is_some()).is_some() {}
                        prop_assert_eq!(pool.cut_end() as usize, slots.0.len());
                    }
                    _ => {
                        let found = pool.unpunched(first).next();
                        if let Some(slot) = found {
                            pool.note_punched(slot);
                            prop_assert_eq!(slots.0[slot as usize], Some(false));
                            slots.0[slot as usize] = Some(true);
                        }
                    }
                }
                let of = |wanted: fn(&Option<bool>) -> bool| {
                    let found = (0..).zip(&slots.0).filter(move |(_, slot)| wanted(slot));
                    found.map(|(at, _): (u32, _)| at).collect::<Vec<u32>>()
                };
                prop_assert_eq!(pool.end() as usize, slots.0.len());
                prop_assert_eq!(pool.free().collect::<Vec<_>>(), of(Option::is_some));
                let unpunched = of(|slot| *slot == Some(false));
                prop_assert_eq!(pool.unpunched(0).collect::<Vec<_>>(), unpunched);
                prop_assert_eq!(pool.used() as usize, of(Option::is_none).len());
            }
        }
    }

    #[test]
    fn overlapping_extents_are_refused() {
        assert!(Pool::of_taken([(0, 2), (1, 1)].into_iter()).is_none());
        assert!(Pool::of_taken([(u32::MAX, 2)].into_iter()).is_none());
    }
}
