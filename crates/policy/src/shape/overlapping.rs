//! The tables of a level in which tables may overlap, with the figures that policies need in every
//! decision: sums, the deepest overlap, an estimate of the obsolete share. The figures are computed
//! once, when the level changes, so that a decision stays cheap. Not an index for reads: the engine
//! has one.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Deref;
use std::sync::Arc;

use crate::shape::replay::remove_at;
use crate::shape::{Table, TableId};
use crate::sketch::Sketch;
use crate::units::Thousandths;

/// Tables sorted by (`min_key`, id), and their statistics. Dereferences to the tables.
#[derive(Clone, Debug, Default)]
pub struct OverlappingTables {
    tables: Vec<Arc<Table>>,
    /// For each table, the index of the table with the largest key among those up to it.
    reach: Vec<u32>,
    /// For each table, the bytes of it and of all tables that overlap it.
    group_bytes: Vec<u64>,
    stats: OverlapStats,
    keys: Sketch,
    /// Whether the derived fields above match the tables.
    is_settled: bool,
}

/// Statistics of all tables together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct OverlapStats {
    /// Sum of the table sizes.
    pub bytes: u64,
    /// Sum of the entries.
    pub entries: u64,
    /// Estimated number of distinct keys; `entries` if that is not known.
    pub distinct_keys: u64,
    /// The largest number of tables that overlap at one point.
    pub depth: u32,
    /// Index of the table that begins at the first deepest point.
    pub deepest: usize,
}

impl OverlapStats {
    /// Estimated share of entries that newer entries of the same level hide.
    pub fn obsolete_share(&self) -> Thousandths {
        obsolete_share(self.entries, self.distinct_keys)
    }
}

/// Share of entries beyond one entry per distinct key.
pub(crate) fn obsolete_share(entries: u64, distinct_keys: u64) -> Thousandths {
    let hidden = entries.saturating_sub(distinct_keys);
    Thousandths::saturating(u128::from(hidden) * 1000 / u128::from(entries.max(1)))
}

/// Splits tables, sorted by smallest key, into as few sublevels as possible: as many as tables
/// overlap at the deepest point. A sublevel is a list of indices into the input. Each table joins
/// the row that ends first. If even that row overlaps the table, all rows do, so a new row is
/// needed (interval partitioning). The order among rows says nothing about age. O(n log rows).
pub fn sublevels<'a>(tables: impl IntoIterator<Item = &'a Table>) -> Vec<Vec<u32>> {
    let mut rows: Vec<Vec<u32>> = Vec::new();
    let mut ends: BinaryHeap<Reverse<(&[u8], usize)>> = BinaryHeap::new();
    for (at, table) in (0..).zip(tables) {
        let is_free = ends.peek().is_some_and(|Reverse((end, _))| **end < *table.min_key);
        let row = match if is_free { ends.pop() } else { None } {
            Some(Reverse((_, row))) => row,
            None => {
                rows.push(Vec::new());
                rows.len() - 1
            }
        };
        rows[row].push(at);
        ends.push(Reverse((&table.max_key, row)));
    }
    rows
}

impl OverlappingTables {
    /// Sorts the tables. O(n log n).
    pub fn new(mut tables: Vec<Arc<Table>>) -> OverlappingTables {
        tables.sort_by(|a, b| (&a.min_key, a.id).cmp(&(&b.min_key, b.id)));
        let mut level = OverlappingTables { tables, ..Default::default() };
        level.settle();
        level
    }

    /// Sketch of all keys.
    pub fn keys(&self) -> &Sketch {
        &self.keys
    }

    /// Statistics, as of the last `settle`.
    pub fn stats(&self) -> &OverlapStats {
        &self.stats
    }

    /// The tables whose bounds overlap `[min_key, max_key]`, in key order. O(log n + tables between
    /// the first and the last of them).
    pub fn meeting<'a>(
        &'a self,
        min_key: &'a [u8],
        max_key: &'a [u8],
    ) -> impl Iterator<Item = &'a Arc<Table>> {
        let to = self.tables.partition_point(|table| *table.min_key <= *max_key);
        let ends_before = |at: &u32| *self.tables[*at as usize].max_key < *min_key;
        let from = self.reach.partition_point(ends_before).min(to);
        self.tables[from..to].iter().filter(move |table| *table.max_key >= *min_key)
    }

    /// Size of the table at an index and of all tables that overlap it: the bytes that compacting
    /// it would rewrite.
    pub fn group_bytes(&self, at: usize) -> u64 {
        self.group_bytes[at]
    }

    /// The index at which a table is, or would be inserted.
    pub(super) fn place_of(&self, table: &Table) -> usize {
        let key = (&table.min_key, table.id);
        self.tables.partition_point(|other| (&other.min_key, other.id) < key)
    }

    /// Adds a table without settling.
    pub(crate) fn insert(&mut self, table: Arc<Table>) {
        self.is_settled = false;
        self.tables.insert(self.place_of(&table), table);
    }

    /// Removes the tables at these places without settling.
    pub(super) fn remove_at(&mut self, places: Vec<usize>) {
        self.is_settled = false;
        remove_at(&mut self.tables, places);
    }

    /// Keeps some tables without settling. Returns whether any were removed.
    pub(crate) fn retain(&mut self, keep: impl FnMut(&Arc<Table>) -> bool) -> bool {
        let before = self.tables.len();
        self.tables.retain(keep);
        let has_changed = self.tables.len() != before;
        self.is_settled &= !has_changed;
        has_changed
    }

    /// Computes everything that follows from the tables, if they changed. O(n log n).
    pub(crate) fn settle(&mut self) {
        if self.is_settled {
            return;
        }
        self.is_settled = true;
        self.stats = stats_of(&self.tables);
        self.group_bytes = group_bytes(&self.tables);
        self.keys = Sketch::of_nothing();
        self.reach.clear();
        let mut furthest = 0;
        for (at, table) in (0u32..).zip(&self.tables) {
            if table.max_key > self.tables[furthest as usize].max_key {
                furthest = at;
            }
            self.reach.push(furthest);
            self.keys.merge(&table.sketch);
        }
        let known = self.keys.estimate().unwrap_or(self.stats.entries);
        self.stats.distinct_keys = known.min(self.stats.entries);
    }
}

