//! Which jobs run: their claims on keyspaces, who waits for whom, and the call that wakes workers.
//! Decides nothing and runs nothing; `jobs` does both.

use std::collections::BTreeSet;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::*};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};
use runstone_policy::plan::Plan;

use crate::base::error::{Error, Result};
use crate::base::key::{KeyspaceId, SeqNo};

/// Runs jobs in the caller's thread where nobody else does, so that a writer who is held up can
/// help itself.
pub(crate) trait Relief {
    /// Runs one job; `false` if none was due.
    fn run_one_job(&self) -> Result<bool>;

    /// Calls the workers.
    fn wake(&self);
}

/// Processors that this process may use.
pub(crate) static CORES: LazyLock<usize> =
    LazyLock::new(|| std::thread::available_parallelism().map_or(2, |cores| cores.get()));

/// Workers look for work this often when nobody wakes them.
const POLL: Duration = Duration::from_millis(500);

/// What a running job owns.
#[derive(Debug)]
pub(crate) enum Claim {
    Flush(KeyspaceId),
    Compaction(KeyspaceId, Plan),
    Collect(KeyspaceId),
    /// Jobs that run one at a time, by name.
    Single(&'static str),
}

impl Claim {
    pub(crate) fn is_of(&self, id: KeyspaceId) -> bool {
        match self {
            Claim::Flush(own) | Claim::Compaction(own, _) | Claim::Collect(own) => *own == id,
            Claim::Single(_) => false,
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Claims {
    pub(crate) running: Vec<(u64, Claim)>,
    next_claim: u64,
    /// Keyspaces in which a full compaction runs or waits.
    pub(crate) exclusive: BTreeSet<KeyspaceId>,
    /// Keyspaces whose options change: no job of theirs starts.
    pub(crate) frozen: BTreeSet<KeyspaceId>,
    /// After a full disk, nothing is tried before this.
    pub(crate) retry_at: Option<Instant>,
    /// Where the search for the next job of each kind begins: behind the keyspace that had the
    /// last one, or one that is written to much would keep the others waiting.
    pub(crate) turns: Turns,
}

#[derive(Debug, Default)]
pub(crate) struct Turns {
    pub(crate) flush: KeyspaceId,
    pub(crate) compaction: KeyspaceId,
    pub(crate) collect: KeyspaceId,
}

impl Claims {
    /// Whether a job of this name runs, of which there is one at a time.
    pub(crate) fn is_single_running(&self, name: &str) -> bool {
        self.running.iter().any(|(_, claim)| matches!(claim, Claim::Single(n) if *n == name))
    }

    pub(crate) fn is_collecting(&self, id: KeyspaceId) -> bool {
        self.running.iter().any(|(_, claim)| matches!(claim, Claim::Collect(own) if *own == id))
    }

    /// Whether a flush or compaction runs, which looks after preparations now and then.
    pub(crate) fn is_any_busy(&self) -> bool {
        let is_busy = |claim: &Claim| matches!(claim, Claim::Flush(_) | Claim::Compaction(..));
        self.running.iter().any(|(_, claim)| is_busy(claim))
    }
}

/// Which jobs of a store run, who waits for them, and what they may not do beside each other.
#[derive(Debug, Default)]
pub(crate) struct Schedule {
    claims: Mutex<Claims>,
    /// Work may be due.
    wake: Condvar,
    /// A job ended.
    ended: Condvar,
    closing: AtomicBool,
    /// Flushes that wait until compactions have written their values.
    held_up: AtomicUsize,
    /// Largest visible sequence number when a compaction was last split.
    last_seen: AtomicU64,
    /// See [`Schedule::flush_limit`].
    flush_limit: AtomicU64,
}

impl Schedule {
    pub(crate) fn new() -> Schedule {
        Schedule { flush_limit: AtomicU64::new(u64::MAX), ..Schedule::default() }
    }

    /// Claims, to be read or changed.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Claims> {
        self.claims.lock()
    }

    /// Calls the workers. Taking the lock orders the change that is announced before the worker's
    /// next look.
    pub(crate) fn wake(&self) {
        drop(self.claims.lock());
        self.wake.notify_all();
    }

    /// Waits a while for work; `false` when the while has passed.
    pub(crate) fn wait_for_work(&self, claims: &mut MutexGuard<'_, Claims>) -> bool {
        !self.wake.wait_for(claims, POLL).timed_out()
    }

    /// Waits until a job ended or, where callers run the jobs, one may be due; or until a while has
    /// passed.
    pub(crate) fn wait_for_change(&self, claims: &mut MutexGuard<'_, Claims>, is_manual: bool) {
        if is_manual {
            self.wake.wait_for(claims, POLL);
        } else {
            self.wake.notify_all();
            self.ended.wait_for(claims, POLL);
        }
    }

    /// Refuses what nobody wants of a store that closes.
    pub(crate) fn check_open(&self) -> Result<()> {
        if self.is_closing() { Err(Error::Closed) } else { Ok(()) }
    }

    /// Memtables with a larger number are not flushed: a checkpoint waits for all keyspaces to
    /// reach the same moment.
    pub(crate) fn flush_limit(&self) -> SeqNo {
        self.flush_limit.load(Acquire)
    }

    pub(crate) fn set_flush_limit(&self, limit: SeqNo) {
        self.flush_limit.store(limit, Release);
    }

    /// Whether compactions should make way. One that waits for them is no reason: they would wait
    /// for each other.
    pub(crate) fn is_flush_running(&self, claims: &Claims) -> bool {
        let flushes = claims.running.iter().filter(|(_, claim)| matches!(claim, Claim::Flush(_)));
        flushes.count() > self.held_up.load(Relaxed)
    }

    /// What a flush does that waits for compactions: those that made way for it go on meanwhile.
    pub(crate) fn while_held_up<T>(&self, wait: impl FnOnce() -> T) -> T {
        self.held_up.fetch_add(1, Relaxed);
        drop(self.claims.lock());
        self.wake.notify_all();
        let outcome = wait();
        self.held_up.fetch_sub(1, Relaxed);
        outcome
    }

    pub(crate) fn close(&self) {
        let _claims = self.claims.lock();
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

    /// Whether somebody has written since the last time that a job was looked for.
    pub(crate) fn sees_writers(&self, visible_seq: SeqNo) -> bool {
        self.last_seen.swap(visible_seq, Relaxed) != visible_seq
    }

    /// Notes a job that is about to run; the number under which it is released.
    pub(crate) fn claim(&self, claims: &mut Claims, claim: Claim) -> u64 {
        let turns = &mut claims.turns;
        match &claim {
            Claim::Flush(id) => turns.flush = id + 1,
            Claim::Compaction(id, _) => turns.compaction = id + 1,
            Claim::Collect(id) => turns.collect = id + 1,
            Claim::Single(_) => {}
        }
        claims.next_claim += 1;
        claims.running.push((claims.next_claim, claim));
        claims.next_claim
    }

    /// The job has ended.
    pub(crate) fn release(&self, claim: u64) {
        let mut claims = self.claims.lock();
        claims.running.retain(|(id, _)| *id != claim);
        self.ended.notify_all();
        self.wake.notify_all();
    }
}

/// No compaction of a keyspace runs or starts while this lives, and none of its other jobs if it is
/// frozen: for a full compaction, and for a change of policy, whose jobs know nothing of the old
/// one's.
pub(crate) struct Held<'a> {
    schedule: &'a Schedule,
    id: KeyspaceId,
}

impl<'a> Held<'a> {
    pub(crate) fn compactions(schedule: &'a Schedule, id: KeyspaceId) -> Held<'a> {
        let mut claims = schedule.claims.lock();
        while !claims.exclusive.insert(id) {
            schedule.ended.wait(&mut claims);
        }
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
        self.wait_while(&mut claims, |claim| claim.is_of(self.id));
    }

    fn wait_while(&self, claims: &mut MutexGuard<'_, Claims>, concerns: impl Fn(&Claim) -> bool) {
        while claims.running.iter().any(|(_, claim)| concerns(claim)) {
            self.schedule.ended.wait(claims);
        }
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        let mut claims = self.schedule.claims.lock();
        claims.exclusive.remove(&self.id);
        claims.frozen.remove(&self.id);
        self.schedule.ended.notify_all();
        self.schedule.wake.notify_all();
    }
}
