//! Value files: section 12 of docs/formats.md.

use std::collections::BTreeSet;

use super::bytes::{Bytes, at, low32, xxh3, xxh3_seeded};
use super::manifest::{Group, Segment, ValueFile};
use super::table::Entry;

/// A value file with what the manifest says about it.
pub struct Values<'a> {
    bytes: &'a [u8],
    uid: u64,
    file: &'a ValueFile,
}

/// Pairs of a stream_offset, and the offset or cold stream_offset to which it leads.
type Places = Vec<(u64, u64)>;

/// A record, a tag or a marker.
struct Record<'a> {
    kind: u8,
    seq: u64,
    key: &'a [u8],
    /// The length of the value, wherever the value is.
    value_len: u32,
    value: &'a [u8],
    /// Where a tag says that its value is, in a file whose pointers are written back.
    cold_offset: Option<u64>,
    len: u64,
}

/// The value of a write in the log that went to its file first.
pub fn early(
    bytes: &[u8],
    (store_uid, number, file): (u64, u64, &ValueFile),
    key: &[u8],
    mut pointer: Bytes<'_>,
    mut place: Bytes<'_>,
) -> Vec<u8> {
    let uid = xxh3_seeded(&number.to_le_bytes(), store_uid);
    let (group, stream_offset, len) = (pointer.varint(), pointer.varint(), pointer.varint());
    assert!(pointer.0.is_empty() && group == 0 && file.placement == 1);
    let (slot, slots, generation) = (place.varint(), place.varint(), place.varint());
    let (offset, checksum) = (place.varint(), place.u32());
    assert!(place.0.is_empty() && offset <= stream_offset && slots > 0);
    let at = (4096 + slot * file.slot_bytes + offset) as usize;
    let record = &bytes[at..at + 18 + key.len() + len as usize];
    let seed = xxh3_seeded(&generation.to_le_bytes(), uid).wrapping_add(offset);
    assert_eq!(low32(xxh3_seeded(&record[4..], seed)), checksum);
    let mut reader = Bytes(record);
    // The kind of a value, and no sequence number.
    assert_eq!((reader.u32(), reader.u64()), (checksum, 1));
    assert_eq!((usize::from(reader.u16()), u64::from(reader.u32())), (key.len(), len));
    assert_eq!(reader.take(key.len()), key);
    reader.0.to_vec()
}

