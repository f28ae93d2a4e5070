//! A list of sequence numbers that only grows. Its copies share what they have in common: each edit
//! of a tree makes a version of the tree under the manifest's lock, and the list may be as long as
//! a user had range deletes.

use std::sync::Arc;

use crate::keys::SeqNo;
use crate::sync::looked;

/// The most numbers of a piece. The last piece is copied when numbers are added.
const PIECE: usize = 1024;

/// The list, in pieces.
#[derive(Clone, Debug, Default)]
pub(super) struct SeqNoList {
    /// None but the last has room.
    pieces: Vec<Arc<Vec<SeqNo>>>,
}

impl SeqNoList {
    pub(super) fn len(&self) -> usize {
        let full = self.pieces.len().saturating_sub(1) * PIECE;
        full + self.pieces.last().map_or(0, |last| last.len())
    }

    /// Adds numbers. O(numbers added + pieces).
    pub(super) fn add(&mut self, mut more: &[SeqNo]) {
        looked((more.len() + self.pieces.len()) as u64);
        while !more.is_empty() {
            let mut piece = match self.pieces.pop() {
                Some(last) if last.len() < PIECE => {
                    looked(last.len() as u64);
                    Vec::clone(&last)
                }
                last => {
                    self.pieces.extend(last);
                    Vec::new()
                }
            };
            let (now, later) = more.split_at(more.len().min(PIECE - piece.len()));
            piece.extend_from_slice(now);
            self.pieces.push(Arc::new(piece));
            more = later;
        }
    }

    /// All of them, ascending.
    pub(super) fn sorted(&self) -> Vec<SeqNo> {
        let mut all: Vec<SeqNo> =
            self.pieces.iter().flat_map(|piece| piece.iter().copied()).collect();
        all.sort_unstable();
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_keep_what_they_had() {
        let (mut numbers, mut copies) = (SeqNoList::default(), Vec::new());
        let mut end = 0;
        for count in [0, 1, 5, 1_017, 1, 1, 3_000, 72, 1_024, 7] {
            let more: Vec<SeqNo> = (end..end + count).rev().collect();
            numbers.add(&more);
            end += count;
            copies.push((end, numbers.clone()));
        }
        for (end, copy) in copies {
            assert_eq!(copy.len() as u64, end);
            assert_eq!(copy.sorted(), (0..end).collect::<Vec<_>>());
        }
    }
}
