//! Which separated values enter the cache: those that are read for the second time before others
//! have taken their place here. To put a value in and take another out costs more than to look a
//! record up in memory, and a value that is read once gains nothing. Blocks hold many entries, so
//! they enter at once.
//!
//! Direct-mapped marks, one word for each place. Large values use few of the places, since few of
//! them fit the cache. Two readers that meet in one lose a mark at worst.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Marks of what was read lately.
#[derive(Debug)]
pub(super) struct Doorkeeper {
    marks: Box<[AtomicU32]>,
}

impl Doorkeeper {
    /// Remembers up to about so many reads; four bytes each.
    pub(super) fn new(reads: usize) -> Doorkeeper {
        Doorkeeper { marks: (0..reads.next_power_of_two()).map(|_| AtomicU32::new(0)).collect() }
    }

    /// Whether what hashes so was among about the last so many reads of its kind; notes it.
    pub(super) fn knows(&self, hash: u64, reads: usize) -> bool {
        let places = reads.clamp(1, self.marks.len());
        let place = ((u128::from(hash << 32) * places as u128) >> 64) as usize;
        let place = &self.marks[place];
        let mark = (hash >> 32) as u32 | 1;
        if place.load(Relaxed) == mark {
            return true;
        }
        place.store(mark, Relaxed);
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_noted_is_known_until_another_takes_its_place() {
        let keeper = Doorkeeper::new(100);
        assert_eq!(keeper.marks.len(), 128);
        let knows = |low: u64, high: u64| keeper.knows((low << 25) | (high << 32), 100_000);
        assert!(!knows(5, 1) && knows(5, 1));
        assert!(!knows(6, 1), "another place");
        assert!(!knows(5, 3), "another mark");
        assert!(!knows(5, 1), "which took its place");
    }

    #[test]
    fn large_values_use_few_places() {
        let keeper = Doorkeeper::new(1024);
        let known = |reads: usize| {
            let hash = |i: u64| (i % 64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            (0..640).filter(|i| keeper.knows(hash(*i), reads)).count()
        };
        assert!(known(1024) > 400, "64 values, read again and again");
        assert!(known(8) < 100, "each read takes the place of another");
        assert_eq!(known(0), 0, "one place, and no neighbours are the same");
    }
}
