//! The shape of a tree: levels of runs of tables, as metadata only. No file, no clock.
//!
//! A shape changes in one way: [`Shape::apply`] of an [`Edit`], which checks the result. The same
//! function serves the engine's manifest, the simulator and the flash firmware, so every shape that
//! the simulator accepts is valid in the engine.
//!
//! Invariants, checked by `apply`:
//! * tables of one run have disjoint user-key ranges and are sorted;
//! * runs of a level are ordered newest first; a run gets the slot of the runs it replaces;
//! * only a [`Level::Overlapping`] may contain tables that overlap;
//! * a table id occurs once;
//! * the visible part of a trimmed table ends where its file ends.

pub mod expiry;
pub mod overlapping;
pub mod plan;
pub mod range_delete;
pub mod replay;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::prefix::PrefixRule;
use crate::shape::expiry::Expiries;
use crate::shape::overlapping::OverlappingTables;
use crate::shape::plan::Plan;
use crate::shape::replay::{TableIndex, TablePlace, remove_at};
use crate::sketch::Sketch;

/// Identifies a table file. Never an ordering key (I6).
pub type TableId = u64;
/// Identifies a run within a keyspace.
pub type RunId = u64;
/// A sequence number: position of a write in the store's history.
pub type SeqNo = u64;

/// Metadata of one immutable sorted table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// File id.
    pub id: TableId,
    /// Smallest user key, inclusive.
    pub min_key: Box<[u8]>,
    /// Largest user key, inclusive; a range delete counts as its first key.
    pub max_key: Box<[u8]>,
    /// File size in bytes.
    pub bytes: u64,
    /// Entries of every kind.
    pub entries: u64,
    /// Deletes and range deletes among the entries.
    pub tombstones: u64,
    /// Smallest sequence number inside.
    pub min_seq: SeqNo,
    /// Largest sequence number inside.
    pub max_seq: SeqNo,
    /// Size of the filter in memory, in bits; 0 without a filter.
    pub filter_bits: u64,
    /// Sorted key prefixes inside, if a prefix extractor is set; empty means "use the bounds".
    pub prefixes: Vec<Box<[u8]>>,
    /// Sketch of the user keys inside.
    pub sketch: Sketch,
    /// How many of the entries are range deletes.
    pub range_deletes: u64,
    /// The entries that expire.
    pub expiries: Expiries,
}

impl Table {
    /// Whether the table's bounds overlap the closed range `[min_key, max_key]`.
    pub fn overlaps(&self, min_key: &[u8], max_key: &[u8]) -> bool {
        *self.min_key <= *max_key && *self.max_key >= *min_key
    }
}

/// Smallest and largest key of some tables.
pub(crate) fn bounds<'a>(
    tables: impl Iterator<Item = &'a Arc<Table>>,
) -> Option<(&'a [u8], &'a [u8])> {
    let own = tables.map(|table| (&*table.min_key, &*table.max_key));
    own.reduce(|(min_key, max_key), (min, max)| (min_key.min(min), max_key.max(max)))
}

/// Tables with disjoint ranges, sorted by key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// Stable id.
    pub id: RunId,
    /// Number of the flush that brought the newest of its data, counted from 1 in each keyspace; 0
    /// if that is not known, as below level 0 and for runs that moved up from there. A run contains
    /// the data of the flushes after the next older run's number, up to its own number. The number
    /// stays the same as long as the id does, so a compaction that keeps the id of its newest input
    /// keeps the interval whole.
    pub last_flush: u64,
    /// Sorted by `min_key`; disjoint.
    pub tables: Vec<Arc<Table>>,
}

impl Run {
    /// Sum of the table sizes.
    pub fn bytes(&self) -> u64 {
        self.tables.iter().map(|table| table.bytes).sum()
    }

    /// The tables whose bounds overlap `[min_key, max_key]`: a contiguous slice. O(log n).
    pub fn overlapping(&self, min_key: &[u8], max_key: &[u8]) -> &[Arc<Table>] {
        let from = self.tables.partition_point(|table| *table.max_key < *min_key);
        let to = self.tables.partition_point(|table| *table.min_key <= *max_key);
        self.tables.get(from..to.max(from)).unwrap_or(&[])
    }
}

