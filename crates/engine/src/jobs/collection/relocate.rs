//! Moves live values, and then writes their new pointers into the tree. Collections of a log
//! (`vlog`) and of groups that write back (`write_back`) share these steps; they decide which
//! values are live.
//!
//! 1. Append the live records to the end of their stream, with their sequence numbers, and add them
//!    to the file.
//! 2. Write their new pointers into the tree, each unless a user wrote its key since
//!    (`commit_relocations`). A pointer gets its own sequence number, so an earlier snapshot still
//!    sees the old version.
//! 3. Sync the log of writes, and condemn the old segments. One edit removes them when no snapshot
//!    is older than the new pointers; slots become free when no reader holds them. The same edit
//!    notes records of the cold stream as dead if only tags in those segments named them.
//!
//! A record that cools is moved to the cold stream, its pointer leads there, and the group gets a
//! tag. A tag that stays is appended again. It needs no pointer, because the record has not moved.
//!
//! A crash before step 3 leaves both copies of a version, and the tree may point to either. The
//! list of condemned segments is not stored: after a crash the next collection finds their records
//! dead.

use std::collections::BTreeSet;
use std::sync::Arc;

use runstone_policy::sketch::Sketch;

use crate::cache::Reservation;
use crate::callbacks::event::Event;
use crate::catalog::keyspace::KeyspaceCore;
use crate::error::Result;
use crate::format::record::Pointer;
use crate::jobs::collection::Collector;
use crate::keys::SeqNo;
use crate::metrics::Counter;
use crate::values::again::ReadAgain;
use crate::values::appender::Appender;
use crate::values::file::{Condemned, FileState, ValueFile};
use crate::values::layout::{GroupEdit, Segment, ValueEdit};
use crate::values::liveness::{RecordEntry, Scanned, Tag};
use crate::write::relocation::Relocation;

/// A live record with the sequence number of the version that points to it, or of the record
/// itself. Every later write of a user has a larger number.
pub(crate) struct Live<'a> {
    pub(crate) entry: &'a RecordEntry,
    pub(crate) seq: SeqNo,
}

/// Segments that a collection empties.
pub(crate) struct Emptied<'a> {
    pub(crate) group: u32,
    pub(crate) segments: &'a [Segment],
    pub(crate) scanned: &'a Scanned,
    /// Markers that stay.
    pub(crate) markers: Vec<RecordEntry>,
    /// The keys that stay, if every record of the group was judged.
    pub(crate) left: Option<Sketch>,
    /// Tags that do not stay.
    pub(crate) dropped_tags: Vec<Tag>,
}

/// Moved values whose pointers are not written yet.
struct Moved<'a> {
    moves: Vec<Relocation<'a>>,
    /// The memory of the list.
    _charge: Reservation,
    /// Bytes appended.
    written: u64,
    /// How many of these bytes were written to the cold stream.
    cooled: u64,
}

impl FileState {
    /// Whether the condemned segments may be removed; `None` if there are none. While they wait for
    /// snapshots nothing else is emptied, because it would wait for the same snapshots.
    pub(crate) fn condemned_may_go(&self, points: &[SeqNo]) -> Option<bool> {
        let front = self.condemned.front()?;
        Some(front.may_go(points))
    }

    /// Bytes in segments that only snapshots keep. O(such segments).
    pub(crate) fn condemned_bytes(&self, points: &[SeqNo]) -> u64 {
        match self.condemned_may_go(points) {
            Some(true) => 0,
            _ => self.condemned.iter().map(|condemned| condemned.bytes).sum(),
        }
    }
}

impl Condemned {
    fn may_go(&self, points: &[SeqNo]) -> bool {
        let is_flushed = self.is_flushed || seeded!(EarlyValuesFreedUnflushed);
        is_flushed && points.first().is_some_and(|oldest| *oldest >= self.seq)
    }
}

impl FileState {
    /// Whether emptied segments wait for a flush.
    pub(crate) fn waits_for_flush(&self) -> bool {
        self.condemned.front().is_some_and(|front| !front.is_flushed)
    }

    /// Notes that no memtable has a write before this sequence number.
    pub(crate) fn note_flushed(&mut self, unflushed_from: SeqNo) {
        for condemned in &mut self.condemned {
            condemned.is_flushed |= condemned.seq < unflushed_from;
        }
    }
}

