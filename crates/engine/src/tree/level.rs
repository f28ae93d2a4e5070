//! One level of a version, for searching: runs, or an index of tables that may overlap. A level is
//! built from the level of the previous version. A table that stays in its place costs a pointer
//! comparison, and its metadata are not read.

use std::cmp::{Ordering, Reverse};
use std::sync::Arc;

use runstone_policy::overlapping::sublevels;
use runstone_policy::shape::{Level, Run, RunId, Table};

use crate::error::Result;
use crate::keys::{HeadRule, SeqNo, seq_of};
use crate::table::handle::TableHandle;
use crate::table::reader::ProbeStats;
use crate::tree::probe::{Hit, Lookup, MOST_PROBES, Probe};

/// Tables of one run, for searching.
#[derive(Debug)]
pub struct RunTables {
    /// How the heads of the run's keys are computed.
    pub head_rule: HeadRule,
    /// Heads of the tables' largest keys. Most searches end at them.
    max_heads: Vec<u64>,
    /// Tables in key order.
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

/// A level of the previous version: its tables as policies see them, and its form for searching.
#[derive(Clone, Copy)]
pub(super) struct OldLevel<'a> {
    pub(super) level: &'a Level,
    pub(super) read: &'a Arc<ReadLevel>,
}

impl ReadLevel {
    /// Builds the level for searching. `old` is the level that it replaces, and `open` makes
    /// handles of tables that `old` lacks. O(tables) pointer comparisons, and O(log) work for each
    /// change; O(n log n) if tables may overlap and anything changed.
    pub(super) fn next(
        old: Option<OldLevel>,
        level: &Level,
        mut open: impl FnMut(&Arc<Table>) -> Arc<TableHandle>,
    ) -> Arc<ReadLevel> {
        if let Some(old) = old.filter(|old| is_same(old.level, level)) {
            return Arc::clone(old.read);
        }
        Arc::new(match level {
            Level::Runs(runs) => {
                let mut next = |run: &Run| {
                    let old = old.and_then(|old| old.run(run.id));
                    RunTables::next(old, &run.tables, &mut open)
                };
                ReadLevel::Runs(runs.iter().map(&mut next).collect())
            }
            Level::Overlapping(tables) => {
                let old = old.and_then(|old| match (old.level, &**old.read) {
                    (Level::Overlapping(tables), ReadLevel::Overlapping(index)) => {
                        Some((&**tables, &index.tables))
                    }
                    _ => None,
                });
                let places = places(tables, old.map_or(&[], |(tables, _)| tables));
                let handle = |(table, place): (_, Option<usize>)| match (old, place) {
                    (Some((_, handles)), Some(at)) => Arc::clone(&handles[at]),
                    _ => open(table),
                };
                ReadLevel::Overlapping(IntervalIndex::new(
                    tables.iter().zip(places).map(handle).collect(),
                ))
            }
        })
    }
}

impl<'a> OldLevel<'a> {
    /// The run with this id.
    fn run(self, id: RunId) -> Option<(&'a [Arc<Table>], &'a Arc<RunTables>)> {
        let at = self.level.runs().iter().position(|run| run.id == id)?;
        match &**self.read {
            ReadLevel::Runs(runs) => Some((&self.level.runs()[at].tables, runs.get(at)?)),
            ReadLevel::Overlapping(_) => None,
        }
    }
}

/// The tables of a level that another level lacks or has in another form.
pub(super) fn missing<'a>(level: &'a Level, other: &'a Level) -> Vec<&'a Arc<Table>> {
    let of_run = |tables: &'a [Arc<Table>], others: &'a [Arc<Table>]| {
        tables.iter().zip(places(tables, others)).filter(|(_, at)| at.is_none()).map(|(t, _)| t)
    };
    match (level, other) {
        (Level::Overlapping(tables), Level::Overlapping(others)) => {
            of_run(tables, others).collect()
        }
        (Level::Runs(runs), Level::Runs(others)) => {
            let other = |id| others.iter().find(|run| run.id == id).map_or(&[][..], |r| &r.tables);
            runs.iter().flat_map(|run| of_run(&run.tables, other(run.id))).collect()
        }
        _ => level.tables().collect(),
    }
}

