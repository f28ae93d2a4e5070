//! Executes compactions: threads take their slices in key order, merge the inputs and write tables.
//! The plan decides where tables are cut. The caller gets each finished slice, and installs its
//! tables.

use std::any::Any;
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::*};
use std::time::Instant;

use crate::sync::{Mutex, rank};
use runstone_policy::drop_guard::{DropGuard, RangeGuard};
use runstone_policy::partition::CutKey;
use runstone_policy::partition::slices::Slice;
use runstone_policy::plan::Compaction;
use runstone_policy::shape::{Level, Table};

use crate::catalog::keyspace::KeyspaceCore;
use crate::error::{Error, Result};
use crate::jobs::compaction::Compactor;
use crate::jobs::cutter::Cutter;
use crate::jobs::filtering::Filter;
use crate::jobs::folding::Folding;
use crate::jobs::liveness::{Liveness, Past};
use crate::jobs::neighbours::Neighbours;
use crate::jobs::output::{KeyRange, Output, Written, write_streams};
use crate::jobs::outside::Outside;
use crate::keys::SeqNo;
use crate::metrics::Counter;
use crate::pace::pacing::Worker;
use crate::read::source::{RunIter, Source};
use crate::table::behind::Warmth;
use crate::table::builder::TableLayout;
use crate::table::handle::TableHandle;
use crate::table::iterator::Access;
use crate::tree::level::{RunTables, chains};
use crate::tree::version::Version;
use crate::values::separation::Separation;
use crate::write::pressure::fullness_permille;

/// Where the outputs of a compaction are cut.
pub(super) enum Cells {
    /// The cuts are found during the walk, so there is only one slice.
    Unknown,
    /// Outputs are cut before these keys. The tables of the cells have consecutive ids from
    /// `first_id`.
    Known { cuts: Arc<[CutKey]>, first_id: u64 },
}

/// One compaction under way.
pub(super) struct Execution<'a> {
    pub(super) compactor: &'a Compactor,
    pub(super) keyspace: &'a Arc<KeyspaceCore>,
    pub(super) compaction: &'a Compaction,
    pub(super) layout: TableLayout,
    pub(super) cells: Cells,
    pub(super) slices: Vec<Slice>,
    /// Inputs that move to the output level unchanged.
    pub(super) moves: Vec<Arc<Table>>,
    /// The version to read the inputs from. `None` means the current one, so that inputs which are
    /// already replaced release their space.
    pub(super) version: Option<Arc<Version>>,
    pub(super) progress: Progress,
}

/// The progress of an execution.
#[derive(Default)]
pub(super) struct Progress {
    next: AtomicUsize,
    /// One more than the index of the last slice that is done.
    furthest: AtomicUsize,
    failed: Mutex<rank::SliceFailed, Option<Error>>,
}

/// Receives a slice that is done: the index of its compaction, its own index, and its tables.
pub(super) type Deliver<'a> = dyn Fn(usize, usize, Written) -> Result<()> + Sync + 'a;