impl ValueFile {
    /// The edits of a group and of the cold stream for the copies of all live records, with the
    /// bytes that were written to each. From then on the old segments count as garbage, for the
    /// next open too.
    fn groups_collected(
        &self,
        emptied: &Emptied<'_>,
        keys: &Sketch,
        (kept_bytes, cooled_bytes): (u64, u64),
        copies: Vec<GroupEdit>,
    ) -> Vec<GroupEdit> {
        let (cold, own): (Vec<_>, Vec<_>) =
            copies.into_iter().partition(|copies| Some(copies.group) == self.cold);
        let dropped = emptied.dropped_tags.iter().filter(|_| seeded!(ColdRecordsDeadAtOnce));
        let dead = dropped.map(|tag| (tag.stream_offset, tag.bytes)).collect();
        let cold = self.cold_edit(cold.into_iter().next(), cooled_bytes, dead);
        let collected = Some((kept_bytes, keys.estimate().unwrap_or(0)));
        let (group, keys) = (emptied.group, keys.clone());
        let own = own.into_iter().next().unwrap_or_default();
        let own = GroupEdit { group, keys, collected, ..own };
        std::iter::once(own).chain(cold).collect()
    }

    /// Notes the records of the cold stream that no tag will name once the condemned segments are
    /// gone, except those that compactions found dead and collections removed before. All segments
    /// of a group are condemned and removed together.
    fn edit_of_condemned_tags(&self) -> Option<GroupEdit> {
        let (store, group) = (self.number, self.cold?);
        let mut dead = self.state.lock().condemned_cold.clone();
        dead.retain(|(stream_offset, _)| {
            let stream_offset = *stream_offset;
            self.may_note_dead(&Pointer { store, group, stream_offset, value_bytes: 0 })
        });
        self.cold_edit(None, 0, dead)
    }
}

