//! What a compaction can conclude from its inputs alone. Tables outside the compaction may contain
//! other versions of a key; the shape shows which tables cannot.
//!
//! - [`DropGuard`]: no table outside contains an older version, so a tombstone may be dropped (rule
//!   I4). The caller adds the rest of the rule: it keeps a tombstone that a live snapshot needs,
//!   and one version per stripe.
//! - [`LinkGuard`]: no table outside contains a version between two versions of a key in the
//!   inputs, so these are adjacent (rule I7).
//! - [`NewerGuard`]: no table outside contains a newer version, so current readers see this one,
//!   unless a memtable contains a newer one.
//! - [`RangeGuard`]: no table outside contains an entry that a range tombstone deletes.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use std::sync::Arc;

use crate::covering::{Covering, Layer, met_outside};
use crate::shape::range_delete::RangeDelete;
use crate::shape::{SeqNo, Shape, Table, TableId};

/// Answers, for one compaction: may the tombstone (key, seq) be dropped, because no table outside
/// the compaction contains an older version of the key?
///
/// 1. Suspects are the tables outside the compaction that overlap the key range of its inputs in
///    the same layer (a run, or a level whose tables overlap) or in newer layers. A table above
///    every input that it overlaps contains only newer versions (I1), and it stays newer wherever
///    it sinks. So the answer stays right while other jobs finish. The target is never above the
///    shallowest input, so it is among these layers.
/// 2. A suspect that covers the key keeps the tombstone if its `min_seq` is below the tombstone's.
///    The same test lets a newer run of the same level pass. It does not matter whether the output
///    is the last level: that is neither necessary nor sufficient.
/// 3. The suspects that cover a key are kept while keys ascend.
pub struct DropGuard {
    suspects: Covering,
    /// Smallest `min_seq` of the cover; `SeqNo::MAX` if there is none.
    oldest_seq: SeqNo,
}

impl DropGuard {
    /// The guard of the compaction of `inputs`, in the shape that it was planned on. O(tables +
    /// suspects log suspects).
    ///
    /// `inputs` are the inputs of one compaction, not of the whole plan: tables that the same plan
    /// moves or compacts elsewhere are outside it. Ids that are not in the shape are ignored;
    /// without any input, every table is a suspect.
    pub fn new(shape: &Shape, inputs: &BTreeSet<TableId>) -> DropGuard {
        let all = || shape.tables().map(|(_, table)| Arc::clone(table)).collect();
        let suspects = met_outside(Layer::all(shape), is_among(inputs)).unwrap_or_else(all);
        DropGuard { suspects: Covering::new(suspects), oldest_seq: SeqNo::MAX }
    }

    /// Whether the shape allows the tombstone of `key` at `seq` to be dropped. The key is within
    /// the bounds of the compaction's inputs. O(1) amortised over ascending keys.
    pub fn allows(&mut self, key: &[u8], seq: SeqNo) -> bool {
        if self.suspects.seek(key) {
            let oldest = self.suspects.cover().map(|table| table.min_seq).min();
            self.oldest_seq = oldest.unwrap_or(SeqNo::MAX);
        }
        self.oldest_seq >= seq
    }
}

/// Answers, for one compaction: is there no table outside with a version between two versions of a
/// key in the inputs? Then the older version directly follows the newer one, and operands may be
/// folded onto the older one (rule I7).
///
/// Between layers, I1 decides: tables above all inputs are newer than all inputs, and tables below
/// are older. A plan that left out a layer between inputs would put newer versions below older
/// ones. Inside a level whose tables overlap there is no order. So the suspects are the tables of
/// such levels that overlap the inputs there. A table that enters the level later comes from above
/// and is newer.
pub struct LinkGuard(Covering);

impl LinkGuard {
    /// The guard of the compaction of `inputs`, as in [`DropGuard::new`].
    pub fn new(shape: &Shape, inputs: &BTreeSet<TableId>) -> LinkGuard {
        let is_own = is_among(inputs);
        let layers = Layer::all(shape).into_iter().filter(|layer| layer.overlaps());
        let met = layers.filter_map(|layer| met_outside([layer], &is_own));
        LinkGuard(Covering::new(met.flatten().collect()))
    }

    /// The tables that may contain a version between two others.
    pub fn suspects(&self) -> &[Arc<Table>] {
        self.0.tables()
    }

    /// Whether the shape and `may_hold` prove that the version of `key` at `older` directly follows
    /// the version at `newer`. `may_hold` returns whether a suspect may contain the key at all.
    /// O(1) amortised over ascending keys, and O(depth of overlap) where suspects cover the key.
    pub fn may_link(
        &mut self,
        key: &[u8],
        newer: SeqNo,
        older: SeqNo,
        mut may_hold: impl FnMut(&Table) -> bool,
    ) -> bool {
        self.0.seek(key);
        let is_between = |table: &&Table| table.min_seq < newer && table.max_seq > older;
        !self.0.cover().filter(is_between).any(&mut may_hold)
    }
}

