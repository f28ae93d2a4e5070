//! Reads a value file without its layout, slot by slot.
//!
//! The checksum of a record needs the generation of its slot, which only a manifest states. But
//! generations are small numbers, so the one under which the first record of a slot verifies is
//! found by trying. All other records of the slot verify under it too.
//!
//! 1. Each slot is read once, when a value is first requested. The generations are tried on its
//!    first record, beginning with those near the generation of the previous slot.
//! 2. Each record is noted by key and number. Both are in the record, so the record is known to
//!    have the value of that version, whatever happened to its slot: a slot that was freed keeps
//!    its old records until it is reused.
//! 3. A record that was appended before its version had a number, or that a collection moved, does
//!    not have the number of its version. Such a record is found by the stream offset of its
//!    pointer, because slots begin at multiples of their size in the stream. It counts only if it
//!    is the only record there.

use std::collections::HashMap;
use std::sync::Arc;

use runstone_storage::{Storage, StorageFile};

use super::values::open_values;
use crate::error::{Error, Result};
use crate::format::record::{ChecksumSeed, HEADER_BYTES, Pointer, Record};
use crate::keys::codec::{u32_at, u64_at};
use crate::keys::{MAX_KEY_BYTES, MAX_SEQ, SeqNo};
use crate::values::early::UNNUMBERED_SEQ;
use crate::values::file::{FIRST_SLOT, values_name};

/// Generations tried for each slot, counted from the smallest. A file of 10 GB in slots of 1 MiB
/// reaches this if all its slots were used a hundred times.
const MOST_GENERATIONS: u64 = 1 << 20;
/// Generations near the previous slot's, which are tried first.
const NEAR: u64 = 64;

/// The place of a record.
#[derive(Clone, Copy, Debug)]
struct Place {
    seq: SeqNo,
    slot: u32,
    offset: u32,
    value_bytes: u32,
}

/// See the module docs.
#[derive(Debug)]
pub(super) struct Slots {
    file: Arc<dyn StorageFile>,
    pub(super) uid: u64,
    slot_bytes: u64,
    /// Records by the hash of their key; `None` before the file was read.
    records: Option<HashMap<u64, Vec<Place>>>,
    /// Generations are tried up to here: the largest found so far, and some more.
    tried_to: u64,
}

impl Slots {
    /// Opens a value file. Its header has the uid and the size of a slot, which are used if no
    /// manifest has them.
    pub(super) fn open(
        storage: &dyn Storage,
        number: u64,
        known: Option<(u64, u32)>,
    ) -> Result<Slots> {
        let file = open_values(storage, number)?;
        let (uid, slot_bytes) = match known {
            Some(known) => known,
            None => read_header(&*file, number)?,
        };
        if slot_bytes == 0 {
            return Err(Error::corruption(values_name(number), 12, "slots have no bytes"));
        }
        let slot_bytes = u64::from(slot_bytes);
        Ok(Slots { file, uid, slot_bytes, records: None, tried_to: 1 << 12 })
    }

    /// Bytes of a slot, or of several in a row.
    pub(super) fn read(&self, slot: u32, offset: u64, len: u64) -> Option<Vec<u8>> {
        let at = FIRST_SLOT + u64::from(slot) * self.slot_bytes + offset;
        let is_inside = at.checked_add(len)? <= self.file.len().ok()?;
        is_inside.then(|| self.file.read_vec(at, len as usize).ok())?
    }

    /// The value of a version. `is_moved` says whether its record may have the number of an older
    /// version.
    pub(super) fn find(
        &mut self,
        key: &[u8],
        seq: SeqNo,
        is_moved: bool,
        pointer: &Pointer,
    ) -> Option<Vec<u8>> {
        if self.records.is_none() {
            let records = self.read_all();
            self.records = Some(records);
        }
        let value_bytes = pointer.value_bytes;
        let places = self.records.as_ref()?.get(&hash(key))?;
        let fits = |place: &&Place| place.value_bytes == value_bytes;
        let offset = pointer.stream_offset % self.slot_bytes;
        let is_there = |place: &&Place| {
            let may_be = place.seq == UNNUMBERED_SEQ || is_moved && place.seq <= seq;
            may_be && u64::from(place.offset) == offset
        };
        let mut other = places.iter().filter(fits).filter(is_there);
        let place = match places.iter().filter(fits).rfind(|place| place.seq == seq) {
            Some(own) => own,
            None => {
                let first = other.next()?;
                // The same record may be in the old place as well.
                let is_sole = first.seq != UNNUMBERED_SEQ || other.clone().next().is_none();
                (is_sole && other.all(|place| place.seq == first.seq)).then_some(first)?
            }
        };
        let len = (HEADER_BYTES + key.len()) as u64 + u64::from(value_bytes);
        let bytes = self.read(place.slot, place.offset.into(), len)?;
        let record = Record::of_checked(&bytes).ok()?;
        (record.key == key).then(|| record.value.to_vec())
    }

