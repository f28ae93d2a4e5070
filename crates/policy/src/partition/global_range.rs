//! Global-Range on byte strings: it halves the space of all keys, so that the tables of every run
//! take their bounds from one fixed set (the paper's §IV-B). It works for any distribution of keys,
//! but cells fill as unevenly as the keys are distributed.
//!
//! A key is read as an endless string of bits: its bytes, then zeros. A *cell* is a bit prefix: all
//! keys that begin with it.
//!
//! 1. Start with the cell of all points.
//! 2. A cell of at most theta bytes, or of one user key, is a table.
//! 3. Otherwise skip the common prefix of all points of the cell, and split at the next bit. The
//!    cut is the common prefix followed by a 1, zero-padded to whole bytes: in byte order, exactly
//!    the keys whose bits continue with 1 are at or above the cut. The reason: a key whose bits
//!    continue with 1 has the byte that contains this bit. A key whose bits continue with 0 is
//!    smaller at this byte or ends before it.
//! 4. Points that differ in nothing but zero bytes at their ends are one string of bits; they are
//!    cut by size.
//!
//! Theorem. For two cells, from any two histograms, one contains the other or they share no key:
//! this is true of any two bit prefixes. Hence, if a table of one run overlaps tables of another
//! run, either all of those are inside its cell, or there is only one, whose cell contains it. So a
//! component of overlap is one maximal cell, and there are no chains across cells. (The cells of
//! rule 4 do not count.)
//!
//! A block extends from one last key to the next, and its inner keys may be in a cell without any
//! last key. Such keys stay with the table of the cell before or after, which then extends beyond
//! its cell by less than a block of each input. This may join two components, but it never breaks a
//! compaction.
//!
//! O(cells * (key length + log points)).

use std::ops::Range;

use crate::partition::{CutKey, Halving, Histogram, Input, Rule};

pub(crate) static GLOBAL_RANGE: Rule = Rule { name: "global-range", cuts };

fn cuts(input: &Input<'_>) -> Vec<CutKey> {
    halve(input.histogram, input.table_bytes)
}

/// Applies the rules, with any size limit.
pub(crate) fn halve(histogram: &Histogram, limit_bytes: u64) -> Vec<CutKey> {
    let mut halving = Halving::new(histogram, limit_bytes);
    let whole = 0..histogram.points().len();
    let mut open = Vec::from([whole]);
    while let Some(cell) = open.pop() {
        if halving.is_table(&cell) {
            continue;
        }
        match split(histogram, &cell) {
            Some((cut, at)) => {
                halving.cut(cut);
                open.extend([cell.start..at, at..cell.end]);
            }
            None => halving.cut_by_size(cell),
        }
    }
    halving.finish()
}

/// Rule 3: the cut of a cell, and its first point on the upper side. Both sides have points: the
/// first and the last differ at that bit. `None` if rule 4 applies.
pub(crate) fn split(histogram: &Histogram, cell: &Range<usize>) -> Option<(CutKey, usize)> {
    let points = &histogram.points()[cell.clone()];
    let cut = first_difference(&points.first()?.last_key, &points.last()?.last_key)?;
    let at = cell.start + points.partition_point(|point| *point.last_key < *cut);
    Some((cut, at))
}

/// The common bit prefix of two keys (low < high), followed by a 1. `None` if they differ only in
/// zero bytes at the end.
fn first_difference(low: &[u8], high: &[u8]) -> Option<CutKey> {
    let byte = |key: &[u8], at: usize| key.get(at).copied().unwrap_or(0);
    let at = (0..low.len().max(high.len())).find(|at| byte(low, *at) != byte(high, *at))?;
    // `high` is larger, so it has a byte there, with a 1 at the first bit that differs.
    let differ = byte(low, at) ^ byte(high, at);
    let bit = 0x80u8 >> differ.leading_zeros();
    let common = byte(high, at) & !(bit | (bit - 1));
    let mut cut = high[..at].to_vec();
    cut.push(common | bit);
    Some(cut.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuts_are_bit_prefixes() {
        let cut = |low: &[u8], high: &[u8]| first_difference(low, high).map(Vec::from);
        assert_eq!(cut(&[1], &[14]), Some(vec![8]));
        assert_eq!(cut(b"", &[0, 0, 1]), Some(vec![0, 0, 1]));
        assert_eq!(cut(b"ab", b"ac"), Some(b"ac".to_vec()));
        assert_eq!(cut(&[0b0110_1000, 9], &[0b0110_0111 | 8, 9]), Some(vec![0b0110_1100]));
        assert_eq!(cut(b"a", b"a\0\0"), None);
        assert_eq!(cut(b"a\0", b"a\0\x80"), Some(b"a\0\x80".to_vec()));
    }
}
