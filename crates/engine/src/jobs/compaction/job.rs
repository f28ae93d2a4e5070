//! Executes a plan: reads the inputs as merged streams, keeps what somebody can see, writes tables.
//! Decides nothing about the tree; where tables are cut and what may go follows from the plan.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering::*;
use std::time::Instant;

use runstone_policy::drop_guard::DropGuard;
use runstone_policy::edit::edit_for;
use runstone_policy::plan::{Compaction, Cut, Plan};
use runstone_policy::prefix::{PrefixHistogram, Prefixer};
use runstone_policy::shape::{Edit, Level, Shape, Table};

use crate::base::error::{Error, Result};
use crate::base::event::Event;
use crate::base::key::{Kind, SeqNo, is_pointer, kind_of, seq_of};
use crate::base::metrics::Counter;
use crate::format::block::BEFORE_ALL_VERSIONS;
use crate::format::record::{Pointer, record_bytes};
use crate::jobs::compaction::copier::Copier;
use crate::jobs::compaction::slices::is_sliced;
use crate::jobs::cutter::Cutter;
use crate::read::merge::MergeIter;
use crate::read::source::{RunIter, Source};
use crate::store::{Inner, KeyspaceInner};
use crate::table::builder::{TableBuilder, TableLayout};
use crate::table::handle::TableHandle;
use crate::table::iterator::Access;
use crate::tree::level::RunTables;
use crate::tree::level::chains;
use crate::tree::record::Change;
use crate::tree::version::Version;
use crate::values::separation::{Separated, Separation, ValueChanges};

/// Entries between two looks at whether the job should stop.
const CANCEL_INTERVAL: u64 = 4096;

/// Which versions stay (rule I4). Fed with all versions of a key, newest first.
pub(crate) struct Liveness {
    /// Sequence numbers that readers look from, ascending; never empty.
    points: Vec<SeqNo>,
    /// Says whether a tombstone hides nothing outside of the compaction; `None` keeps all of them.
    guard: Option<DropGuard>,
    key: Vec<u8>,
    /// Stripe of the last version of `key` that was kept or spent; `None` before the first.
    stripe: Option<usize>,
}

impl Liveness {
    pub(crate) fn new(points: Vec<SeqNo>, guard: Option<DropGuard>) -> Liveness {
        assert!(!points.is_empty(), "at least the present is visible");
        Liveness { points, guard, key: Vec::new(), stripe: None }
    }

    /// Whether the key differs from that of the previous call.
    fn enter(&mut self, key: &[u8]) -> bool {
        if self.stripe.is_some() && self.key == key {
            return false;
        }
        self.key.clear();
        self.key.extend_from_slice(key);
        self.stripe = None;
        true
    }

    /// The same state as after many versions, each of a key of its own, that all stay; this is the
    /// last.
    fn pass(&mut self, key: &[u8], trailer: u64) {
        self.enter(key);
        let stays = self.keeps(trailer);
        debug_assert!(stays, "the only version of a key is kept");
    }

    /// Whether a version of the entered key stays.
    fn keeps(&mut self, trailer: u64) -> bool {
        let seq = seq_of(trailer);
        // The first point that sees this version. Versions newer than every point (written after
        // the compaction began) each have a stripe of their own.
        let stripe = self.points.partition_point(|point| *point < seq);
        let shadowed = self.stripe == Some(stripe) && stripe < self.points.len();
        self.stripe = Some(stripe);
        if shadowed {
            return false;
        }
        let spent = kind_of(trailer) == Kind::Delete as u8
            && stripe == 0
            && self.guard.as_mut().is_some_and(|guard| guard.allows(&self.key, seq));
        !spent
    }
}

/// Where compacted entries go.
pub(crate) struct Output<'a> {
    inner: &'a Inner,
    layout: TableLayout,
    cutter: Cutter,
    /// Id of the table of the first cell, if the cells are known before; else a new one each time.
    first_id: Option<u64>,
    /// Separates values and brings them back; none where entries stay as they are.
    pub(crate) separation: Option<Separation>,
}

