//! LevelDB's tree of pointers by counts, with its seek compactions: what the lookups of a value
//! log's collections make the tree write. Not a store, and not our policies, which have no such
//! rule.
//!
//! 1. A memtable makes a table of level 0. At four of these, all sink into level 1; above its
//!    capacity a level gives up one table, the next in turn. The fullest level comes first.
//! 2. A lookup asks the newest table of level 0, then the older ones, then one table of each level.
//!    If the first of them does not hold the key, that is a wasted seek, and the first is charged,
//!    whether it has a filter or not (`Version::Get` of LevelDB 1.20).
//! 3. A table that has been charged `max(100, bytes / 16 KiB)` times sinks, with all of level 0 if
//!    it is there (`Version::UpdateStats`, `VersionSet::PickCompaction`).
//!
//! Keys are hashes, so a table is the range that it covers and its number of entries, and a table
//! that covers a share of the keys holds each of them with the same probability. Compactions are
//! done at once; LevelDB does one at a time beside the lookups, so it does at most as many.

use runstone_workloads::generators::Rng;

use super::reckoned::{BASE_BYTES, MEMTABLE_BYTES, POINTER_ENTRY_BYTES};

const TABLE_BYTES: u64 = 2 << 20;
const L0_TABLES: usize = 4;
const SIZE_RATIO: f64 = 10.0;
const SEEK_BYTES: f64 = 16.0 * 1024.0;
const LEAST_SEEKS: f64 = 100.0;
/// A lookup in the model stands for this many, each of which is charged.
const LOT: u64 = 16;

/// The counters of lookups.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Looked {
    pub(super) lookups: u64,
    /// The lookups that found nothing in the first table.
    pub(super) seeks: u64,
    pub(super) compactions: u64,
}

/// Keys from `from` up to `to`, and how many of them it holds.
#[derive(Clone, Copy, Debug)]
struct Table {
    from: f64,
    to: f64,
    entries: f64,
    seeks_left: f64,
}

impl Table {
    fn new(from: f64, to: f64, entries: f64) -> Table {
        let seeks_left = (entries * POINTER_ENTRY_BYTES as f64 / SEEK_BYTES).max(LEAST_SEEKS);
        Table { from, to, entries, seeks_left }
    }

    /// The share of its keys that it holds.
    fn share(&self) -> f64 {
        (self.entries / (self.to - self.from)).min(1.0)
    }

    /// Entries between two keys.
    fn entries_in(&self, from: f64, to: f64) -> f64 {
        self.share() * (self.to.min(to) - self.from.max(from)).max(0.0)
    }
}

/// See the module docs.
pub(super) struct LevelDb {
    keys: f64,
    table_entries: f64,
    memtable_entries: u64,
    base_entries: f64,
    /// The newest table of level 0 is its last one; other levels are in key order.
    levels: Vec<Vec<Table>>,
    /// Where the next table in turn begins.
    cursors: Vec<f64>,
    written_entries: f64,
    rng: Rng,
    pub(super) looked: Looked,
}

impl LevelDb {
    /// An empty tree for this many keys; `scale` is the scale of its sizes.
    pub(super) fn new(keys: u64, scale: f64) -> LevelDb {
        let entries = |bytes: u64| (bytes as f64 * scale / POINTER_ENTRY_BYTES as f64).max(64.0);
        LevelDb {
            keys: keys as f64,
            table_entries: entries(TABLE_BYTES),
            memtable_entries: entries(MEMTABLE_BYTES) as u64,
            base_entries: entries(BASE_BYTES),
            levels: vec![Vec::new(); 7],
            cursors: vec![0.0; 7],
            written_entries: 0.0,
            rng: Rng::new(1),
            looked: Looked::default(),
        }
    }

    pub(super) fn written_bytes(&self) -> f64 {
        self.written_entries * POINTER_ENTRY_BYTES as f64
    }

    /// Writes this many entries, with this many lookups spread evenly between them.
    pub(super) fn write(&mut self, entries: u64, lookups: u64) {
        let flushes = (entries / self.memtable_entries).max(1);
        for flush in 0..flushes {
            let flushed = (entries / flushes) as f64;
            self.written_entries += flushed;
            self.levels[0].push(Table::new(0.0, self.keys, flushed.min(self.keys)));
            self.sink_what_is_full();
            let due = |flush: u64| lookups * flush / flushes / LOT;
            for _ in due(flush)..due(flush + 1) {
                self.look_up();
            }
        }
    }

