//! The free slots of a value file. The lowest slots are given out first, so that the end of the
//! file empties and can be cut off. Pure; derived from the segments at open.

use std::collections::BTreeMap;

/// Free slots of one file.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    /// Each with whether its space was given back to the file system since it was freed.
    free: BTreeMap<u32, bool>,
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
            pool.free.extend((pool.end..first).map(|slot| (slot, false)));
            pool.end = end;
        }
        Some(pool)
    }

    /// Takes `count` neighbouring slots: the lowest free ones, or else slots at the end. `None` if
    /// the file would exceed 2^32 slots. O(free slots) for more than one.
    pub(crate) fn take(&mut self, count: u32) -> Option<u32> {
        let mut run = 0;
        let mut found = None;
        let mut last = None;
        for slot in self.free.keys() {
            let joins = last.is_some_and(|last: u32| last + 1 == *slot);
            run = if joins { run + 1 } else { 1 };
            last = Some(*slot);
            if run == count {
                found = Some(slot + 1 - count);
                break;
            }
        }
        if let Some(first) = found {
            (first..first + count).for_each(|slot| {
                self.free.remove(&slot);
            });
            return Some(first);
        }
        // Free slots at the very end count too.
        let first = match last.filter(|last| last + 1 == self.end) {
            Some(_) => self.end - run,
            None => self.end,
        };
        let end = first.checked_add(count)?;
        (first..self.end).for_each(|slot| {
            self.free.remove(&slot);
        });
        self.end = end;
        Some(first)
    }

    /// Takes these slots. Returns `false`, and takes none, if one of them is taken. The caller has
    /// checked that the file is long enough.
    pub(crate) fn take_at(&mut self, first: u32, count: u32) -> bool {
        let Some(end) = first.checked_add(count) else { return false };
        if (first..end.min(self.end)).any(|slot| !self.free.contains_key(&slot)) {
            return false;
        }
        if end > self.end {
            self.free.extend((self.end..end).map(|slot| (slot, false)));
            self.end = end;
        }
        (first..end).for_each(|slot| {
            self.free.remove(&slot);
        });
        true
    }

    /// Frees slots.
    pub(crate) fn give(&mut self, first: u32, count: u32) {
        assert!(u64::from(first) + u64::from(count) <= u64::from(self.end), "slots of the file");
        for slot in first..first + count {
            assert!(self.free.insert(slot, false).is_none(), "slot {slot} is freed twice");
        }
    }

    /// Forgets free slots at the end, and returns the number of slots that remain.
    pub(crate) fn cut_end(&mut self) -> u32 {
        while self.end > 0 && self.free.remove(&(self.end - 1)).is_some() {
            self.end -= 1;
        }
        self.end
    }

    /// Slots of the file.
    pub(crate) fn end(&self) -> u32 {
        self.end
    }

    /// The number of slots that are taken.
    pub(crate) fn used(&self) -> u64 {
        u64::from(self.end) - self.free.len() as u64
    }

    /// Free slots, ascending.
    pub(crate) fn free(&self) -> impl Iterator<Item = u32> {
        self.free.keys().copied()
    }

    /// Free slots from this one on that were not punched since they were freed, ascending.
    pub(crate) fn unpunched(&self, from: u32) -> impl Iterator<Item = u32> {
        self.free.range(from..).filter(|(_, is_punched)| !**is_punched).map(|(slot, _)| *slot)
    }

    /// Notes that the space of a free slot was given back to the file system.
    pub(crate) fn note_punched(&mut self, slot: u32) {
        *self.free.get_mut(&slot).expect("only free slots are punched") = true;
    }
}

#[cfg(test)]
mod tests {
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

    /// Each is a system call.
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

    #[test]
    fn overlapping_extents_are_refused() {
        assert!(Pool::of_taken([(0, 2), (1, 1)].into_iter()).is_none());
        assert!(Pool::of_taken([(u32::MAX, 2)].into_iter()).is_none());
    }
}
