//! Which job runs next. Flushes go first (they relieve writers), then what is prepared for writers,
//! then compactions; one thread is always left for flushes where there are two. Without threads,
//! `run_one_job` runs the same jobs one by one, so that simulations are deterministic.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::*};
use std::sync::{Arc, LazyLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};
use runstone_policy::partition::slices::slice_count;
use runstone_policy::plan::{Busy, Plan};
use runstone_policy::policy::next_plan;
use runstone_policy::shape::Shape;
use runstone_policy::whole::full_plan;

use crate::base::error::{Error, Result};
use crate::base::event::check_outside;
use crate::base::key::SeqNo;
use crate::base::options::Background;
use crate::jobs::collection::groups::Collected;
use crate::store::{Inner, KeyspaceInner, NO_SPACE_RETRY};
use crate::tree::manifest::Manifest;
use crate::tree::version::Version;
use crate::values::file::ValueFile;
use crate::wal::batch::KeyspaceId;

/// Processors that this process may use.
static CORES: LazyLock<usize> =
    LazyLock::new(|| std::thread::available_parallelism().map_or(2, |cores| cores.get()));

/// Workers look for work this often when nobody wakes them.
const POLL: Duration = Duration::from_millis(500);

/// By so much more than the process are threads niced that compaction: where there are fewer cores
/// than threads, a writer would else lose time slices to a compaction. A little only: beside
/// threads that want all cores, niceness 15 gave compacts a fiftieth of one, and writers waited 14
/// seconds for them. Flushes, which writers wait for first, are not niced.
const COMPACTION_NICENESS: i32 = 2;

fn yield_to_foreground() {
    // Linux keeps a niceness per thread. Refused or unknown, it is a matter of latency only.
    let _ = rustix::process::nice(COMPACTION_NICENESS);
}

/// A job.
#[derive(Debug)]
enum Job {
    Flush(Arc<KeyspaceInner>),
    Compaction(Arc<KeyspaceInner>, Arc<Version>, Plan),
    Collect(Arc<KeyspaceInner>),
    PrepareLog,
    PrepareChunk,
    Purge,
}

/// What a running job owns.
#[derive(Debug)]
enum Claim {
    Flush(KeyspaceId),
    Compaction(KeyspaceId, Plan),
    Collect(KeyspaceId),
    /// Jobs that run one at a time, by name.
    Single(&'static str),
}

impl Claim {
    fn is_of(&self, id: KeyspaceId) -> bool {
        match self {
            Claim::Flush(own) | Claim::Compaction(own, _) | Claim::Collect(own) => *own == id,
            Claim::Single(_) => false,
        }
    }
}

#[derive(Debug, Default)]
struct Claims {
    running: Vec<(u64, Claim)>,
    next_claim: u64,
    /// Keyspaces in which a full compaction runs or waits.
    exclusive: BTreeSet<KeyspaceId>,
    /// Keyspaces whose options change: no job of theirs starts.
    frozen: BTreeSet<KeyspaceId>,
    /// After a full disk, nothing is tried before this.
    retry_at: Option<Instant>,
    /// Where the search for the next job of each kind begins: behind the keyspace that had the
    /// last one, or one that is written to much would keep the others waiting.
    turns: Turns,
}

#[derive(Debug, Default)]
struct Turns {
    flush: KeyspaceId,
    compaction: KeyspaceId,
    collect: KeyspaceId,
}

impl Claims {
    /// Whether a job of this name runs, of which there is one at a time.
    fn is_single_running(&self, name: &str) -> bool {
        self.running.iter().any(|(_, claim)| matches!(claim, Claim::Single(n) if *n == name))
    }

    fn is_collecting(&self, id: KeyspaceId) -> bool {
        self.running.iter().any(|(_, claim)| matches!(claim, Claim::Collect(own) if *own == id))
    }

    /// Whether a flush or compact runs, which looks after preparations now and then.
    fn is_any_busy(&self) -> bool {
        let is_busy = |claim: &Claim| matches!(claim, Claim::Flush(_) | Claim::Compaction(..));
        self.running.iter().any(|(_, claim)| is_busy(claim))
    }
}

/// The jobs of a store.
#[derive(Debug, Default)]
pub(crate) struct Scheduler {
    state: Mutex<Claims>,
    /// Work may be due.
    wake: Condvar,
    /// A job ended.
    ended: Condvar,
    closing: AtomicBool,
    /// Flushes that wait until compactions have placed their values.
    held_up: AtomicUsize,
    /// Largest visible sequence number when a compaction was last split.
    last_seen: AtomicU64,
}

impl Scheduler {
    /// Whether compactions should make way. One that waits for them is no reason: they would wait
    /// for each other.
    fn is_flush_running(&self, state: &Claims) -> bool {
        let flushes = state.running.iter().filter(|(_, claim)| matches!(claim, Claim::Flush(_)));
        flushes.count() > self.held_up.load(Relaxed)
    }

