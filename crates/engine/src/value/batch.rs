//! Reads of many separated values at once: what a scan needs next (HashKV §3.6, WiscKey §3.2).
//!
//! 1. Find each record.
//! 2. Sort by place, and join records whose gap is small into one read: a gap costs less than
//!    another read.
//! 3. Have all reads under way at once, as far as the storage can.
//! 4. Check each record and give its value back in the order of the requests.

use std::collections::BTreeMap;

use runstone_storage::ReadRequest;

use crate::error::Result;
use crate::value::Value;
use crate::value::layout::Segment;
use crate::value::record::{Pointer, record_bytes};
use crate::value::store::ValueStore;

/// Records closer than this are read together.
const MOST_GAP_BYTES: u64 = 16 << 10;
/// No read is longer, unless a record is.
const MOST_READ_BYTES: u64 = 1 << 20;

/// A value that is wanted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted<'a> {
    pub(crate) pointer: Pointer,
    pub(crate) key: &'a [u8],
    pub(crate) trailer: u64,
}

/// Where a wanted record lies.
#[derive(Clone, Copy, Debug)]
struct Place {
    /// Which request.
    index: usize,
    segment: Segment,
    /// In the segment.
    offset: u64,
    /// In the file.
    position: u64,
    bytes: u64,
}

/// Places in one read.
#[derive(Debug)]
struct Span {
    places: Vec<Place>,
    end: u64,
}

impl ValueStore {
    /// The values of many versions; `None` for those whose record is gone.
    pub(crate) fn read_many(&self, wanted: &[Wanted<'_>]) -> Vec<Result<Option<Value>>> {
        let mut values: Vec<Result<Option<Value>>> = wanted.iter().map(|_| Ok(None)).collect();
        // What was loaded keeps its slots until the records are checked. All groups come before
        // the cold stream: see `find`.
        let mut groups = BTreeMap::new();
        for group in wanted.iter().map(|one| one.pointer.group) {
            groups.entry(group).or_insert_with(|| self.load(group));
        }
        let mut cold = None;
        let mut places = Vec::new();
        for (index, one) in wanted.iter().enumerate() {
            let group = one.pointer.group;
            let found = match groups.get(&group) {
                Some(Some(segments)) => self.find(segments, &mut cold, one.pointer.voff),
                _ => Err(self.corrupt(0, format!("a pointer names group {group}"))),
            };
            match found {
                Ok(Some((segment, offset))) => {
                    let position = self.position(&segment) + offset;
                    let bytes = record_bytes(one.key.len(), one.pointer.value_bytes as usize);
                    if offset + bytes > segment.bytes {
                        let what = "a pointer leads beyond its segment";
                        values[index] = Err(self.corrupt(position, what));
                        continue;
                    }
                    places.push(Place { index, segment, offset, position, bytes });
                }
                Ok(None) => {}
                Err(error) => values[index] = Err(error),
            }
        }
        let spans = join(places);
        let mut reads: Vec<ReadRequest> = spans.iter().map(Span::request).collect();
        if self.file.read_many(&mut reads).is_err() {
            // One by one, so that the error is that of the value which cannot be read.
            for (value, one) in values.iter_mut().zip(wanted) {
                *value = self.read(&one.pointer, one.key, one.trailer);
            }
            return values;
        }
        for (span, read) in spans.iter().zip(&reads) {
            for place in &span.places {
                let at = (place.position - read.offset) as usize;
                let bytes = &read.buffer[at..at + place.bytes as usize];
                let one = &wanted[place.index];
                values[place.index] = self
                    .check_record(&place.segment, place.offset, bytes, one.key, one.trailer)
                    .map(|record| Some(Value::owned(record.value)));
            }
        }
        values
    }
}

impl Span {
    fn request(&self) -> ReadRequest {
        let offset = self.places.first().map_or(self.end, |place| place.position);
        ReadRequest { offset, buffer: vec![0; (self.end - offset) as usize] }
    }
}

/// Step 2. Pure.
fn join(mut places: Vec<Place>) -> Vec<Span> {
    places.sort_unstable_by_key(|place| place.position);
    let mut spans: Vec<Span> = Vec::new();
    for place in places {
        let end = place.position + place.bytes;
        match spans.last_mut() {
            Some(span)
                if place.position <= span.end + MOST_GAP_BYTES
                    && end - span.places[0].position <= MOST_READ_BYTES =>
            {
                span.end = span.end.max(end);
                span.places.push(place);
            }
            _ => spans.push(Span { places: vec![place], end }),
        }
    }
    spans
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(index: usize, position: u64, bytes: u64) -> Place {
        let segment = Segment {
            slot: 0,
            slots: 1,
            collected: false,
            generation: 1,
            voff: 0,
            bytes: 0,
            records: 0,
            tags: 0,
            cold_bytes: 0,
        };
        Place { index, segment, offset: 0, position, bytes }
    }

    #[test]
    fn near_records_are_read_together() {
        let far = 2 * MOST_GAP_BYTES;
        let places = vec![
            place(0, far + 300, 100),
            place(1, 0, 100),
            place(2, 200, 100),
            place(3, 200, 100),
            place(4, far + 400, MOST_READ_BYTES),
        ];
        let spans = join(places);
        let shape: Vec<(u64, u64, Vec<usize>)> = spans
            .iter()
            .map(|span| {
                let request = span.request();
                let which = span.places.iter().map(|place| place.index).collect();
                (request.offset, request.buffer.len() as u64, which)
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
        assert!(join(Vec::new()).is_empty());
    }
}