impl<'a> Output<'a> {
    pub(crate) fn new(inner: &'a Inner, layout: TableLayout, cutter: Cutter) -> Output<'a> {
        Output { inner, layout, cutter, first_id: None, separation: None }
    }

    /// Tables of known cells, with ids in a row from `first_id`: so that a table is the same,
    /// byte by byte, whoever writes it and when.
    pub(crate) fn of_cells(
        inner: &'a Inner,
        layout: TableLayout,
        cutter: Cutter,
        first_id: u64,
    ) -> Output<'a> {
        Output { inner, layout, cutter, first_id: Some(first_id), separation: None }
    }

    /// The open table, or a new one.
    fn opened<'t>(
        &self,
        open: &'t mut Option<(u64, TableBuilder)>,
    ) -> Result<&'t mut TableBuilder> {
        let (_, builder) = match open {
            Some(table) => table,
            None => open.insert(self.create_table()?),
        };
        Ok(builder)
    }

    fn create_table(&self) -> Result<(u64, TableBuilder)> {
        let inner = self.inner;
        let id = match self.first_id {
            Some(first) => first + self.cutter.cell() as u64,
            None => inner.next_file.fetch_add(1, Relaxed),
        };
        Ok((id, TableBuilder::create(&inner.tables, id, self.layout.clone())?))
    }
}

/// User keys from `lo` (inclusive) to `hi` (exclusive); `None` is no bound.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct KeyRange<'a> {
    pub(crate) lo: Option<&'a [u8]>,
    pub(crate) hi: Option<&'a [u8]>,
}

/// What a compaction made.
#[derive(Debug, Default)]
pub(crate) struct Compacted {
    pub(crate) tables: Vec<Arc<Table>>,
    /// Inputs that go to the output level as they are.
    pub(crate) moved: Vec<Arc<Table>>,
    pub(crate) dropped: u64,
    /// Records of value files that nothing points to any more, with their bytes, where no newer
    /// record of the key says so.
    pub(crate) dead: Vec<(Pointer, u32)>,
    /// ValueFiles that were separated, durable but not visible yet.
    pub(crate) placed: Option<Separated>,
}

impl Compacted {
    /// A pointer was dropped for a version that leaves no record behind its own in its group (spec:
    /// value placement §3, deletes).
    fn note_dead(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let pointer = Pointer::of_entry(value)?;
        let bytes = record_bytes(key.len(), pointer.value_bytes as usize);
        self.dead.push((pointer, u32::try_from(bytes).unwrap_or(u32::MAX)));
        Ok(())
    }

    fn placed(&self) -> Vec<Arc<Table>> {
        self.tables.iter().chain(&self.moved).cloned().collect()
    }
}

/// Compacts a range of streams into tables. On an error, the tables written so far are removed.
pub(crate) fn merge_streams(
    sources: Vec<Source>,
    range: KeyRange<'_>,
    mut output: Output<'_>,
    keep: Liveness,
    cancelled: &dyn Fn() -> Result<()>,
) -> Result<Compacted> {
    let (mut compacted, mut open, mut copier) = (Compacted::default(), None, Copier::default());
    let streams = MergeIter::new(sources);
    let state = (&mut compacted, &mut open, &mut copier);
    let outcome = fill_tables(streams, range, &mut output, keep, cancelled, state);
    output.inner.metrics.add_all(&[
        (Counter::blocks_copied, copier.blocks),
        (Counter::block_bytes_copied, copier.bytes),
    ]);
    if let Err(error) = outcome {
        if let Some((id, builder)) = open {
            drop(builder);
            let _ = output.inner.storage.remove(&crate::table::table_name(id));
        }
        output.inner.discard(&compacted.tables);
        return Err(error);
    }
    compacted.placed = match output.separation.map(Separation::finish).transpose() {
        Ok(placed) => placed.flatten(),
        Err(error) => {
            output.inner.discard(&compacted.tables);
            return Err(error);
        }
    };
    Ok(compacted)
}

