//! Garbage collection of a hash group. It reads only the group, never the tree (HashKV §3.3).
//!
//! 1. Choose the group that can free most; less than a slot is not worth a collection, unless
//!    nothing in the group is live.
//! 2. Close it: later appends are written to new segments after it.
//! 3. Only then take the sequence numbers at which readers read. A version that is written later is
//!    after the closed segments.
//! 4. Scan the closed segments. Keep the newest version of each key and, for each snapshot, the
//!    newest that it sees; drop those that compactions found dead.
//! 5. Copy the survivors, in order, to fresh slots, each with its stream offset; sync. Segments at
//!    the front and at the end stay as they are if copying them would free nothing (`keep`).
//! 6. One manifest edit replaces the segments. The tree is neither read nor written: pointers are
//!    stream offsets, so a put that happens meanwhile cannot be lost.
//! 7. The slots become free when the last reader of the old segments has ended.
//!
//! A damaged record ends the collection and quarantines the group: none of its records is dropped.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use runstone_policy::sketch::Sketch;

use crate::callbacks::event::Event;
use crate::catalog::keyspace::KeyspaceCore;
use crate::error::Result;
use crate::jobs::collection::{Collected, Collector};
use crate::keys::SeqNo;
use crate::metrics::Counter;
use crate::options::values::{ValueOptions, ValuePlacement};
use crate::values::appender::Appender;
use crate::values::copy::Copied;
use crate::values::file::{FileState, ValueFile};
use crate::values::layout::{Group, GroupEdit, Segment, SegmentList, ValueEdit};
use crate::values::liveness::{Survivors, cold_survivors, emptiest, survivors};
use crate::visibility::snapshot::Readers;

/// An idle store collects groups while this fraction of the file's content is garbage. So it copies
/// at most about three bytes for each byte that it frees.
const IDLE_GARBAGE_FRACTION: u64 = 4;

/// A group whose present segments get no more appends.
#[derive(Debug)]
pub(crate) struct ClosedGroup {
    pub(crate) group: u32,
    pub(crate) segments: Arc<Vec<Segment>>,
    /// The list that contained the segments. It is held so that their slots are not reused
    /// meanwhile.
    in_use: Option<Arc<SegmentList>>,
    pub(crate) dead: BTreeMap<u64, u32>,
    /// The stream offsets of records that readers still need, whatever the group says about them.
    held: BTreeSet<u64>,
    /// The segment that was open for appends, if there was one.
    open: Option<Segment>,
}

/// How the space that a value file uses compares with the space that its options allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Crowding {
    /// The file uses no more than that, and only a job of its keyspace or a change of options
    /// changes that.
    None,
    /// The file uses no more than that, but the end of a reader or of a write may change how much
    /// it uses or how much is allowed.
    Passing,
    /// The file uses more, so a collection is worthwhile if it can free anything.
    Full,
}

impl ValueFile {
    /// Whether the file uses more space than its options allow. This call frees slots whose last
    /// reader has ended.
    pub(crate) fn crowding(&self, options: &ValueOptions) -> Crowding {
        if self.retired_at() != 0 {
            return Crowding::None;
        }
        let mut state = self.state.lock();
        state.reclaim();
        if state.pool.used() > self.limit_slots(&state, options) {
            return Crowding::Full;
        }
        let may_change = state.waits_for_readers() || self.has_early_segments();
        if may_change { Crowding::Passing } else { Crowding::None }
    }

    /// Whether a collection can free anything.
    pub(crate) fn can_free(&self, readers: &Readers) -> bool {
        let mut state = self.state.lock();
        state.held.release(readers.oldest_epoch);
        self.choose(&state, readers).is_some()
    }

