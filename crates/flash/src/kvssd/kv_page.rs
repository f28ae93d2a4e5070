//! The pages that hold keys and values. Little-endian:
//!
//! ```text
//! 0 magic u32 | 4 page_count u32 | 8 record_count u32 | 12 used_bytes u32
//! 16 slots: record_count x u32, offset of each record from the start
//! record: seq u64 | kind u8 | zero u8 | key length u16 | value length u32 | key | value
//! ```
//!
//! Records are sorted by key, versions of a key newest first. All versions of a key are in one
//! page; if they are larger than a page, the page holds nothing else and continues in extension
//! pages: the bytes of the group are the concatenation of its pages.

use std::cmp::Reverse;
use std::ops::Range;

use super::meta_page::Clip;
use crate::error::{Error, Result};
use crate::nand::SharedBytes;

const MAGIC: u32 = 0x564b_5352; // "RSKV"
const HEADER_BYTES: usize = 16;
const RECORD_BYTES: usize = 16;
const SLOT_BYTES: usize = 4;

/// What a record says about its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It has this value.
    Put = 1,
    /// It is gone.
    Delete = 2,
}

/// Where a record lies in its bytes, and what its header says.
#[derive(Clone, Copy, Debug)]
struct Place {
    start: u32,
    key_end: u32,
    end: u32,
    seq: u64,
    kind: Kind,
}

impl Place {
    fn decode(used: &[u8], offset: usize) -> Option<Place> {
        let rest = used.get(offset..)?;
        let header: &[u8; RECORD_BYTES] = rest.first_chunk()?;
        let seq = u64::from_le_bytes(*header.first_chunk()?);
        let kind = match header[8..10] {
            [1, 0] => Kind::Put,
            [2, 0] => Kind::Delete,
            _ => return None,
        };
        let key_end = RECORD_BYTES + usize::from(u16::from_le_bytes([header[10], header[11]]));
        let value_len = u32::from_le_bytes([header[12], header[13], header[14], header[15]]);
        let len = key_end.checked_add(value_len as usize).filter(|len| *len <= rest.len())?;
        let at = |inside: usize| (offset + inside) as u32;
        Some(Place { start: at(0), key_end: at(key_end), end: at(len), seq, kind })
    }

    fn key<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        &bytes[self.start as usize + RECORD_BYTES..self.key_end as usize]
    }
}

/// A version of a key, in the bytes that hold it: a page group, or bytes of its own.
#[derive(Clone)]
pub struct Record {
    bytes: SharedBytes,
    place: Place,
}

impl Record {
    /// A record with bytes of its own. The key is shorter than 64 KiB; a delete has no value.
    pub fn new(seq: u64, kind: Kind, key: &[u8], value: &[u8]) -> Record {
        let key_end = RECORD_BYTES + key.len();
        let mut bytes = Vec::with_capacity(key_end + value.len());
        bytes.extend_from_slice(&seq.to_le_bytes());
        bytes.extend_from_slice(&[kind as u8, 0]);
        bytes.extend_from_slice(&(key.len() as u16).to_le_bytes());
        bytes.extend_from_slice(&(value.len() as u32).to_le_bytes());
        bytes.extend_from_slice(key);
        bytes.extend_from_slice(value);
        let (key_end, end) = (key_end as u32, bytes.len() as u32);
        Record { bytes: bytes.into(), place: Place { start: 0, key_end, end, seq, kind } }
    }

    /// User key, shorter than 64 KiB.
    pub fn key(&self) -> &[u8] {
        self.place.key(&self.bytes)
    }

    /// Position in the history of writes.
    pub fn seq(&self) -> u64 {
        self.place.seq
    }

    /// Put or delete.
    pub fn kind(&self) -> Kind {
        self.place.kind
    }

    /// Value; empty for a delete.
    pub fn value(&self) -> &[u8] {
        &self.bytes[self.place.key_end as usize..self.place.end as usize]
    }

