//! The format of separated values: records, footers of collected segments, and the pointers in the
//! tree.
//!
//! ```text
//! record  := checksum u32 | kind u8 | seq 7 B | key bytes u16 | value bytes u32 | key | value
//! tag     := the same of kind 2 without the value, or of kind 4 with the cold stream offset u64
//! footer  := (stream offset u32 | offset u32)* | (stream offset u32 | cold stream offset u64)*
//!            | checksum u32
//! pointer := store varint | group varint | stream_offset varint | value bytes varint
//!            | expiry u64, if the entry that holds the pointer expires
//! ```
//!
//! A record of kind 2 is a tag: it has no value here, because its value is in the cold stream.
//! Footer entries of records and of tags are sorted by stream offset, which counts from the stream
//! offset of the segment.
//!
//! A record of kind 3 is a marker, in files whose pointers are written back. It has no value
//! either. It says that the version with its sequence number is a deletion, or is inline in the
//! tree. Such files have no footers in their hash groups. So a tag there is of kind 4 and itself
//! names the place of its value.
//!
//! Checksums are the low half of xxh3, seeded with the file's uid, the generation of the slot and
//! the offset in the segment. So the bytes of an earlier use of a slot are never mistaken for a
//! record. A record never spans segments.

use crate::error::Error;
use crate::keys::codec::{Decoded, Reader, Truncated, put_varint, u32_at, u64_at};
use crate::keys::expiry::EXPIRY_BYTES;
use crate::keys::{MAX_SEQ, SeqNo};
use crate::memory::prefetch::{LINE_BYTES, prefetch};

/// Bytes of a record before its key.
pub(crate) const HEADER_BYTES: usize = 18;
/// Bytes of one footer entry.
const FOOTER_ENTRY_BYTES: usize = 8;
/// Bytes of one footer entry of a tag.
const FOOTER_TAG_BYTES: usize = 12;
const CHECKSUM_BYTES: usize = 4;
/// Footer entries searched on each side of the expected place.
const NEAR: usize = 8;
/// A value.
const KIND_VALUE: u8 = 1;
/// A tag.
const KIND_TAG: u8 = 2;
/// A marker.
const KIND_MARKER: u8 = 3;
/// A tag that names the place of its value. The other numbers are left to newer releases.
const KIND_PLACED_TAG: u8 = 4;
/// The bytes that such a tag has in place of a value.
const COLD_OFFSET_BYTES: usize = 8;

/// Bytes of a record.
pub(crate) fn record_bytes(key_bytes: usize, value_bytes: usize) -> u64 {
    (HEADER_BYTES + key_bytes + value_bytes) as u64
}

/// Whether a value can be a record. Positions and lengths inside a segment have 32 bits, so a value
/// of nearly 4 GiB stays in its table.
pub(crate) fn fits_record(key_bytes: usize, value_bytes: usize) -> bool {
    u32::try_from(record_bytes(key_bytes, value_bytes)).is_ok()
}

/// Bytes of a tag.
pub(crate) fn tag_bytes(key_bytes: usize) -> u64 {
    record_bytes(key_bytes, 0)
}

/// Bytes of a tag that names the place of its value.
pub(crate) fn placed_tag_bytes(key_bytes: usize) -> u64 {
    record_bytes(key_bytes, COLD_OFFSET_BYTES)
}

/// Bytes of a footer with this many records, tags included.
pub(crate) fn footer_bytes(records: u32, tags: u32) -> u64 {
    let tags = u64::from(tags.min(records));
    let values = u64::from(records) - tags;
    values * FOOTER_ENTRY_BYTES as u64 + tags * FOOTER_TAG_BYTES as u64 + CHECKSUM_BYTES as u64
}

/// The key that the record at the beginning of `bytes` names. Nothing is checked.
pub(crate) fn first_key(bytes: &[u8]) -> Option<&[u8]> {
    let len = usize::from(u16::from_le_bytes(bytes.get(12..14)?.try_into().ok()?));
    bytes.get(HEADER_BYTES..HEADER_BYTES + len)
}

/// A pointer in the tree. It is stable: a collection moves the record but keeps its stream offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pointer {
    /// File number of the value file.
    pub(crate) store: u64,
    pub(crate) group: u32,
    /// Position in the group's endless stream; never reused.
    pub(crate) stream_offset: u64,
    pub(crate) value_bytes: u32,
}