    /// What a flush does that waits for compactions: those that made way for it go on meanwhile.
    pub(crate) fn while_held_up<T>(&self, wait: impl FnOnce() -> T) -> T {
        self.held_up.fetch_add(1, Relaxed);
        drop(self.state.lock());
        self.wake.notify_all();
        let outcome = wait();
        self.held_up.fetch_sub(1, Relaxed);
        outcome
    }

    pub(crate) fn close(&self) {
        let _state = self.state.lock();
        self.closing.store(true, Release);
        self.wake.notify_all();
        self.ended.notify_all();
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(Relaxed)
    }

    /// Waits until no job runs, of callers' threads either, so that what is left writes nothing to
    /// a store that is closed.
    pub(crate) fn wait_for_all(&self) {
        let mut state = self.state.lock();
        while !state.running.is_empty() {
            self.ended.wait(&mut state);
        }
    }

    /// Waits until no job of a keyspace runs.
    pub(crate) fn wait_for_keyspace(&self, id: KeyspaceId) {
        let mut state = self.state.lock();
        while state.running.iter().any(|(_, claim)| claim.is_of(id)) {
            self.ended.wait(&mut state);
        }
    }

    /// Whether somebody has written since the last time that a job was looked for.
    fn sees_writers(&self, visible_seq: SeqNo) -> bool {
        self.last_seen.swap(visible_seq, Relaxed) != visible_seq
    }

    fn claim(&self, state: &mut Claims, job: &Job) -> u64 {
        let turns = &mut state.turns;
        let claim = match job {
            Job::Flush(keyspace) => {
                turns.flush = keyspace.id + 1;
                Claim::Flush(keyspace.id)
            }
            Job::Compaction(keyspace, _, plan) => {
                turns.compaction = keyspace.id + 1;
                Claim::Compaction(keyspace.id, plan.clone())
            }
            Job::Collect(keyspace) => {
                turns.collect = keyspace.id + 1;
                Claim::Collect(keyspace.id)
            }
            Job::PrepareLog => Claim::Single("log"),
            Job::PrepareChunk => Claim::Single("chunk"),
            Job::Purge => Claim::Single("purge"),
        };
        state.next_claim += 1;
        state.running.push((state.next_claim, claim));
        state.next_claim
    }

    fn release(&self, claim: u64) {
        let mut state = self.state.lock();
        state.running.retain(|(id, _)| *id != claim);
        self.ended.notify_all();
        self.wake.notify_all();
    }
}

/// Starts the workers.
pub(crate) fn start(inner: &Arc<Inner>, count: usize) -> std::io::Result<Vec<JoinHandle<()>>> {
    (0..count)
        .map(|i| {
            let inner = Arc::clone(inner);
            // With two or more, the first worker leaves compactions to the others.
            let compactions = count == 1 || i > 0;
            let name = if compactions { "runstone-compaction" } else { "runstone-flush" };
            std::thread::Builder::new().name(name.into()).spawn(move || {
                if compactions {
                    yield_to_foreground();
                }
                if catch_unwind(AssertUnwindSafe(|| work(&inner, compactions))).is_err() {
                    inner.stop_after_panic();
                }
            })
        })
        .collect()
}

fn work(inner: &Inner, compactions: bool) {
    let scheduler = &inner.scheduler;
    let mut last_seq = 0;
    loop {
        let (claim, job) = {
            let mut state = scheduler.state.lock();
            loop {
                if scheduler.is_closing() {
                    return;
                }
                if let Some(job) = inner.next_job(&mut state, compactions) {
                    break (scheduler.claim(&mut state, &job), job);
                }
                if scheduler.wake.wait_for(&mut state, POLL).timed_out() {
                    MutexGuard::unlocked(&mut state, || inner.trim_if_idle(&mut last_seq));
                }
            }
        };
        inner.run_job(claim, job);
    }
}

/// No compaction of a keyspace runs or starts while this lives, and none of its other jobs if it is
/// frozen: for a full compaction, and for a change of policy, whose jobs know nothing of the old
/// one's.
struct Held<'a> {
    scheduler: &'a Scheduler,
    id: KeyspaceId,
}

