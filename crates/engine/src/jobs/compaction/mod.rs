//! Executes a plan: merges its inputs, and writes the versions that a reader can still see to new
//! tables. One or several edits make these tables part of the tree.
//!
//! - [`slicing`]: cuts a compaction into slices.
//! - [`executor`]: threads take the slices and write tables.
//! - [`parts`]: slices that are installed part by part.
//! - [`totals`]: counts the work of a plan.

mod executor;
mod parts;
pub(crate) mod slicing;
mod totals;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering::*;
use std::time::Instant;

use crate::sync::{Mutex, rank};
use runstone_policy::edit::edit_for;
use runstone_policy::partition::slices::{self, CellRule, Slice, slice_count};
use runstone_policy::parts::can_be_parted;
use runstone_policy::plan::{Compaction, Cut, Plan};
use runstone_policy::prefix::{PrefixHistogram, Prefixer};
use runstone_policy::shape::{Edit, Shape, Table};

use crate::callbacks::event::Event;
use crate::catalog::Catalog;
use crate::catalog::keyspace::KeyspaceCore;
use crate::env::Env;
use crate::error::{Error, Result};
use crate::jobs::install::Installer;
use crate::jobs::output::Written;
use crate::jobs::prepare::Preparer;
use crate::keys::SeqNo;
use crate::metrics::Counter;
use crate::options::store::CompactionInstall;
use crate::read::merge::MergeIter;
use crate::schedule::{CORES, Schedule};
use crate::table::builder::TableLayout;
use crate::tree::version::Version;
use crate::visibility::snapshot::Visibility;
use executor::{Cells, Execution, Progress, input_size, separation_of, sources_of};
use slicing::{is_sliced, part_count, slice_inputs, slices_for};
use totals::Totals;

/// Executes plans.
#[derive(Debug)]
pub(crate) struct Compactor {
    pub(crate) env: Arc<Env>,
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) visibility: Arc<Visibility>,
    pub(crate) schedule: Arc<Schedule>,
    pub(crate) installer: Arc<Installer>,
    pub(crate) preparer: Arc<Preparer>,
}

/// The output of one compaction.
#[derive(Debug, Default)]
struct Outcome {
    written: Written,
    /// Inputs that move to the output level unchanged.
    moved: Vec<Arc<Table>>,
    /// The number of slices into which it was cut.
    parts: usize,
}

impl Outcome {
    fn outputs(&self) -> Vec<Arc<Table>> {
        self.written.tables.iter().chain(&self.moved).cloned().collect()
    }
}

impl Compactor {
    /// Executes and installs a plan that was made on `version`.
    pub(crate) fn run(
        &self,
        keyspace: &Arc<KeyspaceCore>,
        version: Arc<Version>,
        plan: &Plan,
    ) -> Result<()> {
        if let Some(_one_at_a_time) = keyspace.parting.try_lock()
            && self.wants_parts(keyspace, &version, plan)
        {
            return self.run_in_parts(keyspace, version, plan);
        }
        self.run_at_once(keyspace, &version, plan)
    }

    /// Executes a plan, and installs it with one edit when all of it is done.
    fn run_at_once(
        &self,
        keyspace: &Arc<KeyspaceCore>,
        version: &Arc<Version>,
        plan: &Plan,
    ) -> Result<()> {
        let started = Instant::now();
        let mut done = self.run_compactions(keyspace, version, plan)?;
        let outputs: Vec<Vec<Arc<Table>>> = done.iter().map(Outcome::outputs).collect();
        let values =
            self.installer.value_changes(keyspace, done.iter_mut().map(|one| &mut one.written));
        // A handle can outlive its store and keyspace; after those end, its work must not be
        // installed.
        let left = done.iter().flat_map(|outcome| &outcome.written.range_deletes_left);
        let left: Vec<SeqNo> = left.copied().collect();
        let installed = self.schedule.check_open().and_then(|()| {
            self.installer.install(keyspace, values, &left, |shape| {
                let mut edit = edit_for(shape, plan, &outputs);
                note_prefix(keyspace, shape, plan, &mut edit);
                edit
            })
        });
        if let Err(error) = installed {
            done.iter()
                .for_each(|outcome| self.catalog.discard_uninstalled(&outcome.written.tables));
            return Err(error);
        }
        self.report(keyspace, &plan.why, &Totals::of(version, plan, &done), started);
        Ok(())
    }