    /// The garbage of hash groups, if a collection is worthwhile in a store to which nobody writes.
    /// A collection is worthwhile if a quarter of the file's content is garbage and a group can
    /// free a slot.
    pub(crate) fn idle_garbage<'a>(&self, readers: impl FnOnce() -> &'a Readers) -> Option<u64> {
        if self.retired_at() != 0 || self.placement == ValuePlacement::Vlog || self.writes_back {
            return None;
        }
        let readers = readers();
        let mut state = self.state.lock();
        state.reclaim();
        state.held.release(readers.oldest_epoch);
        let groups = (0..).zip(&state.layout.groups);
        let garbage: u64 =
            groups.map(|(i, group)| self.freed_bytes(&state, i, group, readers)).sum();
        let held = state.pool.used() * self.slot_bytes;
        (garbage * IDLE_GARBAGE_FRACTION >= held && self.choose(&state, readers).is_some())
            .then_some(garbage)
    }

    /// Bytes that a collection of a group would free. If compactions found every record of a group
    /// dead, all slots of the group are freed, however full they are.
    fn freed_bytes(&self, state: &FileState, i: u32, group: &Group, readers: &Readers) -> u64 {
        let pinned = state.pinned_bytes(i, readers);
        // The estimate of all garbage is not used here: it counts a key twice if the key was
        // deleted and put again.
        let is_dead = group.bytes() > 0 && group.dead_bytes() >= group.bytes() && pinned == 0;
        let garbage = group.garbage_bytes().saturating_sub(pinned);
        if is_dead { group.slots() * self.slot_bytes } else { garbage }
    }

    /// Slots that these bytes need, less the room in the open segments.
    pub(super) fn planned_slots(&self, state: &FileState, bytes: &BTreeMap<u32, u64>) -> u64 {
        let slots = |(group, bytes): (&u32, &u64)| {
            let open = state.open.get(group);
            let room = open.map_or(0, |open| self.slot_bytes.saturating_sub(open.bytes));
            bytes.saturating_sub(room).div_ceil(self.slot_bytes)
        };
        bytes.iter().map(slots).sum()
    }

    /// Whether neither a collection nor an appender runs. Only then can a collection begin.
    pub(crate) fn may_collect(&self) -> bool {
        let state = self.state.lock();
        !state.collecting && state.appenders == 0
    }

    /// The group to collect. A scan of some hundred numbers costs less than a heap that every
    /// append has to keep in order.
    fn choose(&self, state: &FileState, readers: &Readers) -> Option<u32> {
        if self.placement == ValuePlacement::Vlog {
            return self.log_wants_collection(state, &readers.points).then_some(0);
        }
        if let Some(may_go) = state.condemned_may_go(&readers.points) {
            return state.condemned.front().map(|front| front.group).filter(|_| may_go);
        }
        let gain = |(i, group): (u32, &Group)| {
            let freed = match self.cold == Some(i) {
                true => self.cold_window(state, group).map_or(0, |(_, bytes)| bytes),
                false => self.freed_bytes(state, i, group, readers),
            };
            (freed >= self.slot_bytes).then_some((freed, i))
        };
        let groups = (0..).zip(&state.layout.groups);
        let best = groups.filter(|(i, _)| !state.quarantined.contains(i)).filter_map(gain).max()?;
        Some(best.1)
    }

    /// The part of the cold stream that is worth rewriting, at most as large as a mean group: more
    /// than an eighth of the part is dead or unused. Only collections append to the stream, and
    /// only to its open segment, which is left out. The search runs once per change of the stream.
    fn cold_window(&self, state: &FileState, cold: &Group) -> Option<(Range<usize>, u64)> {
        if state.cold_settled.get() == cold.fingerprint() {
            return None;
        }
        let open = self.cold.and_then(|group| state.open.get(&group)).map(|open| open.generation);
        let full = cold.segments.iter().take_while(|one| Some(one.generation) != open).count();
        let most = (self.part_slots(state), self.slot_bytes);
        let (window, bytes) = emptiest(&cold.segments, full, &cold.dead, most);
        let inside = cold.segments.iter().skip(window.start).take(window.len());
        let slots: u64 = inside.map(|one| u64::from(one.slots)).sum();
        if bytes < self.slot_bytes || bytes * 8 < slots * self.slot_bytes {
            state.cold_settled.set(cold.fingerprint());
            return None;
        }
        Some((window, bytes))
    }

    /// Slots of a mean hash group.
    fn part_slots(&self, state: &FileState) -> u64 {
        let count = state.layout.group_count();
        let groups = &state.layout.groups[..count as usize];
        let slots: u64 = groups.iter().map(Group::slots).sum();
        (slots / u64::from(count.max(1))).max(2)
    }

    /// Runs steps 1 and 2.
    pub(crate) fn close_group(
        &self,
        readers: &Readers,
    ) -> std::result::Result<ClosedGroup, Collected> {
        let mut state = self.state.lock();
        if state.collecting || state.appenders > 0 {
            return Err(Collected::Busy);
        }
        state.held.release(readers.oldest_epoch);
        let group = self.choose(&state, readers).ok_or(Collected::Nothing)?;
        if self.cold == Some(group) {
            let window = self.cold_window(&state, &state.layout.groups[group as usize]);
            let (window, _) = window.ok_or(Collected::Nothing)?;
            state.collecting = true;
            return Ok(self.close_cold(&state, group, window));
        }
        state.collecting = true;
        let seals = !seeded!(CollectionWithoutClosing);
        let open = if seals { state.open.remove(&group) } else { None };
        state.fresh = Some((group, Sketch::of_nothing()));
        state.dirty = self.writes_back.then(|| (group, BTreeMap::new()));
        let at = &state.layout.groups[group as usize];
        let held = state.held.offsets_of(group);
        let held = held.filter(|_| !seeded!(FilteredValuesDeadAtOnce)).collect();
        let (segments, in_use) = (Arc::new(at.segments.to_vec()), Some(Arc::clone(&at.segments)));
        let dead = at.dead.iter().copied().collect();
        Ok(ClosedGroup { group, segments, in_use, dead, held, open })
    }

    fn close_cold(&self, state: &FileState, group: u32, window: Range<usize>) -> ClosedGroup {
        let cold = &state.layout.groups[group as usize];
        let inside = cold.segments.iter().skip(window.start).take(window.len());
        let segments: Arc<Vec<Segment>> = Arc::new(inside.copied().collect());
        let offset_of = |segment: &Segment| segment.stream_offset;
        let start = segments.first().filter(|_| window.start > 0).map_or(0, offset_of);
        let end = cold.segments.iter().nth(window.end).map_or(u64::MAX, offset_of);
        let dead = cold.dead.range(start..end).copied().collect();
        ClosedGroup { group, segments, in_use: None, dead, held: BTreeSet::new(), open: None }
    }

    pub(super) fn end_collecting(&self) {
        let mut state = self.state.lock();
        state.collecting = false;
        state.dirty = None;
        if self.placement == ValuePlacement::HashGrouped {
            state.fresh = None;
        }
        drop(state);
        self.ended.notify_all();
    }
}

