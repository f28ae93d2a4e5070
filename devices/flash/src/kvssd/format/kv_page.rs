//! The pages that contain keys and values. Little-endian:
//!
//! ```text
//! 0 magic u32 | 4 zero u64 | 12 record_count u32
//! 16 slots: record_count x slot | keys | values | zeros
//! slot: seq << 8 | kind u64 | key_end u32 | value_end u32 | crc32c of the value u32
//! ```
//!
//! Ends are counted from where the keys and the values begin. The end of one is the start of the
//! next. The header has zeros where a slot has its ends, so the first record needs no special case.
//! Records are sorted by key, and the versions of a key newest first. All versions of a key are in
//! one page. If they are larger than a page, the page has nothing else and continues in extension
//! pages: the bytes of the group are the concatenation of its pages.
//!
//! The bytes that searches and compactions read come first, in one piece. Values are passed on from
//! page to page with their checksums, unread. So a page in memory consists of a front and shared
//! values ([`SharedBytes`]). The flat bytes of a page are checked when they are decoded: front,
//! values, zeros.

use std::cmp::Reverse;
use std::ops::Range;

use crate::error::{Error, Result};
use crate::kvssd::format::meta_page::Clip;
use crate::kvssd::format::record::{Kind, Record, Version};
use crate::nand::{SharedBytes, SharedValue};
use crate::rest::{u32_at, u64_at};

pub(crate) const MAGIC: u32 = 0x564b_5352; // "RSKV"
pub(crate) const HEADER_BYTES: usize = 16;
pub(crate) const SLOT_BYTES: usize = 20;
/// Offsets of the fields from the start of a slot.
pub(crate) const KEY_END_AT: usize = 8;
pub(crate) const VALUE_END_AT: usize = 12;
pub(crate) const CHECKSUM_AT: usize = 16;

/// Bytes that a record takes in its page, slot included.
pub(crate) fn record_bytes(key_len: usize, value_len: usize) -> usize {
    SLOT_BYTES + key_len + value_len
}

/// Bytes of a page for records and slots.
pub(crate) fn page_room_bytes(page_bytes: usize) -> usize {
    page_bytes - HEADER_BYTES
}

/// The front of a page, which is not trusted: a slot that points outside gives `None`.
#[derive(Clone, Copy)]
struct Front<'a> {
    /// These bytes may continue after the front.
    bytes: &'a [u8],
    count: usize,
}

impl<'a> Front<'a> {
    /// Returns `None` if the header and the slots are not complete.
    fn of(bytes: &'a [u8]) -> Option<Front<'a>> {
        let is_known = u32_at(bytes, 0)? == MAGIC && bytes.get(4..12)?.iter().all(|b| *b == 0);
        let count = u32_at(bytes, 12)? as usize;
        let front = Front { bytes, count };
        (is_known && count > 0 && front.keys_at() <= bytes.len()).then_some(front)
    }

    fn slot_at(&self, at: usize) -> usize {
        HEADER_BYTES + SLOT_BYTES * at
    }

    fn keys_at(&self) -> usize {
        self.slot_at(self.count)
    }

    fn values_at(&self) -> Option<usize> {
        let keys_bytes = u32_at(self.bytes, self.keys_at() - SLOT_BYTES + KEY_END_AT)?;
        Some(self.keys_at() + keys_bytes as usize)
    }

    fn used_bytes(&self) -> Option<usize> {
        let values_bytes = u32_at(self.bytes, self.keys_at() - SLOT_BYTES + VALUE_END_AT)?;
        Some(self.values_at()? + values_bytes as usize)
    }

    /// The range from the previous end to this one. The first begins at the 0 in the header.
    fn between(&self, at: usize, end_at: usize) -> Option<Range<usize>> {
        let end_at = self.slot_at(at) + end_at;
        let start = u32_at(self.bytes, end_at - SLOT_BYTES)? as usize;
        Some(start..u32_at(self.bytes, end_at)? as usize)
    }

    fn key(&self, at: usize) -> Option<&'a [u8]> {
        let Range { start, end } = self.between(at, KEY_END_AT)?;
        self.bytes.get(self.keys_at() + start..self.keys_at() + end)
    }

    /// The range of a value within the values.
    fn value(&self, at: usize) -> Option<Range<usize>> {
        self.between(at, VALUE_END_AT)
    }

