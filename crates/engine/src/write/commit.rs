//! The commit pipeline. One batch goes through these steps:
//!
//! 1. Back-pressure may slow the caller down (`pressure`).
//! 2. A lone write is prepared: it is copied into the memtable's memory, and its place in the tree
//!    is found.
//! 3. Under the commit lock: a range of sequence numbers, one log record, and an announcement to
//!    each memtable. Writing the record is a memory copy, so the lock is held for about 100 ns. A
//!    queue with a leader that copies for its followers (RocksDB, Pebble) would cost one wake-up
//!    per follower.
//! 4. Without the lock: inserts into the memtables, in parallel with other writers.
//! 5. Publication, in order of sequence numbers: readers see whole batches, and never see a later
//!    write without an earlier one.
//! 6. With `Durability::Sync`: one sync for all records appended so far. Writers that arrive while
//!    it runs share the next one (group commit).
//!
//! A long record is written between steps 3 and 4 (`apart`). A batch that does not fit into a log
//! segment takes another path (`large`).
//!
//! The operating system has the record (in mapped pages or by a finished write) before step 4, so
//! whatever a reader saw survives a crash of the process.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use std::time::Instant;

use crate::sync::{Condvar, Mutex, MutexGuard, rank};
use arc_swap::Guard;
use crossbeam_utils::CachePadded;

use crate::cache::Cache;
use crate::catalog::Catalog;
use crate::catalog::dead_ranges::{DeadRanges, Walk, WalkNotes};
use crate::catalog::keyspace::{KeyspaceCore, View};
use crate::env::Env;
use crate::error::{Error, Result};
use crate::keys::{KeyspaceId, Kind, SeqNo, is_delete, pack};
use crate::memtable::UNNUMBERED;
use crate::metrics::{Counter, sampled};
use crate::options::store::Durability;
use crate::schedule::{Relief, Schedule};
use crate::values::file::ValueFile;
use crate::visibility::publish::Syncer;
use crate::visibility::snapshot::Visibility;
use crate::wal::batch::Batch;
use crate::wal::files::WalFiles;
use crate::wal::kept::{KeptSegments, LogRetention};
use crate::wal::segments::Wal;
use crate::write::awaited::Awaited;
use crate::write::generations::Generations;
use crate::write::held::{Extra, MOST_BYTES, MOST_OF_A_KIND};
use crate::write::pressure::BackPressure;
use crate::write::recent::is_noted;
use crate::write::syncing::Syncing;

/// A writer that finds the commit lock taken checks it this many times before it yields to other
/// threads. That takes 2 to 5 us, depending on the processor.
const LOOKS: usize = 100;

/// The state under the commit lock. Its layout puts everything that each write changes on the cache
/// line of the lock, so only one line moves between the cores of two writers.
#[derive(Debug)]
#[repr(C)]
pub(super) struct CommitState {
    /// The next sequence number to assign.
    pub(crate) next_seq: SeqNo,
    pub(crate) closed: bool,
    /// Whether `extra` requires anything.
    pub(super) has_extra: bool,
    /// See [`Held`](crate::write::held::Held).
    pub(super) most_entries: u32,
    pub(super) most_bytes: u32,
    pub(crate) wal: Wal,
    /// The segment of the last record.
    pub(crate) last_segment: u64,
    pub(super) extra: Extra,
}

/// Gives batches their sequence numbers, logs them and makes them visible.
#[derive(Debug)]
pub(crate) struct Committer {
    pub(super) env: Arc<Env>,
    pub(super) catalog: Arc<Catalog>,
    pub(super) visibility: Arc<Visibility>,
    pub(super) schedule: Arc<Schedule>,
    pub(super) pressure: Arc<BackPressure>,
    cache: Arc<Cache>,
    pub(super) wal_files: Arc<WalFiles>,
    pub(super) kept: KeptSegments,
    pub(super) state: CachePadded<Mutex<rank::Commit, CommitState>>,
    /// Set when the log exceeds a limit. The writer that then relieves the log clears it.
    log_too_long: AtomicBool,
    pub(super) syncer: Syncer<Error>,
    /// Signalled when a record that got its place earlier is written.
    pub(super) written: Condvar,
    /// The first sequence number of the first record that could not be written in its place.
    pub(super) gap_seq: AtomicU64,
    /// Held by the writer of a large batch.
    pub(super) large: Mutex<rank::Large, ()>,
    /// Held by a writer that takes the commit lock for a batch that is not noted (`recent`), until
    /// it has the commit lock. Also held by a conditional commit that has to check often because of
    /// such batches.
    pub(super) unnoted: Mutex<rank::Unnoted, ()>,
    /// Held while a bulk load has a sequence number that is not published: only one load can be at
    /// this step.
    pub(super) loading: Mutex<rank::Loading, ()>,
    pub(crate) generations: Generations,
    /// The value files with early values that a sync of the log must sync first.
    pub(super) unsynced_values: Mutex<rank::UnsyncedValues, Vec<Arc<ValueFile>>>,
    /// The visible sequence number when the log last recorded the time, and that time.
    pub(super) told_time: (AtomicU64, AtomicU64),
    pub(super) awaited: Awaited,
    /// Syncs the log for awaited commits. `None` if callers run the jobs.
    pub(super) syncing: Option<Arc<Syncing>>,
}