/// The most bytes that [`Pointer::encode`] writes: four numbers of at most 64, 32, 64 and 32 bits.
pub(crate) const MOST_POINTER_BYTES: usize = 10 + 5 + 10 + 5;

impl Pointer {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.clear();
        put_varint(out, self.store);
        put_varint(out, u64::from(self.group));
        put_varint(out, self.stream_offset);
        put_varint(out, u64::from(self.value_bytes));
    }

    /// Decodes the value of an entry that is a pointer.
    pub(crate) fn of_entry(bytes: &[u8]) -> crate::error::Result<Pointer> {
        Pointer::decode(bytes)
            .map_err(|_| Error::corruption("a table", 0, "a value pointer does not decode"))
    }

    /// The place that an entry points to. `None` if the entry does not decode.
    pub(crate) fn place_of_entry(bytes: &[u8]) -> Option<Place> {
        let Pointer { store, group, stream_offset, .. } = Pointer::decode(bytes).ok()?;
        Some(Place { store, group, stream_offset })
    }

    fn decode(bytes: &[u8]) -> Decoded<Pointer> {
        let mut reader = Reader::new(bytes);
        let store = reader.take_varint()?;
        let group = u32::try_from(reader.take_varint()?).map_err(|_| Truncated)?;
        let stream_offset = reader.take_varint()?;
        let value_bytes = u32::try_from(reader.take_varint()?).map_err(|_| Truncated)?;
        if !matches!(reader.remaining(), 0 | EXPIRY_BYTES) {
            return Err(Truncated);
        }
        Ok(Pointer { store, group, stream_offset, value_bytes })
    }
}

/// The place of a version's record. Only offsets in the same stream can be compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) store: u64,
    pub(crate) group: u32,
    pub(crate) stream_offset: u64,
}

/// The seed of the checksums of one segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChecksumSeed {
    seed: u64,
}

impl ChecksumSeed {
    pub(crate) fn new(uid: u64, generation: u64) -> ChecksumSeed {
        let generation = if seeded!(ChecksumsWithoutGeneration) { 0 } else { generation };
        ChecksumSeed { seed: xxhash_rust::xxh3::xxh3_64_with_seed(&generation.to_le_bytes(), uid) }
    }

    fn checksum(self, offset: u64, bytes: &[u8]) -> u32 {
        xxhash_rust::xxh3::xxh3_64_with_seed(bytes, self.seed.wrapping_add(offset)) as u32
    }

    /// Appends a record that will be at `offset` of the segment.
    pub(crate) fn put(self, out: &mut Vec<u8>, offset: u64, seq: SeqNo, key: &[u8], value: &[u8]) {
        self.put_kind(out, offset, KIND_VALUE, seq, (key, value, value.len() as u32));
    }

    /// Appends the tag of a record whose value of `value_bytes` bytes is in the cold stream.
    pub(crate) fn put_tag(
        self,
        out: &mut Vec<u8>,
        offset: u64,
        seq: SeqNo,
        key: &[u8],
        value_bytes: u32,
    ) {
        self.put_kind(out, offset, KIND_TAG, seq, (key, &[], value_bytes));
    }

    /// Appends the tag of a record that is in the cold stream at `cold_offset`, and whose value has
    /// `value_bytes` bytes.
    pub(crate) fn put_placed_tag(
        self,
        out: &mut Vec<u8>,
        offset: u64,
        seq: SeqNo,
        key: &[u8],
        (cold_offset, value_bytes): (u64, u32),
    ) {
        let place = cold_offset.to_le_bytes();
        self.put_kind(out, offset, KIND_PLACED_TAG, seq, (key, &place, value_bytes));
    }

    /// Appends the marker of a version that has no value in this file.
    pub(crate) fn put_marker(self, out: &mut Vec<u8>, offset: u64, seq: SeqNo, key: &[u8]) {
        self.put_kind(out, offset, KIND_MARKER, seq, (key, &[], 0));
    }

    fn put_kind(
        self,
        out: &mut Vec<u8>,
        offset: u64,
        kind: u8,
        seq: SeqNo,
        (key, value, value_bytes): (&[u8], &[u8], u32),
    ) {
        let at = out.len();
        out.extend_from_slice(&[0; CHECKSUM_BYTES]);
        out.extend_from_slice(&(seq << 8 | u64::from(kind)).to_le_bytes());
        out.extend_from_slice(&(key.len() as u16).to_le_bytes());
        out.extend_from_slice(&value_bytes.to_le_bytes());
        out.extend_from_slice(key);
        out.extend_from_slice(value);
        let sum = self.checksum(offset, &out[at + CHECKSUM_BYTES..]);
        out[at..at + CHECKSUM_BYTES].copy_from_slice(&sum.to_le_bytes());
    }

