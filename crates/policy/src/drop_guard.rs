//! Decides which tombstones a compaction may drop, as far as the shape tells (rule I4). The caller
//! adds the rest of the rule: it keeps a tombstone that a live snapshot needs, and one version per
//! stripe.
//!
//! Range tombstones have a rule of their own, [`range_may_go`].

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::shape::range_delete::RangeDelete;
use crate::shape::{Level, SeqNo, Shape, Table, TableId, bounds};

/// Answers, for one compaction: may the tombstone (key, seq) go, because nothing outside the
/// compaction holds an older version of the key?
///
/// 1. Suspects are the tables outside the compaction that meet the key range of its inputs of the
///    same layer (a run, or a level whose tables overlap) and of newer ones. A table above every
///    input that meets it holds only newer versions (I1), wherever it sinks later; so the answer
///    stays right while other jobs finish. The target is never above the shallowest input, so it
///    is among the layers looked at.
/// 2. A suspect that covers the key blocks if its `min_seq` is below the tombstone's. The same test
///    lets a newer run of the same level pass. Whether the output is the last level plays no part:
///    that is neither needed nor sufficient.
/// 3. The suspects that cover a key are kept while keys ascend, as a compaction visits them. They
///    change only at a table's bounds, so a call costs four key comparisons, plus O(depth of
///    overlap) at a bound; O(1) amortised over ascending keys. A smaller key starts over: correct,
///    but slow.
pub struct DropGuard {
    /// Suspects by `min_key`.
    suspects: Vec<Arc<Table>>,
    /// The first suspect not yet met.
    next: usize,
    /// Suspects met and not yet passed: those that cover the last key asked about.
    covering: Vec<usize>,
    /// Of `covering`, the one with the smallest `max_key`.
    first_to_leave: Option<usize>,
    /// Of those passed, the one with the largest `max_key`.
    last_passed: Option<usize>,
    /// Smallest `min_seq` of `covering`; `SeqNo::MAX` if there is none.
    oldest_seq: SeqNo,
}

impl DropGuard {
    /// The guard of the compaction of `inputs`, in the shape that it was planned on. O(tables +
    /// suspects log suspects).
    ///
    /// `inputs` are those of one compaction, not of the whole plan: what the same plan moves or
    /// compacts elsewhere is outside it. Ids that are not in the shape are ignored; without any
    /// input, every table is a suspect.
    pub fn new(shape: &Shape, inputs: &BTreeSet<TableId>) -> DropGuard {
        let ids = inputs.first().copied().zip(inputs.last().copied());
        // Most tables are outside the range of ids: no search for those.
        let is_own = |table: &Table| {
            ids.is_some_and(|(first, last)| (first..=last).contains(&table.id))
                && inputs.contains(&table.id)
        };
        // The key range of the inputs in the layers so far.
        let mut range = None;
        let mut suspects: Vec<Arc<Table>> = Vec::new();
        for level in &shape.levels {
            match level {
                Level::Runs(runs) => {
                    for run in runs {
                        range = widened(range, run.tables.iter().filter(|table| is_own(table)));
                        let Some((min_key, max_key)) = range else { continue };
                        let near = run.overlapping(min_key, max_key).iter();
                        suspects.extend(near.filter(|table| !is_own(table)).map(Arc::clone));
                    }
                }
                Level::Overlapping(tables) => {
                    range = widened(range, tables.iter().filter(|table| is_own(table)));
                    let Some((min_key, max_key)) = range else { continue };
                    let near = tables.meeting(min_key, max_key);
                    suspects.extend(near.filter(|table| !is_own(table)).map(Arc::clone));
                }
            }
        }
        if range.is_none() {
            suspects.extend(shape.tables().map(|(_, table)| Arc::clone(table)));
        }
        suspects.sort_by(|a, b| a.min_key.cmp(&b.min_key).then(a.id.cmp(&b.id)));
        DropGuard {
            suspects,
            next: 0,
            covering: Vec::new(),
            first_to_leave: None,
            last_passed: None,
            oldest_seq: SeqNo::MAX,
        }
    }

    /// Whether the shape lets the tombstone of `key` at `seq` go. The key is within the bounds of
    /// the compaction's inputs. O(1) amortised over ascending keys.
    pub fn allows(&mut self, key: &[u8], seq: SeqNo) -> bool {
        if self.is_behind(key) {
            self.rewind();
        }
        let leaves = self.first_to_leave.is_some_and(|at| *self.suspects[at].max_key < *key);
        let enters = self.suspects.get(self.next).is_some_and(|table| *table.min_key <= *key);
        if leaves || enters {
            self.advance(key);
        }
        self.oldest_seq >= seq
    }

    /// Whether the state belongs to larger keys than this one: the guard has met a table that
    /// begins after it, or passed one that ends at or after it.
    fn is_behind(&self, key: &[u8]) -> bool {
        let met = self.next.checked_sub(1).is_some_and(|at| *self.suspects[at].min_key > *key);
        met || self.last_passed.is_some_and(|at| *self.suspects[at].max_key >= *key)
    }

    fn rewind(&mut self) {
        self.next = 0;
        self.covering.clear();
        self.first_to_leave = None;
        self.last_passed = None;
        self.oldest_seq = SeqNo::MAX;
    }

    fn advance(&mut self, key: &[u8]) {
        while self.suspects.get(self.next).is_some_and(|table| *table.min_key <= *key) {
            self.covering.push(self.next);
            self.next += 1;
        }
        let DropGuard { suspects, covering, last_passed, .. } = self;
        covering.retain(|&at| {
            let covers = *suspects[at].max_key >= *key;
            if !covers && last_passed.is_none_or(|old| suspects[old].max_key < suspects[at].max_key)
            {
                *last_passed = Some(at);
            }
            covers
        });
        self.first_to_leave = covering.iter().copied().min_by_key(|&at| &suspects[at].max_key);
        self.oldest_seq =
            covering.iter().map(|&at| suspects[at].min_seq).min().unwrap_or(SeqNo::MAX);
    }
}

/// A range of keys, grown to hold these tables.
fn widened<'a>(
    range: Option<(&'a [u8], &'a [u8])>,
    tables: impl Iterator<Item = &'a Arc<Table>>,
) -> Option<(&'a [u8], &'a [u8])> {
    let grow =
        |(min_key, max_key): (&'a [u8], &'a [u8]), (min, max)| (min_key.min(min), max_key.max(max));
    range.into_iter().chain(bounds(tables)).reduce(grow)
}

/// Whether a compaction that rewrites `inputs` may drop a range tombstone of theirs: no other table
/// holds an older entry in its range. Every level counts, unlike in [`DropGuard`]: a range
/// tombstone acts by its number, so it may lie below what it deletes. Inputs that move unread count
/// as other tables. O(tables).
pub fn range_may_go(shape: &Shape, inputs: &BTreeSet<TableId>, range: &RangeDelete) -> bool {
    !shape.tables().any(|(_, table)| range.meets(table) && !inputs.contains(&table.id))
}
