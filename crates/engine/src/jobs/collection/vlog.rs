//! Garbage collection of a log at its tail (WiscKey §3.3.2). It is the baseline for hash groups,
//! and a sound choice for large values that are rarely replaced.
//!
//! 1. Take segments from the tail, up to a chunk.
//! 2. Wait until the tree has the edit that may have added some of these segments. Look up each
//!    record's key in the tree. A record is live if the newest version points to it.
//! 3. Relocate the live records (`relocate`): append them at the head, and write their new pointers
//!    into the tree, each unless its key was written since the look-up. This condition is checked
//!    under the commit lock, against the memtables. No flush may remove a newer version from the
//!    memtables in between, so flushes wait (`flushing`).

use std::sync::Arc;

use runstone_policy::sketch::Sketch;

use crate::catalog::keyspace::{KeyspaceCore, View};
use crate::error::Result;
use crate::format::filter;
use crate::format::record::Pointer;
use crate::jobs::collection::Collected;
use crate::jobs::collection::Collector;
use crate::jobs::collection::relocate::{Emptied, Live};
use crate::keys::{SeqNo, is_pointer, seq_of};
use crate::table::reader::ProbeStats;
use crate::values::file::{FileState, Pass, ValueFile};
use crate::values::layout::Segment;
use crate::values::liveness::Scanned;

impl ValueFile {
    /// Whether collecting the tail can free something.
    pub(crate) fn log_wants_collection(&self, state: &FileState, points: &[SeqNo]) -> bool {
        if let Some(may_go) = state.condemned_may_go(points) {
            return may_go;
        }
        let group = &state.layout.groups[0];
        let is_settled = |tail: &Segment| !self.is_early(tail);
        group.garbage_bytes() >= self.slot_bytes
            && group.segments.first().is_some_and(is_settled)
            && state.quiet_at.saturating_add(self.slot_bytes) <= group.stream_end
            && !state.quarantined.contains(&0)
    }

    /// Runs step 1. The segments stay in the file, and appenders append after them.
    fn take_tail(
        &self,
        chunk_bytes: u64,
        points: &[SeqNo],
    ) -> std::result::Result<Tail, Collected> {
        let mut state = self.state.lock();
        if state.collecting || state.appenders > 0 {
            return Err(Collected::Busy);
        }
        if self.retired_at() != 0 || !self.log_wants_collection(&state, points) {
            return Err(Collected::Nothing);
        }
        let only_frees = state.condemned_may_go(points).is_some();
        if state.pass.is_none() {
            state.pass =
                Some(Pass { stream_end: state.layout.groups[0].stream_end, dead_bytes: 0 });
            state.fresh = Some((0, Sketch::of_nothing()));
        }
        let mut chunk = Vec::new();
        if !only_frees {
            let mut bytes = 0;
            for segment in state.layout.groups[0].segments.iter() {
                if bytes >= chunk_bytes || self.is_early(segment) {
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
        Ok(Tail { only_frees, chunk })
    }
}

/// The work of one collection: it frees condemned segments if there are any, otherwise it collects
/// `chunk`.
struct Tail {
    only_frees: bool,
    chunk: Vec<Segment>,
}

impl Collector {
    /// Collects a chunk of the tail.
    pub(crate) fn collect_log(
        &self,
        keyspace: &Arc<KeyspaceCore>,
        store: &Arc<ValueFile>,
    ) -> Result<Collected> {
        let _no_flush = store.flushing.lock();
        let chunk_bytes = keyspace.options.load().values.vlog_chunk_bytes;
        let tail = match store.take_tail(chunk_bytes, &self.visibility.points()) {
            Ok(tail) => tail,
            Err(outcome) => return Ok(outcome),
        };
        let outcome = match tail.only_frees {
            false => self.collect_chunk(keyspace, store, &tail.chunk),
            true => Ok(()),
        };
        let outcome = outcome.and_then(|()| self.free_condemned(keyspace, store));
        self.end_collection(store, 0, outcome)
    }

    /// Runs steps 2 and 3.
    fn collect_chunk(
        &self,
        keyspace: &Arc<KeyspaceCore>,
        store: &Arc<ValueFile>,
        chunk: &[Segment],
    ) -> Result<()> {
        let scanned = store.scan(chunk, &|| self.installer.check_wanted(keyspace))?;
        let live = self.live_records(keyspace, store, &scanned)?;
        reached!(LiveValuesFound);
        let (scanned, markers) = (&scanned, Vec::new());
        let (left, dropped_tags) = (None, Vec::new());
        let emptied = Emptied { group: 0, segments: chunk, scanned, markers, left, dropped_tags };
        self.relocate(keyspace, store, &emptied, &live)
    }

    /// Runs step 2, in the order of the scan.
    pub(crate) fn live_records<'a>(
        &self,
        keyspace: &KeyspaceCore,
        store: &ValueFile,
        scanned: &'a Scanned,
    ) -> Result<Vec<Live<'a>>> {
        if !seeded!(CollectionBesideInstall) {
            // A compaction publishes values before the tree that points to them, both under this
            // lock. A look-up between the two would find none of them live.
            drop(self.catalog.manifest.lock());
        }
        let mut live = Vec::new();
        for entry in scanned.entries.iter().filter(|entry| !entry.is_marker) {
            let view = keyspace.view.load();
            let now = self.visibility.now();
            let newest = newest_pointer(&view, scanned.key(entry), now)?;
            if let Some((pointer, seq)) = newest
                && pointer.store == store.number
                && pointer.stream_offset == entry.stream_offset
            {
                live.push(Live { entry, seq });
            }
        }
        Ok(live)
    }
}

impl FileState {
    /// Ends a pass. If it found less than a slot of garbage, collections pause until the log has
    /// grown.
    pub(crate) fn end_pass(&mut self, slot_bytes: u64) {
        self.fresh = None;
        if self.pass.take().is_some_and(|pass| pass.dead_bytes < slot_bytes) {
            self.quiet_at = self.layout.groups[0].stream_end;
        }
    }
}

/// The pointer of a key's newest version and its sequence number, if its value is separated and no
/// range delete hides it.
fn newest_pointer(view: &View, key: &[u8], now: SeqNo) -> Result<Option<(Pointer, SeqNo)>> {
    let decode = |trailer: u64, bytes: &[u8]| {
        let seq = if seeded!(ValuesUnderRangesDead) { 0 } else { seq_of(trailer) };
        let is_hidden = || view.hides(key, seq, now) && !seeded!(HiddenValuesLive);
        if !is_pointer(trailer) || is_hidden() {
            return Ok(None);
        }
        let pointer = Pointer::of_entry(bytes)?;
        Ok(Some((pointer, seq_of(trailer))))
    };
    for memtable in view.memtables() {
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