    /// Bytes that it takes in a page, slot included.
    pub(super) fn page_bytes(&self) -> usize {
        SLOT_BYTES + (self.place.end - self.place.start) as usize
    }

    fn encoded(&self) -> &[u8] {
        &self.bytes[self.place.start as usize..self.place.end as usize]
    }

    /// Whether `next` lies behind it in the same bytes.
    fn is_followed_by(&self, next: &Record) -> bool {
        self.place.end == next.place.start && std::ptr::eq(&*self.bytes, &*next.bytes)
    }
}

impl PartialEq for Record {
    fn eq(&self, other: &Record) -> bool {
        self.encoded() == other.encoded()
    }
}

impl Eq for Record {}

impl std::fmt::Debug for Record {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (key, value) = (self.key().escape_ascii(), self.value().escape_ascii());
        write!(f, "{key}@{} {:?} {value}", self.seq(), self.kind())
    }
}

/// Bytes that a record takes in its page, slot included.
pub(super) fn record_bytes(key_len: usize, value_len: usize) -> usize {
    SLOT_BYTES + RECORD_BYTES + key_len + value_len
}

/// Bytes of a page for records and slots.
pub(super) fn page_room_bytes(page_bytes: usize) -> usize {
    page_bytes - HEADER_BYTES
}

/// All versions of one key that stay, newest first.
pub type KeyBlock = Vec<Record>;

/// Encodes keys in order into page groups. `next_key` adds the versions of the next key to an empty
/// block and returns `false` behind the last; `emit` gets the bytes of each group, a multiple of
/// `page_bytes`, and its records.
pub fn build_pages(
    mut next_key: impl FnMut(&mut KeyBlock) -> Result<bool>,
    page_bytes: usize,
    mut emit: impl FnMut(Vec<u8>, &[Record]) -> Result<()>,
) -> Result<()> {
    let mut key = KeyBlock::new();
    let mut waiting: Vec<Record> = Vec::new();
    let mut used_bytes = HEADER_BYTES;
    while next_key(&mut key)? {
        let more_bytes: usize = key.iter().map(Record::page_bytes).sum();
        if used_bytes + more_bytes > page_bytes && !waiting.is_empty() {
            emit(encode(&waiting, page_bytes), &waiting)?;
            waiting.clear();
            used_bytes = HEADER_BYTES;
        }
        waiting.append(&mut key);
        used_bytes += more_bytes;
    }
    if !waiting.is_empty() {
        emit(encode(&waiting, page_bytes), &waiting)?;
    }
    Ok(())
}

fn encode(records: &[Record], page_bytes: usize) -> Vec<u8> {
    let mut offset = HEADER_BYTES + SLOT_BYTES * records.len();
    let used_bytes = HEADER_BYTES + records.iter().map(Record::page_bytes).sum::<usize>();
    let page_count = used_bytes.div_ceil(page_bytes);
    let mut bytes = SharedBytes::buffer(page_count * page_bytes);
    for word in [MAGIC, page_count as u32, records.len() as u32, used_bytes as u32] {
        bytes.extend_from_slice(&word.to_le_bytes());
    }
    for record in records {
        bytes.extend_from_slice(&(offset as u32).to_le_bytes());
        offset += record.page_bytes() - SLOT_BYTES;
    }
    // A merge takes neighbours from one page: they are copied as one.
    for run in records.chunk_by(Record::is_followed_by) {
        let (first, last) = (run[0].place.start, run[run.len() - 1].place.end);
        bytes.extend_from_slice(&run[0].bytes[first as usize..last as usize]);
    }
    bytes.resize(page_count * page_bytes, 0);
    bytes
}

/// A decoded page group: its records, in order.
#[derive(Clone, Debug)]
pub struct KvPage {
    bytes: SharedBytes,
    places: Vec<Place>,
}

