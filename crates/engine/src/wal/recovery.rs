//! Reads the log back after a crash, and distinguishes a torn tail from corruption.
//!
//! 1. Segments are read in order of their numbers, from the manifest's floor on. Each record must
//!    continue the sequence numbers of the record before it.
//! 2. If a segment ends and the next one continues without a gap, nothing is missing.
//! 3. If the values of a record should be in their files and are missing, the record ends its
//!    segment like a torn record: the power loss that lost a value also lost the write.
//! 4. Otherwise something is missing. It is corruption if a valid record after the gap says that
//!    the missing part was durable when that record was written. In all other cases an unsynced
//!    suffix was lost: in a power loss, or because these files are a copy of a disk that a running
//!    machine was writing to. The records after the gap are dropped (P2), because nobody was
//!    promised that they survive. It proves nothing that the machine has not rebooted since: a copy
//!    of its disk shows no reboot either.

use std::sync::Arc;

use runstone_storage::{Category, Storage};

use crate::error::{Error, Result};
use crate::keys::codec::Reader;
use crate::keys::{MAX_SEQ, SeqNo};
use crate::log::{
    BadHeader, HEADER_BYTES, LogHeader, LogKind, LogReader, Next, newer_format, number_in,
};
use crate::tree::manifest::Current;
use crate::wal::batch::{Operation, take_operation};
use crate::wal::segments::segment_name;

/// The result of a replay.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Largest sequence number replayed; 0 if none was.
    pub last_seq: SeqNo,
    /// Records replayed.
    pub records: u64,
    /// Where the valid part of the log ends: segment and offset.
    pub end: (u64, u64),
    /// Whether there are valid records after that end. They are an unsynced suffix of the log,
    /// which is not used.
    pub torn: bool,
    /// How many of those records contain writes.
    pub lost_records: u64,
    /// The segments that contain those records.
    pub lost_segments: Vec<u64>,
    /// The segment and offset of each record whose values are missing from their files. Such a
    /// record ends its segment.
    pub without_values: Vec<(u64, u64)>,
    /// The newest manifest that a record names, and how many of its bytes were durable.
    pub manifest: Current,
}

/// A decoded record head.
pub(crate) struct Head {
    pub(crate) first_seq: SeqNo,
    /// Everything up to this sequence number was synced when the record was written.
    pub(crate) durable_seq: SeqNo,
    pub(crate) count: u64,
}

/// Numbers of the segments that are present, from `floor` on, ascending.
pub fn segments(storage: &dyn Storage, floor: u64) -> Result<Vec<u64>> {
    let names = storage.names("wal")?;
    let numbers = names.iter().filter_map(|name| number_in(name, "wal"));
    let mut numbers: Vec<u64> = numbers.filter(|number| *number >= floor).collect();
    numbers.sort_unstable();
    Ok(numbers)
}

/// Where the log begins, according to the manifest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogStart {
    /// First segment needed.
    pub segment: u64,
    /// Sequence number of its first record.
    pub seq: SeqNo,
}