    /// Runs the compactions of a plan side by side, and returns their outcomes in the order of the
    /// plan. Compactions that are not planned by cells run first, one by one: their tables get ids
    /// as they are cut, and ids must not depend on threads.
    fn run_compactions(
        &self,
        keyspace: &Arc<KeyspaceCore>,
        version: &Arc<Version>,
        plan: &Plan,
    ) -> Result<Vec<Outcome>> {
        let plan_one = |compaction| self.execution(keyspace, version, compaction);
        let executions = plan.compactions.iter().map(plan_one).collect::<Result<Vec<_>>>()?;
        let sliced = || executions.iter().filter(|one| one.is_sliced());
        let bytes = sliced().flat_map(|one| &one.slices).map(|slice| slice.bytes).sum();
        let usual = sliced().map(|one| CellRule::of(one.compaction, None).usual_bytes()).min();
        let threads = usual.map_or(1, |usual_bytes| self.thread_count(bytes, usual_bytes));
        self.count_slices(&executions, threads);
        let done: Vec<_> =
            executions.iter().map(|_| Mutex::<rank::SliceDone, _>::new(BTreeMap::new())).collect();
        let run = |from: usize, to: usize, threads| {
            executor::run(&executions[from..to], threads, &|at, slice, written| {
                done[from + at].lock().insert(slice, written);
                Ok(())
            })
        };
        let count = executions.len();
        let mut one_by_one = (0..count).filter(|at| !executions[*at].is_sliced());
        let outcome = one_by_one.try_for_each(|at| run(at, at + 1, 1));
        let outcome = outcome.and_then(|()| run(0, count, threads));
        let mut outcomes = Vec::with_capacity(count);
        let mut is_whole = true;
        for (execution, done) in executions.into_iter().zip(done) {
            let slices = done.into_inner();
            let parts = execution.slices.len();
            is_whole &= slices.len() == parts;
            let written = Written::in_key_order(slices.into_values());
            outcomes.push(Outcome { written, moved: execution.moves, parts });
        }
        let outcome = outcome.and(if is_whole { Ok(()) } else { Err(Error::Closed) });
        outcome.inspect_err(|_| {
            outcomes.iter().for_each(|outcome| self.catalog.discard(&outcome.written.tables));
        })?;
        Ok(outcomes)
    }