/// Runs all slices of compactions on `threads` threads, and delivers each one when it is done. The
/// first error ends it: no more slices are begun. It is not an error if slices are not begun
/// because the store closes.
pub(super) fn run(
    executions: &[Execution<'_>],
    threads: usize,
    deliver: &Deliver<'_>,
) -> Result<()> {
    let slices = executions.iter().map(|execution| execution.slices.len()).sum();
    let take_turns = || {
        for (at, execution) in executions.iter().enumerate() {
            execution.work(at, deliver);
            if execution.has_failed() {
                executions.iter().for_each(Execution::stop);
            }
        }
    };
    on_threads(threads.min(slices), &take_turns);
    executions
        .iter()
        .find_map(|execution| execution.progress.failed.lock().take())
        .map_or(Ok(()), Err)
}

impl Execution<'_> {
    /// Runs slices until none is left. A slice that panics fails the compaction.
    fn work(&self, index: usize, deliver: &Deliver<'_>) {
        let worker = self.compactor.env.pace.work(Instant::now());
        let run_slices = || {
            while let Some(at) = self.take() {
                let outcome = self.run_slice(at, &worker).and_then(|written| {
                    self.progress.furthest.fetch_max(at + 1, AcqRel);
                    deliver(index, at, written)
                });
                if let Err(error) = outcome {
                    self.fail(error);
                }
            }
        };
        if let Err(panic) = catch_unwind(AssertUnwindSafe(run_slices)) {
            let what = format!("a part of a compaction panicked: {}", text_of(&*panic));
            self.fail(Error::invalid(what, "report it; the inputs are untouched"));
        }
    }

    /// Whether the compaction was planned by cells, so that several threads may run it.
    pub(super) fn is_sliced(&self) -> bool {
        matches!(self.cells, Cells::Known { .. })
    }

    /// Begins no more slices.
    fn stop(&self) {
        self.progress.next.store(self.slices.len(), Relaxed);
    }

    fn fail(&self, error: Error) {
        self.progress.failed.lock().get_or_insert(error);
    }

    fn take(&self) -> Option<usize> {
        if self.has_failed() || self.compactor.schedule.is_closing() {
            return None;
        }
        let at = self.progress.next.fetch_add(1, Relaxed);
        (at < self.slices.len()).then_some(at)
    }

    fn has_failed(&self) -> bool {
        self.progress.failed.lock().is_some()
    }

    fn run_slice(&self, at: usize, worker: &Worker<'_>) -> Result<Written> {
        let slice = &self.slices[at];
        let range = KeyRange { lo: slice.lo.as_deref(), hi: slice.hi.as_deref() };
        let (version, inputs) = self.inputs();
        let moves: BTreeSet<u64> = self.moves.iter().map(|table| table.id).collect();
        let sources = sources_of(&version, &inputs, &moves)?;
        let mut live = self.liveness(&version, &inputs, &moves);
        if range.lo.is_some() && seeded!(RangeDeletesEndWithTheirSlice) {
            live = live.with_range_deletes(None, None);
        }
        let mut output = self.output(&version, range.lo);
        let budget_bytes = self.compactor.catalog.env.memory_budget_bytes();
        output.folding = Folding::of(self.keyspace, budget_bytes);
        let ids = self.compaction.input_ids().collect();
        output.filter = Filter::of(self.keyspace, &ids, self.compaction.output_level);
        output.warmth = self.warmth(&version)?;
        let seqs = seqs_of(&version, &inputs);
        drop(version);
        let written = write_streams(sources, range, output, live, &|| self.check(at, worker))?;
        let is_within = |table: &Arc<Table>| seqs.0 <= table.min_seq && table.max_seq <= seqs.1;
        assert!(
            written.tables.iter().all(is_within),
            "a compaction writes a sequence number that no input has (I5)"
        );
        Ok(written)
    }

    /// How much of the inputs is in memory.
    fn warmth(&self, version: &Version) -> Result<Vec<Arc<Warmth>>> {
        let inputs = self.compaction.input_ids().filter_map(|id| version.handle(id));
        inputs.map(|table| Ok(Arc::clone(table.reader()?.warmth()))).collect()
    }

    /// The version to read from, and the inputs that it still has.
    fn inputs(&self) -> (Arc<Version>, Cow<'_, Compaction>) {
        if let Some(version) = &self.version {
            return (Arc::clone(version), Cow::Borrowed(self.compaction));
        }
        let version = Arc::clone(&self.keyspace.view.load().version);
        let mut left = self.compaction.clone();
        for input in &mut left.inputs {
            input.tables.retain(|id| version.handle(*id).is_some());
        }
        (version, Cow::Owned(left))
    }

    fn output(&self, version: &Version, lo: Option<&[u8]>) -> Output<'_> {
        let (catalog, layout) = (&*self.compactor.catalog, self.layout.clone());
        match &self.cells {
            Cells::Known { cuts, first_id } => {
                Output::of_cells(catalog, layout, Cutter::cells(Arc::clone(cuts), lo), *first_id)
            }
            Cells::Unknown => {
                let (bytes, entries) = input_size(version, self.compaction);
                let cutter = Cutter::new(self.compaction.cut, bytes, entries);
                let mut output = Output::new(catalog, layout, cutter);
                output.separation = separation_of(self.keyspace, version, self.compaction);
                output
            }
        }
    }

    /// Called regularly while a slice runs, with no lock held. When the store closes, a slice that
    /// is installed part by part continues only if a later slice is done already, so that no
    /// finished work is lost.
    fn check(&self, at: usize, worker: &Worker<'_>) -> Result<()> {
        reached!(CompactionGoesOn);
        self.compactor.preparer.let_flushes_pass();
        self.let_synced_writes_pass(worker);
        self.compactor.preparer.keep_rate(|| self.keyspace.check_exists().is_ok());
        let is_needed = self.version.is_none() && self.progress.furthest.load(Acquire) > at + 1;
        if self.has_failed() || (self.compactor.schedule.is_closing() && !is_needed) {
            return Err(Error::Closed);
        }
        self.keyspace.check_exists()
    }

    /// Pauses if there are synced writes and [`crate::pace`] requires a pause. It does not pause
    /// while writers are slowed down or a flush waits for compactions, because then they all wait
    /// for this compaction.
    fn let_synced_writes_pass(&self, worker: &Worker<'_>) {
        let Compactor { env, schedule, .. } = self.compactor;
        if env.is_manual() || env.throttle.permille() > 0 || schedule.is_flush_held_up() {
            return;
        }
        let fullness = || fullness_permille(self.keyspace);
        if let Some(pause) = worker.pause(Instant::now(), fullness) {
            std::thread::sleep(pause);
            worker.resume(Instant::now());
            env.metrics.add(Counter::paused_ns, pause.as_nanos() as u64);
        }
    }
}