/// Replays the log in order: calls `apply` once for each operation, with the operation's segment.
/// `is_whole` says whether the value of an operation is in its file, if it should be; it gets the
/// segment and the offset of the record too.
pub fn replay(
    storage: &dyn Storage,
    start: LogStart,
    mut is_whole: impl FnMut((u64, u64), SeqNo, &Operation<'_>) -> Result<bool>,
    mut apply: impl FnMut(u64, SeqNo, Operation<'_>) -> Result<()>,
) -> Result<Recovered> {
    let mut recovered = Recovered { last_seq: start.seq - 1, ..Recovered::default() };
    // Where the first segment after the last record ended, in case something is missing there.
    // Segments without a record may follow it.
    let mut end = None;
    for number in segments(storage, start.segment)? {
        let Some(mut reader) = open_segment(storage, number)? else { continue };
        while let Next::Record { offset, bytes } = step(&mut reader, number, &mut end)? {
            let (head, operations) = decode_head(&bytes, number, offset)?;
            let manifest = Current::at(reader.manifest(), 0);
            recovered.manifest = recovered.manifest.max(manifest);
            if head.first_seq != recovered.last_seq + 1 {
                recovered.end = end.unwrap_or((number, HEADER_BYTES - 1));
                judge(storage, &mut recovered)?;
                recovered.torn = true;
                return Ok(recovered);
            }
            if head.count == 0 {
                let edits = take_edits(operations);
                let edits = edits.ok_or_else(|| damaged(number, offset, "does not decode"))?;
                recovered.manifest = recovered.manifest.max(edits.manifest);
                end = None;
                continue;
            }
            let (place, mut all_whole) = ((number, offset), true);
            each_operation(&head, operations.clone(), place, |seq, one| {
                if all_whole && !one.place.is_empty() {
                    all_whole = is_whole(place, seq, &one)?;
                }
                Ok(())
            })?;
            if !all_whole {
                recovered.without_values.push(place);
                end.get_or_insert((number, offset - 1));
                break;
            }
            each_operation(&head, operations, place, |seq, one| apply(number, seq, one))?;
            recovered.records += 1;
            recovered.last_seq = head.first_seq + head.count - 1;
            end = None;
        }
    }
    recovered.end = end.unwrap_or((start.segment, HEADER_BYTES - 1));
    judge(storage, &mut recovered)?;
    Ok(recovered)
}

/// Calls `see` for each operation of a record. They are not collected first, because a record may
/// have millions.
pub(super) fn each_operation<'a>(
    head: &Head,
    mut reader: Reader<'a>,
    (number, offset): (u64, u64),
    mut see: impl FnMut(SeqNo, Operation<'a>) -> Result<()>,
) -> Result<()> {
    for seq in head.first_seq..head.first_seq + head.count {
        let operation = take_operation(&mut reader)
            .map_err(|_| damaged(number, offset, "operation does not decode"))?;
        see(seq, operation)?;
    }
    match reader.is_empty() {
        true => Ok(()),
        false => Err(damaged(number, offset, "bytes behind the last operation")),
    }
}

/// Returns the next record, and notes where the valid part of the segment ends.
fn step(reader: &mut LogReader, number: u64, end: &mut Option<(u64, u64)>) -> Result<Next> {
    let next = reader.next()?;
    if let Next::End { offset } = next {
        end.get_or_insert((number, offset));
    }
    Ok(next)
}

/// Counts the valid records after the end of the valid part: they are an unsynced suffix. It is
/// corruption if one of them says that the missing part was synced.
fn judge(storage: &dyn Storage, recovered: &mut Recovered) -> Result<()> {
    let ((number, offset), expected) = (recovered.end, recovered.last_seq + 1);
    let (mut later, mut lost) = (0u64, 0);
    let mut durable = 0;
    for segment in segments(storage, number)? {
        let Some(mut reader) = open_segment(storage, segment)? else { continue };
        let before = lost;
        let from = if segment == number { offset } else { HEADER_BYTES - 1 };
        reader.scan_after(from, |_, bytes| {
            // A first fragment may have less than the whole record, but it always has the head.
            let mut reader = Reader::new(bytes);
            let Some(head) = take_head(&mut reader) else { return };
            if head.count == 0 {
                // What the record says about the manifest holds even if the record itself is not
                // used.
                let edits = take_edits(reader).unwrap_or_default();
                recovered.manifest = recovered.manifest.max(edits.manifest);
            }
            if head.first_seq >= expected {
                later += 1;
                lost += u64::from(head.count > 0);
                durable = durable.max(head.durable_seq);
            }
        })?;
        recovered.lost_segments.extend((lost > before).then_some(segment));
    }
    if later > 0 && durable >= expected {
        let what =
            format!("record {expected} is damaged or missing; valid ones that follow it: {later}");
        return Err(damaged(number, offset, what));
    }
    (recovered.torn, recovered.lost_records) = (later > 0, lost);
    Ok(())
}

/// Whether the segment has a header of its own. A segment without a header has no record, and may
/// be removed.
pub fn is_begun(storage: &dyn Storage, number: u64) -> Result<bool> {
    Ok(open_segment(storage, number)?.is_some())
}

/// Opens a segment. `None` if it never got a header, or if its header belongs to an earlier use of
/// the file.
pub(super) fn open_segment(storage: &dyn Storage, number: u64) -> Result<Option<LogReader>> {
    let name = segment_name(number);
    let file = storage.open(&name, Category::Wal)?;
    let mut bytes = [0; HEADER_BYTES as usize];
    if file.len()? < HEADER_BYTES {
        return Ok(None);
    }
    file.read_at(0, &mut bytes)?;
    match LogHeader::decode(&bytes, LogKind::Wal) {
        Ok(header) if header.number == number => {
            Ok(Some(LogReader::new(Arc::clone(&file), &header)?))
        }
        Err(BadHeader::Newer(found)) => Err(newer_format(&name, found)),
        Ok(_) | Err(BadHeader::Invalid) => Ok(None),
    }
}

pub(crate) fn decode_head(bytes: &[u8], number: u64, offset: u64) -> Result<(Head, Reader<'_>)> {
    let mut reader = Reader::new(bytes);
    match take_head(&mut reader) {
        Some(head) => Ok((head, reader)),
        None => Err(damaged(number, offset, "record head does not decode")),
    }
}

fn take_head(reader: &mut Reader<'_>) -> Option<Head> {
    let first_seq = reader.take_varint().ok()?;
    let unsynced = reader.take_varint().ok()?;
    let count = reader.take_varint().ok()?;
    let durable_seq = first_seq.checked_sub(1)?.checked_sub(unsynced)?;
    let fits = first_seq.checked_add(count)? <= MAX_SEQ;
    fits.then_some(Head { first_seq, durable_seq, count })
}

/// The content of a record without operations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Edits<'a> {
    /// A manifest, and how many of its bytes are durable.
    pub(crate) manifest: Current,
    /// The sequence number of the load that ended with these edits; 0 if none did.
    pub(crate) ended_load: SeqNo,
    /// A note for readers of the history (`wal/note.rs`); may be empty.
    pub(crate) note: &'a [u8],
}

pub(crate) fn take_edits(mut reader: Reader<'_>) -> Option<Edits<'_>> {
    let (number, least_bytes) = (reader.take_varint().ok()?, reader.take_varint().ok()?);
    let ended_load = if reader.is_empty() { 0 } else { reader.take_varint().ok()? };
    let note = if reader.is_empty() { &[] } else { reader.take_bytes().ok()? };
    let manifest = Current::at(number, least_bytes);
    reader.is_empty().then_some(Edits { manifest, ended_load, note })
}

pub(super) fn damaged(number: u64, offset: u64, what: impl Into<String>) -> Error {
    Error::corruption(segment_name(number), offset, what)
}
