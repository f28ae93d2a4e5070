//! Garbage collection of a log at its tail (WiscKey §3.3.2): the baseline that hash groups are
//! compared with, and a sound choice for large values that are rarely replaced.
//!
//! 1. Take segments from the tail, up to a chunk.
//! 2. Wait until the edit that may have brought some of them is in the tree. Look each record's key
//!    up there. Live is what the newest version points to.
//! 3. Append the live records at the head, and make them part of the file.
//! 4. Write their new pointers into the tree, each unless its key was written since the look-up:
//!    under the commit lock, against the memtables. No flush may take a newer version out of those
//!    in between, so flushes wait (`flushing`).
//! 5. Sync the log of writes. The old segments are condemned: they go when no snapshot is older
//!    than the new pointers, and no reader holds them.
//!
//! A crash before 5 leaves both copies; the next collection finds the old ones dead.

use std::sync::Arc;

use runstone_policy::sketch::Sketch;

use crate::error::Result;
use crate::event::Event;
use crate::key::{SeqNo, is_pointer, seq_of};
use crate::metrics::Counter;
use crate::store::{Inner, KeyspaceInner, View};
use crate::table::filter;
use crate::table::reader::ProbeStats;
use crate::value::appender::Appender;
use crate::value::collect::Collected;
use crate::value::keep::{Entry, Scanned};
use crate::value::layout::{GroupEdit, Segment, ValueEdit};
use crate::value::record::Pointer;
use crate::value::store::{Pass, State, ValueStore};
use crate::write::commit::Relocation;

/// A live record: its key, the version that points to it, and where its bytes are.
struct Live<'a> {
    entry: &'a Entry,
    seq: SeqNo,
}

impl ValueStore {
    /// Whether collecting the tail may free something.
    pub(super) fn log_wants_collection(&self, state: &State, points: &[SeqNo]) -> bool {
        if let Some((_, seq)) = state.condemned.front() {
            // The tail waits for a snapshot; behind it nothing would be freed sooner.
            return points.first().is_some_and(|oldest| oldest >= seq);
        }
        let group = &state.layout.groups[0];
        group.garbage_bytes() >= self.slot_bytes
            && state.quiet_at.saturating_add(self.slot_bytes) <= group.end_voff
            && !state.quarantined.contains(&0)
    }

    /// Step 1. The segments stay part of the file; appenders append behind them.
    fn take_tail(
        &self,
        chunk_bytes: u64,
        points: &[SeqNo],
    ) -> std::result::Result<Tail, Collected> {
        let mut state = self.state.lock();
        if state.collecting || state.appenders > 0 {
            return Err(Collected::Busy);
        }
        if !self.log_wants_collection(&state, points) {
            return Err(Collected::Nothing);
        }
        let freed: Vec<u64> = state
            .condemned
            .iter()
            .take_while(|(_, seq)| points.first().is_some_and(|oldest| oldest >= seq))
            .map(|(generation, _)| *generation)
            .collect();
        if state.pass.is_none() {
            state.pass = Some(Pass { end_voff: state.layout.groups[0].end_voff, dead_bytes: 0 });
            state.fresh = Some((0, Sketch::of_nothing()));
        }
        let mut chunk = Vec::new();
        if freed.is_empty() {
            let mut bytes = 0;
            for segment in state.layout.groups[0].segments.iter() {
                if bytes >= chunk_bytes {
                    break;
                }
                bytes += segment.bytes;
                chunk.push(*segment);
            }
            let open = state.open.get(&0).map(|open| open.generation);
            if chunk.iter().any(|segment| Some(segment.generation) == open) {
                state.open.remove(&0);
            }
        }
        state.collecting = true;
        Ok(Tail { freed, chunk })
    }
}

/// What one collection works on: segments that can go now, or else ones to look at.
struct Tail {
    freed: Vec<u64>,
    chunk: Vec<Segment>,
}

impl Inner {
    /// Collects a chunk of the tail.
    pub(super) fn collect_log(
        &self,
        keyspace: &Arc<KeyspaceInner>,
        store: &Arc<ValueStore>,
    ) -> Result<Collected> {
        let _no_flush = store.flushing.lock();
        let chunk_bytes = keyspace.options.load().values.vlog_chunk_bytes;
        let tail = match store.take_tail(chunk_bytes, &self.visible_points()) {
            Ok(tail) => tail,
            Err(outcome) => return Ok(outcome),
        };
        let outcome = match tail.freed.is_empty() {
            true => self.collect_chunk(keyspace, store, &tail.chunk),
            false => Ok(()),
        };
        let outcome = outcome.and_then(|()| self.free_condemned(keyspace, store));
        self.end_collection(store, 0, outcome)
    }

    /// Steps 2 to 5.
    fn collect_chunk(
        &self,
        keyspace: &Arc<KeyspaceInner>,
        store: &Arc<ValueStore>,
        chunk: &[Segment],
    ) -> Result<()> {
        let scanned = store.scan(chunk, &|| self.check_open())?;
        if !seeded!(CollectionBesideInstall) {
            // A merge publishes values before the tree that points to them, both under this lock.
            // Looked up in between, they would all seem dead.
            drop(self.manifest.lock());
        }
        let live = self.live_records(keyspace, store, &scanned)?;
        reached!(LiveValuesFound);
        let (moves, written) = self.move_to_head(keyspace, store, chunk, &scanned, &live)?;
        let last_seq = self.commit_relocations(keyspace, &moves)?;
        self.sync_through(last_seq)?;
        let read: u64 = chunk.iter().map(|segment| segment.bytes).sum();
        let mut state = store.state.lock();
        state.condemned.extend(chunk.iter().map(|segment| (segment.generation, last_seq)));
        if let Some(pass) = &mut state.pass {
            pass.dead_bytes += read - written.min(read);
        }
        drop(state);
        self.metrics.add_all(&[
            (Counter::value_collections, 1),
            (Counter::value_gc_bytes_read, read),
            (Counter::value_gc_bytes_written, written),
        ]);
        self.emit(|| Event::ValuesCollected {
            keyspace: keyspace.name.clone(),
            group: 0,
            bytes_before: read,
            bytes_after: written,
            bytes_written: written,
        });
        Ok(())
    }