impl<'a> Held<'a> {
    fn compactions(scheduler: &'a Scheduler, id: KeyspaceId) -> Held<'a> {
        let mut state = scheduler.state.lock();
        while !state.exclusive.insert(id) {
            scheduler.ended.wait(&mut state);
        }
        let held = Held { scheduler, id };
        held.wait_while(
            &mut state,
            |claim| matches!(claim, Claim::Compaction(own, _) if *own == id),
        );
        held
    }

    fn freeze(&self) {
        let mut state = self.scheduler.state.lock();
        state.frozen.insert(self.id);
        self.wait_while(&mut state, |claim| claim.is_of(self.id));
    }

    fn wait_while(&self, state: &mut MutexGuard<'_, Claims>, concerns: impl Fn(&Claim) -> bool) {
        while state.running.iter().any(|(_, claim)| concerns(claim)) {
            self.scheduler.ended.wait(state);
        }
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        let mut state = self.scheduler.state.lock();
        state.exclusive.remove(&self.id);
        state.frozen.remove(&self.id);
        self.scheduler.ended.notify_all();
        self.scheduler.wake.notify_all();
    }
}

impl Inner {
    /// Runs a job and lets go of its claim, also if it panics: it may be a user's thread, which
    /// goes on, and others wait for the job.
    fn run_claimed<T>(&self, claim: u64, job: impl FnOnce() -> T) -> T {
        let outcome = catch_unwind(AssertUnwindSafe(job));
        if outcome.is_err() {
            self.stop_after_panic();
        }
        self.scheduler.release(claim);
        outcome.unwrap_or_else(|panic| resume_unwind(panic))
    }

    /// A job died and may have left half a tree in memory: nothing may be acknowledged then, nor
    /// logged on top of it.
    fn stop_after_panic(&self) {
        let error = Error::invalid("a job panicked", "reopen the store and report the panic");
        // The listener that panicked may do so again.
        let _ = catch_unwind(AssertUnwindSafe(|| self.stop_writes(&error)));
        self.manifest.lock().log.iter_mut().for_each(Manifest::set_broken);
    }

    /// How many parts a compaction of so many bytes is split into: the cores that no other job and
    /// no writer uses, within the limit and what is worth it. One where jobs are stepped by hand,
    /// so that their I/O has an order.
    pub(crate) fn slice_count(&self, bytes: u64, table_bytes: u64) -> usize {
        if let Some(fixed) = self.options.compaction_slices {
            return fixed;
        }
        if self.options.background == Background::Manual {
            return 1;
        }
        let others = self.scheduler.state.lock().running.len().saturating_sub(1);
        let writers = usize::from(self.scheduler.sees_writers(self.publisher.visible()));
        let idle = CORES.saturating_sub(others + writers);
        slice_count(*CORES, idle, bytes, table_bytes)
    }

    pub(crate) fn wake_background(&self) {
        // Taking the lock orders the change that is announced before the worker's next look.
        drop(self.scheduler.state.lock());
        self.scheduler.wake.notify_all();
    }

    /// The next job that nothing forbids.
    fn next_job(&self, state: &mut Claims, compactions: bool) -> Option<Job> {
        if !self.may_start(state) {
            return None;
        }
        let keyspaces = self.keyspaces.read();
        let flushing = |id| {
            state.running.iter().any(|(_, claim)| matches!(claim, Claim::Flush(k) if *k == id))
        };
        let from = |turn| keyspaces.range(turn..).chain(keyspaces.range(..turn)).map(|(_, k)| k);
        let flush = from(state.turns.flush).find(|keyspace| {
            self.flush_is_due(keyspace)
                && !flushing(keyspace.id)
                && !state.frozen.contains(&keyspace.id)
                && !keyspace.dropped.load(Relaxed)
        });
        if let Some(keyspace) = flush {
            return Some(Job::Flush(Arc::clone(keyspace)));
        }
        // Where there is no core for a third busy thread, flushes and compactions prepare what is
        // wanted themselves, unless they have not come to it in time.
        if let Some(job) = self.next_preparation(state, *CORES <= 2 && state.is_any_busy()) {
            return Some(job);
        }
        if !self.tables.purge.lock().is_empty() && !state.is_single_running("purge") {
            return Some(Job::Purge);
        }
        if !compactions {
            return None;
        }
        let collect =
            from(state.turns.collect).find(|keyspace| self.collection_is_due(state, keyspace));
        if let Some(keyspace) = collect {
            return Some(Job::Collect(Arc::clone(keyspace)));
        }
        from(state.turns.compaction).find_map(|keyspace| self.next_compaction(state, keyspace))
    }