    fn sink_what_is_full(&mut self) {
        loop {
            let score = |level: usize| match level {
                0 => self.levels[0].len() as f64 / L0_TABLES as f64,
                _ => {
                    let capacity = self.base_entries * SIZE_RATIO.powi(level as i32 - 1);
                    self.levels[level].iter().map(|table| table.entries).sum::<f64>() / capacity
                }
            };
            let scores = (0..self.levels.len() - 1).map(|level| (level, score(level)));
            let Some((level, score)) = scores.max_by(|one, two| one.1.total_cmp(&two.1)) else {
                return;
            };
            if score < 1.0 {
                return;
            }
            let tables = &self.levels[level];
            let next = tables.partition_point(|table| table.from < self.cursors[level]);
            self.sink(level, next % tables.len());
        }
    }

    /// A table, or all of level 0, with the tables that it overlaps below.
    fn sink(&mut self, level: usize, at: usize) {
        let sources: Vec<Table> = match level {
            0 => std::mem::take(&mut self.levels[0]),
            _ => vec![self.levels[level].remove(at)],
        };
        let (from, to) = (sources[0].from, sources[0].to);
        self.cursors[level] = to;
        let below = &mut self.levels[level + 1];
        let first = below.partition_point(|table| table.to <= from);
        let last = below.partition_point(|table| table.from < to);
        if first == last && sources.len() == 1 {
            below.insert(first, sources[0]);
            return;
        }
        let met = below[first..last].to_vec();
        let low = met.first().map_or(from, |table| table.from.min(from));
        let high = met.last().map_or(to, |table| table.to.max(to));
        // Tables of one level hold different keys, tables of two levels hold the same ones by
        // chance.
        let share = |entries: f64| (entries / (high - low)).min(1.0);
        let absent_below = 1.0 - share(met.iter().map(|table| table.entries).sum());
        let absent_above: f64 =
            sources.iter().map(|table| 1.0 - share(table.entries_in(low, high))).product();
        let entries = (high - low) * (1.0 - absent_below * absent_above);
        self.written_entries += entries;
        let count = (entries / self.table_entries).ceil().max(1.0);
        let bound = |at: usize| match at {
            _ if at == count as usize => high,
            at => low + (high - low) * at as f64 / count,
        };
        let cut = |at: usize| Table::new(bound(at), bound(at + 1), entries / count);
        self.levels[level + 1].splice(first..last, (0..count as usize).map(cut));
    }

    /// A batch of lookups of a key that exists.
    fn look_up(&mut self) {
        self.looked.lookups += LOT;
        let key = self.rng.below(self.keys as u64) as f64;
        let chance = self.rng.below(1 << 32) as f64 / (1_u64 << 32) as f64;
        let mut asked = (0..self.levels.len()).filter_map(|level| self.first_of(level, key));
        let Some((level, at)) = asked.next() else { return };
        let has_more = asked.next().is_some() || (level == 0 && at > 0);
        let table = &mut self.levels[level][at];
        if !has_more || chance < table.share() {
            return;
        }
        self.looked.seeks += LOT;
        table.seeks_left -= LOT as f64;
        if table.seeks_left <= 0.0 {
            self.looked.compactions += 1;
            self.sink(level, at);
            self.sink_what_is_full();
        }
    }

    /// The first table of a level that may hold a key.
    fn first_of(&self, level: usize, key: f64) -> Option<(usize, usize)> {
        let tables = &self.levels[level];
        let at = match level {
            0 => tables.len().checked_sub(1)?,
            _ => tables.partition_point(|table| table.to <= key),
        };
        tables.get(at).filter(|table| table.from <= key).map(|_| (level, at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tree of a hundredth of the paper's, loaded and then overwritten as often.
    fn tree(lookups: u64) -> LevelDb {
        let keys = 400_000;
        let mut tree = LevelDb::new(keys, 0.01);
        tree.write(keys, 0);
        tree.write(keys, lookups);
        tree
    }

    #[test]
    fn a_tree_keeps_its_keys_and_its_levels_stay_in_order() {
        let tree = tree(400_000);
        assert!(tree.levels[0].len() < L0_TABLES);
        for level in &tree.levels[1..] {
            assert!(level.windows(2).all(|pair| pair[0].to <= pair[1].from));
            assert!(level.iter().all(|table| table.entries <= table.to - table.from + 1e-6));
        }
        let entries: f64 = tree.levels.iter().flatten().map(|table| table.entries).sum();
        assert!((200_000.0..=600_000.0).contains(&entries), "{entries}");
    }

    #[test]
    fn only_lookups_that_seek_in_vain_make_it_write_more() {
        let (calm, looked) = (tree(0), tree(400_000));
        assert_eq!((calm.looked.seeks, calm.looked.compactions), (0, 0));
        assert!(looked.looked.seeks > 0 && looked.looked.compactions > 0);
        let most = looked.looked.seeks as f64 / LEAST_SEEKS;
        assert!(looked.looked.compactions as f64 <= most, "{:?}", looked.looked);
        assert!(looked.written_bytes() > calm.written_bytes());
    }
}
