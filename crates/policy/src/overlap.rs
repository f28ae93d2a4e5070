//! Finds which inputs of a job are connected by key overlap, and makes a plan from the result. Not
//! a policy: the inputs have been chosen already.
//!
//! Inputs are rows, borrowed from the shape, which keeps them in key order. So the search copies
//! and sorts nothing. If some tables of a row end before the next table of any other row begins,
//! they overlap nothing else. The tables of a row that a wide table overlaps are one slice. One
//! search finds either kind of group.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::mem;
use std::slice;
use std::sync::Arc;

use crate::shape::plan::{Busy, Compaction, CompactionInput, Cut, Move, Plan};
use crate::shape::{Level, Run, RunSlot, Table};

/// Neighbouring tables in a run or in an overlapping level, and their position.
#[derive(Clone, Copy)]
pub(crate) struct Row<'a> {
    /// Their level.
    pub level: u32,
    /// Index of their run among the inputs of the level (0 is the newest); 0 in an overlapping
    /// level.
    pub run: usize,
    /// Sorted by (`min_key`, id).
    pub tables: &'a [Arc<Table>],
    /// Whether the tables may overlap each other.
    is_overlapping: bool,
}

impl<'a> Row<'a> {
    /// Neighbours in a run.
    pub fn new(level: u32, run: usize, tables: &'a [Arc<Table>]) -> Row<'a> {
        Row { level, run, tables, is_overlapping: false }
    }

    /// Each table as a row.
    pub fn split(self) -> impl Iterator<Item = Row<'a>> {
        let tables = self.tables.iter().map(slice::from_ref);
        tables.map(move |table| Row::new(self.level, self.run, table))
    }

    /// A move for each table.
    pub fn moves(self, output: Output) -> impl Iterator<Item = Move> {
        self.tables.iter().map(move |table| Move {
            table: table.id,
            from_level: self.level,
            to_level: output.level,
            slot: output.slot,
        })
    }

    fn min_key(&self) -> Option<&'a [u8]> {
        self.tables.first().map(|table| &*table.min_key)
    }

    /// How many of the first tables overlap neither another table of the row nor a table that
    /// begins at `next_key`. O(log of their number), or O(their number) in an overlapping level.
    fn count_apart(&self, next_key: Option<&[u8]>) -> usize {
        let is_apart = |table: &Table| next_key.is_none_or(|key| *table.max_key < *key);
        if !self.is_overlapping {
            return count_first(self.tables, is_apart);
        }
        let overlaps_next = |at: usize, table: &Table| {
            self.tables.get(at + 1).is_some_and(|next| *next.min_key <= *table.max_key)
        };
        let numbered = self.tables.iter().enumerate();
        numbered.take_while(|(at, table)| is_apart(table) && !overlaps_next(*at, table)).count()
    }

    /// How many of the first tables begin at or before `max_key`, and the final `max_key`: it rises
    /// to the end of each counted table. Costs as much as [`Row::count_apart`].
    fn reach(&self, mut max_key: &'a [u8]) -> (usize, &'a [u8]) {
        let begins_within = |table: &Table, max_key: &[u8]| *table.min_key <= *max_key;
        if !self.is_overlapping {
            // Only the last of these can end beyond `max_key`, and it ends before the next table
            // begins.
            let count = count_first(self.tables, |table| begins_within(table, max_key));
            let last = self.tables[..count].last();
            return (count, last.map_or(max_key, |table| max_key.max(&table.max_key)));
        }
        let mut count = 0;
        while let Some(table) = self.tables.get(count).filter(|t| begins_within(t, max_key)) {
            max_key = max_key.max(&table.max_key);
            count += 1;
        }
        (count, max_key)
    }

    fn after(self, count: usize) -> Row<'a> {
        Row { tables: &self.tables[count..], ..self }
    }

    fn take_first(&mut self, count: usize) -> Row<'a> {
        let (first, rest) = self.tables.split_at(count);
        self.tables = rest;
        Row { tables: first, ..*self }
    }
}

/// Where a job's outputs are placed.
#[derive(Clone, Copy)]
pub(crate) struct Output {
    pub level: u32,
    pub slot: RunSlot,
    /// Where they are cut.
    pub cut: Cut,
}

