//! An open value file: one file of equal slots, which groups take and release.
//!
//! ```text
//! file   := header (4 KiB) | slot*
//! header := magic "RunValue" | format u32 | slot bytes u32 | uid u64 | checksum u32 | zeros
//! ```
//!
//! There is only one file, because the syncs dominate the cost of a flush: 64 appends of 4 KiB and
//! one sync take 1.5-10 ms on ext4. With one file and one sync per group, they would take 78-237
//! ms.
//!
//! - A reader loads the segments of a group, finds the record and reads it (`read`), with one
//!   device read and no lock. The loaded segments keep their slots from being reused until the
//!   reader releases them.
//! - Only edits that the manifest has logged change the layout (`publish`).
//! - A slot that an edit freed can be reused when nobody holds segments from before the edit.
//! - The footer of a segment leads from a tag straight to the record in the cold stream, so a read
//!   by a tag takes one device read too.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};

use crate::sync::{Condvar, Mutex, RwLock, rank};
use arc_swap::{ArcSwap, Guard};
use runstone_policy::sketch::Sketch;
use runstone_storage::{Category, Storage, StorageFile};

use crate::cache::{Cache, CacheKey, Cached};
use crate::error::{Error, Result};
use crate::format::record::{ChecksumSeed, Footer, Pointer, RecordPlace, footer_bytes};
use crate::keys::SeqNo;
use crate::keys::codec::{u32_at, u64_at};
use crate::lease::holder::Lease;
use crate::lease::{EditPlace, Leases};
use crate::options::values::{ValueOptions, ValuePlacement};
use crate::pace::write_back::WriteBack;
use crate::table::handle::TableContext;
use crate::values::early::{Early, GROUP, Shown};
use crate::values::held::HeldRecords;
use crate::values::layout::{GroupEdit, Layout, Segment, SegmentList, ValueEdit};
use crate::values::pool::Pool;
use crate::visibility::snapshot::Readers;

/// Format of value files.
const VALUE_FORMAT: u32 = 1;
const MAGIC: &[u8; 8] = b"RunValue";
/// How many free slots are punched under the lock at once.
const PUNCHED_AT_ONCE: usize = 64;
/// The offset of the first slot.
pub(crate) const FIRST_SLOT: u64 = 4096;

pub(crate) fn values_name(number: u64) -> String {
    format!("{number:06}.values")
}

/// The segments of a group as of the moment of loading. While they are held, no slot that they name
/// is reused.
pub(crate) type Segments = Guard<Arc<SegmentList>>;

/// Segments that a search loaded in addition to those of the group. The places that it found may be
/// in these segments.
#[derive(Debug, Default)]
pub(crate) struct Beside {
    pub(crate) cold: Option<Segments>,
    /// The segments of a log, loaded again after a search did not find a record in the first ones.
    pub(crate) later: Vec<Segments>,
}

/// An open value file.
#[derive(Debug)]
pub(crate) struct ValueFile {
    pub(crate) number: u64,
    pub(crate) placement: ValuePlacement,
    /// See [`Layout::writes_back`].
    pub(crate) writes_back: bool,
    pub(crate) slot_bytes: u64,
    pub(crate) uid: u64,
    pub(crate) file: Arc<dyn StorageFile>,
    pub(crate) cache: Arc<Cache>,
    /// The segments of each group, as readers see them.
    segments: Box<[ArcSwap<SegmentList>]>,
    /// The index of the cold stream among the groups.
    pub(crate) cold: Option<u32>,
    /// Values that were appended before their writes were logged.
    pub(crate) early: Mutex<rank::EarlyValues, Early>,
    /// The segments of `early`, as readers see them.
    pub(super) shown: RwLock<rank::ShownEarly, Shown>,
    /// Whether early values were appended since the last sync of the log.
    pub(crate) has_unsynced: AtomicBool,
    pub(crate) state: Mutex<rank::ValueFile, FileState>,
    /// Signalled when a collection or an appender ends.
    pub(crate) ended: Condvar,
    /// Held by collections that write pointers. If the file is a log, flushes hold it too, see
    /// `jobs/collection/vlog.rs`.
    pub(crate) flushing: Mutex<rank::Flushing, ()>,
    /// See [`Layout::retired_at`].
    retired_at: AtomicU64,
    /// The last write that was visible when this process retired the file. A memtable with a write
    /// up to this one may point to this file. The number is not stored, because once a store has
    /// opened, the log is in tables.
    retired_seq: AtomicU64,
    /// The lease of a reader beside a writer.
    lease: Option<Arc<Lease>>,
    /// The first failure to sync the file. Held during each sync.
    sync_failed: Mutex<rank::ValueSync, Option<Error>>,
}

