//! Finds early values (`values/early.rs`) again when a store opens, with the places that the log
//! records.

use std::collections::BTreeSet;
use std::collections::btree_map::Entry;
use std::ops::Range;
use std::sync::Arc;

use crate::error::Result;
use crate::format::record::{Pointer, record_bytes};
use crate::keys::SeqNo;
use crate::keys::codec::u32_at;
use crate::lease::EditPlace;
use crate::values::early::{EarlyPlace, EarlySegment, GROUP, UNNUMBERED_SEQ};
use crate::values::file::{FileState, Leaving, ValueFile, segment_of};
use crate::values::layout::Segment;

impl ValueFile {
    /// Whether the value of a logged write is in the file. If no edit names the record yet, its
    /// segment is taken over, so that the slots are not given out again. Called before anything is
    /// appended.
    pub(crate) fn find_early(
        &self,
        (key, seq): (&[u8], SeqNo),
        pointer: &Pointer,
        place: &EarlyPlace,
    ) -> Result<bool> {
        let Some((segment, record_at)) = self.early_place(key, pointer, place) else {
            return Ok(false);
        };
        let (position, bytes) =
            (self.position(&segment) + record_at.start, record_at.end - record_at.start);
        if self.file.len()? < position + bytes {
            return Ok(false);
        }
        let record = self.file.read_vec(position, bytes as usize)?;
        let is_it = u32_at(&record, 0) == Some(place.checksum);
        let found = self.checksum_seed(&segment).take(&record, place.offset);
        let is_it = is_it && found.is_ok_and(|one| one.key == key && one.seq == UNNUMBERED_SEQ);
        Ok(is_it && self.take_over(seq, segment, record_at.end))
    }

    /// As `find_early`, for a value that was already found with an earlier layout of the file.
    /// Reads nothing.
    pub(crate) fn find_again(
        &self,
        (key, seq): (&[u8], SeqNo),
        pointer: &Pointer,
        place: &EarlyPlace,
    ) -> bool {
        let found = self.early_place(key, pointer, place);
        found.is_some_and(|(segment, record)| self.take_over(seq, segment, record.end))
    }

    /// The segment that a place names, and the range of the record in it. `None` if the place
    /// contradicts what is known.
    fn early_place(
        &self,
        key: &[u8],
        pointer: &Pointer,
        place: &EarlyPlace,
    ) -> Option<(Segment, Range<u64>)> {
        let bytes = record_bytes(key.len(), pointer.value_bytes as usize);
        let segment = self.named_segment(pointer, place)?;
        let room = u64::from(segment.slots).saturating_mul(self.slot_bytes);
        let end = place.offset.checked_add(bytes).filter(|end| *end <= room)?;
        Some((segment, place.offset..end))
    }

    /// The segment that a place names: a known segment, or a new one. `None` if the place
    /// contradicts what is known.
    fn named_segment(&self, pointer: &Pointer, place: &EarlyPlace) -> Option<Segment> {
        let EarlyPlace { slot, slots, generation, .. } = *place;
        let stream_offset = pointer.stream_offset.checked_sub(place.offset)?;
        let known = self.early.lock().segments.get(&generation).map(|one| one.segment);
        let named = || {
            let segments = self.load(GROUP)?;
            segment_of(&segments, stream_offset).filter(|one| one.generation == generation)
        };
        let segment = known.or_else(named).unwrap_or(Segment {
            slot,
            slots,
            collected: false,
            generation,
            stream_offset,
            bytes: 0,
            records: 0,
            tags: 0,
            cold_bytes: 0,
        });
        let is_same = segment.slot == slot
            && segment.slots == slots
            && segment.stream_offset == stream_offset
            && !segment.collected
            && slots > 0
            && pointer.group == GROUP;
        is_same.then_some(segment)
    }

    /// Takes over the segment of a record that ends at `end` and that no edit names. Returns
    /// `false` if its slots belong to another segment.
    fn take_over(&self, seq: SeqNo, segment: Segment, end: u64) -> bool {
        let mut early = self.early.lock();
        early.is_used = true;
        let generation = segment.generation;
        let one = match early.segments.entry(generation) {
            Entry::Occupied(known) => known.into_mut(),
            // An edit names the record already.
            Entry::Vacant(_) if end <= segment.bytes => return true,
            Entry::Vacant(vacant) => {
                let mut state = self.state.lock();
                if segment.bytes == 0 && !state.take_again(&segment, self.slot_bytes) {
                    return false;
                }
                // Later appends must go to other segments.
                let is_it = |open: &Segment| open.generation == generation;
                if state.open.get(&GROUP).is_some_and(is_it) {
                    state.open.remove(&GROUP);
                }
                self.shown.write().add(segment, self.slot_bytes);
                let mut found = EarlySegment::new(segment);
                found.is_found = true;
                vacant.insert(found)
            }
        };
        one.segment.bytes = one.segment.bytes.max(end);
        early.found_seq = early.found_seq.max(seq);
        true
    }
}

impl FileState {
    /// Takes the slots of a segment that a replay found, and its range of the stream. Returns
    /// `false` if the slots belong to another segment.
    pub(super) fn take_again(&mut self, segment: &Segment, slot_bytes: u64) -> bool {
        let bytes = u64::from(segment.slots) * slot_bytes;
        let Some(end) = segment.stream_offset.checked_add(bytes) else { return false };
        let end_slot = segment.slot.saturating_add(segment.slots);
        let held = self.give_found(segment.slot..end_slot);
        if !self.pool.take_at(segment.slot, segment.slots) {
            self.hold_found(&held);
            return false;
        }
        let stream_end = &mut self.layout.groups[GROUP as usize].stream_end;
        *stream_end = end.max(*stream_end);
        self.next_generation = self.next_generation.max(segment.generation + 1);
        true
    }

    /// Withholds all free slots of a file of `slots` slots, because readers in other processes may
    /// need them.
    pub(super) fn hold_free(&mut self, slots: u32, left_at: EditPlace) {
        let end = self.pool.end();
        let free: Vec<u32> = self.pool.free().chain(end..slots.max(end)).collect();
        self.found_free = Some((left_at, BTreeSet::new()));
        self.hold_found(&free);
    }

    fn hold_found(&mut self, slots: &[u32]) {
        let Some((left_at, held)) = &mut self.found_free else { return };
        let taken = slots.iter().filter(|slot| self.pool.take_at(**slot, 1) && held.insert(**slot));
        let bytes = taken.count() as u64 * u64::from(self.layout.slot_bytes);
        self.leases.count_freed(*left_at, bytes);
    }

    /// Some of these slots may be withheld because they were free when the file was opened. Gives
    /// those back to the pool. A replay finds values in such slots, and takes them before anybody
    /// else can.
    pub(super) fn give_found(&mut self, slots: Range<u32>) -> Vec<u32> {
        let Some((left_at, held)) = &mut self.found_free else { return Vec::new() };
        let given: Vec<u32> = held.range(slots).copied().collect();
        for slot in &given {
            held.remove(slot);
            self.pool.give(*slot, 1);
        }
        let bytes = given.len() as u64 * u64::from(self.layout.slot_bytes);
        self.leases.count_taken(*left_at, bytes);
        given
    }

    /// Frees a segment that no edit has named, once no reader in another process needs it.
    pub(super) fn leave(&mut self, segment: Segment) {
        let bytes = u64::from(segment.slots) * u64::from(self.layout.slot_bytes);
        let (segments, left_at) = (Arc::default(), self.leases.last());
        self.leases.count_freed(left_at, bytes);
        self.leaving.push_back(Leaving { segments, gone: vec![segment], left_at });
    }
}
