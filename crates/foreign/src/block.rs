//! The entries of a block, in order. A key is stored without the bytes that it shares with the
//! previous one:
//!
//! ```text
//! shared  not shared  [bytes of the value]  key  value     (varints, then bytes)
//! ...
//! restarts (4 each)  [RocksDB: buckets (1 each), their number (2)]  number of restarts (4)
//! ```
//!
//! Restarts and buckets are for searches within a block, which this crate does not do. RocksDB
//! keeps flags in the highest bits of the last number.

use std::ops::Range;

use crate::bytes::Input;
use crate::error::Fault;
use crate::keys::Dialect;

const HAS_BUCKETS: u32 = 1 << 31;
const IS_EVEN: u32 = 1 << 29;
const IS_SPLIT: u32 = 1 << 28;
const MOST_RESTARTS: u32 = IS_SPLIT - 1;

/// Walks over a block.
#[derive(Debug)]
pub struct BlockCursor {
    bytes: Vec<u8>,
    /// The offset at which the entries end.
    end: usize,
    /// The offset of the next entry.
    at: usize,
    pub key: Vec<u8>,
    value: (usize, usize),
    /// Whether the key shared bytes with the previous one.
    pub is_shared: bool,
}

impl BlockCursor {
    pub fn new(bytes: Vec<u8>, dialect: Dialect) -> Result<BlockCursor, Fault> {
        let end = entries_end(&bytes, dialect)?;
        let key = Vec::new();
        Ok(BlockCursor { bytes, end, at: 0, key, value: (0, 0), is_shared: false })
    }

    /// Steps to the next entry; `false` at the end.
    pub fn next(&mut self) -> Result<bool, Fault> {
        let Some(bytes) = self.head(true)? else { return Ok(false) };
        if self.end - self.at < bytes {
            return Err(Fault::damaged("a value runs over the end of its block"));
        }
        self.value = (self.at, self.at + bytes);
        self.at += bytes;
        Ok(true)
    }

    /// Steps to the next entry, whose value has no length. The caller reads the value, and passes
    /// its end to [`BlockCursor::took`].
    pub fn next_unsized(&mut self) -> Result<bool, Fault> {
        Ok(self.head(false)?.is_some())
    }

    /// The bytes after the key.
    pub fn rest(&self) -> Input<'_> {
        Input(&self.bytes[self.at..self.end])
    }

    /// Ends the value: all of [`BlockCursor::rest`] except its last `rest_bytes` bytes.
    pub fn took(&mut self, rest_bytes: usize) {
        self.at = self.end - rest_bytes;
    }

    pub fn value(&self) -> &[u8] {
        &self.bytes[self.value.0..self.value.1]
    }

    /// The range of the value in the block.
    pub fn value_place(&self) -> Range<usize> {
        self.value.0..self.value.1
    }

    /// Reads up to the value, and returns its length, or 0 if the length is not stored.
    fn head(&mut self, has_length: bool) -> Result<Option<usize>, Fault> {
        if self.at == self.end {
            return Ok(None);
        }
        let mut input = Input(&self.bytes[self.at..self.end]);
        let head = || -> Option<(usize, &[u8], usize)> {
            let (shared, own) = (input.varint32()? as usize, input.varint32()? as usize);
            let value = if has_length { input.varint32()? as usize } else { 0 };
            Some((shared, input.take(own)?, value))
        };
        let Some((shared, own, value)) = { head }() else {
            return Err(Fault::damaged("a key runs over the end of its block"));
        };
        if shared > self.key.len() {
            return Err(Fault::damaged("a key shares more bytes than the one before has"));
        }
        self.key.truncate(shared);
        self.key.extend_from_slice(own);
        self.is_shared = shared > 0;
        self.at = self.end - input.0.len();
        Ok(Some(value))
    }
}

fn entries_end(bytes: &[u8], dialect: Dialect) -> Result<usize, Fault> {
    const SHORT: &str = "a block is too short for its restarts";
    let Some((rest, last)) = bytes.split_last_chunk::<4>() else {
        return Err(Fault::damaged(SHORT));
    };
    let last = u32::from_le_bytes(*last);
    let mut end = rest.len();
    let mut restarts = last;
    if dialect == Dialect::RocksDb {
        restarts &= !(HAS_BUCKETS | IS_EVEN | IS_SPLIT);
        if last & IS_SPLIT != 0 {
            let hint = "turn separate_key_value_in_data_block off, compact it all, import again";
            return Err(Fault::unsupported("its blocks hold keys and values apart", hint));
        }
        if restarts > MOST_RESTARTS {
            return Err(Fault::damaged("a block with unknown flags"));
        }
        if last & HAS_BUCKETS != 0 {
            let count = rest.last_chunk::<2>().map(|count| u16::from_le_bytes(*count));
            let buckets = count.and_then(|count| end.checked_sub(2 + usize::from(count)));
            end = buckets.ok_or_else(|| Fault::damaged(SHORT))?;
        }
    }
    end.checked_sub(restarts as usize * 4).ok_or_else(|| Fault::damaged(SHORT))
}
