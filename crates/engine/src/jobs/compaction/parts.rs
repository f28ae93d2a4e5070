//! Runs a plan in parts, which can be installed one by one. `runstone_policy::parts` says which
//! edit installs a part, and why every tree in between is sound.
//!
//! 1. Each compaction of the plan is cut as in `slicing`, into parts of about four tables, or into
//!    more parts if there are threads for them. Cells and table ids depend on the inputs only.
//! 2. Several threads take the parts in key order. A part reads its inputs from the current
//!    version. No part holds the version that the plan was made on, so inputs that are already
//!    replaced release their space.
//! 3. With `compaction_install = "incremental"`, a thread that finishes a part installs all
//!    finished parts from the first on, with one edit. The first edit waits for an output:
//!    otherwise the run that outputs join would vanish with its last input, and lose its place
//!    among the runs. With "atomic" one edit installs everything, for a plan of one compaction.
//! 4. When the store closes, no part is begun. A running part continues only if a later part is
//!    done already, so that no finished work is lost. The finished parts from the first on are
//!    installed, even with "atomic". The manifest keeps the rest of the plan, and the runner runs
//!    it first at the next open. The same happens after a crash between two edits.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use crate::sync::{Mutex, rank};
use runstone_policy::parts::part_edit;
use runstone_policy::plan::{Compaction, Plan};
use runstone_policy::shape::{Edit, Shape, Table};

use crate::catalog::keyspace::KeyspaceCore;
use crate::error::{Error, Result};
use crate::jobs::compaction::executor::{self, Execution};
use crate::jobs::compaction::slicing::parts_wanted;
use crate::jobs::compaction::totals::Totals;
use crate::jobs::compaction::{Compactor, note_prefix};
use crate::jobs::output::Written;
use crate::metrics::Counter;
use crate::options::store::CompactionInstall;
use crate::tree::version::Version;

/// One compaction in parts.
struct PartedCompaction<'a> {
    compactor: &'a Compactor,
    keyspace: &'a Arc<KeyspaceCore>,
    execution: Execution<'a>,
    install: CompactionInstall,
    progress: Mutex<rank::Progress, Installed<'a>>,
}

/// How much of a compaction is installed.
struct Installed<'a> {
    /// The part of the plan that is not installed.
    rest: &'a mut Plan,
    totals: &'a mut Totals,
    /// Parts that are finished but not installed.
    ready: BTreeMap<usize, Written>,
    installed: usize,
    /// Whether the tree has an output of the compaction.
    has_output: bool,
    /// Moved tables that are not in the output run yet.
    waiting: BTreeSet<u64>,
}

impl Compactor {
    /// Executes a plan for which [`Compactor::wants_parts`] returns `true`. After an error, the
    /// installed parts stay.
    pub(super) fn run_in_parts(
        &self,
        keyspace: &Arc<KeyspaceCore>,
        version: Arc<Version>,
        plan: &Plan,
    ) -> Result<()> {
        let started = Instant::now();
        let mut totals = Totals::default();
        let bytes_of = |id| version.handle(id).map_or(0, |table| table.meta().bytes);
        let moved: u64 = plan.moves.iter().map(|step| bytes_of(step.table)).sum();
        drop(version);
        let mut rest = plan.clone();
        let outcome = plan.compactions.iter().try_for_each(|compaction| {
            self.run_parted(keyspace, compaction, &mut rest, &mut totals)
        });
        if outcome.is_ok() {
            totals.moved_bytes += moved;
            totals.moved_tables += plan.moves.len();
        }
        if totals.input_tables > 0 || outcome.is_ok() {
            self.report(keyspace, &plan.why, &totals, started);
        }
        outcome
    }

    fn run_parted(
        &self,
        keyspace: &Arc<KeyspaceCore>,
        compaction: &Compaction,
        rest: &mut Plan,
        totals: &mut Totals,
    ) -> Result<()> {
        let version = Arc::clone(&keyspace.view.load().version);
        let install = keyspace.options.load().compaction_install;
        let fixed = self.env.options.compaction_slices;
        let count = |threads: usize, bytes: u64, usual_bytes: u64| {
            parts_wanted(install, fixed, (bytes, usual_bytes), threads)
        };
        let (execution, threads) = self.sliced(keyspace, &version, compaction, &count)?;
        self.count_slices(std::slice::from_ref(&execution), threads);
        drop(version);
        totals.input_tables += compaction.input_ids().count();
        totals.parts += execution.slices.len();
        let progress = Mutex::new(Installed {
            rest,
            totals,
            ready: BTreeMap::new(),
            installed: 0,
            has_output: false,
            waiting: execution.moves.iter().map(|table| table.id).collect(),
        });
        PartedCompaction { compactor: self, keyspace, execution, install, progress }.run(threads)
    }

