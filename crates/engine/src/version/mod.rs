//! The tree at one moment: which tables make it up, and the log of edits that says so.
//!
//! * [`Version`]: an immutable shape with its open tables; readers hold one by count.
//! * [`manifest`]: the edit log, sole commit point of the store.
//! * [`record`]: how edits are encoded; `pending`: the plans in them.
//! * [`handle`]: a table file with a life time; the last holder of an obsolete one removes it.

pub mod handle;
pub mod manifest;
mod pending;
pub mod record;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::Arc;

use runstone_policy::options::Charge;
use runstone_policy::plan::Heat;
use runstone_policy::shape::{Edit, Level, Shape, Table, TableId};

use crate::error::{Error, Result};
use crate::key::{SeqNo, head, seek_trailer, seq_of};
use crate::table::block::{Block, Found};
use crate::table::reader::ProbeStats;
use handle::TableHandle;

/// Tables of one run, for searching.
#[derive(Debug)]
pub struct RunTables {
    /// Heads of the tables' largest keys: most searches end here.
    max_heads: Vec<u64>,
    /// In key order.
    pub tables: Vec<Arc<TableHandle>>,
}

/// One level, for searching.
#[derive(Debug)]
pub enum ReadLevel {
    /// Runs, newest first.
    Runs(Vec<Arc<RunTables>>),
    /// Tables that may overlap.
    Overlapping(IntervalIndex),
}

/// An immutable tree.
#[derive(Debug, Default)]
pub struct Version {
    /// Metadata, as policies see it.
    pub shape: Shape,
    /// The same tables, opened for reading.
    pub levels: Vec<ReadLevel>,
    handles: BTreeMap<TableId, Arc<TableHandle>>,
}

impl Version {
    /// The version of `shape`; `open` gives handles of tables that are not in `self` yet.
    pub fn next(
        &self,
        shape: Shape,
        mut open: impl FnMut(&Arc<Table>) -> Arc<TableHandle>,
    ) -> Version {
        let mut handles = BTreeMap::new();
        for (_, table) in shape.tables() {
            let handle = match (self.handles.get(&table.id), shape.trims.get(&table.id)) {
                (Some(known), _) if known.meta().min_key == table.min_key => Arc::clone(known),
                (Some(known), _) => Arc::new(known.trimmed(Arc::clone(table))),
                (None, None) => open(table),
                (None, Some(file_min_key)) => {
                    let whole = Table { min_key: file_min_key.clone(), ..(**table).clone() };
                    Arc::new(open(&Arc::new(whole)).trimmed(Arc::clone(table)))
                }
            };
            handles.insert(table.id, handle);
        }
        let levels = shape.levels.iter().map(|level| read_level(level, &handles)).collect();
        Version { shape, levels, handles }
    }

    /// Applies an edit.
    pub fn apply(&self, edit: &Edit) -> Result<Shape> {
        self.shape.apply(edit).map_err(|bad| {
            Error::corruption("manifest", 0, format!("an edit does not fit the tree: {bad}"))
        })
    }

    /// The handle of a table.
    pub fn handle(&self, id: TableId) -> Option<&Arc<TableHandle>> {
        self.handles.get(&id)
    }

    /// The access counters of tables in overlapping levels that have reached `least`, by what is
    /// charged. O(tables of those levels).
    pub fn heat(&self, charge: Charge, least: u64) -> Heat {
        let overlapping = self.levels.iter().filter_map(|level| match level {
            ReadLevel::Overlapping(index) => Some(&index.tables),
            ReadLevel::Runs(_) => None,
        });
        let counts = overlapping.flatten().map(|table| (table.meta().id, table.accesses(charge)));
        Heat { accesses: counts.filter(|(_, count)| *count >= least).collect() }
    }

    /// All handles, by table id.
    pub fn handles(&self) -> impl Iterator<Item = &Arc<TableHandle>> {
        self.handles.values()
    }

