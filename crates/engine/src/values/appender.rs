//! Appends the values of one flush, compaction or collection to a value file.
//!
//! 1. `append` gives each record its place in its group's stream and buffers it (`buffers`). A full
//!    buffer is written.
//! 2. `finish` writes the rest and syncs the file once. The edit that it returns goes into the same
//!    manifest record as the tables that point to the records.
//! 3. After the edit has been published, `commit` hands the segments that are not full over to the
//!    next appender. An appender that is dropped earlier leaves nothing behind: its slots are free
//!    again, and bytes that it wrote after the end of a known segment are not part of that segment.
//!
//! Several appenders may run concurrently, because a segment with room belongs to only one of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use runstone_policy::sketch::Sketch;

use crate::cache::Reservation;
use crate::error::{Error, Result};
use crate::format::record::{Pointer, placed_tag_bytes, record_bytes, tag_bytes};
use crate::keys::SeqNo;
use crate::pace::write_back::WriteBack;
use crate::values::buffers::{Buffers, GROUP_BYTES, Pages};
use crate::values::file::ValueFile;
use crate::values::layout::{GroupEdit, Segment, ValueEdit};
use crate::values::liveness::Tag;

/// All buffers of an appender are written when they hold this fraction of the memory budget, and
/// more than the least.
const BUFFERED_FRACTION: u64 = 32;
const LEAST_BUFFERED_BYTES: u64 = 1 << 20;

/// Buffers are charged to the memory budget in steps of this many bytes.
const CHARGED_BYTES: usize = 256 << 10;

/// Adds records to a value file.
#[derive(Debug)]
pub(crate) struct Appender {
    store: Arc<ValueFile>,
    groups: BTreeMap<u32, GroupWriter>,
    /// The group that is being collected. The collection must learn which keys are written to it.
    /// No other group is closed while an appender exists.
    watched: Option<u32>,
    written_keys: Vec<(Vec<u8>, SeqNo)>,
    committed: bool,
    buffers: Buffers,
    /// The record that is being encoded.
    record: Vec<u8>,
    charged: usize,
    charge: Option<Reservation>,
    /// Bytes of the records that were appended.
    pub(crate) bytes: u64,
}

/// The kind of record that a version leaves in a group.
#[derive(Clone, Copy, Debug)]
enum What<'a> {
    Value(&'a [u8]),
    Marker,
    Tag(Tag),
}

impl What<'_> {
    fn record_bytes(&self, key_bytes: usize) -> u64 {
        match self {
            What::Value(value) => record_bytes(key_bytes, value.len()),
            What::Marker => record_bytes(key_bytes, 0),
            What::Tag(_) => placed_tag_bytes(key_bytes),
        }
    }
}

#[derive(Debug)]
struct GroupWriter {
    /// The segment that is being filled.
    open: Option<Segment>,
    /// Segments that are full.
    full: Vec<Segment>,
    /// The open segment that the appender took over, as it was then.
    found: Option<Segment>,
    /// Bytes of `open` that are not written yet.
    pages: Pages,
    write_back: WriteBack,
    keys: Sketch,
}

impl Appender {
    pub(crate) fn new(store: &Arc<ValueFile>) -> Appender {
        let mut state = store.state.lock();
        state.appenders += 1;
        let watched = state.dirty.as_ref().map(|(group, _)| *group);
        drop(state);
        let (groups, written_keys) = (BTreeMap::new(), Vec::new());
        let store = Arc::clone(store);
        let most_buffered = (store.cache.bytes() / BUFFERED_FRACTION).max(LEAST_BUFFERED_BYTES);
        Appender {
            store,
            groups,
            watched,
            written_keys,
            committed: false,
            buffers: Buffers::new(most_buffered as usize),
            record: Vec::new(),
            charged: 0,
            charge: None,
            bytes: 0,
        }
    }

    /// An appender for the copies of a collection. The collection need not learn the keys of its
    /// own copies.
    pub(crate) fn of_copies(store: &Arc<ValueFile>) -> Appender {
        let mut appender = Appender::new(store);
        appender.watched = None;
        appender
    }

    /// The file that the appender appends to.
    pub(crate) fn store(&self) -> &Arc<ValueFile> {
        &self.store
    }

    /// Whether anything was appended.
    pub(crate) fn writes_any(&self) -> bool {
        !self.groups.is_empty()
    }