/// One level.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Level {
    /// Runs, newest first. An empty level is `Runs(vec![])`.
    Runs(Vec<Run>),
    /// Tables that may overlap each other, sorted by (`min_key`, id). Reads follow rule I3.
    Overlapping(OverlappingTables),
}

impl Level {
    /// All tables: runs newest first, each in key order.
    pub fn tables(&self) -> Box<dyn Iterator<Item = &Arc<Table>> + '_> {
        match self {
            Level::Runs(runs) => Box::new(runs.iter().flat_map(|run| run.tables.iter())),
            Level::Overlapping(tables) => Box::new(tables.iter()),
        }
    }

    /// Sum of the table sizes.
    pub fn bytes(&self) -> u64 {
        match self {
            Level::Runs(runs) => runs.iter().map(Run::bytes).sum(),
            Level::Overlapping(tables) => tables.stats().bytes,
        }
    }

    /// Number of tables.
    pub fn table_count(&self) -> usize {
        match self {
            Level::Runs(runs) => runs.iter().map(|run| run.tables.len()).sum(),
            Level::Overlapping(tables) => tables.len(),
        }
    }

    /// The runs; an overlapping level has none.
    pub fn runs(&self) -> &[Run] {
        match self {
            Level::Runs(runs) => runs,
            Level::Overlapping(_) => &[],
        }
    }

    /// Whether the level contains no table.
    pub fn is_empty(&self) -> bool {
        self.table_count() == 0
    }
}

/// The memory of a policy between plans. The manifest persists it with the shape.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PolicyState {
    /// Per level: the largest key of the last table picked there (round robin).
    pub cursors: BTreeMap<u32, Box<[u8]>>,
    /// The deepest level in use as the policy sees it (Garnering's L); 0 if it keeps none.
    pub last_level: u32,
    /// Flushes since the keyspace was made (stack-based policies).
    pub flush_count: u64,
    /// The prefix rule by which tables are cut, once a table was cut by prefix (adaptive tiering).
    /// The rule never changes after that.
    pub prefix: Option<PrefixRule>,
}

/// A whole tree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shape {
    /// Level 0 first.
    pub levels: Vec<Level>,
    /// The policy's memory.
    pub state: PolicyState,
    /// Trimmed tables, with the smallest key of the file: only their keys from `min_key` on are
    /// visible. They are the inputs of a compaction that is installed part by part
    /// ([`crate::parts`]). All other numbers of such a table describe the whole file, so they are
    /// bounds for the visible part.
    pub trims: BTreeMap<TableId, Box<[u8]>>,
    /// The remainder of a plan that is installed part by part. A hint: the tree is sound without
    /// it.
    pub pending: Option<Arc<Plan>>,
}

/// Where a table is placed inside its level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RunSlot {
    /// Into the run of this id, which exists in the level (perhaps emptied by the same edit).
    Join(RunId),
    /// Into a run of this id, made if absent: at the slot of the newest run from which the same
    /// edit removes tables in that level, or else as the newest run.
    New(RunId),
    /// Into a run of this id, made if absent as the oldest run of the level: for data that moves up
    /// from below the level and is older than the whole level (I1).
    Oldest(RunId),
    /// Into an overlapping level (which the level becomes if it is empty).
    Overlapping,
}

impl RunSlot {
    /// The run's id.
    pub fn run(self) -> Option<RunId> {
        match self {
            RunSlot::Join(id) | RunSlot::New(id) | RunSlot::Oldest(id) => Some(id),
            RunSlot::Overlapping => None,
        }
    }
}

/// A table and its place in a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// Target level.
    pub level: u32,
    /// Target run.
    pub slot: RunSlot,
    /// The table.
    pub table: Arc<Table>,
}

