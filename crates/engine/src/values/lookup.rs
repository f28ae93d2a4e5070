//! Reads many separated values at once, because a scan needs them next (HashKV §3.6, WiscKey §3.2).
//!
//! 1. Find each record.
//! 2. Sort the records by place, and join records with a small gap between them into one read,
//!    because reading the gap costs less than another read.
//! 3. Start all reads at once, if the storage can. Otherwise announce all of them, and read joined
//!    records now. A single record is read when the walk reaches it. So no read is wasted, and the
//!    bytes are still in the processor's cache when they are used.
//! 4. Check each record and give its value to its request.
//!
//! If the file is in memory, only cache lines can be read ahead: `look_ahead`.

use std::ops::Range;
use std::sync::Arc;

use runstone_storage::ReadRequest;

use crate::error::Result;
use crate::format::record::{self, Footer, Pointer, record_bytes};
use crate::memory::prefetch::{LINE_BYTES, prefetch};
use crate::table::iterator::Access;
use crate::values::Value;
use crate::values::file::{Beside, Segments, ValueFile, place_in, segment_of};
use crate::values::layout::Segment;
use crate::values::read::{SCRATCH_BYTES, with_scratch};

/// Records closer than this are read together.
pub(crate) const MOST_GAP_BYTES: u64 = 16 << 10;
/// A read is no longer than this, unless a single record is.
const MOST_READ_BYTES: u64 = 1 << 20;

/// Up to this many bytes of a record in memory are prefetched. Beyond that, the processor has
/// noticed the sequential access.
const MOST_ASKED_BYTES: u64 = 4 << 10;

/// A request for a value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ValueLookup<'a> {
    pub(crate) pointer: Pointer,
    pub(crate) key: &'a [u8],
    pub(crate) trailer: u64,
}

/// The answer to a request for a value.
#[derive(Clone, Debug)]
pub(crate) enum FoundValue {
    Value(Value),
    /// The record is gone.
    Gone,
    /// The walk reads the record when it reaches it. Contains the record's place, if it is known.
    Later(Option<RecordLocation>),
}

/// The place of a requested record when it was looked up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecordLocation {
    /// The index of the request.
    index: usize,
    segment: Segment,
    /// Offset in the segment.
    offset: u64,
    /// Offset in the file.
    position: u64,
    bytes: u64,
}

/// Neighbouring places in one read.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Span {
    places: Range<usize>,
    /// Offsets in the file.
    bytes: Range<u64>,
}

/// Takes the result of a request.
pub(crate) type Give<'a> = dyn FnMut(usize, Result<FoundValue>) + 'a;

