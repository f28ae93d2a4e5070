//! `CURRENT`, log files and WAL records: sections 3, 4 and 5 of docs/formats.md.

use super::bytes::{Bytes, PHI, at, low32, xxh3, xxh3_seeded};

const FRAME_BYTES: u64 = 32 << 10;
const HEADERS_BYTES: u64 = 128;

/// Name and length of the manifest in force.
pub fn current(bytes: &[u8]) -> (String, u64) {
    assert!(bytes.len() <= 128);
    let line = std::str::from_utf8(bytes).expect("text").strip_suffix('\n').expect("one line");
    let (covered, checksum) = line.rsplit_once(' ').expect("a checksum");
    assert_eq!(checksum, format!("{:016x}", xxh3(covered.as_bytes())));
    let words: Vec<&str> = covered.split(' ').collect();
    let ([name, length] | [name, length, "closed"]) = words[..] else { panic!("{line}") };
    (name.to_string(), length.parse().expect("a number"))
}

/// A note for readers of the history.
fn note(reader: &mut Bytes<'_>) {
    let keyspace = |reader: &mut Bytes<'_>| {
        let (_id, _name, _options) = (reader.varint(), reader.text(), reader.text());
    };
    match reader.u8() {
        1 => keyspace(reader),
        2 | 3 | 5 => drop(reader.varint()),
        4 => {
            let (_history, _forked_at) = (reader.u64(), reader.varint());
            (0..reader.varint()).for_each(|_| keyspace(reader));
        }
        kind => panic!("note {kind}"),
    }
    assert!(reader.is_empty());
}

/// The valid part of a log file.
pub struct LogFile {
    /// The records, each with the offset of its first fragment.
    pub records: Vec<(u64, Vec<u8>)>,
    pub end: u64,
}

/// `None` if the file has no header with its own number.
pub fn read(bytes: &[u8], magic: &[u8; 8], number: u64) -> Option<LogFile> {
    if bytes.len() < HEADERS_BYTES as usize {
        return None;
    }
    let id = header(&bytes[..64], magic, number).or_else(|| header(&bytes[64..], magic, number))?;
    let (mut records, mut end) = (Vec::new(), HEADERS_BYTES);
    while let Some((start, record, behind)) = record(bytes, id, end) {
        records.push((start, record));
        end = behind;
    }
    Some(LogFile { records, end })
}

fn header(bytes: &[u8], magic: &[u8; 8], number: u64) -> Option<u64> {
    let mut reader = Bytes(bytes);
    let (is_magic, format, zero) = (reader.take(8) == magic, reader.u32(), reader.u32());
    let (of_number, id, _boot) = (reader.u64(), reader.u64(), reader.u128());
    let (manifest, zeros, checksum) = (reader.u64(), reader.u32(), reader.u32());
    if !is_magic || checksum != low32(xxh3(&bytes[..60])) {
        return None;
    }
    assert_eq!((format, zero, zeros), (1, 0, 0));
    assert!(magic == b"RunstWAL" || manifest == 0);
    (of_number == number).then_some(id)
}

/// Where the record after `end` starts, its bytes, and where it ends.
fn record(bytes: &[u8], id: u64, end: u64) -> Option<(u64, Vec<u8>, u64)> {
    let (mut offset, mut start, mut record) = (end, None, Vec::new());
    loop {
        let room = FRAME_BYTES - offset % FRAME_BYTES;
        if room < 7 {
            let padding = bytes.get(offset as usize..(offset + room) as usize)?;
            assert!(padding.iter().all(|byte| *byte == 0), "padding at {offset}");
            offset += room;
        }
        let mut reader = Bytes(bytes.get(offset as usize..)?);
        if reader.0.len() < 7 {
            return None;
        }
        let (checksum, len, kind) = (reader.u32(), u64::from(reader.u16()), reader.u8());
        let in_frame = offset % FRAME_BYTES + 7 + len <= FRAME_BYTES;
        if !in_frame || reader.0.len() < len as usize {
            return None;
        }
        let data = reader.take(len as usize);
        let seed = id ^ offset.wrapping_mul(PHI) ^ u64::from(kind) << 56;
        if checksum != low32(xxh3_seeded(data, seed)) {
            return None;
        }
        // 1 full, 2 first, 3 middle, 4 last.
        if matches!(kind, 1 | 2) != start.is_none() {
            return None;
        }
        let from = *start.get_or_insert(offset);
        record.extend_from_slice(data);
        offset += 7 + len;
        match kind {
            1 | 4 => return Some((from, record, offset)),
            2 | 3 => {}
            _ => return None,
        }
    }
}

/// One operation of the log.
pub struct Operation {
    pub seq: u64,
    pub kind: u8,
    pub keyspace: u64,
    pub key: Vec<u8>,
    pub value: Vec<u8>,
    /// The place of the record that an operation of kind 4 points to; empty for other kinds.
    pub place: Vec<u8>,
}

/// All operations of the segments from the floor on. Sequence numbers continue without a gap.
pub fn operations(segments: &[(u64, &[u8])], start_seq: u64) -> Vec<Operation> {
    let mut operations = Vec::new();
    let mut next = start_seq;
    for (number, bytes) in segments {
        let Some(log) = read(bytes, b"RunstWAL", *number) else { continue };
        for (_, record) in &log.records {
            let mut reader = at(record, 0);
            let (first, unsynced, count) = (reader.varint(), reader.varint(), reader.varint());
            assert!(first == next && unsynced < first);
            if count == 0 {
                let (_manifest, _durable_bytes) = (reader.varint(), reader.varint());
                if !reader.is_empty() {
                    let ended_load = reader.varint();
                    assert!(ended_load < first);
                }
                if !reader.is_empty() {
                    note(&mut at(reader.bytes(), 0));
                }
            }
            for seq in first..first + count {
                let (kind, keyspace) = (reader.u8(), reader.varint());
                // 129 is a put that a get has made.
                let kind = if kind == 129 { 1 } else { kind };
                assert!(matches!(kind, 0..=6), "kind {kind}");
                let key = reader.bytes().to_vec();
                let value = if kind == 0 { Vec::new() } else { reader.bytes().to_vec() };
                let place = if kind == 4 { reader.bytes().to_vec() } else { Vec::new() };
                operations.push(Operation { seq, kind, keyspace, key, value, place });
            }
            assert!(reader.is_empty());
            next = first + count;
        }
    }
    operations
}
