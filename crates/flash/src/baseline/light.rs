//! lLSM: a table has reserved space. A compaction splits its victim by the ranges of the tables
//! below and appends one segment to each; a table that overflows is merged, and split in halves if
//! it is too large then still.

use super::{Memtable, Model, ModelCounts, ModelSizes, Record, look_up, merged};

/// A table: from `lo` up to the next table's. The first of a level begins at the smallest key.
#[derive(Debug)]
struct Table {
    lo: u64,
    /// Oldest first.
    segments: Vec<Vec<Record>>,
}

impl Table {
    /// Over one segment, which is not empty.
    fn of(records: Vec<Record>) -> Table {
        Table { lo: records[0].0, segments: vec![records] }
    }

    fn pages(&self, sizes: &ModelSizes) -> u64 {
        self.segments.iter().map(|segment| sizes.pages(segment)).sum()
    }
}

/// See the module docs.
#[derive(Debug)]
pub struct LightTree {
    sizes: ModelSizes,
    memtable: Memtable,
    /// Level 0 oldest first, the others by key.
    levels: Vec<Vec<Table>>,
    /// Per level, the beginning of the table that sank last.
    cursors: Vec<u64>,
    counts: ModelCounts,
}

impl LightTree {
    /// An empty tree. Every table reserves the pages of a full one.
    pub fn new(sizes: ModelSizes) -> LightTree {
        LightTree {
            sizes,
            memtable: Memtable::default(),
            levels: vec![Vec::new()],
            cursors: vec![0],
            counts: ModelCounts::default(),
        }
    }

    /// A level that is over its size, the shallowest first. Reserved space does not count.
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
        let victims = self.take_victims(level);
        if level > 0 && self.levels[level + 1].is_empty() {
            self.levels[level + 1] = victims;
            return;
        }
        let records = merged(victims.into_iter().flat_map(|table| table.segments));
        let mut lowers = std::mem::take(&mut self.levels[level + 1]);
        if lowers.is_empty() {
            lowers.push(Table { lo: 0, segments: Vec::new() });
        }
        let mut outputs = Vec::with_capacity(lowers.len());
        let ends: Vec<u64> = lowers.iter().skip(1).map(|table| table.lo).collect();
        let mut rest = records.as_slice();
        for (at, table) in lowers.into_iter().enumerate() {
            let is_inside = |record: &Record| ends.get(at).is_none_or(|end| record.0 < *end);
            let (segment, after) = rest.split_at(rest.partition_point(is_inside));
            rest = after;
            self.append(table, segment, &mut outputs);
        }
        self.levels[level + 1] = outputs;
    }

    /// All of level 0; of another level the next table in turn.
    fn take_victims(&mut self, level: usize) -> Vec<Table> {
        let tables = &mut self.levels[level];
        if level == 0 {
            return std::mem::take(tables);
        }
        let next = tables.partition_point(|table| table.lo <= self.cursors[level]);
        let victim = tables.remove(if next == tables.len() { 0 } else { next });
        self.cursors[level] = victim.lo;
        vec![victim]
    }

    /// Writes a segment behind a table, with the table's metadata, or the table anew.
    fn append(&mut self, mut table: Table, segment: &[Record], outputs: &mut Vec<Table>) {
        if segment.is_empty() {
            outputs.push(table);
            return;
        }
        let segment_pages = self.sizes.pages(segment);
        if table.pages(&self.sizes) + segment_pages <= u64::from(self.sizes.table_pages) {
            self.counts.written_pages += segment_pages + 1;
            table.segments.push(segment.to_vec());
            outputs.push(table);
            return;
        }
        table.segments.push(segment.to_vec());
        let records = merged(table.segments);
        let pieces = records.len().div_ceil(self.sizes.table_records());
        for piece in records.chunks(records.len().div_ceil(pieces)) {
            self.counts.written_pages += self.sizes.pages(piece) + 1;
            outputs.push(Table::of(piece.to_vec()));
        }
    }

    fn note_reserved(&mut self) {
        let tables = self.levels.iter().map(Vec::len).sum::<usize>() as u64;
        let pages = tables * u64::from(self.sizes.table_pages + 1);
        self.counts.most_reserved_pages = self.counts.most_reserved_pages.max(pages);
    }
}

impl Model for LightTree {
    fn put(&mut self, key: u64) {
        let full = self.memtable.insert(&self.sizes, key, self.counts.puts);
        self.counts.puts += 1;
        if let Some(records) = full {
            self.counts.written_pages += self.sizes.pages(&records) + 1;
            self.levels[0].push(Table::of(records));
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
        let newest = self.levels[0].iter().rev().filter(|table| {
            let (first, last) = (table.segments[0].first(), table.segments[0].last());
            first.is_some_and(|(lo, _)| *lo <= key) && last.is_some_and(|(hi, _)| *hi >= key)
        });
        let deeper = self.levels[1..].iter().filter_map(|tables| tables.get(owner(tables, key)));
        for table in newest.chain(deeper) {
            self.counts.get_pages += 1;
            for segment in table.segments.iter().rev() {
                let (version, pages) = look_up(&self.sizes, segment, key);
                self.counts.get_pages += pages;
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

/// The table of a level whose range has the key; keys before all tables are the first one's.
fn owner(tables: &[Table], key: u64) -> usize {
    tables.partition_point(|table| table.lo <= key).saturating_sub(1)
}