impl Deref for OverlappingTables {
    type Target = [Arc<Table>];

    fn deref(&self) -> &[Arc<Table>] {
        &self.tables
    }
}

/// Statistics are derived from the tables, so only the tables are compared.
impl PartialEq for OverlappingTables {
    fn eq(&self, other: &Self) -> bool {
        self.tables == other.tables
    }
}

impl Eq for OverlappingTables {}

/// A table overlaps all others except those that end before it begins or begin after it ends.
fn group_bytes(tables: &[Arc<Table>]) -> Vec<u64> {
    let running = |order: &[&Arc<Table>]| -> Vec<u64> {
        let sums = order.iter().scan(0u64, |sum, table| {
            *sum = table.bytes.saturating_add(*sum);
            Some(*sum)
        });
        std::iter::once(0).chain(sums).collect()
    };
    let by_start: Vec<&Arc<Table>> = tables.iter().collect();
    let mut by_end = by_start.clone();
    by_end.sort_by(|a, b| a.max_key.cmp(&b.max_key));
    let (begun, ended) = (running(&by_start), running(&by_end));
    let met = |table: &Arc<Table>| {
        let begin = begun[by_start.partition_point(|other| other.min_key <= table.max_key)];
        // Sums of the numbers in a damaged manifest may saturate.
        begin.saturating_sub(ended[by_end.partition_point(|o| o.max_key < table.min_key)])
    };
    tables.iter().map(met).collect()
}

/// One sweep over tables sorted by `min_key`: the tables that cover the start of the current one
/// are in a heap by `max_key`.
fn stats_of(tables: &[Arc<Table>]) -> OverlapStats {
    let mut stats = OverlapStats::default();
    let mut covering: BinaryHeap<Reverse<(&[u8], TableId)>> = BinaryHeap::new();
    for (at, table) in tables.iter().enumerate() {
        while covering.peek().is_some_and(|Reverse((max_key, _))| *max_key < &*table.min_key) {
            covering.pop();
        }
        covering.push(Reverse((&table.max_key, table.id)));
        if covering.len() as u32 > stats.depth {
            (stats.depth, stats.deepest) = (covering.len() as u32, at);
        }
        stats.bytes = stats.bytes.saturating_add(table.bytes);
        stats.entries = stats.entries.saturating_add(table.entries);
    }
    stats
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(id: u64, keys: (&str, &str)) -> Arc<Table> {
        Arc::new(Table {
            id,
            min_key: keys.0.as_bytes().into(),
            max_key: keys.1.as_bytes().into(),
            bytes: 100,
            entries: 10,
            min_seq: 1,
            max_seq: 1,
            ..Table::default()
        })
    }

    #[test]
    fn depth_counts_tables_over_one_point() {
        let none = OverlappingTables::new(Vec::new());
        assert_eq!((none.stats().depth, none.stats().obsolete_share()), (0, 0.into()));
        let keys = [("a", "c"), ("b", "d"), ("d", "f"), ("e", "z"), ("f", "f"), ("g", "h")];
        let tables = (1..).zip(keys).map(|(id, keys)| table(id, keys)).collect();
        let level = OverlappingTables::new(tables);
        // [d..f], [e..z] and [f..f] overlap at f.
        assert_eq!((level.stats().depth, level[level.stats().deepest].id), (3, 5));
        assert_eq!((level.stats().bytes, level.stats().entries), (600, 60));
        assert_eq!(level.stats().obsolete_share(), 0.into(), "nothing is known of the keys");
        let met: Vec<u64> = level.meeting(b"d", b"e").map(|table| table.id).collect();
        assert_eq!(met, [2, 3, 4]);
        let sizes: Vec<u64> = (0..level.len()).map(|at| level.group_bytes(at)).collect();
        assert_eq!(sizes, [200, 300, 400, 400, 300, 200]);
    }
}