/// The next tables in key order among the inputs.
pub(crate) enum Group<'a> {
    /// Tables that overlap no other input, with no table of another row between them. Each is a
    /// component.
    Apart(Row<'a>),
    /// One component: two or more tables connected by key overlap.
    Joined(Component<'a>),
}

impl<'a> Group<'a> {
    /// Its tables.
    pub fn rows(&self) -> &[Row<'a>] {
        match self {
            Group::Apart(row) => slice::from_ref(row),
            Group::Joined(component) => &component.rows,
        }
    }
}

/// Inputs connected by key overlap. They leave no gap between their bounds, or they would be two
/// components. So a compaction of them writes only keys that one of its inputs covers.
pub(crate) struct Component<'a> {
    /// The part of each row of inputs that belongs here, in the order of the inputs.
    pub rows: Vec<Row<'a>>,
    min_key: &'a [u8],
    max_key: &'a [u8],
}

/// All tables of a level as inputs.
pub(crate) fn level_rows(index: u32, level: &Level) -> Vec<Row<'_>> {
    match level {
        Level::Runs(runs) => run_rows(index, runs),
        Level::Overlapping(tables) => {
            vec![Row { level: index, run: 0, tables, is_overlapping: true }]
        }
    }
}

/// All tables of some neighbouring runs of a level as inputs.
pub(crate) fn run_rows(level: u32, runs: &[Run]) -> Vec<Row<'_>> {
    runs.iter().enumerate().map(|(run, tables)| Row::new(level, run, &tables.tables)).collect()
}

/// Groups all inputs, in key order. O(s (log r + log n)) for r rows and s changes from row to row
/// in key order: at most one per table, and one for all tables of a row that a wide table overlaps.
/// In overlapping levels, each table counts as a change.
pub(crate) fn connect(rows: Vec<Row<'_>>) -> Vec<Group<'_>> {
    Sweep::new(rows).collect()
}

/// Whether any two tables overlap. Looks no further than the first two that do.
pub(crate) fn any_overlap(rows: Vec<Row<'_>>) -> bool {
    let mut sweep = Sweep::new(rows);
    while sweep.apart().is_some() {}
    !sweep.heads.is_empty()
}

/// Goes through all rows in key order.
struct Sweep<'a> {
    /// The part of each row that is in no group yet.
    rows: Vec<Row<'a>>,
    /// How many of its first tables each row contributes to the current group.
    given: Vec<usize>,
    /// For each row that is not at its end, the key where it continues and its index; smallest
    /// first.
    heads: BinaryHeap<Reverse<(&'a [u8], usize)>>,
}

impl<'a> Sweep<'a> {
    fn new(rows: Vec<Row<'a>>) -> Sweep<'a> {
        let numbered = rows.iter().enumerate();
        let heads = numbered.filter_map(|(at, row)| Some(Reverse((row.min_key()?, at)))).collect();
        Sweep { given: vec![0; rows.len()], rows, heads }
    }

    /// The next tables, if they overlap nothing. `None` if the next two overlap, or if no tables
    /// are left.
    fn apart(&mut self) -> Option<Row<'a>> {
        let first = self.heads.pop()?;
        let next_key = self.heads.peek().map(|Reverse((key, _))| *key);
        self.heads.push(first);
        let Reverse((_, at)) = first;
        let count = self.rows[at].count_apart(next_key);
        (count > 0).then(|| {
            self.give(at, count);
            self.cut(at)
        })
    }

    /// The component of the next table: each row contributes the tables that begin within it, until
    /// no row has more.
    fn joined(&mut self) -> Option<Component<'a>> {
        let Reverse((min_key, _)) = *self.heads.peek()?;
        let (mut max_key, mut givers) = (min_key, Vec::new());
        while let Some(&Reverse((key, at))) = self.heads.peek()
            && key <= max_key
        {
            if self.given[at] == 0 {
                givers.push(at);
            }
            let count;
            (count, max_key) = self.rows[at].after(self.given[at]).reach(max_key);
            self.give(at, count);
        }
        givers.sort_unstable();
        let rows = givers.into_iter().map(|at| self.cut(at)).collect();
        Some(Component { rows, min_key, max_key })
    }

    /// Adds the next `count` tables of row `at`, the first of `heads`, to the group.
    fn give(&mut self, at: usize, count: usize) {
        self.given[at] += count;
        let Some(mut head) = self.heads.peek_mut() else { return };
        match self.rows[at].after(self.given[at]).min_key() {
            Some(key) => head.0.0 = key,
            None => drop(PeekMut::pop(head)),
        }
    }

    /// Ends a row's part of the group.
    fn cut(&mut self, at: usize) -> Row<'a> {
        self.rows[at].take_first(mem::take(&mut self.given[at]))
    }
}

