//! The threads that run jobs, for one store or for several that share them.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;

use crate::sync::{Mutex, RwLock, rank};
use runstone_storage::fork::Process;

use crate::cache::Budget;
use crate::jobs::idle::Idleness;
use crate::jobs::runner::{ClaimedJob, Runner};
use crate::keys::SeqNo;
use crate::memtable::arena::ChunkPool;
use crate::schedule::ready::{Dismissed, Next, Ready, Serves};
use crate::sync::threads;

/// The niceness of compacting threads above that of the process: with fewer cores than threads, a
/// writer would otherwise lose time slices to a compaction. The value is small, because threads
/// that want all cores can starve a thread with a larger niceness. With niceness 15 compactions got
/// a fiftieth of a core, and writers waited 14 seconds for them. Threads that only flush are not
/// niced, because writers wait for flushes first.
const COMPACTION_NICENESS: i32 = 2;

/// The number of stores that one tick checks although nobody noted them. If there are more, the
/// next ticks check the rest.
const LOOKS_PER_TICK: usize = 128;

/// What a store does now and then besides its jobs.
pub(crate) trait Housekeeping: Debug + Send + Sync {
    /// Called at each tick, by several threads.
    fn keep(&self);
}

/// A store whose jobs these threads run.
#[derive(Debug)]
struct Member {
    runner: Arc<Runner>,
    house: Box<dyn Housekeeping>,
    rest: Mutex<rank::Rest, Rest>,
}

/// How long nobody has written to a store.
#[derive(Debug)]
struct Rest {
    last_seq: SeqNo,
    idleness: Idleness,
}

/// The stores, and the one at which the next tick begins.
#[derive(Debug)]
struct Members {
    pool: Arc<ChunkPool>,
    budget: Arc<Budget>,
    by_number: RwLock<rank::Members, BTreeMap<u64, Arc<Member>>>,
    /// The rounds of the threads that only flush, and of the others.
    rounds: [Mutex<rank::Round, Round>; 2],
}

#[derive(Debug, Default)]
struct Round {
    /// The smallest number of a store that has not had its turn. The first store of a process has
    /// the number 0.
    next: u64,
    /// Whether somebody wrote to a store since the round began.
    has_writes: bool,
}

/// Threads, which end when this value is dropped.
#[derive(Debug)]
pub(crate) struct Workers {
    ready: Arc<Ready>,
    members: Arc<Members>,
    threads: Mutex<rank::Threads, Threads>,
    process: Process,
}

#[derive(Debug, Default)]
struct Threads {
    /// The threads that work, and threads that were dismissed and may still have a job.
    handles: Vec<JoinHandle<()>>,
    /// The threads that work, and how many they are.
    crew: Arc<Dismissed>,
    count: usize,
}

impl Workers {
    /// Starts no thread yet. The stores take their memory from the pool and the budget.
    pub(crate) fn new(pool: &Arc<ChunkPool>, budget: &Arc<Budget>) -> Workers {
        let (pool, budget) = (Arc::clone(pool), Arc::clone(budget));
        let (by_number, rounds) = (RwLock::default(), Default::default());
        Workers {
            ready: Arc::new(Ready::new()),
            members: Arc::new(Members { pool, budget, by_number, rounds }),
            threads: Mutex::default(),
            process: Process::current(),
        }
    }

    /// Starts this many threads. With two or more, the first leaves compactions to the others. If
    /// one cannot be started, those that were started end.
    ///
    /// If there are threads already, the new ones take their place. A running job continues to its
    /// end. If a thread cannot be started, the old threads stay.
    pub(crate) fn start(&self, count: usize) -> std::io::Result<()> {
        let mut threads = self.threads.lock();
        threads.handles.retain(|thread| !thread.is_finished());
        let crew = Arc::new(Dismissed::default());
        let outcome = self.start_crew(count, &crew, &mut threads.handles);
        let leaving = match outcome {
            Ok(()) => {
                threads.count = count;
                std::mem::replace(&mut threads.crew, crew)
            }
            Err(_) => crew,
        };
        self.ready.dismiss(&leaving);
        outcome
    }

    /// How many threads there are.
    pub(crate) fn count(&self) -> usize {
        self.threads.lock().count
    }

    fn start_crew(
        &self,
        count: usize,
        crew: &Arc<Dismissed>,
        handles: &mut Vec<JoinHandle<()>>,
    ) -> std::io::Result<()> {
        for at in 0..count {
            let crew = Arc::clone(crew);
            let serves = if count == 1 || at > 0 { Serves::Everything } else { Serves::Flushes };
            let (ready, members) = (Arc::clone(&self.ready), Arc::clone(&self.members));
            let name = match serves {
                Serves::Everything => "runstone-compact",
                Serves::Flushes => "runstone-flush",
            };
            let thread = std::thread::Builder::new().name(name.into()).spawn(move || {
                threads::become_worker();
                if serves == Serves::Everything {
                    // Linux keeps a niceness per thread. If the call fails, only latency suffers.
                    let _ = rustix::process::nice(COMPACTION_NICENESS);
                }
                work(&ready, &members, serves, &crew);
            })?;
            handles.push(thread);
        }
        Ok(())
    }

    /// Where stores note that they have work.
    pub(crate) fn ready(&self) -> &Arc<Ready> {
        &self.ready
    }

    /// Starts to run the jobs of a store.
    pub(crate) fn add(&self, number: u64, runner: &Arc<Runner>, house: Box<dyn Housekeeping>) {
        let rest = Mutex::new(Rest { last_seq: 0, idleness: Idleness::new() });
        let member = Arc::new(Member { runner: Arc::clone(runner), house, rest });
        self.members.by_number.write().insert(number, member);
        self.ready.note(number);
    }

