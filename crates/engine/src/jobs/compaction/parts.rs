//! A plan that runs in parts, which can be installed one by one. Which edit a part is, and why
//! every tree between is sound, is in `runstone_policy::parts`.
//!
//! 1. Each compaction of the plan is planned as in `slices`, into parts of about four tables, or
//!    more parts where there are threads for them. Cells and table ids depend on the inputs only.
//! 2. W threads take the parts in key order. A part reads its inputs in the tree of the moment: no
//!    part holds the tree that the plan was made on, so inputs that have left give back their
//!    space.
//! 3. With `compaction_install = "incremental"`, whoever finishes a part installs those that are
//!    done from the first on, by one edit. The first edit waits for an output: the run that outputs
//!    join would else vanish with its last input, and its place among the runs with it. With
//!    "atomic" one edit installs all, of a plan of one compaction.
//! 4. When the store closes, no part is begun. A part goes on only if a later one is done already,
//!    so that none is lost that was finished; those that are done from the first on are installed,
//!    "atomic" or not. The rest of the plan is in the manifest; the scheduler runs it first when
//!    the store is open again. The same after a crash between two edits.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::*};
use std::time::Instant;

use parking_lot::Mutex;
use runstone_policy::partition::CutKey;
use runstone_policy::partition::slices::{self, CellRule, Slice};
use runstone_policy::parts::{can_be_parted, part_edit};
use runstone_policy::plan::{Compaction, Plan};
use runstone_policy::shape::{Shape, Table};

use crate::base::error::{Error, Result};
use crate::base::metrics::Counter;
use crate::base::options::CompactionInstall;
use crate::jobs::compaction::job::{
    Compacted, KeyRange, Output, Totals, compaction_sources, merge_streams, note_prefix,
};
use crate::jobs::compaction::slices::{is_sliced, on_threads, panicked, slice_inputs, slices_for};
use crate::jobs::cutter::Cutter;
use crate::store::{Inner, KeyspaceInner};
use crate::table::builder::TableLayout;
use crate::tree::version::Version;

/// One compact in parts.
struct PartedCompaction<'a> {
    inner: &'a Inner,
    keyspace: &'a Arc<KeyspaceInner>,
    compaction: &'a Compaction,
    layout: TableLayout,
    cuts: Arc<[CutKey]>,
    parts: Vec<Slice>,
    first_id: u64,
    /// Inputs that go to the output level as they are.
    moves: Vec<Arc<Table>>,
    install: CompactionInstall,
    /// One more than the last part that is finished.
    furthest: AtomicUsize,
    progress: Mutex<Progress<'a>>,
}

/// How far it is.
struct Progress<'a> {
    /// What is left of the plan.
    rest: &'a mut Plan,
    totals: &'a mut Totals,
    /// Next part to begin.
    next: usize,
    /// Finished, not yet installed.
    ready: BTreeMap<usize, Compacted>,
    installed: usize,
    /// Whether an output is in the tree.
    has_output: bool,
    /// Moves that are not in the output run yet.
    waiting: BTreeSet<u64>,
    failed: Option<Error>,
}

impl Inner {
    /// Whether to run a plan in parts: if the plan allows it, and a compaction of it has two parts
    /// or more. One plan of a keyspace at a time: the caller holds `parting`, and the tree notes no
    /// other.
    pub(crate) fn wants_parts(
        &self,
        keyspace: &KeyspaceInner,
        version: &Version,
        plan: &Plan,
    ) -> bool {
        let (shape, options) = (&version.shape, keyspace.options.load());
        let bytes = |compaction: &Compaction| -> u64 {
            let tables = compaction.input_ids().filter_map(|id| version.handle(id));
            tables.map(|table| table.meta().bytes).sum()
        };
        let is_large = |compaction: &Compaction| {
            let (bytes, usual) = (bytes(compaction), CellRule::of(compaction, None).usual_bytes());
            is_sliced(options.sub_compactions, compaction.cut, bytes)
                && self.part_count(bytes, usual) >= 2
        };
        let is_one_edit = options.compaction_install == CompactionInstall::Atomic;
        (plan.compactions.len() == 1 || !is_one_edit)
            && shape.pending.as_ref().is_none_or(|pending| **pending == *plan)
            && plan.compactions.iter().any(is_large)
            // ValueFiles on their way to another file are written by one appender.
            && plan.compactions.iter().flat_map(Compaction::input_ids).min().unwrap_or(0)
                >= keyspace.values.load().settled_from()
            && can_be_parted(shape, plan)
    }

    /// So many parts are worth an edit each, or a thread.
    fn part_count(&self, bytes: u64, usual_bytes: u64) -> usize {
        let worth = slices::slice_count(usize::MAX, usize::MAX, bytes, usual_bytes);
        worth.max(self.options.compaction_slices.unwrap_or(1))
    }