/// The smallest and the largest sequence number of the inputs.
fn seqs_of(version: &Version, compaction: &Compaction) -> (SeqNo, SeqNo) {
    let tables = compaction.input_ids().filter_map(|id| version.handle(id));
    tables.fold((SeqNo::MAX, 0), |(min_seq, max_seq), table| {
        (min_seq.min(table.meta().min_seq), max_seq.max(table.meta().max_seq))
    })
}

/// Bytes and entries of the inputs.
pub(super) fn input_size(version: &Version, compaction: &Compaction) -> (u64, u64) {
    let tables = compaction.input_ids().filter_map(|id| version.handle(id));
    tables.fold((0, 0), |(bytes, entries), table| {
        (bytes + table.meta().bytes, entries + table.meta().entries)
    })
}

/// How a compaction places values. `None` leaves them where they are, because the placement of the
/// keyspace has not changed since its inputs were written. The inputs from a bulk load, which share
/// one sequence number, contain their large values in any case.
pub(super) fn separation_of(
    keyspace: &KeyspaceCore,
    version: &Version,
    compaction: &Compaction,
) -> Option<Separation> {
    let least_id = compaction.input_ids().min().unwrap_or(u64::MAX);
    let (options, values) = (keyspace.options.load(), keyspace.values.load_full());
    let is_loaded = |table: &Arc<TableHandle>| {
        table.meta().min_seq == table.meta().max_seq && table.meta().entries > 1
    };
    let mut inputs = compaction.input_ids().filter_map(|id| version.handle(id));
    let is_changing = keyspace.merging.load().is_used() || keyspace.filtering.load().is_used();
    if is_changing || inputs.any(is_loaded) {
        // Values that are folded from operands, or changed by a filter, may be large.
        return Separation::new(&values, &options.values);
    }
    Separation::of_compaction(&values, &options.values, least_id)
}

impl Execution<'_> {
    /// Decides which versions stay in a compaction of these tables.
    /// Inputs that are among `moves` are not rewritten.
    fn liveness(
        &self,
        version: &Arc<Version>,
        compaction: &Compaction,
        moves: &BTreeSet<u64>,
    ) -> Liveness {
        let ids: BTreeSet<u64> = compaction.input_ids().collect();
        let guard = DropGuard::new(&version.shape, &ids);
        let is_deepest = version.shape.deepest() == Some(compaction.output_level);
        let guard = match is_deepest && seeded!(TombstonesDroppedByDepth) {
            true => DropGuard::new(&Default::default(), &ids),
            false => guard,
        };
        let visibility = &self.compactor.visibility;
        let past = Past::now(&self.compactor.catalog.env, visibility);
        let live = Liveness::new(visibility.points(), Some(guard))
            .compared_with(Outside::of(&version.shape, &ids))
            .with_past(past);
        let has_operands = self.keyspace.merging.load().is_used();
        let neighbours = has_operands.then(|| Neighbours::of(version, &ids)).flatten();
        let live = live.with_neighbours(neighbours);
        // A group with written-back pointers relies on the tree to keep every range delete.
        let writes_back = self.keyspace.values.load().all().any(|store| store.writes_back);
        let range_guard = (version.range_deletes.is_some() && !writes_back).then(|| {
            let rewritten = ids.difference(moves).copied().collect();
            RangeGuard::new(&version.shape, &rewritten)
        });
        live.with_range_deletes(version.range_deletes.clone(), range_guard)
    }
}

/// The message of a panic.
fn text_of(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("without words")
}

/// Calls `work` on this thread and on `threads - 1` others. If a thread cannot be started, the rest
/// do its work.
fn on_threads(threads: usize, work: &(dyn Fn() + Sync)) {
    std::thread::scope(|scope| {
        for _ in 1..threads {
            let builder = std::thread::Builder::new().name("runstone-slice".into());
            let _ = builder.spawn_scoped(scope, work);
        }
        work();
    });
}

/// The inputs of a compaction as streams, without some tables: one stream per run, or one per chain
/// of tables of an overlapping level.
pub(super) fn sources_of(
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