impl Collector {
    /// Runs steps 1 to 3.
    pub(crate) fn relocate(
        &self,
        keyspace: &Arc<KeyspaceCore>,
        store: &Arc<ValueFile>,
        emptied: &Emptied<'_>,
        live: &[Live<'_>],
    ) -> Result<()> {
        let Moved { moves, _charge, written, cooled } =
            self.move_to_end(keyspace, store, emptied, live)?;
        reached!(GroupCopied);
        let mut deleted = Vec::new();
        let last_seq = self.committer.commit_relocations(keyspace, store, &moves, &mut deleted)?;
        if !seeded!(RelocationsNotSynced) {
            self.committer.sync_through(last_seq)?;
        }
        let (group, segments) = (emptied.group, emptied.segments);
        if !deleted.is_empty() {
            // No entry of the tree leads to these copies, so no compaction will note them.
            let edit = ValueEdit::of_dead(store.number, &deleted);
            self.installer.install_values(keyspace, store, edit)?;
        }
        let read: u64 = segments.iter().map(|segment| segment.bytes).sum();
        let seq = if seeded!(OldSlotsFreedUnderSnapshots) { 0 } else { last_seq };
        let is_flushed = !store.has_early() || keyspace.unflushed_from() > last_seq;
        let condemn = |one: &Segment| {
            let (generation, bytes) = (one.generation, one.bytes);
            Condemned { group, generation, bytes, seq, is_flushed }
        };
        let mut state = store.state.lock();
        state.condemned.extend(segments.iter().map(condemn));
        let tags = emptied.dropped_tags.iter();
        state.condemned_cold.extend(tags.map(|tag| (tag.stream_offset, tag.bytes)));
        if let Some(pass) = &mut state.pass {
            pass.dead_bytes += read - written.min(read);
        }
        drop(state);
        if emptied.scanned.is_cold {
            store.drop_cached(segments);
        }
        if !is_flushed {
            let active = Arc::clone(&keyspace.view.load().active);
            self.committer.rotate_if_active(keyspace, &active);
        }
        self.env.metrics.add_all(&[
            (Counter::value_collections, 1),
            (Counter::value_gc_bytes_read, read),
            (Counter::value_gc_bytes_written, written),
            (Counter::value_cold_bytes_written, cooled),
        ]);
        self.env.emit(|| Event::ValuesCollected {
            keyspace: keyspace.name.clone(),
            group,
            bytes_before: read,
            bytes_after: written,
            bytes_written: written,
        });
        Ok(())
    }

    /// Runs step 1.
    fn move_to_end<'a>(
        &self,
        keyspace: &Arc<KeyspaceCore>,
        store: &Arc<ValueFile>,
        emptied: &Emptied<'a>,
        live: &[Live<'_>],
    ) -> Result<Moved<'a>> {
        let mut appender = Appender::of_copies(store);
        let charge = store.cache.pin((live.len() * size_of::<Relocation<'_>>()) as u64);
        let mut moves = Vec::with_capacity(live.len());
        let (mut cooled, mut again) = (0, ReadAgain::default());
        for (i, Live { entry, seq }) in live.iter().enumerate() {
            if let Some(tag) = entry.tag {
                appender.tag(emptied.scanned.key(entry), entry.seq, tag)?;
                continue;
            }
            let segment = &emptied.segments[entry.segment as usize];
            let held = emptied.scanned.held[entry.segment as usize].as_deref();
            let of_segment = live[i..].iter().map(|one| one.entry);
            let of_segment = of_segment.take_while(|one| one.segment == entry.segment);
            let record = again.record(store, (segment, held), of_segment)?;
            let pointer = match store.cold.filter(|_| entry.cools) {
                None => appender.append(record.key, record.seq, record.value)?,
                Some(cold) => {
                    let place = appender.append_to(cold, record.key, record.seq, record.value)?;
                    let tag = Tag { stream_offset: place.stream_offset, bytes: entry.bytes };
                    appender.tag(record.key, record.seq, tag)?;
                    cooled += u64::from(entry.bytes);
                    place
                }
            };
            moves.push(Relocation { key: emptied.scanned.key(entry), seq: *seq, pointer });
        }
        for marker in &emptied.markers {
            appender.mark(emptied.scanned.key(marker), marker.seq)?;
        }
        let mut edit = appender.finish()?;
        let written = appender.bytes;
        if emptied.scanned.is_cold {
            edit.groups.iter().for_each(|copies| store.drop_cached(&copies.place));
        }
        if let Some(keys) = &emptied.left {
            let bytes = (written - cooled, cooled);
            edit.groups = store.groups_collected(emptied, keys, bytes, edit.groups);
        }
        if !edit.groups.is_empty()
            && let Err(error) = self.installer.install_values(keyspace, store, edit)
        {
            // The manifest may name the slots although the append failed.
            if self.catalog.is_manifest_broken() {
                appender.abandon();
            }
            return Err(error);
        }
        appender.commit();
        Ok(Moved { moves, _charge: charge, written, cooled })
    }

    /// Runs the second half of step 3: removes the condemned segments that no snapshot needs.
    pub(crate) fn free_condemned(
        &self,
        keyspace: &Arc<KeyspaceCore>,
        store: &ValueFile,
    ) -> Result<()> {
        let points = self.visibility.points();
        let mut remove = Vec::new();
        let mut forgotten = Vec::new();
        let ended;
        let group_number;
        {
            let state = store.state.lock();
            let Some(front) = state.condemned.front() else { return Ok(()) };
            group_number = front.group;
            let group = &state.layout.groups[group_number as usize];
            let ready = state.condemned.iter().take_while(|one| one.may_go(&points));
            remove.extend(ready.map(|condemned| condemned.generation));
            let leaving: BTreeSet<u64> = remove.iter().copied().collect();
            let stays = group.segments.iter().find(|one| !leaving.contains(&one.generation));
            let tail = stays.map_or(group.stream_end, |segment| segment.stream_offset);
            forgotten.extend(group.dead.range(0..tail).map(|(stream_offset, _)| *stream_offset));
            ended = state.pass.is_some_and(|pass| tail >= pass.stream_end);
        }
        if remove.is_empty() {
            return Ok(());
        }
        let count = remove.len();
        // After a whole pass, only the keys written since it began remain.
        let collected = ended.then_some((0, 0));
        let group =
            GroupEdit { group: group_number, remove, forgotten, collected, ..GroupEdit::default() };
        let groups = std::iter::once(group).chain(store.edit_of_condemned_tags()).collect();
        self.installer.install_values(
            keyspace,
            store,
            ValueEdit { store: store.number, groups },
        )?;
        let mut state = store.state.lock();
        state.condemned.drain(..count);
        state.condemned_cold.clear();
        if ended {
            state.end_pass(store.slot_bytes);
        }
        drop(state);
        self.pressure.refresh([keyspace]);
        store.shrink(false)
    }
}
