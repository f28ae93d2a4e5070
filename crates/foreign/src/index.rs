//! The index of a table, or a partition of it: the last key of each block, or a key after it, and
//! the place of the block. RocksDB stores most places relative to the previous block, and may add
//! first keys.

use crate::block::BlockCursor;
use crate::error::Fault;
use crate::footer::{Handle, TRAILER_BYTES};
use crate::keys::{Dialect, parts};
use crate::properties::{IndexKind, Properties};

/// Walks over an index.
#[derive(Debug)]
pub struct IndexCursor {
    cursor: BlockCursor,
    has_user_keys: bool,
    has_deltas: bool,
    has_first_keys: bool,
    handle: Option<Handle>,
}

impl IndexCursor {
    pub fn new(
        bytes: Vec<u8>,
        dialect: Dialect,
        properties: &Properties,
    ) -> Result<IndexCursor, Fault> {
        Ok(IndexCursor {
            cursor: BlockCursor::new(bytes, dialect)?,
            has_user_keys: properties.has_user_keys,
            has_deltas: properties.has_deltas,
            has_first_keys: properties.index == IndexKind::WithFirstKeys,
            handle: None,
        })
    }

    /// The place of the next block that may contain keys after `after`.
    pub fn next(&mut self, after: Option<&[u8]>) -> Result<Option<Handle>, Fault> {
        loop {
            let Some(handle) = self.step()? else { return Ok(None) };
            self.handle = Some(handle);
            let key = match self.has_user_keys {
                true => Some(&self.cursor.key[..]),
                false => parts(&self.cursor.key).map(|parts| parts.user),
            };
            let Some(key) = key else { return Err(Fault::damaged("a key in the index is short")) };
            if after.is_none_or(|after| key > after) {
                return Ok(Some(handle));
            }
        }
    }

    fn step(&mut self) -> Result<Option<Handle>, Fault> {
        let damaged = || Fault::damaged("a place in the index cannot be read");
        if !self.has_deltas {
            if !self.cursor.next()? {
                return Ok(None);
            }
            let handle = Handle::read(&mut crate::bytes::Input(self.cursor.value()));
            return handle.map(Some).ok_or_else(damaged);
        }
        if !self.cursor.next_unsized()? {
            return Ok(None);
        }
        let mut input = self.cursor.rest();
        let mut read = || {
            let handle = match self.handle.filter(|_| self.cursor.is_shared) {
                None => Handle::read(&mut input)?,
                Some(last) => {
                    let bytes = last.bytes.checked_add_signed(input.signed64()?)?;
                    let end = last.offset.checked_add(last.bytes)?;
                    Handle { offset: end.checked_add(TRAILER_BYTES)?, bytes }
                }
            };
            if self.has_first_keys {
                input.string()?;
            }
            Some(handle)
        };
        let handle = read().ok_or_else(damaged)?;
        let rest_bytes = input.0.len();
        self.cursor.took(rest_bytes);
        Ok(Some(handle))
    }
}
