//! dLSM: a compaction of few tables only notes which tables stand together for a range (a virtual
//! table). A compaction of many compacts all tables behind every virtual table that takes part. A
//! compaction of level 0 always rewrites: its tables span all keys, and a virtual table of them
//! would take the whole next level with it. The tables behind a virtual one are known without
//! reading.

use super::{Levels, Model, ModelCounts, ModelSizes, ModelTable, Record, compacted, look_up};

/// The tables that stand for a range, newest first; together they have its keys.
#[derive(Debug)]
struct Virtual {
    lo: u64,
    hi: u64,
    reals: Vec<Vec<Record>>,
}

impl Virtual {
    /// A virtual table of one table, which is not empty.
    fn of(records: Vec<Record>) -> Virtual {
        let (lo, hi) = (records[0].0, records[records.len() - 1].0);
        Virtual { lo, hi, reals: vec![records] }
    }
}

impl ModelTable for Virtual {
    fn pages(&self, sizes: &ModelSizes) -> u64 {
        self.reals.iter().map(|real| sizes.pages(real)).sum()
    }

    fn reserved_pages(&self, sizes: &ModelSizes) -> u64 {
        self.pages(sizes) + self.reals.len() as u64
    }

    fn turn(&self) -> u64 {
        self.hi
    }
}

/// A tree with delayed compaction. With `most_tables` 0 it is an ordinary leveled tree.
#[derive(Debug)]
pub struct DelayedTree {
    levels: Levels<Virtual>,
    most_tables: usize,
}

impl DelayedTree {
    /// An empty tree. It rewrites where more than `most_tables` tables stand behind a compaction.
    pub fn new(sizes: ModelSizes, most_tables: usize) -> DelayedTree {
        DelayedTree { levels: Levels::new(sizes), most_tables }
    }

    fn compact(&mut self, level: usize) {
        let uppers = self.levels.take_victims(level);
        let lo = uppers.iter().map(|table| table.lo).min().unwrap_or(0);
        let hi = uppers.iter().map(|table| table.hi).max().unwrap_or(0);
        let below = &mut self.levels.tables[level + 1];
        let from = below.partition_point(|table| table.hi < lo);
        let to = below.partition_point(|table| table.lo <= hi);
        let is_move = uppers.len() == 1 && from == to;
        let lowers: Vec<Virtual> = below.drain(from..to).collect();
        let involved = uppers.into_iter().rev().chain(lowers).collect();
        let outputs = if is_move { involved } else { self.combine(involved, level > 0) };
        self.levels.tables[level + 1].splice(from..from, outputs);
    }

    /// One virtual table, or the tables that all tables behind the virtual ones make together.
    fn combine(&mut self, involved: Vec<Virtual>, may_delay: bool) -> Vec<Virtual> {
        let lo = involved.iter().map(|table| table.lo).min().unwrap_or(0);
        let hi = involved.iter().map(|table| table.hi).max().unwrap_or(0);
        let reals: Vec<Vec<Record>> = involved.into_iter().flat_map(|table| table.reals).collect();
        if may_delay && reals.len() <= self.most_tables {
            self.levels.counts.written_pages += 1;
            return vec![Virtual { lo, hi, reals }];
        }
        let records = compacted(reals);
        let tables = records.chunks(self.levels.sizes.table_records());
        tables.map(|table| self.write_table(table.to_vec())).collect()
    }

    fn write_table(&mut self, records: Vec<Record>) -> Virtual {
        self.levels.counts.written_pages += self.levels.sizes.pages(&records) + 1;
        Virtual::of(records)
    }
}

impl Model for DelayedTree {
    fn put(&mut self, key: u64) {
        if let Some(records) = self.levels.insert(key) {
            let table = self.write_table(records);
            self.levels.tables[0].push(table);
            while let Some(level) = self.levels.too_large() {
                self.compact(level);
            }
            self.levels.note_reserved();
        }
    }

    fn get(&mut self, key: u64) -> Option<u64> {
        if let Some(version) = self.levels.begin_get(key) {
            return Some(version);
        }
        let Levels { sizes, tables, counts, .. } = &mut self.levels;
        let in_range = |table: &&Virtual| (table.lo..=table.hi).contains(&key);
        let newest = tables[0].iter().rev().filter(in_range);
        let deeper = tables[1..].iter().filter_map(|tables| {
            tables.get(tables.partition_point(|table| table.hi < key)).filter(in_range)
        });
        for table in newest.chain(deeper) {
            for real in &table.reals {
                if real.first().is_some_and(|(lo, _)| *lo > key)
                    || real.last().is_some_and(|(hi, _)| *hi < key)
                {
                    continue;
                }
                let (version, pages) = look_up(sizes, real, key);
                counts.get_pages += 1 + pages;
                if version.is_some() {
                    return version;
                }
            }
        }
        None
    }

    fn counts(&self) -> ModelCounts {
        self.levels.counts
    }
}