    /// Whether any job may start: not just after one that found the disk full, and none in a store
    /// that closes, whose last flushes have no claims.
    fn may_start(&self, state: &Claims) -> bool {
        let is_writable = !self.is_stopped() && !self.options.read_only;
        is_writable
            && !self.scheduler.is_closing()
            && state.retry_at.is_none_or(|at| Instant::now() >= at)
    }

    /// What a writer would else have to make itself, in the middle of a write. When `urgent`, only
    /// what is not there at all.
    fn next_preparation(&self, state: &Claims, urgent: bool) -> Option<Job> {
        // What failed stays wanted, and callers ask until there is nothing: without this, for ever.
        if !self.may_start(state) {
            return None;
        }
        if self.wal_files.wants_spare(urgent) && !state.is_single_running("log") {
            return Some(Job::PrepareLog);
        }
        let wants_chunk = self.pool.wants_spare(urgent) && !state.is_single_running("chunk");
        wants_chunk.then_some(Job::PrepareChunk)
    }

    /// Called by flushes and compactions now and then: prepares what writers want soon.
    pub(crate) fn prepare_for_writers(&self) {
        let is_wanted = self.wal_files.wants_spare(false) || self.pool.wants_spare(false);
        // Jobs that are stepped by hand run one by one.
        if !is_wanted || self.options.background == Background::Manual {
            return;
        }
        let scheduler = &self.scheduler;
        let mut state = scheduler.state.lock();
        while let Some(job) = self.next_preparation(&state, false) {
            self.run_between(&mut state, job);
        }
    }

    /// Runs a job in the middle of another, without the lock.
    fn run_between(&self, state: &mut MutexGuard<'_, Claims>, job: Job) {
        let claim = self.scheduler.claim(state, &job);
        MutexGuard::unlocked(state, || self.run_job(claim, job));
    }

    /// Called by compactions now and then. Where there is no core for both a flush and a
    /// compaction, the compaction waits: three busy threads on two cores cost a writer whole
    /// scheduling ticks, 4 or 10 ms each on many kernels, and a flush is what writers wait for
    /// next.
    pub(crate) fn let_flushes_pass(&self) {
        self.prepare_for_writers();
        if *CORES > 2 {
            return;
        }
        let scheduler = &self.scheduler;
        let mut state = scheduler.state.lock();
        while scheduler.is_flush_running(&state) && !scheduler.is_closing() {
            // The flush may be in its sync.
            match self.next_preparation(&state, true) {
                Some(job) => self.run_between(&mut state, job),
                None => drop(scheduler.wake.wait_for(&mut state, POLL)),
            }
        }
    }

    /// Gives memory and files back that only writers need, if none came since `last_seq`.
    fn trim_if_idle(&self, last_seq: &mut SeqNo) {
        let seq = self.publisher.visible();
        if std::mem::replace(last_seq, seq) != seq {
            return;
        }
        self.pool.trim();
        self.wal_files.trim();
        self.cache.forget_memtable_peak();
    }

    /// One collection of a keyspace runs at a time.
    fn collection_is_due(&self, state: &Claims, keyspace: &KeyspaceInner) -> bool {
        let values = keyspace.values.load();
        let Some(store) = &values.current else { return false };
        !keyspace.dropped.load(Relaxed)
            && !state.frozen.contains(&keyspace.id)
            && !state.is_collecting(keyspace.id)
            && store.may_collect()
            && store.wants_collection(&keyspace.options.load().values, 0, &self.visible_points())
    }

