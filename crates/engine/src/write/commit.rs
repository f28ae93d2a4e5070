//! The commit pipeline. One batch goes through these steps:
//!
//! 1. Back-pressure may slow the caller down (`pressure`).
//! 2. A lone write is prepared: copied into the memtable's memory, its place in the tree found.
//! 3. Under the commit lock: a range of sequence numbers, one log record, and an announcement to
//!    each memtable. The record is a memory copy, so the lock is held for about 100 ns; a queue
//!    with a leader that copies for its followers (RocksDB, Pebble) would cost a wake-up each.
//! 4. Without the lock: inserts into the memtables, in parallel with other writers.
//! 5. Publish, in order of sequence numbers: readers see whole batches, and never a later write
//!    without an earlier one.
//! 6. With `Durability::Sync`: one sync for all records appended so far; writers that arrive while
//!    it runs share the next one (group commit).
//!
//! A record is in the operating system's hands (mapped pages or a finished write) before step 4, so
//! whatever a reader saw survives a crash of the process.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering::*;
use std::time::Instant;

use arc_swap::Guard;
use parking_lot::MutexGuard;

use crate::base::error::{Error, Result};
use crate::base::key::{Kind, MAX_SEQ, SeqNo, kind_of, pack, seq_of};
use crate::base::metrics::{Counter, sampled};
use crate::base::options::Durability;
use crate::catalog::dead_ranges::{Sees, Walk};
use crate::memtable::Memtable;
use crate::store::{Inner, KeyspaceInner, View};
use crate::values::file::ValueFile;
use crate::wal::batch::Batch;
use crate::wal::segments::{SyncWork, Wal};

/// Looks at the commit lock before a writer gives way: 2 to 5 us, by processor.
const LOOKS: usize = 100;

/// Pointers that are written under one hold of the commit lock: about a tenth of a millisecond.
const RELOCATIONS_AT_ONCE: usize = 256;

/// What the commit lock protects. Laid out so that what every write changes shares the lock's
/// cache line: it passes between the cores of two writers once.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct CommitState {
    /// The next sequence number to give out.
    pub(crate) next_seq: SeqNo,
    pub(crate) closed: bool,
    pub(crate) wal: Wal,
    /// Segment of the last record.
    pub(crate) last_segment: u64,
}

/// How much of a batch goes to one keyspace.
pub(crate) struct Share<'a> {
    pub(crate) keyspace: &'a Arc<KeyspaceInner>,
    pub(crate) count: u64,
    pub(crate) user_bytes: u64,
}

/// A value that collection has moved.
#[derive(Debug)]
pub(crate) struct Relocation {
    pub(crate) key: Vec<u8>,
    /// Number of the version that points to the old place, or of the record there: a user who
    /// replaced it since has a larger one.
    pub(crate) seq: SeqNo,
    /// The new place, encoded.
    pub(crate) pointer: Vec<u8>,
}

/// The views whose active memtables a batch goes to, one per share. Guards instead of counted
/// references: two writers would fight over the memtable's count, twice per write.
enum Views {
    One(Guard<Arc<View>>),
    Many(Vec<Guard<Arc<View>>>),
}

impl Views {
    fn of(shares: &[Share<'_>], announce: impl Fn(&Share<'_>) -> Guard<Arc<View>>) -> Views {
        match shares {
            [share] => Views::One(announce(share)),
            shares => Views::Many(shares.iter().map(announce).collect()),
        }
    }

    fn as_slice(&self) -> &[Guard<Arc<View>>] {
        match self {
            Views::One(view) => std::slice::from_ref(view),
            Views::Many(views) => views,
        }
    }
}

