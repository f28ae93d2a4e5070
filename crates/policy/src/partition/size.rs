//! Partitioning by size: a table ends where the next block would make it larger than theta. This
//! makes the fewest tables, but their bounds are arbitrary. So tables of two runs overlap in
//! chains, and a compaction of the runs has a single part (the paper's chaining problem).

use std::ops::Range;

use crate::partition::{CutKey, Histogram, Input, Rule};

pub(crate) static SIZE: Rule = Rule { name: "size", cuts };

fn cuts(input: &Input<'_>) -> Vec<CutKey> {
    let mut cuts = Vec::new();
    let all = 0..input.histogram.points().len();
    cut_row(input.histogram, all, input.table_bytes, &mut cuts);
    cuts
}

/// Cuts a row of points into tables of at most `limit_bytes`, as full as possible. A point that is
/// larger than this is a table of its own. O(points of the row).
pub(crate) fn cut_row(
    histogram: &Histogram,
    row: Range<usize>,
    limit_bytes: u64,
    cuts: &mut Vec<CutKey>,
) {
    let mut from = row.start;
    for at in row.start + 1..row.end {
        if histogram.bytes_of(&(from..at + 1)) > limit_bytes {
            cuts.push(histogram.cut_after(at - 1));
            from = at;
        }
    }
}

/// Cuts a row into as few tables of `limit_bytes` as suffice, but of even size: the j-th of n ends
/// at the first point that reaches j/n of the bytes, or before a point that is a table of its own.
/// So no table of several points is larger than one share plus the point that reaches the share's
/// end. O(points of the row).
pub(crate) fn cut_row_evenly(
    histogram: &Histogram,
    row: Range<usize>,
    limit_bytes: u64,
    cuts: &mut Vec<CutKey>,
) {
    let total = u128::from(histogram.bytes_of(&row));
    let count = total.div_ceil(u128::from(limit_bytes.max(1)));
    let mut done = 1;
    for at in row.start..row.end.saturating_sub(1) {
        let bytes = u128::from(histogram.bytes_of(&(row.start..at + 1)));
        let is_reached = done < count && bytes * count >= total * done;
        if is_reached || histogram.bytes_of(&(at + 1..at + 2)) > limit_bytes {
            cuts.push(histogram.cut_after(at));
            // A point may be larger than a share. The shares that it covers are then done.
            done = bytes * count / total.max(1) + 1;
        }
    }
}