    /// The newest entry of `key` visible at `seq`. Levels from shallow to deep; the first hit wins
    /// across levels and runs (I1), rule I3 holds inside an overlapping level.
    pub fn get(
        &self,
        key: &[u8],
        hash: u64,
        seq: SeqNo,
        stats: &mut ProbeStats,
    ) -> Result<Option<(Found, Arc<Block>)>> {
        let trailer = seek_trailer(seq);
        let key_head = head(key, 0);
        for (index, level) in self.levels.iter().enumerate() {
            let hit = match level {
                ReadLevel::Runs(runs) => {
                    let mut hit = None;
                    for run in runs {
                        if let Some(table) = run.find(key, key_head) {
                            hit = table.reader()?.get(key, hash, trailer, stats)?;
                            if hit.is_some() {
                                break;
                            }
                        }
                    }
                    hit
                }
                ReadLevel::Overlapping(index) => index.get(key, hash, seq, stats)?,
            };
            if hit.is_some() {
                stats.hit_level = Some(index);
                return Ok(hit);
            }
        }
        Ok(None)
    }
}

impl RunTables {
    /// Tables with disjoint ranges, in key order.
    pub fn new(tables: Vec<Arc<TableHandle>>) -> RunTables {
        let max_heads = tables.iter().map(|table| head(&table.meta().max_key, 0)).collect();
        RunTables { max_heads, tables }
    }

    /// The table whose bounds hold `key`. O(log tables).
    #[inline]
    pub fn find(&self, key: &[u8], key_head: u64) -> Option<&Arc<TableHandle>> {
        let table = self.tables.get(self.lower_bound(key, key_head))?;
        (*table.meta().min_key <= *key).then_some(table)
    }

    /// Index of the first table whose largest key is >= `key`.
    #[inline]
    pub fn lower_bound(&self, key: &[u8], key_head: u64) -> usize {
        let mut at = self.max_heads.partition_point(|word| *word < key_head);
        if self.max_heads.get(at) == Some(&key_head) {
            let equal = self.max_heads[at..].partition_point(|word| *word == key_head);
            let run = &self.tables[at..at + equal];
            at += run.partition_point(|table| *table.meta().max_key < *key);
        }
        at
    }
}

fn read_level(level: &Level, handles: &BTreeMap<TableId, Arc<TableHandle>>) -> ReadLevel {
    let lookup = |table: &Arc<Table>| Arc::clone(&handles[&table.id]);
    match level {
        Level::Runs(runs) => ReadLevel::Runs(
            runs.iter()
                .map(|run| Arc::new(RunTables::new(run.tables.iter().map(lookup).collect())))
                .collect(),
        ),
        Level::Overlapping(tables) => {
            ReadLevel::Overlapping(IntervalIndex::new(tables.iter().map(lookup).collect()))
        }
    }
}

/// Splits tables, sorted by smallest key, into as few rows of disjoint tables as possible: as many
/// as overlap at the deepest point. Each table joins the row that ended first; if even that row
/// overlaps it, all rows do, so a new one is needed (interval partitioning). The order among rows
/// says nothing about age. O(n log rows).
pub(crate) fn chains(tables: Vec<Arc<TableHandle>>) -> Vec<Vec<Arc<TableHandle>>> {
    let mut rows: Vec<Vec<Arc<TableHandle>>> = Vec::new();
    let mut ends: BinaryHeap<Reverse<(Box<[u8]>, usize)>> = BinaryHeap::new();
    for table in tables {
        let max_key = table.meta().max_key.clone();
        let free = ends.peek().is_some_and(|Reverse((end, _))| *end < table.meta().min_key);
        let row = match if free { ends.pop() } else { None } {
            Some(Reverse((_, row))) => row,
            None => {
                rows.push(Vec::new());
                rows.len() - 1
            }
        };
        rows[row].push(table);
        ends.push(Reverse((max_key, row)));
    }
    rows
}