/// The parts of the store that a committer works with.
pub(crate) struct Shared {
    pub(crate) env: Arc<Env>,
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) visibility: Arc<Visibility>,
    pub(crate) schedule: Arc<Schedule>,
    pub(crate) pressure: Arc<BackPressure>,
    pub(crate) syncing: Option<Arc<Syncing>>,
}

/// The views whose active memtables receive a batch, one per keyspace. They are guards and not
/// counted references: two writers would contend for the reference count twice per write.
pub(super) enum Views {
    One(Guard<Arc<View>>),
    Many(Vec<Guard<Arc<View>>>),
}

impl Views {
    // Inlined, because a call would be 50 of the 4,700 instructions of a put.
    #[inline(always)]
    fn of(
        keyspaces: &[Arc<KeyspaceCore>],
        announce: impl Fn(&Arc<KeyspaceCore>) -> Guard<Arc<View>>,
    ) -> Views {
        match keyspaces {
            [keyspace] => Views::One(announce(keyspace)),
            keyspaces => Views::Many(keyspaces.iter().map(announce).collect()),
        }
    }

    pub(super) fn as_slice(&self) -> &[Guard<Arc<View>>] {
        match self {
            Views::One(view) => std::slice::from_ref(view),
            Views::Many(views) => views,
        }
    }
}

impl Committer {
    pub(crate) fn new(
        shared: Shared,
        wal: Wal,
        wal_files: Arc<WalFiles>,
        last_seq: SeqNo,
    ) -> Committer {
        let Shared { env, catalog, visibility, schedule, pressure, syncing } = shared;
        let kept = KeptSegments::new(LogRetention::of(&env.options));
        Committer {
            cache: Arc::clone(&catalog.tables.cache),
            env,
            catalog,
            visibility,
            schedule,
            pressure,
            wal_files,
            kept,
            state: CachePadded::new(Mutex::new(CommitState {
                next_seq: last_seq + 1,
                closed: false,
                has_extra: false,
                most_entries: 0,
                most_bytes: 0,
                wal,
                last_segment: 0,
                extra: Extra::default(),
            })),
            log_too_long: AtomicBool::new(false),
            syncer: Syncer::default(),
            written: Condvar::new(),
            gap_seq: AtomicU64::new(SeqNo::MAX),
            large: Mutex::new(()),
            unnoted: Mutex::new(()),
            loading: Mutex::new(()),
            generations: Generations::default(),
            unsynced_values: Mutex::default(),
            told_time: (AtomicU64::new(last_seq), AtomicU64::new(0)),
            awaited: Awaited::default(),
            syncing,
        }
    }

    /// Commits a batch that writes to these keyspaces. Each keyspace is listed once, in order of
    /// ids.
    pub(crate) fn commit(
        &self,
        batch: &Batch,
        keyspaces: &[Arc<KeyspaceCore>],
        durability: Durability,
        relief: &dyn Relief,
    ) -> Result<()> {
        self.check_durability(durability)?;
        if batch.is_empty() {
            // There is nothing to write. A caller who requests durability wants the writes that
            // were acknowledged so far to be durable.
            return match durability {
                Durability::Sync => {
                    self.env.check_writable()?;
                    self.sync_write(self.visibility.publisher.visible())
                }
                Durability::Buffered => Ok(()),
            };
        }
        let started = sampled().then(Instant::now);
        self.admit(batch, relief)?;
        let last_seq = if self.env.has_early.load(Relaxed) {
            self.commit_early(batch, keyspaces, durability, None)?
        } else {
            self.commit_logged(batch, keyspaces)?
        };
        self.end_commit(batch, last_seq, durability)?;
        if let Some(started) = started {
            self.env.metrics.record_commit(started.elapsed());
        }
        Ok(())
    }

