//! Keys as bytes whose order is that of the values. What is written is never more than serde shows:
//! the bytes hold no types and no names.
//!
//! ```text
//! unsigned, char, bool   big-endian, in the width of the type
//! signed                 the same, sign bit flipped
//! floats                 all bits flipped if negative, else the sign bit: `total_cmp`
//! strings, bytes         as they are, but 00 as 01 01 and 01 as 01 02; end 00
//! tuples, structs        their parts, one after the other; arrays too
//! Option                 00, or 01 and the value
//! sequences              01 before each element; end 00
//! enums                  number of the variant (below 255 one byte, else FF and u32), its parts
//! ```
//!
//! No encoding of a type is a prefix of another one of the same type. So tuples compare part by
//! part, and the bytes of the first parts are a prefix of exactly those keys that begin with them.

mod decode;
mod encode;

use std::fmt;

use runstone::{Error, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Ends a string or a sequence.
const END: u8 = 0;
/// Stands before an element of a sequence, a value that is there, or an escaped byte.
const MARK: u8 = 1;
/// Stands before the number of a variant that a byte cannot hold.
const WIDE_VARIANT: u8 = u8::MAX;

/// The bytes of a key.
///
/// ```
/// # fn main() -> runstone::Result<()> {
/// let key = runstone_typed::key::encode(&(7u16, -1i8, "cab"))?;
/// assert_eq!(key, b"\x00\x07\x7fcab\x00");
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// Maps, and fields that are left out depending on their value.
pub fn encode<K: Serialize + ?Sized>(key: &K) -> Result<Vec<u8>> {
    encode::encode(key).map_err(|error| {
        Error::invalid(
            format!("a {} cannot be a key: {}", std::any::type_name::<K>(), error.what),
            "use integers, strings, tuples, structs and enums, whose order bytes can keep",
        )
    })
}

/// The key that bytes stand for.
///
/// # Errors
/// If they are not of this type, or something follows behind it.
pub fn decode<K: DeserializeOwned>(bytes: &[u8]) -> Result<K> {
    decode::decode(bytes).map_err(|error| {
        Error::invalid(
            format!(
                "key \"{}\" is not a {}: {}, at byte {}",
                bytes.escape_ascii(),
                std::any::type_name::<K>(),
                error.what,
                error.at
            ),
            "read it as the type that it was written as, or as bytes by the keyspace itself",
        )
    })
}

/// The same for a key of a keyspace, which the error names.
pub(crate) fn decode_of<K: DeserializeOwned>(keyspace: &str, bytes: &[u8]) -> Result<K> {
    decode(bytes).map_err(|error| match error {
        Error::InvalidArgument { what, hint } => {
            Error::invalid(format!("in keyspace {keyspace:?}, {what}"), hint)
        }
        error => error,
    })
}

/// Enums, options and sequences may lie in each other so deep. Else a few bytes of a type that
/// holds itself could take all of the stack.
const MAX_DEPTH: u32 = 128;

/// One level deeper.
fn descend(depth: &mut u32) -> std::result::Result<(), KeyError> {
    *depth += 1;
    match *depth > MAX_DEPTH {
        true => Err(KeyError::new(format!("it is nested more than {MAX_DEPTH} deep"))),
        false => Ok(()),
    }
}

/// Why a key has no bytes, or bytes are no key.
#[derive(Debug)]
struct KeyError {
    what: String,
    /// How many bytes were decoded before.
    at: usize,
}

impl KeyError {
    fn new(what: impl Into<String>) -> KeyError {
        KeyError { what: what.into(), at: 0 }
    }
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl std::error::Error for KeyError {}

impl serde::ser::Error for KeyError {
    fn custom<T: fmt::Display>(what: T) -> KeyError {
        KeyError::new(what.to_string())
    }
}

impl serde::de::Error for KeyError {
    fn custom<T: fmt::Display>(what: T) -> KeyError {
        KeyError::new(what.to_string())
    }
}
