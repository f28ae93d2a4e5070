//! lLSM: a table has reserved space. A compaction splits its victim by the ranges of the tables
//! below and appends one segment to each. A table that overflows is compacted, and split in halves
//! if it is still too large then.

use super::{Levels, Model, ModelCounts, ModelSizes, ModelTable, Record, compacted, look_up};

/// A table: from `lo` up to the next table's. The first of a level begins at the smallest key.
#[derive(Debug)]
struct Table {
    lo: u64,
    /// Oldest first.
    segments: Vec<Vec<Record>>,
}

impl ModelTable for Table {
    fn of(records: Vec<Record>) -> Table {
        Table { lo: records[0].0, segments: vec![records] }
    }

    fn pages(&self, sizes: &ModelSizes) -> u64 {
        self.segments.iter().map(|segment| sizes.pages(segment)).sum()
    }

    fn reserved_pages(&self, sizes: &ModelSizes) -> u64 {
        u64::from(sizes.table_pages + 1)
    }

    fn turn(&self) -> u64 {
        self.lo
    }
}

/// A tree with lightweight compaction. Every table reserves the pages of a full one.
#[derive(Debug)]
pub struct LightTree {
    levels: Levels<Table>,
}

impl LightTree {
    /// An empty tree.
    pub fn new(sizes: ModelSizes) -> LightTree {
        LightTree { levels: Levels::new(sizes) }
    }
}

impl Levels<Table> {
    fn compact(&mut self, level: usize) {
        let victims = self.take_victims(level);
        if level > 0 && self.tables[level + 1].is_empty() {
            self.tables[level + 1] = victims;
            return;
        }
        let records = compacted(victims.into_iter().flat_map(|table| table.segments));
        let mut lowers = std::mem::take(&mut self.tables[level + 1]);
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
        self.tables[level + 1] = outputs;
    }

    /// Appends a segment to a table and writes the table's metadata, or rewrites the table.
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
        let records = compacted(table.segments);
        let pieces = records.len().div_ceil(self.sizes.table_records());
        for piece in records.chunks(records.len().div_ceil(pieces)) {
            outputs.push(self.write_table(piece.to_vec()));
        }
    }
}

impl Model for LightTree {
    fn put(&mut self, key: u64) {
        self.levels.put(key, Levels::compact);
    }

    fn get(&mut self, key: u64) -> Option<u64> {
        if let Some(version) = self.levels.begin_get(key) {
            return Some(version);
        }
        let Levels { sizes, tables, counts, .. } = &mut self.levels;
        let newest = tables[0].iter().rev().filter(|table| {
            let (first, last) = (table.segments[0].first(), table.segments[0].last());
            first.is_some_and(|(lo, _)| *lo <= key) && last.is_some_and(|(hi, _)| *hi >= key)
        });
        let deeper = tables[1..].iter().filter_map(|tables| tables.get(owner(tables, key)));
        for table in newest.chain(deeper) {
            counts.get_pages += 1;
            for segment in table.segments.iter().rev() {
                let (version, pages) = look_up(sizes, segment, key);
                counts.get_pages += pages;
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

/// The table of a level whose range has the key; keys before all tables are the first one's.
fn owner(tables: &[Table], key: u64) -> usize {
    tables.partition_point(|table| table.lo <= key).saturating_sub(1)
}