/// The state under the lock of a value file.
#[derive(Debug)]
pub(crate) struct FileState {
    pub(crate) layout: Layout,
    pub(crate) pool: Pool,
    pub(super) next_generation: u64,
    /// Segments with room that no appender uses, by group.
    pub(crate) open: BTreeMap<u32, Segment>,
    /// The number of appenders that run.
    pub(crate) appenders: usize,
    /// Whether a collection runs.
    pub(crate) collecting: bool,
    /// The keys that were written to the group that is being collected since it was closed. For a
    /// log, since the pass began.
    pub(crate) fresh: Option<(u32, Sketch)>,
    /// Earlier segments of groups, oldest first. A reader may hold any of these lists, and so all
    /// slots that the list names.
    pub(super) leaving: VecDeque<Leaving>,
    /// The slots that were free when the file was opened, and the edit that freed them. Kept while
    /// readers in other processes may need these slots.
    pub(super) found_free: Option<(EditPlace, BTreeSet<u32>)>,
    /// The leases of readers in other processes.
    pub(super) leases: Arc<Leases>,
    /// For each group, the bytes that the last collection kept only for snapshots, and these
    /// snapshots.
    pub(crate) pinned: BTreeMap<u32, (u64, Vec<SeqNo>)>,
    /// Records that a compaction filter dropped but that earlier readers may still reach.
    pub(crate) held: HeldRecords,
    /// Segments whose live values have moved, in files whose pointers are written back. They are
    /// freed when no snapshot is older than the new pointers.
    pub(crate) condemned: VecDeque<Condemned>,
    /// Records of the cold stream that are named only by tags in condemned segments: their stream
    /// offsets and bytes.
    pub(crate) condemned_cold: Vec<(u64, u32)>,
    /// In files whose pointers are written back without a look-up: the group that is being
    /// collected, and the keys that flushes and compactions have written to it since it was closed,
    /// each with its largest sequence number.
    pub(crate) dirty: Option<(u32, BTreeMap<Vec<u8>, SeqNo>)>,
    /// For a log, the pass of collection over everything that existed when it began.
    pub(crate) pass: Option<Pass>,
    /// For a log, the position of its end when a whole pass found nothing to free.
    pub(crate) quiet_at: u64,
    /// The fingerprint of the cold stream when last nothing in it was worth rewriting.
    pub(crate) cold_settled: Cell<(u64, u64)>,
    /// Groups with a damaged record. They are never collected, and none of their records is
    /// dropped.
    pub(crate) quarantined: BTreeSet<u32>,
}

/// The segments of a group before an edit.
#[derive(Debug)]
pub(super) struct Leaving {
    pub(super) segments: Arc<SegmentList>,
    /// The segments among them that the edit removed.
    pub(super) gone: Vec<Segment>,
    /// The edit.
    pub(super) left_at: EditPlace,
}

/// A segment that waits for the release of snapshots.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Condemned {
    pub(crate) group: u32,
    pub(crate) generation: u64,
    /// The bytes of the segment. Nothing is appended to it any more.
    pub(crate) bytes: u64,
    /// The last sequence number of the pointers that replaced the pointers into it.
    pub(crate) seq: SeqNo,
    /// Whether all writes up to this sequence number are flushed. If not, a replay of the log could
    /// bring back pointers into the segment.
    pub(crate) is_flushed: bool,
}

/// A pass of collection over a log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pass {
    /// The end of the log when the pass began. The pass ends when the tail reaches it.
    pub(crate) stream_end: u64,
    /// Bytes that were found dead.
    pub(crate) dead_bytes: u64,
}

impl ValueFile {
    /// Creates the file of an empty layout, durably.
    pub(crate) fn create(context: &TableContext, layout: Layout) -> Result<ValueFile> {
        let file = context.storage.create(&values_name(layout.number), Category::Value)?;
        let uid = context.table_uid(layout.number);
        file.write_at(0, &header(layout.slot_bytes, uid))?;
        file.sync()?;
        context.storage.sync_dir()?;
        ValueFile::new(context, layout, file)
    }

