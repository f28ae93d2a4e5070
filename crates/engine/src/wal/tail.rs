//! Reads the log while another process writes to it. A record that the writer has not finished
//! looks like the end, and is tried again later. Not here: the conditions for showing these records
//! to readers.
//!
//! 1. Each record continues the sequence numbers of the one before. The tail is before the next
//!    record.
//! 2. If a segment has no further valid record, the next begun segment is looked at. If its first
//!    record continues the sequence numbers, the segment before is complete: a record that was
//!    still being written there would have taken sequence numbers of its own.
//! 3. Segments that were recycled do not verify, because checksums depend on the use of the file.

use std::collections::VecDeque;
use std::sync::Arc;

use runstone_storage::Storage;

use crate::error::Result;
use crate::keys::codec::Reader;
use crate::keys::{NO_KEYSPACE, SeqNo};
use crate::log::{LogReader, Next};
use crate::tree::manifest::Current;
use crate::wal::batch::Operation;
use crate::wal::note::Note;
use crate::wal::recovery::{
    Head, LogStart, damaged, decode_head, each_operation, open_segment, segments, take_edits,
};

/// A place in the log, before a record.
#[derive(Debug)]
pub struct LogTail {
    storage: Arc<dyn Storage>,
    start: LogStart,
    /// Segments that were read to their end, and their lengths.
    ended: Vec<(u64, u64)>,
    /// The segment being read, if one was found.
    segment: Option<(u64, LogReader)>,
    /// Later segments, as the directory was listed last, in the order in which they are used.
    listed: VecDeque<u64>,
    last_seq: SeqNo,
}

/// A record of the log.
pub struct LogRecord<'a> {
    head: Head,
    operations: Reader<'a>,
    place: (u64, u64),
}

/// The reader's decision about a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// The next record.
    Next,
    /// Stop before this record, and get it again later.
    Hold,
}

/// The content of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Says {
    /// It contains writes, the last of which has this sequence number.
    Writes(SeqNo),
    /// A load has this sequence number.
    Load(SeqNo),
    /// This much of the manifest is durable, and this load ended; 0 if none did.
    Edits(Current, SeqNo),
}

impl LogRecord<'_> {
    /// The content of the record.
    pub fn says(&self) -> Result<Says> {
        let (number, offset) = self.place;
        if self.head.count == 0 {
            let edits = take_edits(self.operations.clone());
            let edits = edits.ok_or_else(|| damaged(number, offset, "does not decode"))?;
            return Ok(Says::Edits(edits.manifest, edits.ended_load));
        }
        let mut is_load = false;
        if self.head.count == 1 {
            self.each(|_, operation| {
                is_load = operation.keyspace == NO_KEYSPACE;
                Ok(())
            })?;
        }
        let last_seq = self.head.first_seq + self.head.count - 1;
        Ok(if is_load { Says::Load(last_seq) } else { Says::Writes(last_seq) })
    }

    /// Its note for readers of the history.
    pub fn note(&self) -> Result<Option<Note>> {
        let (number, offset) = self.place;
        if self.head.count > 0 {
            return Ok(None);
        }
        let edits = take_edits(self.operations.clone());
        let edits = edits.ok_or_else(|| damaged(number, offset, "does not decode"))?;
        if edits.note.is_empty() {
            return Ok(None);
        }
        let note = Note::decode(edits.note);
        note.map(Some).map_err(|_| damaged(number, offset, "the note does not decode"))
    }

    /// The sequence number of the last write before it.
    pub fn before(&self) -> SeqNo {
        self.head.first_seq - 1
    }

    /// The bytes of its operations.
    pub fn operation_bytes(&self) -> usize {
        self.operations.remaining()
    }

    /// The segment that contains the record.
    pub fn segment(&self) -> u64 {
        self.place.0
    }

    /// Passes its operations, with their sequence numbers, to `see`.
    pub fn each(&self, see: impl FnMut(SeqNo, Operation<'_>) -> Result<()>) -> Result<()> {
        each_operation(&self.head, self.operations.clone(), self.place, see)
    }
}

impl LogTail {
    /// The beginning of the log.
    pub fn new(storage: &Arc<dyn Storage>, start: LogStart) -> LogTail {
        LogTail {
            storage: Arc::clone(storage),
            start,
            ended: Vec::new(),
            segment: None,
            listed: VecDeque::new(),
            last_seq: start.seq - 1,
        }
    }