    /// Commits a batch that was admitted, as it is. Returns its last sequence number.
    #[inline(always)]
    pub(super) fn commit_logged(
        &self,
        batch: &Batch,
        keyspaces: &[Arc<KeyspaceCore>],
    ) -> Result<SeqNo> {
        let is_large = Wal::is_large(&self.wal_files, batch.encoded().len());
        match is_large && !self.env.is_out_of_space() {
            true => self.commit_large(batch, keyspaces, || Ok(self.lock_unnoted())),
            false => self.commit_usual(batch, keyspaces),
        }
    }

    /// Ends the commit of a batch that is visible. Receives the last sequence number of the batch.
    #[inline(always)]
    pub(super) fn end_commit(
        &self,
        batch: &Batch,
        last_seq: SeqNo,
        durability: Durability,
    ) -> Result<()> {
        // Called only after the batch is visible, because this may sync a file and calls the
        // listener.
        self.note_space(batch);
        self.relieve();
        self.env.metrics.add_all(&[
            (Counter::writes, batch.len()),
            (Counter::commits, 1),
            (Counter::user_bytes_written, batch.user_bytes()),
        ]);
        match durability {
            Durability::Sync => self.sync_write(last_seq),
            Durability::Buffered => Ok(()),
        }
    }

    /// Makes a write durable while its writer waits. Compactions make way for such syncs.
    pub(super) fn sync_write(&self, seq: SeqNo) -> Result<()> {
        let began = Instant::now();
        let write = self.env.pace.begin_write(began);
        let synced = self.sync_through(seq);
        let ended = Instant::now();
        self.env.pace.end_write(write, ended);
        self.env.metrics.lately.record_synced(ended - began);
        self.synced_by_hand(&synced);
        synced?;
        let durable_seq = self.catalog.durable_seq.load(Acquire);
        invariant!(durable_seq >= seq, "a write is acknowledged before the log is synced (P2)");
        Ok(())
    }

    /// Numbers a batch, logs it, inserts it and makes it visible. Returns its last sequence number.
    #[inline]
    fn commit_usual(&self, batch: &Batch, keyspaces: &[Arc<KeyspaceCore>]) -> Result<SeqNo> {
        // A lone write does most of its work before it has a sequence number, so the writer of the
        // next number waits only for the rest. A batch cannot do so: its later writes could move
        // the places that were found for its earlier ones.
        let early_view = keyspaces[0].view.load();
        // A lone write is not prepared either if the log may refuse it: preparing takes memory that
        // a failed write never gives back.
        let only = batch.only().filter(|(kind, ..)| *kind != Kind::RangeDelete);
        let prepared = only.filter(|_| !self.env.is_out_of_space()).map(|(kind, key, value)| {
            let prepared = early_view.active.prepare(key, value);
            (kind, prepared)
        });
        let state = if is_noted(batch) { self.lock_commit() } else { self.lock_unnoted() };
        let logged = self.log_locked(state, batch, keyspaces)?;
        self.end_logged(logged, batch, keyspaces, |first_seq, views| match prepared {
            Some((kind, prepared)) if Arc::ptr_eq(&early_view.active, &views[0].active) => {
                prepared.insert(pack(first_seq, kind));
            }
            _ => insert(batch, keyspaces, views, first_seq, self.visibility.now()),
        })
    }

    /// Logs a batch under the lock, inserts it and makes it visible. Returns its last sequence
    /// number.
    pub(super) fn commit_locked(
        &self,
        state: MutexGuard<'_, CommitState>,
        batch: &Batch,
        keyspaces: &[Arc<KeyspaceCore>],
    ) -> Result<SeqNo> {
        let logged = self.log_locked(state, batch, keyspaces)?;
        self.end_logged(logged, batch, keyspaces, |first_seq, views| {
            insert(batch, keyspaces, views, first_seq, self.visibility.now());
        })
    }

