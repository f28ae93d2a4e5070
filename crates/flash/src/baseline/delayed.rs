//! dLSM: a compaction of few tables only notes which tables stand together for a range (a virtual
//! table); one of many merges all tables behind every virtual table that takes part. Compactions of
//! level 0 always merge: its tables span all keys, and a virtual table of them would take the whole
//! next level with it. Which tables are behind a virtual one is known without reading.

use super::{Memtable, Model, ModelCounts, ModelSizes, Record, look_up, merged};

/// The tables that stand for a range, newest first; together they have its keys.
#[derive(Debug)]
struct Virtual {
    lo: u64,
    hi: u64,
    reals: Vec<Vec<Record>>,
}

impl Virtual {
    /// Over one table, which is not empty.
    fn of(records: Vec<Record>) -> Virtual {
        let (lo, hi) = (records[0].0, records[records.len() - 1].0);
        Virtual { lo, hi, reals: vec![records] }
    }

    fn pages(&self, sizes: &ModelSizes) -> u64 {
        self.reals.iter().map(|real| sizes.pages(real)).sum()
    }
}

/// See the module docs. With `most_tables` 0 it is an ordinary leveled tree.
#[derive(Debug)]
pub struct DelayedTree {
    sizes: ModelSizes,
    most_tables: usize,
    memtable: Memtable,
    /// Level 0 oldest first, the others by key.
    levels: Vec<Vec<Virtual>>,
    /// Per level, the end of the table that sank last.
    cursors: Vec<u64>,
    counts: ModelCounts,
}

impl DelayedTree {
    /// An empty tree that merges when more than `most_tables` tables stand behind a compaction.
    pub fn new(sizes: ModelSizes, most_tables: usize) -> DelayedTree {
        DelayedTree {
            sizes,
            most_tables,
            memtable: Memtable::default(),
            levels: vec![Vec::new()],
            cursors: vec![0],
            counts: ModelCounts::default(),
        }
    }

    /// A level that is over its size, the shallowest first.
    fn too_large(&self) -> Option<usize> {
        if self.levels[0].len() >= self.sizes.l0_trigger as usize {
            return Some(0);
        }
        (1..self.levels.len()).find(|&level| {
            let pages: u64 = self.levels[level].iter().map(|table| table.pages(&self.sizes)).sum();
            pages > self.sizes.capacity_pages(level)
        })
    }

    fn compact(&mut self, level: usize) {
        if self.levels.len() == level + 1 {
            self.levels.push(Vec::new());
            self.cursors.push(0);
        }
        let uppers = self.take_victims(level);
        let lo = uppers.iter().map(|table| table.lo).min().unwrap_or(0);
        let hi = uppers.iter().map(|table| table.hi).max().unwrap_or(0);
        let below = &mut self.levels[level + 1];
        let from = below.partition_point(|table| table.hi < lo);
        let to = below.partition_point(|table| table.lo <= hi);
        let is_move = uppers.len() == 1 && from == to;
        let lowers: Vec<Virtual> = below.drain(from..to).collect();
        let involved = uppers.into_iter().chain(lowers);
        let outputs =
            if is_move { involved.collect() } else { self.combine(involved.collect(), level > 0) };
        self.levels[level + 1].splice(from..from, outputs);
    }

    /// All of level 0, newest first; of another level the next table in turn.
    fn take_victims(&mut self, level: usize) -> Vec<Virtual> {
        let tables = &mut self.levels[level];
        if level == 0 {
            return tables.drain(..).rev().collect();
        }
        let next = tables.partition_point(|table| table.hi <= self.cursors[level]);
        let victim = tables.remove(if next == tables.len() { 0 } else { next });
        self.cursors[level] = victim.hi;
        vec![victim]
    }

    /// One virtual table, or the tables that all reals make together.
    fn combine(&mut self, involved: Vec<Virtual>, may_delay: bool) -> Vec<Virtual> {
        let lo = involved.iter().map(|table| table.lo).min().unwrap_or(0);
        let hi = involved.iter().map(|table| table.hi).max().unwrap_or(0);
        let reals: Vec<Vec<Record>> = involved.into_iter().flat_map(|table| table.reals).collect();
        if may_delay && reals.len() <= self.most_tables {
            self.counts.written_pages += 1;
            return vec![Virtual { lo, hi, reals }];
        }
        let records = merged(reals);
        let tables = records.chunks(self.sizes.table_records());
        tables.map(|table| self.write_table(table.to_vec())).collect()
    }

    fn write_table(&mut self, records: Vec<Record>) -> Virtual {
        self.counts.written_pages += self.sizes.pages(&records) + 1;
        Virtual::of(records)
    }

    fn note_reserved(&mut self) {
        let tables = self.levels.iter().flatten();
        let pages = tables.map(|table| table.pages(&self.sizes) + table.reals.len() as u64).sum();
        self.counts.most_reserved_pages = self.counts.most_reserved_pages.max(pages);
    }
}

impl Model for DelayedTree {
    fn put(&mut self, key: u64) {
        let full = self.memtable.insert(&self.sizes, key, self.counts.puts);
        self.counts.puts += 1;
        if let Some(records) = full {
            let table = self.write_table(records);
            self.levels[0].push(table);
            while let Some(level) = self.too_large() {
                self.compact(level);
            }
            self.note_reserved();
        }
    }

    fn get(&mut self, key: u64) -> Option<u64> {
        self.counts.gets += 1;
        if let Some(version) = self.memtable.0.get(&key) {
            return Some(*version);
        }
        let in_range = |table: &&Virtual| (table.lo..=table.hi).contains(&key);
        let newest = self.levels[0].iter().rev().filter(in_range);
        let deeper = self.levels[1..].iter().filter_map(|tables| {
            tables.get(tables.partition_point(|table| table.hi < key)).filter(in_range)
        });
        for table in newest.chain(deeper) {
            for real in &table.reals {
                if real.first().is_some_and(|(lo, _)| *lo > key)
                    || real.last().is_some_and(|(hi, _)| *hi < key)
                {
                    continue;
                }
                let (version, pages) = look_up(&self.sizes, real, key);
                self.counts.get_pages += 1 + pages;
                if version.is_some() {
                    return version;
                }
            }
        }
        None
    }

    fn counts(&self) -> ModelCounts {
        self.counts
    }
}
