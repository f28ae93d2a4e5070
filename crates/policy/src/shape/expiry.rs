//! Which entries of a table expire, as metadata of the table. A policy sees no clock: it is shown a
//! tree in which entries that are past count as tombstones ([`Shape::at`]), since that is what a
//! compaction makes of them.

use std::borrow::Cow;
use std::sync::Arc;

use crate::shape::overlapping::OverlappingTables;
use crate::shape::{Level, Run, SeqNo, Shape, Table};

/// The entries of a table that expire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Expiries {
    /// How many there are.
    pub entries: u64,
    /// When the first one expires, in milliseconds since 1970; 0 if there is none.
    pub first_ms: u64,
    /// When the last one expires, in milliseconds since 1970; 0 if there is none.
    pub last_ms: u64,
}

impl Expiries {
    /// Adds an entry.
    pub fn add(&mut self, at_ms: u64) {
        self.first_ms = if self.entries == 0 { at_ms } else { self.first_ms.min(at_ms) };
        self.last_ms = self.last_ms.max(at_ms);
        self.entries += 1;
    }

    /// About how many are past at `now_ms`, as if they were spread evenly: none before the first,
    /// all from the last on.
    pub fn past(&self, now_ms: u64) -> u64 {
        if self.entries == 0 || now_ms < self.first_ms {
            return 0;
        }
        if now_ms >= self.last_ms {
            return self.entries;
        }
        let (gone, all) = (now_ms - self.first_ms, self.last_ms - self.first_ms);
        let past = u128::from(self.entries) * u128::from(gone) / u128::from(all);
        u64::try_from(past).unwrap_or(self.entries)
    }
}

impl Table {
    /// Whether every entry is past at `now_ms`.
    pub fn is_past(&self, now_ms: u64) -> bool {
        self.expiries.entries == self.entries && self.expiries.last_ms <= now_ms
    }
}

impl Shape {
    /// The tree as a policy sees it at `now_ms`: entries that are past count as tombstones, but not
    /// in tables that a snapshot may see: a compaction would keep them there. O(tables), and a copy
    /// of the tree if any is past.
    pub fn at(&self, now_ms: u64, newest_snapshot: SeqNo) -> Cow<'_, Shape> {
        let past = |table: &Table| match table.min_seq > newest_snapshot {
            true => {
                table.expiries.past(now_ms).min(table.entries - table.tombstones.min(table.entries))
            }
            false => 0,
        };
        if !self.tables().any(|(_, table)| past(table) > 0) {
            return Cow::Borrowed(self);
        }
        let seen = |table: &Arc<Table>| match past(table) {
            0 => Arc::clone(table),
            past => Arc::new(Table { tombstones: table.tombstones + past, ..(**table).clone() }),
        };
        let run = |run: &Run| Run { tables: run.tables.iter().map(seen).collect(), ..*run };
        let level = |level: &Level| match level {
            Level::Runs(runs) => Level::Runs(runs.iter().map(run).collect()),
            Level::Overlapping(tables) => {
                Level::Overlapping(OverlappingTables::new(tables.iter().map(seen).collect()))
            }
        };
        Cow::Owned(Shape { levels: self.levels.iter().map(level).collect(), ..self.clone() })
    }

    /// The next instant after `now_ms` at which the last entry of some table expires. O(tables).
    pub fn next_expiry_ms(&self, now_ms: u64) -> Option<u64> {
        let last = self.tables().map(|(_, table)| table.expiries.last_ms);
        last.filter(|last| *last > now_ms).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn past_entries_are_tombstones_unless_a_snapshot_sees_the_table() {
        let expiries = Expiries { entries: 4, first_ms: 10, last_ms: 20 };
        let table = Table { entries: 5, min_seq: 7, expiries, ..Table::default() };
        let run = Run { id: 1, last_flush: 0, tables: vec![Arc::new(table)] };
        let shape = Shape { levels: vec![Level::Runs(vec![run])], ..Shape::default() };
        let tombstones = |now_ms, newest_snapshot| {
            let seen = shape.at(now_ms, newest_snapshot);
            seen.tables().map(|(_, table)| table.tombstones).sum::<u64>()
        };
        assert_eq!([tombstones(9, 0), tombstones(15, 0), tombstones(20, 6)], [0, 2, 4]);
        assert_eq!(tombstones(20, 7), 0, "a compaction would keep them");
    }

    #[test]
    fn the_number_of_past_entries_grows_evenly() {
        let mut expiries = Expiries::default();
        assert_eq!(expiries.past(u64::MAX), 0);
        (0..11).for_each(|i| expiries.add(1000 + 10 * i));
        assert_eq!((expiries.entries, expiries.first_ms, expiries.last_ms), (11, 1000, 1100));
        let past = [999, 1000, 1050, 1099, 1100, 5000].map(|now| expiries.past(now));
        assert_eq!(past, [0, 0, 5, 10, 11, 11]);
    }
}
