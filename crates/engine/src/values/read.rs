//! Reads separated values from the cache or from the file, and verifies the checksums of the file.
//!
//! A value is cached as its whole record. The cache key is the place in the group's stream that the
//! value's pointer names. Such a place is never given out again, so no other record can be found
//! under it: a collection that moves a record keeps the place or assigns a new one. The place in
//! the file could not be the key, because slots are reused. Readers share the cached bytes.

use std::cell::Cell;
use std::sync::Arc;

use crate::cache::{CacheKey, Cached};
use crate::error::Result;
use crate::format::record::{HEADER_BYTES, Pointer, Record};
use crate::keys::{is_relocation, seq_of};
use crate::sync::threads;
use crate::table::iterator::Access;
use crate::values::Value;
use crate::values::early::UNNUMBERED_SEQ;
use crate::values::file::{Beside, ValueFile};
use crate::values::layout::Segment;
use crate::values::lookup::{Spare, ValueLookup};

/// A read of several records up to this size uses a buffer of the thread.
pub(crate) const SCRATCH_BYTES: usize = 64 << 10;

thread_local! {
    static SCRATCH: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

impl ValueFile {
    /// Reads the value that a version points to. `None` if the record is gone, which a reader
    /// without a snapshot may find after a collection.
    pub(crate) fn read(&self, wanted: &ValueLookup<'_>, access: Access) -> Result<Option<Value>> {
        match self.cached(wanted, access) {
            Some(value) => Ok(Some(value)),
            None => self.read_from_file(wanted, access, Spare::default()),
        }
    }

    /// The value of a version, if it is cached.
    pub(crate) fn cached(&self, wanted: &ValueLookup<'_>, access: Access) -> Option<Value> {
        if access == Access::Sequential {
            return None;
        }
        let Some(Cached::Value(bytes)) = self.cache.get(self.name(&wanted.pointer)) else {
            return None;
        };
        let record = Record::of_checked(&bytes).ok()?;
        let is_it = is_version(&record, wanted);
        if !is_it && !seeded!(ValuesCachedByPlace) {
            return None;
        }
        Some(Value::of_cached(bytes, HEADER_BYTES + wanted.key.len()))
    }

    /// Like `read`, but does not search the cache. The memory of `spare` is used for the value.
    pub(crate) fn read_from_file(
        &self,
        wanted: &ValueLookup<'_>,
        access: Access,
        spare: Spare,
    ) -> Result<Option<Value>> {
        let pointer = &wanted.pointer;
        let Some(segments) = self.load(pointer.group) else {
            return Err(self.unknown_group(pointer));
        };
        // The segments are held until the record is checked, so that its slot is not reused
        // meanwhile.
        let mut beside = Beside::default();
        let found = self.find(&segments, &mut beside, pointer.stream_offset)?;
        let Some(place) = self.place(0, wanted, found)? else { return Ok(None) };
        reached!(RecordFound);
        self.read_place(&place, wanted, access, spare).map(Some)
    }

    /// The value of a record that was checked. It may enter the cache.
    pub(crate) fn keep(
        &self,
        bytes: Arc<Vec<u8>>,
        wanted: &ValueLookup<'_>,
        access: Access,
    ) -> Value {
        if access == (Access::Cached { fill: true }) {
            self.cache.admit_value(self.name(&wanted.pointer), &bytes[..]);
        }
        Value::of_record(bytes, HEADER_BYTES + wanted.key.len())
    }

    /// The cache key of the record that a pointer leads to.
    fn name(&self, pointer: &Pointer) -> CacheKey {
        if seeded!(ValuesCachedByPlace) {
            let found = self
                .load(pointer.group)
                .map(|all| self.find(&all, &mut Beside::default(), pointer.stream_offset));
            let Some(Ok(Some((segment, offset)))) = found else { return CacheKey::default() };
            return CacheKey { uid: self.uid, offset: self.position(&segment) + offset };
        }
        // Uids are random. No group has the uid of the file itself, under which footers are cached.
        let group = (u64::from(pointer.group) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        CacheKey { uid: self.uid ^ group, offset: pointer.stream_offset }
    }

    /// Checks the record at `offset` of a segment, which must contain the requested version.
    pub(crate) fn check_record<'a>(
        &self,
        segment: &Segment,
        offset: u64,
        bytes: &'a [u8],
        wanted: &ValueLookup<'_>,
    ) -> Result<Record<'a>> {
        let place = self.position(segment) + offset;
        let record = self.checksum_seed(segment).take(bytes, offset);
        let record = record.map_err(|what| self.corrupt(place, what))?;
        if !is_version(&record, wanted) {
            return Err(self.corrupt(place, "the record is of another version"));
        }
        Ok(record)
    }
}

/// Whether the record contains the version, with the length that its pointer gives. A moved record
/// keeps its original sequence number, and the record of an early value has none.
fn is_version(record: &Record<'_>, wanted: &ValueLookup<'_>) -> bool {
    let trailer = wanted.trailer;
    let moved = is_relocation(trailer) && record.seq < seq_of(trailer);
    let is_value = !record.is_marker && !record.is_tag;
    let is_early = record.seq == UNNUMBERED_SEQ;
    let is_it = record.key == wanted.key && (moved || is_early || record.seq == seq_of(trailer));
    is_it && is_value && record.value_bytes == wanted.pointer.value_bytes
}

/// Lends a buffer: the thread's own if its usual size is enough. The buffer is taken, not borrowed,
/// because a storage may itself use another store, and read from that store meanwhile.
pub(crate) fn with_scratch<T>(len: usize, work: impl FnOnce(&mut [u8]) -> T) -> T {
    if len > SCRATCH_BYTES {
        return work(&mut vec![0; len]);
    }
    let mut scratch = threads::take(&SCRATCH);
    if scratch.len() < len {
        scratch.resize(len, 0);
    }
    let outcome = work(&mut scratch[..len]);
    threads::keep(&SCRATCH, scratch);
    outcome
}
