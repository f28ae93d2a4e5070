//! Log segments: any bytes as a file, or any bytes as records under valid checksums.
//!
//! 1. The log is replayed.
//! 2. For records under valid checksums, a second decoder, written from docs/formats.md, computes
//!    the expected result: operations, damage, or a lost suffix.
//! 3. The result is written again, and must be the same when it is replayed.

use runstone::storage::{Category, MemoryStorage, Storage};
use runstone::testing::{LogHeader, LogKind, LogStart, LogWriter, replay};
use runstone::{Error, Kind};

use super::parts::{Part, parts, put_file, put_varint};

/// Flag: records under checksums.
const SEALED: u8 = 1;

/// The kind of a put that a get has made.
const FOLDED_PUT: u8 = 129;

/// An operation with its number.
type Replayed = (u64, u8, u32, Vec<u8>, Vec<u8>);

/// What a log says: operations and whether a suffix is lost. `None`: damage.
type Said = Option<(Vec<Replayed>, bool)>;

/// Judges an input.
pub fn judge(data: &[u8]) {
    let Some((flags, rest)) = data.split_first() else { return };
    let storage = MemoryStorage::new();
    let expected = if flags & SEALED != 0 {
        let records = parts(rest);
        write_segments(&storage, &records);
        Some(second_opinion(&records))
    } else {
        put_file(&storage, "000001.wal", Category::Wal, rest);
        None
    };
    let said = read(&storage);
    if let Some(expected) = expected {
        assert_eq!(said, expected, "the two decoders agree");
    }
    let Some((operations, _)) = said else { return };
    let bytes: usize = operations.iter().map(|(.., key, value)| key.len() + value.len()).sum();
    assert!(bytes <= rest.len(), "no more comes out than went in");
    let again = MemoryStorage::new();
    write_again(&again, &operations);
    assert_eq!(read(&again), Some((operations, false)), "the same when written again");
}

fn read(storage: &dyn Storage) -> Said {
    let mut operations = Vec::new();
    let start = LogStart { segment: 1, seq: 1 };
    let outcome = replay(
        storage,
        start,
        |_, _, _| Ok(true),
        |_, seq, op| {
            let (key, value) = (op.key.to_vec(), op.value.to_vec());
            let kind = if op.is_folded { FOLDED_PUT } else { op.kind as u8 };
            operations.push((seq, kind, op.keyspace, key, value));
            Ok(())
        },
    );
    match outcome {
        Ok(recovered) => {
            assert_eq!(recovered.last_seq, operations.len() as u64);
            Some((operations, recovered.torn))
        }
        Err(Error::Corruption { .. } | Error::NewerFormat { .. }) => None,
        Err(other) => panic!("another kind of error: {other}"),
    }
}

fn segment(storage: &dyn Storage, number: u64) -> LogWriter {
    let file = storage.create(&format!("{number:06}.wal"), Category::Wal).expect("a new name");
    let header = LogHeader { number, id: number ^ 0x5eed, manifest: 0 };
    LogWriter::create(file, LogKind::Wal, header).expect("memory")
}

/// Writes records into segments. A marked record begins the next segment.
fn write_segments(storage: &dyn Storage, records: &[Part<'_>]) {
    let mut number = 1;
    let mut log = segment(storage, number);
    for record in records {
        if record.is_marked {
            number += 1;
            log = segment(storage, number);
        }
        log.append(&[record.bytes]).expect("memory");
    }
}

fn write_again(storage: &dyn Storage, operations: &[Replayed]) {
    let mut log = segment(storage, 1);
    for (seq, kind, keyspace, key, value) in operations {
        let mut record = Vec::new();
        [*seq, 0, 1].into_iter().for_each(|number| put_varint(&mut record, number));
        record.push(*kind);
        put_varint(&mut record, u64::from(*keyspace));
        put_varint(&mut record, key.len() as u64);
        record.extend_from_slice(key);
        if *kind != Kind::Delete as u8 {
            put_varint(&mut record, value.len() as u64);
            record.extend_from_slice(value);
        }
        log.append(&[&record]).expect("memory");
    }
}

/// Replays the records by the rules of docs/formats.md section 5.
fn second_opinion(records: &[Part<'_>]) -> Said {
    let mut operations: Vec<Replayed> = Vec::new();
    // The first record of the current segment, which is the first that may follow a gap.
    let mut segment_at = 0;
    for (i, record) in records.iter().enumerate() {
        if record.is_marked {
            segment_at = i;
        }
        let mut rest = record.bytes;
        let (first_seq, _, count) = head(&mut rest)?;
        let expected = operations.len() as u64 + 1;
        if first_seq != expected {
            let later =
                records[segment_at..].iter().filter_map(|record| head(&mut { record.bytes }));
            let later: Vec<_> = later.filter(|(seq, ..)| *seq >= expected).collect();
            let was_synced = later.iter().any(|(seq, unsynced, _)| seq - 1 - unsynced >= expected);
            return (!was_synced).then_some((operations, true));
        }
        if count == 0 {
            // A manifest and its durable bytes, the load that ended, and a note.
            let (_number, _bytes) = (varint(&mut rest)?, varint(&mut rest)?);
            if !rest.is_empty() {
                varint(&mut rest)?;
            }
            if !rest.is_empty() {
                byte_string(&mut rest)?;
            }
        }
        for seq in first_seq..first_seq + count {
            operations.push(operation(&mut rest, seq)?);
        }
        if !rest.is_empty() {
            return None;
        }
    }
    Some((operations, false))
}

/// The first sequence number, how many numbers before it are not synced, and the count.
fn head(rest: &mut &[u8]) -> Option<(u64, u64, u64)> {
    let (first_seq, unsynced, count) = (varint(rest)?, varint(rest)?, varint(rest)?);
    let fits = first_seq >= 1 && unsynced < first_seq && first_seq.checked_add(count)? < 1 << 56;
    fits.then_some((first_seq, unsynced, count))
}

fn operation(rest: &mut &[u8], seq: u64) -> Option<Replayed> {
    let kind = *rest.split_off_first()?;
    let keyspace = u32::try_from(varint(rest)?).ok()?;
    let key = byte_string(rest)?;
    let value = match kind {
        0 => Vec::new(),
        1 | 2 | 3 | 5 | FOLDED_PUT => byte_string(rest)?,
        _ => return None,
    };
    Some((seq, kind, keyspace, key, value))
}

fn byte_string(rest: &mut &[u8]) -> Option<Vec<u8>> {
    let len = usize::try_from(varint(rest)?).ok()?;
    rest.split_off(..len).map(<[u8]>::to_vec)
}

fn varint(rest: &mut &[u8]) -> Option<u64> {
    let mut value = 0u128;
    for shift in (0..70).step_by(7) {
        let byte = *rest.split_off_first()?;
        value |= u128::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return u64::try_from(value).ok();
        }
    }
    None
}