    /// The place after a sequence number, or the end of the log if that is earlier. `None` if no
    /// segment begins at or before the number. O(the segment that contains the number).
    ///
    /// The segment that contains the number is read first, although another one may begin right
    /// after the number: notes that follow the number may be in either, and a reader of both misses
    /// none.
    pub fn after(storage: &Arc<dyn Storage>, seq: SeqNo) -> Result<Option<LogTail>> {
        let (mut holding, mut following) = (None, None);
        for segment in segments(&**storage, 0)? {
            match first_seq(&**storage, segment)? {
                Some(first) if first <= seq => holding = Some(LogStart { segment, seq: first }),
                Some(first) if first == seq + 1 => {
                    following = Some(LogStart { segment, seq: first });
                }
                _ => {}
            }
        }
        let mut found = None;
        for start in [holding, following].into_iter().flatten() {
            let mut tail = LogTail::new(storage, start);
            tail.read(|record| {
                let is_before = record.head.first_seq <= seq;
                Ok(if is_before { Flow::Next } else { Flow::Hold })
            })?;
            let is_there = tail.last_seq >= seq;
            found = Some(tail);
            // The log may have a gap between the two.
            if is_there {
                break;
            }
        }
        Ok(found)
    }

    /// The oldest place from which the log continues without a gap to `start`. `None` if there is
    /// no log. Segments that wait to be reused still have their records, and the segments after
    /// them may be gone. Segments before one with writes may have only notes, with the number of
    /// the first write: these segments are not skipped. O(the log before `start`).
    pub fn oldest(storage: &Arc<dyn Storage>, start: LogStart) -> Result<Option<LogTail>> {
        let mut passed = 0;
        for segment in segments(&**storage, 0)? {
            if segment < passed {
                continue;
            }
            let Some(seq) = first_seq(&**storage, segment)? else { continue };
            let begin = LogStart { segment, seq };
            let mut tail = LogTail::new(storage, begin);
            if segment < start.segment {
                tail.read(|record| {
                    let is_before = record.head.first_seq < start.seq;
                    Ok(if is_before { Flow::Next } else { Flow::Hold })
                })?;
            }
            if segment >= start.segment || tail.last_seq + 1 >= start.seq {
                return Ok(Some(LogTail::new(storage, begin)));
            }
            // No segment up to the one where this tail ends continues to `start` either.
            passed = tail.place().map_or(segment, |(last, _)| last) + 1;
        }
        Ok(None)
    }

    /// Continues after a sequence number that the log has lost: tables have everything up to it.
    pub fn pass_to(&mut self, seq: SeqNo) {
        self.last_seq = self.last_seq.max(seq);
    }

    /// The sequence number of the last write before this place.
    pub fn last_seq(&self) -> SeqNo {
        self.last_seq
    }

    /// The sequence number of the first record that this tail has read, or would have read.
    pub fn begins_at(&self) -> SeqNo {
        self.start.seq
    }

    /// The place up to which the log was read: segment and offset. `None` if there is no log.
    pub fn place(&self) -> Option<(u64, u64)> {
        self.segment.as_ref().map(|(number, reader)| (*number, reader.position()))
    }

    /// The segments that were read, from `floor` on, and how many bytes of each.
    pub fn segments_from(&self, floor: u64) -> impl Iterator<Item = (u64, u64)> {
        self.ended.iter().copied().chain(self.place()).filter(move |(number, _)| *number >= floor)
    }

    /// Forgets segments below `floor`.
    pub fn forget_below(&mut self, floor: u64) {
        self.ended.retain(|(number, _)| *number >= floor);
    }