    /// The end of every usual commit: inserts a batch that was logged, makes it visible, and
    /// replaces the memtables that it filled. Returns its last sequence number.
    #[inline(always)]
    fn end_logged(
        &self,
        (first_seq, views): (SeqNo, Views),
        batch: &Batch,
        keyspaces: &[Arc<KeyspaceCore>],
        insert: impl FnOnce(SeqNo, &[Guard<Arc<View>>]),
    ) -> Result<SeqNo> {
        insert(first_seq, views.as_slice());
        let last_seq = self.publish(first_seq, batch)?;
        for (keyspace, view) in keyspaces.iter().zip(views.as_slice()) {
            self.rotate_if_full(keyspace, view);
        }
        Ok(last_seq)
    }

    /// Makes visible a batch whose entries are inserted. Returns its last sequence number. Fails if
    /// the log has a gap before it.
    #[inline(always)]
    pub(super) fn publish(&self, first_seq: SeqNo, batch: &Batch) -> Result<SeqNo> {
        let last_seq = first_seq + batch.len() - 1;
        self.visibility.publisher.publish(first_seq, last_seq);
        self.check_whole(last_seq)?;
        Ok(last_seq)
    }

    /// Makes room after a write: in memory, in the log, and in the segments prepared for writers.
    #[inline(always)]
    fn relieve(&self) {
        self.relieve_memory();
        if self.log_too_long.load(Relaxed) && self.log_too_long.swap(false, Relaxed) {
            self.relieve_log();
        }
    }

    /// Does the part of this work that waits for no file.
    #[inline(always)]
    pub(super) fn relieve_memory(&self) {
        if self.cache.take_memtables_grew() {
            self.flush_early();
        }
        if self.env.bell.answer() {
            self.schedule.wake();
        }
    }

    /// Whether the next write is held up, by pressure or because it must shorten the log.
    pub(super) fn holds_writers_up(&self) -> bool {
        self.env.throttle.permille() > 0 || self.log_too_long.load(Relaxed)
    }

    /// Returns when a batch may be written, or returns the reason why it may not.
    #[inline(always)]
    pub(super) fn admit(&self, batch: &Batch, relief: &dyn Relief) -> Result<()> {
        if self.env.is_out_of_space() && batch.only_deletes() && self.env.options.has_log() {
            // Deletes free space. Other writes would wait for flushes, which find no space. Without
            // a log, deletes free no space before such a flush.
            return self.env.check_not_stopped();
        }
        self.env.check_writable()?;
        self.pressure.admit(batch.user_bytes(), &|| self.check_accepts(), relief)
    }

    /// Appends a batch to the log. If the disk is full and the batch deletes, it uses the reserve.
    #[inline(always)]
    pub(super) fn append_to_log(&self, state: &mut CommitState, batch: &Batch) -> Result<u64> {
        if !self.env.options.has_log() {
            return Ok(state.last_segment);
        }
        let first_seq = state.next_seq;
        let unsynced = first_seq - 1 - self.catalog.durable_seq.load(Relaxed);
        let operations = batch.encoded();
        match state.wal.append(first_seq, unsynced, batch.len(), operations) {
            Err(error) if error.is_no_space() && batch.only_deletes() => {
                state.wal.make_room_to_delete(operations.len(), first_seq)?;
                state.wal.append(first_seq, unsynced, batch.len(), operations)
            }
            Err(_) if seeded!(RefusedWritesAcknowledged) => Ok(state.last_segment),
            outcome => outcome,
        }
    }

    /// Checks whether a writer that is held up may continue to wait.
    fn check_accepts(&self) -> Result<()> {
        self.env.check_writable()?;
        if self.state.lock().closed { Err(Error::Closed) } else { Ok(()) }
    }

    /// Marks a keyspace as dropped, so that no later batch writes to it. Returns `false` if it was
    /// marked before.
    pub(crate) fn mark_dropped(&self, keyspace: &KeyspaceCore) -> bool {
        let _commit = self.state.lock();
        !keyspace.dropped.swap(true, AcqRel)
    }

    /// Refuses every later batch.
    pub(crate) fn close(&self) {
        self.state.lock().closed = true;
        for keyspace in self.catalog.all() {
            keyspace.values.load().all().for_each(|store| store.close_early());
        }
    }

