//! Locks of keys, which pessimistic transactions hold until they end. A lone put takes none.
//!
//! 1. The locks are in a table with shards. A lock that nobody holds is not in it.
//! 2. A transaction that finds a lock taken notes which transaction it waits for. Each waits for
//!    one lock and each lock has one holder, so one path leads from each waiter. If the path
//!    returns to its start, the newcomer closes a cycle and gets the error; the others continue
//!    when it rolls back. No cycle can form in any other way, so nobody searches again.
//! 3. Taking or releasing a lock changes the notes of its waiters in the same step. So no note
//!    refers to a lock that its holder has released, and a cycle of notes is a cycle of waiters.
//!    The new holder waits for nothing, so it closes no cycle.
//! 4. A released lock is free, and its first waiter is woken: if all were woken, a thousand threads
//!    that want one key would wake half a million times. The lock is not passed on, because an
//!    optimistic commit, which never waits, would then never find it free.
//! 5. A commit that deletes a range first enters the range, and then looks for locks inside it. A
//!    transaction that wants a lock first takes it, and then looks for ranges over it. So one of
//!    the two sees the other: the commit fails, or the newcomer waits until the deletes are
//!    visible.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::ops::Bound;
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
/// The size of the keyspace's id, with which a name begins.
const ID_BYTES: usize = size_of::<KeyspaceId>();

/// All locks of a store.
#[derive(Debug, Default)]
pub(crate) struct LockTable {
    shards: [Shard; SHARDS],
    /// Which transaction each waiting transaction waits for.
    notes: Mutex<rank::LockNotes, HashMap<u64, Note>>,
    /// The ranges that commits are deleting.
    ranges: Mutex<rank::LockedRanges, Vec<Ranges>>,
    ranges_left: Condvar,
    last_id: AtomicU64,
    /// How many pessimistic transactions are open.
    users: AtomicU64,
}

#[derive(Debug, Default)]
struct Shard {
    /// Sorted by name, because a commit searches for the locks in a range.
    locks: Mutex<rank::LockShard, BTreeMap<Name, Lock>>,
}

/// The id of a keyspace, followed by a key.
type Name = Vec<u8>;

#[derive(Debug, Default)]
struct Lock {
    /// `None` until one of the waiters, or another transaction, takes the lock.
    holder: Option<u64>,
    /// In the order in which they began to wait.
    waiters: VecDeque<Arc<Waiter>>,
}

#[derive(Debug)]
struct Waiter {
    id: u64,
    is_free: Condvar,
}

#[derive(Clone, Debug)]
struct Note {
    /// The holder of the lock that is waited for; `None` while the lock is free.
    holder: Option<u64>,
    /// A description for people of the lock that is waited for.
    what: String,
}

/// The ranges that a commit deletes. They do not overlap.
#[derive(Debug)]
struct Ranges {
    holder: u64,
    /// The ends of the ranges by their first names: a key, exclusive, or `None` for the end of the
    /// keyspace.
    ends: BTreeMap<Name, Option<Vec<u8>>>,
}

impl Ranges {
    fn cover(&self, name: &[u8]) -> bool {
        let before =
            self.ends.range::<[u8], _>((Bound::Unbounded, Bound::Included(name))).next_back();
        before.is_some_and(|(start, end)| is_inside(name, start, end.as_deref()))
    }
}

/// Whether a name that is not before the start of a range is in the range.
fn is_inside(name: &[u8], start: &[u8], end: Option<&[u8]>) -> bool {
    let (keyspace, key) = name.split_at(ID_BYTES);
    start.starts_with(keyspace) && end.is_none_or(|end| key < end)
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
        let mut cycle = vec![describe(waiter, &what, holder)];
        let mut at = holder;
        while let Some(note) = notes.get(&at).filter(|_| !seeded!(DeadlocksNotSought)) {
            let Some(next) = note.holder else { break };
            cycle.push(describe(at, &note.what, next));
            if next == waiter {
                return Err(Error::Deadlock { cycle: cycle.join(", ") });
            }
            at = next;
        }
        notes.insert(waiter, Note { holder: Some(holder), what });
        Ok(())
    }

    /// Changes who holds a lock, also in the notes of its waiters. O(waiters), without waking them.
    fn set_holder(&self, lock: &mut Lock, holder: Option<u64>) {
        lock.holder = holder;
        if lock.waiters.is_empty() {
            return;
        }
        let mut notes = self.notes.lock();
        for waiter in &lock.waiters {
            if let Some(note) = notes.get_mut(&waiter.id) {
                note.holder = holder;
            }
        }
    }

    /// Ends the wait of a transaction.
    fn leave(&self, lock: &mut Lock, id: u64) {
        lock.waiters.retain(|waiter| waiter.id != id);
        self.notes.lock().remove(&id);
    }
}

fn describe(waiter: u64, what: &str, holder: u64) -> String {
    format!("{waiter} waits for {what} of {holder}")
}

impl Locks {
    /// The locks of a transaction that has none yet, and that does not count as a user of locks
    /// yet.
    pub(crate) fn new(table: &Arc<LockTable>, most: usize, timeout: Duration) -> Locks {
        let id = table.last_id.fetch_add(1, Relaxed) + 1;
        let names = BTreeSet::new();
        let table = Arc::clone(table);
        let (is_user, has_ranges, process) = (false, false, Process::current());
        Locks { table, id, names, most, timeout, is_user, has_ranges, process }
    }

