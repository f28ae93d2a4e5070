//! Early values: values that are in their file before their writes are in the log. Such a write is
//! logged with the place of its value, so the value is written only once (WiscKey §3.2 appends
//! values first).
//!
//! 1. Before a batch has sequence numbers, its large values are appended to segments that nobody
//!    else fills meanwhile (`append_early`). The operating system has the values when the batch is
//!    logged. Their records have the sequence number 0.
//! 2. The batch is logged and inserted with pointers. A sync of the log syncs the file first.
//! 3. A flush syncs the file, and its edit names the records that were appended since the last such
//!    edit. Until then only the log leads to these records. After a crash, a replay of the log
//!    finds them (`values/found.rs`).
//!
//! `docs/design/value-files.md` lists the hazards, and the rule against each.

use std::collections::BTreeMap;
use std::sync::Arc;

use runstone_policy::sketch::Sketch;

use crate::error::{Error, Result};
use crate::format::record::{Pointer, record_bytes};
use crate::keys::SeqNo;
use crate::keys::codec::{Decoded, Reader, Truncated, put_varint, take_u32, u32_at};
use crate::values::file::ValueFile;
use crate::values::layout::{GroupEdit, Segment, ValueEdit};

/// The sequence number of records that were appended before their write had a sequence number.
pub(crate) const UNNUMBERED_SEQ: SeqNo = 0;

/// The only group of a log.
pub(super) const GROUP: u32 = 0;

/// The place of a record, as the log records it. Together with the pointer's stream offset, it
/// identifies the segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EarlyPlace {
    pub(crate) slot: u32,
    pub(crate) slots: u32,
    pub(crate) generation: u64,
    /// Offset in the segment.
    pub(crate) offset: u64,
    /// The checksum of the record. Without it, a later record in the same place could be mistaken
    /// for this record.
    pub(crate) checksum: u32,
}

impl EarlyPlace {
    fn encode(&self, out: &mut Vec<u8>) {
        out.clear();
        for number in [self.slot.into(), self.slots.into(), self.generation, self.offset] {
            put_varint(out, number);
        }
        out.extend_from_slice(&self.checksum.to_le_bytes());
    }

    pub(crate) fn decode(bytes: &[u8]) -> Decoded<EarlyPlace> {
        let mut reader = Reader::new(bytes);
        let (slot, slots) = (take_u32(&mut reader)?, take_u32(&mut reader)?);
        let (generation, offset) = (reader.take_varint()?, reader.take_varint()?);
        let rest = reader.remaining();
        let checksum = u32_at(bytes, bytes.len() - rest).filter(|_| rest == 4);
        Ok(EarlyPlace { slot, slots, generation, offset, checksum: checksum.ok_or(Truncated)? })
    }
}

/// The segments with records that no edit names yet, or whose writes are under way.
#[derive(Debug, Default)]
pub(crate) struct Early {
    /// The segments, by generation.
    pub(super) segments: BTreeMap<u64, EarlySegment>,
    /// The segment that is being filled.
    open: Option<u64>,
    /// Records whose batches are under way.
    under_way: usize,
    buffer: Vec<u8>,
    /// Records whose batches failed: their stream offsets and bytes.
    dead: Vec<(u64, u32)>,
    /// Bytes of such records since an edit last named some.
    refused_bytes: u64,
    /// The last sequence number of the batches that have early values.
    last_seq: SeqNo,
    /// Whether the log may have pointers to early values.
    pub(super) is_used: bool,
    /// The last sequence number of a write whose value a replay found; 0 if there is none.
    pub(super) found_seq: SeqNo,
    /// Whether the store is closed: the file may belong to another process.
    is_closed: bool,
}

/// The segments of early values that readers see, by stream offset. Each is shown as if it were
/// full. That is safe, because there is a pointer to a record only once the record is written.
#[derive(Debug, Default)]
pub(crate) struct Shown {
    segments: BTreeMap<u64, Segment>,
    slots: u64,
}

impl Shown {
    pub(super) fn add(&mut self, segment: Segment, slot_bytes: u64) {
        let bytes = u64::from(segment.slots) * slot_bytes;
        self.segments.insert(segment.stream_offset, Segment { bytes, ..segment });
        self.slots += u64::from(segment.slots);
    }

    fn remove(&mut self, stream_offset: u64) {
        let gone = self.segments.remove(&stream_offset);
        self.slots -= gone.map_or(0, |segment| u64::from(segment.slots));
    }

    /// The segment that covers this stream offset.
    pub(super) fn of(&self, stream_offset: u64) -> Option<Segment> {
        let (from, segment) = self.segments.range(..=stream_offset).next_back()?;
        (stream_offset - from < segment.bytes).then_some(*segment)
    }