    /// Passes records to `see`, until one is held or none is left. O(bytes read), and one listing
    /// of the directory where the log seems to end.
    pub fn read(&mut self, mut see: impl FnMut(&LogRecord<'_>) -> Result<Flow>) -> Result<()> {
        loop {
            if self.read_segment(&mut see)? == Flow::Hold {
                return Ok(());
            }
            let Some(next) = self.next_segment()? else { return Ok(()) };
            // The tail may have seen the end before the last records were written. They are
            // complete now, because a later segment has begun.
            let place = self.place();
            if self.read_segment(&mut see)? == Flow::Hold {
                return Ok(());
            }
            if self.place() == place {
                self.ended.extend(place);
                self.segment = Some(next);
            }
        }
    }

    fn read_segment(
        &mut self,
        see: &mut impl FnMut(&LogRecord<'_>) -> Result<Flow>,
    ) -> Result<Flow> {
        match &mut self.segment {
            Some((number, reader)) => read_segment(*number, reader, &mut self.last_seq, see),
            None => Ok(Flow::Next),
        }
    }

    /// Another tail at the same place. `None` if the segment is gone: then the manifest has to be
    /// read again.
    pub fn look_ahead(&self) -> Result<Option<LogTail>> {
        let mut other = LogTail::new(&self.storage, self.start);
        other.last_seq = self.last_seq;
        if let Some((number, reader)) = &self.segment {
            let again = match open_segment(&*self.storage, *number) {
                Err(error) if is_gone(&error) => return Ok(None),
                opened => opened?,
            };
            let Some(mut again) = again else { return Ok(None) };
            again.rewind(reader.position())?;
            other.segment = Some((*number, again));
        }
        Ok(Some(other))
    }

    /// The next segment whose first record continues the sequence numbers. The directory is listed
    /// only if the last list has none. Otherwise a log of n segments would cost n listings.
    fn next_segment(&mut self) -> Result<Option<(u64, LogReader)>> {
        let after = self.segment.as_ref().map_or(self.start.segment, |(number, _)| number + 1);
        if let Some(found) = self.next_listed(after)? {
            return Ok(Some(found));
        }
        self.listed = segments(&*self.storage, after)?.into();
        self.next_listed(after)
    }

    /// Does the same in the list. The list keeps the segment that is found and those after it.
    fn next_listed(&mut self, after: u64) -> Result<Option<(u64, LogReader)>> {
        while let Some(&number) = self.listed.front() {
            if number >= after
                && let Some(reader) = self.continued_by(number)?
            {
                return Ok(Some((number, reader)));
            }
            self.listed.pop_front();
        }
        Ok(None)
    }

    /// Opens a segment if its first record continues the sequence numbers.
    fn continued_by(&self, number: u64) -> Result<Option<LogReader>> {
        let mut reader = match open_segment(&*self.storage, number) {
            // The segment was recycled meanwhile.
            Err(error) if is_gone(&error) => return Ok(None),
            Ok(None) => return Ok(None),
            Ok(Some(reader)) => reader,
            Err(error) => return Err(error),
        };
        let begin = reader.position();
        let Next::Record { offset, bytes } = reader.next()? else { return Ok(None) };
        let (head, _) = decode_head(&bytes, number, offset)?;
        if head.first_seq != self.last_seq + 1 {
            return Ok(None);
        }
        reader.rewind(begin)?;
        Ok(Some(reader))
    }
}

/// The sequence number with which a segment begins. `None` if it has no record. O(1), because it is
/// called for all segments that the log keeps.
fn first_seq(storage: &dyn Storage, number: u64) -> Result<Option<SeqNo>> {
    let reader = match open_segment(storage, number) {
        // The segment was recycled meanwhile.
        Err(error) if is_gone(&error) => return Ok(None),
        opened => opened?,
    };
    let Some(mut reader) = reader else { return Ok(None) };
    let offset = reader.position();
    let Some(bytes) = reader.beginning()? else { return Ok(None) };
    Ok(Some(decode_head(&bytes, number, offset)?.0.first_seq))
}

fn is_gone(error: &crate::error::Error) -> bool {
    matches!(error, crate::error::Error::Storage(error) if error.is_not_found())
}

/// Passes the records of a segment to `see`.
fn read_segment(
    number: u64,
    reader: &mut LogReader,
    last_seq: &mut SeqNo,
    see: &mut impl FnMut(&LogRecord<'_>) -> Result<Flow>,
) -> Result<Flow> {
    reader.rewind(reader.position())?;
    loop {
        let before = reader.position();
        let Next::Record { offset, bytes } = reader.next()? else {
            // The writer may be about to write here.
            reader.rewind(before)?;
            return Ok(Flow::Next);
        };
        let (head, operations) = decode_head(&bytes, number, offset)?;
        if head.first_seq != *last_seq + 1 {
            reader.rewind(before)?;
            return Ok(Flow::Next);
        }
        let through = head.first_seq + head.count - 1;
        let record = LogRecord { head, operations, place: (number, offset) };
        match see(&record) {
            Ok(Flow::Next) => *last_seq = through,
            // A record that was held, or that failed, is passed to `see` again.
            held_or_failed => {
                reader.rewind(before)?;
                return held_or_failed;
            }
        }
    }
}
