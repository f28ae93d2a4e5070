//! Syncs the log, and retires and prepares its segments.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering::*;
use std::time::{Duration, Instant};

use runstone_storage::Category;

use crate::callbacks::event::Event;
use crate::catalog::ManifestState;
use crate::catalog::keyspace::KeyspaceCore;
use crate::error::{Error, Result};
use crate::keys::codec::{put_bytes, put_varint};
use crate::keys::{MAX_SEQ, SeqNo, pack};
use crate::memtable::Memtable;
use crate::metrics::Counter;
use crate::options::store::FINISHED_SEGMENTS;
use crate::tree::manifest::Current;
use crate::wal::batch::Batch;
use crate::wal::kept::KeptSegments;
use crate::wal::note::Note;
use crate::wal::segments::{ObsoleteSegment, SyncWork, Wal, segment_name};
use crate::write::commit::Committer;
use crate::write::held::Held;

/// The least time between two records of the time, in milliseconds.
const LEAST_TIME_MS: u64 = 1000;

impl Committer {
    /// Returns once everything acknowledged so far is durable.
    pub(crate) fn sync_all(&self) -> Result<()> {
        self.env.check_not_stopped()?;
        self.sync_through(self.visibility.publisher.visible())
    }

    /// Returns once everything up to `seq` is durable.
    pub(crate) fn sync_through(&self, seq: SeqNo) -> Result<()> {
        if seeded!(AcknowledgedBeforeSync) {
            return Ok(());
        }
        invariant!(self.env.options.has_log(), "a log is synced that does not exist");
        let is_durable = || self.catalog.durable_seq.load(Acquire) >= seq;
        let sync = || {
            // A sync that panics counts as failed. Otherwise those who wait for it would wait for
            // ever.
            let synced = catch_unwind(AssertUnwindSafe(|| self.sync_log(seq)));
            let panicked = || Error::invalid("a sync of the log panicked", "report the panic");
            let synced = synced.unwrap_or_else(|_| Err(panicked()));
            // A listener that panics must not keep them waiting either.
            synced.inspect_err(|error| {
                let _ = catch_unwind(AssertUnwindSafe(|| self.env.stop_writes(error)));
            })
        };
        let outcome = self.syncer.until(is_durable, sync);
        outcome.map_err(|error| Error::Stopped { cause: Box::new(error) })
    }

    /// Syncs the segments with records up to `seq`, with everything appended to them so far.
    fn sync_log(&self, seq: SeqNo) -> Result<()> {
        let started = Instant::now();
        let (work, through): (SyncWork, SeqNo) = {
            let state = self.state.lock();
            let work = state.wal.sync_work(seq);
            let through = work.through(state.next_seq);
            (work, through)
        };
        self.wait_for_records(through)?;
        self.sync_early()?;
        reached!(LogSyncBegun);
        // If another process has replayed the log already, a write would be acknowledged and lost.
        self.env.storage.check_owner()?;
        work.run(&*self.env.storage)?;
        self.state.lock().wal.synced(&work);
        self.catalog.durable_seq.fetch_max(through, AcqRel);
        self.env.metrics.add(Counter::wal_syncs, 1);
        self.env.metrics.sync_ns.record(started.elapsed());
        Ok(())
    }

    /// The first log segment that is still needed once the `settled` memtables are flushed or
    /// dropped, and the sequence number with which this segment starts. Called when no other edit
    /// of the manifest can be made in between.
    ///
    /// The memtables are looked at without the commit lock, because there may be many. Writes made
    /// after the beginning of this call are in segments from `begin` on, and earlier writes are in
    /// memtables that still exist.
    pub(crate) fn log_floor_without(
        &self,
        settled: impl Fn(&KeyspaceCore, &Memtable) -> bool,
    ) -> (u64, SeqNo) {
        if !self.env.options.has_log() {
            return self.log_start_after(self.catalog.durable_seq.load(Acquire));
        }
        let (begin, oldest) = {
            let state = self.state.lock();
            let floor = |needed| state.wal.floor(needed, state.next_seq);
            (floor(None), floor(Some(0)).0)
        };
        let mut needed = begin.0.min(self.catalog.load.segment().unwrap_or(u64::MAX));
        // The search ends at a keyspace that needs the oldest segment. Otherwise, if keyspaces are
        // flushed one after another, each flush would look at all other keyspaces.
        self.catalog.unflushed.find_map(|other| {
            let view = other.view.load();
            for memtable in view.memtables() {
                let is_needed = !settled(other, memtable);
                if let Some(segment) = memtable.first_segment().filter(|_| is_needed) {
                    needed = needed.min(segment);
                }
            }
            (needed <= oldest).then_some(())
        });
        if needed == begin.0 {
            return begin;
        }
        let state = self.state.lock();
        state.wal.floor(Some(needed), state.next_seq)
    }