    /// Takes the commit lock for a batch that is not noted.
    #[cold]
    pub(super) fn lock_unnoted(&self) -> MutexGuard<'_, CommitState> {
        let _turn = self.unnoted.lock();
        self.lock_commit()
    }

    /// Takes the commit lock for a write. It checks the lock often before it yields to another
    /// thread. The lock's own spinning calls the kernel after three checks, for a wait of a
    /// tenth of a microsecond.
    pub(super) fn lock_commit(&self) -> MutexGuard<'_, CommitState> {
        for _ in 0..LOOKS {
            // A check shares the holder's cache line. Only an attempt takes the line away.
            if !self.state.is_locked()
                && let Some(guard) = self.state.try_lock()
            {
                return guard;
            }
            std::hint::spin_loop();
        }
        self.state.lock()
    }

    pub(super) fn log_locked(
        &self,
        mut state: MutexGuard<'_, CommitState>,
        batch: &Batch,
        keyspaces: &[Arc<KeyspaceCore>],
    ) -> Result<(SeqNo, Views)> {
        let has_log = self.env.options.has_log();
        let bytes = if has_log { batch.encoded().len() as u64 } else { 0 };
        if bytes > MOST_BYTES && !self.env.is_out_of_space() {
            return self.log_long(state, batch, keyspaces);
        }
        let noted = self.check_and_note(&state, batch, keyspaces)?;
        debug_assert!(
            keyspaces.windows(2).all(|pair| pair[0].id < pair[1].id),
            "a batch lists each keyspace once, in order of ids"
        );
        let first_seq = state.next_seq;
        let segment = match self.append_to_log(&mut state, batch) {
            Ok(segment) => segment,
            Err(error) => {
                drop(state);
                self.env.note_job_error(&error);
                return Err(error);
            }
        };
        let views = self.announce(&mut state, batch, keyspaces, (segment, noted, bytes));
        drop(state);
        Ok((first_seq, views))
    }

    /// Announces a batch that was logged in `segment` to its memtables. `entries` is how many
    /// entries were looked at for the batch, and `bytes` how many bytes were copied.
    #[inline(always)]
    pub(super) fn announce(
        &self,
        state: &mut CommitState,
        batch: &Batch,
        keyspaces: &[Arc<KeyspaceCore>],
        (segment, entries, bytes): (u64, u64, u64),
    ) -> Views {
        let first_seq = state.next_seq;
        self.note_logged(state, batch, segment);
        self.note_work(state, batch, keyspaces, (entries, bytes));
        let announce = |keyspace: &Arc<KeyspaceCore>| {
            let view = keyspace.view.load();
            if view.active.announce(first_seq, batch.len(), batch.deletes(), segment) {
                self.catalog.unflushed.add(keyspace);
            }
            view
        };
        Views::of(keyspaces, announce)
    }

    /// Prepares for a batch that is logged next, unless it must not be logged. Returns how many
    /// entries were looked at.
    pub(super) fn check_and_note(
        &self,
        state: &CommitState,
        batch: &Batch,
        keyspaces: &[Arc<KeyspaceCore>],
    ) -> Result<u64> {
        self.check_batch(state, batch, keyspaces)?;
        let has_ranges = |keyspace: &Arc<KeyspaceCore>| keyspace.dead_ranges.are_there();
        // Deletes make no key visible, so the deletes of a queue leave its dead ranges as they are.
        let narrows = !batch.only_deletes() && keyspaces.iter().any(has_ranges);
        let noted = if narrows { narrow_dead_ranges(batch, keyspaces) } else { 0 };
        Ok(keyspaces.len() as u64 + noted)
    }

    /// Does the additional work of this hold of the lock for a batch that was logged, and counts
    /// it.
    #[inline(always)]
    fn note_work(
        &self,
        state: &mut CommitState,
        batch: &Batch,
        keyspaces: &[Arc<KeyspaceCore>],
        (entries, bytes): (u64, u64),
    ) {
        if state.has_extra || state.is_more(entries, bytes) {
            self.do_extra(state, batch, keyspaces, (entries, bytes));
        }
    }

    /// Notes a batch for conditional commits, and separates its writes from the memtables that the
    /// checkpoint of a store without a log flushes.
    #[cold]
    fn do_extra(
        &self,
        state: &mut CommitState,
        batch: &Batch,
        keyspaces: &[Arc<KeyspaceCore>],
        (entries, bytes): (u64, u64),
    ) {
        let (noted, copied) = state.extra.note(batch, state.next_seq - 1);
        if let Some(moment) = state.extra.moment {
            keyspaces.iter().for_each(|keyspace| self.replace_older(keyspace, moment));
        }
        let looked = state.extra.take_looked();
        state.has_extra = !state.extra.is_empty();
        let is_unbounded = bytes > MOST_BYTES || keyspaces.len() as u64 > MOST_OF_A_KIND;
        let (entries, bytes) = (entries + noted + looked, bytes + copied);
        match is_unbounded {
            true => state.note_unbounded(entries, bytes),
            false => state.note_held(entries, bytes),
        }
    }

    /// Refuses a batch that must not be logged.
    pub(super) fn check_batch(
        &self,
        state: &CommitState,
        batch: &Batch,
        keyspaces: &[Arc<KeyspaceCore>],
    ) -> Result<()> {
        if state.closed {
            return Err(Error::Closed);
        }
        keyspaces.iter().try_for_each(|keyspace| keyspace.check_exists())?;
        // Sequence numbers from `UNNUMBERED` on mark entries that have no number yet.
        if state.next_seq + batch.len() > UNNUMBERED {
            return Err(Error::invalid(
                "the store has used all of its 2^55 sequence numbers",
                "export the data and import it into a new store",
            ));
        }
        Ok(())
    }

    /// Takes the sequence numbers of a batch that was logged.
    pub(super) fn note_logged(&self, state: &mut CommitState, batch: &Batch, segment: u64) {
        if segment != state.last_segment {
            state.last_segment = segment;
            if self.wants_relief(&state.wal) {
                self.log_too_long.store(true, Relaxed);
            }
        }
        state.next_seq += batch.len();
    }

    /// Notes that a batch was logged. The disk may have been full.
    pub(super) fn note_space(&self, batch: &Batch) {
        if self.env.is_out_of_space() && self.env.options.has_log() {
            match batch.only_deletes() {
                // The remaining space is reserved again, because the drop of a keyspace may need
                // it.
                true => self.wal_files.reserve.keep(),
                // The batch was let through on a full disk as a test, so there is space again.
                false => self.env.note_success(),
            }
        }
    }
}