    /// A compaction ready to run, in slices if it is planned by cells.
    fn execution<'a>(
        &'a self,
        keyspace: &'a Arc<KeyspaceCore>,
        version: &Arc<Version>,
        compaction: &'a Compaction,
    ) -> Result<Execution<'a>> {
        let mode = keyspace.options.load().sub_compactions;
        let (bytes, _) = input_size(version, compaction);
        let is_sliced = is_sliced(mode, compaction.cut, bytes)
            && separation_of(keyspace, version, compaction).is_none();
        let mut execution = match is_sliced {
            true => {
                self.sliced(keyspace, version, compaction, &|threads, _, _| slices_for(threads))?.0
            }
            false => self.unsliced(keyspace, version, compaction)?,
        };
        execution.version = Some(Arc::clone(version));
        Ok(execution)
    }

    /// A compaction that one thread runs from end to end, cutting its outputs as it goes.
    fn unsliced<'a>(
        &'a self,
        keyspace: &'a Arc<KeyspaceCore>,
        version: &Version,
        compaction: &'a Compaction,
    ) -> Result<Execution<'a>> {
        Ok(Execution {
            compactor: self,
            keyspace,
            compaction,
            layout: self.layout(keyspace, version, compaction)?,
            cells: Cells::Unknown,
            slices: vec![Slice { lo: None, hi: None, bytes: 0 }],
            moves: Vec::new(),
            version: None,
            progress: Progress::default(),
        })
    }

    /// A compaction in cells and slices, and the number of threads that should run it. `count`
    /// computes the number of slices from the threads, the bytes and the usual bytes of a table.
    fn sliced<'a>(
        &'a self,
        keyspace: &'a Arc<KeyspaceCore>,
        version: &Version,
        compaction: &'a Compaction,
        count: &dyn Fn(usize, u64, u64) -> usize,
    ) -> Result<(Execution<'a>, usize)> {
        let layout = self.layout(keyspace, version, compaction)?;
        let inputs = slice_inputs(version, compaction)?;
        let bytes: u64 = inputs.iter().map(|input| input.table.bytes).sum();
        let mut rule = CellRule::of(compaction, layout.prefixer.as_ref());
        // A filter sees an entry, and hidden entries are dropped, only if the table is rewritten.
        rule.may_move &= !keyspace.filtering.load().is_used()
            && !inputs.iter().any(|input| version.hides_some_of(&input.table));
        let usual_bytes = rule.usual_bytes();
        let threads = self.thread_count(bytes, usual_bytes);
        let mode = keyspace.options.load().sub_compactions;
        let count = count(threads, bytes, usual_bytes);
        let plan = slices::sub_compactions(mode, &inputs, rule, count);
        let tables = inputs.into_iter().map(|input| input.table);
        let moves = tables.filter(|table| plan.moves.contains(&table.id)).collect();
        let first_id = self.env.next_file.fetch_add(plan.cuts.len() as u64 + 1, Relaxed);
        let execution = Execution {
            compactor: self,
            keyspace,
            compaction,
            layout,
            cells: Cells::Known { cuts: plan.cuts.into(), first_id },
            slices: plan.slices,
            moves,
            version: None,
            progress: Progress::default(),
        };
        Ok((execution, threads))
    }

    fn layout(
        &self,
        keyspace: &KeyspaceCore,
        version: &Version,
        compaction: &Compaction,
    ) -> Result<TableLayout> {
        let options = keyspace.options.load();
        let mut layout = TableLayout::of_level(&options, &version.shape, compaction.output_level)
            .in_keyspace(keyspace.id);
        layout.prefixer = self.prefixer_for(keyspace, version, compaction)?;
        Ok(layout)
    }

    /// Whether to run a plan in parts: the plan must allow it, and one of its compactions must have
    /// two parts or more. Only one plan of a keyspace runs in parts at a time: the caller holds
    /// `parting`, and the tree records no other pending plan.
    fn wants_parts(&self, keyspace: &KeyspaceCore, version: &Version, plan: &Plan) -> bool {
        let (shape, options) = (&version.shape, keyspace.options.load());
        let is_large = |compaction: &Compaction| {
            let (bytes, _) = input_size(version, compaction);
            let usual = CellRule::of(compaction, None).usual_bytes();
            is_sliced(options.sub_compactions, compaction.cut, bytes)
                && part_count(self.env.options.compaction_slices, bytes, usual) >= 2
        };
        let is_one_edit = options.compaction_install == CompactionInstall::Atomic;
        (plan.compactions.len() == 1 || !is_one_edit)
            && shape.pending.as_ref().is_none_or(|pending| **pending == *plan)
            && plan.compactions.iter().any(is_large)
            // One appender writes the values that move to another file, so such a plan is not
            // split.
            && plan.compactions.iter().flat_map(Compaction::input_ids).min().unwrap_or(0)
                >= keyspace.values.load().settled_from()
            && (!keyspace.merging.load().is_used() || keyspace.values.load().is_empty())
            // A part must not drop a range tombstone while a later part has the entries that it
            // hides.
            && (!has_range_deletes(version, plan) || seeded!(RangeDeletesInParts))
            && can_be_parted(shape, plan)
    }

    /// How many threads run a compaction: the cores that no other job and no writer uses, up to the
    /// limit and to the number that its size is worth. It is one if jobs are run by hand, so that
    /// their I/O has a fixed order.
    fn thread_count(&self, bytes: u64, table_bytes: u64) -> usize {
        if let Some(fixed) = self.env.options.compaction_slices {
            return fixed;
        }
        if self.env.is_manual() {
            return 1;
        }
        let others = self.schedule.lock().running.len().saturating_sub(1);
        let writers = usize::from(self.schedule.sees_writers(self.visibility.now()));
        let idle = CORES.saturating_sub(others + writers);
        slice_count(*CORES, idle, bytes, table_bytes)
    }

    /// Counts the slices of the compactions that are planned by cells, and their bytes. The
    /// critical path is the longest of `threads` threads that take the slices in order, each when
    /// it is free.
    fn count_slices(&self, executions: &[Execution<'_>], threads: usize) {
        let sliced = executions.iter().filter(|one| one.is_sliced());
        let slices: Vec<&Slice> = sliced.flat_map(|one| &one.slices).collect();
        let mut loads = vec![0u64; threads.max(1)];
        for slice in &slices {
            if let Some(least) = loads.iter_mut().min() {
                *least += slice.bytes;
            }
        }
        self.env.metrics.add_all(&[
            (Counter::compaction_slices, slices.len() as u64),
            (Counter::sliced_bytes, loads.iter().sum()),
            (Counter::slice_critical_bytes, loads.iter().max().copied().unwrap_or(0)),
        ]);
    }

    /// The rule by which the compaction cuts its outputs, if it cuts by prefix. The first such
    /// compaction of a keyspace with `prefix = "auto"` chooses the rule: the shortest prefix that
    /// splits its keys into as many groups as there would be tables of `split_bytes` bytes.
    fn prefixer_for(
        &self,
        keyspace: &KeyspaceCore,
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
        let mut streams = MergeIter::new(sources_of(version, compaction, &BTreeSet::new())?);
        streams.seek_to_first()?;
        let mut histogram = PrefixHistogram::default();
        while let Some((key, _)) = streams.current() {
            histogram.add(key);
            streams.step()?;
        }
        let (bytes, _) = input_size(version, compaction);
        let split_bytes = keyspace.options.load().numbers().split_bytes;
        let rule = histogram.choose((bytes / split_bytes).max(1));
        let chosen = rule
            .resolve(&[])
            .map_err(|error| Error::invalid(error.to_string(), "name a prefix rule"))?;
        tracing::info!(keyspace = keyspace.name, prefix = %rule, "tables are cut by this prefix");
        Ok(Some(prefixer.insert(chosen).clone()))
    }

    fn report(&self, keyspace: &KeyspaceCore, why: &str, totals: &Totals, started: Instant) {
        let Totals { read_bytes, written_bytes, moved_bytes, dropped, .. } = *totals;
        self.env.metrics.add_all(&[
            (Counter::compactions, 1),
            (Counter::compaction_bytes_read, read_bytes),
            (Counter::compaction_bytes_written, written_bytes),
            (Counter::bytes_moved, moved_bytes),
            (Counter::entries_dropped, dropped),
        ]);
        keyspace.work.count_compaction(read_bytes, written_bytes);
        tracing::debug!(keyspace = keyspace.name, why, read_bytes, written_bytes, "compacted");
        self.env.emit(|| Event::Compacted {
            keyspace: keyspace.name.clone(),
            why: why.to_string(),
            input_tables: totals.input_tables,
            output_tables: totals.output_tables,
            moved_tables: totals.moved_tables,
            parts: totals.parts,
            read_bytes,
            written_bytes,
            took: started.elapsed(),
        });
    }
}

/// Records the prefix rule in the first edit whose tables it cut.
fn note_prefix(keyspace: &KeyspaceCore, shape: &Shape, plan: &Plan, edit: &mut Edit) {
    let is_prefix = |compaction: &Compaction| matches!(compaction.cut, Cut::Prefix { .. });
    if shape.state.prefix.is_none() && plan.compactions.iter().any(is_prefix) {
        edit.prefix = keyspace.prefixer.lock().as_ref().map(|chosen| chosen.rule().clone());
    }
}

/// Whether a table that the plan rewrites has range tombstones.
fn has_range_deletes(version: &Version, plan: &Plan) -> bool {
    let inputs = plan.compactions.iter().flat_map(Compaction::input_ids);
    let mut inputs = inputs.filter_map(|id| version.handle(id));
    version.range_deletes.is_some() && inputs.any(|table| table.meta().range_deletes > 0)
}