    fn stamp(&self, at: usize) -> Option<(u64, Kind)> {
        let word = u64_at(self.bytes, self.slot_at(at))?;
        Some((word >> 8, Kind::from_number(word as u8)?))
    }

    fn checksum(&self, at: usize) -> Option<u32> {
        u32_at(self.bytes, self.slot_at(at) + CHECKSUM_AT)
    }

    /// The first record that is not before this position in the order.
    fn search(&self, key: &[u8], snapshot: u64) -> Option<usize> {
        let (mut from, mut to) = (0, self.count);
        while from < to {
            let middle = from.midpoint(to);
            let order = (self.key(middle)?, Reverse(self.stamp(middle)?.0));
            if order < (key, Reverse(snapshot)) {
                from = middle + 1;
            } else {
                to = middle;
            }
        }
        Some(from)
    }

    /// Whether the ranges are complete and follow each other, and the records are in order.
    fn is_sound(&self) -> bool {
        let order = |at: usize| Some((self.key(at)?, Reverse(self.stamp(at)?.0)));
        let is_next = |at: usize| {
            let values = self.value(at)?;
            let is_after = at == 0 || order(at - 1)? < order(at)?;
            Some(is_after && values.start <= values.end)
        };
        (0..self.count).all(|at| order(at).is_some() && is_next(at) == Some(true))
    }
}

/// A decoded page group. Its front is sound, and its values match their checksums.
#[derive(Clone, Debug)]
pub struct KvPage {
    bytes: SharedBytes,
}

impl KvPage {
    /// Decodes the bytes of a whole group. Gathered bytes were checked when they were gathered.
    pub fn decode(bytes: SharedBytes, page_bytes: usize) -> Result<KvPage> {
        if !bytes.is_flat() {
            return Ok(KvPage { bytes });
        }
        gather(bytes.front(), page_bytes).ok_or_else(corrupt)
    }

    /// Makes a page from the bytes of a draft, which are gathered and sound.
    pub(crate) fn of(bytes: SharedBytes) -> KvPage {
        KvPage { bytes }
    }

    /// The bytes of the group.
    pub fn bytes(&self) -> &SharedBytes {
        &self.bytes
    }

    fn front(&self) -> Front<'_> {
        Front { bytes: self.bytes.front(), count: self.bytes.values().len() }
    }

    /// Number of records: at least one.
    pub fn record_count(&self) -> usize {
        self.bytes.values().len()
    }

    /// Key of a record.
    pub fn key(&self, at: usize) -> &[u8] {
        self.front().key(at).unwrap_or_default()
    }

    /// Sequence number and kind of a record.
    pub fn stamp(&self, at: usize) -> (u64, Kind) {
        self.front().stamp(at).unwrap_or((0, Kind::Delete))
    }

    /// A record without its key.
    pub(crate) fn version(&self, at: usize) -> Version {
        let (seq, kind) = self.stamp(at);
        let checksum = self.front().checksum(at).unwrap_or_default();
        Version { seq, kind, checksum, value: self.bytes.values()[at].clone() }
    }

    /// The slots of consecutive records, and their keys.
    pub(crate) fn slots_and_keys(&self, records: Range<usize>) -> (&[u8], &[u8]) {
        let front = self.front();
        let slots = &front.bytes[front.slot_at(records.start)..front.slot_at(records.end)];
        let (from, to) = (self.ends(records.start).0, self.ends(records.end).0);
        (slots, front.bytes.get(front.keys_at() + from..front.keys_at() + to).unwrap_or_default())
    }

    /// Where the keys and the values before a record end.
    pub(crate) fn ends(&self, at: usize) -> (usize, usize) {
        let behind = self.front().slot_at(at);
        let end = |end_at| u32_at(self.bytes.front(), behind + end_at - SLOT_BYTES);
        let end = |end_at| end(end_at).unwrap_or_default();
        (end(KEY_END_AT) as usize, end(VALUE_END_AT) as usize)
    }

    pub(crate) fn record(&self, at: usize) -> Record {
        Record::of(self.key(at), self.version(at))
    }

    /// Fetches the whole front into the cache at once. Otherwise a compaction would wait for one
    /// cache line after another.
    pub(crate) fn fetch(&self) {
        self.bytes.fetch_front();
    }

    /// Fetches into the cache the memory that is touched when the values of these records are
    /// shared.
    pub(crate) fn fetch_values(&self, records: Range<usize>) {
        SharedValue::fetch(&self.bytes.values()[records]);
    }

    /// The records that are inside a clip.
    pub(crate) fn inside(&self, clip: &Clip) -> Range<usize> {
        let last = self.record_count() - 1;
        // Most pages are entirely inside, so the ends are checked first.
        if *self.key(0) >= *clip.lo && *self.key(last) < *clip.hi {
            return 0..self.record_count();
        }
        let before = |bound: &[u8]| self.front().search(bound, u64::MAX).unwrap_or_default();
        before(&clip.lo)..before(&clip.hi)
    }

    /// All records.
    pub fn records(&self) -> impl Iterator<Item = Record> + '_ {
        self.records_in(0..self.record_count())
    }

    pub(crate) fn records_in(&self, range: Range<usize>) -> impl Iterator<Item = Record> + '_ {
        range.map(|at| self.record(at))
    }
}