    /// The number of slots of all these segments.
    pub(super) fn slots(&self) -> u64 {
        self.slots
    }
}

#[derive(Debug)]
pub(super) struct EarlySegment {
    pub(super) segment: Segment,
    /// The bytes of the segment that an edit has named.
    pub(super) named_bytes: u64,
    /// Records whose batches are under way.
    in_flight: usize,
    /// The keys of the segment's records.
    pub(super) keys: Sketch,
    /// Whether a replay found the segment. Then no further edit names it.
    pub(super) is_found: bool,
}

impl EarlySegment {
    pub(super) fn new(segment: Segment) -> EarlySegment {
        EarlySegment {
            named_bytes: segment.bytes,
            segment,
            in_flight: 0,
            keys: Sketch::of_nothing(),
            is_found: false,
        }
    }
}

/// The values of a batch that are in the file. While this object exists, their segments are not
/// collected.
#[derive(Debug)]
pub(crate) struct EarlyWrites {
    store: Arc<ValueFile>,
    records: Vec<EarlyRecord>,
    last_seq: Option<SeqNo>,
}

#[derive(Clone, Copy, Debug)]
struct EarlyRecord {
    pointer: Pointer,
    place: EarlyPlace,
    bytes: u64,
}

impl EarlyWrites {
    /// Encodes the pointer to a record, and the record's place.
    pub(crate) fn encode(&self, index: usize, pointer: &mut Vec<u8>, place: &mut Vec<u8>) {
        self.records[index].pointer.encode(pointer);
        self.records[index].place.encode(place);
    }

    /// Bytes of the records of these values.
    pub(crate) fn bytes(&self) -> u64 {
        self.records.iter().map(|one| one.bytes).sum()
    }

    /// Notes that the batch is visible, up to this sequence number.
    pub(crate) fn committed(&mut self, last_seq: SeqNo) {
        self.last_seq = Some(last_seq);
    }
}

impl Drop for EarlyWrites {
    fn drop(&mut self) {
        let mut early = self.store.early.lock();
        early.under_way -= self.records.len();
        for one in &self.records {
            early.end_one(&self.store, one.place.generation);
        }
        match self.last_seq {
            Some(last_seq) => early.last_seq = early.last_seq.max(last_seq),
            None => {
                let dead = |one: &EarlyRecord| (one.pointer.stream_offset, one.bytes as u32);
                early.dead.extend(self.records.iter().map(dead));
                early.refused_bytes += self.bytes();
            }
        }
    }
}

impl Early {
    /// Appends records, and notes each record once the operating system has it.
    fn append(
        &mut self,
        store: &ValueFile,
        mut records: &[(&[u8], &[u8])],
        written: &mut Vec<EarlyRecord>,
    ) -> Result<()> {
        while let Some((key, value)) = records.first() {
            let segment = self.segment_for(store, record_bytes(key.len(), value.len()))?;
            let (seal, position) = (store.checksum_seed(&segment), store.position(&segment));
            let room = u64::from(segment.slots) * store.slot_bytes - segment.bytes;
            let (mut places, mut buffer) = (Vec::new(), std::mem::take(&mut self.buffer));
            buffer.clear();
            for (key, value) in records {
                let (from, bytes) = (buffer.len() as u64, record_bytes(key.len(), value.len()));
                if from + bytes > room {
                    break;
                }
                seal.put(&mut buffer, segment.bytes + from, UNNUMBERED_SEQ, key, value);
                let checksum = u32_at(&buffer, from as usize).unwrap_or_default();
                places.push((segment.bytes + from, bytes, checksum));
            }
            let outcome = store.file.write_at(position + segment.bytes, &buffer);
            self.buffer = buffer;
            self.buffer.shrink_to(MOST_KEPT_BYTES);
            outcome.inspect_err(|_| self.give_back(store, &segment))?;
            let (those, rest) = records.split_at(places.len());
            self.under_way += those.len();
            let Some(one) = self.segments.get_mut(&segment.generation) else {
                return Err(store.corrupt(position, "no segment is open"));
            };
            for ((key, value), (offset, bytes, checksum)) in those.iter().zip(places) {
                one.note(key, offset + bytes);
                let (store, group) = (store.number, GROUP);
                let stream_offset = segment.stream_offset + offset;
                let value_bytes = value.len() as u32;
                let pointer = Pointer { store, group, stream_offset, value_bytes };
                let Segment { slot, slots, generation, .. } = segment;
                let place = EarlyPlace { slot, slots, generation, offset, checksum };
                written.push(EarlyRecord { pointer, place, bytes });
            }
            records = rest;
        }
        Ok(())
    }

