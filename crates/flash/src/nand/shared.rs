//! Bytes that are never changed: shared where a copy would cost, checked once.

use std::ops::Deref;
use std::sync::{Arc, OnceLock};

/// See the module docs. A clone is the same bytes.
#[derive(Clone)]
pub struct SharedBytes(Arc<Content>);

struct Content {
    bytes: Vec<u8>,
    checksum: OnceLock<u32>,
}

impl SharedBytes {
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
