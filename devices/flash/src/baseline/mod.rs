//! The rivals of a KVSSD beside the ordinary tree: delayed compaction (dLSM) and lightweight
//! compaction (lLSM, the LWC-tree). Exact models: trees of key numbers that count the pages which a
//! device would write and read. They have no flash below, no values and no deletes.
//!
//! A key's version is the number of its write, so that a model can be checked against a map.

mod delayed;
mod light;

use std::collections::BTreeMap;

pub use delayed::DelayedTree;
pub use light::LightTree;

/// Sizes of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModelSizes {
    /// Records in a page.
    pub page_records: u32,
    /// Pages of a full table, and of a full memtable.
    pub table_pages: u32,
    /// Capacity of level 1.
    pub level1_pages: u32,
    /// How many times larger each deeper level is.
    pub size_ratio: u32,
    /// Tables of level 0 that call for a compaction.
    pub l0_trigger: u32,
}

impl ModelSizes {
    fn table_records(&self) -> usize {
        self.page_records as usize * self.table_pages as usize
    }

    fn pages(&self, records: &[Record]) -> u64 {
        records.len().div_ceil(self.page_records as usize) as u64
    }

    /// Capacity of a level from 1 on.
    fn capacity_pages(&self, level: usize) -> u64 {
        u64::from(self.level1_pages) * u64::from(self.size_ratio).pow(level as u32 - 1)
    }
}

/// Pages that a model wrote and read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ModelCounts {
    /// Writes of users.
    pub puts: u64,
    /// Pages written, metadata included.
    pub written_pages: u64,
    /// Gets.
    pub gets: u64,
    /// Pages read for gets, metadata included.
    pub get_pages: u64,
    /// Most pages that tables had reserved at one time, metadata included.
    pub most_reserved_pages: u64,
}

/// A model of a tree.
pub trait Model {
    /// Writes a key; its version is the number of the write, from 0 on.
    fn put(&mut self, key: u64);
    /// The newest version of a key.
    fn get(&mut self, key: u64) -> Option<u64>;
    /// Its counts so far.
    fn counts(&self) -> ModelCounts;
}

/// Key and version.
type Record = (u64, u64);

/// A table of a model.
trait ModelTable: Sized {
    /// The table of some records, at least one.
    fn of(records: Vec<Record>) -> Self;
    /// Pages of keys and values.
    fn pages(&self, sizes: &ModelSizes) -> u64;
    /// Pages that it keeps from others, metadata included.
    fn reserved_pages(&self, sizes: &ModelSizes) -> u64;
    /// Orders the tables of a level; they sink in turn.
    fn turn(&self) -> u64;
}

/// What the models have in common: a memtable, levels that fill up, and who sinks next.
#[derive(Debug)]
struct Levels<T> {
    sizes: ModelSizes,
    memtable: BTreeMap<u64, u64>,
    /// Level 0 oldest first, the others by key.
    tables: Vec<Vec<T>>,
    /// Per level, the turn of the table that sank last.
    cursors: Vec<u64>,
    counts: ModelCounts,
}

impl<T: ModelTable> Levels<T> {
    fn new(sizes: ModelSizes) -> Levels<T> {
        let (memtable, counts) = (BTreeMap::new(), ModelCounts::default());
        Levels { sizes, memtable, tables: vec![Vec::new()], cursors: vec![0], counts }
    }

    /// Adds a version. A full memtable becomes a table, and what is too large is compacted.
    fn put(&mut self, key: u64, compact: impl Fn(&mut Levels<T>, usize)) {
        self.memtable.insert(key, self.counts.puts);
        self.counts.puts += 1;
        if self.memtable.len() < self.sizes.table_records() {
            return;
        }
        let records = std::mem::take(&mut self.memtable).into_iter().collect();
        let table = self.write_table(records);
        self.tables[0].push(table);
        while let Some(level) = self.too_large() {
            compact(self, level);
        }
        let tables = self.tables.iter().flatten();
        let pages = tables.map(|table| table.reserved_pages(&self.sizes)).sum();
        self.counts.most_reserved_pages = self.counts.most_reserved_pages.max(pages);
    }

    /// Writes the pages of a table and its metadata page.
    fn write_table(&mut self, records: Vec<Record>) -> T {
        self.counts.written_pages += self.sizes.pages(&records) + 1;
        T::of(records)
    }

    /// Begins a get, and answers it if the memtable has a version.
    fn begin_get(&mut self, key: u64) -> Option<u64> {
        self.counts.gets += 1;
        self.memtable.get(&key).copied()
    }

    /// The shallowest level that is over its size. Reserved space does not count.
    fn too_large(&self) -> Option<usize> {
        if self.tables[0].len() >= self.sizes.l0_trigger as usize {
            return Some(0);
        }
        (1..self.tables.len()).find(|&level| {
            let pages: u64 = self.tables[level].iter().map(|table| table.pages(&self.sizes)).sum();
            pages > self.sizes.capacity_pages(level)
        })
    }

    /// Takes what sinks, and makes a level for it: all of level 0, or the next table in turn.
    fn take_victims(&mut self, level: usize) -> Vec<T> {
        if self.tables.len() == level + 1 {
            self.tables.push(Vec::new());
            self.cursors.push(0);
        }
        let tables = &mut self.tables[level];
        if level == 0 {
            return std::mem::take(tables);
        }
        let next = tables.partition_point(|table| table.turn() <= self.cursors[level]);
        let victim = tables.remove(if next == tables.len() { 0 } else { next });
        self.cursors[level] = victim.turn();
        vec![victim]
    }
}

/// The newest version of each key, sorted.
fn compacted(runs: impl IntoIterator<Item = Vec<Record>>) -> Vec<Record> {
    let mut records: Vec<Record> = runs.into_iter().flatten().collect();
    records.sort_unstable_by_key(|(key, version)| (*key, u64::MAX - version));
    records.dedup_by_key(|(key, _)| *key);
    records
}

/// Looks a key up in sorted records: the version, and whether a page had to be read for it. No
/// filters: a page is read if its range has the key.
fn look_up(sizes: &ModelSizes, records: &[Record], key: u64) -> (Option<u64>, u64) {
    let at = records.partition_point(|(other, _)| *other < key);
    let page = at - at % sizes.page_records as usize;
    let is_read = records.get(at).is_some() && records[page].0 <= key;
    let version = records.get(at).filter(|(other, _)| *other == key).map(|(_, version)| *version);
    (version, u64::from(is_read))
}