/// The newest version of a key that a reader at `snapshot` sees, in the bytes of a whole group.
/// Checks the records that a binary search visits, and trusts the checksum of the page for the
/// others.
pub fn find_in(
    bytes: &SharedBytes,
    page_bytes: usize,
    key: &[u8],
    snapshot: u64,
) -> Result<Option<Record>> {
    find(bytes, page_bytes, key, snapshot).ok_or_else(corrupt)
}

/// Does the same as `find_in`, and returns `None` if the bytes are damaged.
fn find(
    bytes: &SharedBytes,
    page_bytes: usize,
    key: &[u8],
    snapshot: u64,
) -> Option<Option<Record>> {
    if !bytes.is_flat() {
        bytes.fetch_front();
    }
    let front = Front::of(bytes.front())?;
    if group_bytes(&front, page_bytes)? != bytes.len() {
        return None;
    }
    let at = front.search(key, snapshot)?;
    if at == front.count || front.key(at)? != key {
        return Some(None);
    }
    let (seq, kind) = front.stamp(at)?;
    let (checksum, place) = (front.checksum(at)?, front.value(at)?);
    let value = match bytes.is_flat() {
        true => value_in(bytes.front().get(front.values_at()?..)?, place, checksum)?,
        false => bytes.values().get(at)?.clone(),
    };
    Some(Some(Record::of(key, Version { seq, kind, checksum, value })))
}

/// Copies a value out of flat bytes. Returns `None` if it is not the written value.
fn value_in(values: &[u8], place: Range<usize>, checksum: u32) -> Option<SharedValue> {
    let value = values.get(place).filter(|value| crc32c::crc32c(value) == checksum)?;
    Some(value.into())
}

/// The length of the group according to the front.
fn group_bytes(front: &Front<'_>, page_bytes: usize) -> Option<usize> {
    Some(front.used_bytes()?.next_multiple_of(page_bytes))
}

/// Checks flat bytes: the front, each value by its checksum, and that all other bytes are 0.
fn gather(bytes: &[u8], page_bytes: usize) -> Option<KvPage> {
    let front = Front::of(bytes)?;
    let values_at = front.values_at()?;
    let values_bytes = bytes.get(values_at..front.used_bytes()?)?;
    let is_zero = bytes[front.used_bytes()?..].iter().all(|byte| *byte == 0);
    if group_bytes(&front, page_bytes)? != bytes.len() || !is_zero || !front.is_sound() {
        return None;
    }
    let value = |at| value_in(values_bytes, front.value(at)?, front.checksum(at)?);
    let values = (0..front.count).map(value).collect::<Option<Vec<_>>>()?;
    let bytes = SharedBytes::gathered(bytes[..values_at].to_vec(), values, bytes.len());
    Some(KvPage { bytes })
}

