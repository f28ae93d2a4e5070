//! Decides which separated values enter the cache: those that are read a second time before other
//! reads have overwritten their mark. Inserting a value and evicting another costs more than
//! looking up a record in memory, and a value that is read only once gains nothing. Blocks hold
//! many entries, so they enter at once.
//!
//! The marks are direct-mapped, one word for each place. Large values use only some of the places,
//! because few large values fit in the cache. If two readers use the same place, at worst one mark
//! is lost.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Marks of recent reads.
#[derive(Debug)]
pub(super) struct Doorkeeper {
    marks: Box<[AtomicU32]>,
}

impl Doorkeeper {
    /// Remembers up to about `reads` reads, in four bytes each.
    pub(super) fn new(reads: usize) -> Doorkeeper {
        Doorkeeper { marks: (0..reads.next_power_of_two()).map(|_| AtomicU32::new(0)).collect() }
    }

    /// Whether, approximately, an object with this hash was among the last `reads` reads of objects
    /// of its size. If not, leaves the object's mark.
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