    fn read_all(&mut self) -> HashMap<u64, Vec<Place>> {
        let mut records: HashMap<u64, Vec<Place>> = HashMap::new();
        let len = self.file.len().unwrap_or(0).saturating_sub(FIRST_SLOT);
        let slots = u32::try_from(len.div_ceil(self.slot_bytes)).unwrap_or(u32::MAX);
        let (mut slot, mut last_generation) = (0, 0);
        while slot < slots {
            let behind = self.read_slot(slot, len, &mut last_generation, &mut records);
            slot = slot.saturating_add(behind.max(1));
        }
        records
    }

    /// Notes the records of the segment that begins at a slot. Returns how many slots it has.
    fn read_slot(
        &mut self,
        slot: u32,
        file_bytes: u64,
        last_generation: &mut u64,
        records: &mut HashMap<u64, Vec<Place>>,
    ) -> u32 {
        let left = file_bytes - u64::from(slot) * self.slot_bytes;
        let Some(mut bytes) = self.read(slot, 0, left.min(self.slot_bytes)) else { return 1 };
        let Some(first_bytes) = first_record(&bytes).filter(|len| *len <= left) else { return 1 };
        // A record that is larger than a slot has several slots in a row for itself.
        let slots = first_bytes.div_ceil(self.slot_bytes) as u32;
        if slots > 1 {
            let Some(all) = self.read(slot, 0, first_bytes) else { return 1 };
            bytes = all;
        }
        let Some(generation) = self.generation_of(&bytes, *last_generation) else { return 1 };
        *last_generation = generation;
        self.tried_to = self.tried_to.max(generation * 2).min(MOST_GENERATIONS);
        let seal = ChecksumSeed::new(self.uid, generation);
        let mut at = 0;
        while let Ok(record) = seal.take(bytes.get(at..).unwrap_or_default(), at as u64) {
            if !record.is_tag && !record.is_marker {
                let (seq, value_bytes) = (record.seq, record.value_bytes);
                let place = Place { seq, slot, offset: at as u32, value_bytes };
                records.entry(hash(record.key)).or_default().push(place);
            }
            at += record.len;
        }
        slots
    }

    fn generation_of(&self, bytes: &[u8], last: u64) -> Option<u64> {
        let verifies =
            |generation: &u64| ChecksumSeed::new(self.uid, *generation).take(bytes, 0).is_ok();
        let near = last.saturating_sub(NEAR)..last.saturating_add(NEAR);
        near.chain(0..self.tried_to).find(verifies)
    }
}

fn read_header(file: &dyn StorageFile, number: u64) -> Result<(u64, u32)> {
    let bytes = file.read_vec(0, file.len()?.min(28) as usize)?;
    let bad = || Error::corruption(values_name(number), 0, "the header does not check");
    let sum = bytes.get(..24).map(|head| xxhash_rust::xxh3::xxh3_64(head) as u32);
    if sum.is_none() || sum != u32_at(&bytes, 24) {
        return Err(bad());
    }
    Ok((u64_at(&bytes, 16).ok_or_else(bad)?, u32_at(&bytes, 12).ok_or_else(bad)?))
}

/// The size of the record that may begin here, according to its own head.
fn first_record(bytes: &[u8]) -> Option<u64> {
    let word = u64_at(bytes, 4)?;
    let key_bytes = bytes.get(12..14).map(|pair| u16::from_le_bytes([pair[0], pair[1]]))?;
    let value_bytes = if word as u8 == 2 { 0 } else { u32_at(bytes, 14)? };
    let is_plausible = matches!(word as u8, 1..=3)
        && word >> 8 <= MAX_SEQ
        && usize::from(key_bytes) <= MAX_KEY_BYTES;
    let len = HEADER_BYTES as u64 + u64::from(key_bytes) + u64::from(value_bytes);
    is_plausible.then_some(len)
}

fn hash(key: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(key)
}
