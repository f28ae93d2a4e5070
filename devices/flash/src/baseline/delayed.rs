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

impl ModelTable for Virtual {
    fn of(records: Vec<Record>) -> Virtual {
        let (lo, hi) = (records[0].0, records[records.len() - 1].0);
        Virtual { lo, hi, reals: vec![records] }
    }

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
}

impl Levels<Virtual> {
    fn compact(&mut self, level: usize, most_tables: usize) {
        let uppers = self.take_victims(level);
        let (lo, hi) = hull(&uppers);
        let below = &mut self.tables[level + 1];
        let from = below.partition_point(|table| table.hi < lo);
        let to = below.partition_point(|table| table.lo <= hi);
        let is_move = uppers.len() == 1 && from == to;
        let lowers: Vec<Virtual> = below.drain(from..to).collect();
        let involved = uppers.into_iter().rev().chain(lowers).collect();
        let most_tables = if level > 0 { most_tables } else { 0 };
        let outputs = if is_move { involved } else { self.combine(involved, most_tables) };
        self.tables[level + 1].splice(from..from, outputs);
    }

    /// One virtual table of so many at most, or the tables that all tables behind the virtual ones
    /// make together.
    fn combine(&mut self, involved: Vec<Virtual>, most_tables: usize) -> Vec<Virtual> {
        let (lo, hi) = hull(&involved);
        let reals: Vec<Vec<Record>> = involved.into_iter().flat_map(|table| table.reals).collect();
        if reals.len() <= most_tables {
            self.counts.written_pages += 1;
            return vec![Virtual { lo, hi, reals }];
        }
        let records = compacted(reals);
        let tables = records.chunks(self.sizes.table_records());
        tables.map(|table| self.write_table(table.to_vec())).collect()
    }
}

impl Model for DelayedTree {
    fn put(&mut self, key: u64) {
        self.levels.put(key, |levels, level| levels.compact(level, self.most_tables));
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
        for real in newest.chain(deeper).flat_map(|table| &table.reals) {
            if real.first().is_none_or(|(lo, _)| *lo <= key)
                && real.last().is_none_or(|(hi, _)| *hi >= key)
            {
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

/// Smallest and largest key of some tables.
fn hull(tables: &[Virtual]) -> (u64, u64) {
    let lo = tables.iter().map(|table| table.lo).min().unwrap_or(0);
    (lo, tables.iter().map(|table| table.hi).max().unwrap_or(0))
}
