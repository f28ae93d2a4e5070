//! Bytes that are never changed: shared where a copy would cost, checked once.

use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

/// Memory of pages that are gone, for the next ones. A device in memory drops a page for each that
/// it programs; the allocator would give that memory back to the system and fetch it cleared.
static SPARE_BUFFERS: Mutex<Vec<Vec<u8>>> = Mutex::new(Vec::new());
/// Most buffers that are kept, and the smallest worth keeping.
const MOST_SPARE_BUFFERS: usize = 256;
const MIN_SPARE_BYTES: usize = 4096;

/// See the module docs. A clone is the same bytes.
#[derive(Clone)]
pub struct SharedBytes(Arc<Content>);

struct Content {
    bytes: Vec<u8>,
    checksum: OnceLock<u32>,
}

impl Drop for Content {
    fn drop(&mut self) {
        if self.bytes.capacity() >= MIN_SPARE_BYTES {
            let mut spare = SPARE_BUFFERS.lock();
            if spare.len() < MOST_SPARE_BUFFERS {
                spare.push(std::mem::take(&mut self.bytes));
            }
        }
    }
}

impl SharedBytes {
    /// An empty buffer for so many bytes.
    pub fn buffer(capacity: usize) -> Vec<u8> {
        let mut spare = SPARE_BUFFERS.lock();
        let found = spare.pop().filter(|buffer| buffer.capacity() == capacity);
        let mut buffer = found.unwrap_or_else(|| Vec::with_capacity(capacity));
        buffer.clear();
        buffer
    }

    /// Checksum of all bytes, worked out when it is first asked for.
    pub fn checksum(&self) -> u32 {
        *self.0.checksum.get_or_init(|| crc32c::crc32c(&self.0.bytes))
    }
}

impl From<Vec<u8>> for SharedBytes {
    fn from(bytes: Vec<u8>) -> SharedBytes {
        SharedBytes(Arc::new(Content { bytes, checksum: OnceLock::new() }))
    }
}

impl Deref for SharedBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0.bytes
    }
}

impl std::fmt::Debug for SharedBytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SharedBytes({})", self.len())
    }
}