fn corrupt() -> Error {
    let why = "its layout or a checksum".into();
    Error::Corrupt { what: "page of keys and values", why }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kvssd::format::draft::build_pages;
    use crate::kvssd::format::record::KeyBlock;

    fn put(key: &str, seq: u64, value_len: usize) -> Record {
        Record::new(seq, Kind::Put, key.as_bytes(), &vec![seq as u8; value_len])
    }

    fn built(keys: Vec<Vec<Record>>) -> Vec<SharedBytes> {
        let mut groups = Vec::new();
        let emit = |page: KvPage| {
            groups.push(page.bytes().clone());
            Ok(())
        };
        let mut keys = keys.into_iter();
        let next_key = |block: &mut KeyBlock| {
            let next = keys.next();
            let records = next.iter().flatten();
            records.for_each(|record| block.push(record.key(), record.version().clone()));
            Ok(next.is_some())
        };
        build_pages(next_key, 512, emit).unwrap();
        groups
    }

    fn flat(bytes: &SharedBytes) -> SharedBytes {
        bytes.flat().into_owned().into()
    }

    fn decoded(group: &SharedBytes) -> Vec<Record> {
        let page = KvPage::decode(group.clone(), 512).unwrap();
        let records: Vec<Record> = page.records().collect();
        let of_flat = KvPage::decode(flat(group), 512).unwrap();
        assert!(of_flat.records().eq(records.iter().cloned()), "flat bytes are the same page");
        assert_eq!(of_flat.bytes().flat(), group.flat());
        records
    }

    #[test]
    fn records_come_back_and_versions_are_found() {
        let gone = Record::new(9, Kind::Delete, b"b", b"");
        let keys = vec![vec![put("a", 3, 10)], vec![gone.clone(), put("b", 5, 1), put("b", 2, 0)]];
        let groups = built(keys.clone());
        assert_eq!((groups.len(), groups[0].len()), (1, 512));
        let records: Vec<_> = keys.concat();
        for group in [&groups[0], &flat(&groups[0])] {
            let find = |key: &[u8], snapshot| find_in(group, 512, key, snapshot).unwrap();
            assert_eq!(find(b"b", 100), Some(gone.clone()));
            assert_eq!(find(b"b", 8).map(|record| record.seq()), Some(5));
            assert_eq!(find(b"b", 1), None);
            assert_eq!((find(b"", 100), find(b"c", 100), find(b"a", 2)), (None, None, None));
        }
        assert_eq!(decoded(&groups[0]), records);
    }

    #[test]
    fn a_large_key_has_a_group_of_its_own() {
        let keys = vec![vec![put("a", 1, 10)], vec![put("b", 2, 2000)], vec![put("c", 3, 10)]];
        let groups = built(keys.clone());
        assert_eq!(groups.iter().map(|group| group.len()).collect::<Vec<_>>(), [512, 2048, 512]);
        for (group, key) in groups.iter().zip(keys) {
            assert_eq!(decoded(group), key);
        }
        let first: SharedBytes = groups[1].flat()[..512].to_vec().into();
        assert!(KvPage::decode(first, 512).is_err(), "its extension is missing");
        let edge = 512 - HEADER_BYTES - SLOT_BYTES - 1;
        assert_eq!(built(vec![vec![put("a", 1, edge)]])[0].len(), 512);
        assert_eq!(built(vec![vec![put("a", 1, edge + 1)]])[0].len(), 1024);
    }

    /// Without the checksums of the device, no byte can cause a panic or an allocation beyond the
    /// page.
    #[test]
    fn damaged_pages_never_panic() {
        let records = [put("a", 3, 10), put("b", 5, 100), put("b", 2, 0)];
        let group = built(vec![vec![records[0].clone()], records[1..].to_vec()]).remove(0);
        let page = group.flat();
        for at in 0..page.len() {
            for changed in [0, 1, 0x7f, 0x80, 0xff] {
                let mut bytes = page.to_vec();
                bytes[at] = changed;
                let bytes = bytes.into();
                let _ = find_in(&bytes, 512, b"b", 3);
                let _ = KvPage::decode(bytes, 512);
            }
            let cut: SharedBytes = page[..at].to_vec().into();
            assert!(find_in(&cut, 512, b"b", 3).is_err() && KvPage::decode(cut, 512).is_err());
        }
    }

    /// The checksums of the page find damage that the checksum of the device does not cover.
    #[test]
    fn every_flipped_byte_behind_the_front_is_found() {
        let group = built(vec![vec![put("a", 3, 10)], vec![put("b", 5, 100), put("b", 2, 0)]]);
        let page = group[0].flat();
        for at in group[0].front().len()..page.len() {
            let mut bytes = page.to_vec();
            bytes[at] ^= 0x24;
            let bytes: SharedBytes = bytes.into();
            let is_of_b = (group[0].front().len() + 10..group[0].front().len() + 110).contains(&at);
            assert_eq!(find_in(&bytes, 512, b"b", 5).is_err(), is_of_b, "byte {at}");
            assert!(KvPage::decode(bytes, 512).is_err(), "byte {at}");
        }
    }
}
