//! Bytes of pages that never change: shared where a copy would cost, checked once.
//!
//! A page is flat, or gathered: a front that is its own, and behind it values that it shares with
//! other pages, then zeros. Both read the same. A compaction hands values over from page to page,
//! and copies fronts only. A gathered page's checksum covers its front; what checks the values is
//! in the front, and up to the firmware.

use std::borrow::Cow;
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

/// Memory of flat pages that are gone, kept for the next ones. The allocator would give it back to
/// the system and fetch it cleared.
static SPARE_BUFFERS: Mutex<Vec<Vec<u8>>> = Mutex::new(Vec::new());
/// Most buffers that are kept, and the smallest worth keeping.
const MOST_SPARE_BUFFERS: usize = 256;
const MIN_SPARE_BYTES: usize = 4096;

/// A value that pages share. An empty one takes no memory. The reference count does not lie beside
/// the bytes, so that the counts of values that were written together lie together.
#[derive(Clone, Default)]
pub struct SharedValue(Option<Arc<Box<[u8]>>>);

impl SharedValue {
    /// Fetches the reference counts of values that are about to be shared or dropped. They lie at
    /// the values, far apart: here the processor waits for many at once, in clones for each.
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

/// See the module docs. A clone is the same bytes.
#[derive(Clone)]
pub struct SharedBytes(Arc<Content>);

struct Content {
    /// What is not shared: all bytes, if flat.
    front: Vec<u8>,
    /// Those of a gathered page: at least one. None, if flat.
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

    /// A front, values behind it, and zeros up to `len` bytes. Without values it is flat, and the
    /// front is `len` bytes long.
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

    /// Whether it is flat: one piece of memory, all covered by the checksum.
    pub fn is_flat(&self) -> bool {
        self.0.values.is_empty()
    }

    /// What the checksum covers: all bytes, or those before the values.
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

    /// All bytes in one piece: a copy, unless they are flat.
    pub fn flat(&self) -> Cow<'_, [u8]> {
        if self.is_flat() {
            return Cow::Borrowed(&self.0.front);
        }
        let mut bytes = SharedBytes::buffer(self.len());
        self.pieces().for_each(|piece| bytes.extend_from_slice(piece));
        bytes.resize(self.len(), 0);
        Cow::Owned(bytes)
    }

    /// Copies the bytes from `offset` on, as many as `buf` takes. They must be there.
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

    /// Checksum of the front, worked out when it is first asked for.
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
