//! Prepares what writers will need soon: log segments, and memory for memtables. Running jobs do it
//! at intervals, because on a machine without a core for a third busy thread no other thread would
//! do it in time.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::catalog::Catalog;
use crate::env::Env;
use crate::error::Result;
use crate::jobs::supervisor::Supervisor;
use crate::metrics::Counter;
use crate::schedule::{CORES, Claim, Claims, Schedule};
use crate::sync::MutexGuard;
use crate::write::commit::Committer;

/// A thread that waits for the rate checks this often whether the store is being closed.
const LONGEST_SLEEP: Duration = Duration::from_millis(20);

/// A thing to prepare.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Preparation {
    /// A log segment.
    Log,
    /// A chunk of memory for memtables.
    Chunk,
}

impl Preparation {
    pub(crate) fn claim(self) -> Claim {
        match self {
            Preparation::Log => Claim::Single("log"),
            Preparation::Chunk => Claim::Single("chunk"),
        }
    }
}

/// Prepares what writers want, and makes other jobs wait for flushes.
#[derive(Debug)]
pub(crate) struct Preparer {
    pub(crate) env: Arc<Env>,
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) schedule: Arc<Schedule>,
    pub(crate) committer: Arc<Committer>,
    pub(crate) supervisor: Arc<Supervisor>,
}

impl Preparer {
    /// The next thing to prepare, which a writer would otherwise make in the middle of a write.
    /// With `urgent`, only a thing of which writers have run out.
    pub(crate) fn next(&self, claims: &Claims, urgent: bool) -> Option<Preparation> {
        // After a preparation has failed, the same thing is still wanted, and callers repeat this
        // call until nothing is wanted. Without this check they would never stop.
        if !self.may_start(claims) {
            return None;
        }
        if self.committer.wants_log(urgent) && !claims.is_single_running("log") {
            return Some(Preparation::Log);
        }
        let wants_chunk =
            self.catalog.pool.wants_spare(urgent) && !claims.is_single_running("chunk");
        wants_chunk.then_some(Preparation::Chunk)
    }

    /// Whether any job may start. No job may start just after a job found the disk full, nor in a
    /// store that is being closed, because its last flushes have no claims.
    pub(crate) fn may_start(&self, claims: &Claims) -> bool {
        let is_writable = !self.env.is_stopped() && !self.env.options.read_only;
        is_writable
            && !self.schedule.is_closing()
            && claims.retry_at.is_none_or(|at| Instant::now() >= at)
    }

    /// Flushes and compactions call this at intervals: it prepares what writers will need soon.
    pub(crate) fn prepare_for_writers(&self) {
        let is_wanted = self.committer.wants_log(false) || self.catalog.pool.wants_spare(false);
        // Jobs that are stepped by hand run one by one.
        if !is_wanted || self.env.is_manual() {
            return;
        }
        let mut claims = self.schedule.lock();
        while let Some(preparation) = self.next(&claims, false) {
            self.run_between(&mut claims, preparation);
        }
    }

    /// Prepares a thing in the middle of another job, without the lock.
    fn run_between(&self, claims: &mut MutexGuard<'_, Claims>, preparation: Preparation) {
        let claim = self.schedule.claim(claims, preparation.claim());
        MutexGuard::unlocked_fair(claims, || {
            let shows_space = matches!(preparation, Preparation::Log);
            let supervisor = &self.supervisor;
            supervisor.run_claimed(claim, || supervisor.note(self.run(preparation), shows_space));
        });
    }

    pub(crate) fn run(&self, preparation: Preparation) -> Result<()> {
        match preparation {
            Preparation::Log => self.committer.prepare_log(),
            Preparation::Chunk => {
                self.catalog.pool.prepare_spare();
                Ok(())
            }
        }
    }

    /// Compactions call this at intervals. On a machine without a core for both a flush and a
    /// compaction, the compaction waits. Three busy threads on two cores cost a writer whole
    /// scheduling ticks, 4 or 10 ms each on many kernels, and writers wait for the flush first.
    pub(crate) fn let_flushes_pass(&self) {
        self.prepare_for_writers();
        if *CORES > 2 {
            return;
        }
        let mut claims = self.schedule.lock();
        while self.schedule.is_flush_running(&claims) && !self.schedule.is_closing() {
            // The flush may be in its sync, so this thread does the urgent work.
            match self.next(&claims, true) {
                Some(preparation) => self.run_between(&mut claims, preparation),
                None => drop(self.schedule.wait_for_work(&mut claims)),
            }
        }
    }

    /// Compactions call this at intervals, and collections when they begin. It waits while more was
    /// written than the rate allows. It does not wait while writers are slowed down, a flush waits
    /// for compactions, or a caller waits for the jobs of a keyspace whose flushes wait too,
    /// because then they all wait for this job. Nor does it wait if the work is not `wanted` any
    /// more.
    pub(crate) fn keep_rate(&self, wanted: impl Fn() -> bool) {
        while wanted() {
            let wait = self.env.io_rate.wait();
            let is_pressing = self.env.throttle.permille() > 0
                || self.schedule.is_flush_held_up()
                || self.schedule.is_frozen_keyspace_awaited();
            if wait.is_zero() || is_pressing || self.env.is_manual() || self.schedule.is_closing() {
                return;
            }
            let slept = wait.min(LONGEST_SLEEP);
            std::thread::sleep(slept);
            self.env.metrics.add(Counter::paused_ns, slept.as_nanos() as u64);
        }
    }

    /// Frees files that only writers need, because nobody has written for a while. When a process
    /// has many stores, an idle store then keeps no file that must stay open for a sync.
    pub(crate) fn trim_files(&self) {
        self.committer.trim_log();
        if self.env.is_sharing && !self.env.is_stopped() {
            let rested = self.catalog.rest_manifest().and_then(|()| self.committer.rest_log());
            if let Err(error) = rested {
                self.env.note_job_error(&error);
            }
        }
    }
}