/// Whether both levels have the same tables, by pointer, in the same runs.
fn is_same(old: &Level, new: &Level) -> bool {
    let are_same = |old: &[Arc<Table>], new: &[Arc<Table>]| {
        old.len() == new.len() && old.iter().zip(new).all(|(old, new)| Arc::ptr_eq(old, new))
    };
    match (old, new) {
        (Level::Runs(old), Level::Runs(new)) => {
            let is_same =
                |(old, new): (&Run, &Run)| old.id == new.id && are_same(&old.tables, &new.tables);
            old.len() == new.len() && old.iter().zip(new).all(is_same)
        }
        (Level::Overlapping(old), Level::Overlapping(new)) => are_same(old, new),
        _ => false,
    }
}

/// For each of `tables`, its place among `others`. Both are in the order of (`min_key`, id). The
/// metadata of tables are read only where the two lists differ.
fn places<'a>(
    tables: &'a [Arc<Table>],
    others: &'a [Arc<Table>],
) -> impl Iterator<Item = Option<usize>> + 'a {
    let order = |table: &'a Table| (&table.min_key, table.id);
    let mut at = 0;
    tables.iter().map(move |table| {
        while others
            .get(at)
            .is_some_and(|other| !Arc::ptr_eq(other, table) && order(other) < order(table))
        {
            at += 1;
        }
        let is_there = others.get(at).is_some_and(|other| Arc::ptr_eq(other, table));
        at += usize::from(is_there);
        is_there.then(|| at - 1)
    })
}

impl RunTables {
    /// Tables with disjoint ranges, in key order.
    pub fn new(tables: Vec<Arc<TableHandle>>) -> RunTables {
        let head_rule = head_rule(&tables, tables.last());
        let max_heads = tables.iter().map(|table| head_rule.head(&table.meta().max_key)).collect();
        RunTables { head_rule, max_heads, tables }
    }

    /// The old run if nothing changed, otherwise a run with handles of the new tables.
    fn next(
        old: Option<(&[Arc<Table>], &Arc<RunTables>)>,
        tables: &[Arc<Table>],
        mut open: impl FnMut(&Arc<Table>) -> Arc<TableHandle>,
    ) -> Arc<RunTables> {
        let Some((old_tables, old_run)) = old else {
            return Arc::new(RunTables::new(tables.iter().map(open).collect()));
        };
        let places: Vec<Option<usize>> = places(tables, old_tables).collect();
        if old_tables.len() == tables.len() && places.iter().all(Option::is_some) {
            return Arc::clone(old_run);
        }
        let handle = |(table, place): (_, &Option<usize>)| match *place {
            Some(at) => Arc::clone(&old_run.tables[at]),
            None => open(table),
        };
        let handles: Vec<_> = tables.iter().zip(&places).map(handle).collect();
        let head_rule = head_rule(&handles, handles.last());
        if head_rule != old_run.head_rule {
            return Arc::new(RunTables::new(handles));
        }
        let head = |(table, place): (&Arc<TableHandle>, &Option<usize>)| match *place {
            Some(at) => old_run.max_heads[at],
            None => head_rule.head(&table.meta().max_key),
        };
        let max_heads = handles.iter().zip(&places).map(head).collect();
        Arc::new(RunTables { head_rule, max_heads, tables: handles })
    }

    /// The table whose bounds contain `key`. O(log tables).
    #[inline]
    pub fn find(&self, key: &[u8]) -> Option<&Arc<TableHandle>> {
        let table = self.tables.get(self.lower_bound(key))?;
        (*table.meta().min_key <= *key).then_some(table)
    }

    /// Index of the first table whose largest key is >= `key`.
    #[inline]
    pub fn lower_bound(&self, key: &[u8]) -> usize {
        let key_head = self.head_rule.head(key);
        let mut at = self.max_heads.partition_point(|word| *word < key_head);
        if self.max_heads.get(at) == Some(&key_head) {
            let equal = self.max_heads[at..].partition_point(|word| *word == key_head);
            let run = &self.tables[at..at + equal];
            at += run.partition_point(|table| *table.meta().max_key < *key);
        }
        at
    }
}

/// The rule for tables sorted by smallest key. `widest` is a table with the largest key.
fn head_rule(tables: &[Arc<TableHandle>], widest: Option<&Arc<TableHandle>>) -> HeadRule {
    match (tables.first(), widest) {
        (Some(first), Some(widest)) => {
            HeadRule::between(&first.meta().min_key, &widest.meta().max_key)
        }
        _ => HeadRule::WHOLE,
    }
}

