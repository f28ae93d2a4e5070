//! Partitioners choose the keys before which the outputs of a compaction are cut, so that tables of
//! different runs share their bounds and later compactions divide into independent parts (Mao and
//! Hristidis, "Coordinated Partitioning of Sorted Runs"). They do not cut tables themselves, and
//! they do not choose the inputs: a policy does.
//!
//! A partitioner is a pure function from a [`Histogram`] of the inputs to cut keys. A table ends
//! before the first user key that is at or above the next cut, so a user key is never split (I2).
//! Every result passes [`check_cuts`]: cuts ascend strictly, and each has bytes of the histogram on
//! both sides, so by the histogram no cut makes an empty table.
//!
//! A new partitioner is one file here, a variant of [`Partitioner`] and a line in [`PARTITIONERS`].

pub mod global_range;
pub mod grouped_global_range;
pub mod local_range;
pub mod none;
pub mod prefix;
pub mod size;
pub mod slices;

use std::ops::Range;

use crate::prefix::Prefixer;
pub use crate::shape::plan::Partitioner;

impl Partitioner {
    /// Its rule.
    pub fn rule(self) -> &'static Rule {
        match self {
            Partitioner::None => &none::NONE,
            Partitioner::Size => &size::SIZE,
            Partitioner::LocalRange => &local_range::LOCAL_RANGE,
            Partitioner::GlobalRange => &global_range::GLOBAL_RANGE,
            Partitioner::GroupedGlobalRange => &grouped_global_range::GROUPED_GLOBAL_RANGE,
            Partitioner::Prefix => &prefix::PREFIX,
        }
    }

    /// The size of its tables where keys allow it: T_s for `prefix`, else theta. The size of a part
    /// of a compaction is counted in tables of this size.
    pub fn usual_bytes(self, table_bytes: u64) -> u64 {
        match self {
            Partitioner::Prefix => (table_bytes / prefix::CAP_FACTOR).max(1),
            _ => table_bytes,
        }
    }

    /// Whether it gives tables of different runs the same bounds.
    pub fn is_global(self) -> bool {
        matches!(self, Partitioner::GlobalRange | Partitioner::GroupedGlobalRange)
    }
}

/// Every partitioner. Its place here is its number in a manifest.
pub static PARTITIONERS: &[Partitioner] = &[
    Partitioner::None,
    Partitioner::Size,
    Partitioner::LocalRange,
    Partitioner::GlobalRange,
    Partitioner::GroupedGlobalRange,
    Partitioner::Prefix,
];

/// A cut key: a table ends before the first user key at or above it.
pub type CutKey = Box<[u8]>;

/// The rule by which a partitioner chooses cuts.
pub struct Rule {
    name: &'static str,
    cuts: fn(&Input<'_>) -> Vec<CutKey>,
}

impl Rule {
    /// The name in options; the same as the name of the [`Partitioner`].
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Where to cut, ascending strictly.
    pub fn cuts(&self, input: &Input<'_>) -> Vec<CutKey> {
        (self.cuts)(input)
    }
}

/// The input of a partitioner.
#[derive(Clone, Copy)]
pub struct Input<'a> {
    /// Where the bytes are.
    pub histogram: &'a Histogram,
    /// Smallest user key of any input, by the metadata of the inputs.
    pub min_key: &'a [u8],
    /// Largest user key of any input.
    pub max_key: &'a [u8],
    /// theta: largest table wanted, in bytes. A single user key may need more.
    pub table_bytes: u64,
    /// Finds prefixes, for the partitioner that cuts by them.
    pub prefixer: Option<&'a Prefixer>,
}

/// One entry of an index block: this many bytes end at this user key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Point {
    /// Last user key of a data block.
    pub last_key: Box<[u8]>,
    /// Its size.
    pub bytes: u64,
}

/// The data blocks of all inputs in key order, each counted as if all its bytes were at its last
/// user key. So the index blocks are enough, no pass over the keys is needed, and a sum over a key
/// range is off by at most the two blocks of each input that extend beyond its ends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    /// Ascending strictly by key.
    points: Vec<Point>,
    /// `before[i]`: bytes of the first i points.
    before: Vec<u64>,
}