    /// The same for a compact that so many threads run: where parts cost no edit, a few for each.
    pub(crate) fn parts_wanted(
        &self,
        install: CompactionInstall,
        bytes: u64,
        usual_bytes: u64,
        threads: usize,
    ) -> usize {
        let count = self.part_count(bytes, usual_bytes);
        match install {
            CompactionInstall::Atomic => count.max(slices_for(threads)),
            CompactionInstall::Incremental => count,
        }
    }

    /// Executes a plan for which [`Inner::wants_parts`] holds. After an error, the parts that were
    /// installed stay.
    pub(crate) fn run_in_parts(
        &self,
        keyspace: &Arc<KeyspaceInner>,
        version: Arc<Version>,
        plan: &Plan,
    ) -> Result<()> {
        let started = Instant::now();
        let mut totals = Totals::default();
        let bytes_of = |id| version.handle(id).map_or(0, |table| table.meta().bytes);
        let moved: u64 = plan.moves.iter().map(|step| bytes_of(step.table)).sum();
        drop(version);
        let mut rest = plan.clone();
        let mut outcome = Ok(());
        for compaction in &plan.compactions {
            outcome = self.run_parted_compaction(keyspace, compaction, &mut rest, &mut totals);
            if outcome.is_err() {
                break;
            }
        }
        if outcome.is_ok() {
            totals.moved_bytes += moved;
            totals.moved_tables += plan.moves.len();
        }
        if totals.input_tables > 0 || outcome.is_ok() {
            self.report_compaction(keyspace, &plan.why, &totals, started);
        }
        outcome
    }

    fn run_parted_compaction(
        &self,
        keyspace: &Arc<KeyspaceInner>,
        compaction: &Compaction,
        rest: &mut Plan,
        totals: &mut Totals,
    ) -> Result<()> {
        let version = Arc::clone(&keyspace.view.load().version);
        let inputs = slice_inputs(&version, compaction)?;
        let bytes: u64 = inputs.iter().map(|input| input.table.bytes).sum();
        let options = keyspace.options.load();
        let mut layout = TableLayout::of_level(&options, &version.shape, compaction.output_level);
        layout.prefixer = self.prefixer_for(keyspace, &version, compaction)?;
        let rule = CellRule::of(compaction, layout.prefixer.as_ref());
        let usual_bytes = rule.usual_bytes();
        let threads = self.slice_count(bytes, usual_bytes);
        let count = self.parts_wanted(options.compaction_install, bytes, usual_bytes, threads);
        let plan = slices::sub_compactions(options.sub_compactions, &inputs, rule, count);
        self.count_slices(&inputs, &plan, threads);
        let is_moved = |id: u64| plan.moves.contains(&id);
        let tables = inputs.iter().map(|input| &input.table);
        let moves: Vec<_> = tables.filter(|table| is_moved(table.id)).cloned().collect();
        totals.input_tables += inputs.len();
        let first_id = self.next_file.fetch_add(plan.cuts.len() as u64 + 1, Relaxed);
        let parted = PartedCompaction {
            inner: self,
            keyspace,
            compaction,
            layout,
            cuts: plan.cuts.into(),
            parts: plan.slices,
            first_id,
            install: options.compaction_install,
            furthest: AtomicUsize::new(0),
            progress: Mutex::new(Progress {
                rest,
                totals,
                next: 0,
                ready: BTreeMap::new(),
                installed: 0,
                has_output: false,
                waiting: moves.iter().map(|table| table.id).collect(),
                failed: None,
            }),
            moves,
        };
        drop((version, inputs));
        parted.run(threads)
    }

    /// Installs a part; the edit says what is left of the plan.
    fn install_part(
        &self,
        keyspace: &Arc<KeyspaceInner>,
        done: &mut [Compacted],
        make: impl FnOnce(&Shape) -> runstone_policy::shape::Edit,
    ) -> Result<Option<Arc<Plan>>> {
        if self.is_stopped() {
            self.check_writable()?;
        }
        let values = self.value_changes(keyspace, done);
        let edit = self.install_edit(keyspace, values, make)?;
        // Nobody else might before the compaction ends. Each edit names all inputs that are left.
        self.purge_files();
        if let Err(error) = self.rotate_manifest_if_due() {
            // The part is installed; whether the store can go on is seen by the next one.
            tracing::warn!(%error, "the manifest was not rewritten");
        }
        Ok(edit.pending)
    }
}