    /// Releases the segments below the floor of the log. If a segment cannot be removed, no caller
    /// fails, because the manifest says that the segment is not needed. The edit that moved the
    /// floor is durable, so everything below the floor is durable. Later records state this: if the
    /// edit is damaged, they prove that something is missing.
    pub(crate) fn retire_log_below(&self, floor: u64) {
        let obsolete = {
            let wal = &mut self.state.lock().wal;
            let obsolete = wal.take_obsolete(floor);
            if let Some(start_seq) = wal.start_seq() {
                self.catalog.durable_seq.fetch_max(start_seq - 1, AcqRel);
            }
            obsolete
        };
        // These segments join those that are held for readers, so the oldest is released first.
        for (number, recyclable, bytes) in obsolete.into_iter().map(ObsoleteSegment::unmap) {
            self.catalog.tables.leases.hold_segment((number, recyclable), bytes);
        }
        self.release_held_log();
        if !self.env.is_out_of_space() {
            self.wal_files.reserve.keep();
        }
    }

    /// Releases segments that no reader in another process needs any more.
    pub(crate) fn release_held_log(&self) {
        for (segment, bytes) in self.catalog.tables.leases.release_segments() {
            self.leave_segment(segment, bytes);
        }
        match self.env.is_disk_full() {
            true => self.give_up_kept_log(),
            false => self.trim_kept_log(),
        }
    }

    /// Leaves a segment to readers of the history, or to future segments.
    fn leave_segment(&self, (number, recyclable): (u64, bool), bytes: u64) {
        match self.kept.keeps() {
            true => self.kept.add((number, recyclable), bytes, Duration::ZERO),
            false => self.wal_files.retire(number, recyclable),
        }
    }

    fn trim_kept_log(&self) {
        for ((number, recyclable), _) in self.kept.take(false) {
            self.wal_files.retire(number, recyclable);
        }
    }

    /// Removes the segments that are kept only for readers, because the disk is full. A consumer
    /// that was away cannot continue from them any more, so the loss is reported to the listener.
    fn give_up_kept_log(&self) {
        let taken = self.kept.take(true);
        let (segments, bytes) = (taken.len() as u64, taken.iter().map(|(_, bytes)| bytes).sum());
        for ((number, recyclable), _) in taken {
            self.wal_files.retire(number, recyclable);
        }
        if segments > 0 {
            tracing::warn!(
                segments,
                bytes,
                "the disk is full: the log kept for readers is removed"
            );
            self.env.metrics.add(Counter::kept_log_bytes_given_up, bytes);
            self.env.emit(|| Event::KeptLogGivenUp { segments, bytes });
        }
    }

    /// For recovery: keeps a segment of an earlier opening that no open needs any more.
    pub(crate) fn keep_found(&self, number: u64, bytes: u64, age: Duration) {
        self.kept.add((number, false), bytes, age);
    }

    /// The part of the log that is kept only for readers of the history.
    pub(crate) fn kept(&self) -> &KeptSegments {
        &self.kept
    }

    /// Prepares the next log segment, and unmaps finished ones.
    pub(crate) fn prepare_log(&self) -> Result<()> {
        let prepared = self.wal_files.prepare_spare();
        // Done even if preparing failed: finished segments may use up all the files that the
        // process may open.
        self.close_finished(self.env.options.log_file_limit()).and(prepared)
    }

    /// Whether the log uses too many bytes, or the background job is too late to unmap its
    /// segments or to close its files.
    pub(super) fn wants_relief(&self, wal: &Wal) -> bool {
        let options = &self.env.options;
        wal.bytes() > options.max_wal_bytes
            || wal.finished_in_memory() > FINISHED_SEGMENTS
            || wal.unsynced_count() > options.log_file_limit() * 2
    }

    /// Called by a writer that found the log beyond a limit.
    pub(super) fn relieve_log(&self) {
        if self.log_bytes() > self.env.options.max_wal_bytes {
            self.shorten_log();
        }
        // A failed sync has stopped the store already. The write itself required no sync, or its
        // own sync reports the error.
        let _ = self.close_finished(self.env.options.log_file_limit() * 2);
    }

    /// Closes all finished segments. This syncs if one of them waits for a sync.
    pub(crate) fn rest_log(&self) -> Result<()> {
        self.close_finished(0)
    }