    /// Opens the file of a layout that the manifest describes.
    pub(crate) fn open(context: &TableContext, layout: Layout) -> Result<ValueFile> {
        let name = values_name(layout.number);
        let bad = |what: String| Error::corruption("manifest", 0, format!("{name}: {what}"));
        layout.check().map_err(bad)?;
        let file = context.storage.open(&name, Category::Value)?;
        let len = check_file(&*file, &layout, context.table_uid(layout.number))?;
        check_length(&layout, len)?;
        let opened = ValueFile::new(context, layout, file)?;
        if let Some(left_at) = context.leases.found() {
            let slots = len.saturating_sub(FIRST_SLOT).div_ceil(opened.slot_bytes);
            opened.state.lock().hold_free(u32::try_from(slots).unwrap_or(u32::MAX), left_at);
        }
        Ok(opened)
    }

    fn new(
        context: &TableContext,
        layout: Layout,
        file: Arc<dyn StorageFile>,
    ) -> Result<ValueFile> {
        let all = || layout.groups.iter().flat_map(|group| group.segments.iter());
        let pool = Pool::of_taken(all().map(|segment| (segment.slot, segment.slots)));
        let pool = pool.ok_or_else(|| {
            let what = format!("{}: two segments share a slot", values_name(layout.number));
            Error::corruption("manifest", 0, what)
        })?;
        let next_generation = all().map(|segment| segment.generation + 1).max().unwrap_or(1);
        let readers = layout.groups.iter().map(|group| ArcSwap::new(Arc::clone(&group.segments)));
        let slot_bytes = u64::from(layout.slot_bytes);
        let open = (0..).zip(&layout.groups).filter_map(|(i, group)| {
            let last = group.segments.last()?;
            let goes_on = !last.collected
                && last.slots == 1
                && last.bytes < slot_bytes
                && last.stream_offset.checked_add(slot_bytes)? == group.stream_end;
            goes_on.then_some((i, *last))
        });
        Ok(ValueFile {
            number: layout.number,
            placement: layout.placement,
            writes_back: layout.writes_back,
            slot_bytes,
            uid: context.table_uid(layout.number),
            file,
            cache: Arc::clone(&context.cache),
            segments: readers.collect(),
            cold: layout.cold(),
            retired_at: AtomicU64::new(layout.retired_at),
            retired_seq: AtomicU64::new(0),
            ended: Condvar::new(),
            lease: context.lease.clone(),
            sync_failed: Mutex::new(None),
            flushing: Mutex::new(()),
            early: Mutex::default(),
            shown: RwLock::default(),
            has_unsynced: AtomicBool::new(false),
            state: Mutex::new(FileState {
                open: open.collect(),
                pool,
                next_generation,
                layout,
                appenders: 0,
                collecting: false,
                fresh: None,
                leaving: VecDeque::new(),
                found_free: None,
                leases: Arc::clone(&context.leases),
                pinned: BTreeMap::new(),
                held: HeldRecords::default(),
                condemned: VecDeque::new(),
                condemned_cold: Vec::new(),
                dirty: None,
                pass: None,
                quiet_at: 0,
                cold_settled: Cell::new((0, 0)),
                quarantined: BTreeSet::new(),
            }),
        })
    }

    /// Zero while values are written to this file. Otherwise, tables whose file number is below
    /// this may still point to it.
    pub(crate) fn retired_at(&self) -> u64 {
        self.retired_at.load(Acquire)
    }

    /// Memtables with a write up to this sequence number may also point to this file.
    pub(crate) fn retired_seq(&self) -> SeqNo {
        self.retired_seq.load(Acquire).max(self.last_early_seq())
    }

    /// Notes that memtables with a write up to this sequence number may point to this file, because
    /// the log that was found at the open is kept.
    pub(crate) fn keep_for(&self, last_seq: SeqNo) {
        self.retired_seq.fetch_max(last_seq, AcqRel);
    }

    /// Retires the file: from now on, values are written elsewhere.
    pub(crate) fn retire(&self, tables_below: u64, last_seq: SeqNo) {
        // A batch that appends early values either has done so already, or will see that the file
        // is retired.
        let _early = self.early.lock();
        self.retired_seq.store(last_seq, Release);
        self.retired_at.store(tables_below, Release);
        self.state.lock().layout.retired_at = tables_below;
    }