/// An atomic change to a shape: trims first, then removals, relabels, placements, state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Edit {
    /// Tables of runs to trim: only their keys from this one on stay visible.
    pub trim: Vec<(TableId, Box<[u8]>)>,
    /// The remainder of a plan that this edit installs in part. If an edit notes no plan but
    /// removes a table of a previously noted plan, it ends that plan.
    pub pending: Option<Arc<Plan>>,
    /// Ids of removed tables.
    pub remove: Vec<TableId>,
    /// Levels that get another number, all of their tables at once: (from, to); the target is
    /// empty.
    pub relabel: Vec<(u32, u32)>,
    /// Added tables. A move removes and places the same id.
    pub place: Vec<Placement>,
    /// New cursors by level.
    pub cursors: Vec<(u32, Box<[u8]>)>,
    /// New last level.
    pub last_level: Option<u32>,
    /// Flushes to add to the count. The runs that this edit makes on top of level 0 get the last
    /// of these numbers.
    pub flushes: u64,
    /// The prefix rule by which this edit's tables were cut, if it was chosen just now.
    pub prefix: Option<PrefixRule>,
}

/// Why an edit does not fit a shape.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum EditError {
    #[error("table {0} is to be removed but is not in the tree")]
    Missing(TableId),
    #[error("table {0} is already in the tree")]
    Duplicate(TableId),
    #[error("table {0} has its smallest key after its largest, or min_seq after max_seq")]
    Inverted(TableId),
    #[error("table {table} would overlap table {other} in run {run} of level {level}")]
    Overlap { level: u32, run: RunId, table: TableId, other: TableId },
    #[error("run {run} does not exist in level {level}")]
    NoRun { level: u32, run: RunId },
    #[error("level {level} holds overlapping tables; runs cannot be placed there, or vice versa")]
    Layout { level: u32 },
    #[error("level {from} cannot become level {to}, which holds tables")]
    Relabel { from: u32, to: u32 },
    #[error("table {0} cannot be trimmed there: it is in no run, or has no such keys")]
    Trim(TableId),
    #[error("tables are cut by {old}, not by {new}")]
    Prefix { old: PrefixRule, new: PrefixRule },
    #[error("level {0} is beyond the deepest level allowed ({max})", max = Shape::MAX_LEVELS - 1)]
    TooDeep(u32),
}

/// Per level, the slot of the newest run from which tables were removed or in which a table was
/// trimmed.
type Touched = BTreeMap<u32, usize>;

impl Shape {
    /// More levels than any policy needs at any size; a bound for decoders.
    pub const MAX_LEVELS: u32 = 64;

    /// The level, or an empty one if the tree is not that deep.
    pub fn level(&self, index: u32) -> &Level {
        static EMPTY: Level = Level::Runs(Vec::new());
        self.levels.get(index as usize).unwrap_or(&EMPTY)
    }

    /// All tables with their level, shallow levels first.
    pub fn tables(&self) -> impl Iterator<Item = (u32, &Arc<Table>)> {
        (0u32..).zip(&self.levels).flat_map(|(i, level)| level.tables().map(move |t| (i, t)))
    }

    /// The deepest level that contains a table.
    pub fn deepest(&self) -> Option<u32> {
        (0u32..).zip(&self.levels).filter(|(_, level)| !level.is_empty()).map(|(i, _)| i).last()
    }

    /// Sum of all table sizes.
    pub fn bytes(&self) -> u64 {
        self.levels.iter().map(Level::bytes).sum()
    }

    /// Applies an edit and checks the invariants of the module docs. O(tables).
    pub fn apply(&self, edit: &Edit) -> Result<Shape, EditError> {
        self.clone().into_applied(edit)
    }

    /// [`Shape::apply`] without the copy, for a caller that no longer needs the old shape (the
    /// simulator, where copying takes most of the time). The old shape is lost if the edit is
    /// refused. O(tables), but in levels that do not change, only ids are compared.
    pub fn into_applied(self, edit: &Edit) -> Result<Shape, EditError> {
        let mut next = self;
        next.change(edit, None)?;
        next.settle();
        Ok(next)
    }