/// Splits tables, sorted by smallest key, into as few sublevels as possible. O(n log rows).
pub(crate) fn chains(tables: &[Arc<TableHandle>]) -> Vec<Vec<Arc<TableHandle>>> {
    let handles = |row: &Vec<u32>| row.iter().map(|at| Arc::clone(&tables[*at as usize])).collect();
    rows(tables).iter().map(handles).collect()
}

/// As [`chains`], but as indices into `tables`.
fn rows(tables: &[Arc<TableHandle>]) -> Vec<Vec<u32>> {
    sublevels(tables.iter().map(|table| table.meta()))
}

/// Tables that may overlap. Their bounds cut the key space into elementary intervals. Each interval
/// lists the tables that cover it, by `max_seq` descending.
#[derive(Debug)]
pub struct IntervalIndex {
    /// All tables, in the shape's order.
    pub tables: Vec<Arc<TableHandle>>,
    /// The same tables as a few runs, for scans and compactions.
    pub chains: Vec<Arc<RunTables>>,
    head_rule: HeadRule,
    /// Heads of the bounds' keys. Most searches end at them.
    heads: Vec<u64>,
    /// The start of each interval.
    bounds: Vec<Bound>,
    /// The end of each interval's cover in `covers`. A cover starts where the previous one ends.
    cover_ends: Vec<u32>,
    /// Indices into `tables`.
    covers: Vec<u32>,
    /// Smallest and largest sequence number of each table.
    seqs: Vec<(SeqNo, SeqNo)>,
}

/// One end of a table: its smallest key, or the place just after its largest key. Two tables may
/// share a bound.
#[derive(Clone, Copy, Debug)]
struct Bound {
    table: u32,
    is_behind: bool,
}

impl Bound {
    fn key(self, tables: &[Arc<TableHandle>]) -> &[u8] {
        let meta = tables[self.table as usize].meta();
        if self.is_behind { &meta.max_key } else { &meta.min_key }
    }
}

impl IntervalIndex {
    /// Builds the index of tables sorted by smallest key, in one sweep over their bounds.
    /// O(n log n + covers).
    pub fn new(tables: Vec<Arc<TableHandle>>) -> IntervalIndex {
        let rows = rows(&tables);
        let head_rule = head_rule(&tables, tables.iter().max_by_key(|table| &table.meta().max_key));
        let bounds = sorted_bounds(&tables, &rows, head_rule);
        let chain = |row: Vec<u32>| {
            let handles = row.into_iter().map(|at| Arc::clone(&tables[at as usize]));
            Arc::new(RunTables::new(handles.collect()))
        };
        let seqs = |table: &Arc<TableHandle>| (table.meta().min_seq, table.meta().max_seq);
        let mut index = IntervalIndex {
            chains: rows.into_iter().map(chain).collect(),
            head_rule,
            heads: Vec::with_capacity(bounds.len()),
            bounds: Vec::with_capacity(bounds.len()),
            cover_ends: Vec::with_capacity(bounds.len()),
            covers: Vec::new(),
            seqs: tables.iter().map(seqs).collect(),
            tables,
        };
        // The tables that cover the current place, newest first. Equally new tables are in the
        // order of the shape.
        let mut active: Vec<u32> = Vec::new();
        for (head, bound) in bounds {
            let rank = |table: &u32| (Reverse(index.seqs[*table as usize].1), *table);
            match active.binary_search_by_key(&rank(&bound.table), rank) {
                Ok(at) => _ = active.remove(at),
                Err(at) => active.insert(at, bound.table),
            }
            index.push(head, bound, &active);
        }
        index
    }

    /// Adds an interval that starts at a bound. If the last interval starts at the same place, its
    /// cover is replaced instead.
    fn push(&mut self, head: u64, bound: Bound, cover: &[u32]) {
        let is_same = |last: &Bound| {
            last.is_behind == bound.is_behind && last.key(&self.tables) == bound.key(&self.tables)
        };
        if self.heads.last() == Some(&head) && self.bounds.last().is_some_and(is_same) {
            self.cover_ends.pop();
            self.covers.truncate(self.cover_ends.last().map_or(0, |end| *end as usize));
        } else {
            self.heads.push(head);
            self.bounds.push(bound);
        }
        self.covers.extend_from_slice(cover);
        self.cover_ends.push(self.covers.len() as u32);
    }

