//! Local-Range: halves of the key range of the inputs (the paper's §IV-B). Tables span equal parts
//! of that range; bounds of different runs meet only where their ranges do. Not coordinated across
//! runs: for that there is Global-Range.
//!
//! 1. The domain is [lo, hi], at first the smallest and largest key of the inputs' metadata.
//! 2. A domain of at most theta bytes, or of one user key, is a table.
//! 3. Else mid is the common prefix of lo and hi, followed by half the sum of their next 16 bytes,
//!    rounded down. Keys at or below mid go left, [lo, mid]; the others right, [mid, hi]. The cut
//!    is the smallest byte string above mid.
//! 4. An empty half is no table, and needs no cut. A domain that cannot be halved (lo and mid agree
//!    in 16 bytes) is narrowed once to its first and last point; if that does not help either, it
//!    is cut by size.
//!
//! It ends. Halving brings lo and hi together, to points apart or to a domain that cannot be
//! halved. A narrowed domain that can be has points in both halves: its first is lo, below mid, and
//! its last is hi, above mid. About 8 steps per byte of key, each O(log points), per table.

use std::ops::Range;

use crate::partition::{CutKey, Halving, Histogram, Input, Rule, successor};

/// Bytes that are halved behind the common prefix.
const WINDOW_BYTES: usize = 16;

pub(crate) static LOCAL_RANGE: Rule = Rule { name: "local-range", cuts };

fn cuts(input: &Input<'_>) -> Vec<CutKey> {
    let histogram = input.histogram;
    let mut halving = Halving::new(histogram, input.table_bytes);
    let all = 0..histogram.points().len();
    let (lo, hi) = (input.min_key.to_vec(), input.max_key.to_vec());
    let mut open = vec![Domain { points: all, lo, hi, is_narrowed: false }];
    while let Some(domain) = open.pop() {
        if !halving.is_table(&domain.points) {
            domain.halve(&mut halving, &mut open);
        }
    }
    halving.finish()
}

struct Domain {
    points: Range<usize>,
    lo: Vec<u8>,
    hi: Vec<u8>,
    /// Whether lo and hi are those of the points already, and halving them led nowhere.
    is_narrowed: bool,
}

impl Domain {
    /// Rules 3 and 4. The points are at least two.
    fn halve(self, halving: &mut Halving<'_>, open: &mut Vec<Domain>) {
        let Domain { points, lo, hi, is_narrowed } = self;
        let Some(mid) = middle(&lo, &hi) else {
            if is_narrowed {
                return halving.cut_by_size(points);
            }
            return open.push(narrowed(halving.histogram, points));
        };
        let cut = successor(&mid);
        let row = &halving.histogram.points()[points.clone()];
        let at = points.start + row.partition_point(|point| *point.last_key < *cut);
        let left = Domain { points: points.start..at, lo, hi: mid.clone(), is_narrowed: false };
        let right = Domain { points: at..points.end, lo: mid, hi, is_narrowed: false };
        match (left.points.is_empty(), right.points.is_empty()) {
            (false, false) => {
                halving.cut(cut);
                open.extend([left, right]);
            }
            (true, _) => open.push(right),
            (_, true) => open.push(left),
        }
    }
}

fn narrowed(histogram: &Histogram, points: Range<usize>) -> Domain {
    let key = |at: usize| histogram.points()[at].last_key.to_vec();
    let (lo, hi) = (key(points.start), key(points.end - 1));
    Domain { points, lo, hi, is_narrowed: true }
}

/// Rule 3's mid, without zero bytes at its end; `None` if it is no further than lo in the window.
fn middle(lo: &[u8], hi: &[u8]) -> Option<Vec<u8>> {
    let common = lo.iter().zip(hi).take_while(|(a, b)| a == b).count();
    let (low, high) = (window(lo, common), window(hi, common));
    let half = low + high.checked_sub(low)? / 2;
    if half == low {
        return None;
    }
    let mut mid = hi[..common].to_vec();
    mid.extend_from_slice(&half.to_be_bytes());
    while mid.len() > common && mid.last() == Some(&0) {
        mid.pop();
    }
    Some(mid)
}

/// The next 16 bytes, zero-padded, as a number.
fn window(key: &[u8], from: usize) -> u128 {
    let mut bytes = [0; WINDOW_BYTES];
    let rest = key.get(from..).unwrap_or(&[]);
    let len = rest.len().min(WINDOW_BYTES);
    bytes[..len].copy_from_slice(&rest[..len]);
    u128::from_be_bytes(bytes)
}