impl PartedCompaction<'_> {
    fn run(&self, threads: usize) -> Result<()> {
        if self.parts.is_empty() {
            // Everything moves.
            return self.install_ready(&mut self.progress.lock());
        }
        on_threads(threads.min(self.parts.len()), &|| {
            // A part that panics fails the compaction.
            let work = std::panic::AssertUnwindSafe(|| self.work());
            if std::panic::catch_unwind(work).is_err() {
                self.progress.lock().failed.get_or_insert(panicked());
            }
        });
        let mut progress = self.progress.lock();
        let is_ended = matches!(progress.failed, None | Some(Error::Closed));
        if is_ended && progress.installed < self.parts.len() {
            // Of an atomic compact that the store's end met, the parts that are done.
            if let Err(error) = self.install_ready(&mut progress) {
                progress.failed = Some(error);
            }
        }
        for (_, compacted) in std::mem::take(&mut progress.ready) {
            self.inner.discard(&compacted.tables);
        }
        match progress.failed.take() {
            Some(error) => Err(error),
            None if progress.installed < self.parts.len() => Err(Error::Closed),
            None => Ok(()),
        }
    }

    /// Takes parts until none is left.
    fn work(&self) {
        while let Some(part) = self.take() {
            let outcome = self.run_part(part);
            let mut progress = self.progress.lock();
            let installed = outcome.and_then(|compacted| {
                self.furthest.fetch_max(part + 1, AcqRel);
                progress.ready.insert(part, compacted);
                self.install_ready(&mut progress)
            });
            if let Err(error) = installed {
                progress.failed.get_or_insert(error);
            }
        }
    }

    fn take(&self) -> Option<usize> {
        let mut progress = self.progress.lock();
        let ends = progress.failed.is_some() || self.inner.scheduler.is_closing();
        if ends || progress.next == self.parts.len() {
            return None;
        }
        progress.next += 1;
        Some(progress.next - 1)
    }

    fn run_part(&self, part: usize) -> Result<Compacted> {
        let slice = &self.parts[part];
        let range = KeyRange { lo: slice.lo.as_deref(), hi: slice.hi.as_deref() };
        let version = Arc::clone(&self.keyspace.view.load().version);
        let mut left = self.compaction.clone();
        for input in &mut left.inputs {
            input.tables.retain(|id| version.handle(*id).is_some());
        }
        let moves: BTreeSet<u64> = self.moves.iter().map(|table| table.id).collect();
        let sources = compaction_sources(&version, &left, &moves)?;
        let keep = self.inner.liveness(&version, &left);
        drop(version);
        let cutter = Cutter::cells(Arc::clone(&self.cuts), range.lo);
        let output = Output::of_cells(self.inner, self.layout.clone(), cutter, self.first_id);
        merge_streams(sources, range, output, keep, &|| self.check_cancelled(part))
    }

    /// Step 4.
    fn check_cancelled(&self, part: usize) -> Result<()> {
        let scheduler = &self.inner.scheduler;
        reached!(CompactionGoesOn);
        self.inner.let_flushes_pass();
        let is_last = self.furthest.load(Acquire) <= part + 1;
        if (scheduler.is_closing() && is_last) || self.progress.lock().failed.is_some() {
            return Err(Error::Closed);
        }
        self.keyspace.check_exists()
    }

    /// Step 3. The progress is locked, so that edits come in key order.
    fn install_ready(&self, progress: &mut Progress<'_>) -> Result<()> {
        let from = progress.installed;
        let to = (from..).find(|part| !progress.ready.contains_key(part)).unwrap_or(from);
        let is_last = to == self.parts.len();
        let waits = self.install == CompactionInstall::Atomic && !self.inner.scheduler.is_closing();
        if waits && !is_last {
            return Ok(());
        }
        let is_empty = (from..to).all(|part| progress.ready[&part].tables.is_empty());
        if !is_last && (to == from || (is_empty && !progress.has_output)) {
            return Ok(());
        }
        let mut done: Vec<Compacted> =
            (from..to).filter_map(|at| progress.ready.remove(&at)).collect();
        let bound = match is_last {
            true => None,
            false => self.parts[to - 1].hi.as_deref(),
        };
        let is_below = |table: &Table| bound.is_none_or(|bound| *table.max_key < *bound);
        let (mut moving, mut waiting) = (Vec::new(), BTreeSet::new());
        for table in self.moves.iter().filter(|table| progress.waiting.contains(&table.id)) {
            match is_below(table) {
                true => moving.push(Arc::clone(table)),
                false => drop(waiting.insert(table.id)),
            }
        }
        let outputs = done.iter().flat_map(|compacted| &compacted.tables);
        let placed: Vec<Arc<Table>> = outputs.chain(&moving).cloned().collect();
        let rest = &*progress.rest;
        let make = |shape: &Shape| {
            let mut edit = part_edit(shape, rest, &placed, &waiting, bound);
            note_prefix(self.keyspace, shape, rest, &mut edit);
            edit
        };
        let installed = self.inner.install_part(self.keyspace, &mut done, make);
        let pending = installed.inspect_err(|_| {
            done.iter().for_each(|compacted| self.inner.discard_uninstalled(&compacted.tables));
        })?;
        *progress.rest = pending.map_or_else(Plan::default, |plan| (*plan).clone());
        progress.waiting = waiting;
        progress.installed = to;
        progress.has_output |= !is_empty;
        progress.totals.read_bytes += self.parts[from..to].iter().map(|p| p.bytes).sum::<u64>();
        progress.totals.add_moves(&moving);
        done.iter().for_each(|compacted| progress.totals.add_outputs(compacted));
        let is_part = to - from < self.parts.len();
        self.inner.metrics.add(Counter::compaction_parts, u64::from(is_part));
        Ok(())
    }
}