impl KvPage {
    /// Decodes the bytes of a whole group.
    pub fn decode(bytes: SharedBytes, page_bytes: usize) -> Result<KvPage> {
        let (used_bytes, record_count) = used_part(&bytes, page_bytes).ok_or_else(corrupt)?;
        let used = &bytes[..used_bytes];
        // Headers first, found by slots: they lie far apart, and this loop waits for several at
        // once. Comparing keys at the same time, or going by lengths, would wait for each.
        let place_at = |slot: usize| {
            let offset = read_u32(used, HEADER_BYTES + SLOT_BYTES * slot);
            offset.and_then(|offset| Place::decode(used, offset as usize))
        };
        let places: Option<Vec<Place>> = (0..record_count).map(place_at).collect();
        let places = places.ok_or_else(corrupt)?;
        let mut end = HEADER_BYTES + SLOT_BYTES * record_count;
        for (at, place) in places.iter().enumerate() {
            let order = |place: &Place| (place.key(used), Reverse(place.seq));
            let is_next = place.start as usize == end
                && at.checked_sub(1).is_none_or(|last| order(&places[last]) < order(place));
            if !is_next {
                return Err(corrupt());
            }
            end = place.end as usize;
        }
        if end != used_bytes || places.is_empty() {
            return Err(corrupt());
        }
        Ok(KvPage { bytes, places })
    }

    /// Number of records.
    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    pub(super) fn key(&self, at: usize) -> &[u8] {
        self.places[at].key(&self.bytes)
    }

    pub(super) fn seq(&self, at: usize) -> u64 {
        self.places[at].seq
    }

    pub(super) fn record(&self, at: usize) -> Record {
        Record { bytes: self.bytes.clone(), place: self.places[at] }
    }

    /// Which records are inside a clip.
    pub(super) fn inside(&self, clip: &Clip) -> Range<usize> {
        let last = self.len() - 1;
        // Most pages are whole: look at their ends first.
        if *self.key(0) >= *clip.lo && *self.key(last) < *clip.hi {
            return 0..self.len();
        }
        let before = |bound: &[u8]| {
            let is_before = |place: &Place| place.key(&self.bytes) < bound;
            self.places.partition_point(is_before)
        };
        before(&clip.lo)..before(&clip.hi)
    }

    /// All records.
    pub fn records(&self) -> impl Iterator<Item = Record> + '_ {
        (0..self.len()).map(|at| self.record(at))
    }
}

/// The newest version of a key that a reader at `snapshot` sees, in the bytes of a whole group.
/// Looks at the records that a binary search meets and trusts the page's checksum for the others.
pub fn find_in(
    bytes: &SharedBytes,
    page_bytes: usize,
    key: &[u8],
    snapshot: u64,
) -> Result<Option<Record>> {
    let (used_bytes, record_count) = used_part(bytes, page_bytes).ok_or_else(corrupt)?;
    let used = &bytes[..used_bytes];
    let place_at = |slot: usize| {
        let offset = read_u32(used, HEADER_BYTES + SLOT_BYTES * slot);
        offset.and_then(|offset| Place::decode(used, offset as usize)).ok_or_else(corrupt)
    };
    let (mut from, mut to) = (0, record_count);
    while from < to {
        let middle = from.midpoint(to);
        let place = place_at(middle)?;
        if (place.key(used), Reverse(place.seq)) < (key, Reverse(snapshot)) {
            from = middle + 1;
        } else {
            to = middle;
        }
    }
    if from == record_count {
        return Ok(None);
    }
    let place = place_at(from)?;
    Ok((place.key(used) == key).then(|| Record { bytes: bytes.clone(), place }))
}

fn corrupt() -> Error {
    Error::Corrupt { what: "page of keys and values", why: "its layout".into() }
}

