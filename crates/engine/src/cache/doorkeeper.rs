//! Which separated values enter the cache: those that are read for the second time before others
//! have taken their place here. To put a value in and take another out costs more than to look a
//! record up in memory, and a value that is read once gains nothing. Blocks hold many entries, so
//! they enter at once.
//!
//! Direct-mapped marks, one word for each place. Two readers that meet in one lose a mark at worst.

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

    /// Whether what hashes so was noted before; notes it.
    pub(super) fn knows(&self, hash: u64) -> bool {
        let place = &self.marks[hash as usize & (self.marks.len() - 1)];
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
        assert!(!keeper.knows(5) && keeper.knows(5));
        assert!(!keeper.knows(6), "another place");
        assert!(!keeper.knows(5 + (8 << 32)), "another mark");
        assert!(!keeper.knows(5), "which took its place");
    }
}
