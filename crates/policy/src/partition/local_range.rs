//! Local-Range: halves the key range of the inputs (the paper's §IV-B). Tables span equal parts of
//! that range. Bounds of different runs coincide only where their ranges do. Unlike Global-Range,
//! it is not coordinated across runs.
//!
//! 1. The domain is [lo, hi], at first the smallest and largest key of the inputs' metadata.
//! 2. A domain of at most theta bytes, or of one user key, is a table.
//! 3. Otherwise mid is the common prefix of lo and hi, followed by half the sum of their next 16
//!    bytes, rounded down. Keys at or below mid go left, [lo, mid]; the others right, [mid, hi].
//!    The cut is the smallest byte string above mid.
//! 4. An empty half is not a table, and needs no cut. A domain that cannot be halved (lo and mid
//!    agree in 16 bytes) is narrowed once to its first and last point. If it still cannot be
//!    halved, it is cut by size.
//!
//! The halving ends. Each step brings lo and hi closer, until points are separated or a domain
//! cannot be halved. A narrowed domain that can be halved has points in both halves: its first is
//! lo, below mid, and its last is hi, above mid. A table takes about 8 steps per byte of key, and
//! each step takes O(log points).
//!
//! A step costs the same for keys of any length: all keys of a domain begin with what lo and hi
//! have in common, so only the bytes after this common part are kept and compared. Comparing whole
//! keys would be quadratic: 100 seconds for 24 keys of 64 KiB.

use std::borrow::Cow;
use std::ops::Range;

use crate::partition::{CutKey, Halving, Histogram, Input, Rule, successor};

/// Bytes that are halved after the common prefix.
const WINDOW_BYTES: usize = 16;

pub(crate) static LOCAL_RANGE: Rule = Rule { name: "local-range", cuts };

fn cuts(input: &Input<'_>) -> Vec<CutKey> {
    let histogram = input.histogram;
    let mut halving = Halving::new(histogram, input.table_bytes);
    let points = 0..histogram.points().len();
    let (lo, hi) = (input.min_key.into(), input.max_key.into());
    let mut open = vec![Domain { points, common: 0, lo, hi, is_narrowed: false }];
    while let Some(domain) = open.pop() {
        if !halving.is_table(&domain.points) {
            domain.halve(&mut halving, &mut open);
        }
    }
    halving.finish()
}

struct Domain<'a> {
    points: Range<usize>,
    /// How many leading bytes lo and hi (and so all points between them) are known to share.
    common: usize,
    /// The bytes after these in lo and in hi.
    lo: Cow<'a, [u8]>,
    hi: Cow<'a, [u8]>,
    /// Whether lo and hi are already the first and last point, because the domain could not be
    /// halved before.
    is_narrowed: bool,
}

impl<'a> Domain<'a> {
    /// Applies rules 3 and 4. There are at least two points.
    fn halve(mut self, halving: &mut Halving<'a>, open: &mut Vec<Domain<'a>>) {
        self.extend_common();
        let Some(mid) = middle(&self.lo, &self.hi) else {
            if self.is_narrowed {
                return halving.cut_by_size(self.points);
            }
            return open.push(self.narrowed(halving.histogram));
        };
        let Domain { points, common, lo, hi, .. } = self;
        let row = &halving.histogram.points()[points.clone()];
        let is_left = |key: &[u8]| tail(key, common) <= &mid[..];
        let at = points.start + row.partition_point(|point| is_left(&point.last_key));
        let (before, after) = (points.start..at, at..points.end);
        if !before.is_empty() && !after.is_empty() {
            let prefix = &row[0].last_key[..common];
            halving.cut(successor(&[prefix, &mid].concat()));
        }
        let half = |points, lo, hi| Domain { points, common, lo, hi, is_narrowed: false };
        let halves = [half(before, lo, mid.clone().into()), half(after, mid.into(), hi)];
        open.extend(halves.into_iter().filter(|half| !half.points.is_empty()));
    }

    /// Moves the bytes with which both lo and hi begin into the common prefix.
    fn extend_common(&mut self) {
        let alike = self.lo.iter().zip(&*self.hi).take_while(|(lo, hi)| lo == hi).count();
        self.common += alike;
        for end in [&mut self.lo, &mut self.hi] {
            match end {
                Cow::Borrowed(bytes) => *bytes = &bytes[alike..],
                Cow::Owned(bytes) => drop(bytes.drain(..alike)),
            }
        }
    }