    /// Starts no more jobs of the store. A job may still run.
    pub(crate) fn remove(&self, number: u64) {
        let removed = self.members.by_number.write().remove(&number);
        // This may be the last reference to a store, whose end takes locks.
        drop(removed);
    }

    /// Ends the threads without waiting for them, because one of them may be waiting for the
    /// caller.
    pub(crate) fn abandon(&self) {
        self.ready.end();
        self.threads.lock().handles.clear();
    }
}

impl Drop for Workers {
    /// Waits for the running jobs, unless the caller runs one of them, because others may wait for
    /// that job.
    fn drop(&mut self) {
        let threads = mem::take(&mut self.threads.get_mut().handles);
        if !self.process.is_current() {
            // In a forked process the threads do not exist.
            return threads.into_iter().for_each(mem::forget);
        }
        self.ready.end();
        let here = std::thread::current().id();
        if threads.iter().all(|thread| thread.thread().id() != here) {
            threads.into_iter().for_each(|thread| drop(thread.join()));
        }
    }
}

fn work(ready: &Ready, members: &Members, serves: Serves, crew: &Dismissed) {
    // An idle store that had a job often has another: garbage in other tables, groups, keyspaces.
    let mut idle = None;
    loop {
        let found = match ready.next(serves, crew, idle.is_some()) {
            Next::End => return,
            Next::Tick => members.tick(ready, serves).map(|(number, member, job)| {
                idle = Some(number);
                (member, job)
            }),
            Next::Store(number) => members.claim(ready, number, serves),
            Next::Nothing => {
                let found = idle.and_then(|number| members.claim_idle(number));
                idle = idle.filter(|_| found.is_some());
                found
            }
        };
        if let Some((member, job)) = found {
            member.guard(|| member.runner.run_job(job));
        }
    }
}

impl Members {
    /// The next job of a store that was noted, if there is one.
    fn claim(
        &self,
        ready: &Ready,
        number: u64,
        serves: Serves,
    ) -> Option<(Arc<Member>, ClaimedJob)> {
        let member = Arc::clone(self.by_number.read().get(&number)?);
        let claim = || member.runner.claim_next(serves == Serves::Everything);
        let job = member.guard(claim).flatten()?;
        // Other threads may find more to do there.
        ready.note(number);
        Some((member, job))
    }

    /// A job of a store, if it is idle.
    fn claim_idle(&self, number: u64) -> Option<(Arc<Member>, ClaimedJob)> {
        let member = Arc::clone(self.by_number.read().get(&number)?);
        let job = member.guard(|| member.idle_job()).flatten()?;
        Some((member, job))
    }

    /// Checks stores that nobody noted: some wait for a time, and some are idle. Returns a job of
    /// an idle store and its number, if the thread runs such jobs.
    fn tick(&self, ready: &Ready, serves: Serves) -> Option<(u64, Arc<Member>, ClaimedJob)> {
        let mut round = self.rounds[serves as usize].try_lock()?;
        let some: Vec<(u64, Arc<Member>)> = {
            let members = self.by_number.read();
            let rest = members.range(round.next..);
            rest.take(LOOKS_PER_TICK).map(|(number, one)| (*number, Arc::clone(one))).collect()
        };
        let mut found = None;
        for (number, member) in &some {
            round.next = *number + 1;
            // The store is noted because its work may wait for a time, or nobody may have reported
            // it.
            ready.note(*number);
            let is_written = member.guard(|| member.look()).unwrap_or(false);
            round.has_writes |= is_written;
            if !is_written && serves == Serves::Everything {
                let job = member.guard(|| member.idle_job()).flatten();
                found = job.map(|job| (*number, Arc::clone(member), job));
            }
            if found.is_some() {
                return found;
            }
        }
        if some.len() < LOOKS_PER_TICK {
            round.next = 0;
            if !mem::take(&mut round.has_writes) {
                self.trim_memory();
            }
        }
        found
    }

    /// Frees memory that only writers need. If there is no store, frees all memory that is kept.
    fn trim_memory(&self) {
        if self.by_number.read().is_empty() {
            self.pool.empty();
            self.budget.clear();
        }
        self.pool.trim();
        self.budget.rest();
    }
}

impl Member {
    /// Does something for a store that may call its user's code: a listener or a clock. If that
    /// code panics, the store stops, and the thread continues with the other stores.
    fn guard<T>(&self, work: impl FnOnce() -> T) -> Option<T> {
        let done = catch_unwind(AssertUnwindSafe(work));
        if done.is_err() {
            // Stopping the store may panic as well, and so may dropping the panic's payload.
            let stop = || self.runner.supervisor.stop_after_panic();
            let _ = catch_unwind(AssertUnwindSafe(stop));
        }
        done.ok()
    }

    /// Whether somebody wrote since the last check. If not, frees what only writers need.
    fn look(&self) -> bool {
        self.runner.release_held();
        self.runner.committer.log_time();
        self.house.keep();
        let seq = self.runner.visibility.now();
        let is_written = mem::replace(&mut self.rest.lock().last_seq, seq) != seq;
        if !is_written {
            self.runner.preparer.trim_files();
        }
        is_written
    }

    /// A job for a store that has been idle for a long time.
    fn idle_job(&self) -> Option<ClaimedJob> {
        let after = self.runner.env.options.idle_after;
        let lasts = self.rest.lock().idleness.lasts(self.runner.visibility.now(), after);
        if lasts { self.runner.claim_idle() } else { None }
    }
}
