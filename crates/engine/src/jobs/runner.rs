//! Chooses the next job. Flushes are first, because they relieve writers. Then follow preparations
//! for writers, and then compactions. With two threads or more, one is always left for flushes.
//! Without threads, `run_one_job` runs the same jobs one by one, so that simulations are
//! deterministic.

use std::borrow::Cow;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::ops::Bound::{Excluded, Included, Unbounded};
use std::sync::Arc;
use std::sync::atomic::Ordering::*;

use runstone_policy::options::{Numbers, PolicyOptions};
use runstone_policy::plan::{Busy, Plan};
use runstone_policy::policy::{expired_plan, next_plan};
use runstone_policy::shape::Shape;

use crate::catalog::Catalog;
use crate::catalog::keyspace::KeyspaceCore;
use crate::env::Env;
use crate::error::{Error, Result};
use crate::jobs::collection::{Collector, Crowding};
use crate::jobs::compaction::Compactor;
use crate::jobs::covered::covered_tables;
use crate::jobs::flush::Flusher;
use crate::jobs::install::Installer;
use crate::jobs::prepare::{Preparation, Preparer};
use crate::jobs::search::Search;
use crate::jobs::supervisor::Supervisor;
use crate::keys::KeyspaceId;
use crate::options::store::KeyspaceOptions;
use crate::ranges::RangeDeletes;
use crate::schedule::{CORES, Claim, Claims, Relief, Schedule};
use crate::sync::{MutexGuard, looked, threads};
use crate::tree::version::Version;
use crate::values::file::ValueFile;
use crate::visibility::snapshot::Visibility;
use crate::write::commit::Committer;
use crate::write::pressure::level_0_slows_writers;

/// The most small memtables that are flushed together. Others wait meanwhile.
pub(crate) const MOST_FLUSHES: usize = 32;

/// How many keyspaces a search looks at under one hold of the claims.
const MOST_LOOKS: usize = 1_000;

/// A job, with its inputs.
#[derive(Debug)]
pub(super) enum Job {
    Flush(Vec<Arc<KeyspaceCore>>),
    Compaction(Arc<KeyspaceCore>, Arc<Version>, Plan),
    /// Drops tables on a full disk.
    Free(Arc<KeyspaceCore>, Arc<Version>, Plan),
    Collect(Arc<KeyspaceCore>),
    Prepare(Preparation),
    Purge,
    /// A sync of the log for awaited commits, if callers run the jobs. Otherwise a thread does it.
    Sync,
}

/// A job and the id that releases its claim.
pub(super) type ClaimedJob = (u64, Job);

impl Job {
    fn claim(&self) -> Claim {
        match self {
            Job::Flush(keyspaces) => {
                Claim::Flush(keyspaces.iter().map(|keyspace| keyspace.id).collect())
            }
            Job::Compaction(keyspace, _, plan) | Job::Free(keyspace, _, plan) => {
                Claim::Compaction(keyspace.id, plan.clone())
            }
            Job::Collect(keyspace) => Claim::Collect(keyspace.id),
            Job::Prepare(preparation) => preparation.claim(),
            Job::Purge => Claim::Single("purge"),
            Job::Sync => Claim::Single("sync"),
        }
    }
}

/// Chooses jobs and runs them.
#[derive(Debug)]
pub(crate) struct Runner {
    pub(crate) env: Arc<Env>,
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) visibility: Arc<Visibility>,
    pub(crate) schedule: Arc<Schedule>,
    pub(crate) committer: Arc<Committer>,
    pub(crate) installer: Arc<Installer>,
    pub(crate) supervisor: Arc<Supervisor>,
    pub(crate) preparer: Arc<Preparer>,
    pub(crate) flusher: Flusher,
    pub(crate) compactor: Compactor,
    pub(crate) collector: Arc<Collector>,
}

impl Relief for Runner {
    fn run_one_job(&self) -> Result<bool> {
        Runner::run_one_job(self)
    }