/// Tables that may overlap, cut into elementary intervals at all bounds, each listing the tables
/// that cover it by `max_seq` descending (spec: merge policies §3, read index).
#[derive(Debug)]
pub struct IntervalIndex {
    /// All tables, in the shape's order.
    pub tables: Vec<Arc<TableHandle>>,
    /// The same tables as few runs: what scans and merges walk.
    pub chains: Vec<Arc<RunTables>>,
    /// Heads of the starts' keys: most searches end here.
    heads: Vec<u64>,
    /// Start of each interval; a start flagged `true` lies just behind its key.
    starts: Vec<(Box<[u8]>, bool)>,
    /// Per interval: indices into `tables`.
    covers: Vec<Vec<u32>>,
}

impl IntervalIndex {
    /// Builds the index. O(n log n + covers).
    pub fn new(tables: Vec<Arc<TableHandle>>) -> IntervalIndex {
        let mut starts: Vec<(Box<[u8]>, bool)> = Vec::new();
        for table in &tables {
            starts.push((table.meta().min_key.clone(), false));
            starts.push((table.meta().max_key.clone(), true));
        }
        starts.sort();
        starts.dedup();
        let mut covers = vec![Vec::new(); starts.len()];
        for (i, table) in (0u32..).zip(&tables) {
            let from = starts.partition_point(|s| *s < (table.meta().min_key.clone(), false));
            let to = starts.partition_point(|s| *s < (table.meta().max_key.clone(), true));
            for cover in &mut covers[from..to] {
                cover.push(i);
            }
        }
        for cover in &mut covers {
            cover.sort_by_key(|i| std::cmp::Reverse(tables[*i as usize].meta().max_seq));
        }
        let chains = chains(tables.clone()).into_iter().map(RunTables::new).map(Arc::new).collect();
        let heads = starts.iter().map(|(start, _)| head(start, 0)).collect();
        IntervalIndex { tables, chains, heads, starts, covers }
    }

    /// The tables that cover `key`, by `max_seq` descending.
    pub fn candidates(&self, key: &[u8]) -> impl ExactSizeIterator<Item = &Arc<TableHandle>> {
        let key_head = head(key, 0);
        let mut at = self.heads.partition_point(|word| *word < key_head);
        if self.heads.get(at) == Some(&key_head) {
            let equal = self.heads[at..].partition_point(|word| *word == key_head);
            let behind_key = |(start, behind): &(Box<[u8]>, bool)| match (**start).cmp(key) {
                std::cmp::Ordering::Less => true,
                std::cmp::Ordering::Equal => !behind,
                std::cmp::Ordering::Greater => false,
            };
            at += self.starts[at..at + equal].partition_point(behind_key);
        }
        let cover = at.checked_sub(1).map_or(&[][..], |i| &self.covers[i]);
        cover.iter().map(|i| &self.tables[*i as usize])
    }

