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

use crate::error::{Error, Result};

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

/// A version of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// User key, shorter than 64 KiB.
    pub key: Vec<u8>,
    /// Position in the history of writes.
    pub seq: u64,
    /// Put or delete.
    pub kind: Kind,
    /// Value; empty for a delete.
    pub value: Vec<u8>,
}

impl Record {
    fn encoded_bytes(&self) -> usize {
        record_bytes(self.key.len(), self.value.len())
    }

    fn encode(&self, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(&self.seq.to_le_bytes());
        bytes.extend_from_slice(&[self.kind as u8, 0]);
        bytes.extend_from_slice(&(self.key.len() as u16).to_le_bytes());
        bytes.extend_from_slice(&(self.value.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&self.key);
        bytes.extend_from_slice(&self.value);
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

/// Encodes keys in order into page groups. `emit` gets the bytes of each group, a multiple of
/// `page_bytes`, and its records.
pub fn build_pages(
    keys: impl IntoIterator<Item = Result<KeyBlock>>,
    page_bytes: usize,
    mut emit: impl FnMut(Vec<u8>, &[Record]) -> Result<()>,
) -> Result<()> {
    let mut waiting: Vec<Record> = Vec::new();
    let mut used_bytes = HEADER_BYTES;
    for key in keys {
        let key = key?;
        let more_bytes: usize = key.iter().map(Record::encoded_bytes).sum();
        if used_bytes + more_bytes > page_bytes && !waiting.is_empty() {
            emit(encode(&waiting, page_bytes), &waiting)?;
            waiting.clear();
            used_bytes = HEADER_BYTES;
        }
        waiting.extend(key);
        used_bytes += more_bytes;
    }
    if !waiting.is_empty() {
        emit(encode(&waiting, page_bytes), &waiting)?;
    }
    Ok(())
}

fn encode(records: &[Record], page_bytes: usize) -> Vec<u8> {
    let mut offset = HEADER_BYTES + SLOT_BYTES * records.len();
    let used_bytes: usize = HEADER_BYTES + records.iter().map(Record::encoded_bytes).sum::<usize>();
    let page_count = used_bytes.div_ceil(page_bytes);
    let mut bytes = Vec::with_capacity(page_count * page_bytes);
    for word in [MAGIC, page_count as u32, records.len() as u32, used_bytes as u32] {
        bytes.extend_from_slice(&word.to_le_bytes());
    }
    for record in records {
        bytes.extend_from_slice(&(offset as u32).to_le_bytes());
        offset += record.encoded_bytes() - SLOT_BYTES;
    }
    records.iter().for_each(|record| record.encode(&mut bytes));
    bytes.resize(page_count * page_bytes, 0);
    bytes
}

/// A decoded page group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KvPage {
    records: Vec<Record>,
}

impl KvPage {
    /// Decodes the bytes of a whole group.
    pub fn decode(bytes: &[u8], page_bytes: usize) -> Result<KvPage> {
        let (used, record_count) = used_part(bytes, page_bytes).ok_or_else(corrupt)?;
        let mut expected = HEADER_BYTES + SLOT_BYTES * record_count;
        let mut records: Vec<Record> = Vec::with_capacity(record_count);
        for slot in 0..record_count {
            let offset = read_u32(used, HEADER_BYTES + SLOT_BYTES * slot);
            let is_expected = offset.is_some_and(|offset| offset as usize == expected);
            let record = decode_record(used, expected).filter(|_| is_expected);
            let record = record.ok_or_else(corrupt)?.to_record();
            expected += record.encoded_bytes() - SLOT_BYTES;
            let is_sorted = records.last().is_none_or(|last| {
                last.key < record.key || (last.key == record.key && last.seq > record.seq)
            });
            if !is_sorted {
                return Err(corrupt());
            }
            records.push(record);
        }
        if expected != used.len() || records.is_empty() {
            return Err(corrupt());
        }
        Ok(KvPage { records })
    }

    /// All records, in order.
    pub fn into_records(self) -> Vec<Record> {
        self.records
    }
}

/// A record inside the bytes of its page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordRef<'a> {
    /// User key.
    pub key: &'a [u8],
    /// Position in the history of writes.
    pub seq: u64,
    /// Put or delete.
    pub kind: Kind,
    /// Value; empty for a delete.
    pub value: &'a [u8],
}

impl RecordRef<'_> {
    fn to_record(self) -> Record {
        let RecordRef { key, seq, kind, value } = self;
        Record { key: key.to_vec(), seq, kind, value: value.to_vec() }
    }
}