    /// Installs a part, and returns the rest of the plan as the edit records it.
    fn install_part(
        &self,
        keyspace: &Arc<KeyspaceCore>,
        done: &mut [Written],
        make: impl FnOnce(&Shape) -> Edit,
    ) -> Result<Option<Arc<Plan>>> {
        if self.env.is_stopped() {
            self.env.check_writable()?;
        }
        let values = self.installer.value_changes(keyspace, done.iter_mut());
        let edit = self.installer.install(keyspace, values, &[], make)?;
        // Purges here, because no other job may run before the compaction ends. Each edit names all
        // inputs that are left.
        self.catalog.purge_files(!self.schedule.is_closing());
        if let Err(error) = self.catalog.rotate_manifest_if_due() {
            // The part is installed. The next one notices if the store cannot continue.
            tracing::warn!(%error, "the manifest was not rewritten");
        }
        Ok(edit.pending)
    }
}

impl PartedCompaction<'_> {
    fn run(&self, threads: usize) -> Result<()> {
        if self.execution.slices.is_empty() {
            // Every input moves.
            return self.install_ready(&mut self.progress.lock());
        }
        let one = std::slice::from_ref(&self.execution);
        let mut outcome = executor::run(one, threads, &|_, at, written| {
            let mut progress = self.progress.lock();
            progress.ready.insert(at, written);
            self.install_ready(&mut progress)
        });
        let mut progress = self.progress.lock();
        let is_ended = matches!(outcome, Ok(()) | Err(Error::Closed));
        if is_ended && progress.installed < self.execution.slices.len() {
            // The store closes: the finished parts are installed, even of an atomic compaction.
            outcome = self.install_ready(&mut progress).and(outcome);
        }
        for (_, written) in std::mem::take(&mut progress.ready) {
            self.compactor.catalog.discard(&written.tables);
        }
        if outcome.is_ok() && progress.installed < self.execution.slices.len() {
            return Err(Error::Closed);
        }
        outcome
    }

    /// Runs step 3. The lock on the progress keeps the edits in key order.
    fn install_ready(&self, progress: &mut Installed<'_>) -> Result<()> {
        let from = progress.installed;
        let to = (from..).find(|part| !progress.ready.contains_key(part)).unwrap_or(from);
        let is_last = to == self.execution.slices.len();
        let waits =
            self.install == CompactionInstall::Atomic && !self.compactor.schedule.is_closing();
        if waits && !is_last {
            return Ok(());
        }
        let is_empty = (from..to).all(|part| progress.ready[&part].tables.is_empty());
        if !is_last && (to == from || (is_empty && !progress.has_output)) {
            return Ok(());
        }
        let mut done: Vec<Written> =
            (from..to).filter_map(|at| progress.ready.remove(&at)).collect();
        let bound = match is_last {
            true => None,
            false => self.execution.slices[to - 1].hi.as_deref(),
        };
        let is_below = |table: &Table| bound.is_none_or(|bound| *table.max_key < *bound);
        let (mut moving, mut waiting) = (Vec::new(), BTreeSet::new());
        for table in
            self.execution.moves.iter().filter(|table| progress.waiting.contains(&table.id))
        {
            match is_below(table) {
                true => moving.push(Arc::clone(table)),
                false => drop(waiting.insert(table.id)),
            }
        }
        let outputs = done.iter().flat_map(|written| &written.tables);
        let placed: Vec<Arc<Table>> = outputs.chain(&moving).cloned().collect();
        let rest = &*progress.rest;
        let make = |shape: &Shape| {
            let mut edit = part_edit(shape, rest, &placed, &waiting, bound);
            note_prefix(self.keyspace, shape, rest, &mut edit);
            edit
        };
        let installed = self.compactor.install_part(self.keyspace, &mut done, make);
        let pending = installed.inspect_err(|_| {
            done.iter()
                .for_each(|written| self.compactor.catalog.discard_uninstalled(&written.tables));
        })?;
        *progress.rest = pending.map_or_else(Plan::default, |plan| (*plan).clone());
        progress.waiting = waiting;
        progress.installed = to;
        progress.has_output |= !is_empty;
        progress.totals.read_bytes +=
            self.execution.slices[from..to].iter().map(|p| p.bytes).sum::<u64>();
        progress.totals.add_moves(&moving);
        done.iter().for_each(|written| progress.totals.add_outputs(written));
        let is_part = to - from < self.execution.slices.len();
        self.compactor.env.metrics.add(Counter::compaction_parts, u64::from(is_part));
        Ok(())
    }
}