impl ValueFile {
    /// The edit that a collection makes: its group changes, and so does the cold stream if records
    /// were moved there or tags were dropped. Releases the segments.
    fn edit_of(&self, closed: ClosedGroup, kept: Survivors, copied: &Copied) -> ValueEdit {
        let Copied { leaving, outputs, .. } = copied;
        // Segments at the end may stay, with the dead records in them. These records are known
        // garbage already, and must not count as bytes written since.
        let stream_end =
            closed.segments.get(leaving.end).map_or(u64::MAX, |segment| segment.stream_offset);
        let mut forgotten = closed.dead;
        forgotten.retain(|stream_offset, _| !closed.held.contains(stream_offset));
        let known = forgotten.split_off(&stream_end);
        let known_bytes: u64 = known.values().map(|bytes| u64::from(*bytes)).sum();
        let removed = &closed.segments[leaving.clone()];
        let left_bytes = match self.cold == Some(closed.group) {
            true => self.cold_bytes_after(removed, outputs),
            false => kept.live_bytes + known_bytes - copied.cooled_bytes + copied.tag_bytes,
        };
        let edit = GroupEdit {
            group: closed.group,
            remove: removed.iter().map(|one| one.generation).collect(),
            place: outputs.clone(),
            forgotten: forgotten.keys().copied().collect(),
            collected: Some((left_bytes, kept.keys.estimate().unwrap_or(0))),
            keys: kept.keys,
            ..GroupEdit::default()
        };
        // Tags in segments that stay are dropped by a later collection.
        let dropped = kept.dropped_tags.iter();
        let dropped = dropped.filter(|entry| leaving.contains(&(entry.segment as usize)));
        let dead = dropped.filter_map(|entry| entry.tag).map(|tag| (tag.stream_offset, tag.bytes));
        let appended = copied.cold.as_ref().and_then(|(_, edit)| edit.groups.first());
        let cold = self.cold_edit(appended.cloned(), copied.cooled_bytes, dead.collect());
        let groups = std::iter::once(edit).chain(cold).collect();
        ValueEdit { store: self.number, groups }
    }

    /// How records that cooled and tags that were dropped change the cold stream. The file always
    /// knows which records of the stream are dead, so all others count as live.
    pub(super) fn cold_edit(
        &self,
        appended: Option<GroupEdit>,
        cooled_bytes: u64,
        dead: Vec<(u64, u32)>,
    ) -> Option<GroupEdit> {
        let group = self.cold?;
        let dead = if seeded!(DroppedTagsForgotten) { Vec::new() } else { dead };
        if appended.is_none() && dead.is_empty() {
            return None;
        }
        let edit = GroupEdit { group, ..appended.unwrap_or_default() };
        let left_bytes = self.cold_bytes_after(&[], &[]) + cooled_bytes;
        Some(GroupEdit {
            dead,
            keys: Sketch::of_nothing(),
            collected: Some((left_bytes, 0)),
            ..edit
        })
    }

    /// Notes the outcome of a collection: the bytes kept only for snapshots, and the segment
    /// that may take appends again.
    fn note_collected(
        &self,
        group: u32,
        pinned: (u64, Vec<SeqNo>),
        freed_slots: i64,
        reopened: Option<Segment>,
    ) {
        let mut state = self.state.lock();
        state.pinned.insert(group, pinned);
        if self.cold == Some(group) && freed_slots <= 0 {
            // The records of the cold stream cannot be packed closer. The next try waits for a
            // change.
            state.cold_settled.set(state.layout.groups[group as usize].fingerprint());
        }
        if let Some(open) = reopened {
            // An appender may have opened another segment meanwhile; then this one stays closed.
            state.open.entry(group).or_insert(open);
        }
    }

