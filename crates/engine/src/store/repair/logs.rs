//! Reads all records of the log that verify, before and after damage.
//!
//! 1. Segments are read in the order of their numbers, from the floor on if that is known. After a
//!    damaged record, the next valid one is searched for.
//! 2. Each record states its first number. A skipped number belongs to a lost write: a gap. The
//!    manifest says where the log must begin and how far it was synced; numbers that are missing
//!    there are gaps too.
//! 3. Writes that are in tables according to the manifest are skipped.
//!
//! Files named `lost-NNNNNN.wal` are read separately, because an earlier recovery has assigned
//! their numbers again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use runstone_policy::shape::range_delete::RangeDelete;
use runstone_storage::{Category, Storage};

use super::basis::Basis;
use super::scratch::Scratch;
use super::values::FoundValues;
use crate::error::{Error, Result};
use crate::keys::{KeyspaceId, Kind, NO_KEYSPACE, SeqNo, is_pointer, pack, range_delete};
use crate::log::{HEADER_BYTES, LogHeader, LogKind, LogReader, Next, number_in};
use crate::tree::manifest::Current;
use crate::wal::batch::{Operation, take_operation};
use crate::wal::recovery::{Head, decode_head, take_edits};
use crate::wal::segments::{lost_name, lost_number, segment_name};

/// What was found in the log.
#[derive(Debug, Default)]
pub(super) struct FoundLog {
    pub(super) records: u64,
    pub(super) last_seq: SeqNo,
    /// The ranges of numbers of missing writes, first and last.
    pub(super) gaps: Vec<(SeqNo, SeqNo)>,
    /// The newest manifest that a record names, and how many of its bytes were durable.
    pub(super) manifest: Current,
    pub(super) range_deletes: BTreeMap<KeyspaceId, Vec<RangeDelete>>,
    /// Keys whose values were in their file before their writes were logged, and are missing there.
    pub(super) without_values: Vec<(KeyspaceId, Vec<u8>)>,
    /// Keyspaces with writes whose values are still in a value file.
    pub(super) with_pointers: BTreeSet<KeyspaceId>,
    /// Whether there are writes to a keyspace that the manifest does not know.
    pub(super) has_new_keyspace: bool,
    /// Whether the log begins later than the manifest says.
    pub(super) begins_late: bool,
    /// Keyspaces that occur in the log.
    pub(super) keyspaces: BTreeSet<KeyspaceId>,
    /// Damage by file.
    pub(super) lost: Vec<(String, String)>,
    /// The first number that could be missing before the records, for a log kept aside.
    pub(super) from_seq: SeqNo,
}

/// Reads a log into tables.
pub(super) struct LogScan<'a> {
    storage: &'a dyn Storage,
    basis: &'a Basis,
    values: &'a FoundValues,
    scratch: &'a mut Scratch,
    found: FoundLog,
    /// The next number, if it is known.
    expected: Option<SeqNo>,
}