    /// The record at the beginning of `bytes`, which are at `offset` of the segment.
    pub(crate) fn take(self, bytes: &[u8], offset: u64) -> Result<Record<'_>, &'static str> {
        let record = Record::of_checked(bytes)?;
        let sum = u32_at(bytes, 0);
        let is_right = Some(self.checksum(offset, &bytes[CHECKSUM_BYTES..record.len])) == sum;
        if !is_right && !seeded!(RecordsUnchecked) {
            return Err("the checksum of a record does not match");
        }
        let kind = u64_at(bytes, CHECKSUM_BYTES).map(|word| word as u8);
        let is_known = matches!(kind, Some(KIND_VALUE | KIND_TAG | KIND_MARKER | KIND_PLACED_TAG));
        let is_whole = !record.is_marker || record.value_bytes == 0;
        if !is_known || !is_whole || record.seq > MAX_SEQ {
            return Err("a record is of unknown kind");
        }
        Ok(record)
    }

    /// Appends the footer of records at (stream offset, offset) and of tags at (stream offset, cold
    /// stream offset). The footer will be at `offset` of the segment. The first stream offset of
    /// each pair counts from the stream offset of the segment.
    pub(crate) fn put_footer(
        self,
        out: &mut Vec<u8>,
        offset: u64,
        places: &[(u32, u32)],
        tags: &[(u32, u64)],
    ) {
        let at = out.len();
        for (stream_offset, offset) in places {
            out.extend_from_slice(&stream_offset.to_le_bytes());
            out.extend_from_slice(&offset.to_le_bytes());
        }
        for (stream_offset, cold_offset) in tags {
            out.extend_from_slice(&stream_offset.to_le_bytes());
            out.extend_from_slice(&cold_offset.to_le_bytes());
        }
        let sum = self.checksum(offset, &out[at..]);
        out.extend_from_slice(&sum.to_le_bytes());
    }

    /// Checks the footer of a segment that has `tags` tags, and whose smallest stream offset is
    /// `stream_offset`.
    pub(crate) fn take_footer(
        self,
        bytes: &[u8],
        offset: u64,
        stream_offset: u64,
        tags: u32,
    ) -> Option<Footer> {
        let (entries, sum) = bytes.split_at_checked(bytes.len().checked_sub(CHECKSUM_BYTES)?)?;
        let tags_at = entries.len().checked_sub(tags as usize * FOOTER_TAG_BYTES)?;
        let fits = tags_at.is_multiple_of(FOOTER_ENTRY_BYTES);
        let right = fits && u32_at(sum, 0)? == self.checksum(offset, entries);
        let values = &entries[..tags_at];
        let first = u32_at(values, 0).unwrap_or(0);
        let last = tags_at.checked_sub(FOOTER_ENTRY_BYTES).and_then(|at| u32_at(values, at));
        let last = last.unwrap_or(0).max(first);
        right.then(|| Footer { stream_offset, entries: entries.into(), tags_at, first, last })
    }
}

/// A record that was read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record<'a> {
    pub(crate) seq: SeqNo,
    pub(crate) key: &'a [u8],
    /// Empty for a tag.
    pub(crate) value: &'a [u8],
    /// Whether this is a tag.
    pub(crate) is_tag: bool,
    /// The place in the cold stream, if this is a tag that names it.
    pub(crate) cold_offset: Option<u64>,
    /// Whether this is a marker.
    pub(crate) is_marker: bool,
    /// Bytes of the value, wherever the value is.
    pub(crate) value_bytes: u32,
    /// Bytes of the whole record.
    pub(crate) len: usize,
}

