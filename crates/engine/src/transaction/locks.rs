//! Locks of keys, which pessimistic transactions hold until they end. A lone put takes none.
//!
//! 1. The locks are in a table with shards. A lock that nobody holds is not in it.
//! 2. A transaction that finds a lock taken notes which transaction it waits for. Each waits for
//!    one lock and each lock has one holder, so one path leads from each waiter. If the path comes
//!    back to its start, the newcomer closes a cycle and gets the error; the others continue when
//!    it rolls back. No cycle can form in any other way, so nobody searches again.
//! 3. A holder that releases a lock removes the notes of its waiters in the same step. So no note
//!    refers to a lock that its holder has released, and a cycle of notes is a cycle of waiters.
//! 4. A commit that deletes a range first enters the range, and then looks for locks inside it. A
//!    transaction that takes a lock first takes it, and then looks for ranges over it. So one of
//!    the two sees the other: the commit fails, or the newcomer waits until the deletes are
//!    visible.
//!
//! Lock order: a shard, then the notes. The ranges have no part in this order. Waiters are not
//! queued: the first to come gets the lock.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::*};
use std::time::{Duration, Instant};

use crate::sync::{Condvar, Mutex, rank};
use xxhash_rust::xxh3::xxh3_64;

use runstone_storage::fork::Process;

use crate::catalog::keyspace::KeyspaceCore;
use crate::error::{Error, Result};
use crate::keys::KeyspaceId;

const SHARDS: usize = 16;

/// All locks of a store.
#[derive(Debug, Default)]
pub(crate) struct LockTable {
    shards: [Shard; SHARDS],
    /// Which transaction each waiting transaction waits for.
    notes: Mutex<rank::LockNotes, HashMap<u64, Note>>,
    /// The ranges that commits are deleting.
    ranges: Mutex<rank::LockedRanges, Vec<Range>>,
    ranges_left: Condvar,
    last_id: AtomicU64,
    /// How many pessimistic transactions are open.
    users: AtomicU64,
}

#[derive(Debug, Default)]
struct Shard {
    /// In order, because a commit asks for those in a range.
    locks: Mutex<rank::LockShard, BTreeMap<Name, Lock>>,
    released: Condvar,
}

/// The id of a keyspace, followed by a key.
type Name = Vec<u8>;

#[derive(Debug)]
struct Lock {
    holder: u64,
    waiters: BTreeSet<u64>,
}

#[derive(Clone, Debug)]
struct Note {
    holder: u64,
    /// What is waited for, as a text for people.
    what: String,
}

/// Keys that a commit deletes: from the first key up to the second, exclusive, if there is a
/// second.
#[derive(Clone, Debug)]
struct Range {
    holder: u64,
    id: KeyspaceId,
    start: Vec<u8>,
    end: Option<Vec<u8>>,
}

impl Range {
    fn covers(&self, name: &[u8]) -> bool {
        let key = name.strip_prefix(&self.id.to_le_bytes()[..]);
        key.is_some_and(|key| {
            *self.start <= *key && self.end.as_deref().is_none_or(|end| key < end)
        })
    }
}

/// The locks of one transaction. Dropping this value releases them all.
#[derive(Debug)]
pub(crate) struct Locks {
    table: Arc<LockTable>,
    id: u64,
    names: BTreeSet<Name>,
    most: usize,
    timeout: Duration,
    is_user: bool,
    has_ranges: bool,
    /// The process that took them. A fork of it holds no locks, but its copy of the table still
    /// contains them.
    process: Process,
}

impl LockTable {
    /// Whether a pessimistic transaction is open.
    pub(crate) fn is_used(&self) -> bool {
        self.users.load(SeqCst) > 0
    }

    fn shard(&self, name: &[u8]) -> &Shard {
        &self.shards[xxh3_64(name) as usize % SHARDS]
    }

    /// Notes which transaction a transaction waits for, unless that closes a cycle.
    fn note(&self, waiter: u64, holder: u64, what: String) -> Result<()> {
        let mut notes = self.notes.lock();
        let mut cycle = vec![describe(waiter, &Note { holder, what: what.clone() })];
        let mut at = holder;
        while let Some(note) = notes.get(&at).filter(|_| !seeded!(DeadlocksNotSought)) {
            cycle.push(describe(at, note));
            if note.holder == waiter {
                return Err(Error::Deadlock { cycle: cycle.join(", ") });
            }
            at = note.holder;
        }
        notes.insert(waiter, Note { holder, what });
        Ok(())
    }
}

fn describe(waiter: u64, note: &Note) -> String {
    format!("{waiter} waits for {} of {}", note.what, note.holder)
}

impl Locks {
    /// No locks yet, and not yet counted as a user of locks.
    pub(crate) fn new(table: &Arc<LockTable>, most: usize, timeout: Duration) -> Locks {
        let id = table.last_id.fetch_add(1, Relaxed) + 1;
        let names = BTreeSet::new();
        let table = Arc::clone(table);
        let (is_user, has_ranges, process) = (false, false, Process::current());
        Locks { table, id, names, most, timeout, is_user, has_ranges, process }
    }

    /// From now on until this value is dropped, commits that take no locks look at locks.
    pub(crate) fn begin_use(&mut self) {
        if !std::mem::replace(&mut self.is_user, true) {
            self.table.users.fetch_add(1, SeqCst);
        }
    }