    /// Applies an edit and leaves the overlapping levels unsettled. If the caller keeps an index of
    /// the tables, this updates it.
    fn change(&mut self, edit: &Edit, mut index: Option<&mut TableIndex>) -> Result<(), EditError> {
        let old_l0_count = self.level(0).runs().len();
        let mut touched = Touched::new();
        self.trim_tables(&edit.trim, &mut touched, index.as_deref_mut())?;
        self.remove_tables(&edit.remove, &mut touched, index.as_deref_mut())?;
        for (from, to) in &edit.relabel {
            self.relabel(*from, *to)?;
        }
        for same in edit.place.chunk_by(|a, b| (a.level, a.slot) == (b.level, b.slot)) {
            self.place(same, &touched)?;
        }
        self.count_flushes(edit.flushes, old_l0_count);
        for level in &mut self.levels {
            if let Level::Runs(runs) = level {
                runs.retain(|run| !run.tables.is_empty());
            }
            if level.is_empty() {
                *level = Level::Runs(Vec::new());
            }
        }
        while self.levels.last().is_some_and(Level::is_empty) {
            self.levels.pop();
        }
        self.check_unique(&edit.place, index.as_deref_mut())?;
        self.settle_pending(edit, index.as_deref());
        for (level, key) in &edit.cursors {
            self.state.cursors.insert(*level, key.clone());
        }
        if let Some(last_level) = edit.last_level {
            self.state.last_level = last_level;
        }
        if let Some(new) = &edit.prefix {
            match &self.state.prefix {
                Some(old) if old != new => {
                    return Err(EditError::Prefix { old: old.clone(), new: new.clone() });
                }
                _ => self.state.prefix = Some(new.clone()),
            }
        }
        Ok(())
    }

    /// Computes the derived fields of the overlapping levels that changed.
    fn settle(&mut self) {
        for level in &mut self.levels {
            if let Level::Overlapping(tables) = level {
                tables.settle();
            }
        }
    }

    /// Counts flushes and numbers the runs that they made, which are the runs added to level 0.
    /// These are the newest, since flushes replace nothing. If there are more flushes than runs,
    /// some flushes had no data. If there are more runs than flushes, the oldest runs share a
    /// number.
    fn count_flushes(&mut self, flushes: u64, old_l0_count: usize) {
        let old_count = self.state.flush_count;
        self.state.flush_count += flushes;
        if flushes == 0 {
            return;
        }
        if let Some(Level::Runs(runs)) = self.levels.first_mut() {
            let new_count = runs.len().saturating_sub(old_l0_count);
            for (back, run) in (0..).zip(&mut runs[..new_count]) {
                run.last_flush = (old_count + 1).max(self.state.flush_count.saturating_sub(back));
            }
        }
    }

    /// Raises the smallest visible key of tables.
    fn trim_tables(
        &mut self,
        trims: &[(TableId, Box<[u8]>)],
        touched: &mut Touched,
        mut index: Option<&mut TableIndex>,
    ) -> Result<(), EditError> {
        for (id, from_key) in trims {
            let found = match &index {
                Some(index) => index.place_of(&self.levels, *id),
                None => self.search_runs(*id),
            };
            let TablePlace { level, slot, at } = found.ok_or(EditError::Trim(*id))?;
            let Level::Runs(runs) = &mut self.levels[level as usize] else {
                return Err(EditError::Trim(*id));
            };
            let table = &mut runs[slot].tables[at];
            if *from_key < table.min_key || *from_key > table.max_key {
                return Err(EditError::Trim(*id));
            }
            self.trims.entry(*id).or_insert_with(|| table.min_key.clone());
            *table = Arc::new(Table { min_key: from_key.clone(), ..(**table).clone() });
            if let Some(index) = index.as_deref_mut() {
                index.insert(table);
            }
            touch(touched, level, slot);
        }
        Ok(())
    }

    /// The place of a table of a run. O(tables).
    fn search_runs(&self, id: TableId) -> Option<TablePlace> {
        (0u32..).zip(&self.levels).find_map(|(level, tables)| {
            tables.runs().iter().enumerate().find_map(|(slot, run)| {
                let at = run.tables.iter().position(|table| table.id == id)?;
                Some(TablePlace { level, slot, at })
            })
        })
    }