impl ValueFile {
    /// For each request that `which` lists, gives the value, read from the file, or the place of
    /// the value.
    pub(crate) fn read_many(
        &self,
        wanted: &[ValueLookup<'_>],
        mut which: Vec<usize>,
        access: Access,
        give: &mut Give<'_>,
    ) {
        if self.file.is_memory() {
            return self.look_ahead(wanted, &which, give);
        }
        if let [index] = which[..] {
            return give(index, self.read_one(&wanted[index], access));
        }
        // The loaded segments keep their slots until the records are checked.
        which.sort_unstable_by_key(|index| wanted[*index].pointer.group);
        let (mut places, _held) = self.find_all(wanted, &which, give);
        places.sort_unstable_by_key(|place| place.position);
        let spans = join(&places);
        if self.file.reads_together() && spans.len() > 1 {
            return self.read_together(wanted, (&places, &spans), access, give);
        }
        if spans.len() > 1 {
            spans.iter().for_each(|span| self.file.read_ahead(span.bytes.start, span.len()));
        }
        for span in &spans {
            let places = &places[span.places.clone()];
            if let [place] = places {
                give(place.index, Ok(FoundValue::Later(Some(*place))));
                continue;
            }
            with_scratch(span.len() as usize, |bytes| {
                match self.file.read_at(span.bytes.start, bytes) {
                    Ok(()) => self.check_all(wanted, places, bytes, access, give),
                    Err(_) => self.read_each(wanted, places, access, give),
                }
            });
        }
    }

    /// For a file in memory: finds the records in two steps. Each step prefetches the cache lines
    /// that the next step needs, so that many cache misses overlap. A record that is not found at
    /// once is left until the walk reaches it. The checks also wait until then, because nothing
    /// holds the slots in between.
    fn look_ahead(&self, wanted: &[ValueLookup<'_>], which: &[usize], give: &mut Give<'_>) {
        let mut near: Vec<(usize, Segment, Option<Arc<Footer>>)> = Vec::with_capacity(which.len());
        for index in which {
            let pointer = &wanted[*index].pointer;
            // The segments are held while the footer is read, so that its slot is not reused
            // meanwhile.
            let Some(segments) = self.load(pointer.group) else { continue };
            let Some(segment) = segment_of(&segments, pointer.stream_offset) else { continue };
            let footer = segment.collected.then(|| self.footer(&segment));
            let Ok(footer) = footer.transpose() else { continue };
            footer.iter().for_each(|footer| footer.ask_for(pointer.stream_offset));
            near.push((*index, segment, footer));
        }
        for (index, segment, footer) in near {
            let one = &wanted[index];
            let found = place_in(&segment, footer.as_deref(), one.pointer.stream_offset);
            let Some(record::RecordPlace::Here(offset)) = found else { continue };
            let Ok(Some(place)) = self.place(index, one, Some((segment, offset))) else { continue };
            self.file.show(place.position, place.bytes.min(MOST_ASKED_BYTES), &mut |bytes| {
                (0..bytes.len()).step_by(LINE_BYTES).for_each(|at| prefetch(bytes, at));
            });
            give(index, Ok(FoundValue::Later(Some(place))));
        }
    }

    /// Runs step 1. Requests are sorted by group. The segments of all groups are loaded before the
    /// cold stream's, see `find`.
    fn find_all(
        &self,
        wanted: &[ValueLookup<'_>],
        which: &[usize],
        give: &mut Give<'_>,
    ) -> (Vec<RecordLocation>, Vec<Option<Segments>>) {
        let group_of = |index: &usize| wanted[*index].pointer.group;
        let groups = || which.chunk_by(|a, b| group_of(a) == group_of(b));
        let mut loaded: Vec<Option<Segments>> =
            groups().map(|chunk| self.load(group_of(&chunk[0]))).collect();
        let mut beside = Beside::default();
        let mut places = Vec::with_capacity(which.len());
        for (chunk, segments) in groups().zip(&loaded) {
            for index in chunk {
                let one = &wanted[*index];
                let found = match segments {
                    Some(segments) => self.find(segments, &mut beside, one.pointer.stream_offset),
                    None => Err(self.unknown_group(&one.pointer)),
                };
                match found.and_then(|found| self.place(*index, one, found)) {
                    Ok(Some(place)) => places.push(place),
                    Ok(None) => give(*index, Ok(FoundValue::Gone)),
                    Err(error) => give(*index, Err(error)),
                }
            }
        }
        loaded.push(beside.cold);
        loaded.extend(beside.later.into_iter().map(Some));
        (places, loaded)
    }

    pub(crate) fn place(
        &self,
        index: usize,
        one: &ValueLookup<'_>,
        found: Option<(Segment, u64)>,
    ) -> Result<Option<RecordLocation>> {
        let Some((segment, offset)) = found else { return Ok(None) };
        let position = self.position(&segment) + offset;
        let bytes = record_bytes(one.key.len(), one.pointer.value_bytes as usize);
        if offset + bytes > segment.bytes {
            return Err(self.corrupt(position, "a pointer leads beyond its segment"));
        }
        Ok(Some(RecordLocation { index, segment, offset, position, bytes }))
    }

    /// Runs step 3 on a storage that can read several places at once.
    fn read_together(
        &self,
        wanted: &[ValueLookup<'_>],
        (places, spans): (&[RecordLocation], &[Span]),
        access: Access,
        give: &mut Give<'_>,
    ) {
        let mut reads: Vec<ReadRequest> = spans.iter().map(Span::request).collect();
        if self.file.read_many(&mut reads).is_err() {
            return self.read_each(wanted, places, access, give);
        }
        for (span, read) in spans.iter().zip(&reads) {
            self.check_all(wanted, &places[span.places.clone()], &read.buffer, access, give);
        }
    }

    /// Reads values one by one, so that an error is returned only for the request that it belongs
    /// to.
    fn read_each(
        &self,
        wanted: &[ValueLookup<'_>],
        places: &[RecordLocation],
        access: Access,
        give: &mut Give<'_>,
    ) {
        for place in places {
            give(place.index, self.read_one(&wanted[place.index], access));
        }
    }

    fn read_one(&self, one: &ValueLookup<'_>, access: Access) -> Result<FoundValue> {
        let value = self.read_from_file(one, access, Spare::default())?;
        Ok(value.map_or(FoundValue::Gone, FoundValue::Value))
    }

    /// Reads a value that was left for later. Nothing has held its slot since. If the slot was
    /// reused, the checksum does not match, and the record is looked up again. The memory of
    /// `spare` is used for the value.
    pub(crate) fn read_later(
        &self,
        place: Option<RecordLocation>,
        one: &ValueLookup<'_>,
        access: Access,
        spare: Spare,
    ) -> Result<Option<Value>> {
        let place = match place {
            Some(place) => place,
            None => match self.cached(one, access) {
                Some(value) => return Ok(Some(value)),
                None => return self.read_from_file(one, access, spare),
            },
        };
        match self.read_place(&place, one, access, spare) {
            Ok(value) => Ok(Some(value)),
            Err(_) => self.read_from_file(one, access, Spare::default()),
        }
    }

    /// Reads directly into the memory of the value, because another copy would cost more than
    /// clearing that memory (docs/limits.md).
    pub(crate) fn read_place(
        &self,
        place: &RecordLocation,
        one: &ValueLookup<'_>,
        access: Access,
        spare: Spare,
    ) -> Result<Value> {
        let mut bytes = spare.lend(place.bytes as usize);
        let Some(buffer) = Arc::get_mut(&mut bytes) else { unreachable!("nobody else has it") };
        self.file.read_at(place.position, buffer)?;
        self.check_record(&place.segment, place.offset, buffer, one)?;
        Ok(self.keep(bytes, one, access))
    }

    /// Runs step 4, for the places of one read.
    fn check_all(
        &self,
        wanted: &[ValueLookup<'_>],
        places: &[RecordLocation],
        bytes: &[u8],
        access: Access,
        give: &mut Give<'_>,
    ) {
        let first = places.first().map_or(0, |place| place.position);
        for place in places {
            let at = (place.position - first) as usize;
            let bytes = &bytes[at..at + place.bytes as usize];
            let one = &wanted[place.index];
            let checked = self.check_record(&place.segment, place.offset, bytes, one);
            let keep = |_| self.keep(Arc::new(bytes.to_vec()), one, access);
            give(place.index, checked.map(keep).map(FoundValue::Value));
        }
    }
}

/// The memory of a value that nobody holds any more, for the next value.
#[derive(Debug, Default)]
pub(crate) struct Spare(Option<Arc<Vec<u8>>>);

impl Spare {
    /// The memory of a value that the walk has passed.
    pub(crate) fn of(value: Value) -> Spare {
        Spare(value.into_record().filter(|bytes| bytes.capacity() <= SCRATCH_BYTES))
    }

    /// Memory of `len` bytes, to be overwritten.
    fn lend(self, len: usize) -> Arc<Vec<u8>> {
        if let Some(mut bytes) = self.0.filter(|bytes| bytes.capacity() / 2 <= len)
            && let Some(buffer) = Arc::get_mut(&mut bytes)
        {
            buffer.resize(len, 0);
            return bytes;
        }
        Arc::new(vec![0; len])
    }
}

impl Span {
    fn len(&self) -> u64 {
        self.bytes.end - self.bytes.start
    }

    fn request(&self) -> ReadRequest {
        ReadRequest { offset: self.bytes.start, buffer: vec![0; self.len() as usize] }
    }
}

/// Runs step 2 on places that are sorted by position. A pure function.
fn join(places: &[RecordLocation]) -> Vec<Span> {
    let mut spans: Vec<Span> = Vec::with_capacity(places.len());
    for (i, place) in places.iter().enumerate() {
        let end = place.position + place.bytes;
        match spans.last_mut() {
            Some(span)
                if place.position <= span.bytes.end + MOST_GAP_BYTES
                    && end - span.bytes.start <= MOST_READ_BYTES =>
            {
                span.bytes.end = span.bytes.end.max(end);
                span.places.end = i + 1;
            }
            _ => spans.push(Span { places: i..i + 1, bytes: place.position..end }),
        }
    }
    spans
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(index: usize, position: u64, bytes: u64) -> RecordLocation {
        let segment = Segment {
            slot: 0,
            slots: 1,
            collected: false,
            generation: 1,
            stream_offset: 0,
            bytes: 0,
            records: 0,
            tags: 0,
            cold_bytes: 0,
        };
        RecordLocation { index, segment, offset: 0, position, bytes }
    }

    #[test]
    fn near_records_are_read_together() {
        let far = 2 * MOST_GAP_BYTES;
        let mut places = vec![
            place(0, far + 300, 100),
            place(1, 0, 100),
            place(2, 200, 100),
            place(3, 200, 100),
            place(4, far + 400, MOST_READ_BYTES),
        ];
        places.sort_by_key(|place| place.position);
        let spans = join(&places);
        let shape: Vec<(u64, u64, Vec<usize>)> = spans
            .iter()
            .map(|span| {
                let which = places[span.places.clone()].iter().map(|place| place.index).collect();
                (span.bytes.start, span.len(), which)
            })
            .collect();
        assert_eq!(
            shape,
            [
                (0, 300, vec![1, 2, 3]),
                (far + 300, 100, vec![0]),
                (far + 400, MOST_READ_BYTES, vec![4]),
            ]
        );
        assert!(join(&[]).is_empty());
    }
}