    fn next_compaction(&self, state: &Claims, keyspace: &Arc<KeyspaceInner>) -> Option<Job> {
        if keyspace.dropped.load(Relaxed) || state.exclusive.contains(&keyspace.id) {
            return None;
        }
        // Read before what it counts.
        let changes = keyspace.changes.load(Acquire);
        if keyspace.quiet_at.load(Relaxed) == changes {
            return None;
        }
        let options = keyspace.options.load();
        let version = Arc::clone(&keyspace.view.load().version);
        let running = state.running.iter().filter_map(|(_, claim)| match claim {
            Claim::Compaction(id, plan) if *id == keyspace.id => Some(plan),
            _ => None,
        });
        let busy = Busy::of(&version.shape, running.clone());
        // A plan that a crash or a close has interrupted goes first.
        if let Some(pending) = &version.shape.pending {
            let ids: BTreeSet<u64> = pending.table_ids().collect();
            let is_it = |plan: &Plan| plan.table_ids().any(|id| ids.contains(&id));
            if !running.clone().any(is_it) {
                let plan = Plan::clone(pending);
                return Some(Job::Compaction(Arc::clone(keyspace), version, plan));
            }
        }
        let policy = options.compaction_policy().ok()?;
        let heat = version.heat(options.shape.charge, options.shape.access_limit.into());
        let plan = next_plan(policy, &version.shape, &busy, &heat, &options.shape);
        let own = |claim: &Claim| matches!(claim, Claim::Compaction(id, _) if *id == keyspace.id);
        if plan.is_none() && !state.running.iter().any(|(_, claim)| own(claim)) {
            keyspace.quiet_at.store(changes, Relaxed);
        }
        let plan = plan?;
        Some(Job::Compaction(Arc::clone(keyspace), version, plan))
    }

    /// Versions that the job held are released before the claim, so that files which became
    /// obsolete are on the purge list when others look.
    fn run_job(&self, claim: u64, job: Job) -> bool {
        self.run_claimed(claim, || self.do_job(job))
    }

    fn do_job(&self, job: Job) -> bool {
        // These succeed on a full disk too.
        let shows_space = !matches!(job, Job::PrepareChunk | Job::Purge);
        let outcome = match job {
            Job::Flush(keyspace) => self.flush_oldest(&keyspace).map(drop),
            Job::Compaction(keyspace, version, plan) => self.run_plan(&keyspace, version, &plan),
            Job::Collect(keyspace) => match &keyspace.values.load_full().current {
                Some(store) => self.collect_values(&keyspace, store).map(drop),
                None => Ok(()),
            },
            Job::PrepareLog => self.prepare_log(),
            Job::PrepareChunk => {
                self.pool.prepare_spare();
                Ok(())
            }
            Job::Purge => {
                self.purge_files();
                Ok(())
            }
        };
        let outcome = outcome.and_then(|()| self.rotate_manifest_if_due());
        let ok = outcome.is_ok();
        match outcome {
            Ok(()) if shows_space => self.note_success(),
            Ok(()) => {}
            Err(Error::Closed | Error::UnknownKeyspace { .. }) => {}
            Err(error) => {
                if error.is_no_space() {
                    self.scheduler.state.lock().retry_at = Some(Instant::now() + NO_SPACE_RETRY);
                }
                self.note_job_error(&error);
            }
        }
        ok
    }

    /// Runs one job in this thread; `false` if none was due. Its failure is the result.
    pub(crate) fn run_one_job(&self) -> Result<bool> {
        check_outside(self.opening)?;
        let claimed = {
            let mut state = self.scheduler.state.lock();
            self.next_job(&mut state, true).map(|job| (self.scheduler.claim(&mut state, &job), job))
        };
        let Some((claim, job)) = claimed else { return Ok(false) };
        if self.run_job(claim, job) {
            return Ok(true);
        }
        self.check_writable()?;
        Ok(true)
    }

    /// Waits until `done` holds, running jobs here if nobody else does. Those of other threads, and
    /// what a thread holds back meanwhile, are waited for.
    pub(crate) fn wait_until(&self, done: impl Fn() -> bool) -> Result<()> {
        loop {
            self.run_jobs_until(&done)?;
            let mut state = self.scheduler.state.lock();
            if done() {
                return Ok(());
            }
            if self.scheduler.is_closing() {
                return Err(Error::Closed);
            }
            if self.is_stopped() || self.is_out_of_space() {
                self.check_writable()?;
            }
            self.wait_for_change(&mut state);
        }
    }

    /// Runs jobs here, if nobody else does, until `done` holds or none is due.
    pub(crate) fn run_jobs_until(&self, done: impl Fn() -> bool) -> Result<()> {
        let are_ours = self.options.background == Background::Manual;
        while are_ours && !done() && self.run_one_job()? {}
        Ok(())
    }

