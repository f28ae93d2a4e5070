//! Writes that are in no table yet, and what makes them survive.

pub(super) mod capacitor;
pub(super) mod frames;
pub(super) mod log;
pub(super) mod memtable;

use super::format::record::Kind;

/// One write of an atomic group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Write<'a> {
    /// Stores a value.
    Put {
        /// Key.
        key: &'a [u8],
        /// Value.
        value: &'a [u8],
    },
    /// Removes a key.
    Delete {
        /// Key.
        key: &'a [u8],
    },
}

impl<'a> Write<'a> {
    /// Kind, key and value. The value of a delete is empty.
    pub(super) fn parts(&self) -> (Kind, &'a [u8], &'a [u8]) {
        match self {
            Write::Put { key, value } => (Kind::Put, key, value),
            Write::Delete { key } => (Kind::Delete, key, &[]),
        }
    }
}