    /// The segment for a record of this many bytes. A record that is larger than a slot gets an
    /// extent of its own.
    fn segment_for(&mut self, store: &ValueFile, bytes: u64) -> Result<Segment> {
        let open = self.open.and_then(|open| self.segments.get(&open)).map(|one| one.segment);
        if let Some(open) = open.filter(|open| open.bytes + bytes <= store.slot_bytes) {
            return Ok(open);
        }
        let slots = u32::try_from(bytes.div_ceil(store.slot_bytes))
            .map_err(|_| Error::invalid("a value takes 2^32 slots", "raise values.slot_bytes"))?;
        let segment = store.take_early(slots, bytes)?;
        self.segments.insert(segment.generation, EarlySegment::new(segment));
        let full = if slots == 1 { self.open.replace(segment.generation) } else { None };
        full.into_iter().for_each(|full| self.let_go(store, full));
        Ok(segment)
    }

    /// Gives back a segment that was taken for one large record, which could not be written.
    fn give_back(&mut self, store: &ValueFile, segment: &Segment) {
        if segment.bytes == 0 && self.open != Some(segment.generation) {
            self.segments.remove(&segment.generation);
            store.shown.write().remove(segment.stream_offset);
            store.state.lock().pool.give(segment.slot, segment.slots);
        }
    }

    /// Notes that the batch of one record is over.
    fn end_one(&mut self, store: &ValueFile, generation: u64) {
        if let Some(one) = self.segments.get_mut(&generation) {
            one.in_flight -= 1;
            self.let_go(store, generation);
        }
    }

    /// Releases a segment if an edit has named all of it and no batch in it is under way. If it has
    /// room, the next appender continues it. If it were kept, it would block collections for as
    /// long as nobody writes early values.
    fn let_go(&mut self, store: &ValueFile, generation: u64) {
        let Some(one) = self.segments.get(&generation) else { return };
        let may_go = one.in_flight == 0 || seeded!(EarlyValuesCollectedUnderWay);
        if !may_go || one.named_bytes < one.segment.bytes || one.segment.bytes == 0 {
            return;
        }
        let segment = one.segment;
        self.segments.remove(&generation);
        let mut state = store.state.lock();
        if self.open == Some(generation) {
            self.open = None;
            if segment.bytes < store.slot_bytes {
                state.open.entry(GROUP).or_insert(segment);
            }
        }
        store.shown.write().remove(segment.stream_offset);
    }
}

/// Refused batches cause no flush, so nothing would make the space of their values known. Once
/// their values exceed this many bytes, new values stay in the log until there is a flush.
const MOST_REFUSED_BYTES: u64 = 1 << 20;

/// The memory that is kept for the records of the next batch.
const MOST_KEPT_BYTES: usize = 256 << 10;

impl EarlySegment {
    /// Notes a record that ends at this offset, and whose batch is under way.
    fn note(&mut self, key: &[u8], end: u64) {
        self.segment.bytes = end;
        self.segment.records += 1;
        self.in_flight += 1;
        self.keys.add(ValueFile::sketch_hash(key));
    }
}

impl ValueFile {
    /// Appends the values of a batch, given as keys and values, in order. `None` if the file is
    /// retired, or has too many values of refused batches.
    pub(crate) fn append_early(
        self: &Arc<Self>,
        records: &[(&[u8], &[u8])],
    ) -> Result<Option<EarlyWrites>> {
        let mut early = self.early.lock();
        if early.is_closed {
            return Err(Error::Closed);
        }
        if self.retired_at() != 0 || early.refused_bytes > MOST_REFUSED_BYTES {
            return Ok(None);
        }
        early.is_used = true;
        let mut written = Vec::with_capacity(records.len());
        let outcome = early.append(self, records, &mut written);
        drop(early);
        // If it is dropped after an error, it takes its records back.
        let writes = EarlyWrites { store: Arc::clone(self), records: written, last_seq: None };
        outcome.map(|()| Some(writes))
    }

    /// Refuses every later batch, and waits for appends that run.
    pub(crate) fn close_early(&self) {
        self.early.lock().is_closed = true;
    }