fn fill_tables(
    mut streams: MergeIter,
    range: KeyRange<'_>,
    output: &mut Output<'_>,
    mut keep: Liveness,
    cancelled: &dyn Fn() -> Result<()>,
    (compacted, open, copier): (&mut Compacted, &mut Option<(u64, TableBuilder)>, &mut Copier),
) -> Result<()> {
    match range.lo {
        Some(lo) => streams.seek(lo, BEFORE_ALL_VERSIONS)?,
        None => streams.seek_to_first()?,
    }
    let (mut seen, mut next_look) = (0, CANCEL_INTERVAL);
    // Where the version before has its value, if it is a pointer.
    let mut last_place = None;
    while let Some((key, trailer)) = streams.current() {
        if range.hi.is_some_and(|hi| key >= hi) {
            break;
        }
        if seen >= next_look {
            cancelled()?;
            next_look = seen + CANCEL_INTERVAL;
        }
        if keep.enter(key) {
            let table_bytes = open.as_ref().map_or(0, |(_, builder)| builder.estimated_bytes());
            let Output { cutter, layout, separation, .. } = &mut *output;
            if cutter.cuts_before(key, layout.prefixer.as_ref(), table_bytes, seen) {
                close_table(open, compacted)?;
            }
            let table = open.as_ref().map(|(_, builder)| builder);
            if separation.is_none() && copier.finds(&streams, cutter, layout, table)? {
                let builder = output.opened(open)?;
                copier.copy(&streams, builder)?;
                let (last_key, last_trailer, entries) = copier.last();
                keep.pass(last_key, last_trailer);
                last_place = copier.last_place();
                seen += entries;
                streams.skip_block()?;
                continue;
            }
        }
        seen += 1;
        let is_apart = is_pointer(trailer);
        let place = if is_apart { Pointer::place_of_entry(streams.value()) } else { None };
        let newer = std::mem::replace(&mut last_place, place);
        if keep.keeps(trailer) {
            let builder = output.opened(open)?;
            match &mut output.separation {
                None => builder.add(key, trailer, streams.value())?,
                Some(separation) => {
                    let (trailer, value) = separation.place(key, trailer, streams.value())?;
                    builder.add(key, trailer, value)?;
                }
            }
        } else {
            compacted.dropped += 1;
            if is_apart && !is_behind(newer, place) {
                compacted.note_dead(key, streams.value())?;
            }
        }
        streams.step()?;
    }
    close_table(open, compacted)
}

/// Whether a newer version has its record behind that of the one which is dropped: then the group
/// says that this is dead. Else nothing does: the newer one has no record or one in another file,
/// or one in front, whose segment may be rewritten without this one's. What is dropped is never the
/// first version of its key.
fn is_behind(newer: Option<(u64, u64)>, dropped: Option<(u64, u64)>) -> bool {
    newer.zip(dropped).is_some_and(|(newer, own)| newer.0 == own.0 && newer.1 > own.1)
}

fn close_table(open: &mut Option<(u64, TableBuilder)>, compacted: &mut Compacted) -> Result<()> {
    if let Some((id, builder)) = open.take() {
        match builder.finish() {
            Ok(table) => compacted.tables.push(Arc::new(table)),
            Err(error) => {
                tracing::debug!(id, "a table was not finished");
                return Err(error);
            }
        }
    }
    Ok(())
}

/// The inputs of a compaction as streams, but for some tables: one per run, or per chain of an
/// overlapping level's tables.
pub(crate) fn compaction_sources(
    version: &Version,
    compaction: &Compaction,
    without: &BTreeSet<u64>,
) -> Result<Vec<Source>> {
    let mut sources = Vec::new();
    for input in &compaction.inputs {
        let handles = input.tables.iter().filter(|id| !without.contains(id)).map(|id| {
            let missing = || Error::corruption("manifest", 0, format!("no table {id} to compact"));
            version.handle(*id).cloned().ok_or_else(missing)
        });
        let handles: Vec<Arc<TableHandle>> = handles.collect::<Result<_>>()?;
        let chains = match version.shape.level(input.level) {
            Level::Runs(_) => vec![handles],
            Level::Overlapping(_) => chains(&handles),
        };
        sources.extend(chains.into_iter().map(|tables| {
            Source::Run(RunIter::new(Arc::new(RunTables::new(tables)), Access::Sequential))
        }));
    }
    Ok(sources)
}