    /// Waits until no job runs or is due.
    pub(crate) fn wait_idle(&self) -> Result<()> {
        check_outside(self.opening)?;
        loop {
            self.run_jobs_until(|| false)?;
            {
                let mut state = self.scheduler.state.lock();
                if self.scheduler.is_closing() {
                    return Err(Error::Closed);
                }
                if state.running.is_empty() && self.next_job(&mut state, true).is_none() {
                    return self.check_writable_or_read_only();
                }
                self.wait_for_change(&mut state);
            }
            if self.is_stopped() {
                return self.check_writable();
            }
        }
    }

    /// Until a job ended or, where callers run them, may be due; or until a while has passed.
    fn wait_for_change(&self, state: &mut MutexGuard<'_, Claims>) {
        if self.options.background == Background::Manual {
            self.scheduler.wake.wait_for(state, POLL);
        } else {
            self.scheduler.wake.notify_all();
            self.scheduler.ended.wait_for(state, POLL);
        }
    }

    fn check_writable_or_read_only(&self) -> Result<()> {
        if self.options.read_only { Ok(()) } else { self.check_writable() }
    }

    /// Runs `change` while no job of the keyspace runs.
    pub(crate) fn without_jobs<T>(
        &self,
        keyspace: &KeyspaceInner,
        change: impl FnOnce() -> T,
    ) -> T {
        let held = Held::compactions(&self.scheduler, keyspace.id);
        held.freeze();
        change()
    }

    /// Compacts a keyspace into one run. Flushes go on meanwhile; other compactions of it wait.
    pub(crate) fn compact(&self, keyspace: &Arc<KeyspaceInner>) -> Result<()> {
        self.check_writable()?;
        if self.scheduler.is_closing() {
            return Err(Error::Closed);
        }
        let held = Held::compactions(&self.scheduler, keyspace.id);
        let options = keyspace.options.load();
        let settled_from = keyspace.values.load().settled_from();
        let full = |shape: &Shape| {
            Ok(full_plan(shape, options.compaction_policy()?, &options.shape, settled_from))
        };
        // What is pending comes first: else all that is done of it would be done again.
        let pending = |shape: &Shape| Ok(shape.pending.as_deref().cloned());
        let outcome = self
            .run_exclusively(keyspace, &pending)
            .and_then(|()| self.run_exclusively(keyspace, &full));
        drop(held);
        self.note_outcome(outcome)
    }

    /// Of what a caller's thread did that background threads do as well.
    pub(crate) fn note_outcome<T>(&self, outcome: Result<T>) -> Result<T> {
        outcome.inspect_err(|error| {
            if !matches!(error, Error::Closed | Error::UnknownKeyspace { .. }) {
                self.note_job_error(error);
            }
        })
    }

    /// Runs `collect` in this thread with the value file of the moment, when no background thread
    /// collects. Nothing if there is none.
    pub(crate) fn collect_exclusively(
        &self,
        keyspace: &Arc<KeyspaceInner>,
        collect: impl FnOnce(&Arc<ValueFile>) -> Result<Collected>,
    ) -> Result<Collected> {
        let id = keyspace.id;
        let claim = {
            let mut state = self.scheduler.state.lock();
            loop {
                self.check_wanted(keyspace)?;
                self.check_not_stopped()?;
                if !state.frozen.contains(&id) && !state.is_collecting(id) {
                    break self.scheduler.claim(&mut state, &Job::Collect(Arc::clone(keyspace)));
                }
                self.wait_for_change(&mut state);
            }
        };
        // Only now: a change of placement may have come before, and the file may be gone.
        self.run_claimed(claim, || match &keyspace.values.load_full().current {
            Some(store) => collect(store),
            None => Ok(Collected::Nothing),
        })
    }

    /// Runs a plan in this thread, while compactions are held.
    fn run_exclusively(
        &self,
        keyspace: &Arc<KeyspaceInner>,
        choose: &dyn Fn(&Shape) -> Result<Option<Plan>>,
    ) -> Result<()> {
        let (claim, version, plan) = {
            let mut state = self.scheduler.state.lock();
            // Closing waits for the claims that it finds.
            if self.scheduler.is_closing() {
                return Err(Error::Closed);
            }
            let version = Arc::clone(&keyspace.view.load().version);
            let Some(plan) = choose(&version.shape)? else { return Ok(()) };
            let job = Job::Compaction(Arc::clone(keyspace), Arc::clone(&version), plan.clone());
            (self.scheduler.claim(&mut state, &job), version, plan)
        };
        self.run_claimed(claim, || self.run_plan(keyspace, version, &plan))
    }
}
