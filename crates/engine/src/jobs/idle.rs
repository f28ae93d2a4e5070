//! The work of a store to which nobody writes. It flushes memtables full of deletes and expired
//! entries. It compacts tables with garbage of deletes, expiry and overwrites. It collects the
//! garbage of value files.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use crate::sync::MutexGuard;
use runstone_policy::plan::Busy;
use runstone_policy::policy::idle::LEAST_TOMBSTONES;
use runstone_policy::policy::idle_plan;
use runstone_policy::shape::Table;

use crate::catalog::keyspace::KeyspaceCore;
use crate::jobs::runner::{Job, Runner};
use crate::jobs::search::Search;
use crate::keys::{KeyspaceId, SeqNo};
use crate::memtable::Memtable;
use crate::schedule::{Claims, Litter};

/// How long a worker has seen no write.
#[derive(Debug)]
pub(super) struct Idleness {
    seq: SeqNo,
    since: Instant,
}

impl Idleness {
    pub(super) fn new() -> Idleness {
        Idleness { seq: 0, since: Instant::now() }
    }

    /// Whether nobody has written for the time `after`, if `seq` is the last write.
    pub(super) fn lasts(&mut self, seq: SeqNo, after: Option<Duration>) -> bool {
        if std::mem::replace(&mut self.seq, seq) != seq {
            self.since = Instant::now();
        }
        after.is_some_and(|after| self.since.elapsed() >= after)
    }
}

impl Runner {
    /// The next job of a store to which nobody writes; see `runstone_policy::policy::idle`.
    pub(super) fn idle_job(
        &self,
        claims: &mut MutexGuard<'_, Claims>,
        search: &Search<'_>,
    ) -> Option<Job> {
        let may_start =
            |claims: &Claims| claims.running.is_empty() && self.preparer.may_start(claims);
        // There may be very many memtables, and writers must not wait for the count of their
        // entries.
        if !may_start(claims)
            || MutexGuard::unlocked_fair(claims, || self.tidy_memtables())
            || !may_start(claims)
        {
            return None;
        }
        Runner::find_from(
            claims,
            may_start,
            |claims| &claims.untidy,
            0,
            |claims, id| self.idle_job_of(claims, id, search),
        )
    }

    /// Counts the entries of memtables that expire, if that is due, or replaces a memtable that is
    /// full of deletes and expired entries. Returns whether there was anything to do.
    fn tidy_memtables(&self) -> bool {
        let mut uncounted = Vec::new();
        self.catalog.unflushed.for_each(|keyspace| {
            let view = keyspace.view.load();
            if view.active.awaits_count() {
                uncounted.push(Arc::clone(&view.active));
            }
        });
        if !uncounted.is_empty() {
            uncounted.iter().for_each(Memtable::count_expiries);
            return true;
        }
        let now_ms = self.env.watch.now_ms();
        let is_littered =
            |keyspace: &&Arc<KeyspaceCore>| keyspace.view.load().active.is_littered(now_ms);
        let littered = self.catalog.unflushed.find_from(0, is_littered);
        littered.is_some_and(|keyspace| {
            let active = Arc::clone(&keyspace.view.load().active);
            self.committer.rotate_if_active(&keyspace, &active);
            true
        })
    }

    /// A job for a keyspace that is not tidy. If there is none, the keyspace is tidy, unless
    /// snapshots keep what a job could remove.
    fn idle_job_of(&self, claims: &mut Claims, id: KeyspaceId, search: &Search<'_>) -> Option<Job> {
        assert!(claims.running.is_empty(), "an idle job is planned as if it were the only one");
        let keyspace = self.keyspace_of(id).filter(|keyspace| !keyspace.dropped.load(Relaxed));
        let Some(keyspace) = &keyspace else {
            claims.untidy.remove(&id);
            claims.tidied.remove(&id);
            claims.collected.remove(&id);
            return None;
        };
        if claims.exclusive.contains(&id) {
            return None;
        }
        let version = Arc::clone(&keyspace.view.load().version);
        let busy = Busy::default();
        if let Some(plan) = self.unread_drops(keyspace, (&version, &[]), &busy, search) {
            return Some(Job::Compaction(Arc::clone(keyspace), version, plan));
        }
        // Entries that expire while the store is idle add garbage to the same tables.
        let shape = version.shape.at(|seq| search.past().end_ms(seq));
        let sum = |of: fn(&Table) -> u64| shape.tables().map(|(_, t)| of(t)).sum();
        let (entries, tombstones) = (sum(|t| t.entries), sum(|t| t.tombstones));
        let litter = Litter { entries, tombstones, oldest_seq: search.points()[0] };
        let is_same = claims.tidied.get(&id) == Some(&litter);
        let options = keyspace.options.load();
        let least = LEAST_TOMBSTONES;
        let plan = options
            .compaction_policy()
            .ok()
            .filter(|_| !is_same)
            .and_then(|policy| idle_plan(policy, &shape, &busy, &options.shape, least));
        if let Some(plan) = plan {
            claims.tidied.insert(id, litter);
            drop(shape);
            return Some(Job::Compaction(Arc::clone(keyspace), version, plan));
        }
        // Compactions come first, because they find which values are dead.
        if self.is_worth_collecting(claims, keyspace, search) {
            return Some(Job::Collect(Arc::clone(keyspace)));
        }
        if !is_same {
            claims.untidy.remove(&id);
        }
        None
    }

    /// Whether a hash group has garbage that an idle store collects, and the last collection for
    /// that reason changed something. Collections of the other placements write to the tree, and an
    /// idle store does not do that.
    fn is_worth_collecting(
        &self,
        claims: &mut Claims,
        keyspace: &KeyspaceCore,
        search: &Search<'_>,
    ) -> bool {
        let values = keyspace.values.load();
        let current = values.current.as_ref().filter(|_| !seeded!(IdleGarbageKept));
        let Some(store) = current.filter(|store| store.may_collect()) else {
            return false;
        };
        let Some(garbage_bytes) = store.idle_garbage(|| search.readers()) else {
            return false;
        };
        claims.collected.insert(keyspace.id, garbage_bytes) != Some(garbage_bytes)
    }
}
