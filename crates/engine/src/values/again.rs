//! Reads records again that a scan has already checked, because the scan could not hold their
//! segments in memory. Neighbours are read together: a collection copies its survivors in the order
//! of the file, and a separate read for each would be a separate wait for each.

use crate::error::Result;
use crate::format::record::Record;
use crate::memory::region::MappedBytes;
use crate::values::file::ValueFile;
use crate::values::layout::Segment;
use crate::values::liveness::RecordEntry;
use crate::values::lookup::MOST_GAP_BYTES;

/// A read is no longer than this, unless a single record is.
const MOST_READ_BYTES: u64 = 256 << 10;

/// The part of a segment that was read last.
#[derive(Debug, Default)]
pub(crate) struct ReadAgain {
    /// The generation of the segment; 0 for none.
    generation: u64,
    /// The offset of the part in the segment.
    offset: u64,
    /// Its bytes, at the beginning of memory that is used for every read.
    memory: Option<MappedBytes>,
    /// Is used where nothing can be mapped.
    unmapped: Vec<u8>,
    len: usize,
}

impl ReadAgain {
    /// Returns the first of some records of a segment, which are in the order of their offsets. The
    /// others are the records that will be requested next. If the scan holds the segment, nothing
    /// is read.
    pub(crate) fn record<'w, 'a>(
        &'w mut self,
        store: &ValueFile,
        (segment, held): (&Segment, Option<&'w [u8]>),
        mut records: impl Iterator<Item = &'a RecordEntry>,
    ) -> Result<Record<'w>> {
        let first = records.next().expect("a record is asked for");
        let (start, mut end) = (u64::from(first.offset), first.end());
        let place = store.position(segment) + start;
        if let Some(bytes) = held {
            return first.checked(bytes).map_err(|what| store.corrupt(place, what));
        }
        let is_there = self.generation == segment.generation
            && (self.offset..=self.offset + self.len as u64).contains(&start)
            && end <= self.offset + self.len as u64;
        if !is_there {
            for next in records {
                let is_near = (end..=end + MOST_GAP_BYTES).contains(&next.offset.into());
                if !is_near || next.end() > start + MOST_READ_BYTES {
                    break;
                }
                end = next.end();
            }
            // If the read fails, the old content must not be mistaken for these bytes.
            self.generation = 0;
            self.len = (end - start) as usize;
            if self.memory.as_ref().is_none_or(|memory| memory.len() < self.len) {
                self.memory = MappedBytes::zeros(self.len.max(MOST_READ_BYTES as usize));
            }
            let memory = match &mut self.memory {
                Some(memory) => &mut memory[..self.len],
                None => {
                    self.unmapped.resize(self.len, 0);
                    &mut self.unmapped[..]
                }
            };
            store.file.read_at(place, memory)?;
            (self.generation, self.offset) = (segment.generation, start);
        }
        let bytes = self.memory.as_deref().map_or(&self.unmapped[..], |memory| memory);
        let bytes = &bytes[..self.len][(start - self.offset) as usize..];
        let record = store.checksum_seed(segment).take(bytes, start);
        record.map_err(|what| store.corrupt(place, what))
    }
}