impl Inner {
    /// Executes and installs a plan that was made on `version`.
    pub(crate) fn run_plan(
        &self,
        keyspace: &Arc<KeyspaceInner>,
        version: Arc<Version>,
        plan: &Plan,
    ) -> Result<()> {
        if let Some(_one_at_a_time) = keyspace.parting.try_lock()
            && self.wants_parts(keyspace, &version, plan)
        {
            return self.run_in_parts(keyspace, version, plan);
        }
        self.run_whole(keyspace, &version, plan)
    }

    /// Installs it by one edit when all is done.
    fn run_whole(
        &self,
        keyspace: &Arc<KeyspaceInner>,
        version: &Arc<Version>,
        plan: &Plan,
    ) -> Result<()> {
        let started = Instant::now();
        let mut done: Vec<Compacted> = Vec::new();
        for compaction in &plan.compactions {
            match self.run_compaction(keyspace, version, compaction) {
                Ok(compacted) => done.push(compacted),
                Err(error) => {
                    done.iter().for_each(|compacted| self.discard(&compacted.tables));
                    return Err(error);
                }
            }
        }
        let outputs: Vec<Vec<Arc<Table>>> = done.iter().map(Compacted::placed).collect();
        let values = self.value_changes(keyspace, &mut done);
        if let Err(error) = self.install_plan(keyspace, plan, &outputs, values) {
            done.iter().for_each(|compacted| self.discard_uninstalled(&compacted.tables));
            return Err(error);
        }
        self.report_compaction(keyspace, &plan.why, &Totals::of(version, plan, &done), started);
        Ok(())
    }

    fn run_compaction(
        &self,
        keyspace: &KeyspaceInner,
        version: &Version,
        compaction: &Compaction,
    ) -> Result<Compacted> {
        let options = keyspace.options.load();
        let mut layout = TableLayout::of_level(&options, &version.shape, compaction.output_level);
        let least_id = compaction.input_ids().min().unwrap_or(u64::MAX);
        let values = keyspace.values.load_full();
        let separation = self.separation_for(&values, &options.values, least_id);
        let tables =
            || compaction.input_ids().filter_map(|id| version.handle(id)).map(|t| t.meta());
        let bytes: u64 = tables().map(|table| table.bytes).sum();
        let entries: u64 = tables().map(|table| table.entries).sum();
        layout.prefixer = self.prefixer_for(keyspace, version, compaction)?;
        let mode = options.sub_compactions;
        if is_sliced(mode, compaction.cut, bytes) && separation.is_none() {
            return self.run_sliced(keyspace, version, compaction, layout);
        }
        let sources = compaction_sources(version, compaction, &BTreeSet::new())?;
        let mut output = Output::new(self, layout, Cutter::new(compaction.cut, bytes, entries));
        output.separation = separation;
        let keep = self.liveness(version, compaction);
        merge_streams(sources, KeyRange::default(), output, keep, &|| {
            self.check_cancelled(keyspace)
        })
    }

    /// What stays in a compaction of these tables.
    pub(crate) fn liveness(&self, version: &Version, compaction: &Compaction) -> Liveness {
        let ids: BTreeSet<u64> = compaction.input_ids().collect();
        let guard = DropGuard::new(&version.shape, &ids);
        let is_deepest = version.shape.deepest() == Some(compaction.output_level);
        let guard = match is_deepest && seeded!(TombstonesDroppedByDepth) {
            true => DropGuard::new(&Default::default(), &ids),
            false => guard,
        };
        Liveness::new(self.visible_points(), Some(guard))
    }