impl WalkNotes for Committer {
    fn note_walk(&self, ranges: &DeadRanges, walk: &Walk, seq: SeqNo) {
        let commit = self.state.lock();
        ranges.note_walk(walk, seq, commit.next_seq - 1);
    }
}

/// Removes the keys that a batch puts from the dead ranges of its keyspaces. Returns how many
/// writes it looked at. Looking at more than the limit would take too long under the lock, so a
/// larger batch ends the ranges of all its keyspaces.
#[cold]
fn narrow_dead_ranges(batch: &Batch, keyspaces: &[Arc<KeyspaceCore>]) -> u64 {
    if batch.len() > MOST_OF_A_KIND {
        keyspaces.iter().for_each(|keyspace| keyspace.dead_ranges.forget_all());
        return 0;
    }
    for put in batch.operations().filter(|one| !is_delete(one.kind as u64)) {
        keyspaces[place_of(keyspaces, put.keyspace)].dead_ranges.note_put(put.key);
    }
    batch.len()
}

/// The position of a keyspace among those of a batch.
pub(super) fn place_of(keyspaces: &[Arc<KeyspaceCore>], id: KeyspaceId) -> usize {
    let found = keyspaces.binary_search_by_key(&id, |keyspace| keyspace.id);
    found.unwrap_or_else(|_| unreachable!("they cover every operation of the batch"))
}

pub(super) fn insert(
    batch: &Batch,
    keyspaces: &[Arc<KeyspaceCore>],
    views: &[Guard<Arc<View>>],
    first_seq: SeqNo,
    visible: SeqNo,
) {
    let find = |id: KeyspaceId| match keyspaces {
        [_] => 0,
        _ => place_of(keyspaces, id),
    };
    for (seq, operation) in (first_seq..).zip(batch.operations()) {
        let trailer = pack(seq, operation.kind);
        let at = find(operation.keyspace);
        views[at].active.insert(operation.key, trailer, operation.value);
    }
    if batch.has_range_deletes() {
        for (keyspace, ranges) in batch.range_deletes(first_seq) {
            // A visible sequence number was assigned, and its entries are inserted.
            views[find(keyspace)].active.note_range_deletes(ranges, visible);
        }
    }
}
