//! A position in the tree: how iterators walk over the leaves. The obligations of its unsafe code
//! are those of the tree (`super`).
#![allow(unsafe_code)]

use std::cmp::Ordering::{self, Equal, Less};

use super::super::latch::Restart;
use super::super::sync::atomic::Ordering::*;
use super::super::sync::pause;
use super::{CAP, Node, PREFETCH_LINES, PREFETCH_RECORDS, Record, Target, Tree};
use crate::keys::compare;
use crate::memory::prefetch::{LINE_BYTES, prefetch_at};

/// A position in the tree, with a copy of the record pointers of one leaf.
///
/// Entries that are inserted after the copy may be missed. This does no harm: a reader filters by
/// sequence number, and all entries that its snapshot can see were inserted before the copy. The
/// owner keeps the tree alive.
#[derive(Debug)]
pub struct Position {
    records: Vec<*const Record>,
    at: usize,
    low: *const Record,
    high: *const Record,
}

// SAFETY: the pointers are to immutable records; the owner keeps the tree (and arena) alive.
unsafe impl Send for Position {}
// SAFETY: as above.
unsafe impl Sync for Position {}

impl Default for Position {
    fn default() -> Self {
        Position {
            records: Vec::with_capacity(CAP),
            at: 0,
            low: std::ptr::null(),
            high: std::ptr::null(),
        }
    }
}

impl Position {
    /// The record at the position, if there is one. `_tree` must be the tree in which the position
    /// was set.
    #[inline]
    pub fn record<'a>(&self, _tree: &'a Tree) -> Option<&'a Record> {
        // SAFETY: obligations 1 and 2; the tree outlives the reference.
        self.records.get(self.at).map(|record| unsafe { &**record })
    }

    /// Moves to the first record at or after the internal key.
    pub fn seek(&mut self, tree: &Tree, key: &[u8], trailer: u64) {
        let target = Target { key, trailer };
        self.copy_leaf(tree, |node| node.child_index(target));
        self.at = self.find(target);
        if self.at == self.records.len() {
            self.next_leaf(tree);
        }
    }

    /// Moves to the first record.
    pub fn seek_to_first(&mut self, tree: &Tree) {
        self.copy_leaf(tree, |_| Ok(0));
        self.at = 0;
    }

    /// Moves to the last record.
    pub fn seek_to_last(&mut self, tree: &Tree) {
        self.copy_leaf(tree, |node| Ok(node.count()));
        self.at = self.records.len().wrapping_sub(1);
    }

    /// Moves to the next record.
    #[inline]
    pub fn next(&mut self, tree: &Tree) {
        self.at += 1;
        if self.at == self.records.len() {
            self.next_leaf(tree);
        }
        self.prefetch(self.at.wrapping_add(PREFETCH_RECORDS));
    }

    /// Moves to the previous record.
    pub fn prev(&mut self, tree: &Tree) {
        if self.at > 0 {
            self.at -= 1;
            self.prefetch(self.at.wrapping_sub(PREFETCH_RECORDS));
            return;
        }
        // SAFETY: fences are null or records of this tree.
        let Some(low) = (unsafe { self.low.as_ref() }) else {
            self.at = usize::MAX;
            return;
        };
        // The leaf of the largest record below `low`. In each inner node, its child is chosen by
        // the number of separators strictly below `low`.
        let target = Target { key: low.key(), trailer: low.trailer() };
        self.copy_leaf(tree, |node| node.lower_bound(target));
        let count = self.records.len();
        (count.saturating_sub(PREFETCH_RECORDS)..count).for_each(|at| self.prefetch(at));
        self.at = self.find(target).wrapping_sub(1);
    }

    fn next_leaf(&mut self, tree: &Tree) {
        // SAFETY: fences are null or records of this tree.
        let Some(high) = (unsafe { self.high.as_ref() }) else {
            self.at = usize::MAX;
            return;
        };
        let target = Target { key: high.key(), trailer: high.trailer() };
        self.copy_leaf(tree, |node| node.child_index(target));
        (0..PREFETCH_RECORDS).for_each(|at| self.prefetch(at));
        self.at = self.find(target);
    }

    /// Prefetches a record that a walk reaches later, if it is in this leaf.
    #[inline]
    fn prefetch(&self, at: usize) {
        if let Some(&record) = self.records.get(at) {
            (0..PREFETCH_LINES).for_each(|line| prefetch_at(record.cast(), line * LINE_BYTES));
        }
    }

    fn find(&self, target: Target<'_>) -> usize {
        self.records.partition_point(|record| {
            // SAFETY: obligation 2.
            let record = unsafe { &**record };
            let order: Ordering =
                compare(record.key(), record.trailer(), target.key, target.trailer);
            order == Less && order != Equal
        })
    }

    fn copy_leaf(&mut self, tree: &Tree, choose: impl Fn(&Node) -> Result<usize, Restart>) {
        while self.try_copy_leaf(tree, &choose).is_err() {
            pause(false);
        }
    }

    fn try_copy_leaf(
        &mut self,
        tree: &Tree,
        choose: impl Fn(&Node) -> Result<usize, Restart>,
    ) -> Result<(), Restart> {
        self.records.clear();
        let Some((leaf, version)) = tree.descend(choose)? else {
            (self.low, self.high) = (std::ptr::null(), std::ptr::null());
            return Ok(());
        };
        let count = leaf.count();
        self.records.extend(leaf.keys[..count].iter().map(|key| key.load(Acquire).cast_const()));
        self.low = leaf.low.load(Acquire);
        self.high = leaf.high.load(Acquire);
        leaf.latch.check(version)
    }
}
