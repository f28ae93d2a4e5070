//! A value read from the store, without a copy where that is possible.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use crate::format::block::Block;
use crate::memtable::Memtable;
use crate::memtable::btree::RecordRef;

/// Smaller values are copied out of a memtable, so that they do not keep the memtable alive.
pub(crate) const INLINE_BYTES: usize = 256;

/// A value: bytes that it owns, or that it borrows from a cached block, a cached record or a
/// memtable. Dereferences to `[u8]`.
///
/// A borrowed value keeps its block or memtable in memory. Take `to_vec()` to keep a value for
/// long.
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
    Memtable {
        memtable: Arc<Memtable>,
        record: RecordRef,
    },
    /// The end of a record of a value file. The cache may hold the same record.
    Record {
        bytes: Arc<Vec<u8>>,
        at: u32,
    },
}

impl Value {
    /// A value that owns its bytes.
    pub fn owned(bytes: impl Into<Box<[u8]>>) -> Value {
        Value(Repr::Owned(bytes.into()))
    }

    pub(crate) fn pinned(block: Arc<Block>, at: u32, len: u32) -> Value {
        Value(Repr::Block { block, at, len })
    }

    /// The bytes of a record from `at` on.
    pub(crate) fn of_record(bytes: Arc<Vec<u8>>, at: usize) -> Value {
        Value(Repr::Record { bytes, at: at as u32 })
    }

    /// The whole record, if the value was made by `of_record`.
    pub(crate) fn into_record(self) -> Option<Arc<Vec<u8>>> {
        match self.0 {
            Repr::Record { bytes, .. } => Some(bytes),
            _ => None,
        }
    }

    /// A value that borrows a large record from `memtable`.
    pub(crate) fn in_memtable(memtable: Arc<Memtable>, record: RecordRef) -> Value {
        Value(Repr::Memtable { memtable, record })
    }
}

impl Deref for Value {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match &self.0 {
            Repr::Owned(bytes) => bytes,
            Repr::Block { block, at, len } => block.slice(*at, *len),
            Repr::Record { bytes, at } => &bytes[*at as usize..],
            Repr::Memtable { memtable, record } => record.get(memtable.tree()).value(),
        }
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

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "b\"{}\"", self.escape_ascii())
    }
}