    fn wake(&self) {
        self.schedule.wake();
    }
}

impl Runner {
    /// Claims the next job, if one is due.
    pub(super) fn claim_next(&self, compacts: bool) -> Option<ClaimedJob> {
        let mut claims = self.schedule.lock();
        let job = self.next_job(&mut claims, compacts, &self.search())?;
        Some((self.schedule.claim(&mut claims, job.claim()), job))
    }

    /// Does the same in a store that has been idle, where more jobs are worthwhile.
    pub(super) fn claim_idle(&self) -> Option<ClaimedJob> {
        let mut claims = self.schedule.lock();
        let search = self.search();
        let due = self.next_job(&mut claims, true, &search);
        if due.is_none() && self.is_paused() {
            return None;
        }
        let job = due.or_else(|| self.idle_job(&mut claims, &search))?;
        Some((self.schedule.claim(&mut claims, job.claim()), job))
    }

    fn search(&self) -> Search<'_> {
        Search::new(&self.env, &self.visibility)
    }

    /// The next job that nothing forbids.
    fn next_job(
        &self,
        claims: &mut MutexGuard<'_, Claims>,
        compactions: bool,
        search: &Search<'_>,
    ) -> Option<Job> {
        // This runs even in a store that has stopped, so that the commits learn of it.
        let syncs = self.env.is_manual() && self.committer.wants_sync();
        if syncs && !self.schedule.is_closing() && !claims.is_single_running("sync") {
            return Some(Job::Sync);
        }
        if !self.preparer.may_start(claims) {
            return None;
        }
        let purge_is_due =
            !self.catalog.tables.purge.lock().is_empty() && !claims.is_single_running("purge");
        if self.env.is_out_of_space() {
            // Jobs that free space come before the flushes, which fail until there is space.
            let freeing = purge_is_due.then_some(Job::Purge);
            if let Some(job) = freeing.or_else(|| self.freeing_job(claims, search)) {
                return Some(job);
            }
        }
        let flushes = self.due_flushes(claims);
        if !flushes.is_empty() {
            return Some(Job::Flush(flushes));
        }
        // On a machine without a core for a third busy thread, flushes and compactions prepare what
        // is wanted themselves. This thread does it only if they have not done it in time.
        if let Some(preparation) = self.preparer.next(claims, *CORES <= 2 && claims.is_any_busy()) {
            return Some(Job::Prepare(preparation));
        }
        if purge_is_due {
            return Some(Job::Purge);
        }
        if !compactions {
            return None;
        }
        self.next_collection(claims, search).or_else(|| self.next_compaction(claims, search))
    }

    /// Whether compactions and collections must not begin. A pause does not count while writers are
    /// slowed down, because they may remain slow until a compaction or collection has run.
    fn is_paused(&self) -> bool {
        self.schedule.holds_compactions() && self.env.throttle.permille() == 0
    }

    /// The keyspaces to flush next: one, or several with small memtables. Without a log, those of
    /// the oldest generation.
    fn due_flushes(&self, claims: &Claims) -> Vec<Arc<KeyspaceCore>> {
        if !self.env.options.has_log() {
            return self.due_generation(claims);
        }
        let flushing = |id| {
            let is_of = |claim: &Claim| matches!(claim, Claim::Flush(_)) && claim.is_of(id);
            claims.running.iter().any(|(_, claim)| is_of(claim))
        };
        let mut due = Vec::new();
        self.catalog.unflushed.find_waiting_from(claims.turns.flush, |keyspace| {
            let is_due = !keyspace.view.load().immutable.is_empty()
                && !flushing(keyspace.id)
                && !claims.frozen.contains(&keyspace.id)
                && !keyspace.dropped.load(Relaxed);
            let is_small = is_due && keyspace.is_flush_small();
            if is_due && (is_small || due.is_empty()) {
                due.push(Arc::clone(keyspace));
            } else if !is_due {
                // It may be listed although the last of its memtables was just flushed.
                self.catalog.unflushed.remove_if_flushed(keyspace);
            }
            is_due && !is_small || due.len() >= MOST_FLUSHES
        });
        due
    }

    /// The keyspaces of the oldest generation, if it may be flushed. The flush waits for the end of
    /// the previous flush. It also waits while a keyspace is being dropped, because the drop can
    /// fail, and while a change of options holds a keyspace. But the drop and the change wait until
    /// nothing runs in the keyspace. If something runs there, such as a load, it may wait for this
    /// flush, so the flush does not wait.
    fn due_generation(&self, claims: &Claims) -> Vec<Arc<KeyspaceCore>> {
        if claims.running.iter().any(|(_, claim)| matches!(claim, Claim::Flush(_))) {
            return Vec::new();
        }
        if self.committer.remove_empty_generations() {
            self.schedule.tell_waiters();
        }
        let oldest = self.committer.generations.oldest();
        let Some(moment) = oldest.filter(|moment| *moment <= self.schedule.flush_limit()) else {
            return Vec::new();
        };
        let mut due = Vec::new();
        self.catalog.unflushed.for_each(|keyspace| {
            if !keyspace.is_flushed(moment) {
                due.push(Arc::clone(keyspace));
            }
        });
        let may_be = |one: &Arc<KeyspaceCore>| {
            let is_held = claims.frozen.contains(&one.id) || one.dropped.load(Acquire);
            !is_held || claims.running.iter().any(|(_, claim)| claim.is_of(one.id))
        };
        if due.iter().all(may_be) { due } else { Vec::new() }
    }

    /// Writes all memtables to tables, and returns when the tables are durable. Nobody flushes a
    /// keyspace that is being dropped, and the drop may wait a long time for a load. So the writes
    /// to that keyspace are made durable in the log, in case the drop fails.
    pub(crate) fn flush_all(&self) -> Result<()> {
        self.env.check_writable()?;
        let keyspaces = self.catalog.unflushed.all();
        let last_seq = self.committer.rotate(&keyspaces, |_| true);
        if !self.env.options.has_log() {
            return self.wait_until(|| self.committer.generations.are_flushed(last_seq));
        }
        let is_passing = |keyspace: &Arc<KeyspaceCore>| keyspace.dropped.load(Acquire);
        self.wait_until_all(&keyspaces, |one| one.is_flushed(last_seq) || is_passing(one))?;
        match self.catalog.are_flushed(&keyspaces, last_seq) {
            true => Ok(()),
            false => self.committer.sync_through(last_seq),
        }
    }

    /// Calls `find` for each keyspace of a set, from `turn` on and then from the beginning, until
    /// it returns something. The set may lose keyspaces meanwhile, and may be very large, so the
    /// claims are released after every few keyspaces. Other threads may then begin jobs, pause them
    /// or close the store. So nothing is found unless `may_find` holds, which is asked again after
    /// each release.
    pub(super) fn find_from<T>(
        claims: &mut MutexGuard<'_, Claims>,
        may_find: impl Fn(&Claims) -> bool,
        set: fn(&Claims) -> &BTreeSet<KeyspaceId>,
        turn: KeyspaceId,
        mut find: impl FnMut(&mut Claims, KeyspaceId) -> Option<T>,
    ) -> Option<T> {
        if !may_find(claims) {
            return None;
        }
        let mut looks = 0;
        for (from, to) in [(Included(turn), Unbounded), (Unbounded, Excluded(turn))] {
            let mut next = set(claims).range((from, to)).next().copied();
            while let Some(id) = next {
                looked(1);
                looks += 1;
                if looks % MOST_LOOKS == 0 {
                    MutexGuard::unlocked_fair(claims, || {
                        reached!(ClaimsReleased);
                    });
                    if !may_find(claims) {
                        return None;
                    }
                }
                if let Some(found) = find(claims, id) {
                    return Some(found);
                }
                next = set(claims).range((Excluded(id), to)).next().copied();
            }
        }
        None
    }

    /// The keyspace of this id. It may have been made while the claims were released.
    pub(super) fn keyspace_of(&self, id: KeyspaceId) -> Option<Arc<KeyspaceCore>> {
        self.catalog.keyspaces.read().get(&id).cloned()
    }

    fn may_compact(&self, claims: &Claims) -> bool {
        self.preparer.may_start(claims) && !self.is_paused()
    }

    /// The next worthwhile collection.
    fn next_collection(
        &self,
        claims: &mut MutexGuard<'_, Claims>,
        search: &Search<'_>,
    ) -> Option<Job> {
        let turn = claims.turns.collect;
        Runner::find_from(
            claims,
            |claims| self.may_compact(claims),
            |claims| &claims.crowded,
            turn,
            |claims, id| {
                let Some(keyspace) = self.keyspace_of(id) else {
                    claims.crowded.remove(&id);
                    return None;
                };
                let is_due = self.collection_is_due(claims, &keyspace, search);
                is_due.then_some(Job::Collect(keyspace))
            },
        )
    }

    /// Whether a collection is worthwhile. Only one collection of a keyspace runs at a time. If no
    /// collection can be worthwhile until something else changes, the keyspace is removed from the
    /// crowded ones.
    fn collection_is_due(
        &self,
        claims: &mut Claims,
        keyspace: &KeyspaceCore,
        search: &Search<'_>,
    ) -> bool {
        let id = keyspace.id;
        let is_held = keyspace.dropped.load(Relaxed)
            || claims.frozen.contains(&id)
            || claims.is_collecting(id);
        if is_held {
            return false;
        }
        let values = keyspace.values.load();
        let options = keyspace.options.load();
        let current = values.current.as_ref();
        let crowding = current.map_or(Crowding::None, |store| store.crowding(&options.values));
        if crowding == Crowding::None {
            claims.crowded.remove(&id);
        }
        let can_free = |store: &Arc<ValueFile>| store.can_free(search.readers());
        crowding == Crowding::Full
            && current.is_some_and(|store| store.may_collect() && can_free(store))
    }

    fn next_compaction(
        &self,
        claims: &mut MutexGuard<'_, Claims>,
        search: &Search<'_>,
    ) -> Option<Job> {
        if !self.may_compact(claims) {
            return None;
        }
        self.stir_expired(claims);
        let turn = claims.turns.compaction;
        Runner::find_from(
            claims,
            |claims| self.may_compact(claims),
            |claims| &claims.unsettled,
            turn,
            |claims, id| self.compaction_by_id(claims, id, search),
        )
    }

    /// A compaction of a keyspace that is not settled. If there is none, the keyspace is settled.
    fn compaction_by_id(
        &self,
        claims: &mut Claims,
        id: KeyspaceId,
        search: &Search<'_>,
    ) -> Option<Job> {
        let Some(keyspace) = &self.keyspace_of(id) else {
            claims.unsettled.remove(&id);
            return None;
        };
        if keyspace.dropped.load(Relaxed) || claims.exclusive.contains(&id) {
            return None;
        }
        let job = self.compaction_of(claims, keyspace, search);
        // When one of the running compactions ends, others may become possible.
        let own = |claim: &Claim| matches!(claim, Claim::Compaction(of, _) if *of == id);
        if job.is_none() && !claims.running.iter().any(|(_, claim)| own(claim)) {
            claims.unsettled.remove(&id);
            let shape = &keyspace.view.load().version.shape;
            let next = shape.next_expiry_ms(self.env.watch.now_ms());
            claims.expiries.extend(next.map(|at_ms| (at_ms, id)));
        }
        job
    }

    /// On a full disk: a job that drops tables and needs no space to do so. The search may look at
    /// all keyspaces that have a memtable or whose tree is not settled. But it begins after the
    /// keyspace of the last such job, so that n keyspaces take O(n) in all.
    fn freeing_job(&self, claims: &mut Claims, search: &Search<'_>) -> Option<Job> {
        if !self.env.is_disk_full() || self.is_paused() {
            return None;
        }
        self.stir_expired(claims);
        let (claims, turn) = (&*claims, claims.turns.compaction);
        let mut job = None;
        self.catalog.unflushed.find_from(turn, |keyspace| {
            job = self.freeing_job_of(claims, keyspace, search);
            job.is_some()
        });
        job.or_else(|| {
            let keyspaces = self.catalog.keyspaces.read();
            let (unsettled, all) = (&claims.unsettled, |id| keyspaces.get(id));
            let mut from_turn = unsettled.range(turn..).chain(unsettled.range(..turn));
            from_turn.find_map(|id| self.freeing_job_of(claims, all(id)?, search))
        })
    }

    fn freeing_job_of(
        &self,
        claims: &Claims,
        keyspace: &Arc<KeyspaceCore>,
        search: &Search<'_>,
    ) -> Option<Job> {
        let view = keyspace.view.load();
        let is_held = claims.exclusive.contains(&keyspace.id)
            || claims.running.iter().any(|(_, claim)| claim.is_of(keyspace.id))
            || view.version.shape.pending.is_some()
            || keyspace.dropped.load(Relaxed);
        if is_held {
            return None;
        }
        // Without a log, a crash loses the range deletes of memtables.
        let memtables = view.memtables().filter(|_| self.env.options.has_log());
        let newer: Vec<_> = memtables.filter_map(|one| one.range_deletes()).collect();
        let trees = (&*view.version, &newer[..]);
        let plan = self.unread_drops(keyspace, trees, &Busy::default(), search)?;
        Some(Job::Free(Arc::clone(keyspace), Arc::clone(&view.version), plan))
    }

    fn compaction_of(
        &self,
        claims: &Claims,
        keyspace: &Arc<KeyspaceCore>,
        search: &Search<'_>,
    ) -> Option<Job> {
        let options = keyspace.options.load();
        let version = Arc::clone(&keyspace.view.load().version);
        let running = claims.running.iter().filter_map(|(_, claim)| match claim {
            Claim::Compaction(id, plan) if *id == keyspace.id => Some(plan),
            _ => None,
        });
        let busy = Busy::of(&version.shape, running.clone());
        // A plan that a crash or a close interrupted is run first.
        if let Some(pending) = &version.shape.pending {
            let ids: BTreeSet<u64> = pending.table_ids().collect();
            let is_it = |plan: &Plan| plan.table_ids().any(|id| ids.contains(&id));
            if !running.clone().any(is_it) {
                let plan = Plan::clone(pending);
                return Some(Job::Compaction(Arc::clone(keyspace), version, plan));
            }
        }
        if let Some(plan) = self.unread_drops(keyspace, (&version, &[]), &busy, search) {
            return Some(Job::Compaction(Arc::clone(keyspace), version, plan));
        }
        let policy = options.compaction_policy().ok()?;
        let numbers = options.numbers();
        let heat = version.heat(numbers.charge, numbers.access_limit.into());
        let plan = next_plan(
            policy,
            &version.shape.at(|seq| search.past().end_ms(seq)),
            &busy,
            &heat,
            &impatient(&version.shape, &options),
        )?;
        Some(Job::Compaction(Arc::clone(keyspace), version, plan))
    }

    /// The tables that can be dropped without being read, because nobody sees any of their entries.
    /// Separated values die with their pointers, so tables with such pointers must be read. `newer`
    /// are range deletes of memtables that count too.
    pub(super) fn unread_drops(
        &self,
        keyspace: &KeyspaceCore,
        (version, newer): (&Version, &[Arc<RangeDeletes>]),
        busy: &Busy,
        search: &Search<'_>,
    ) -> Option<Plan> {
        if !keyspace.values.load().is_empty() {
            return None;
        }
        covered_tables(version, newer, || search.points(), busy)
            .or_else(|| expired_plan(&version.shape, busy, |seq| search.past().end_ms(seq)))
    }

    /// Checks again the trees in which many entries have expired since the last check.
    fn stir_expired(&self, claims: &mut Claims) {
        if claims.expiries.is_empty() {
            return;
        }
        let due = claims.expiries.split_off(&(self.env.watch.now_ms().saturating_add(1), 0));
        for (_, id) in std::mem::replace(&mut claims.expiries, due) {
            claims.unsettled.insert(id);
            claims.untidy.insert(id);
        }
    }

    /// Runs a job. The job's versions are released before its claim, so that files which became
    /// obsolete are on the purge list when others look.
    pub(super) fn run_job(&self, (claim, job): ClaimedJob) -> bool {
        self.supervisor.run_claimed(claim, || self.do_job(job))
    }

    fn do_job(&self, job: Job) -> bool {
        if self.env.is_disk_full() {
            // A write found no space. This is done before the job, which may free no space, or may
            // end the state of a full disk.
            self.release_held();
        }
        // Jobs of the kinds below succeed on a full disk too.
        let shows_space = !matches!(
            job,
            Job::Free(..) | Job::Prepare(Preparation::Chunk) | Job::Purge | Job::Sync
        );
        let outcome = match job {
            Job::Flush(keyspaces) => self.flusher.flush_oldest(&keyspaces).map(drop),
            Job::Compaction(keyspace, version, plan) => {
                self.compactor.run(&keyspace, version, &plan)
            }
            Job::Free(keyspace, version, plan) => self.free(&keyspace, &version, &plan),
            Job::Collect(keyspace) => {
                self.preparer.keep_rate(|| keyspace.check_exists().is_ok());
                let outcome = match &keyspace.values.load_full().current {
                    Some(store) => self.collector.collect(&keyspace, store).map(drop),
                    None => Ok(()),
                };
                if keyspace.view.load().version.has_seeks() {
                    // The look-ups of the collection may have charged tables for seeks.
                    self.schedule.stir(keyspace.id);
                }
                outcome
            }
            Job::Prepare(preparation) => self.preparer.run(preparation),
            Job::Purge => {
                self.purge();
                Ok(())
            }
            Job::Sync => self.committer.sync_awaited(),
        };
        let outcome = outcome.and_then(|()| self.catalog.rotate_manifest_if_due());
        self.supervisor.note(outcome, shows_space)
    }

    /// Drops tables on a full disk. The range deletes that cover them may be only in memtables. So
    /// the log is synced first: a power loss must not undo a range delete but keep its effect. The
    /// edit of the manifest may use the reserve.
    fn free(
        &self,
        keyspace: &Arc<KeyspaceCore>,
        version: &Arc<Version>,
        plan: &Plan,
    ) -> Result<()> {
        if self.env.options.has_log() && !seeded!(TablesFreedBeforeTheLog) {
            self.committer.sync_through(self.visibility.now())?;
        }
        let run = || self.compactor.run(keyspace, Arc::clone(version), plan);
        match run() {
            Err(error) if error.is_no_space() && self.committer.spend_reserve() => run(),
            outcome => outcome,
        }
    }

    /// Removes the files of tables that no reader needs any more.
    pub(crate) fn purge(&self) {
        self.catalog.purge_files(!self.schedule.is_closing());
    }

    /// Frees what no follower needs any more. On a full disk, followers lose what they hold.
    pub(crate) fn release_held(&self) {
        let leases = &self.catalog.tables.leases;
        if self.env.is_disk_full() && leases.usage().bytes > 0 {
            leases.revoke_holders();
        }
        leases.look_again();
        self.catalog.release_held();
        self.committer.release_held_log();
    }

    /// Runs one job in this thread, and returns its error if it fails; `false` if none was due.
    pub(crate) fn run_one_job(&self) -> Result<bool> {
        self.run_one(true)
    }

    /// Runs one job of those of an idle store, as if the store had been idle for long.
    #[cfg(feature = "seeded-bugs")]
    pub(crate) fn run_idle_job(&self) -> Result<bool> {
        self.env.check_caller()?;
        let Some(claimed) = self.claim_idle() else { return Ok(false) };
        if !self.run_job(claimed) {
            self.env.check_healthy()?;
        }
        Ok(true)
    }

    /// Runs one job like [`Runner::run_one_job`]; a compaction or a collection only if `compacts`.
    pub(crate) fn run_one(&self, compacts: bool) -> Result<bool> {
        self.env.check_caller()?;
        let Some(claimed) = self.claim_next(compacts) else { return Ok(false) };
        if !self.run_job(claimed) {
            self.env.check_healthy()?;
        }
        Ok(true)
    }

    /// Waits until `done` holds. If no other thread runs jobs, runs them here; otherwise waits for
    /// the jobs of other threads.
    pub(crate) fn wait_until(&self, done: impl Fn() -> bool) -> Result<()> {
        loop {
            self.run_jobs_until(&done)?;
            let mut claims = self.schedule.lock();
            if done() {
                return Ok(());
            }
            if self.schedule.is_closing() {
                return Err(Error::Closed);
            }
            if self.env.is_stopped() || self.env.is_out_of_space() {
                self.env.check_writable()?;
            }
            self.schedule.wait_for_change(&mut claims, self.env.is_manual());
        }
    }

    /// Does the same until `is_done` has held for each keyspace at some time. The checks take
    /// O(keyspaces) in all, not after each job.
    pub(crate) fn wait_until_all(
        &self,
        keyspaces: &[Arc<KeyspaceCore>],
        is_done: impl Fn(&Arc<KeyspaceCore>) -> bool,
    ) -> Result<()> {
        let left = Cell::new(keyspaces.len());
        self.wait_until(|| {
            while left.get() > 0 && is_done(&keyspaces[left.get() - 1]) {
                left.set(left.get() - 1);
            }
            left.get() == 0
        })
    }

    /// Runs jobs here, if no other thread does, until `done` holds or none is due. A thread that
    /// runs jobs does not wait for others to do so.
    pub(crate) fn run_jobs_until(&self, done: impl Fn() -> bool) -> Result<()> {
        let are_ours = self.env.is_manual() || threads::is_worker();
        while are_ours && !done() && self.run_one_job()? {}
        Ok(())
    }

    /// Waits until no job runs or is due.
    pub(crate) fn wait_idle(&self) -> Result<()> {
        self.env.check_caller()?;
        self.schedule.check_not_loading(None)?;
        loop {
            self.run_jobs_until(|| false)?;
            {
                let mut claims = self.schedule.lock();
                if self.schedule.is_closing() {
                    return Err(Error::Closed);
                }
                let last_claim = claims.next_claim;
                if claims.running.is_empty()
                    && self.next_job(&mut claims, true, &self.search()).is_none()
                {
                    // While the search released the claims, another thread may have begun a job
                    // and ended it. The job may have left work that the search had passed.
                    match claims.next_claim == last_claim {
                        true => return self.check_writable_or_read_only(),
                        false => continue,
                    }
                }
                self.schedule.wait_for_change(&mut claims, self.env.is_manual());
            }
            if self.env.is_stopped() {
                return self.env.check_writable();
            }
        }
    }

    fn check_writable_or_read_only(&self) -> Result<()> {
        if self.env.options.read_only { Ok(()) } else { self.env.check_writable() }
    }
}

/// The options by which the next compaction is picked. A policy may leave a small level 0 alone for
/// a while. While writers are slowed down it must not: they would wait for that compaction, which
/// would wait for more of their writes.
fn impatient<'a>(shape: &Shape, options: &'a KeyspaceOptions) -> Cow<'a, PolicyOptions> {
    if options.numbers().l0_share_percent == 0 || !level_0_slows_writers(shape, options) {
        return Cow::Borrowed(&options.shape);
    }
    let numbers = Numbers { l0_share_percent: 0, ..options.numbers().clone() };
    Cow::Owned(numbers.into_options())
}