impl<'a> Record<'a> {
    /// The record at the beginning of bytes that were checked before.
    pub(crate) fn of_checked(bytes: &'a [u8]) -> Result<Record<'a>, &'static str> {
        const SHORT: &str = "a record is cut short";
        let word = u64_at(bytes, CHECKSUM_BYTES).ok_or(SHORT)?;
        let key_bytes = bytes.get(12..14).map(|b| u16::from_le_bytes([b[0], b[1]])).ok_or(SHORT)?;
        let value_bytes = u32_at(bytes, 14).ok_or(SHORT)?;
        let kind = word as u8;
        let (is_tag, is_marker) = (matches!(kind, KIND_TAG | KIND_PLACED_TAG), kind == KIND_MARKER);
        let stored_bytes = match kind {
            KIND_TAG => 0,
            KIND_PLACED_TAG => COLD_OFFSET_BYTES,
            _ => value_bytes as usize,
        };
        let len = HEADER_BYTES + usize::from(key_bytes) + stored_bytes;
        let whole = bytes.get(..len).ok_or(SHORT)?;
        let (key, value) = whole[HEADER_BYTES..].split_at(usize::from(key_bytes));
        let cold_offset = if kind == KIND_PLACED_TAG { u64_at(value, 0) } else { None };
        let value = if is_tag { &[] } else { value };
        Ok(Record { seq: word >> 8, key, value, is_tag, cold_offset, is_marker, value_bytes, len })
    }
}

/// The place of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecordPlace {
    /// At this offset of the segment.
    Here(u64),
    /// In the cold stream, under this stream offset.
    Cold(u64),
}

/// The places of the records in a collected segment.
#[derive(Debug)]
pub struct Footer {
    stream_offset: u64,
    entries: Box<[u8]>,
    /// Where the tags begin in `entries`.
    tags_at: usize,
    /// The smallest and the largest stream offset of the entries before the tags.
    first: u32,
    last: u32,
}

impl Footer {
    /// The place of the record with this stream offset. O(log records).
    pub(crate) fn find(&self, stream_offset: u64) -> Option<RecordPlace> {
        let stream_offset = u32::try_from(stream_offset.checked_sub(self.stream_offset)?).ok()?;
        let (values, tags) = self.entries.split_at(self.tags_at);
        let offset_at = |i: usize| u32_at(values, i * FOOTER_ENTRY_BYTES);
        let (mut low, mut high) = self.near(stream_offset);
        if low > 0 && offset_at(low).is_none_or(|first| stream_offset < first) {
            (low, high) = (0, low);
        } else if offset_at(high).is_some_and(|behind| behind <= stream_offset) {
            (low, high) = (high, values.len() / FOOTER_ENTRY_BYTES);
        }
        match search(values, FOOTER_ENTRY_BYTES, (low, high), stream_offset) {
            Some(at) => Some(RecordPlace::Here(u32_at(values, at + 4)?.into())),
            None => {
                let at = search(
                    tags,
                    FOOTER_TAG_BYTES,
                    (0, tags.len() / FOOTER_TAG_BYTES),
                    stream_offset,
                )?;
                Some(RecordPlace::Cold(u64_at(tags, at + 4)?))
            }
        }
    }

    /// Prefetches the cache lines that `find` will most likely read.
    pub(crate) fn ask_for(&self, stream_offset: u64) {
        let (low, high) =
            self.near(stream_offset.saturating_sub(self.stream_offset).min(u32::MAX.into()) as u32);
        let bytes = low * FOOTER_ENTRY_BYTES..high * FOOTER_ENTRY_BYTES;
        bytes.step_by(LINE_BYTES).for_each(|at| prefetch(&self.entries, at));
        // `find` compares this entry too.
        prefetch(&self.entries, high * FOOTER_ENTRY_BYTES);
    }

    /// The entries among which a stream offset is expected. If the records have one size and died
    /// at random, the rest are spread evenly. If the guess is wrong, `find` searches all entries.
    fn near(&self, stream_offset: u32) -> (usize, usize) {
        let count = self.tags_at / FOOTER_ENTRY_BYTES;
        let (first, span) = (self.first, u64::from(self.last - self.first).max(1));
        let at = u64::from(stream_offset.clamp(first, self.last) - first) * count as u64 / span;
        let at = at as usize;
        (at.saturating_sub(NEAR), (at + NEAR).min(count))
    }

    /// The i-th (stream offset, offset).
    pub(crate) fn entry(&self, i: usize) -> Option<(u64, u32)> {
        let at = i * FOOTER_ENTRY_BYTES;
        let values = &self.entries[..self.tags_at];
        let stream_offset = self.stream_offset.checked_add(u32_at(values, at)?.into())?;
        Some((stream_offset, u32_at(values, at + 4)?))
    }