    /// Appends one version of a key.
    pub(crate) fn append(&mut self, key: &[u8], seq: SeqNo, value: &[u8]) -> Result<Pointer> {
        self.append_to(self.store.group_of(key), key, seq, value)
    }

    /// Appends to a group that need not be the key's, such as the cold stream.
    pub(crate) fn append_to(
        &mut self,
        group: u32,
        key: &[u8],
        seq: SeqNo,
        value: &[u8],
    ) -> Result<Pointer> {
        let stream_offset = self.append_record(group, key, seq, What::Value(value))?;
        let value_bytes = value.len() as u32;
        Ok(Pointer { store: self.store.number, group, stream_offset, value_bytes })
    }

    /// Marks in the key's group that this version is a deletion or is inline. This is done only if
    /// collections decide by the group alone and write pointers: without the marker, an older
    /// record would look live to them.
    pub(crate) fn mark(&mut self, key: &[u8], seq: SeqNo) -> Result<()> {
        if self.store.writes_back && !seeded!(VersionsNotMarked) {
            self.append_record(self.store.group_of(key), key, seq, What::Marker)?;
        }
        Ok(())
    }

    /// Appends to the key's group a tag that names the record of this version in the cold stream.
    pub(crate) fn tag(&mut self, key: &[u8], seq: SeqNo, tag: Tag) -> Result<()> {
        self.append_record(self.store.group_of(key), key, seq, What::Tag(tag)).map(drop)
    }

    /// Appends a record, a marker or a tag, and returns its stream offset.
    fn append_record(&mut self, group: u32, key: &[u8], seq: SeqNo, what: What<'_>) -> Result<u64> {
        if self.watched == Some(group) {
            self.written_keys.push((key.to_vec(), seq));
        }
        let bytes = what.record_bytes(key.len());
        self.make_room(group, bytes as usize)?;
        let writer = self.groups.entry(group).or_insert_with(|| {
            let found = self.store.state.lock().open.remove(&group);
            GroupWriter {
                open: found,
                found,
                full: Vec::new(),
                pages: Pages::default(),
                write_back: WriteBack::default(),
                keys: Sketch::of_nothing(),
            }
        });
        self.bytes += bytes;
        if !matches!(what, What::Marker) {
            // A marker keeps nothing alive, so its key does not count as a key of the group.
            writer.keys.add(ValueFile::sketch_hash(key));
        }
        let segment = writer.segment_for(&self.store, &mut self.buffers, group, bytes)?;
        let (offset, large) = (segment.bytes, segment.slots > 1);
        let place = self.store.position(segment) + offset;
        let (seal, stream_offset) =
            (self.store.checksum_seed(segment), segment.stream_offset + offset);
        segment.bytes += bytes;
        segment.records += 1;
        if let What::Tag(tag) = what {
            segment.tags += 1;
            segment.cold_bytes += u64::from(tag.bytes);
        }
        let out = &mut self.record;
        out.clear();
        match what {
            What::Value(value) => seal.put(out, offset, seq, key, value),
            What::Marker => seal.put_marker(out, offset, seq, key),
            What::Tag(tag) => {
                let value_bytes = tag.bytes.saturating_sub(tag_bytes(key.len()) as u32);
                seal.put_placed_tag(out, offset, seq, key, (tag.stream_offset, value_bytes));
            }
        }
        let is_apart = large || out.len() > GROUP_BYTES;
        if is_apart || self.buffers.add(&mut writer.pages, out).is_none() {
            // It has no room in a buffer, or there is no memory for buffers.
            debug_assert_eq!(writer.pages.bytes(), 0, "what comes before it is not written");
            self.store.write_at(place, out, &mut writer.write_back)?;
            out.shrink_to(GROUP_BYTES);
        }
        if large {
            writer.full.extend(writer.open.take());
        }
        self.charge();
        Ok(stream_offset)
    }

    /// Takes the buffers' memory from the budget until the appender is dropped.
    fn charge(&mut self) {
        while self.charged < self.buffers.most_bytes() {
            self.charged += CHARGED_BYTES;
            let more = self.store.cache.pin(CHARGED_BYTES as u64);
            match &mut self.charge {
                Some(charge) => charge.merge(more),
                None => self.charge = Some(more),
            }
        }
    }