    /// Forgets the trims of removed tables, and a pending plan if one of its tables was removed.
    fn settle_pending(&mut self, edit: &Edit, index: Option<&TableIndex>) {
        if let Some(index) = index {
            self.trims.retain(|id, _| index.contains(*id));
        } else if !self.trims.is_empty() {
            let ids: BTreeSet<TableId> = self.tables().map(|(_, table)| table.id).collect();
            self.trims.retain(|id, _| ids.contains(id));
        }
        let Some(old) = self.pending.as_ref().or(edit.pending.as_ref()) else { return };
        let ids: BTreeSet<TableId> = old.table_ids().collect();
        if edit.pending.is_some() || edit.remove.iter().any(|id| ids.contains(id)) {
            self.pending.clone_from(&edit.pending);
        }
    }

    fn remove_tables(
        &mut self,
        ids: &[TableId],
        touched: &mut Touched,
        index: Option<&mut TableIndex>,
    ) -> Result<(), EditError> {
        let mut leaving: BTreeSet<TableId> = ids.iter().copied().collect();
        if let Some(index) = index {
            return self.remove_indexed(&leaving, touched, index);
        }
        let (Some(&first), Some(&last)) = (leaving.first(), leaving.last()) else {
            return Ok(());
        };
        // Most tables are outside the range of ids, and need no search.
        let mut stays =
            |table: &Arc<Table>| !(first..=last).contains(&table.id) || !leaving.remove(&table.id);
        for (index, level) in (0u32..).zip(&mut self.levels) {
            match level {
                Level::Runs(runs) => {
                    for (slot, run) in runs.iter_mut().enumerate() {
                        let before = run.tables.len();
                        run.tables.retain(&mut stays);
                        if run.tables.len() != before {
                            touch(touched, index, slot);
                        }
                    }
                }
                Level::Overlapping(tables) => {
                    if tables.retain(&mut stays) {
                        touch(touched, index, 0);
                    }
                }
            }
        }
        leaving.first().map_or(Ok(()), |id| Err(EditError::Missing(*id)))
    }

    fn remove_indexed(
        &mut self,
        leaving: &BTreeSet<TableId>,
        touched: &mut Touched,
        index: &mut TableIndex,
    ) -> Result<(), EditError> {
        let mut places: BTreeMap<(u32, usize), Vec<usize>> = BTreeMap::new();
        for id in leaving {
            let found = index.place_of(&self.levels, *id);
            let TablePlace { level, slot, at } = found.ok_or(EditError::Missing(*id))?;
            index.remove(*id);
            places.entry((level, slot)).or_default().push(at);
        }
        for ((level, slot), places) in places {
            touch(touched, level, slot);
            match &mut self.levels[level as usize] {
                Level::Runs(runs) => remove_at(&mut runs[slot].tables, places),
                Level::Overlapping(tables) => tables.remove_at(places),
            }
        }
        Ok(())
    }

    fn relabel(&mut self, from: u32, to: u32) -> Result<(), EditError> {
        if to >= Shape::MAX_LEVELS {
            return Err(EditError::TooDeep(to));
        }
        if !self.level(to).is_empty() || from == to {
            return Err(EditError::Relabel { from, to });
        }
        let empty = || Level::Runs(Vec::new());
        let needed = from.max(to) as usize + 1;
        self.levels.resize_with(self.levels.len().max(needed), empty);
        self.levels[to as usize] = std::mem::replace(&mut self.levels[from as usize], empty());
        Ok(())
    }