/// Answers, for one compaction: does no table outside contain a version of a key that is newer than
/// a version in the inputs?
///
/// Suspects are the tables outside the compaction that overlap the key range of its inputs in the
/// same layer or in older ones. A table below every input that it overlaps contains only older
/// versions (I1).
pub struct NewerGuard(Covering);

impl NewerGuard {
    /// The guard of the compaction of `inputs`, as in [`DropGuard::new`].
    pub fn new(shape: &Shape, inputs: &BTreeSet<TableId>) -> NewerGuard {
        let upwards = Layer::all(shape).into_iter().rev();
        NewerGuard(Covering::new(met_outside(upwards, is_among(inputs)).unwrap_or_default()))
    }

    /// The tables that may contain a newer version.
    pub fn suspects(&self) -> &[Arc<Table>] {
        self.0.tables()
    }

    /// Whether the shape and `may_hold` prove that no suspect contains a version of `key` that is
    /// newer than `seq`, as in [`LinkGuard::may_link`].
    pub fn is_newest(
        &mut self,
        key: &[u8],
        seq: SeqNo,
        mut may_hold: impl FnMut(&Table) -> bool,
    ) -> bool {
        self.0.seek(key);
        !self.0.cover().filter(|table| table.max_seq > seq).any(&mut may_hold)
    }
}

/// Whether a table is an input of the compaction. Most tables are outside the range of its ids, and
/// need no search.
fn is_among(inputs: &BTreeSet<TableId>) -> impl Fn(&Table) -> bool {
    let ids = inputs.first().copied().zip(inputs.last().copied());
    move |table| {
        ids.is_some_and(|(first, last)| (first..=last).contains(&table.id))
            && inputs.contains(&table.id)
    }
}

/// Answers, for a compaction that rewrites some tables: may one of their range tombstones be
/// dropped, because no other table contains an older entry in the range? Every level counts, unlike
/// in [`DropGuard`]: a range tombstone acts by its sequence number, so it may be below the entries
/// that it deletes. Inputs that move without being read count as other tables.
pub struct RangeGuard {
    /// The smallest key of each table, and the next key after its largest one, in order. Between
    /// two of these bounds, the same tables cover all keys.
    bounds: Vec<Box<[u8]>>,
    /// A segment tree with its root at 1. Its leaves, from index `bounds.len()` on, are the
    /// smallest `min_seq` of the tables from each bound up to the next; `SeqNo::MAX` if there are
    /// none. Each inner node is the smaller of its two children.
    oldest: Vec<SeqNo>,
}

impl RangeGuard {
    /// The guard of a compaction that rewrites `inputs`. O(tables log tables).
    pub fn new(shape: &Shape, inputs: &BTreeSet<TableId>) -> RangeGuard {
        let others = shape.tables().map(|(_, table)| table).filter(|t| !inputs.contains(&t.id));
        let behind = |table: &Table| [&*table.max_key, &[0]].concat().into_boxed_slice();
        let mut others: Vec<&Table> = others.map(|table| &**table).collect();
        let begins = others.iter().map(|table| table.min_key.clone());
        let mut bounds: Vec<Box<[u8]>> =
            begins.chain(others.iter().map(|table| behind(table))).collect();
        bounds.sort();
        bounds.dedup();
        let mut oldest = vec![SeqNo::MAX; 2 * bounds.len()];
        let mut covering = BinaryHeap::new();
        others.sort_by(|one, other| one.min_key.cmp(&other.min_key));
        let mut next = others.into_iter().peekable();
        for (at, bound) in bounds.iter().enumerate() {
            while let Some(table) = next.next_if(|table| table.min_key <= *bound) {
                covering.push(Reverse((table.min_seq, &*table.max_key)));
            }
            while covering.peek().is_some_and(|Reverse((_, max_key))| **max_key < **bound) {
                covering.pop();
            }
            let first = covering.peek().map(|Reverse((min_seq, _))| *min_seq);
            oldest[bounds.len() + at] = first.unwrap_or(SeqNo::MAX);
        }
        for at in (1..bounds.len()).rev() {
            oldest[at] = oldest[2 * at].min(oldest[2 * at + 1]);
        }
        RangeGuard { bounds, oldest }
    }

    /// Whether the range tombstone may be dropped. O(log tables).
    pub fn allows(&self, range: &RangeDelete) -> bool {
        let begins = self.bounds.partition_point(|bound| **bound <= *range.start);
        let ends = match &range.end {
            Some(end) => self.bounds.partition_point(|bound| *bound < *end),
            None => self.bounds.len(),
        };
        let count = self.bounds.len();
        let (mut low, mut high) = (count + begins.saturating_sub(1), count + ends);
        let mut oldest = SeqNo::MAX;
        while low < high {
            if low % 2 == 1 {
                oldest = oldest.min(self.oldest[low]);
                low += 1;
            }
            if high % 2 == 1 {
                high -= 1;
                oldest = oldest.min(self.oldest[high]);
            }
            (low, high) = (low / 2, high / 2);
        }
        oldest >= range.seq
    }
}