    /// The i-th tag's (stream offset, cold stream offset).
    pub(crate) fn tag(&self, i: usize) -> Option<(u64, u64)> {
        let at = i * FOOTER_TAG_BYTES;
        let tags = &self.entries[self.tags_at..];
        let stream_offset = self.stream_offset.checked_add(u32_at(tags, at)?.into())?;
        Some((stream_offset, u64_at(tags, at + 4)?))
    }

    /// Memory taken.
    pub fn size_bytes(&self) -> usize {
        self.entries.len()
    }
}

/// The offset of the entry with `stream_offset`, in a table of `stride` bytes per entry that is
/// sorted by a leading stream offset. Searches the entries from `low` to `high` only.
fn search(
    table: &[u8],
    stride: usize,
    (mut low, mut high): (usize, usize),
    stream_offset: u32,
) -> Option<usize> {
    while low < high {
        let middle = low + (high - low) / 2;
        match u32_at(table, middle * stride)?.cmp(&stream_offset) {
            std::cmp::Ordering::Equal => return Some(middle * stride),
            std::cmp::Ordering::Less => low = middle + 1,
            std::cmp::Ordering::Greater => high = middle,
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_whose_record_exceeds_32_bits_is_no_record() {
        let most = u32::MAX as usize - HEADER_BYTES - 3;
        assert!(fits_record(3, most) && !fits_record(3, most + 1) && !fits_record(4, most));
    }

    #[test]
    fn records_are_bound_to_their_place_and_their_slots_life() {
        let seal = ChecksumSeed::new(7, 3);
        let mut bytes = Vec::new();
        seal.put(&mut bytes, 0, 9, b"key", b"value");
        let behind = bytes.len() as u64;
        seal.put(&mut bytes, behind, 10, b"", b"");
        let first = seal.take(&bytes, 0).expect("whole");
        assert_eq!((first.seq, first.key, first.value), (9, &b"key"[..], &b"value"[..]));
        assert_eq!(first.len as u64, record_bytes(3, 5));
        let rest = &bytes[first.len..];
        assert_eq!(seal.take(rest, first.len as u64).expect("whole").seq, 10);
        assert!(seal.take(rest, 0).is_err(), "another offset");
        assert!(ChecksumSeed::new(7, 4).take(&bytes, 0).is_err(), "another life of the slot");
        assert!(ChecksumSeed::new(8, 3).take(&bytes, 0).is_err(), "another file");
        for at in 0..first.len {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert!(seal.take(&damaged, 0).is_err(), "byte {at}");
            assert!(seal.take(&bytes[..at], 0).is_err(), "cut at {at}");
        }
    }

    #[test]
    fn tags_are_records_without_their_value() {
        let seal = ChecksumSeed::new(7, 3);
        let mut bytes = Vec::new();
        seal.put_tag(&mut bytes, 0, 9, b"key", 1 << 30);
        assert_eq!(bytes.len() as u64, tag_bytes(3));
        let tag = seal.take(&bytes, 0).expect("whole");
        assert!(tag.is_tag && tag.value.is_empty());
        assert_eq!((tag.seq, tag.key, tag.value_bytes), (9, &b"key"[..], 1 << 30));
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert!(seal.take(&damaged, 0).is_err(), "byte {at}");
        }
    }

    #[test]
    fn placed_tags_name_the_place_of_their_value() {
        let seal = ChecksumSeed::new(7, 3);
        let mut bytes = Vec::new();
        seal.put_placed_tag(&mut bytes, 5, 9, b"key", (1 << 40, 1 << 30));
        assert_eq!(bytes.len() as u64, placed_tag_bytes(3));
        let tag = seal.take(&bytes, 5).expect("whole");
        assert!(tag.is_tag && !tag.is_marker && tag.value.is_empty());
        assert_eq!((tag.seq, tag.key, tag.value_bytes), (9, &b"key"[..], 1 << 30));
        assert_eq!((tag.cold_offset, tag.len), (Some(1 << 40), bytes.len()));
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert!(seal.take(&damaged, 5).is_err(), "byte {at}");
            assert!(seal.take(&bytes[..at], 5).is_err(), "cut at {at}");
        }
    }

    #[test]
    fn markers_have_no_value() {
        let seal = ChecksumSeed::new(7, 3);
        let mut bytes = Vec::new();
        seal.put_marker(&mut bytes, 0, 9, b"key");
        assert_eq!(bytes.len() as u64, record_bytes(3, 0));
        let marker = seal.take(&bytes, 0).expect("whole");
        assert!(marker.is_marker && !marker.is_tag && marker.value.is_empty());
        assert_eq!((marker.seq, marker.key, marker.value_bytes), (9, &b"key"[..], 0));
        let mut with_value = Vec::new();
        seal.put_kind(&mut with_value, 0, KIND_MARKER, 9, (b"key", b"x", 1));
        assert!(seal.take(&with_value, 0).is_err());
    }

    #[test]
    fn footers_find_and_refuse() {
        let seal = ChecksumSeed::new(1, 1);
        let places: Vec<(u32, u32)> = (0..50u32).map(|i| (i * 10 + 5, i * 7)).collect();
        let tags: Vec<(u32, u64)> = (0..31u32).map(|i| (i * 10 + 7, u64::MAX - 7)).collect();
        let first = 1 << 40;
        let mut bytes = Vec::new();
        seal.put_footer(&mut bytes, 100, &places, &tags);
        assert_eq!(bytes.len() as u64, footer_bytes(81, 31));
        let footer = seal.take_footer(&bytes, 100, first, 31).expect("whole");
        for (i, (stream_offset, offset)) in places.iter().enumerate() {
            let stream_offset = first + u64::from(*stream_offset);
            assert_eq!(footer.find(stream_offset), Some(RecordPlace::Here(u64::from(*offset))));
            assert_eq!(footer.entry(i), Some((stream_offset, *offset)));
            assert_eq!(footer.find(stream_offset + 1), None);
        }
        for (i, (stream_offset, cold_offset)) in tags.iter().enumerate() {
            let stream_offset = first + u64::from(*stream_offset);
            assert_eq!(footer.find(stream_offset), Some(RecordPlace::Cold(*cold_offset)));
            assert_eq!(footer.tag(i), Some((stream_offset, *cold_offset)));
        }
        assert_eq!((footer.entry(50), footer.tag(31)), (None, None));
        assert_eq!((footer.find(first - 1), footer.find(u64::MAX)), (None, None));
        let at_end = seal.take_footer(&bytes, 100, u64::MAX, 31).expect("whole");
        assert_eq!(at_end.entry(0), None, "no stream_offset is that large");
        assert!(seal.take_footer(&bytes, 99, first, 31).is_none());
        assert!(seal.take_footer(&bytes, 100, first, 30).is_none(), "another number of tags");
        assert!(seal.take_footer(&bytes, 100, first, u32::MAX).is_none());
        assert!(seal.take_footer(&bytes[1..], 100, first, 31).is_none());
        assert!(seal.take_footer(&[], 0, first, 0).is_none());
    }

    #[test]
    fn footers_find_what_is_spread_unevenly() {
        let seal = ChecksumSeed::new(1, 1);
        let spreads: [fn(u32) -> u32; 4] =
            [|i| i * i * i, |i| u32::MAX - (100 - i).pow(3), |i| ((i / 50) << 31) | i, |i| 3 * i];
        for (spread, count) in spreads.iter().flat_map(|one| [1, 2, 15, 99].map(|n| (one, n))) {
            let places: Vec<(u32, u32)> = (1..=count).map(|i| (spread(i), i)).collect();
            let mut bytes = Vec::new();
            seal.put_footer(&mut bytes, 100, &places, &[]);
            let footer = seal.take_footer(&bytes, 100, 7, 0).expect("whole");
            for (stream_offset, offset) in &places {
                let stream_offset = 7 + u64::from(*stream_offset);
                footer.ask_for(stream_offset);
                assert_eq!(footer.find(stream_offset), Some(RecordPlace::Here(u64::from(*offset))));
                for other in [stream_offset - 1, stream_offset + 1] {
                    let is_there = places.iter().any(|(one, _)| u64::from(*one) + 7 == other);
                    assert_eq!(footer.find(other).is_some(), is_there);
                }
            }
        }
    }

    #[test]
    fn pointers_round_trip() {
        let pointer =
            Pointer { store: 300, group: 5, stream_offset: 1 << 40, value_bytes: 1 << 20 };
        let mut bytes = Vec::new();
        pointer.encode(&mut bytes);
        assert_eq!(Pointer::decode(&bytes), Ok(pointer));
        for cut in 0..bytes.len() {
            assert!(Pointer::decode(&bytes[..cut]).is_err());
        }
        bytes.push(0);
        assert!(Pointer::decode(&bytes).is_err());
    }
}