impl Histogram {
    /// Makes a histogram from points in any order. Points with the same key become one. O(n log n).
    pub fn new(mut points: Vec<Point>) -> Histogram {
        points.sort_unstable();
        points.dedup_by(|next, kept| {
            let is_same = next.last_key == kept.last_key;
            if is_same {
                kept.bytes = kept.bytes.saturating_add(next.bytes);
            }
            is_same
        });
        let mut before = Vec::with_capacity(points.len() + 1);
        let mut sum: u64 = 0;
        before.push(sum);
        for point in &points {
            sum = sum.saturating_add(point.bytes);
            before.push(sum);
        }
        Histogram { points, before }
    }

    /// The points, ascending strictly by key.
    pub fn points(&self) -> &[Point] {
        &self.points
    }

    /// The sum of all bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes_of(&(0..self.points.len()))
    }

    /// Bytes of a range of points. O(1).
    pub fn bytes_of(&self, row: &Range<usize>) -> u64 {
        self.before[row.end] - self.before[row.start]
    }

    /// Index of the first point at or above a key. O(log n).
    pub fn position(&self, key: &[u8]) -> usize {
        self.points.partition_point(|point| *point.last_key < *key)
    }

    /// The cut right after a point: the smallest byte string above its key.
    pub(crate) fn cut_after(&self, at: usize) -> CutKey {
        successor(&self.points[at].last_key)
    }
}

/// The smallest byte string above `key`.
pub fn successor(key: &[u8]) -> CutKey {
    let mut next = Vec::with_capacity(key.len() + 1);
    next.extend_from_slice(key);
    next.push(0);
    next.into()
}

/// The cells into which cuts divide a histogram: ranges of points, in order. O(cuts log points).
pub fn cells(histogram: &Histogram, cuts: &[CutKey]) -> Vec<Range<usize>> {
    let bounds = cuts.iter().map(|cut| histogram.position(cut));
    let mut from = 0;
    let mut cells = Vec::with_capacity(cuts.len() + 1);
    for to in bounds.chain([histogram.points.len()]) {
        cells.push(from..to);
        from = to;
    }
    cells
}

/// The promise of every partitioner: cuts ascend strictly and each cell contains points, or there
/// is no cut at all.
pub fn check_cuts(histogram: &Histogram, cuts: &[CutKey]) -> bool {
    let ascends = cuts.windows(2).all(|pair| pair[0] < pair[1]);
    ascends && (cuts.is_empty() || cells(histogram, cuts).iter().all(|cell| !cell.is_empty()))
}

/// Shared by the partitioners that halve ranges until each range is a table. Open ranges wait in a
/// list: with recursion, a long key would overflow the call stack.
pub(crate) struct Halving<'a> {
    pub histogram: &'a Histogram,
    pub limit_bytes: u64,
    cuts: Vec<CutKey>,
}

impl<'a> Halving<'a> {
    pub fn new(histogram: &'a Histogram, limit_bytes: u64) -> Halving<'a> {
        Halving { histogram, limit_bytes, cuts: Vec::new() }
    }

    /// Whether a range of points is one table: small enough, or a single user key.
    pub fn is_table(&self, row: &Range<usize>) -> bool {
        row.len() <= 1 || self.histogram.bytes_of(row) <= self.limit_bytes
    }

    /// Adds a cut.
    pub fn cut(&mut self, cut: CutKey) {
        self.cuts.push(cut);
    }

    /// Cuts a range of points by size, where halving does not separate its keys.
    pub fn cut_by_size(&mut self, row: Range<usize>) {
        size::cut_row(self.histogram, row, self.limit_bytes, &mut self.cuts);
    }

    /// The cuts, ascending.
    pub fn finish(mut self) -> Vec<CutKey> {
        self.cuts.sort_unstable();
        assert!(check_cuts(self.histogram, &self.cuts), "each cut parts the keys it was made for");
        self.cuts
    }
}