    /// Rule I3: visit by `max_seq` descending, skip tables that begin after the snapshot, keep the
    /// largest hit, stop when the next table cannot hold a newer one.
    fn get(
        &self,
        key: &[u8],
        hash: u64,
        seq: SeqNo,
        stats: &mut ProbeStats,
    ) -> Result<Option<(Found, Arc<Block>)>> {
        let mut best: Option<(Found, Arc<Block>)> = None;
        let candidates = self.candidates(key);
        let overlap = candidates.len() > 1;
        for table in candidates {
            if best.as_ref().is_some_and(|(found, _)| table.meta().max_seq < seq_of(found.trailer))
            {
                break;
            }
            if table.meta().min_seq > seq {
                continue;
            }
            let reads = stats.block_reads;
            let hit = table.reader()?.get(key, hash, seek_trailer(seq), stats)?;
            if overlap {
                let in_vain = hit.is_none() && stats.block_reads > reads;
                stats.hot |= table.charge(in_vain);
            }
            if hit.is_some() && seeded!(FirstHitInOverlappingLevel) {
                return Ok(hit);
            }
            if let Some((found, block)) = hit
                && best.as_ref().is_none_or(|(old, _)| old.trailer < found.trailer)
            {
                best = Some((found, block));
            }
        }
        Ok(best)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::Cache;
    use crate::key::{Kind, pack};
    use crate::options::KeyspaceOptions;
    use crate::table::builder::TableBuilder;
    use crate::table::filter;
    use crate::version::handle::TableContext;
    use runstone_policy::overlapping::OverlappingTables;
    use runstone_storage::MemoryStorage;

    /// A level 2 of overlapping tables; each is a list of key and sequence number, which is also
    /// the value.
    fn version(tables: &[&[(&str, SeqNo)]]) -> Version {
        let context = Arc::new(TableContext {
            storage: Arc::new(MemoryStorage::new()),
            cache: Arc::new(Cache::new(1 << 20)),
            store_uid: 7,
            purge: Default::default(),
            disk: Default::default(),
        });
        let write = |(id, entries): (u64, &&[(&str, SeqNo)])| {
            let layout = KeyspaceOptions::default().layout(&Shape::default(), 2);
            let mut builder = TableBuilder::create(&context, id, layout).unwrap();
            for (key, seq) in *entries {
                let value = seq.to_string();
                builder.add(key.as_bytes(), pack(*seq, Kind::Put), value.as_bytes()).unwrap();
            }
            Arc::new(builder.finish().unwrap())
        };
        let tables: Vec<Arc<Table>> = (1..).zip(tables).map(write).collect();
        let level = Level::Overlapping(OverlappingTables::new(tables));
        let empty = || Level::Runs(Vec::new());
        let shape = Shape { levels: vec![empty(), empty(), level], ..Shape::default() };
        Version::default().next(shape, |table| {
            Arc::new(TableHandle::new(Arc::clone(&context), Arc::clone(table)))
        })
    }

    fn get(version: &Version, key: &str, seq: SeqNo) -> Option<SeqNo> {
        let (key, mut stats) = (key.as_bytes(), ProbeStats::default());
        let hit = version.get(key, filter::hash(key), seq, &mut stats).unwrap();
        hit.map(|(found, _)| seq_of(found.trailer))
    }

    /// Spec, merge policies §3: X, Y and Z were merged into one table, Q was moved beside it. The
    /// merged table has the larger sequence numbers, and an older version of q1 than Q has. By the
    /// paper's file numbers, or by `max_seq` and the first hit, a read finds the stale one.
    #[test]
    fn x_y_z_q() {
        let merged: &[(&str, SeqNo)] =
            &[("p1", 300), ("p2", 290), ("p3", 100), ("p8", 250), ("p9", 390), ("q1", 101)];
        let version = version(&[merged, &[("q1", 201)]]);
        assert_eq!(get(&version, "q1", 1000), Some(201));
        assert_eq!(get(&version, "q1", 200), Some(101), "as of before Q was written");
        assert_eq!(get(&version, "q1", 100), None);
        assert_eq!(get(&version, "p9", 1000), Some(390));
    }

    #[test]
    fn gets_charge_tables_only_where_they_overlap() {
        let version = version(&[&[("a", 1), ("m", 2)], &[("f", 3), ("z", 4)]]);
        for _ in 0..3 {
            get(&version, "b", 9);
            get(&version, "h", 9);
            get(&version, "y", 9);
        }
        let heat = version.heat(Charge::Probes, 1);
        assert_eq!(heat.accesses.into_iter().collect::<Vec<_>>(), [(1, 3), (2, 3)]);
        assert!(version.heat(Charge::Probes, 4).accesses.is_empty());
        assert!(version.heat(Charge::BlockReads, 1).accesses.is_empty(), "the filters said no");
    }
}