    /// The layout of this file, as the manifest describes it.
    pub(crate) fn layout(&self) -> Layout {
        self.state.lock().layout.clone()
    }

    /// Makes everything written so far durable.
    pub(crate) fn sync(&self) -> Result<()> {
        self.settle(|file| file.sync())
    }

    /// Writes, and asks the kernel to write back earlier writes piece by piece.
    pub(crate) fn write_at(
        &self,
        offset: u64,
        bytes: &[u8],
        write_back: &mut WriteBack,
    ) -> Result<()> {
        self.file.write_at(offset, bytes)?;
        match write_back.wrote(offset, bytes.len()) {
            Some(step) => self.settle(|file| file.write_back(step.begin, step.wait_for)),
            None => Ok(()),
        }
    }

    /// Flushes, compactions and collections share the file, and the kernel reports lost bytes only
    /// once. After a sync or a write-back has failed for one of them, a later successful sync
    /// proves nothing (P7). The lock keeps a sync from running between a failure and its note.
    fn settle(
        &self,
        settle: impl FnOnce(&dyn StorageFile) -> runstone_storage::Result<()>,
    ) -> Result<()> {
        let mut failed = self.sync_failed.lock();
        if let Some(first) = &*failed {
            return Err(Error::Stopped { cause: Box::new(first.clone()) });
        }
        match settle(&*self.file).map_err(Error::from) {
            Err(_) if seeded!(FailedSyncIgnored) => Ok(()),
            outcome => outcome.map_err(|error| {
                *failed = Some(error.clone());
                error.of_failed_sync()
            }),
        }
    }

    /// The group to which a key's values are written.
    pub(crate) fn group_of(&self, key: &[u8]) -> u32 {
        let count = self.segments.len() as u128 - u128::from(self.cold.is_some());
        let hash = xxhash_rust::xxh3::xxh3_64_with_seed(key, self.uid);
        ((u128::from(hash) * count) >> 64) as u32
    }

    /// Whether a version of the key above `seq` has been written to the group that is being
    /// collected since it was closed.
    pub(crate) fn is_dirty(&self, key: &[u8], seq: SeqNo) -> bool {
        let state = self.state.lock();
        let written = state.dirty.as_ref().and_then(|(_, dirty)| dirty.get(key));
        written.is_some_and(|written| *written > seq)
    }

    pub(crate) fn has_group(&self, group: u32) -> bool {
        (group as usize) < self.segments.len()
    }

    /// The hash of a key for the groups' sketches. It is independent of the key's group.
    pub(crate) fn sketch_hash(key: &[u8]) -> u64 {
        xxhash_rust::xxh3::xxh3_64(key)
    }

    /// The seed of a segment's checksums.
    pub(crate) fn checksum_seed(&self, segment: &Segment) -> ChecksumSeed {
        ChecksumSeed::new(self.uid, segment.generation)
    }

    /// The offset of a segment in the file.
    pub(crate) fn position(&self, segment: &Segment) -> u64 {
        FIRST_SLOT + u64::from(segment.slot) * self.slot_bytes
    }

    pub(crate) fn unknown_group(&self, pointer: &Pointer) -> Error {
        self.corrupt(0, format!("a pointer names group {}", pointer.group))
    }

    pub(crate) fn corrupt(&self, offset: u64, what: impl Into<String>) -> Error {
        let error = Error::corruption(values_name(self.number), offset, what);
        self.lease.iter().fold(error, |error, lease| lease.explain(error))
    }

    /// The segments of a group, held so that their slots are not reused.
    pub(crate) fn load(&self, group: u32) -> Option<Segments> {
        self.segments.get(group as usize).map(ArcSwap::load)
    }

    /// Whether the record exists. Reads at most a footer.
    pub(crate) fn holds(&self, pointer: &Pointer) -> Result<bool> {
        let Some(group) = self.segments.get(pointer.group as usize) else { return Ok(false) };
        Ok(self.find(&group.load(), &mut Beside::default(), pointer.stream_offset)?.is_some())
    }

