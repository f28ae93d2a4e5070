//! A value that was read from the store, without a copy if possible.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::sync::Arc;

use crate::format::block::Block;
use crate::memory::slabs::Buffer;
use crate::memtable::btree::Record;
use crate::memtable::{Memtable, PinnedRecord};

/// Values up to this size are copied: a value that a user keeps must not keep a whole memtable, or
/// many times its own size in blocks. A copy of this size costs a tenth of the get that finds the
/// value.
pub(crate) const COPIED_BYTES: usize = 4 << 10;

/// A value: bytes that it owns, or that it borrows from a cached block, a cached record or a
/// memtable. Dereferences to `[u8]`.
///
/// Only values above 4 KiB borrow. A borrowed value keeps its block, or its pages of a memtable, in
/// memory, in addition to the memory budget. Call `to_vec()` to keep a large value for long.
#[derive(Clone)]
pub struct Value(Repr);

#[derive(Clone)]
enum Repr {
    Owned(Box<[u8]>),
    Block {
        block: Arc<Block>,
        at: u32,
        len: u32,
    },
    /// The value of a record of a memtable. It keeps only the record's pages, not the memtable.
    Pinned(PinnedRecord),
    /// The end of a record of a value file.
    Record {
        bytes: Arc<Vec<u8>>,
        at: u32,
    },
    /// The same, for a record in the cache. It keeps only the record's slot, not its slab.
    Cached {
        bytes: Arc<Buffer>,
        at: u32,
    },
}

impl Value {
    /// A value that owns its bytes.
    pub fn owned(bytes: impl Into<Box<[u8]>>) -> Value {
        Value(Repr::Owned(bytes.into()))
    }

    /// The value at a place in a block.
    pub(crate) fn in_block(block: &Arc<Block>, at: u32, len: u32) -> Value {
        match len as usize {
            0..=COPIED_BYTES => Value::owned(block.slice(at, len)),
            _ => Value(Repr::Block { block: Arc::clone(block), at, len }),
        }
    }

    /// Removes the last `count` bytes.
    pub(crate) fn without_end(self, count: usize) -> Value {
        match self.0 {
            _ if count == 0 => self,
            Repr::Block { block, at, len } => Value::in_block(&block, at, len - count as u32),
            _ => Value::owned(&self[..self.len() - count]),
        }
    }

    /// The bytes of a record from `at` on.
    pub(crate) fn of_record(bytes: Arc<Vec<u8>>, at: usize) -> Value {
        Value(Repr::Record { bytes, at: at as u32 })
    }

    /// The bytes of a cached record from `at` on.
    pub(crate) fn of_cached(bytes: Arc<Buffer>, at: usize) -> Value {
        match bytes.len() - at {
            0..=COPIED_BYTES => Value::owned(&bytes[at..]),
            _ => Value(Repr::Cached { bytes, at: at as u32 }),
        }
    }

    /// The whole record, if the value was made by `of_record`.
    pub(crate) fn into_record(self) -> Option<Arc<Vec<u8>>> {
        match self.0 {
            Repr::Record { bytes, .. } => Some(bytes),
            _ => None,
        }
    }

    /// The value of a record of `memtable`.
    #[inline]
    pub(crate) fn in_memtable(memtable: &Arc<Memtable>, record: &Record) -> Value {
        match record.value().len() {
            0..=COPIED_BYTES => Value::owned(record.value()),
            _ => Value(Repr::Pinned(memtable.pin(record))),
        }
    }

    /// The value of a pinned record.
    pub(crate) fn pinned(record: PinnedRecord) -> Value {
        match record.value().len() {
            0..=COPIED_BYTES => Value::owned(record.value()),
            _ => Value(Repr::Pinned(record)),
        }
    }
}

impl Deref for Value {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match &self.0 {
            Repr::Owned(bytes) => bytes,
            Repr::Block { block, at, len } => block.slice(*at, *len),
            Repr::Record { bytes, at } => &bytes[*at as usize..],
            Repr::Cached { bytes, at } => &bytes[*at as usize..],
            Repr::Pinned(record) => record.value(),
        }
    }
}

impl From<Value> for Vec<u8> {
    fn from(value: Value) -> Vec<u8> {
        match value.0 {
            Repr::Owned(bytes) => bytes.into_vec(),
            _ => value.to_vec(),
        }
    }
}

#[cfg(feature = "bytes")]
impl From<Value> for bytes::Bytes {
    /// Copies nothing: the result keeps the same memory as the value.
    fn from(value: Value) -> bytes::Bytes {
        bytes::Bytes::from_owner(value)
    }
}

impl AsRef<[u8]> for Value {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl<T: AsRef<[u8]> + ?Sized> PartialEq<T> for Value {
    fn eq(&self, other: &T) -> bool {
        **self == *other.as_ref()
    }
}

impl Eq for Value {}

impl PartialOrd for Value {
    fn partial_cmp(&self, other: &Value) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Ordered by the bytes, wherever they are.
impl Ord for Value {
    fn cmp(&self, other: &Value) -> Ordering {
        (**self).cmp(&**other)
    }
}

/// Hashed like the bytes, so that a map with values as keys can be searched with slices.
impl Hash for Value {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

impl Borrow<[u8]> for Value {
    fn borrow(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "b\"{}\"", self.escape_ascii())
    }
}
