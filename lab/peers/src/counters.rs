//! The trait of the counting phase. Each adapter implements the ways of counting that its store
//! has.

use runstone_kv::{Error, Result};

/// How a counter is incremented.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Without a sum: only a put.
    Put,
    Merge,
    GetAndPut,
    Optimistic,
    Pessimistic,
}

/// Numbers under keys, eight bytes each, little-endian.
pub trait Counters {
    /// Adds to the number of a key.
    fn add(&self, key: &[u8], by: u64) -> Result<()>;
    fn get(&self, key: &[u8]) -> Result<u64>;
}

/// The number in these bytes; zero if there are none.
pub fn number(bytes: Option<&[u8]>) -> Result<u64> {
    let Some(bytes) = bytes else { return Ok(0) };
    let bytes = bytes.try_into().map_err(|_| {
        Error::invalid("a counter has not eight bytes", "look at how the adapter counts")
    })?;
    Ok(u64::from_le_bytes(bytes))
}