    /// From now on until this value is dropped, commits that take no locks check the locks of
    /// others.
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
        while let Some(found) = ranges.iter().find(|ranges| ranges.cover(name)) {
            if is_late {
                let (keyspace, key) = (core.name.clone(), key.to_vec());
                return Err(Error::LockTimeout { keyspace, key, holder: found.holder });
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
    /// range that somebody has locked, if there is one. The ranges of a commit do not overlap.
    /// O(log n), and O(own locks inside).
    pub(crate) fn try_acquire_range(
        &mut self,
        core: &KeyspaceCore,
        start: &[u8],
        end: Option<&[u8]>,
    ) -> Option<Vec<u8>> {
        let start = name_of(core, start);
        self.enter_range(&start, end);
        self.table.shards.iter().find_map(|shard| {
            let locks = shard.locks.lock();
            let after = locks.range::<[u8], _>((Bound::Included(&*start), Bound::Unbounded));
            let inside = after.take_while(|(name, _)| is_inside(name, &start, end));
            let mut others =
                inside.filter(|(_, lock)| lock.holder.is_some_and(|holder| holder != self.id));
            let held = others.next().filter(|_| !seeded!(LocksIgnoredByRanges));
            held.map(|(name, _)| name[ID_BYTES..].to_vec())
        })
    }

    fn enter_range(&mut self, start: &[u8], end: Option<&[u8]>) {
        let mut all = self.table.ranges.lock();
        let at = all.iter().position(|ranges| ranges.holder == self.id).unwrap_or_else(|| {
            all.push(Ranges { holder: self.id, ends: BTreeMap::new() });
            all.len() - 1
        });
        all[at].ends.insert(start.to_vec(), end.map(<[u8]>::to_vec));
        self.has_ranges = true;
    }

    /// Releases everything.
    pub(crate) fn release_all(&mut self) {
        for name in std::mem::take(&mut self.names) {
            self.release(&name);
        }
        if std::mem::take(&mut self.has_ranges) {
            self.table.ranges.lock().retain(|ranges| ranges.holder != self.id);
            self.table.ranges_left.notify_all();
        }
    }

    /// Whether the transaction holds no lock and no range.
    pub(crate) fn is_empty(&self) -> bool {
        self.names.is_empty() && !self.has_ranges
    }

    /// Releases the lock with this name, and wakes the first waiter.
    fn release(&self, name: &[u8]) {
        let mut locks = self.table.shard(name).locks.lock();
        let Some(lock) = locks.get_mut(name) else { return };
        self.table.set_holder(lock, None);
        match lock.waiters.front() {
            Some(first) => _ = first.is_free.notify_all(),
            None => _ = locks.remove(name),
        }
    }

    /// Takes the lock of a key if nobody else holds it.
    pub(crate) fn try_acquire(&mut self, core: &KeyspaceCore, key: &[u8]) -> bool {
        let name = name_of(core, key);
        let mut locks = self.table.shard(&name).locks.lock();
        let lock = locks.entry(name.clone()).or_default();
        match lock.holder {
            Some(holder) => holder == self.id,
            None => {
                self.table.set_holder(lock, Some(self.id));
                drop(locks);
                self.names.insert(name)
            }
        }
    }

    fn wait_for(&self, core: &KeyspaceCore, key: &[u8], name: &[u8]) -> Result<()> {
        let mut locks = self.table.shard(name).locks.lock();
        let lock = locks.entry(name.to_vec()).or_default();
        let Some(holder) = lock.holder else {
            self.table.set_holder(lock, Some(self.id));
            return Ok(());
        };
        let what = format!("\"{}\" of {:?}", key.escape_ascii(), core.name);
        self.table.note(self.id, holder, what)?;
        let waiter = Arc::new(Waiter { id: self.id, is_free: Condvar::new() });
        lock.waiters.push_back(Arc::clone(&waiter));
        // `None` if the deadline is beyond the range of the clock.
        let deadline = Instant::now().checked_add(self.timeout);
        loop {
            let is_late = match deadline {
                Some(end) => waiter.is_free.wait_until(&mut locks, end).timed_out(),
                None => {
                    waiter.is_free.wait(&mut locks);
                    false
                }
            };
            let lock = locks.get_mut(name).expect("a lock with waiters stays");
            match lock.holder {
                // The first waiter always gets here, so no free lock has only waiters that sleep.
                None => {
                    self.table.leave(lock, self.id);
                    self.table.set_holder(lock, Some(self.id));
                    return Ok(());
                }
                Some(holder) if is_late => {
                    self.table.leave(lock, self.id);
                    let (keyspace, key) = (core.name.clone(), key.to_vec());
                    return Err(Error::LockTimeout { keyspace, key, holder });
                }
                // Somebody else took the lock first.
                Some(_) => {}
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

fn name_of(core: &KeyspaceCore, key: &[u8]) -> Name {
    [&core.id.to_le_bytes()[..], key].concat()
}
