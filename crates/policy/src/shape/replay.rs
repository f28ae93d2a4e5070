//! Applies many edits in a row, as the replay of a manifest does.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::shape::{Edit, EditError, Level, Shape, Table, TableId};

/// How many edits are applied without an index: making the index takes as long as applying these.
const FIRST_EDITS: usize = 16;

/// A shape to which many edits are applied. [`Shape::apply`] visits all tables for each edit. Here
/// an edit finds its tables by id, and the derived fields of overlapping levels are computed once,
/// at the end.
#[derive(Clone, Debug)]
pub struct Replay {
    shape: Shape,
    edits: usize,
    /// Built once there are many edits.
    index: Option<TableIndex>,
}

impl Replay {
    /// Begins with a shape.
    pub fn of(shape: Shape) -> Replay {
        Replay { shape, edits: 0, index: None }
    }

    /// Applies an edit and checks what [`Shape::apply`] checks. The shape is lost if the edit is
    /// refused. O(log tables) for each table of the edit in each run, and a shift of the table
    /// pointers in the runs that change.
    pub fn apply(&mut self, edit: &Edit) -> Result<(), EditError> {
        self.edits += 1;
        if self.edits > FIRST_EDITS && self.index.is_none() {
            self.index = Some(TableIndex::of(&self.shape));
        }
        let changed = self.shape.change(edit, self.index.as_mut());
        changed.inspect_err(|_| *self = Replay::of(Shape::default()))
    }

    /// The shape after all edits. O(tables log tables) if overlapping levels changed.
    pub fn finish(mut self) -> Shape {
        self.shape.settle();
        self.shape
    }
}

/// The tables of a shape by id.
#[derive(Clone, Debug)]
pub(super) struct TableIndex {
    by_id: BTreeMap<TableId, Arc<Table>>,
}

/// Where a table is in a shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TablePlace {
    pub(super) level: u32,
    /// Which run of the level; 0 in an overlapping level.
    pub(super) slot: usize,
    /// Which table there.
    pub(super) at: usize,
}

impl TableIndex {
    fn of(shape: &Shape) -> TableIndex {
        let tables = shape.tables().map(|(_, table)| (table.id, Arc::clone(table)));
        TableIndex { by_id: tables.collect() }
    }

    pub(super) fn contains(&self, id: TableId) -> bool {
        self.by_id.contains_key(&id)
    }

    /// Adds a table, or replaces the one with the same id. Returns whether there was one.
    pub(super) fn insert(&mut self, table: &Arc<Table>) -> bool {
        self.by_id.insert(table.id, Arc::clone(table)).is_some()
    }

    pub(super) fn remove(&mut self, id: TableId) {
        self.by_id.remove(&id);
    }

    /// The place of a table in the levels of the shape, by its smallest key.
    pub(super) fn place_of(&self, levels: &[Level], id: TableId) -> Option<TablePlace> {
        let table = self.by_id.get(&id)?;
        let is_it = |tables: &[Arc<Table>], at: usize| tables.get(at).is_some_and(|t| t.id == id);
        (0u32..).zip(levels).find_map(|(level, tables)| match tables {
            Level::Runs(runs) => runs.iter().enumerate().find_map(|(slot, run)| {
                let at = run.tables.partition_point(|other| other.min_key < table.min_key);
                is_it(&run.tables, at).then_some(TablePlace { level, slot, at })
            }),
            Level::Overlapping(tables) => {
                let at = tables.place_of(table);
                is_it(tables, at).then_some(TablePlace { level, slot: 0, at })
            }
        })
    }
}

/// Removes the tables at these places.
pub(super) fn remove_at(tables: &mut Vec<Arc<Table>>, mut places: Vec<usize>) {
    places.sort_unstable();
    while let Some(last) = places.pop() {
        // Neighbours are removed together, because each removal shifts the rest.
        let mut first = last;
        while let Some(before) = places.pop_if(|place| *place + 1 == first) {
            first = before;
        }
        tables.drain(first..=last);
    }
}