/// The newest version of a key that a reader at `snapshot` sees, in the bytes of a whole group.
/// Looks at the records that a binary search meets and trusts the page's checksum for the others.
pub fn find_in<'a>(
    bytes: &'a [u8],
    page_bytes: usize,
    key: &[u8],
    snapshot: u64,
) -> Result<Option<RecordRef<'a>>> {
    let (used, record_count) = used_part(bytes, page_bytes).ok_or_else(corrupt)?;
    let record_at = |slot: usize| {
        let offset = read_u32(used, HEADER_BYTES + SLOT_BYTES * slot);
        offset.and_then(|offset| decode_record(used, offset as usize)).ok_or_else(corrupt)
    };
    let (mut from, mut to) = (0, record_count);
    while from < to {
        let middle = from.midpoint(to);
        let record = record_at(middle)?;
        if (record.key, u64::MAX - record.seq) < (key, u64::MAX - snapshot) {
            from = middle + 1;
        } else {
            to = middle;
        }
    }
    if from == record_count {
        return Ok(None);
    }
    let found = record_at(from)?;
    Ok((found.key == key).then_some(found))
}

fn corrupt() -> Error {
    Error::Corrupt { what: "page of keys and values", why: "its layout".into() }
}

/// The used bytes of a group, and how many records its header promises.
fn used_part(bytes: &[u8], page_bytes: usize) -> Option<(&[u8], usize)> {
    let used_bytes = read_u32(bytes, 12)? as usize;
    let group_bytes = (read_u32(bytes, 4)? as usize).checked_mul(page_bytes)?;
    let is_sized = read_u32(bytes, 0)? == MAGIC && group_bytes == bytes.len();
    let record_count = read_u32(bytes, 8)? as usize;
    let is_possible = record_count <= used_bytes / (SLOT_BYTES + RECORD_BYTES);
    let used = bytes.get(..used_bytes).filter(|_| is_sized && is_possible)?;
    Some((used, record_count))
}

fn read_u32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn decode_record(used: &[u8], offset: usize) -> Option<RecordRef<'_>> {
    let rest = used.get(offset..)?;
    let seq = u64::from_le_bytes(*rest.first_chunk()?);
    let kind = match rest.get(8..10)? {
        [1, 0] => Kind::Put,
        [2, 0] => Kind::Delete,
        _ => return None,
    };
    let key_len = usize::from(u16::from_le_bytes(*rest.get(10..)?.first_chunk()?));
    let value_len = read_u32(rest, 12)? as usize;
    let (key, rest) = rest.get(RECORD_BYTES..)?.split_at_checked(key_len)?;
    let value = rest.get(..value_len)?;
    Some(RecordRef { key, seq, kind, value })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(key: &str, seq: u64, value_len: usize) -> Record {
        Record { key: key.into(), seq, kind: Kind::Put, value: vec![seq as u8; value_len] }
    }

    fn built(keys: Vec<KeyBlock>) -> Vec<Vec<u8>> {
        let mut groups = Vec::new();
        let emit = |bytes, _: &[Record]| {
            groups.push(bytes);
            Ok(())
        };
        build_pages(keys.into_iter().map(Ok), 512, emit).unwrap();
        groups
    }

    #[test]
    fn records_come_back_and_versions_are_found() {
        let gone = Record { key: b"b".to_vec(), seq: 9, kind: Kind::Delete, value: Vec::new() };
        let keys = vec![vec![put("a", 3, 10)], vec![gone.clone(), put("b", 5, 1), put("b", 2, 0)]];
        let groups = built(keys.clone());
        assert_eq!((groups.len(), groups[0].len()), (1, 512));
        let page = KvPage::decode(&groups[0], 512).unwrap();
        let find = |key: &[u8], snapshot| {
            let found = find_in(&groups[0], 512, key, snapshot).unwrap();
            found.map(RecordRef::to_record)
        };
        assert_eq!(find(b"b", 100), Some(gone));
        assert_eq!(find(b"b", 8).map(|record| record.seq), Some(5));
        assert_eq!(find(b"b", 1), None);
        assert_eq!((find(b"", 100), find(b"c", 100), find(b"a", 2)), (None, None, None));
        assert_eq!(page.into_records(), keys.concat());
    }

    #[test]
    fn a_large_key_has_a_group_of_its_own() {
        let keys = vec![vec![put("a", 1, 10)], vec![put("b", 2, 2000)], vec![put("c", 3, 10)]];
        let groups = built(keys.clone());
        assert_eq!(groups.iter().map(Vec::len).collect::<Vec<_>>(), [512, 2048, 512]);
        for (group, key) in groups.iter().zip(keys) {
            assert_eq!(KvPage::decode(group, 512).unwrap().into_records(), key);
        }
        assert!(KvPage::decode(&groups[1][..512], 512).is_err(), "its extension is missing");
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
                let mut bytes = group[0].clone();
                bytes[at] = changed;
                let _ = KvPage::decode(&bytes, 512);
                let _ = find_in(&bytes, 512, b"b", 3);
            }
            assert!(find_in(&group[0][..at], 512, b"b", 3).is_err());
            assert!(KvPage::decode(&group[0][..at], 512).is_err());
        }
    }
}
