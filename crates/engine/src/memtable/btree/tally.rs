//! Estimates how much is in a range, and which entry is at a place. Both read only a few nodes of
//! the tree. The obligations of its unsafe code are those of the tree (`super`).
#![allow(unsafe_code)]

use super::super::latch::Restart;
use super::super::sync::atomic::Ordering::*;
use super::super::sync::pause;
use super::{Node, Record, Target, Tree};

/// Entries and bytes of keys and values, as [`Tree::tally`] estimates them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Entries.
    pub entries: u64,
    /// Bytes of keys and values.
    pub bytes: u64,
}

/// How many children or records of a node are read, to estimate the others from them.
const SAMPLES: usize = 8;

impl Tally {
    fn with(self, other: Tally) -> Tally {
        Tally { entries: self.entries + other.entries, bytes: self.bytes + other.bytes }
    }

    /// The estimate for `count` items, given the sum for `sampled` of them.
    fn scaled(self, count: usize, sampled: usize) -> Tally {
        let scaled = |number: u64| number * count as u64 / sampled.max(1) as u64;
        Tally { entries: scaled(self.entries), bytes: scaled(self.bytes) }
    }
}

/// Up to [`SAMPLES`] places of a range, evenly spaced.
fn samples(places: std::ops::Range<usize>) -> impl ExactSizeIterator<Item = usize> {
    let (first, len) = (places.start, places.len());
    let count = len.min(SAMPLES);
    (0..count).map(move |i| first + (2 * i + 1) * len / (2 * count))
}

impl Node {
    /// The place of the target among the records of a leaf or the children of an inner node.
    fn place(&self, target: Target<'_>) -> usize {
        loop {
            let place = match self.is_leaf() {
                true => self.lower_bound(target),
                false => self.child_index(target),
            };
            match place {
                Ok(place) => return place,
                Err(Restart) => pause(false),
            }
        }
    }

    /// A child that the node has or had.
    fn child(&self, at: usize) -> &Node {
        loop {
            let version = self.latch.read();
            let child = self.children()[at.min(self.count())].load(Acquire);
            if self.latch.check(version).is_ok() {
                // SAFETY: obligation 3; after the check, the pointer is that of a live child.
                return unsafe { &*child };
            }
            pause(false);
        }
    }

    fn tally_between(&self, from: Option<Target<'_>>, to: Option<Target<'_>>) -> Tally {
        let first = from.map_or(0, |from| self.place(from));
        let last = to.map_or(self.count(), |to| self.place(to));
        if self.is_leaf() {
            return self.tally_records(first..last.max(first));
        }
        if first >= last {
            return self.child(first).tally_between(from, to);
        }
        let inner = (first + 1..last).map(|at| self.child(at).tally_all());
        let ends = self
            .child(first)
            .tally_between(from, None)
            .with(self.child(last).tally_between(None, to));
        inner.fold(ends, Tally::with)
    }

    /// The tally of everything below a node: the sum of its children, or an estimate from some of
    /// them.
    fn tally_all(&self) -> Tally {
        if self.is_leaf() {
            return self.tally_records(0..self.count());
        }
        let children = self.count() + 1;
        let sampled = samples(0..children);
        let count = sampled.len();
        let sum = sampled.map(|at| self.child(at).tally_all()).fold(Tally::default(), Tally::with);
        sum.scaled(children, count)
    }

    fn tally_records(&self, places: std::ops::Range<usize>) -> Tally {
        let len = places.len();
        let sampled = samples(places);
        let count = sampled.len();
        let bytes = sampled.map(|at| {
            // SAFETY: obligation 2.
            let record = unsafe { self.keys[at].load(Acquire).as_ref() };
            record.map_or(0, |record| u64::from(record.key_len) + u64::from(record.value_len))
        });
        let sum = Tally { entries: count as u64, bytes: bytes.sum() };
        sum.scaled(len, count)
    }
}

impl Tree {
    /// Estimates how much is in the range from one key to another, which is exclusive; `None` is
    /// the end. The estimate counts the nodes on the paths to both keys and their neighbours in
    /// between. For the subtrees of these neighbours, it reads some children and estimates the
    /// others. A larger tree costs only a few hundred nodes more per level. Writers may continue
    /// meanwhile.
    pub fn tally(&self, from: &[u8], to: Option<&[u8]>) -> Tally {
        // SAFETY: the root is null or never freed (obligation 1).
        let Some(root) = (unsafe { self.root.load(Acquire).as_ref() }) else {
            return Tally::default();
        };
        // The largest trailer sorts before all versions of a key.
        let target = |key| Target { key, trailer: u64::MAX };
        root.tally_between(Some(target(from)), to.map(target))
    }

    /// The entry at about the fraction `place / whole` of all entries. O(log n). The more evenly
    /// the nodes are filled, the more exact the result is.
    pub fn record_at(&self, place: u128, whole: u128) -> Option<&Record> {
        // SAFETY: the root is null or never freed (obligation 1).
        let mut node = unsafe { self.root.load(Acquire).as_ref() }?;
        let mut place = place.min(whole.saturating_sub(1));
        loop {
            let slots = node.count() as u128 + u128::from(!node.is_leaf());
            let (at, rest) = (place * slots / whole, place * slots % whole);
            if node.is_leaf() {
                // SAFETY: obligation 2.
                return unsafe { node.keys.get(at as usize)?.load(Acquire).as_ref() };
            }
            (node, place) = (node.child(at as usize), rest);
        }
    }
}
