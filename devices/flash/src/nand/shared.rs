//! Bytes of pages that never change. They are shared instead of copied, and checked once.
//!
//! A page is flat or gathered. A gathered page has a front of its own, then values that it shares
//! with other pages, then zeros. Both kinds read the same. A compaction passes values on from page
//! to page, and copies only fronts. The checksum of a gathered page covers its front. The checksums
//! of the values are in the front, and the firmware checks them.

use std::borrow::Cow;
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

/// Memory of flat pages that were dropped, kept for the next pages. The allocator would return it
/// to the system and get it back cleared.
static SPARE_BUFFERS: Mutex<Vec<Vec<u8>>> = Mutex::new(Vec::new());
/// The largest number of buffers that are kept, and the smallest size worth keeping.
const MOST_SPARE_BUFFERS: usize = 256;
const MIN_SPARE_BYTES: usize = 4096;

/// A value that pages share. An empty one takes no memory. The reference count is not beside the
/// bytes, so that the counts of values that were written together are close together.
#[derive(Clone, Default)]
pub struct SharedValue(Option<Arc<Box<[u8]>>>);

impl SharedValue {
    /// Fetches the reference counts of values that are about to be shared or dropped. The counts
    /// may be far apart. Here the processor waits for many at once; while cloning it would wait for
    /// each.
    pub(crate) fn fetch(values: &[SharedValue]) {
        let count = |value: &SharedValue| value.0.as_ref().map_or(0, Arc::strong_count);
        std::hint::black_box(values.iter().map(count).sum::<usize>());
    }
}

impl From<&[u8]> for SharedValue {
    fn from(bytes: &[u8]) -> SharedValue {
        SharedValue((!bytes.is_empty()).then(|| Arc::new(bytes.into())))
    }
}

impl Deref for SharedValue {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.0.as_ref().map_or(&[], |bytes| bytes)
    }
}

impl std::fmt::Debug for SharedValue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SharedValue({})", self.len())
    }
}

/// See the module docs. A clone shares the bytes.
#[derive(Clone)]
pub struct SharedBytes(Arc<Content>);

struct Content {
    /// The bytes that are not shared: all bytes, if the page is flat.
    front: Vec<u8>,
    /// The values of a gathered page, at least one. A flat page has none.
    values: Vec<SharedValue>,
    len: usize,
    checksum: OnceLock<u32>,
}

impl Drop for Content {
    fn drop(&mut self) {
        SharedValue::fetch(&self.values);
        if self.front.capacity() >= MIN_SPARE_BYTES {
            let mut spare = SPARE_BUFFERS.lock();
            if spare.len() < MOST_SPARE_BUFFERS {
                spare.push(std::mem::take(&mut self.front));
            }
        }
    }
}

impl SharedBytes {
    /// An empty buffer for this many bytes.
    pub fn buffer(capacity: usize) -> Vec<u8> {
        let mut spare = SPARE_BUFFERS.lock();
        let found = spare.pop().filter(|buffer| buffer.capacity() == capacity);
        let mut buffer = found.unwrap_or_else(|| Vec::with_capacity(capacity));
        buffer.clear();
        buffer
    }

    /// Makes a page of a front, the values after it, and zeros up to `len` bytes. Without values
    /// the page is flat, and the front is `len` bytes long.
    pub(crate) fn gathered(front: Vec<u8>, values: Vec<SharedValue>, len: usize) -> SharedBytes {
        SharedBytes(Arc::new(Content { front, values, len, checksum: OnceLock::new() }))
    }

    /// Number of bytes.
    pub fn len(&self) -> usize {
        self.0.len
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the page is flat: one piece of memory that the checksum covers entirely.
    pub fn is_flat(&self) -> bool {
        self.0.values.is_empty()
    }

    /// The bytes that the checksum covers: all bytes, or those before the values.
    pub fn front(&self) -> &[u8] {
        &self.0.front
    }

    /// Fetches the front into the cache, all of it at once.
    pub(crate) fn fetch_front(&self) {
        const LINE_BYTES: usize = 64;
        let lines = self.0.front.iter().step_by(LINE_BYTES);
        std::hint::black_box(lines.map(|byte| usize::from(*byte)).sum::<usize>());
    }

    /// The values of a gathered page.
    pub(crate) fn values(&self) -> &[SharedValue] {
        &self.0.values
    }

    /// All bytes in one piece. This is a copy unless the page is flat.
    pub fn flat(&self) -> Cow<'_, [u8]> {
        if self.is_flat() {
            return Cow::Borrowed(&self.0.front);
        }
        let mut bytes = SharedBytes::buffer(self.len());
        self.pieces().for_each(|piece| bytes.extend_from_slice(piece));
        bytes.resize(self.len(), 0);
        Cow::Owned(bytes)
    }

    /// Fills `buf` with the bytes from `offset` on. They must exist.
    pub(super) fn copy_to(&self, offset: usize, buf: &mut [u8]) {
        let mut start = 0;
        let end = offset + buf.len();
        for piece in self.pieces() {
            let (from, to) = (offset.max(start), end.min(start + piece.len()));
            if from < to {
                buf[from - offset..to - offset].copy_from_slice(&piece[from - start..to - start]);
            }
            start += piece.len();
        }
        let zeros_at = start.clamp(offset, end) - offset;
        buf[zeros_at..].fill(0);
    }

    fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        std::iter::once(&self.0.front[..]).chain(self.0.values.iter().map(Deref::deref))
    }

    /// The checksum of the front, computed when it is first needed.
    pub fn checksum(&self) -> u32 {
        *self.0.checksum.get_or_init(|| crc32c::crc32c(&self.0.front))
    }
}

impl From<Vec<u8>> for SharedBytes {
    fn from(bytes: Vec<u8>) -> SharedBytes {
        let len = bytes.len();
        SharedBytes::gathered(bytes, Vec::new(), len)
    }
}

impl std::fmt::Debug for SharedBytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SharedBytes({})", self.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gathered_bytes_read_as_flat_ones() {
        let values = [&[4, 5][..], &[], &[6]].map(SharedValue::from).to_vec();
        let bytes = SharedBytes::gathered(vec![1, 2, 3], values, 9);
        let flat = [1, 2, 3, 4, 5, 6, 0, 0, 0];
        assert_eq!((&*bytes.flat(), bytes.len(), bytes.is_flat()), (&flat[..], 9, false));
        for from in 0..=9 {
            for to in from..=9 {
                let mut buf = vec![0xff; to - from];
                bytes.copy_to(from, &mut buf);
                assert_eq!(buf, flat[from..to]);
            }
        }
        assert_eq!(bytes.checksum(), crc32c::crc32c(&[1, 2, 3]));
    }
}