impl<'a> Values<'a> {
    /// Checks the header and every record and footer that the manifest names. The kinds of records
    /// that occur are added to `kinds`.
    pub fn open(
        bytes: &'a [u8],
        (store_uid, number): (u64, u64),
        file: &'a ValueFile,
        kinds: &mut BTreeSet<u8>,
    ) -> Values<'a> {
        let uid = xxh3_seeded(&number.to_le_bytes(), store_uid);
        let mut header = at(bytes, 0);
        assert_eq!(header.take(8), b"RunValue");
        let (format, slot_bytes) = (header.u32(), u64::from(header.u32()));
        assert_eq!((format, slot_bytes, header.u64()), (1, file.slot_bytes, uid));
        assert_eq!(header.u32(), low32(xxh3(&bytes[..24])));
        assert!(header.take(4096 - 28).iter().all(|byte| *byte == 0));
        let values = Values { bytes, uid, file };
        for group in &file.groups {
            for segment in &group.segments {
                values.check_segment(group, segment, kinds);
            }
        }
        values
    }

    fn check_segment(&self, group: &Group, segment: &Segment, kinds: &mut BTreeSet<u8>) {
        let (mut offset, mut tags, mut cold_bytes) = (0, 0, 0);
        for _ in 0..segment.records {
            let record = self.record(segment, offset);
            kinds.insert(record.kind);
            if let Some(place) = record.cold_offset {
                // A record that a compaction found dead may be gone before its tag.
                if let Some(cold) = self.find(self.file.groups.len() - 1, place) {
                    assert_eq!((cold.kind, cold.seq, cold.key), (1, record.seq, record.key));
                    assert_eq!(cold.value_len, record.value_len);
                }
            }
            if [2, 4].contains(&record.kind) {
                tags += 1;
                cold_bytes += 18 + record.key.len() as u64 + u64::from(record.value_len);
            }
            offset += record.len;
        }
        assert_eq!((offset, tags, cold_bytes), (segment.bytes, segment.tags, segment.cold_bytes));
        assert!(tags == 0 || segment.is_collected == (self.file.placement == 2));
        let is_within =
            segment.is_collected || segment.stream_offset + segment.bytes <= group.stream_end;
        assert!(is_within && offset <= segment.slots * self.file.slot_bytes);
        if segment.is_collected {
            let (values, tags) = self.footer(segment);
            let all = values
                .iter()
                .map(|(stream_offset, _)| stream_offset)
                .chain(tags.iter().map(|(stream_offset, _)| stream_offset));
            assert!(all.min() >= Some(&segment.stream_offset));
            assert!(values.is_sorted() && tags.is_sorted());
        }
    }

    fn segment_bytes(&self, segment: &Segment) -> &'a [u8] {
        &self.bytes[(4096 + segment.slot * self.file.slot_bytes) as usize..]
    }

    fn seed(&self, segment: &Segment, offset: u64) -> u64 {
        xxh3_seeded(&segment.generation.to_le_bytes(), self.uid).wrapping_add(offset)
    }

    fn record(&self, segment: &Segment, offset: u64) -> Record<'a> {
        let bytes = &self.segment_bytes(segment)[offset as usize..];
        let mut reader = Bytes(bytes);
        let (checksum, word) = (reader.u32(), reader.u64());
        let (key_len, value_len) = (usize::from(reader.u16()), reader.u32());
        let (kind, seq) = (word as u8, word >> 8);
        let key = reader.take(key_len);
        let mut cold_offset = None;
        let value = match kind {
            1 => reader.take(value_len as usize),
            2 => &[],
            3 if value_len == 0 => &[],
            4 if self.file.placement == 4 => {
                cold_offset = Some(reader.u64());
                &[]
            }
            _ => panic!("record of kind {kind}"),
        };
        let len = bytes.len() - reader.0.len();
        assert_eq!(checksum, low32(xxh3_seeded(&bytes[4..len], self.seed(segment, offset))));
        Record { kind, seq, key, value_len, value, cold_offset, len: len as u64 }
    }

    /// (stream_offset, offset) of records, and (stream_offset, cold stream_offset) of tags.
    fn footer(&self, segment: &Segment) -> (Places, Places) {
        let bytes = &self.segment_bytes(segment)[segment.bytes as usize..];
        let mut reader = Bytes(bytes);
        let count = segment.records - segment.tags;
        let stream_offset = |less: u32| segment.stream_offset + u64::from(less);
        let values =
            (0..count).map(|_| (stream_offset(reader.u32()), u64::from(reader.u32()))).collect();
        let tags = (0..segment.tags).map(|_| (stream_offset(reader.u32()), reader.u64())).collect();
        let len = bytes.len() - reader.0.len();
        let sum = low32(xxh3_seeded(&bytes[..len], self.seed(segment, segment.bytes)));
        assert_eq!(reader.u32(), sum);
        (values, tags)
    }

    /// The record of a place in the stream of a group, if it is there.
    fn find(&self, group: usize, stream_offset: u64) -> Option<Record<'a>> {
        let segments = &self.file.groups[group].segments;
        let segment = segments.iter().rfind(|segment| segment.stream_offset <= stream_offset)?;
        if !segment.is_collected {
            return Some(self.record(segment, stream_offset - segment.stream_offset));
        }
        let (values, tags) = self.footer(segment);
        match values.iter().find(|(at, _)| *at == stream_offset) {
            Some((_, offset)) => Some(self.record(segment, *offset)),
            None => {
                let tag = tags.iter().find(|(at, _)| *at == stream_offset)?;
                self.find(self.file.groups.len() - 1, tag.1)
            }
        }
    }

    /// The value that an entry points to. The argument is the part of the pointer after the file
    /// number.
    pub fn value(&self, entry: &Entry, pointer: &mut Bytes<'_>) -> Vec<u8> {
        let (group, stream_offset, len) = (pointer.varint(), pointer.varint(), pointer.varint());
        let expiry_bytes = if entry.kind == 7 { 8 } else { 0 };
        assert_eq!(pointer.0.len(), expiry_bytes);
        let (groups, cold) = match self.file.placement {
            2 | 4 => (self.file.groups.len() - 1, self.file.groups.len() as u64 - 1),
            _ => (self.file.groups.len(), u64::MAX),
        };
        let of_key = (u128::from(xxh3_seeded(&entry.key, self.uid)) * groups as u128) >> 64;
        let is_cold = self.file.placement == 4 && group == cold && entry.kind == 5;
        assert!(is_cold || u128::from(group) == of_key, "the key's group, or the cold stream");
        let record = self.find(group as usize, stream_offset).expect("a record");
        assert_eq!((record.kind, record.key), (1, &entry.key[..]));
        match entry.kind {
            4 | 7 => assert!(record.seq == entry.seq || record.seq == 0),
            _ => assert!(record.seq < entry.seq),
        }
        assert_eq!(record.value.len() as u64, len);
        record.value.to_vec()
    }
}