    /// Unmaps finished segments. Until a sync covers a segment, its file stays open, because the
    /// kernel might not report lost bytes to a handle that is opened later. So this syncs when more
    /// than `most` segments wait for a sync.
    fn close_finished(&self, most: usize) -> Result<()> {
        if self.state.lock().wal.unsynced_count() > most {
            self.sync_through(self.visibility.publisher.visible())?;
        }
        let finished = self.state.lock().wal.mapped_finished();
        for (number, is_unsynced) in finished {
            if !is_unsynced {
                let unmapped = self.state.lock().wal.unmap(number, None);
                drop(unmapped);
                continue;
            }
            let name = segment_name(number);
            match self.env.storage.open(&name, Category::Wal) {
                Ok(ordinary) => {
                    let unmapped = self.state.lock().wal.unmap(number, Some(ordinary));
                    drop(unmapped);
                }
                // The segment was flushed and retired meanwhile.
                Err(error) if error.is_not_found() => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// The most work that was done during one hold of the commit lock.
    pub(crate) fn most_held(&self) -> Held {
        self.state.lock().most_held()
    }

    /// Bytes that the log uses.
    pub(crate) fn log_bytes(&self) -> u64 {
        self.state.lock().wal.bytes()
    }

    /// Whether a segment should be prepared for writers. With `urgent`: whether they need one at
    /// once.
    pub(crate) fn wants_log(&self, urgent: bool) -> bool {
        self.wal_files.wants_spare(urgent)
    }

    /// Releases prepared segments that only writers need.
    pub(crate) fn trim_log(&self) {
        self.wal_files.trim();
    }

    /// Removes the whole log, because none of it is needed any more.
    pub(crate) fn remove_log(&self) {
        self.state.lock().wal.remove_all();
    }

    /// Leaves the log, which no open needs, and removes only files without records.
    pub(crate) fn drop_spares(&self) {
        self.wal_files.remove_spares();
    }

    /// For recovery: logs again the writes that it found, as one durable record in a segment of its
    /// own, and returns the number of that segment. Nobody knows what part of the old log, from
    /// `start_seq` on, is durable, and the record says so: a power loss may still remove a part
    /// from the end of that log.
    pub(crate) fn log_again(&self, batch: &Batch, start_seq: SeqNo) -> Result<u64> {
        let mut state = self.state.lock();
        let next_seq = state.next_seq;
        let unsynced = next_seq - start_seq;
        let note = edits(Current::default(), 0, Some(&Note::Repeats(start_seq)));
        state.wal.append(next_seq, unsynced, 0, &note)?;
        let segment = state.wal.append(next_seq, unsynced, batch.len(), batch.encoded())?;
        let work = state.wal.sync_work(MAX_SEQ);
        work.run(&*self.env.storage)?;
        state.wal.synced(&work);
        Ok(segment)
    }

    /// For recovery: inserts a batch that was logged again into the empty memtables of its
    /// keyspaces.
    pub(crate) fn take_up(&self, batch: &Batch, keyspaces: &[Arc<KeyspaceCore>], segment: u64) {
        let first_seq = self.state.lock().next_seq;
        for keyspace in keyspaces {
            let active = Arc::clone(&keyspace.view.load().active);
            if active.announce(first_seq, batch.len(), batch.deletes(), segment) {
                self.catalog.unflushed.add(keyspace);
            }
            let ranges = batch.range_deletes(first_seq).remove(&keyspace.id).unwrap_or_default();
            active.note_range_deletes(ranges, MAX_SEQ);
            let own = (first_seq..).zip(batch.operations());
            for (seq, operation) in own.filter(|(_, operation)| operation.keyspace == keyspace.id) {
                active.insert(operation.key, pack(seq, operation.kind), operation.value);
            }
        }
        self.begin_after(first_seq + batch.len() - 1);
    }

    /// Logs which edits of the manifest are durable, with a note for readers of the history. Some
    /// edits are visible to readers although no record of the log contains them: a load, or a
    /// keyspace that was made, changed or dropped. If the end of the manifest is damaged, this
    /// record shows that something is missing, provided that a later write survives. Called before
    /// anything that follows from the edit can be logged.
    ///
    /// The record is evidence, and not part of the edit: if there is no room for it, the edit is
    /// still valid.
    pub(crate) fn log_note(&self, manifest: &ManifestState, note: &Note) {
        let Some(current) = manifest.current().filter(|_| !seeded!(EditsNotLogged)) else { return };
        self.log_edits(current, 0, Some(note));
    }

    /// Does the same at the end of a load, which may have failed. A process that reads the log
    /// while this store is open then knows that the manifest shows how the load ended.
    pub(crate) fn log_load_end(&self, load: SeqNo) {
        let current = self.catalog.manifest.lock().current();
        let Some(current) = current.filter(|_| !seeded!(EditsNotLogged)) else { return };
        self.log_edits(current, load, None);
    }

    /// Logs the time of day, at most once a second and only after writes. The time holds for all
    /// writes up to here. Called now and then, so that no write pays for it. If the disk was too
    /// full for an earlier note, this also logs that note once there is space.
    pub(crate) fn log_time(&self) {
        self.log_owed();
        let (told_seq, told_ms) = (&self.told_time.0, &self.told_time.1);
        let (seq, last_ms) = (self.visibility.now(), told_ms.load(Relaxed));
        if told_seq.load(Relaxed) == seq {
            return;
        }
        // A clock that was set back is recorded at once.
        let now_ms = self.env.options.clock.unix_millis();
        if (last_ms..last_ms.saturating_add(LEAST_TIME_MS)).contains(&now_ms) {
            return;
        }
        told_seq.store(seq, Relaxed);
        told_ms.store(now_ms, Relaxed);
        self.log_edits(Current::default(), 0, Some(&Note::Time(now_ms)));
    }

    fn log_owed(&self) {
        let mut state = self.state.lock();
        if state.wal.owes() && !state.closed {
            let next_seq = state.next_seq;
            note_unlogged(state.wal.tell_opening(next_seq));
        }
    }

    /// Tells readers of the history that the store was opened, before any later write.
    pub(crate) fn log_opening(&self, current: Current, note: &Note) {
        let mut state = self.state.lock();
        if self.env.options.has_log() {
            let next_seq = state.next_seq;
            let told = state.wal.begin_with(next_seq, edits(current, 0, Some(note)));
            note_unlogged(told);
        }
    }

    /// Whether the history has readers, or may have some later.
    pub(crate) fn has_readers(&self) -> bool {
        self.kept.keeps() || self.catalog.tables.leases.are_held()
    }

    /// Does the same at the end of an opening without a write, if there are readers.
    pub(crate) fn tell_opening(&self) {
        if self.has_readers() {
            let mut state = self.state.lock();
            let next_seq = state.next_seq;
            note_unlogged(state.wal.tell_opening(next_seq));
        }
    }

    fn log_edits(&self, current: Current, ended_load: SeqNo, note: Option<&Note>) {
        let bytes = edits(current, ended_load, note);
        let mut state = self.state.lock();
        if state.closed || !self.env.options.has_log() {
            return;
        }
        let first_seq = state.next_seq;
        let unsynced = first_seq - 1 - self.catalog.durable_seq.load(Relaxed);
        let told = state.wal.append(first_seq, unsynced, 0, &bytes).map(|_| ());
        if told.is_err() && !matches!(note, Some(Note::Time(_))) {
            state.wal.owe(bytes);
        }
        note_unlogged(told);
    }

    /// Ends the current segment. A floor of the log that is taken after this may be after the
    /// segment.
    pub(crate) fn seal_log(&self) -> Result<()> {
        self.state.lock().wal.seal()
    }

    /// Makes the log durable and leaves it for the next open. Only files without records are
    /// removed.
    pub(crate) fn leave_log(&self) -> Result<()> {
        if self.env.options.has_log() {
            self.sync_all()?;
        }
        self.drop_spares();
        Ok(())
    }

    /// Takes over a segment that a replay read, because its writes had no room in tables.
    pub(crate) fn keep_segment(&self, number: u64, first_seq: SeqNo, capacity_bytes: u64) {
        self.state.lock().wal.keep(number, first_seq, capacity_bytes);
    }

    /// Numbers of all segments in use.
    pub(crate) fn segment_numbers(&self) -> Vec<u64> {
        self.state.lock().wal.numbers()
    }

    /// Begins to keep a reserve of disk space, for a manifest of this many bytes.
    pub(crate) fn begin_reserve(&self, manifest_bytes: u64) {
        self.wal_files.reserve.begin(manifest_bytes);
    }

    /// Gives up the reserve for a change that frees space. Returns `false` if there is no reserve.
    pub(crate) fn spend_reserve(&self) -> bool {
        self.wal_files.reserve.spend()
    }

    /// Begins after a replay of the log: everything up to `last_seq` is visible and durable.
    pub(crate) fn begin_after(&self, last_seq: SeqNo) {
        self.visibility.publisher.set_visible(last_seq);
        self.catalog.durable_seq.store(last_seq, Release);
        self.told_time.0.store(last_seq, Relaxed);
        self.state.lock().next_seq = last_seq + 1;
    }
}

/// The operations of a record without writes.
fn edits(current: Current, ended_load: SeqNo, note: Option<&Note>) -> Vec<u8> {
    let mut bytes = Vec::new();
    put_varint(&mut bytes, current.number);
    put_varint(&mut bytes, current.least_bytes);
    if ended_load > 0 || note.is_some() {
        put_varint(&mut bytes, ended_load);
    }
    if let Some(note) = note {
        put_bytes(&mut bytes, &note.encode());
    }
    bytes
}

/// Notes that a record without writes was not logged. No caller fails because there was no room for
/// such a record.
fn note_unlogged(outcome: Result<()>) {
    if let Err(error) = outcome {
        tracing::debug!(%error, "a record without writes was not logged");
    }
}