    /// The rule by which the compaction cuts its outputs, if it cuts by prefix. The first such
    /// compaction of a keyspace with `prefix = "auto"` chooses it: the shortest prefix that tells
    /// apart as many groups as there would be tables of T_s, over the keys of this compaction
    /// (spec: compaction policies §3).
    pub(crate) fn prefixer_for(
        &self,
        keyspace: &KeyspaceInner,
        version: &Version,
        compaction: &Compaction,
    ) -> Result<Option<Prefixer>> {
        if !matches!(compaction.cut, Cut::Prefix { .. }) {
            return Ok(None);
        }
        let mut prefixer = keyspace.prefixer.lock();
        if let Some(chosen) = &*prefixer {
            return Ok(Some(chosen.clone()));
        }
        let mut streams =
            MergeIter::new(compaction_sources(version, compaction, &BTreeSet::new())?);
        streams.seek_to_first()?;
        let mut histogram = PrefixHistogram::default();
        while let Some((key, _)) = streams.current() {
            histogram.add(key);
            streams.step()?;
        }
        let bytes: u64 = compaction
            .input_ids()
            .filter_map(|id| version.handle(id))
            .map(|t| t.meta().bytes)
            .sum();
        let split_bytes = keyspace.options.load().shape.split_bytes;
        let rule = histogram.choose((bytes / split_bytes).max(1));
        let chosen = rule
            .resolve(&[])
            .map_err(|error| Error::invalid(error.to_string(), "name a prefix rule"))?;
        tracing::info!(keyspace = keyspace.name, prefix = %rule, "tables are cut by this prefix");
        Ok(Some(prefixer.insert(chosen).clone()))
    }

    /// Called now and then while a compact runs, with no lock held.
    pub(crate) fn check_cancelled(&self, keyspace: &KeyspaceInner) -> Result<()> {
        reached!(CompactionGoesOn);
        self.let_flushes_pass();
        self.check_wanted(keyspace)
    }

    /// Whether anybody wants what a job does for the keyspace. Its drop waits for the job.
    pub(crate) fn check_wanted(&self, keyspace: &KeyspaceInner) -> Result<()> {
        self.check_open()?;
        keyspace.check_exists()
    }

    pub(crate) fn check_open(&self) -> Result<()> {
        if self.scheduler.is_closing() { Err(Error::Closed) } else { Ok(()) }
    }

    fn install_plan(
        &self,
        keyspace: &Arc<KeyspaceInner>,
        plan: &Plan,
        outputs: &[Vec<Arc<Table>>],
        values: ValueChanges,
    ) -> Result<()> {
        // Handles outlive the store and the keyspace: what they started must not be installed then.
        self.check_open()?;
        self.install_edit(keyspace, values, |shape| {
            let mut edit = edit_for(shape, plan, outputs);
            note_prefix(keyspace, shape, plan, &mut edit);
            edit
        })?;
        Ok(())
    }

    /// Installs what `make` says of the tree as it is then; the edit.
    pub(crate) fn install_edit(
        &self,
        keyspace: &Arc<KeyspaceInner>,
        mut values: ValueChanges,
        make: impl FnOnce(&Shape) -> Edit,
    ) -> Result<Edit> {
        let mut manifest = self.manifest.lock();
        keyspace.check_exists()?;
        values.forget_dead_in_others(&keyspace.values.load());
        let edit = make(&keyspace.view.load().version.shape);
        let version = self.next_version(keyspace, &edit)?;
        let flushed_seq = manifest.flushed.get(&keyspace.id).copied().unwrap_or(0);
        let log_start = manifest.log_start;
        let id = keyspace.id;
        let mut changes = vec![Change::Edit { id, flushed_seq, edit: edit.clone() }];
        changes.extend(values.edits().map(|edit| Change::ValueFiles { id, edit: edit.clone() }));
        let gone = self.files_left_behind(keyspace, &version);
        changes.extend(gone.iter().map(|number| Change::ValueFileGone { id, number: *number }));
        let values = self.append_with_values(&mut manifest, changes, log_start, values)?;
        // ValueFiles before the pointers to them.
        self.publish_values(keyspace, values);
        reached!(ValuesPublished);
        self.swap_version(keyspace, version, 0);
        self.forget_value_files(keyspace, &gone);
        Ok(edit)
    }

    pub(crate) fn report_compaction(
        &self,
        keyspace: &KeyspaceInner,
        why: &str,
        totals: &Totals,
        started: Instant,
    ) {
        let Totals { read_bytes, written_bytes, moved_bytes, dropped, .. } = *totals;
        self.metrics.add_all(&[
            (Counter::compactions, 1),
            (Counter::compaction_bytes_read, read_bytes),
            (Counter::compaction_bytes_written, written_bytes),
            (Counter::bytes_moved, moved_bytes),
            (Counter::entries_dropped, dropped),
        ]);
        tracing::debug!(keyspace = keyspace.name, why, read_bytes, written_bytes, "compacted");
        self.emit(|| Event::Compacted {
            keyspace: keyspace.name.clone(),
            why: why.to_string(),
            input_tables: totals.input_tables,
            output_tables: totals.output_tables,
            moved_tables: totals.moved_tables,
            read_bytes,
            written_bytes,
            took: started.elapsed(),
        });
    }
}