    /// Whether a compaction or collection that finds a record dead should note it. Records of hash
    /// groups and logs are always noted. In a cold stream whose pointers are written back, two jobs
    /// find the same record dead: the compaction that drops its pointer and the collection that
    /// drops its tag. If the record is already gone, the later job has nothing to note. If the
    /// record is collected between this check and the edit, the note is left over (see `emptiest`).
    pub(crate) fn may_note_dead(&self, pointer: &Pointer) -> bool {
        let is_placed = self.writes_back && self.cold == Some(pointer.group);
        self.has_group(pointer.group) && (!is_placed || self.holds(pointer).unwrap_or(true))
    }

    /// The segment and offset of a record, in the group or in the place that its tag names. If
    /// needed, it loads the segments of the cold stream into `beside`, but only after those of the
    /// group. Otherwise a tag could lead to a record that was added after the cold stream was
    /// loaded. O(log segments + log records of a segment).
    pub(crate) fn find(
        &self,
        segments: &SegmentList,
        beside: &mut Beside,
        stream_offset: u64,
    ) -> Result<Option<(Segment, u64)>> {
        let cold_offset = match self.find_in(segments, stream_offset)? {
            Some((segment, RecordPlace::Here(offset))) => return Ok(Some((segment, offset))),
            Some((_, RecordPlace::Cold(stream_offset))) => stream_offset,
            None if self.placement == ValuePlacement::Vlog => {
                return self.find_late(beside, stream_offset);
            }
            None => return Ok(None),
        };
        if beside.cold.is_none() {
            beside.cold = self.cold.and_then(|group| self.load(group));
        }
        let segments = beside.cold.as_ref().ok_or_else(|| self.corrupt(0, "a tag in a log"))?;
        match self.find_in(segments, cold_offset)? {
            Some((segment, RecordPlace::Here(offset))) => Ok(Some((segment, offset))),
            Some((segment, RecordPlace::Cold(_))) => {
                Err(self.corrupt(self.position(&segment), "a tag in the cold stream"))
            }
            None => Ok(None),
        }
    }

    /// The place of a record that may contain an early value. An edit may have named its segment
    /// after the segments of the log were loaded. Then they are loaded again.
    fn find_late(&self, beside: &mut Beside, stream_offset: u64) -> Result<Option<(Segment, u64)>> {
        if let Some(segment) = self.shown.read().of(stream_offset) {
            return Ok(Some((segment, stream_offset - segment.stream_offset)));
        }
        let Some(segments) = self.load(GROUP) else { return Ok(None) };
        match self.find_in(&segments, stream_offset)? {
            Some((segment, RecordPlace::Here(offset))) => {
                beside.later.push(segments);
                Ok(Some((segment, offset)))
            }
            _ => Ok(None),
        }
    }

    fn find_in(
        &self,
        segments: &SegmentList,
        stream_offset: u64,
    ) -> Result<Option<(Segment, RecordPlace)>> {
        let Some(segment) = segment_of(segments, stream_offset) else { return Ok(None) };
        let footer = segment.collected.then(|| self.footer(&segment)).transpose()?;
        Ok(place_in(&segment, footer.as_deref(), stream_offset).map(|place| (segment, place)))
    }

    /// The footer of a collected segment, from the cache or the file.
    pub(crate) fn footer(&self, segment: &Segment) -> Result<Arc<Footer>> {
        let key = CacheKey { uid: self.uid, offset: segment.generation };
        if let Some(Cached::Footer(footer)) = self.cache.get(key) {
            return Ok(footer);
        }
        let place = self.position(segment) + segment.bytes;
        let footer_bytes = footer_bytes(segment.records, segment.tags) as usize;
        let bytes = self.file.read_vec(place, footer_bytes)?;
        let seal = self.checksum_seed(segment);
        let footer = seal.take_footer(&bytes, segment.bytes, segment.stream_offset, segment.tags);
        let footer = footer.ok_or_else(|| self.corrupt(place, "a footer does not check"))?;
        let footer = Arc::new(footer);
        self.cache.insert(key, Cached::Footer(Arc::clone(&footer)));
        Ok(footer)
    }

    /// Refuses an edit that does not fit, before it is logged.
    pub(crate) fn check(&self, edit: &ValueEdit) -> Result<()> {
        let state = self.state.lock();
        let bad = |what| self.corrupt(0, format!("an edit does not fit: {what}"));
        edit.groups.iter().try_for_each(|group| {
            let old = state.layout.group(group.group).map_err(bad)?;
            old.apply(group, self.slot_bytes).map(drop).map_err(bad)
        })
    }