impl<'a> Iterator for Sweep<'a> {
    type Item = Group<'a>;

    fn next(&mut self) -> Option<Group<'a>> {
        let apart = self.apart().map(Group::Apart);
        apart.or_else(|| self.joined().map(Group::Joined))
    }
}

/// How many of the first tables pass the test. After the first table that fails, all others fail
/// too. O(log of the result), because most steps of a sweep take few tables.
fn count_first(tables: &[Arc<Table>], passes: impl Fn(&Table) -> bool) -> usize {
    let mut to = 1;
    while tables.get(to - 1).is_some_and(|table| passes(table)) {
        to *= 2;
    }
    let (from, to) = (to / 2, to.min(tables.len()));
    from + tables[from..to].partition_point(|table| passes(table))
}

/// Whether a running job writes where one of these components would.
pub(crate) fn collides(groups: &[Group<'_>], level: u32, busy: &Busy) -> bool {
    let is_written = |group: &Group<'_>| match group {
        Group::Apart(row) => {
            row.tables.iter().any(|table| busy.writes(level, &table.min_key, &table.max_key))
        }
        Group::Joined(component) => busy.writes(level, component.min_key, component.max_key),
    };
    !busy.ranges.is_empty() && groups.iter().any(is_written)
}

/// Plans a move for each lone table, unless it is in the target already, and one compaction for
/// every other component.
///
/// `stays` returns whether the lone tables of a row need no move.
pub(crate) fn plan_groups(
    groups: Vec<Group<'_>>,
    output: Output,
    stays: impl Fn(&Row<'_>) -> bool,
) -> Plan {
    let mut plan = Plan::default();
    for group in groups {
        match group {
            Group::Apart(row) if stays(&row) => {}
            Group::Apart(row) => plan.moves.extend(row.moves(output)),
            Group::Joined(component) => {
                plan.compactions.push(compaction_of(component.rows, output))
            }
        }
    }
    plan
}

/// One compaction of all inputs, in the order that [`Compaction`] promises. Rows of the same run or
/// overlapping level must be adjacent in that order. O(ids), besides sorting the rows.
pub(crate) fn compaction_of(mut rows: Vec<Row<'_>>, output: Output) -> Compaction {
    let id = |row: &Row<'_>| row.tables.first().map(|table| table.id);
    rows.sort_by(|a, b| {
        let places = (a.level, a.run).cmp(&(b.level, b.run));
        places.then_with(|| (a.min_key(), id(a)).cmp(&(b.min_key(), id(b))))
    });
    let of_run = |rows: &[Row<'_>]| {
        let mut tables = Vec::with_capacity(rows.iter().map(|row| row.tables.len()).sum());
        for row in rows {
            tables.extend(row.tables.iter().map(|table| table.id));
        }
        CompactionInput { level: rows[0].level, tables }
    };
    let is_same_run = |a: &Row<'_>, b: &Row<'_>| (a.level, a.run) == (b.level, b.run);
    let inputs = rows.chunk_by(is_same_run).map(of_run).collect();
    Compaction { inputs, output_level: output.level, slot: output.slot, cut: output.cut }
}

pub(crate) fn bytes(rows: &[Row<'_>]) -> u64 {
    rows.iter().flat_map(|row| row.tables).map(|table| table.bytes).sum()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::shape::TableId;
    use crate::shape::overlapping::OverlappingTables;

    /// A random level: whether its tables may overlap and, for each run, the smallest keys of the
    /// tables and how far each table would reach. In a run, a table ends before the next one.
    type Drawn = (bool, Vec<BTreeMap<u8, u8>>);

    /// The data of a table for the reference implementations: bounds, id, level and run. The field
    /// order is their sort order.
    type Known = (Box<[u8]>, Box<[u8]>, TableId, (u32, usize));

    fn level((is_overlapping, runs): &Drawn, ids: &mut impl Iterator<Item = TableId>) -> Level {
        let mut tables_of = |run: &BTreeMap<u8, u8>| -> Vec<Arc<Table>> {
            let table_of = |(min_key, width): (&u8, &u8)| {
                let next = run.range(min_key + 1..).next().filter(|_| !is_overlapping);
                let most = next.map_or(u8::MAX, |(key, _)| key - 1);
                table(ids.next().unwrap(), *min_key, most.min(min_key + width))
            };
            run.iter().map(table_of).collect()
        };
        let runs: Vec<Vec<Arc<Table>>> = runs.iter().map(&mut tables_of).collect();
        if *is_overlapping {
            return Level::Overlapping(OverlappingTables::new(runs.concat()));
        }
        let runs = (0..).zip(runs).map(|(id, tables)| Run { id, last_flush: 0, tables });
        Level::Runs(runs.collect())
    }

    fn table(id: TableId, min_key: u8, max_key: u8) -> Arc<Table> {
        Arc::new(Table {
            id,
            min_key: Box::new([min_key]),
            max_key: Box::new([max_key]),
            bytes: 1,
            entries: 1,
            min_seq: 1,
            max_seq: 1,
            ..Table::default()
        })
    }

    fn known(rows: &[Row<'_>]) -> Vec<Known> {
        let known = |row: Row<'_>| {
            let table = &row.tables[0];
            (table.min_key.clone(), table.max_key.clone(), table.id, (row.level, row.run))
        };
        let mut known: Vec<Known> = rows.iter().flat_map(|row| row.split()).map(known).collect();
        known.sort();
        known
    }

    /// Sorts by key and cuts where no table spans the gap.
    fn reference_components(rows: &[Row<'_>]) -> Vec<Vec<Known>> {
        let mut found: Vec<Vec<Known>> = Vec::new();
        for table in known(rows) {
            match found.last_mut() {
                Some(last) if last.iter().any(|other| other.1 >= table.0) => last.push(table),
                _ => found.push(vec![table]),
            }
        }
        found
    }

    /// Sorts by level and run, then by key.
    fn reference_compaction(rows: &[Row<'_>]) -> Vec<CompactionInput> {
        let mut tables = known(rows);
        tables.sort_by_key(|(min_key, _, id, place)| (*place, min_key.clone(), *id));
        let runs = tables.chunk_by(|a, b| a.3 == b.3);
        let ids = |run: &[Known]| run.iter().map(|table| table.2).collect();
        runs.map(|run| CompactionInput { level: run[0].3.0, tables: ids(run) }).collect()
    }

    fn check(levels: &[Level]) {
        let numbered = (0..).zip(levels);
        let rows: Vec<Row<'_>> = numbered.flat_map(|(at, level)| level_rows(at, level)).collect();
        let output = Output { level: 9, slot: RunSlot::Overlapping, cut: Cut::Size(1) };
        let mut found = Vec::new();
        for group in connect(rows.clone()) {
            match &group {
                Group::Apart(row) => {
                    assert!(!row.tables.is_empty());
                    found.extend(row.split().map(|lone| known(&[lone])));
                }
                Group::Joined(component) => {
                    let tables = known(&component.rows);
                    assert!(tables.len() > 1);
                    assert_eq!(tables.iter().map(|t| &*t.0).min(), Some(component.min_key));
                    assert_eq!(tables.iter().map(|t| &*t.1).max(), Some(component.max_key));
                    found.push(tables);
                }
            }
            let rows = group.rows();
            assert!(rows.is_sorted_by_key(|row| (row.level, row.run)));
            let mut backwards: Vec<Row<'_>> = rows.iter().flat_map(|row| row.split()).collect();
            backwards.reverse();
            for rows in [rows.to_vec(), backwards] {
                assert_eq!(compaction_of(rows.clone(), output).inputs, reference_compaction(&rows));
            }
        }
        assert_eq!(any_overlap(rows.clone()), found.iter().any(|tables| tables.len() > 1));
        assert_eq!(found, reference_components(&rows));
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            failure_persistence: None,
            ..ProptestConfig::with_cases(ProptestConfig::default().cases.max(2000))
        })]

        #[test]
        fn groups_are_what_sorting_and_cutting_finds(
            drawn in {
                let run = prop::collection::btree_map(0u8..40, 0u8..8, 0..8);
                prop::collection::vec((any::<bool>(), prop::collection::vec(run, 0..4)), 0..4)
            },
        ) {
            // Not in the order of keys.
            let mut ids = (1u64..).map(|number| number * 67 % 1009);
            let levels: Vec<Level> = drawn.iter().map(|drawn| level(drawn, &mut ids)).collect();
            check(&levels);
        }
    }
}