    /// The id of the transaction, which errors name.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    pub(crate) fn table(&self) -> &LockTable {
        &self.table
    }

    /// Takes the lock of a key, or waits for it. The lock is held until this value is dropped.
    pub(crate) fn acquire(&mut self, core: &KeyspaceCore, key: &[u8]) -> Result<()> {
        let name = name_of(core, key);
        if self.names.contains(&name) {
            return Ok(());
        }
        if self.names.len() >= self.most {
            return Err(Error::invalid(
                format!("the transaction holds {} locks, its limit", self.most),
                "raise max_locks, or do the work in several transactions",
            ));
        }
        self.wait_for(core, key, &name)?;
        self.names.insert(name.clone());
        self.wait_for_ranges(core, key, &name).inspect_err(|_| {
            self.names.remove(&name);
            self.release(&name);
        })
    }

    /// Waits until no commit deletes a range over a key whose lock was taken.
    fn wait_for_ranges(&self, core: &KeyspaceCore, key: &[u8], name: &[u8]) -> Result<()> {
        let mut ranges = self.table.ranges.lock();
        let (mut deadline, mut is_late) = (None, false);
        while let Some(range) = ranges.iter().find(|range| range.covers(name)) {
            if is_late {
                let (keyspace, key) = (core.name.clone(), key.to_vec());
                return Err(Error::LockTimeout { keyspace, key, holder: range.holder });
            }
            let left = &self.table.ranges_left;
            match *deadline.get_or_insert_with(|| Instant::now().checked_add(self.timeout)) {
                Some(deadline) => is_late = left.wait_until(&mut ranges, deadline).timed_out(),
                None => left.wait(&mut ranges),
            }
        }
        Ok(())
    }

    /// Keeps newcomers from the locks in a range until this value is dropped. Returns a key in the
    /// range that somebody has locked, if there is one. O(log n), and O(own locks inside).
    pub(crate) fn try_acquire_range(
        &mut self,
        core: &KeyspaceCore,
        start: &[u8],
        end: Option<&[u8]>,
    ) -> Option<Vec<u8>> {
        let (start, end) = (start.to_vec(), end.map(<[u8]>::to_vec));
        let range = Range { holder: self.id, id: core.id, start, end };
        self.table.ranges.lock().push(range.clone());
        self.has_ranges = true;
        self.table.shards.iter().find_map(|shard| {
            let locks = shard.locks.lock();
            let from = [&range.id.to_le_bytes()[..], &range.start].concat();
            let inside = locks.range(from..).take_while(|(name, _)| range.covers(name));
            let mut others = inside.filter(|(_, lock)| lock.holder != self.id);
            let held = others.next().filter(|_| !seeded!(LocksIgnoredByRanges));
            held.map(|(name, _)| name[core.id.to_le_bytes().len()..].to_vec())
        })
    }

    /// Releases everything.
    pub(crate) fn release_all(&mut self) {
        for name in std::mem::take(&mut self.names) {
            self.release(&name);
        }
        if std::mem::take(&mut self.has_ranges) {
            self.table.ranges.lock().retain(|range| range.holder != self.id);
            self.table.ranges_left.notify_all();
        }
    }

    /// Whether it holds any lock or range.
    pub(crate) fn is_empty(&self) -> bool {
        self.names.is_empty() && !self.has_ranges
    }

    /// Releases the lock with this name.
    fn release(&self, name: &[u8]) {
        let shard = self.table.shard(name);
        let mut locks = shard.locks.lock();
        let Some(lock) = locks.remove(name) else { return };
        if !lock.waiters.is_empty() {
            let mut notes = self.table.notes.lock();
            lock.waiters.iter().for_each(|waiter| _ = notes.remove(waiter));
            shard.released.notify_all();
        }
    }

    /// Takes the lock of a key if nobody else holds it.
    pub(crate) fn try_acquire(&mut self, core: &KeyspaceCore, key: &[u8]) -> bool {
        let name = name_of(core, key);
        let mut locks = self.table.shard(&name).locks.lock();
        match locks.get(&name) {
            Some(lock) => lock.holder == self.id,
            None => {
                locks.insert(name.clone(), Lock::of(self.id));
                drop(locks);
                self.names.insert(name)
            }
        }
    }

    fn wait_for(&self, core: &KeyspaceCore, key: &[u8], name: &[u8]) -> Result<()> {
        let shard = self.table.shard(name);
        let mut locks = shard.locks.lock();
        // `None` if it lies beyond what the clock can represent.
        let mut deadline = None;
        let mut is_late = false;
        loop {
            let Some(lock) = locks.get_mut(name) else {
                locks.insert(name.to_vec(), Lock::of(self.id));
                return Ok(());
            };
            let holder = lock.holder;
            if is_late {
                lock.waiters.remove(&self.id);
                self.table.notes.lock().remove(&self.id);
                let (keyspace, key) = (core.name.clone(), key.to_vec());
                return Err(Error::LockTimeout { keyspace, key, holder });
            }
            // The holder may have changed since the last check.
            if lock.waiters.insert(self.id) {
                let what = format!("\"{}\" of {:?}", key.escape_ascii(), core.name);
                self.table.note(self.id, holder, what).inspect_err(|_| {
                    lock.waiters.remove(&self.id);
                })?;
            }
            match *deadline.get_or_insert_with(|| Instant::now().checked_add(self.timeout)) {
                Some(deadline) => {
                    is_late = shard.released.wait_until(&mut locks, deadline).timed_out();
                }
                None => shard.released.wait(&mut locks),
            }
        }
    }
}

impl Drop for Locks {
    fn drop(&mut self) {
        if !self.process.is_current() {
            return;
        }
        self.release_all();
        if self.is_user {
            self.table.users.fetch_sub(1, SeqCst);
        }
    }
}

impl Lock {
    fn of(holder: u64) -> Lock {
        Lock { holder, waiters: BTreeSet::new() }
    }
}

fn name_of(core: &KeyspaceCore, key: &[u8]) -> Name {
    [&core.id.to_le_bytes()[..], key].concat()
}