    /// Step 2.
    fn live_records<'a>(
        &self,
        keyspace: &KeyspaceInner,
        store: &ValueStore,
        scanned: &'a Scanned,
    ) -> Result<Vec<Live<'a>>> {
        let mut live = Vec::new();
        for entry in &scanned.entries {
            let view = keyspace.view.load();
            let now = self.visible_seq.load(std::sync::atomic::Ordering::Acquire);
            let newest = newest_pointer(&view, scanned.key(entry), now)?;
            if let Some((pointer, seq)) = newest
                && pointer.store == store.number
                && pointer.voff == entry.voff
            {
                live.push(Live { entry, seq });
            }
        }
        Ok(live)
    }

    /// Step 3: what `commit_relocations` takes, and the bytes appended.
    fn move_to_head(
        &self,
        keyspace: &KeyspaceInner,
        store: &Arc<ValueStore>,
        chunk: &[Segment],
        scanned: &Scanned,
        live: &[Live<'_>],
    ) -> Result<(Vec<Relocation>, u64)> {
        let mut appender = Appender::new(store);
        let mut moves = Vec::new();
        for Live { entry, seq } in live {
            let segment = &chunk[entry.segment as usize];
            let (at, len) = (entry.offset as usize, entry.bytes as usize);
            let read;
            let bytes = match &scanned.held[entry.segment as usize] {
                Some(bytes) => &bytes[at..at + len],
                None => {
                    let mut buffer = vec![0; len];
                    store.file.read_at(store.position(segment) + at as u64, &mut buffer)?;
                    read = buffer;
                    &read[..]
                }
            };
            let record = store.seal(segment).take(bytes, entry.offset.into());
            let place = store.position(segment) + u64::from(entry.offset);
            let record = record.map_err(|what| store.corrupt(place, what))?;
            let mut pointer = Vec::new();
            appender.append(record.key, record.seq, record.value)?.encode(&mut pointer);
            moves.push(Relocation { key: record.key.to_vec(), seq: *seq, pointer });
        }
        let edit = appender.finish()?;
        let written = appender.bytes;
        if written > 0 {
            self.install_values(keyspace, store, edit)?;
        }
        appender.commit();
        Ok((moves, written))
    }

    /// Step 5, second half.
    fn free_condemned(&self, keyspace: &KeyspaceInner, store: &ValueStore) -> Result<()> {
        let points = self.visible_points();
        let mut remove = Vec::new();
        let mut buried = Vec::new();
        let ended;
        {
            let state = store.state.lock();
            let group = &state.layout.groups[0];
            let ready = state
                .condemned
                .iter()
                .take_while(|(_, seq)| points.first().is_some_and(|oldest| oldest >= seq));
            remove.extend(ready.map(|(generation, _)| *generation));
            let stays = group.segments.iter().find(|one| !remove.contains(&one.generation));
            let tail = stays.map_or(group.end_voff, |segment| segment.voff);
            buried.extend(group.dead.range(..tail).map(|(voff, _)| *voff));
            ended = state.pass.is_some_and(|pass| tail >= pass.end_voff);
        }
        if remove.is_empty() {
            return Ok(());
        }
        let count = remove.len();
        // After a pass, the keys written since it began are all that there are.
        let collected = ended.then_some((0, 0));
        let group = GroupEdit { remove, buried, collected, ..GroupEdit::default() };
        let edit = ValueEdit { store: store.number, groups: vec![group] };
        self.install_values(keyspace, store, edit)?;
        let mut state = store.state.lock();
        state.condemned.drain(..count);
        if ended {
            state.end_pass(store.slot_bytes);
        }
        drop(state);
        store.shrink(false)
    }
}

impl State {
    /// A whole pass that found less than a slot ends collection until the log has grown.
    fn end_pass(&mut self, slot_bytes: u64) {
        self.fresh = None;
        if self.pass.take().is_some_and(|pass| pass.dead_bytes < slot_bytes) {
            self.quiet_at = self.layout.groups[0].end_voff;
        }
    }
}

/// The newest version of a key, if its value is separated: where, and its number.
fn newest_pointer(view: &View, key: &[u8], now: SeqNo) -> Result<Option<(Pointer, SeqNo)>> {
    let decode = |trailer: u64, bytes: &[u8]| {
        if !is_pointer(trailer) {
            return Ok(None);
        }
        let pointer = Pointer::of_entry(bytes)?;
        Ok(Some((pointer, seq_of(trailer))))
    };
    for memtable in std::iter::once(&view.active).chain(&view.immutable) {
        if let Some(record) = memtable.get(key, now) {
            return decode(record.trailer(), record.value());
        }
    }
    let mut stats = ProbeStats::default();
    match view.version.get(key, filter::hash(key), now, &mut stats)? {
        Some((found, block)) => decode(found.trailer, block.slice(found.value_at, found.value_len)),
        None => Ok(None),
    }
}