impl Inner {
    /// Commits a batch whose keyspaces were resolved.
    pub(crate) fn commit(
        &self,
        batch: &Batch,
        shares: &[Share<'_>],
        durability: Durability,
    ) -> Result<()> {
        if batch.is_empty() {
            // Nothing to write. Who asks for durability means what was acknowledged before.
            return match durability {
                Durability::Sync => self.sync_all(),
                Durability::Buffered => Ok(()),
            };
        }
        let started = sampled().then(Instant::now);
        self.check_writable()?;
        self.throttle(batch.user_bytes())?;
        // A lone write does most of its work before it has a number: whoever gets the next one
        // waits for the rest only. In a batch the later writes could move what was found for the
        // earlier ones.
        let early_view = shares[0].keyspace.view.load();
        let prepared = match batch.len() {
            // Nor where the log may refuse: what is prepared in vain takes memory.
            1 if !self.is_out_of_space() => batch.operations().next().map(|operation| {
                let prepared = early_view.active.prepare(operation.key, operation.value);
                (operation.kind, prepared)
            }),
            _ => None,
        };
        let (first_seq, views) = self.log_and_announce(batch, shares)?;
        let last_seq = first_seq + batch.len() - 1;
        match prepared {
            Some((kind, prepared))
                if Arc::ptr_eq(&early_view.active, &views.as_slice()[0].active) =>
            {
                prepared.insert(pack(first_seq, kind));
            }
            _ => insert(batch, shares, views.as_slice(), first_seq),
        }
        drop(early_view);
        self.publisher.publish(first_seq, last_seq);
        for (share, view) in shares.iter().zip(views.as_slice()) {
            if view.active.is_full() {
                self.rotate_if_active(share.keyspace, &view.active);
            }
        }
        drop(views);
        if self.cache.take_memtables_grew() {
            self.relieve_memory();
        }
        if self.bell.answer() {
            self.wake_background();
        }
        if self.log_too_long.load(Relaxed) && self.log_too_long.swap(false, Relaxed) {
            self.shorten_log();
        }
        self.metrics.add_all(&[
            (Counter::writes, batch.len()),
            (Counter::commits, 1),
            (Counter::user_bytes_written, batch.user_bytes()),
        ]);
        if durability == Durability::Sync {
            self.sync_through(last_seq)?;
        }
        if let Some(started) = started {
            self.metrics.commit_ns.record(started.elapsed());
        }
        Ok(())
    }

    /// Writes value pointers that collection has moved, each unless a user wrote its key since: a
    /// conditional update. Either no memtable of the keyspace is flushed between the look-up of
    /// those versions and this, or flushes note what they write (`ValueFile::is_dirty`). Returns
    /// the last number given out. A few at a time, so that writers do not wait long.
    pub(crate) fn commit_relocations(
        &self,
        keyspace: &Arc<KeyspaceInner>,
        store: &ValueFile,
        moves: &[Relocation],
    ) -> Result<SeqNo> {
        let last_at = moves.len().saturating_sub(1) / RELOCATIONS_AT_ONCE * RELOCATIONS_AT_ONCE;
        let (most, last) = moves.split_at(last_at);
        for some in most.chunks(RELOCATIONS_AT_ONCE) {
            self.commit_some_relocations(keyspace, store, some)?;
        }
        self.commit_some_relocations(keyspace, store, last)
    }

    fn commit_some_relocations(
        &self,
        keyspace: &Arc<KeyspaceInner>,
        store: &ValueFile,
        moves: &[Relocation],
    ) -> Result<SeqNo> {
        self.check_not_stopped()?;
        let state = self.commit.lock();
        // Whoever has a number must have inserted too, or would be overtaken here.
        self.wait_visible(state.next_seq - 1);
        let view = keyspace.view.load();
        let mut batch = Batch::new();
        for Relocation { key, seq, pointer } in moves {
            let mut memtables = std::iter::once(&view.active).chain(&view.immutable);
            let newest = memtables.find_map(|memtable| memtable.get(key, MAX_SEQ));
            let newest = newest.filter(|_| !seeded!(RelocationOverwritesNewer));
            // An earlier relocation is no write of a user: it moved the same version.
            let replaces = |trailer: u64| {
                let is_user = kind_of(trailer) != Kind::Relocate as u8;
                seq_of(trailer) > *seq && (is_user || seeded!(RelocationsTakenForWrites))
            };
            // The memtables first: what a flush takes out of the view it has noted before.
            let is_replaced = newest.is_some_and(|record| replaces(record.trailer()));
            if !is_replaced && !store.is_dirty(key, *seq) {
                batch.push(Kind::Relocate, keyspace.id, key, pointer)?;
            }
        }
        drop(view);
        if batch.is_empty() {
            return Ok(state.next_seq - 1);
        }
        let share = Share { keyspace, count: batch.len(), user_bytes: batch.user_bytes() };
        let shares = [share];
        let (first_seq, views) = self.log_locked(state, &batch, &shares)?;
        let last_seq = first_seq + batch.len() - 1;
        insert(&batch, &shares, views.as_slice(), first_seq);
        self.publisher.publish(first_seq, last_seq);
        for view in views.as_slice() {
            if view.active.is_full() {
                self.rotate_if_active(keyspace, &view.active);
            }
        }
        self.metrics.add(Counter::value_pointers_written, batch.len());
        Ok(last_seq)
    }

    fn log_and_announce(&self, batch: &Batch, shares: &[Share<'_>]) -> Result<(SeqNo, Views)> {
        self.log_locked(self.lock_commit(), batch, shares)
    }

    /// Takes the commit lock for a write: looks often before it gives way to another thread. The
    /// lock alone calls the kernel after three looks, for what is over in a tenth of a microsecond.
    fn lock_commit(&self) -> MutexGuard<'_, CommitState> {
        for _ in 0..LOOKS {
            // A look shares the line of the holder; only an attempt takes it away.
            if !self.commit.is_locked()
                && let Some(guard) = self.commit.try_lock()
            {
                return guard;
            }
            std::hint::spin_loop();
        }
        self.commit.lock()
    }

    fn log_locked(
        &self,
        mut state: MutexGuard<'_, CommitState>,
        batch: &Batch,
        shares: &[Share<'_>],
    ) -> Result<(SeqNo, Views)> {
        if state.closed {
            return Err(Error::Closed);
        }
        for share in shares {
            share.keyspace.check_exists()?;
            share.keyspace.dead_ranges.note_batch(batch, share.keyspace.id);
        }
        let first_seq = state.next_seq;
        if first_seq + batch.len() > MAX_SEQ {
            return Err(Error::invalid(
                "the store has used all of its 2^56 sequence numbers",
                "export the data and import it into a new store",
            ));
        }
        let unsynced = first_seq - 1 - self.durable_seq.load(Relaxed);
        let appended = state.wal.append(first_seq, unsynced, batch.len(), batch.encoded());
        let segment = match appended {
            Ok(segment) => segment,
            Err(error) => {
                drop(state);
                self.note_write_error(&error);
                return Err(error);
            }
        };
        if segment != state.last_segment {
            state.last_segment = segment;
            if state.wal.bytes() > self.options.max_wal_bytes {
                self.log_too_long.store(true, Relaxed);
            }
        }
        state.next_seq += batch.len();
        let announce = |share: &Share<'_>| {
            let view = share.keyspace.view.load();
            view.active.announce(first_seq, batch.len(), share.count, share.user_bytes, segment);
            view
        };
        let views = Views::of(shares, announce);
        drop(state);
        if self.is_out_of_space() {
            // The write that was let through to find out: space is back.
            self.note_success();
        }
        Ok((first_seq, views))
    }

    /// What a walk passed without seeing anything.
    pub(crate) fn note_walk(&self, keyspace: &KeyspaceInner, walk: &Walk, sees: &Sees) {
        let commit = self.commit.lock();
        keyspace.dead_ranges.note_walk(walk, sees, commit.next_seq - 1);
    }

    /// The log is over its limit: flushes the keyspaces whose unflushed writes hold its oldest
    /// segment, however idle they are.
    fn shorten_log(&self) {
        let oldest = |keyspace: &Arc<KeyspaceInner>| {
            let view = keyspace.view.load();
            let waiting = view.immutable.last().and_then(|memtable| memtable.first_segment());
            waiting.or(view.active.first_segment())
        };
        let keyspaces: Vec<_> = self.keyspaces.read().values().cloned().collect();
        let first = keyspaces.iter().filter_map(oldest).min();
        let idle = |keyspace: &Arc<KeyspaceInner>| {
            oldest(keyspace) == first && keyspace.view.load().immutable.is_empty()
        };
        let holders: Vec<_> = keyspaces.into_iter().filter(idle).collect();
        self.rotate(&holders, |active| active.first_segment() == first);
        self.wake_background();
    }

    /// Waits until `seq` is visible; its writer has only memory to write.
    pub(crate) fn wait_visible(&self, seq: SeqNo) {
        self.publisher.wait_visible(seq);
    }

    /// Replaces `memtable` by a new one if it is still the active one of its keyspace.
    pub(crate) fn rotate_if_active(&self, keyspace: &Arc<KeyspaceInner>, memtable: &Arc<Memtable>) {
        if !Arc::ptr_eq(&keyspace.view.load().active, memtable) {
            return;
        }
        self.rotate(std::slice::from_ref(keyspace), |active| Arc::ptr_eq(active, memtable));
        self.wake_background();
    }

    /// Replaces the active memtable of each keyspace if it holds anything and `wanted` says so, all
    /// at one moment: no batch is split. Returns the last sequence number given out before it.
    ///
    /// The switch is under the commit lock, so that every number of an older memtable is below
    /// those of a newer one; what takes time (memory for the new ones) is before it.
    pub(crate) fn rotate(
        &self,
        keyspaces: &[Arc<KeyspaceInner>],
        wanted: impl Fn(&Arc<Memtable>) -> bool,
    ) -> SeqNo {
        let fresh = |keyspace: &Arc<KeyspaceInner>| {
            self.new_memtable(&keyspace.options.load(), Some(&keyspace.view.load().active))
        };
        let fresh: Vec<Arc<Memtable>> = keyspaces.iter().map(fresh).map(Arc::new).collect();
        let last_seq = {
            let commit = self.commit.lock();
            for (keyspace, fresh) in keyspaces.iter().zip(fresh) {
                let _view = keyspace.view_lock.lock();
                let old = keyspace.view.load_full();
                if old.active.is_empty() || !wanted(&old.active) {
                    continue;
                }
                let mut immutable = vec![Arc::clone(&old.active)];
                immutable.extend(old.immutable.iter().cloned());
                let version = Arc::clone(&old.version);
                keyspace.view.store(Arc::new(View { active: fresh, immutable, version }));
                keyspace.dead_ranges.forget_unused();
            }
            commit.next_seq - 1
        };
        reached!(MemtableReplaced);
        keyspaces.iter().for_each(|keyspace| self.refresh_pressure(keyspace));
        last_seq
    }

    /// Returns once everything acknowledged so far is durable.
    pub(crate) fn sync_all(&self) -> Result<()> {
        self.check_writable()?;
        self.sync_through(self.publisher.visible())
    }

    /// Returns once everything up to `seq` is durable.
    pub(crate) fn sync_through(&self, seq: SeqNo) -> Result<()> {
        if seeded!(AcknowledgedBeforeSync) {
            return Ok(());
        }
        let is_durable = || self.durable_seq.load(Acquire) >= seq;
        let sync = || {
            // One that panics fails, or it would never be over for those who wait.
            let synced = catch_unwind(AssertUnwindSafe(|| self.sync_log()));
            let panicked = || Error::invalid("a sync of the log panicked", "report the panic");
            let synced = synced.unwrap_or_else(|_| Err(panicked()));
            synced.inspect_err(|error| self.stop_writes(error))
        };
        let outcome = self.syncer.until(is_durable, sync);
        outcome.map_err(|error| Error::Stopped { cause: Box::new(error) })
    }

    /// Syncs everything appended so far.
    fn sync_log(&self) -> Result<()> {
        let started = Instant::now();
        let (work, through): (SyncWork, SeqNo) = {
            let state = self.commit.lock();
            (state.wal.sync_work(), state.next_seq - 1)
        };
        reached!(LogSyncBegun);
        work.run(&*self.storage)?;
        self.commit.lock().wal.synced(&work);
        self.durable_seq.fetch_max(through, AcqRel);
        self.metrics.add(Counter::wal_syncs, 1);
        self.metrics.sync_ns.record(started.elapsed());
        Ok(())
    }
}

fn insert(batch: &Batch, shares: &[Share<'_>], views: &[Guard<Arc<View>>], first_seq: SeqNo) {
    for (seq, operation) in (first_seq..).zip(batch.operations()) {
        let trailer = pack(seq, operation.kind);
        let at = match shares {
            [_] => 0,
            _ => shares
                .iter()
                .position(|share| share.keyspace.id == operation.keyspace)
                .unwrap_or_else(|| unreachable!("shares cover every operation of the batch")),
        };
        views[at].active.insert(operation.key, trailer, operation.value);
    }
}