    /// Bytes of the cold stream after segments were added and removed.
    fn cold_bytes_after(&self, removed: &[Segment], placed: &[Segment]) -> u64 {
        let state = self.state.lock();
        let cold = self.cold.map_or(0, |group| state.layout.groups[group as usize].bytes());
        let bytes = |segments: &[Segment]| segments.iter().map(|one| one.bytes).sum::<u64>();
        (cold + bytes(placed)).saturating_sub(bytes(removed))
    }
}

impl Collector {
    /// Runs steps 3 to 6.
    pub(super) fn collect_closed(
        &self,
        keyspace: &Arc<KeyspaceCore>,
        store: &Arc<ValueFile>,
        closed: ClosedGroup,
    ) -> Result<()> {
        let points = self.visibility.points();
        let scanned = store.scan(&closed.segments, &|| self.installer.check_wanted(keyspace))?;
        let kept = match store.cold == Some(closed.group) {
            true => cold_survivors(&scanned, &closed.dead),
            false => {
                let cools = keyspace.options.load().values.cold_stream;
                survivors(&scanned, &points, (&closed.dead, &closed.held), cools)
            }
        };
        if seeded!(SlotsFreedBeforeTheEdit) {
            store.give_back(closed.segments.iter());
        }
        let mut copied = store.copy(&closed.segments, &scanned, &kept.entries)?;
        reached!(GroupCopied);
        let bytes = |segments: &[Segment], of: fn(&Segment) -> u64| segments.iter().map(of).sum();
        let (before, read): (u64, u64) = (
            bytes(&closed.segments, |one| one.bytes),
            bytes(&closed.segments, Segment::stored_bytes),
        );
        let cold_bytes = copied.cooled_bytes;
        let written = bytes(&copied.outputs, Segment::stored_bytes) + cold_bytes;
        let after = kept.live_bytes + kept.pinned_bytes;
        let (group, pinned_bytes) = (closed.group, kept.pinned_bytes);
        let reopened = closed.open.filter(|open| {
            let staying = &closed.segments[copied.leaving.end..];
            staying.iter().any(|one| one.generation == open.generation)
        });
        let slots = |segments: &[Segment]| -> i64 {
            segments.iter().map(|segment| i64::from(segment.slots)).sum()
        };
        let (segments, _in_use) = (Arc::clone(&closed.segments), closed.in_use.clone());
        let removed = &segments[copied.leaving.clone()];
        let freed_slots = slots(removed) - slots(&copied.outputs);
        let edit = store.edit_of(closed, kept, &copied);
        self.install_collection(keyspace, store, edit, &mut copied)?;
        if scanned.is_cold {
            store.drop_cached(removed);
            store.drop_cached(&copied.outputs);
        }
        store.note_collected(group, (pinned_bytes, snapshots_of(&points)), freed_slots, reopened);
        self.env.metrics.add_all(&[
            (Counter::value_collections, 1),
            (Counter::value_gc_bytes_read, read),
            (Counter::value_gc_bytes_written, written),
            (Counter::value_cold_bytes_written, cold_bytes),
        ]);
        self.env.emit(|| Event::ValuesCollected {
            keyspace: keyspace.name.clone(),
            group,
            bytes_before: before,
            bytes_after: after,
            bytes_written: written,
        });
        self.pressure.refresh([keyspace]);
        store.shrink(false)
    }

    /// Runs step 6. If the edit is not logged, the slots of the copies are freed.
    fn install_collection(
        &self,
        keyspace: &Arc<KeyspaceCore>,
        store: &ValueFile,
        mut edit: ValueEdit,
        copied: &mut Copied,
    ) -> Result<()> {
        let cold = copied.cold.take().map(|(appender, _)| appender);
        if cold.is_some() && seeded!(TagsLoggedBeforeColdRecords) {
            let later = ValueEdit { store: store.number, groups: edit.groups.split_off(1) };
            self.installer.install_values(keyspace, store, edit)?;
            edit = later;
        }
        match self.installer.install_values(keyspace, store, edit) {
            Ok(()) => {
                cold.into_iter().for_each(Appender::commit);
                Ok(())
            }
            Err(error) => {
                // The manifest may name the slots although the append failed.
                if self.catalog.is_manifest_broken() {
                    cold.into_iter().for_each(Appender::abandon);
                } else {
                    store.give_back(copied.outputs.iter());
                }
                Err(error)
            }
        }
    }
}

/// The snapshots among the points: all but the last, which is the present.
fn snapshots_of(points: &[SeqNo]) -> Vec<SeqNo> {
    points.split_last().map(|(_, snapshots)| snapshots.to_vec()).unwrap_or_default()
}