    /// The tables that cover `key`, by `max_seq` descending.
    pub(super) fn cover(&self, key: &[u8]) -> &[u32] {
        let key_head = self.head_rule.head(key);
        let mut at = self.heads.partition_point(|word| *word < key_head);
        if self.heads.get(at) == Some(&key_head) {
            let equal = self.heads[at..].partition_point(|word| *word == key_head);
            let is_passed = |bound: &Bound| match bound.key(&self.tables).cmp(key) {
                Ordering::Less => true,
                Ordering::Equal => !bound.is_behind,
                Ordering::Greater => false,
            };
            at += self.bounds[at..at + equal].partition_point(is_passed);
        }
        let end = |at: usize| self.cover_ends.get(at).map_or(0, |end| *end as usize);
        match at.checked_sub(1) {
            Some(at) => &self.covers[at.checked_sub(1).map_or(0, end)..end(at)],
            None => &[],
        }
    }

    /// Given a key that a cursor sampled, charges the newest of the tables that cover the key, if
    /// there are two or more. Returns whether the policy should decide again.
    pub(super) fn charge_sample(&self, key: &[u8]) -> bool {
        match self.cover(key) {
            [newest, _, ..] => self.tables[*newest as usize].charge(false),
            _ => false,
        }
    }

    /// Smallest and largest sequence number of a table of a cover.
    pub(super) fn seqs_of(&self, at: u32) -> (SeqNo, SeqNo) {
        self.seqs[at as usize]
    }

    /// Rule I3: visit tables by `max_seq` descending, skip those that begin after the snapshot,
    /// keep the newest hit, and stop when the next table cannot contain a newer version.
    pub(super) fn get(
        &self,
        wanted: Lookup,
        seq: SeqNo,
        stats: &mut ProbeStats,
    ) -> Result<Option<Hit>> {
        let mut best: Option<Hit> = None;
        let cover = self.cover(wanted.key);
        let overlap = cover.len() > 1;
        for few in cover.chunks(MOST_PROBES) {
            let mut looks = [None; MOST_PROBES];
            for (at, look) in few.iter().zip(&mut looks) {
                *look = Some(Probe::new(&self.tables[*at as usize], wanted));
            }
            for (at, look) in few.iter().zip(looks.iter().flatten()) {
                let (min_seq, max_seq) = self.seqs[*at as usize];
                if let Some((found, _)) = &best
                    && (max_seq < seq_of(found.trailer) || seeded!(FirstHitInOverlappingLevel))
                {
                    debug_invariant!(
                        self.is_newest(found.trailer, cover, *at, seq),
                        "a get stops before a table that may hold a newer version (I3)"
                    );
                    return Ok(best);
                }
                if min_seq > seq {
                    continue;
                }
                let reads = stats.block_reads;
                stats.tables_after_hit += u64::from(best.is_some());
                let hit = look.probe(wanted, stats)?;
                if overlap {
                    let in_vain = hit.is_none() && stats.block_reads > reads;
                    stats.hot |= look.table.charge(in_vain);
                }
                if let Some((found, block)) = hit
                    && best.as_ref().is_none_or(|(old, _)| old.trailer < found.trailer)
                {
                    best = Some((found, block));
                }
            }
        }
        Ok(best)
    }

    /// Whether no table of a cover, from the table `from` on, can contain a version that is visible
    /// at `seq` and newer than the version with this trailer.
    fn is_newest(&self, trailer: u64, cover: &[u32], from: u32, seq: SeqNo) -> bool {
        let left = cover.iter().skip_while(|at| **at != from);
        let mut seqs = left.map(|at| self.seqs[*at as usize]);
        seqs.all(|(min_seq, max_seq)| min_seq > seq || max_seq <= seq_of(trailer))
    }
}

/// All bounds of tables that are sorted by smallest key, in order, with the heads of their keys.
/// The smallest keys are in order already, and so are the largest keys within a row. The sort finds
/// these sorted stretches and merges them. O(n log rows).
fn sorted_bounds(
    tables: &[Arc<TableHandle>],
    rows: &[Vec<u32>],
    head_rule: HeadRule,
) -> Vec<(u64, Bound)> {
    let with_head = |bound: Bound| (head_rule.head(bound.key(tables)), bound);
    let starts = (0..tables.len() as u32).map(|table| Bound { table, is_behind: false });
    let ends = rows.iter().flatten().map(|table| Bound { table: *table, is_behind: true });
    let mut bounds: Vec<(u64, Bound)> = starts.chain(ends).map(with_head).collect();
    let order = |bound: &Bound| (bound.key(tables), bound.is_behind);
    bounds.sort_by(|(head, bound), (other_head, other)| {
        head.cmp(other_head).then_with(|| order(bound).cmp(&order(other)))
    });
    bounds
}
