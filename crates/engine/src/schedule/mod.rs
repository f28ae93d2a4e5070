//! Records which jobs run and what they claim, makes threads wait for them, and wakes workers. It
//! decides nothing and runs nothing; `jobs` does both.

pub(crate) mod ready;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::*};
use std::sync::{Arc, LazyLock};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

use crate::sync::{Condvar, Mutex, MutexGuard, rank};
use runstone_policy::plan::Plan;

use crate::error::{Error, Result};
use crate::keys::{KeyspaceId, SeqNo};
use crate::schedule::ready::Ready;

/// Runs jobs in the caller's thread if no worker does, so that a writer that is held up can help
/// itself.
pub(crate) trait Relief {
    /// Runs one job; `false` if none was due.
    fn run_one_job(&self) -> Result<bool>;

    /// Wakes the workers.
    fn wake(&self);
}

/// Processors that this process may use.
pub(crate) static CORES: LazyLock<usize> =
    LazyLock::new(|| std::thread::available_parallelism().map_or(2, |cores| cores.get()));

/// Workers look for work at this interval if nobody wakes them.
pub(crate) const POLL: Duration = Duration::from_millis(500);

/// The part of the store that a running job owns.
#[derive(Debug)]
pub(crate) enum Claim {
    /// The keyspaces whose oldest memtables are flushed together.
    Flush(Vec<KeyspaceId>),
    Compaction(KeyspaceId, Plan),
    Collect(KeyspaceId),
    /// A bulk load into the keyspace, by a thread of the caller. Other loads and jobs may run at
    /// the same time.
    Load(KeyspaceId, ThreadId),
    /// A job that runs one at a time, by name.
    Single(&'static str),
}

impl Claim {
    pub(crate) fn is_of(&self, id: KeyspaceId) -> bool {
        match self {
            Claim::Flush(own) => own.contains(&id),
            Claim::Compaction(own, _) | Claim::Collect(own) | Claim::Load(own, _) => *own == id,
            Claim::Single(_) => false,
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Claims {
    pub(crate) running: Vec<(u64, Claim)>,
    /// Grows with each claim.
    pub(crate) next_claim: u64,
    /// Keyspaces in which a full compaction runs or waits.
    pub(crate) exclusive: BTreeSet<KeyspaceId>,
    /// Keyspaces whose options are changing. None of their jobs starts.
    pub(crate) frozen: BTreeSet<KeyspaceId>,
    /// Keyspaces whose policy may have something to do: their tree, options or heat changed since
    /// it last had nothing to do.
    pub(crate) unsettled: BTreeSet<KeyspaceId>,
    /// Keyspaces whose value file may use more space than their options allow: their tree, values
    /// or options changed since it last used no more.
    pub(crate) crowded: BTreeSet<KeyspaceId>,
    /// Keyspaces in which an idle store may have something to compact: their tree changed since
    /// there last was nothing to compact.
    pub(crate) untidy: BTreeSet<KeyspaceId>,
    /// The garbage of value files, by keyspace, when an idle store last collected some.
    pub(crate) collected: BTreeMap<KeyspaceId, u64>,
    /// The time at which enough of a table in a settled keyspace has expired for its policy to look
    /// again, in milliseconds since 1970.
    pub(crate) expiries: BTreeSet<(u64, KeyspaceId)>,
    /// What each keyspace contained when the idle store last compacted some of it. If it still
    /// contains as much, snapshots keep the garbage.
    pub(crate) tidied: BTreeMap<KeyspaceId, Litter>,
    /// No job starts before this time, after a job found the disk full.
    pub(crate) retry_at: Option<Instant>,
    /// The keyspace at which the search for the next job of each kind begins. It is the one after
    /// the keyspace that had the last such job; otherwise a keyspace with many writes would keep
    /// the others waiting.
    pub(crate) turns: Turns,
}

/// Shows whether a compaction of an idle tree left the tree as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Litter {
    pub(crate) entries: u64,
    pub(crate) tombstones: u64,
    /// The oldest moment that somebody can see.
    pub(crate) oldest_seq: SeqNo,
}

#[derive(Debug, Default)]
pub(crate) struct Turns {
    pub(crate) flush: KeyspaceId,
    pub(crate) compaction: KeyspaceId,
    pub(crate) collect: KeyspaceId,
}

impl Claims {
    /// Whether the job of this name runs.
    pub(crate) fn is_single_running(&self, name: &str) -> bool {
        self.running.iter().any(|(_, claim)| matches!(claim, Claim::Single(n) if *n == name))
    }

    pub(crate) fn is_collecting(&self, id: KeyspaceId) -> bool {
        self.running.iter().any(|(_, claim)| matches!(claim, Claim::Collect(own) if *own == id))
    }

    /// Whether a flush or a compaction runs; both run preparations at intervals.
    pub(crate) fn is_any_busy(&self) -> bool {
        let is_busy = |claim: &Claim| matches!(claim, Claim::Flush(_) | Claim::Compaction(..));
        self.running.iter().any(|(_, claim)| is_busy(claim))
    }
}

/// The running jobs of a store, and the threads that wait for them.
#[derive(Debug, Default)]
pub(crate) struct Schedule {
    claims: Mutex<rank::Claiming, Claims>,
    /// Signalled when work may be due.
    wake: Condvar,
    /// Also notified when work may be due, with the number of the store. `None` if callers run the
    /// jobs.
    ready: Option<(Arc<Ready>, u64)>,
    /// Signalled when a job ended.
    ended: Condvar,
    closing: AtomicBool,
    /// Whether compactions and collections wait for somebody to resume them.
    paused: AtomicBool,
    /// The number of flushes that wait for compactions to write their values.
    held_up: AtomicUsize,
    /// The number of callers that wait for the jobs of a frozen keyspace.
    awaited: AtomicUsize,
    /// The visible sequence number when [`Schedule::sees_writers`] was last called.
    last_seen: AtomicU64,
    /// See [`Schedule::flush_limit`].
    flush_limit: AtomicU64,
}

impl Schedule {
    pub(crate) fn new(ready: Option<(Arc<Ready>, u64)>) -> Schedule {
        Schedule { ready, flush_limit: AtomicU64::new(u64::MAX), ..Schedule::default() }
    }

    /// Wakes those who wait for work.
    fn signal(&self) {
        self.wake.notify_all();
        if let Some((ready, store)) = &self.ready {
            ready.note(*store);
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Claims> {
        self.claims.lock()
    }

    /// Wakes the workers. Taking the lock orders the caller's change before a worker's next look.
    pub(crate) fn wake(&self) {
        drop(self.claims.lock());
        self.signal();
    }

    /// Wakes those who wait for a change. The caller holds the claims.
    pub(crate) fn tell_waiters(&self) {
        self.ended.notify_all();
    }

    /// Wakes the workers, because something changed on which a keyspace's policy or the choice of
    /// collections depends.
    pub(crate) fn stir(&self, id: KeyspaceId) {
        let mut claims = self.claims.lock();
        claims.unsettled.insert(id);
        claims.crowded.insert(id);
        claims.untidy.insert(id);
        drop(claims);
        self.signal();
    }

    /// Waits for work, at most `POLL`; `false` if the time is over.
    pub(crate) fn wait_for_work(&self, claims: &mut MutexGuard<'_, Claims>) -> bool {
        !self.wake.wait_for(claims, POLL).timed_out()
    }

    /// Waits until a job has ended or, if callers run the jobs, until one may be due. Waits at most
    /// `POLL`.
    pub(crate) fn wait_for_change(&self, claims: &mut MutexGuard<'_, Claims>, is_manual: bool) {
        if is_manual {
            self.wake.wait_for(claims, POLL);
        } else {
            self.signal();
            self.ended.wait_for(claims, POLL);
        }
    }

    /// Refuses work whose result nobody wants, because the store is closing.
    pub(crate) fn check_open(&self) -> Result<()> {
        if self.is_closing() { Err(Error::Closed) } else { Ok(()) }
    }

    /// No memtable that begins above this sequence number is flushed: in a store without a log, a
    /// checkpoint or a load waits for all keyspaces to reach the same moment.
    pub(crate) fn flush_limit(&self) -> SeqNo {
        self.flush_limit.load(Acquire)
    }

    pub(crate) fn set_flush_limit(&self, limit: SeqNo) {
        self.flush_limit.store(limit, Release);
    }

    /// Whether compactions should make way for a flush. A flush that waits for compactions does not
    /// count: they would wait for each other.
    pub(crate) fn is_flush_running(&self, claims: &Claims) -> bool {
        let flushes = claims.running.iter().filter(|(_, claim)| matches!(claim, Claim::Flush(_)));
        flushes.count() > self.held_up.load(Relaxed)
    }

    /// Whether a flush waits for compactions.
    pub(crate) fn is_flush_held_up(&self) -> bool {
        self.held_up.load(Relaxed) > 0
    }

    /// Whether a caller waits for the jobs of a keyspace whose flushes are held back meanwhile.
    pub(crate) fn is_frozen_keyspace_awaited(&self) -> bool {
        self.awaited.load(Relaxed) > 0
    }

    /// Runs `wait`, in which a flush waits for compactions. Compactions that made way for the flush
    /// continue meanwhile.
    pub(crate) fn while_held_up<T>(&self, wait: impl FnOnce() -> T) -> T {
        self.held_up.fetch_add(1, Relaxed);
        drop(self.claims.lock());
        self.signal();
        let outcome = wait();
        self.held_up.fetch_sub(1, Relaxed);
        outcome
    }

    pub(crate) fn close(&self) {
        let _claims = self.claims.lock();
        self.closing.store(true, Release);
        self.signal();
        self.ended.notify_all();
    }

    /// Whether compactions and collections are paused.
    pub(crate) fn is_paused(&self) -> bool {
        self.paused.load(Relaxed)
    }

    /// Whether compactions and collections are held back. A pause does not hold them back while a
    /// flush waits for them.
    pub(crate) fn holds_compactions(&self) -> bool {
        self.is_paused() && self.held_up.load(Relaxed) == 0
    }

    /// Pauses compactions and collections, or resumes them. Running ones continue to their end.
    pub(crate) fn pause(&self, paused: bool) {
        self.paused.store(paused, Relaxed);
        self.wake();
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(Relaxed)
    }

    /// Refuses a call by the source of a load, which would wait for this load of the same thread.
    /// With `None`, a load into any keyspace counts.
    pub(crate) fn check_not_loading(&self, id: Option<KeyspaceId>) -> Result<()> {
        let here = std::thread::current().id();
        let is_own = |claim: &Claim| {
            matches!(claim, Claim::Load(own, thread) if *thread == here
                && id.is_none_or(|id| id == *own))
        };
        match self.claims.lock().running.iter().any(|(_, claim)| is_own(claim)) {
            true => Err(Error::InsideCallback),
            false => Ok(()),
        }
    }

    /// Waits until no job runs, not even in callers' threads, so that none writes to a store that
    /// is closed.
    pub(crate) fn wait_for_all(&self) {
        let mut claims = self.claims.lock();
        while !claims.running.is_empty() {
            self.ended.wait(&mut claims);
        }
    }

    /// Waits until no job of a keyspace runs.
    pub(crate) fn wait_for_keyspace(&self, id: KeyspaceId) {
        let mut claims = self.claims.lock();
        while claims.running.iter().any(|(_, claim)| claim.is_of(id)) {
            self.ended.wait(&mut claims);
        }
    }

    /// Whether a write became visible since the last call.
    pub(crate) fn sees_writers(&self, visible_seq: SeqNo) -> bool {
        self.last_seen.swap(visible_seq, Relaxed) != visible_seq
    }

    /// Records a job that is about to run. Returns the number that releases the claim.
    pub(crate) fn claim(&self, claims: &mut Claims, claim: Claim) -> u64 {
        let turns = &mut claims.turns;
        match &claim {
            Claim::Flush(ids) => turns.flush = ids.last().map_or(0, |id| id + 1),
            Claim::Compaction(id, _) => turns.compaction = id + 1,
            Claim::Collect(id) => turns.collect = id + 1,
            Claim::Load(..) | Claim::Single(_) => {}
        }
        claims.next_claim += 1;
        claims.running.push((claims.next_claim, claim));
        claims.next_claim
    }

    /// Releases the claim of a job that ended.
    pub(crate) fn release(&self, claim: u64) {
        let mut claims = self.claims.lock();
        let at = claims.running.iter().position(|(id, _)| *id == claim);
        let (_, ended) = claims.running.remove(at.expect("a claim is released once"));
        if let Claim::Collect(id) = ended {
            // The collection may have found values dead, or given up.
            claims.crowded.insert(id);
        }
        self.ended.notify_all();
        self.signal();
    }
}

/// While this value exists, no compaction of a keyspace runs or starts. If the keyspace is also
/// frozen, none of its other jobs does either. A full compaction only holds compactions back. A
/// bulk load freezes the keyspace for its last steps. A change of options freezes it too, because
/// the new policy's jobs know nothing of the old policy's jobs.
pub(crate) struct Held<'a> {
    schedule: &'a Schedule,
    id: KeyspaceId,
}

impl<'a> Held<'a> {
    pub(crate) fn compactions(schedule: &'a Schedule, id: KeyspaceId) -> Held<'a> {
        Held::once(schedule, id, |_| true)
    }

    /// Holds back every job and every load: none begins while a keyspace is frozen. It waits for
    /// running loads before it holds anything, because each load holds compactions back at its end.
    pub(crate) fn everything(schedule: &'a Schedule, id: KeyspaceId) -> Held<'a> {
        let is_load = |claim: &Claim| matches!(claim, Claim::Load(own, _) if *own == id);
        let held = Held::once(schedule, id, |claims| {
            let may = !claims.running.iter().any(|(_, claim)| is_load(claim));
            if may {
                claims.frozen.insert(id);
            }
            may
        });
        held.freeze();
        held
    }

    /// Holds compactions back once nobody else does and `may` returns `true`.
    fn once(schedule: &'a Schedule, id: KeyspaceId, may: impl Fn(&mut Claims) -> bool) -> Held<'a> {
        let mut claims = schedule.claims.lock();
        while claims.exclusive.contains(&id) || !may(&mut claims) {
            schedule.ended.wait(&mut claims);
        }
        claims.exclusive.insert(id);
        let held = Held { schedule, id };
        held.wait_while(
            &mut claims,
            |claim| matches!(claim, Claim::Compaction(own, _) if *own == id),
        );
        held
    }

    pub(crate) fn freeze(&self) {
        let mut claims = self.schedule.claims.lock();
        claims.frozen.insert(self.id);
        let is_job = |claim: &Claim| claim.is_of(self.id) && !matches!(claim, Claim::Load(..));
        self.wait_while(&mut claims, is_job);
    }

    fn wait_while(&self, claims: &mut MutexGuard<'_, Claims>, concerns: impl Fn(&Claim) -> bool) {
        let is_frozen = usize::from(claims.frozen.contains(&self.id));
        self.schedule.awaited.fetch_add(is_frozen, Relaxed);
        while claims.running.iter().any(|(_, claim)| concerns(claim)) {
            self.schedule.ended.wait(claims);
        }
        self.schedule.awaited.fetch_sub(is_frozen, Relaxed);
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        let mut claims = self.schedule.claims.lock();
        claims.exclusive.remove(&self.id);
        claims.frozen.remove(&self.id);
        self.schedule.ended.notify_all();
        self.schedule.signal();
    }
}
