//! Carries the tables of a keyspace over to the new store, each at its place in the tree.
//!
//! 1. A whole table is linked, or copied if the storage cannot link. No store writes to a table
//!    once it is finished: a compaction that replaces it removes its name, and the other store
//!    keeps the file. The checksums of a table contain the store's uid and the table's number, so
//!    both stay.
//! 2. The readable entries of a damaged table are written to a new table at the same place. The
//!    copy has no entry that the damaged one lacks, so the order of age (I1) and the bounds within
//!    a run stay as they were.
//! 3. Entries that are only in the log become a new run on top, with deletes, which hide older
//!    entries. Keyspaces with separated values are an exception, see `decide`.
//! 4. Value files are copied, not linked: their slots are reused in place.
//!
//! `decide` says when this can be done.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use runstone_policy::shape::{Edit, Level, Placement, RunSlot, Shape, Table, TableId};
use runstone_storage::{Category, Storage};

use super::basis::Basis;
use super::check::unlike_tables;
use super::decide::{Facts, ValueFiles, Why, decide};
use super::merge::{Input, Merge, Purpose};
use super::output::{Output, unfit};
use super::report::RepairBasis;
use super::salvage::Hole;
use super::{Repairing, Sources, Target};
use crate::error::Result;
use crate::jobs::install::flush_edit;
use crate::keys::{KeyspaceId, is_range_delete};
use crate::log::number_in;
use crate::options::store::KeyspaceOptions;
use crate::ranges::RangeDeletes;
use crate::table::builder::TableLayout;
use crate::table::table_name;
use crate::tree::manifest::{KeyspaceState, StoreState, read_manifest};
use crate::values::layout::Layout;

/// File numbers of a store never become this large, so a file with a larger number is not a
/// store's.
const MOST_FILES: u64 = 1 << 62;

/// The state of the store, if all edits of the manifest apply one after another.
pub(super) fn whole_state(source: &dyn Storage, basis: &Basis) -> Option<StoreState> {
    let is_whole = basis.kind == RepairBasis::Manifest;
    let read = is_whole.then(|| read_manifest(source, basis.found)).and_then(Result::ok);
    read.map(|(state, _)| state)
}

/// The first file number above all in use, in the manifest or in the directory. Files that are
/// carried over keep their numbers.
pub(super) fn first_free_file(source: &dyn Storage, basis: &Basis) -> Result<u64> {
    let of_name = |name: &str| {
        let extensions = ["table", "values", "manifest", "wal"];
        extensions.iter().find_map(|extension| number_in(name, extension))
    };
    let files = source.list()?;
    let named = files.iter().filter_map(|file| of_name(&file.name)).filter(|one| *one < MOST_FILES);
    Ok(named.map(|number| number + 1).max().unwrap_or(1).max(basis.next_file.min(MOST_FILES)))
}

/// A keyspace whose tables are carried over.
pub(super) struct Carried {
    state: KeyspaceState,
    /// Tables that are missing or do not verify.
    unlike: BTreeSet<TableId>,
}

impl Repairing {
    /// Reads the facts about a keyspace, and decides whether it is carried over. `verified` are
    /// tables that are known to be whole.
    pub(super) fn decide(
        &mut self,
        (source, verified): (&dyn Storage, &BTreeSet<TableId>),
        basis: &Basis,
        state: Option<&KeyspaceState>,
        sources: &Sources,
    ) -> Result<std::result::Result<Carried, Why>> {
        let tables = &sources.tables;
        let state = state.filter(|state| is_tree_known(state, basis, sources.id));
        let layouts = state.map_or(&[][..], |state| &state.values);
        let mut facts = Facts {
            basis: basis.kind,
            is_tree_known: state.is_some(),
            has_aside: !sources.aside.is_empty(),
            first_logged: sources.first_logged(),
            newest_in_tables: tables.inputs.iter().map(|input| input.numbers.1).max().unwrap_or(0),
            has_logged_pointers: sources.has_logged_pointers,
            values: match layouts.is_empty() && !tables.has_pointers {
                true => ValueFiles::None,
                false => ValueFiles::Unread,
            },
            unlike_tables: 0,
        };
        let (Some(state), Ok(()), Some(uid)) = (state, decide(&facts), basis.uid) else {
            return Ok(Err(decide(&facts).err().unwrap_or(Why::TreeNotKnown)));
        };
        // A table that could not be opened is reported as lost, and it is not known what the table
        // hides. So it is not carried over, even if it can be read now.
        let opened: BTreeSet<_> = tables.inputs.iter().filter_map(|input| input.table).collect();
        let of_tree = state.shape.tables().map(|(_, table)| table.id);
        let mut unlike: BTreeSet<_> = of_tree.filter(|id| !opened.contains(id)).collect();
        if !seeded!(RepairTrustsContent) {
            unlike.extend(unlike_tables(source, uid, &state.shape, verified));
        }
        facts.unlike_tables = unlike.len();
        if facts.values == ValueFiles::Unread && decide(&facts).is_ok() {
            facts.values = match self.are_values_whole(layouts, sources)? {
                true => ValueFiles::Whole,
                false => ValueFiles::Damaged,
            };
        }
        Ok(decide(&facts).map(|()| Carried { state: state.clone(), unlike }))
    }

