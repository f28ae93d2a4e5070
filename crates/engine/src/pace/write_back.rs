//! Decides which ranges of a file are written back while a job still writes it. A sync of a whole
//! table of 64 MiB delayed a concurrent synced write by 25 to 35 ms. The owner of the file calls
//! the storage.
//!
//! 1. Writes are gathered as long as each continues the previous one.
//! 2. Write-back of the gathered piece begins once it has [`PIECE_BYTES`], or when a write does not
//!    continue it.
//! 3. Before a piece begins, the piece [`UNDER_WAY`] pieces before it must be done. So the bytes
//!    being written back, and the bytes left for the sync, are bounded by the size of writes and
//!    not by the size of the file.

use std::collections::VecDeque;
use std::ops::Range;

/// The size of a piece. A call costs little for this many bytes, and a disk writes them in a
/// millisecond or two. Builds that seek bugs have small files, so their pieces are smaller.
pub(crate) const PIECE_BYTES: u64 = if cfg!(feature = "seeded-bugs") { 8 << 10 } else { 1 << 20 };
/// Pieces that may be under way when another one begins.
const UNDER_WAY: usize = 2;

/// The pieces of one file, or of one of its writers.
#[derive(Debug, Default)]
pub(crate) struct WriteBack {
    gathered: Range<u64>,
    begun: VecDeque<Range<u64>>,
}

/// What to request from the storage.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) begin: Range<u64>,
    pub(crate) wait_for: Range<u64>,
}

impl WriteBack {
    /// Notes a write.
    pub(crate) fn wrote(&mut self, offset: u64, len: usize) -> Option<Step> {
        let written = offset..offset + len as u64;
        if written.start == self.gathered.end {
            self.gathered.end = written.end;
            let is_piece = self.gathered.end - self.gathered.start >= PIECE_BYTES;
            return is_piece.then(|| self.begin(written.end..written.end));
        }
        let before = !self.gathered.is_empty();
        let step = before.then(|| self.begin(written.clone()));
        self.gathered = written;
        step
    }

    /// Begins to write back what is gathered, and gathers `next` from then on.
    fn begin(&mut self, next: Range<u64>) -> Step {
        let begin = std::mem::replace(&mut self.gathered, next);
        self.begun.push_back(begin.clone());
        let is_over = self.begun.len() > UNDER_WAY;
        let wait_for = if is_over { self.begun.pop_front() } else { None };
        Step { begin, wait_for: wait_for.unwrap_or_default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HALF: usize = PIECE_BYTES as usize / 2;

    #[test]
    fn a_growing_file_goes_in_pieces_of_which_two_are_under_way() {
        let mut write_back = WriteBack::default();
        let offsets = (0..12).map(|at| at * HALF as u64);
        let steps: Vec<Step> =
            offsets.filter_map(|offset| write_back.wrote(offset, HALF)).collect();
        assert_eq!(steps.len(), 6);
        for (at, step) in (0..).zip(&steps) {
            assert_eq!(step.begin, at * PIECE_BYTES..(at + 1) * PIECE_BYTES);
            let before = at.checked_sub(2).map(|at| at * PIECE_BYTES..(at + 1) * PIECE_BYTES);
            assert_eq!(step.wait_for, before.unwrap_or_default());
        }
    }

    #[test]
    fn a_write_elsewhere_ends_the_piece_and_may_be_one_itself() {
        let mut write_back = WriteBack::default();
        assert_eq!(write_back.wrote(1 << 40, HALF), None, "nothing was gathered");
        let step = write_back.wrote(7, 2 * HALF).expect("the first write");
        assert_eq!(step.begin, 1 << 40..(1 << 40) + HALF as u64);
        let step = write_back.wrote(7 + PIECE_BYTES, 1).expect("the second write, and its end");
        assert_eq!((step.begin, step.wait_for), (7..8 + PIECE_BYTES, 0..0));
    }
}