    /// Writes buffers that have no room for `bytes` more bytes of a group.
    fn make_room(&mut self, group: u32, bytes: usize) -> Result<()> {
        let mut none = Pages::default();
        if let Some(writer) = self.groups.get_mut(&group)
            && writer.pages.bytes() + bytes > GROUP_BYTES
        {
            writer.write_out(&self.store, &mut self.buffers)?;
        }
        let pages = self.groups.get_mut(&group).map_or(&mut none, |writer| &mut writer.pages);
        if !self.buffers.has_room(pages, bytes) && bytes <= GROUP_BYTES {
            for writer in self.groups.values_mut() {
                writer.write_out(&self.store, &mut self.buffers)?;
            }
        }
        Ok(())
    }

    /// Writes and syncs everything. Returns the edit that makes it part of the file.
    pub(crate) fn finish(&mut self) -> Result<ValueEdit> {
        for writer in self.groups.values_mut() {
            writer.write_out(&self.store, &mut self.buffers)?;
        }
        if !self.groups.is_empty() && !seeded!(AppendsNotSynced) {
            self.store.sync()?;
        }
        let mut state = self.store.state.lock();
        if let Some((_, dirty)) = state.dirty.as_mut().filter(|_| !seeded!(WrittenKeysForgotten)) {
            for (key, seq) in self.written_keys.drain(..) {
                let newest = dirty.entry(key).or_default();
                *newest = seq.max(*newest);
            }
        }
        let groups = self.groups.iter().map(|(group, writer)| GroupEdit {
            group: *group,
            stream_end: state.layout.groups[*group as usize].stream_end,
            place: writer.full.iter().chain(&writer.open).copied().collect(),
            keys: writer.keys.clone(),
            ..GroupEdit::default()
        });
        Ok(ValueEdit { store: self.store.number, groups: groups.collect() })
    }

    /// Hands the segments that are not full over to the next appender, after the edit has been
    /// published.
    pub(crate) fn commit(mut self) {
        let mut state = self.store.state.lock();
        for (group, writer) in &self.groups {
            let open = writer.open.filter(|open| open.bytes < self.store.slot_bytes);
            if let Some(open) = open {
                state.open.entry(*group).or_insert(open);
            }
        }
        drop(state);
        self.committed = true;
    }

    /// Keeps the slots, because nobody knows whether the edit that names them was logged.
    pub(crate) fn abandon(mut self) {
        self.committed = true;
    }
}

impl Drop for Appender {
    fn drop(&mut self) {
        let mut state = self.store.state.lock();
        state.appenders -= 1;
        if !self.committed {
            for (group, writer) in &self.groups {
                let found = writer.found.map(|segment| segment.generation);
                for segment in writer.full.iter().chain(&writer.open) {
                    if Some(segment.generation) != found {
                        state.pool.give(segment.slot, segment.slots);
                    }
                }
                if let Some(found) = writer.found {
                    state.open.entry(*group).or_insert(found);
                }
            }
        }
        drop(state);
        self.store.ended.notify_all();
    }
}

impl GroupWriter {
    /// The segment that a record of this many bytes goes to. A record that is larger than a slot
    /// gets an extent of its own.
    fn segment_for(
        &mut self,
        store: &ValueFile,
        buffers: &mut Buffers,
        group: u32,
        bytes: u64,
    ) -> Result<&mut Segment> {
        let fits = self.open.is_some_and(|open| open.bytes + bytes <= store.slot_bytes);
        if !fits {
            self.write_out(store, buffers)?;
            self.full.extend(self.open.take());
            let slots = u32::try_from(bytes.div_ceil(store.slot_bytes)).map_err(|_| {
                Error::invalid("a value takes 2^32 slots", "raise values.slot_bytes")
            })?;
            let segment = store.state.lock().take(group, slots, store.slot_bytes)?;
            let position = store.position(&segment);
            self.open = Some(segment);
            store.file.allocate(position, u64::from(slots) * store.slot_bytes)?;
        }
        self.open.as_mut().ok_or_else(|| store.corrupt(0, "no segment is open"))
    }

    /// Writes the buffered bytes of the open segment.
    fn write_out(&mut self, store: &ValueFile, buffers: &mut Buffers) -> Result<()> {
        let Some(open) = self.open.filter(|_| self.pages.bytes() > 0) else { return Ok(()) };
        let at = store.position(&open) + open.bytes - self.pages.bytes() as u64;
        store.write_at(at, buffers.take(&mut self.pages), &mut self.write_back)
    }
}