/// How many bytes of a group are used, and how many records its header promises.
fn used_part(bytes: &[u8], page_bytes: usize) -> Option<(usize, usize)> {
    let used_bytes = read_u32(bytes, 12)? as usize;
    let group_bytes = (read_u32(bytes, 4)? as usize).checked_mul(page_bytes)?;
    let is_sized = read_u32(bytes, 0)? == MAGIC && group_bytes == bytes.len();
    let record_count = read_u32(bytes, 8)? as usize;
    let is_possible = record_count <= used_bytes / (SLOT_BYTES + RECORD_BYTES);
    (is_sized && is_possible && used_bytes <= bytes.len()).then_some((used_bytes, record_count))
}

fn read_u32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(key: &str, seq: u64, value_len: usize) -> Record {
        Record::new(seq, Kind::Put, key.as_bytes(), &vec![seq as u8; value_len])
    }

    fn built(keys: Vec<KeyBlock>) -> Vec<SharedBytes> {
        let mut groups = Vec::new();
        let emit = |bytes: Vec<u8>, _: &[Record]| {
            groups.push(bytes.into());
            Ok(())
        };
        let mut keys = keys.into_iter();
        let next_key = |versions: &mut KeyBlock| {
            let next = keys.next();
            versions.extend(next.iter().flatten().cloned());
            Ok(next.is_some())
        };
        build_pages(next_key, 512, emit).unwrap();
        groups
    }

    fn decoded(group: &SharedBytes) -> Vec<Record> {
        KvPage::decode(group.clone(), 512).unwrap().records().collect()
    }

    #[test]
    fn records_come_back_and_versions_are_found() {
        let gone = Record::new(9, Kind::Delete, b"b", b"");
        let keys = vec![vec![put("a", 3, 10)], vec![gone.clone(), put("b", 5, 1), put("b", 2, 0)]];
        let groups = built(keys.clone());
        assert_eq!((groups.len(), groups[0].len()), (1, 512));
        let find = |key: &[u8], snapshot| find_in(&groups[0], 512, key, snapshot).unwrap();
        assert_eq!(find(b"b", 100), Some(gone));
        assert_eq!(find(b"b", 8).map(|record| record.seq()), Some(5));
        assert_eq!(find(b"b", 1), None);
        assert_eq!((find(b"", 100), find(b"c", 100), find(b"a", 2)), (None, None, None));
        assert_eq!(decoded(&groups[0]), keys.concat());
    }

    #[test]
    fn a_large_key_has_a_group_of_its_own() {
        let keys = vec![vec![put("a", 1, 10)], vec![put("b", 2, 2000)], vec![put("c", 3, 10)]];
        let groups = built(keys.clone());
        assert_eq!(groups.iter().map(|group| group.len()).collect::<Vec<_>>(), [512, 2048, 512]);
        for (group, key) in groups.iter().zip(keys) {
            assert_eq!(decoded(group), key);
        }
        let first: SharedBytes = groups[1][..512].to_vec().into();
        assert!(KvPage::decode(first, 512).is_err(), "its extension is missing");
        let edge = 512 - HEADER_BYTES - SLOT_BYTES - RECORD_BYTES - 1;
        assert_eq!(built(vec![vec![put("a", 1, edge)]])[0].len(), 512);
        assert_eq!(built(vec![vec![put("a", 1, edge + 1)]])[0].len(), 1024);
    }

    /// Without the checksums of the device: no byte can make it panic or allocate beyond the page.
    #[test]
    fn damaged_pages_never_panic() {
        let group = built(vec![vec![put("a", 3, 10)], vec![put("b", 5, 100), put("b", 2, 0)]]);
        for at in 0..group[0].len() {
            for changed in [0, 1, 0x7f, 0x80, 0xff] {
                let mut bytes = group[0].to_vec();
                bytes[at] = changed;
                let bytes = bytes.into();
                let _ = find_in(&bytes, 512, b"b", 3);
                let _ = KvPage::decode(bytes, 512);
            }
            let cut = group[0][..at].to_vec().into();
            assert!(find_in(&cut, 512, b"b", 3).is_err() && KvPage::decode(cut, 512).is_err());
        }
    }
}