    /// Whether all records of some value files verify, and all pointers of visible versions lead to
    /// one of them.
    fn are_values_whole(&mut self, layouts: &[Layout], sources: &Sources) -> Result<bool> {
        for layout in layouts {
            let Some(file) = self.values.files.get(&layout.number) else { return Ok(false) };
            if layout.groups.iter().any(|group| file.verify(group.segments.iter()).is_err()) {
                return Ok(false);
            }
        }
        let ranges = sources.range_deletes().map(Arc::new).collect();
        let (ranges, inputs) = (RangeDeletes::of(ranges), sources.inputs());
        let mut merge = Merge::new("", &ranges, inputs, Purpose::Probe);
        merge.run(self, |_, _, _| Ok(()))?;
        Ok(!merge.misses)
    }

    /// Adds the tables and value files of a keyspace to the new store.
    pub(super) fn carry(
        &mut self,
        source: &dyn Storage,
        carried: Carried,
        sources: &Sources,
        target: &mut Target<'_>,
    ) -> Result<KeyspaceState> {
        let Carried { mut state, unlike } = carried;
        let options = KeyspaceOptions::from_toml(&state.options).unwrap_or_default();
        let storage = Arc::clone(&target.context.storage);
        let whole = || state.shape.tables().filter(|(_, table)| !unlike.contains(&table.id));
        for (_, table) in whole() {
            source.link_into(&table_name(table.id), Category::Table, &*storage)?;
        }
        for (_, table) in whole() {
            self.report.carried_tables += 1;
            // The table may be a copy, whose bytes may be only in memory even though they can be
            // read.
            storage.open(&table_name(table.id), Category::Table)?.sync()?;
        }
        for layout in &state.values {
            if let Some(file) = self.values.files.get(&layout.number) {
                file.copy_to(layout, &*storage)?;
            }
        }
        let damaged = state.shape.tables().filter(|(_, table)| unlike.contains(&table.id));
        let damaged: BTreeMap<TableId, _> =
            damaged.map(|(level, table)| (table.id, (level, table))).collect();
        let mut salvaged = BTreeMap::new();
        for input in &sources.tables.inputs {
            let of_damaged = input.table.and_then(|id| damaged.get(&id));
            let Some((level, table)) = of_damaged else { continue };
            let layout = TableLayout::of_level(&options, &state.shape, *level);
            let layout = layout.in_keyspace(sources.id);
            let made = self.salvage(&state.name, (input, table), layout, target)?;
            salvaged.extend(made.map(|made| (table.id, made)));
        }
        let edit = replace(&state.shape, &unlike, &salvaged);
        let shape = state.shape.into_applied(&edit).map_err(unfit)?;
        let logged = self.write_log(&state.name, sources, &options, target)?;
        let edit = flush_edit(if logged.is_empty() { &[] } else { std::slice::from_ref(&logged) });
        state.shape = shape.into_applied(&edit).map_err(unfit)?;
        state.flushed_seq = self.last_seq;
        self.report.bytes += state.shape.bytes();
        self.report.entries += state.shape.tables().map(|(_, table)| table.entries).sum::<u64>();
        self.report.keyspaces.push(state.name.clone());
        Ok(state)
    }

