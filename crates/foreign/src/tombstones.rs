//! Range deletes. Decides which keys they hide, for keys in ascending order.
//!
//! 1. Tombstones are sorted by their start.
//! 2. For each key, the tombstones that begin at or before it are added to a heap, the newest on
//!    top.
//! 3. The top is removed while it ends before the key; keys ascend, so it covers no later key.
//! 4. What is left on top is the newest tombstone over the key.

use std::collections::BinaryHeap;

/// Hides all older versions of the keys from `start` on, before `end`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tombstone {
    pub start: Vec<u8>,
    pub end: Vec<u8>,
    pub seq: u64,
}

/// See the module docs.
#[derive(Debug, Default)]
pub struct Tombstones {
    /// The tombstones that are not yet reached, the last one first.
    waiting: Vec<Tombstone>,
    active: BinaryHeap<(u64, Vec<u8>)>,
}

impl Tombstones {
    pub fn new(mut all: Vec<Tombstone>) -> Tombstones {
        all.retain(|tombstone| tombstone.start < tombstone.end);
        all.sort_by(|one, two| two.start.cmp(&one.start));
        Tombstones { waiting: all, active: BinaryHeap::new() }
    }

    /// Whether a tombstone hides a version of a key. Keys must not descend from call to call.
    pub fn cover(&mut self, key: &[u8], seq: u64) -> bool {
        while let Some(next) = self.waiting.pop_if(|next| next.start.as_slice() <= key) {
            self.active.push((next.seq, next.end));
        }
        while self.active.peek().is_some_and(|(_, end)| end.as_slice() <= key) {
            self.active.pop();
        }
        self.active.peek().is_some_and(|(newest, _)| *newest > seq)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_over_a_key_counts() {
        let of =
            |start: &str, end: &str, seq| Tombstone { start: start.into(), end: end.into(), seq };
        let all = vec![of("b", "d", 9), of("a", "z", 5), of("c", "c", 99), of("x", "b", 99)];
        let mut tombstones = Tombstones::new(all);
        let asked = [("a", 4), ("a", 5), ("b", 8), ("c", 8), ("c", 9), ("d", 8), ("d", 4)];
        let covered = asked.map(|(key, seq)| tombstones.cover(key.as_bytes(), seq));
        assert_eq!(covered, [true, false, true, true, false, false, true]);
        assert!(!tombstones.cover(b"z", 0));
    }
}