    /// Makes a logged (and checked) edit visible. The cold stream comes first, because a reader
    /// that sees a tag must find its record there.
    pub(crate) fn publish(&self, edit: &ValueEdit) {
        let mut state = self.state.lock();
        let first = if seeded!(TagsPublishedFirst) { None } else { self.cold };
        let is_first = |group: &&GroupEdit| Some(group.group) == first;
        let rest = edit.groups.iter().filter(|group| !is_first(group));
        for (i, group) in edit.groups.iter().filter(is_first).chain(rest).enumerate() {
            if i > 0 {
                reached!(GroupPublished);
            }
            let at = group.group as usize;
            let Some(Ok((next, gone))) =
                state.layout.groups.get(at).map(|old| old.apply(group, self.slot_bytes))
            else {
                unreachable!("the edit was checked under the manifest lock")
            };
            let segments = Arc::clone(&next.segments);
            let old = std::mem::replace(&mut state.layout.groups[at], next).segments;
            self.segments[at].store(segments);
            if !gone.is_empty() || Arc::strong_count(&old) > 1 {
                let slots: u64 = gone.iter().map(|segment| u64::from(segment.slots)).sum();
                let left_at = state.leases.last();
                state.leases.count_freed(left_at, slots * self.slot_bytes);
                state.leaving.push_back(Leaving { segments: old, gone, left_at });
            }
            if group.collected.is_none()
                && let Some((_, fresh)) = state.fresh.as_mut().filter(|(g, _)| *g == group.group)
            {
                fresh.merge(&group.keys);
            }
        }
    }

    /// Bytes in all groups that, as collections have found, only snapshots keep.
    pub(crate) fn all_pinned_bytes(&self, readers: &Readers) -> u64 {
        let mut state = self.state.lock();
        state.held.release(readers.oldest_epoch);
        (0..state.layout.groups.len() as u32).map(|group| state.pinned_bytes(group, readers)).sum()
    }

    /// The number of slots up to which no collection is needed: the slots of the capacity, or of
    /// the live data and the reserve.
    pub(crate) fn limit_slots(&self, state: &FileState, options: &ValueOptions) -> u64 {
        let groups = &state.layout.groups;
        let follows = options.capacity_bytes == 0;
        let capacity = match follows {
            false => options.capacity_bytes,
            true => groups.iter().map(|g| g.bytes().saturating_sub(g.garbage_bytes())).sum(),
        };
        let with_reserve = u128::from(capacity) * u128::from(1000 + options.reserve.parts()) / 1000;
        let slots = (with_reserve / u128::from(self.slot_bytes)) as u64;
        // Each group may have one slot that is being filled, and another that a collection left
        // half full.
        let in_use = groups.iter().filter(|group| group.records() > 0).count() as u64;
        let in_use = in_use.max(state.layout.group_count().into());
        slots + self.shown.read().slots() + if follows { 2 * in_use } else { 0 }
    }

    /// Bytes that the file takes on disk. Free slots that were punched take none.
    pub(crate) fn file_bytes(&self) -> u64 {
        let whole = || FIRST_SLOT + u64::from(self.state.lock().pool.end()) * self.slot_bytes;
        self.file.disk_bytes().unwrap_or_else(|_| whole())
    }

    /// Cuts free slots off the end of the file. With `punch`, it punches the other free slots too.
    /// Space that will soon be needed again should be kept, because overwriting is faster than
    /// allocating blocks.
    pub(crate) fn shrink(&self, punch: bool) -> Result<()> {
        let mut state = self.state.lock();
        state.reclaim();
        let before = state.pool.end();
        let end = state.pool.cut_end();
        if end < before && self.file.len()? > FIRST_SLOT + u64::from(end) * self.slot_bytes {
            self.file.set_len(FIRST_SLOT + u64::from(end) * self.slot_bytes)?;
        }
        drop(state);
        let mut from = 0;
        while punch && let Some(last) = self.punch_some(from)? {
            from = last + 1;
        }
        Ok(())
    }