/// The first edit with tables that were cut by prefix says by which rule.
pub(crate) fn note_prefix(keyspace: &KeyspaceInner, shape: &Shape, plan: &Plan, edit: &mut Edit) {
    let is_prefix = |compaction: &Compaction| matches!(compaction.cut, Cut::Prefix { .. });
    if shape.state.prefix.is_none() && plan.compactions.iter().any(is_prefix) {
        edit.prefix = keyspace.prefixer.lock().as_ref().map(|chosen| chosen.rule().clone());
    }
}

/// What a plan did, for counters and events.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Totals {
    pub(crate) input_tables: usize,
    pub(crate) output_tables: usize,
    pub(crate) moved_tables: usize,
    pub(crate) read_bytes: u64,
    pub(crate) written_bytes: u64,
    pub(crate) moved_bytes: u64,
    pub(crate) dropped: u64,
}

impl Totals {
    fn of(version: &Version, plan: &Plan, done: &[Compacted]) -> Totals {
        let bytes_of = |id: u64| version.handle(id).map_or(0, |handle| handle.meta().bytes);
        let mut totals = Totals::default();
        for compacted in done {
            totals.add_outputs(compacted);
            totals.add_moves(&compacted.moved);
        }
        for id in plan.compactions.iter().flat_map(Compaction::input_ids) {
            totals.input_tables += 1;
            totals.read_bytes += bytes_of(id);
        }
        totals.read_bytes -= totals.moved_bytes;
        totals.moved_tables += plan.moves.len();
        totals.moved_bytes += plan.moves.iter().map(|step| bytes_of(step.table)).sum::<u64>();
        totals
    }

    pub(crate) fn add_outputs(&mut self, compacted: &Compacted) {
        self.output_tables += compacted.tables.len();
        self.written_bytes += compacted.tables.iter().map(|table| table.bytes).sum::<u64>();
        self.dropped += compacted.dropped;
    }

    pub(crate) fn add_moves(&mut self, moved: &[Arc<Table>]) {
        self.moved_tables += moved.len();
        self.moved_bytes += moved.iter().map(|table| table.bytes).sum::<u64>();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::key::pack;

    fn kept(points: &[SeqNo], versions: &[(u64, Kind)], guard: bool) -> Vec<u64> {
        let guard = guard.then(|| DropGuard::new(&Default::default(), &BTreeSet::new()));
        let mut rule = Liveness::new(points.to_vec(), guard);
        let mut kept = Vec::new();
        for (seq, kind) in versions {
            rule.enter(b"k");
            if rule.keeps(pack(*seq, *kind)) {
                kept.push(*seq);
            }
        }
        kept
    }

    #[test]
    fn one_version_stays_per_stripe() {
        use Kind::{Delete, Put};
        let puts: Vec<(u64, Kind)> = [9, 7, 5, 4, 2, 1].map(|seq| (seq, Put)).to_vec();
        assert_eq!(kept(&[9], &puts, true), [9]);
        assert_eq!(kept(&[4, 9], &puts, true), [9, 4]);
        assert_eq!(kept(&[1, 2, 6, 9], &puts, true), [9, 5, 2, 1]);
        assert_eq!(kept(&[5], &puts, true), [9, 7, 5], "versions newer than the compact all stay");
        let deleted = [(9, Delete), (5, Put), (3, Delete), (1, Put)];
        assert_eq!(kept(&[9], &deleted, true), [0u64; 0], "a spent tombstone goes with its prey");
        assert_eq!(kept(&[9], &deleted, false), [9], "without proof it stays");
        assert_eq!(kept(&[4, 9], &deleted, true), [9], "only the oldest stripe's may go");
        assert_eq!(kept(&[5, 9], &deleted, true), [9, 5]);
    }
}