    fn narrowed(self, histogram: &'a Histogram) -> Domain<'a> {
        let key = |at: usize| tail(&histogram.points()[at].last_key, self.common).into();
        let (lo, hi) = (key(self.points.start), key(self.points.end - 1));
        Domain { lo, hi, is_narrowed: true, ..self }
    }
}

/// The bytes after the first `common` ones.
fn tail(key: &[u8], common: usize) -> &[u8] {
    key.get(common..).unwrap_or(&[])
}

/// The part of rule 3's mid after the common prefix, without zero bytes at its end. `None` if it is
/// not above lo within the window.
fn middle(lo: &[u8], hi: &[u8]) -> Option<Vec<u8>> {
    let (low, high) = (window(lo), window(hi));
    let half = low + high.checked_sub(low)? / 2;
    if half == low {
        return None;
    }
    let mut mid = half.to_be_bytes().to_vec();
    while mid.last() == Some(&0) {
        mid.pop();
    }
    Some(mid)
}

/// The first 16 bytes, zero-padded, as a number.
fn window(tail: &[u8]) -> u128 {
    let mut bytes = [0; WINDOW_BYTES];
    let len = tail.len().min(WINDOW_BYTES);
    bytes[..len].copy_from_slice(&tail[..len]);
    u128::from_be_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::partition::Point;

    /// A literal implementation of the rules, over whole keys.
    fn by_whole_keys(input: &Input<'_>) -> Vec<CutKey> {
        let points = input.histogram.points();
        let mut halving = Halving::new(input.histogram, input.table_bytes);
        let all = (0..points.len(), input.min_key.to_vec(), input.max_key.to_vec(), false);
        let mut open = vec![all];
        while let Some((row, lo, hi, is_narrowed)) = open.pop() {
            if halving.is_table(&row) {
                continue;
            }
            let common = lo.iter().zip(&hi).take_while(|(a, b)| a == b).count();
            let Some(mid) = middle(&lo[common..], &hi[common..]) else {
                if is_narrowed {
                    halving.cut_by_size(row);
                } else {
                    let key = |at: usize| points[at].last_key.to_vec();
                    open.push((row.clone(), key(row.start), key(row.end - 1), true));
                }
                continue;
            };
            let mid = [&hi[..common], &mid].concat();
            let at = points.partition_point(|point| *point.last_key <= *mid);
            let at = at.clamp(row.start, row.end);
            if row.start < at && at < row.end {
                halving.cut(successor(&mid));
            }
            let halves = [(row.start..at, lo, mid.clone(), false), (at..row.end, mid, hi, false)];
            open.extend(halves.into_iter().filter(|(row, ..)| !row.is_empty()));
        }
        halving.finish()
    }

    #[test]
    fn cuts_are_those_of_whole_keys() {
        let mut state = 1u64;
        let mut random = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % below
        };
        for round in 0..3000 {
            let letters = [2, 3, 256][round % 3];
            let count = 1 + random(40);
            let mut key = || (0..random(40)).map(|_| random(letters) as u8).collect::<Vec<u8>>();
            let keys: Vec<Vec<u8>> = (0..count).map(|_| key()).collect();
            let point = |key: &Vec<u8>| Point { last_key: key.as_slice().into(), bytes: 10 };
            let histogram = Histogram::new(keys.iter().map(point).collect());
            let (Some(min_key), Some(max_key)) = (keys.iter().min(), keys.iter().max()) else {
                continue;
            };
            let min_key = if round % 2 == 0 { &[][..] } else { min_key };
            let input = Input {
                histogram: &histogram,
                min_key,
                max_key,
                table_bytes: 10 + 10 * (round as u64 % 5),
                prefixer: None,
            };
            assert_eq!(cuts(&input), by_whole_keys(&input), "{keys:?}");
        }
    }

    /// This partitioning once took a hundred seconds, and a closing store waited for it.
    #[test]
    fn the_longest_keys_are_cut_in_linear_time() {
        let key = |i: u8| [&[b'k'; 65_530][..], &[i; 5]].concat();
        let point = |i: u8| Point { last_key: key(i).into(), bytes: 65_535 };
        let histogram = Histogram::new((0..24).map(point).collect());
        let max_key = [0xff; 65_535];
        let input = Input {
            histogram: &histogram,
            min_key: &[],
            max_key: &max_key,
            table_bytes: 100_000,
            prefixer: None,
        };
        assert!(cuts(&input).len() >= 12);
    }
}