    /// Writes the readable entries of a damaged table to a new one. `None` if there are none.
    fn salvage(
        &mut self,
        keyspace: &str,
        (input, table): (&Input, &Table),
        layout: TableLayout,
        target: &mut Target<'_>,
    ) -> Result<Option<Arc<Table>>> {
        let mut ranges = input.range_deletes.clone();
        // The hidden part of the table was compacted, but a range delete also acts on keys after
        // it.
        ranges.retain(|range| range.end.as_ref().is_none_or(|end| **end > *table.min_key));
        for range in &mut ranges {
            let start = std::mem::take(&mut range.start);
            range.start = start.max(table.min_key.clone());
        }
        let output = Output::new(target.context, target.next_file, layout);
        let mut output = output.in_one_table().with_range_deletes(ranges);
        let mut salvage = (input.open)()?;
        while salvage.next() {
            let Some((key, trailer, value)) = salvage.entry() else { break };
            if *key > *table.max_key {
                let what = "entries lie behind the last key".to_string();
                let (from, to) = (table.max_key.to_vec(), key.to_vec());
                salvage.holes.push(Hole { from, to, what });
                break;
            }
            // All range deletes are in the properties, even those of a block that is damaged.
            if !is_range_delete(trailer) {
                output.add(key, trailer, value)?;
            }
        }
        for hole in salvage.holes {
            self.note_hole(keyspace, input, hole);
        }
        Ok(output.finish()?.pop())
    }

    /// Writes the entries of the log to tables of one run.
    fn write_log(
        &mut self,
        keyspace: &str,
        sources: &Sources,
        options: &KeyspaceOptions,
        target: &mut Target<'_>,
    ) -> Result<Vec<Arc<Table>>> {
        let ranges = RangeDeletes::of(sources.log_ranges.iter().cloned().map(Arc::new).collect());
        let layout = TableLayout::of_level(options, &Shape::default(), 0).in_keyspace(sources.id);
        let output = Output::new(target.context, target.next_file, layout);
        let mut output = output.with_range_deletes(sources.log_ranges.clone());
        let inputs = sources.log.iter().collect();
        let mut merge = Merge::new(keyspace, &ranges, inputs, Purpose::Top);
        merge.run(self, |key, trailer, value| output.add(key, trailer, value))?;
        output.finish()
    }
}

/// Whether the tables and value files of a tree are those that were found by the flat basis.
fn is_tree_known(state: &KeyspaceState, basis: &Basis, id: KeyspaceId) -> bool {
    let Some(known) = basis.keyspaces.get(&id) else { return false };
    let of_basis: BTreeMap<TableId, &Table> =
        basis.tables_of(id).map(|table| (table.meta.id, &*table.meta)).collect();
    let of_tree: BTreeMap<TableId, &Table> =
        state.shape.tables().map(|(_, table)| (table.id, &**table)).collect();
    let mut layouts: Vec<&Layout> = known.values.iter().collect();
    layouts.sort_by_key(|layout| layout.number);
    of_basis == of_tree && layouts == state.values.iter().collect::<Vec<_>>()
}

/// The edit that replaces some tables of a tree with others in the same places.
fn replace(
    shape: &Shape,
    leaving: &BTreeSet<TableId>,
    coming: &BTreeMap<TableId, Arc<Table>>,
) -> Edit {
    let mut edit = Edit { remove: leaving.iter().copied().collect(), ..Edit::default() };
    let mut place = |level: u32, slot: RunSlot, table: &Arc<Table>| {
        if let Some(table) = coming.get(&table.id) {
            edit.place.push(Placement { level, slot, table: Arc::clone(table) });
        }
    };
    for (index, level) in (0u32..).zip(&shape.levels) {
        match level {
            Level::Runs(runs) => runs.iter().for_each(|run| {
                run.tables.iter().for_each(|table| place(index, RunSlot::Join(run.id), table));
            }),
            Level::Overlapping(tables) => {
                tables.iter().for_each(|table| place(index, RunSlot::Overlapping, table));
            }
        }
    }
    edit
}