    /// Punches some free slots, from this slot on, and returns the last of them. It skips slots
    /// that are punched already. Other threads can take the lock between two calls.
    fn punch_some(&self, from: u32) -> Result<Option<u32>> {
        let mut state = self.state.lock();
        let slots: Vec<u32> = state.pool.unpunched(from).take(PUNCHED_AT_ONCE).collect();
        for slot in &slots {
            self.file.punch(FIRST_SLOT + u64::from(*slot) * self.slot_bytes, self.slot_bytes)?;
            state.pool.note_punched(*slot);
        }
        Ok(slots.last().copied())
    }

    /// Copies the segments that a layout names to a file of the same name.
    pub(crate) fn copy_to(&self, layout: &Layout, target: &dyn Storage) -> Result<()> {
        let file = target.create(&values_name(self.number), Category::Value)?;
        file.write_at(0, &header(layout.slot_bytes, self.uid))?;
        let mut buffer = Vec::new();
        for segment in layout.groups.iter().flat_map(|group| group.segments.iter()) {
            buffer.resize(segment.stored_bytes() as usize, 0);
            let position = self.position(segment);
            self.file.read_at(position, &mut buffer)?;
            file.write_at(position, &buffer)?;
        }
        Ok(file.sync()?)
    }
}

impl FileState {
    /// A new segment of `slots` for records of `group`, with room for them in its stream.
    pub(crate) fn take(&mut self, group: u32, slots: u32, slot_bytes: u64) -> Result<Segment> {
        self.reclaim();
        let full = || {
            Error::invalid(
                "a value file has 2^32 slots or its stream 2^64 bytes",
                "raise values.slot_bytes in a keyspace of its own",
            )
        };
        let stream_end = self.layout.groups[group as usize].stream_end;
        let end = stream_end.checked_add(u64::from(slots) * slot_bytes).ok_or_else(full)?;
        let slot = self.pool.take(slots).ok_or_else(full)?;
        self.layout.groups[group as usize].stream_end = end;
        Ok(Segment { stream_offset: stream_end, ..self.output(slot, slots) })
    }

    /// A new segment for the output of a collection, which keeps the stream offsets of its records.
    pub(crate) fn take_output(&mut self, slots: u32) -> Result<Segment> {
        self.reclaim();
        let slot = self.pool.take(slots).ok_or_else(|| {
            Error::invalid("a value file has 2^32 slots", "raise values.slot_bytes")
        })?;
        Ok(Segment { collected: true, ..self.output(slot, slots) })
    }

    pub(super) fn output(&mut self, slot: u32, slots: u32) -> Segment {
        let generation = self.next_generation;
        self.next_generation += 1;
        Segment {
            slot,
            slots,
            collected: false,
            generation,
            stream_offset: 0,
            bytes: 0,
            records: 0,
            tags: 0,
            cold_bytes: 0,
        }
    }

    /// Frees the slots that no reader needs any more.
    pub(crate) fn reclaim(&mut self) {
        let left_at = self.found_free.as_ref().map(|(left_at, _)| *left_at);
        if left_at.is_some_and(|left_at| self.leases.may_free(left_at)) {
            self.give_found(0..u32::MAX);
            self.found_free = None;
        }
        // In order, because earlier lists may name the same slots.
        let leases = &self.leases;
        let may_go = |one: &Leaving| {
            let unheld = Arc::strong_count(&one.segments) == 1 || seeded!(SlotsFreedEarly);
            unheld && leases.may_free(one.left_at)
        };
        while self.leaving.front().is_some_and(may_go)
            && let Some(one) = self.leaving.pop_front()
        {
            let slots: u64 = one.gone.iter().map(|segment| u64::from(segment.slots)).sum();
            leases.count_taken(one.left_at, slots * u64::from(self.layout.slot_bytes));
            for segment in one.gone {
                self.pool.give(segment.slot, segment.slots);
            }
        }
    }

    /// Whether free slots are withheld for readers that may need them.
    pub(crate) fn waits_for_readers(&self) -> bool {
        self.found_free.is_some() || !self.leaving.is_empty()
    }

    /// Bytes of a group that, as far as known, only snapshots keep. The caller has released what
    /// these readers no longer hold. O(readers + condemned segments).
    pub(crate) fn pinned_bytes(&self, group: u32, readers: &Readers) -> u64 {
        let points = &readers.points;
        if self.condemned.front().is_some_and(|front| front.group == group) {
            return self.condemned_bytes(points);
        }
        let held = self.held.bytes_of(group);
        match self.pinned.get(&group) {
            Some((bytes, by)) if readers.include(by) => held + *bytes,
            _ => held,
        }
    }
}

