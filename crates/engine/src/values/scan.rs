//! Reads all records of segments, for step 4 of a collection and for verification.

use std::ops::Deref;
use std::sync::Arc;

use crate::cache::Reservation;
use crate::error::Result;
use crate::format::record::{Footer, HEADER_BYTES, Record, record_bytes};
use crate::memory::region::MappedBytes;
use crate::values::file::ValueFile;
use crate::values::layout::Segment;
use crate::values::liveness::{RecordEntry, Scanned, Tag};

/// The fraction of the memory budget, within these bounds, for segments of a group that are held
/// between scan and copy. Survivors in other segments are read again. If the file is in memory,
/// nothing is held: both steps read the file in place, because a closed segment does not change
/// while readers hold it.
const HELD_FRACTION: u64 = 16;
const LEAST_HELD_BYTES: u64 = 1 << 20;
const MOST_HELD_BYTES: u64 = 64 << 20;

/// The bytes of a segment, which count against the budget.
#[derive(Debug)]
pub(crate) struct HeldSegment {
    bytes: MappedBytes,
    _charge: Reservation,
}

impl Deref for HeldSegment {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl ValueFile {
    /// The most bytes of segments that a collection may hold.
    fn most_held_bytes(&self) -> u64 {
        (self.cache.bytes() / HELD_FRACTION).clamp(LEAST_HELD_BYTES, MOST_HELD_BYTES)
    }

    /// Reads all records of segments.
    pub(crate) fn scan(
        &self,
        segments: &[Segment],
        cancelled: &dyn Fn() -> Result<()>,
    ) -> Result<Scanned> {
        // Checked for all segments before the first one is read, because the kernel reads ahead.
        let is_cold = self.is_cold(segments);
        let mut scanned = Scanned { mix: self.uid, is_cold, ..Scanned::default() };
        let records = |one: &Segment| u64::from(one.records).min(one.bytes / HEADER_BYTES as u64);
        let records = segments.iter().map(records).sum::<u64>() as usize;
        scanned.charge = Some(self.cache.pin((records * size_of::<RecordEntry>()) as u64));
        scanned.entries.reserve(records);
        let (mut held_bytes, most) = (0, self.most_held_bytes());
        for (i, segment) in (0..).zip(segments) {
            cancelled()?;
            let bytes = self.scan_segment(i, segment, &mut scanned)?;
            held_bytes += segment.bytes;
            scanned.is_too_large |= bytes.is_some() && held_bytes > most;
            scanned.held.push(bytes.filter(|_| held_bytes <= most));
        }
        Ok(scanned)
    }

    /// Reads all records of a segment. Returns its bytes, if they had to be read.
    fn scan_segment(
        &self,
        index: u32,
        segment: &Segment,
        scanned: &mut Scanned,
    ) -> Result<Option<HeldSegment>> {
        // The footer is read first: while a callback views the bytes of a file, it must not read
        // that file.
        let footer = segment.collected.then(|| self.footer(segment)).transpose()?;
        let stream_offsets =
            || StreamOffsets { segment, footer: footer.clone(), values: 0, tags: 0 };
        let place = self.position(segment);
        let mut outcome = Ok(());
        let mut see =
            |bytes: &[u8]| outcome = self.scan_records(index, stream_offsets(), bytes, scanned);
        if self.file.show(place, segment.bytes, &mut see) {
            return outcome.map(|()| None);
        }
        let charge = self.cache.pin(segment.bytes);
        let Some(mut bytes) = MappedBytes::zeros(segment.bytes as usize) else {
            let bytes = self.file.read_vec(place, segment.bytes as usize)?;
            self.scan_records(index, stream_offsets(), &bytes, scanned)?;
            return Ok(None);
        };
        self.file.read_at(place, &mut bytes)?;
        self.scan_records(index, stream_offsets(), &bytes, scanned)?;
        Ok(Some(HeldSegment { bytes, _charge: charge }))
    }

    fn scan_records(
        &self,
        index: u32,
        mut stream_offsets: StreamOffsets<'_>,
        bytes: &[u8],
        scanned: &mut Scanned,
    ) -> Result<()> {
        let segment = stream_offsets.segment;
        let place = self.position(segment);
        let mut offset = 0;
        while offset < segment.bytes {
            let record = self.checksum_seed(segment).take(&bytes[offset as usize..], offset);
            let record = record.map_err(|what| self.corrupt(place + offset, what))?;
            if record.is_marker && !self.writes_back {
                return Err(self.corrupt(place + offset, "a marker among stable pointers"));
            }
            if record.cold_offset.is_some() && !(self.writes_back && self.cold.is_some()) {
                return Err(self.corrupt(place + offset, "a tag that names a place it cannot"));
            }
            let missed = || self.corrupt(place + offset, "the footer misses a record");
            let (stream_offset, tag) = stream_offsets.next(&record, offset).ok_or_else(missed)?;
            scanned.entries.push(RecordEntry {
                key_at: scanned.keys.len(),
                key_bytes: record.key.len() as u32,
                seq: record.seq,
                stream_offset,
                segment: index,
                offset: offset as u32,
                bytes: record.len as u32,
                tag,
                is_marker: record.is_marker,
                cools: false,
            });
            scanned.keys.extend_from_slice(record.key);
            offset += record.len as u64;
        }
        let found = (stream_offsets.values + stream_offsets.tags, stream_offsets.tags);
        if found != (segment.records as usize, segment.tags as usize) {
            return Err(self.corrupt(place, "the segment has another number of records"));
        }
        Ok(())
    }

    /// Reads every record of the segments, and returns the number of records.
    pub(crate) fn verify<'a>(
        &self,
        segments: impl IntoIterator<Item = &'a Segment>,
    ) -> Result<u64> {
        let mut records = 0;
        for segment in segments {
            let mut scanned = Scanned::default();
            self.scan_segment(0, segment, &mut scanned)?;
            records += scanned.entries.len() as u64;
        }
        Ok(records)
    }
}

/// Gives the records of a segment their stream offsets, in order.
struct StreamOffsets<'a> {
    segment: &'a Segment,
    footer: Option<Arc<Footer>>,
    values: usize,
    tags: usize,
}

impl StreamOffsets<'_> {
    /// The stream offset of the record at `offset` and, for a tag, the record that it names. `None`
    /// if this contradicts the footer.
    fn next(&mut self, record: &Record<'_>, offset: u64) -> Option<(u64, Option<Tag>)> {
        let (values, tags) = (self.values, self.tags);
        if record.is_tag {
            let (stream_offset, cold_offset) = match (record.cold_offset, &self.footer) {
                (Some(place), None) => (self.segment.stream_offset + offset, place),
                (None, Some(footer)) => footer.tag(tags)?,
                _ => return None,
            };
            let bytes = record_bytes(record.key.len(), record.value_bytes as usize);
            let bytes = u32::try_from(bytes).ok()?;
            self.tags += 1;
            return Some((stream_offset, Some(Tag { stream_offset: cold_offset, bytes })));
        }
        self.values += 1;
        match &self.footer {
            None => Some((self.segment.stream_offset + offset, None)),
            Some(footer) => {
                let (stream_offset, at) = footer.entry(values)?;
                (u64::from(at) == offset).then_some((stream_offset, None))
            }
        }
    }
}