    /// A segment with room for a record of early values: the log's open segment if it has room,
    /// otherwise a new one. Readers see the segment at once.
    fn take_early(&self, slots: u32, bytes: u64) -> Result<Segment> {
        let mut state = self.state.lock();
        let has_room = |open: &Segment| open.bytes + bytes <= self.slot_bytes;
        if state.open.get(&GROUP).is_some_and(has_room)
            && let Some(open) = state.open.remove(&GROUP)
        {
            self.shown.write().add(open, self.slot_bytes);
            return Ok(open);
        }
        let segment = state.take(GROUP, slots, self.slot_bytes)?;
        drop(state);
        let room = u64::from(slots) * self.slot_bytes;
        self.file.allocate(self.position(&segment), room).inspect_err(|_| {
            self.state.lock().pool.give(segment.slot, segment.slots);
        })?;
        self.shown.write().add(segment, self.slot_bytes);
        Ok(segment)
    }

    /// Whether there are segments that may contain early values.
    pub(crate) fn has_early_segments(&self) -> bool {
        self.shown.read().slots() > 0
    }

    /// Whether a segment may contain values whose writes are under way, or that no edit names.
    pub(crate) fn is_early(&self, segment: &Segment) -> bool {
        self.shown.read().segments.contains_key(&segment.stream_offset)
    }

    /// The edit that names the records that were appended since the last such edit. With `syncs`,
    /// the file is synced first.
    pub(crate) fn name_early(&self, syncs: bool) -> Result<Option<ValueEdit>> {
        let mut early = self.early.lock();
        early.refused_bytes = 0;
        let unnamed = |one: &&EarlySegment| !one.is_found && one.named_bytes < one.segment.bytes;
        let mut keys = Sketch::of_nothing();
        early.segments.values().filter(unnamed).for_each(|one| keys.merge(&one.keys));
        let place: Vec<_> =
            early.segments.values().filter(unnamed).map(|one| one.segment).collect();
        let dead = std::mem::take(&mut early.dead);
        let stream_end = self.state.lock().layout.groups[GROUP as usize].stream_end;
        drop(early);
        if place.is_empty() && dead.is_empty() {
            return Ok(None);
        }
        if syncs && !seeded!(EarlyValuesNotSynced) {
            self.sync()?;
        }
        let group = GroupEdit { group: GROUP, stream_end, place, dead, keys, ..Default::default() };
        Ok(Some(ValueEdit { store: self.number, groups: vec![group] }))
    }

    /// Whether a replay found the value. Nobody knows whether such a value is durable: after a
    /// failed sync, the kernel treats lost bytes as written (P7). So a flush writes it elsewhere.
    /// It is not written again in place, because a power loss could then destroy bytes that were
    /// durable.
    pub(crate) fn is_found(&self, stream_offset: u64) -> bool {
        let shown = self.shown.read().of(stream_offset);
        let Some(segment) = shown.filter(|_| !seeded!(FoundValuesTrusted)) else { return false };
        let early = self.early.lock();
        early.segments.get(&segment.generation).is_some_and(|one| one.is_found)
    }

    /// Releases the segments that a replay found, if no memtable has pointers into them. Called
    /// before anybody reads, because views of readers would keep memtables with such pointers. If
    /// the log is kept, nothing is released until the next open.
    pub(crate) fn release_found(&self, unflushed_from: SeqNo) {
        let mut early = self.early.lock();
        if early.found_seq == 0 || early.found_seq >= unflushed_from {
            return;
        }
        early.found_seq = 0;
        let is_found = |one: &&EarlySegment| one.is_found;
        let found: Vec<_> = early.segments.values().filter(is_found).collect();
        let found: Vec<_> = found.iter().map(|one| (one.segment, one.named_bytes)).collect();
        for (segment, named_bytes) in found {
            early.segments.remove(&segment.generation);
            self.shown.write().remove(segment.stream_offset);
            if named_bytes == 0 {
                // A reader in another process may have read the log that leads to this segment.
                self.state.lock().leave(segment);
            }
        }
    }

    /// Notes that an edit of [`ValueFile::name_early`] is logged and published.
    pub(crate) fn early_named(&self, edit: &ValueEdit) {
        let mut early = self.early.lock();
        for named in edit.groups.iter().flat_map(|group| &group.place) {
            if let Some(one) = early.segments.get_mut(&named.generation) {
                one.named_bytes = named.bytes;
                early.let_go(self, named.generation);
            }
        }
    }

    /// Whether the log may have pointers into this file that no collection wrote.
    pub(crate) fn has_early(&self) -> bool {
        self.early.lock().is_used
    }

    /// The last sequence number of a batch that has early values; the largest possible number if
    /// such a batch is under way.
    pub(crate) fn last_early_seq(&self) -> SeqNo {
        let early = self.early.lock();
        if early.under_way > 0 { SeqNo::MAX } else { early.last_seq }
    }
}