impl<'a> LogScan<'a> {
    pub(super) fn new(
        storage: &'a dyn Storage,
        basis: &'a Basis,
        values: &'a FoundValues,
        scratch: &'a mut Scratch,
    ) -> LogScan<'a> {
        let found = FoundLog { last_seq: basis.last_seq, ..FoundLog::default() };
        LogScan { storage, basis, values, scratch, found, expected: None }
    }

    /// Reads the segments of the log.
    pub(super) fn read_log(mut self) -> Result<FoundLog> {
        self.expected = Some(self.basis.log_start_seq).filter(|seq| *seq > 0);
        let files = self.storage.list()?;
        let numbers = files.iter().filter_map(|file| number_in(&file.name, "wal"));
        let mut numbers: Vec<u64> =
            numbers.filter(|number| *number >= self.basis.log_floor).collect();
        numbers.sort_unstable();
        for number in numbers {
            self.read_file(&segment_name(number), number)?;
        }
        // Everything that was durable according to the manifest must be in the log.
        let synced = self.basis.synced_seq;
        if let Some(next) = self.expected.filter(|next| *next <= synced) {
            self.found.gaps.push((next, synced));
            self.found.last_seq = self.found.last_seq.max(synced);
        }
        self.scratch.finish()?;
        Ok(self.found)
    }

    /// Reads the segments that were kept aside. Their numbers are not those of the log.
    pub(super) fn read_lost(mut self) -> Result<FoundLog> {
        self.found.last_seq = 0;
        let files = self.storage.list()?;
        let mut numbers: Vec<u64> =
            files.iter().filter_map(|file| lost_number(&file.name)).collect();
        numbers.sort_unstable();
        for number in numbers {
            self.read_file(&lost_name(number), number)?;
        }
        self.scratch.finish()?;
        Ok(self.found)
    }

    /// Reads a segment to its end, past any damage.
    fn read_file(&mut self, name: &str, number: u64) -> Result<()> {
        let mut reader = match self.open(name, number) {
            Ok(Some(reader)) => reader,
            Ok(None) => return Ok(()),
            Err(error @ Error::NewerFormat { .. }) => return Err(error),
            Err(error) => {
                self.found.lost.push((name.to_string(), error.to_string()));
                return Ok(());
            }
        };
        loop {
            let passed = match reader.next() {
                Ok(Next::Record { offset, bytes }) => {
                    self.take_record(name, (number, offset), &bytes)?;
                    continue;
                }
                Ok(Next::End { offset }) => reader.pass_gap(offset).map(|next| (offset, next)),
                Err(error) => Err(error),
            };
            match passed {
                Ok((offset, Some(next))) => {
                    let what = format!("bytes {offset} to {next}: a record is damaged");
                    self.found.lost.push((name.to_string(), what));
                }
                Ok((_, None)) => return Ok(()),
                Err(error) => {
                    self.found.lost.push((name.to_string(), error.to_string()));
                    return Ok(());
                }
            }
        }
    }

    /// Opens a segment. `None` if the segment has no records: it was prepared for future records.
    fn open(&self, name: &str, number: u64) -> Result<Option<LogReader>> {
        let file = self.storage.open(name, Category::Wal)?;
        let bytes = file.read_vec(0, file.len()?.min(HEADER_BYTES) as usize)?;
        if bytes.iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
        let header = LogHeader::decode(&bytes, LogKind::Wal).map_err(|bad| bad.in_file(name))?;
        match header.number == number {
            true => Ok(Some(LogReader::new(Arc::clone(&file), &header)?)),
            false => Ok(None),
        }
    }

    fn take_record(&mut self, name: &str, place: (u64, u64), bytes: &[u8]) -> Result<()> {
        let Ok((head, mut operations)) = decode_head(bytes, place.0, place.1) else {
            let what = format!("byte {}: a record does not decode", place.1);
            self.found.lost.push((name.to_string(), what));
            return Ok(());
        };
        if head.count == 0 {
            let edits = take_edits(operations).unwrap_or_default();
            self.found.manifest = self.found.manifest.max(edits.manifest);
            return Ok(());
        }
        self.note_numbers(&head);
        self.found.records += 1;
        for seq in head.first_seq..head.first_seq + head.count {
            let Ok(operation) = take_operation(&mut operations) else {
                let last = head.first_seq + head.count - 1;
                self.found.gaps.push((seq, last));
                let what = format!("byte {}: an operation does not decode", place.1);
                self.found.lost.push((name.to_string(), what));
                return Ok(());
            };
            self.take(seq, &operation)?;
        }
        Ok(())
    }

    /// Finds the numbers that are missing before a record.
    fn note_numbers(&mut self, head: &Head) {
        if self.found.records == 0 {
            self.found.from_seq = head.durable_seq + 1;
        }
        if let Some(expected) = self.expected.filter(|expected| *expected < head.first_seq)
            && !seeded!(RepairPassesGaps)
        {
            self.found.gaps.push((expected, head.first_seq - 1));
            self.found.begins_late |= self.found.records == 0;
        }
        let next = head.first_seq + head.count;
        self.expected = Some(self.expected.unwrap_or(0).max(next));
        self.found.last_seq = self.found.last_seq.max(next - 1);
    }

    fn take(&mut self, seq: SeqNo, operation: &Operation<'_>) -> Result<()> {
        let keyspace = operation.keyspace;
        if keyspace == NO_KEYSPACE {
            return Ok(());
        }
        match self.basis.keyspaces.get(&keyspace) {
            Some(known) if seq <= known.flushed_seq => return Ok(()),
            Some(_) => {}
            // A write to a keyspace that was dropped.
            None if keyspace < self.basis.next_keyspace => return Ok(()),
            // A write to a keyspace that was made by an edit that the manifest lacks.
            None => self.found.has_new_keyspace = true,
        }
        self.found.keyspaces.insert(keyspace);
        let (key, mut kind, mut value) = (operation.key, operation.kind, operation.value.to_vec());
        if kind == Kind::RangeDelete {
            let range = range_delete(key, seq, operation.value);
            self.found.range_deletes.entry(keyspace).or_default().push(range);
            return Ok(());
        }
        if kind == Kind::ValuePointer {
            match self.values.read_early(key, operation.value, operation.place) {
                Some(found) => (kind, value) = (Kind::Put, found),
                None => {
                    self.found.without_values.push((keyspace, key.to_vec()));
                    return Ok(());
                }
            }
        }
        let trailer = pack(seq, kind);
        if is_pointer(trailer) {
            self.found.with_pointers.insert(keyspace);
        }
        self.scratch.add(keyspace, key, trailer, value)
    }
}
