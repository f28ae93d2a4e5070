//! Range deletes. A range delete follows each fixed number of written bytes. It removes a share of
//! the keys, which begins where the share of the previous one ends. At the end of the keys, the
//! next range delete starts at the beginning again.
//!
//! As in the engine, a compaction drops the hidden entries that it reads, and a table that is
//! hidden as a whole is dropped without being read. The policy sees that tables get smaller and
//! fewer. Range tombstones take no space here, and gets are counted as if nothing were deleted.
//! Tables that were in the tree before a range delete are older than it, so the order of table
//! numbers shows which tables it hides.

use std::sync::Arc;

use serde::Serialize;

use super::report::thousandths;
use super::spread::{Spread, mul_div, number};
use super::{KeyOrder, Simulator};
use runstone_policy::shape::plan::Plan;
use runstone_policy::shape::{Table, TableId};

/// How often a range delete is made, and how much it removes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct RangeDeletes {
    /// Bytes written from one range delete to the next.
    pub every_bytes: u64,
    /// The share of the keys that each removes, in thousandths: 1 to 1000. The last of a round
    /// removes the rest.
    #[serde(rename = "share", serialize_with = "thousandths")]
    pub share_permille: u64,
}

/// A range delete: it hides the keys from one bound up to another, which is excluded, in tables
/// with smaller numbers than its own.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deleted {
    from: u64,
    end: u64,
    tables_below: TableId,
}

impl Deleted {
    /// Whether it hides everything that another range delete hides.
    fn replaces(&self, older: &Deleted) -> bool {
        self.from <= older.from && older.end <= self.end
    }
}

impl Simulator<'_> {
    /// The same tree with range deletes.
    pub fn with_range_deletes(self, range_deletes: RangeDeletes) -> Self {
        Simulator { range_deletes: Some(range_deletes), ..self }
    }

    /// Deletes a range after a flush, if it is time.
    pub(super) fn delete_in_time(&mut self) {
        let Some(RangeDeletes { every_bytes, share_permille }) = self.range_deletes else {
            return;
        };
        let every_flushes = every_bytes.div_ceil(self.workload.flush_bytes.max(1)).max(1);
        let share_permille = share_permille.clamp(1, 1000);
        if !self.flush_count.is_multiple_of(every_flushes) {
            return;
        }
        let keys = match self.workload.order {
            KeyOrder::Uniform => self.workload.key_space.max(1),
            KeyOrder::Sequential => self.next_key,
        };
        let shares = 1000_u64.div_ceil(share_permille);
        let share = (self.flush_count / every_flushes - 1) % shares;
        let at = |share: u64| mul_div(keys, (share * share_permille).min(1000), 1000);
        let new = Deleted { from: at(share), end: at(share + 1), tables_below: self.next_id };
        self.deleted.retain(|older| !new.replaces(older));
        self.deleted.push(new);
    }

    /// The remaining pieces of a table with this many entries: first key, last key and entries
    /// of each.
    pub(super) fn pieces_of(&self, table: &Table, entries: u64) -> Vec<(u64, u64, u64)> {
        let (first, last) = (number(&table.min_key), number(&table.max_key));
        let mut pieces = vec![(first, last, entries)];
        for hole in self.deleted.iter().filter(|hole| table.id < hole.tables_below) {
            pieces = pieces.into_iter().flat_map(|piece| without(piece, hole)).collect();
        }
        pieces.retain(|(.., entries)| *entries > 0);
        pieces
    }

    /// The tables whose entries are all deleted, which are dropped.
    pub(super) fn covered_drops(&self) -> Option<Plan> {
        self.range_deletes?;
        let tables = self.shape.tables().map(|(_, table)| table);
        let covered = tables.filter(|table| self.pieces_of(table, table.entries).is_empty());
        let drops: Vec<TableId> = covered.map(|table| table.id).collect();
        let why = format!("{} tables hold only what range deletes hide", drops.len());
        (!drops.is_empty()).then(|| Plan::new(why).drop_tables(drops))
    }

    /// The entries of all these tables that are not deleted, each key once.
    pub(super) fn left_in<'t>(
        &self,
        tables: impl Iterator<Item = &'t Arc<Table>>,
    ) -> Option<Spread> {
        let pieces: Vec<_> = tables.flat_map(|one| self.pieces_of(one, one.entries)).collect();
        Spread::of(&pieces)
    }
}

/// The pieces of evenly spread entries that a hole leaves: one before it and one after it.
fn without((first, last, entries): (u64, u64, u64), hole: &Deleted) -> [(u64, u64, u64); 2] {
    let keys = last - first + 1;
    let front = hole.from.clamp(first, last + 1) - first;
    let back = last + 1 - hole.end.clamp(first, last + 1);
    if front + back >= keys {
        return [(first, last, entries), (first, last, 0)];
    }
    let share = |part: u64| mul_div(entries, part, keys).min(part);
    let (front_last, back_first) = (first + front.max(1) - 1, last + 1 - back.max(1));
    [(first, front_last, share(front)), (back_first, last, share(back))]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hole_leaves_what_is_around_it() {
        let hole = |from, end| Deleted { from, end, tables_below: 1 };
        let piece = (100, 199, 50);
        assert_eq!(without(piece, &hole(120, 140)), [(100, 119, 10), (140, 199, 30)]);
        assert_eq!(without(piece, &hole(0, 150)), [(100, 100, 0), (150, 199, 25)]);
        assert_eq!(without(piece, &hole(150, 900)), [(100, 149, 25), (199, 199, 0)]);
        assert_eq!(without(piece, &hole(0, 900)).map(|left| left.2), [0, 0]);
        for beside in [hole(0, 100), hole(200, 300), hole(150, 150)] {
            assert_eq!(without(piece, &beside), [piece, (100, 199, 0)]);
        }
    }
}