/// The segment that covers this stream offset, if there is one.
pub(crate) fn segment_of(segments: &SegmentList, stream_offset: u64) -> Option<Segment> {
    segments.at_or_before(stream_offset).copied()
}

/// The place of the record with this stream offset in its segment. If the segment is collected, its
/// footer is needed.
pub(crate) fn place_in(
    segment: &Segment,
    footer: Option<&Footer>,
    stream_offset: u64,
) -> Option<RecordPlace> {
    if let Some(footer) = footer {
        return footer.find(stream_offset);
    }
    let offset = stream_offset - segment.stream_offset;
    (offset < segment.bytes).then_some(RecordPlace::Here(offset))
}

/// Checks that every committed byte lies inside the file.
fn check_length(layout: &Layout, len: u64) -> Result<()> {
    let segments = layout.groups.iter().flat_map(|group| group.segments.iter());
    let slot_bytes = u64::from(layout.slot_bytes);
    let end_of = |segment: &Segment| {
        FIRST_SLOT + u64::from(segment.slot) * slot_bytes + segment.stored_bytes()
    };
    match segments.map(end_of).max().filter(|end| *end > len) {
        None => Ok(()),
        Some(end) => {
            let what = format!("the file is cut short: {end} bytes are needed");
            Err(Error::corruption(values_name(layout.number), len, what))
        }
    }
}

pub(crate) fn header(slot_bytes: u32, uid: u64) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend_from_slice(&VALUE_FORMAT.to_le_bytes());
    bytes.extend_from_slice(&slot_bytes.to_le_bytes());
    bytes.extend_from_slice(&uid.to_le_bytes());
    let sum = xxhash_rust::xxh3::xxh3_64(&bytes) as u32;
    bytes.extend_from_slice(&sum.to_le_bytes());
    bytes.resize(FIRST_SLOT as usize, 0);
    bytes
}

/// The size of the slots of a file, as its header states it; `None` if it is not a value file with
/// this uid.
pub(crate) fn slot_bytes_of(file: &dyn StorageFile, uid: u64, number: u64) -> Result<Option<u64>> {
    let mut bytes = [0; 28];
    if file.len()? < FIRST_SLOT {
        return Ok(None);
    }
    file.read_at(0, &mut bytes)?;
    let Some(slot_bytes) = u32_at(&bytes, 12) else { return Ok(None) };
    let is_own = check_header(&bytes, slot_bytes, uid, &values_name(number)).is_ok();
    Ok(is_own.then_some(slot_bytes.into()))
}

/// Checks that a file has the header that its layout requires, and returns its length.
pub(crate) fn check_file(file: &dyn StorageFile, layout: &Layout, uid: u64) -> Result<u64> {
    let name = values_name(layout.number);
    let mut bytes = [0; 28];
    let len = file.len()?;
    if len < FIRST_SLOT {
        return Err(Error::corruption(name, len, "the file is cut short"));
    }
    file.read_at(0, &mut bytes)?;
    check_header(&bytes, layout.slot_bytes, uid, &name)?;
    Ok(len)
}

fn check_header(bytes: &[u8; 28], slot_bytes: u32, uid: u64, name: &str) -> Result<()> {
    let bad = |what: &str| Err(Error::corruption(name, 0, what));
    let sum = u32_at(bytes, 24);
    if &bytes[..8] != MAGIC || sum != Some(xxhash_rust::xxh3::xxh3_64(&bytes[..24]) as u32) {
        return bad("the header does not check");
    }
    match u32_at(bytes, 8) {
        Some(VALUE_FORMAT) => {}
        Some(found) => {
            let (file, supported) = (name.to_string(), VALUE_FORMAT);
            return Err(Error::NewerFormat { file, found, supported });
        }
        None => return bad("the header is cut short"),
    }
    if u64_at(bytes, 16) != Some(uid) {
        return bad("the file is of another store");
    }
    if u32_at(bytes, 12) != Some(slot_bytes) {
        return bad("the slots have another size than the manifest says");
    }
    Ok(())
}