    /// Places tables of one level and slot.
    fn place(&mut self, same: &[Placement], touched: &Touched) -> Result<(), EditError> {
        let Some(Placement { level, slot, table }) = same.first() else { return Ok(()) };
        if *level >= Shape::MAX_LEVELS {
            return Err(EditError::TooDeep(*level));
        }
        check_order(table)?;
        while self.levels.len() <= *level as usize {
            self.levels.push(Level::Runs(Vec::new()));
        }
        let target = &mut self.levels[*level as usize];
        match (slot, &mut *target) {
            (RunSlot::Overlapping, Level::Overlapping(tables)) => {
                same.iter().try_for_each(|Placement { table, .. }| {
                    check_order(table)?;
                    tables.insert(Arc::clone(table));
                    Ok(())
                })
            }
            (RunSlot::Overlapping, Level::Runs(runs)) => {
                if runs.iter().any(|run| !run.tables.is_empty()) {
                    return Err(EditError::Layout { level: *level });
                }
                *target = Level::Overlapping(OverlappingTables::default());
                self.place(same, touched)
            }
            (_, Level::Overlapping(tables)) if !tables.is_empty() => {
                Err(EditError::Layout { level: *level })
            }
            (_, Level::Overlapping(_)) => {
                *target = Level::Runs(Vec::new());
                self.place(same, touched)
            }
            (RunSlot::Join(id) | RunSlot::New(id) | RunSlot::Oldest(id), Level::Runs(runs)) => {
                let at = match runs.iter().position(|run| run.id == *id) {
                    Some(at) => at,
                    None if matches!(slot, RunSlot::Join(_)) => {
                        return Err(EditError::NoRun { level: *level, run: *id });
                    }
                    None => {
                        let at = match slot {
                            RunSlot::Oldest(_) => runs.len(),
                            _ => touched.get(level).copied().unwrap_or(0).min(runs.len()),
                        };
                        runs.insert(at, Run { id: *id, last_flush: 0, tables: Vec::new() });
                        at
                    }
                };
                insert_into_run(&mut runs[at], same, *level)
            }
        }
    }

    /// Refuses a table that occurs twice. Only a placed table can.
    fn check_unique(
        &self,
        placed: &[Placement],
        index: Option<&mut TableIndex>,
    ) -> Result<(), EditError> {
        if let Some(index) = index {
            let twice = placed.iter().find(|placement| index.insert(&placement.table));
            return twice.map_or(Ok(()), |twice| Err(EditError::Duplicate(twice.table.id)));
        }
        let ids: BTreeSet<TableId> = placed.iter().map(|placement| placement.table.id).collect();
        let (Some(&first), Some(&last)) = (ids.first(), ids.last()) else {
            return Ok(());
        };
        let mut seen = BTreeSet::new();
        for (_, table) in self.tables().filter(|(_, table)| (first..=last).contains(&table.id)) {
            if ids.contains(&table.id) && !seen.insert(table.id) {
                return Err(EditError::Duplicate(table.id));
            }
        }
        Ok(())
    }
}

fn touch(touched: &mut Touched, level: u32, slot: usize) {
    let newest = touched.entry(level).or_insert(slot);
    *newest = slot.min(*newest);
}

fn check_order(table: &Table) -> Result<(), EditError> {
    match table.min_key > table.max_key || table.min_seq > table.max_seq {
        true => Err(EditError::Inverted(table.id)),
        false => Ok(()),
    }
}

/// Inserts tables into a run of a level. Tables that are neighbours between two tables of the run
/// are inserted together, because each insert shifts the rest of the run.
fn insert_into_run(run: &mut Run, mut placed: &[Placement], level: u32) -> Result<(), EditError> {
    while let Some(Placement { table, .. }) = placed.first() {
        check_order(table)?;
        let at = run.tables.partition_point(|other| other.min_key < table.min_key);
        let (next, previous) = (run.tables.get(at), run.tables[..at].last());
        let meets = |other: &&Arc<Table>| other.overlaps(&table.min_key, &table.max_key);
        if let Some(other) = next.into_iter().chain(previous).find(meets) {
            let (run, table, other) = (run.id, table.id, other.id);
            return Err(EditError::Overlap { level, run, table, other });
        }
        let follows = |pair: &&[Placement]| {
            let [before, after] = pair else { return false };
            check_order(&after.table).is_ok()
                && before.table.max_key < after.table.min_key
                && next.is_none_or(|next| after.table.max_key < next.min_key)
        };
        let count = 1 + placed.windows(2).take_while(follows).count();
        let (together, rest) = placed.split_at(count);
        let tables = together.iter().map(|placement| Arc::clone(&placement.table));
        run.tables.splice(at..at, tables);
        placed = rest;
    }
    Ok(())
}
