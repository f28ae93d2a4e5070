//! Keys as bytes that sort in the order of the values. Only the data that serde passes is written:
//! the bytes contain no types and no names.
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
//! No encoding of a type is a prefix of another encoding of the same type. So tuples compare part
//! by part, and the bytes of the first parts are a prefix of exactly those keys that begin with
//! these parts.
//!
//! This is true for types whose values serde always writes in one form. A `HashSet` is a sequence
//! in the order of its hasher, so equal sets may be different keys: use a `BTreeSet`.

mod decode;
mod encode;

use std::fmt;

use runstone::{Error, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Ends a string or a sequence.
const END: u8 = 0;
/// Precedes an element of a sequence, a value that is present, and an escaped byte.
const MARK: u8 = 1;
/// Precedes the number of a variant that does not fit in a byte.
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
/// Maps, and named fields that are left out depending on their values, have no encoding. If a tuple
/// struct or a tuple variant leaves out a field (`skip_serializing_if`), serde does not report it,
/// and the bytes may be those of another key. A [`TypedKeyspace`](crate::TypedKeyspace) knows how
/// many fields such a type declares, and refuses the key.
pub fn encode<K: Serialize + ?Sized>(key: &K) -> Result<Vec<u8>> {
    Ok(encode::encode(key).map_err(refused::<K>)?.bytes)
}

/// Encodes a key of a keyspace of `K`. No field may be left out.
pub(crate) fn encode_of<K: Serialize + DeserializeOwned>(key: &K) -> Result<Vec<u8>> {
    encode_checked::<K, K>(key)
}

/// Encodes a prefix of keys of a keyspace of `K`. No field may be left out.
pub(crate) fn encode_prefix_of<K: DeserializeOwned, P: Serialize>(prefix: &P) -> Result<Vec<u8>> {
    encode_checked::<K, P>(prefix)
}

/// Compares the numbers of encoded fields with those that the type declares to a decoder. Up to the
/// first tuple with a field left out, the bytes are those of a complete key, so the decoder reaches
/// that tuple. A type may be written as one type and read as another, so only tuples with equal
/// names are compared.
fn encode_checked<K: DeserializeOwned, P: Serialize>(key: &P) -> Result<Vec<u8>> {
    let encoded = encode::encode(key).map_err(refused::<P>)?;
    if encoded.tuples.is_empty() {
        return Ok(encoded.bytes);
    }
    let declared = decode::declared::<K>(&encoded.bytes);
    for (tuple, label) in &encoded.tuples {
        let same = |one: &&Tuple| (one.at, one.name) == (tuple.at, tuple.name);
        let mut counts = declared.iter().filter(same).map(|one| one.count).peekable();
        let Some(first) = counts.peek().copied() else { continue };
        if counts.all(|count| count != tuple.count) {
            let written = tuple.count;
            return Err(refused::<P>(KeyError::new(format!(
                "fields of its tuple {label} are left out at times (written: {written}, declared: \
                 {first})"
            ))));
        }
    }
    Ok(encoded.bytes)
}

/// A tuple struct or a tuple variant in a key.
#[derive(Clone, Copy, Debug)]
struct Tuple {
    /// How many bytes of the key precede its fields.
    at: usize,
    /// The name of the struct; `None` for a variant, because a decoder does not receive its name.
    name: Option<&'static str>,
    /// The number of its fields.
    count: usize,
}

fn refused<K: ?Sized>(error: KeyError) -> Error {
    Error::invalid(
        format!("a {} cannot be a key: {}", std::any::type_name::<K>(), error.what),
        "use integers, strings, tuples, structs and enums: bytes can keep their order",
    )
}

/// The key that the bytes encode.
///
/// # Errors
/// If the bytes are not a key of this type, or if other bytes follow the key.
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
            "read it as the type that it was written as, or read bytes from the keyspace itself",
        )
    })
}

/// As [`decode()`], for a key of a keyspace. The error names the keyspace.
pub(crate) fn decode_of<K: DeserializeOwned>(keyspace: &str, bytes: &[u8]) -> Result<K> {
    decode(bytes).map_err(|error| match error {
        Error::InvalidArgument { what, hint } => {
            Error::invalid(format!("in keyspace {keyspace:?}, {what}"), hint)
        }
        error => error,
    })
}

/// How deep enums, options and sequences may be nested. Without a limit, a few bytes of a recursive
/// type could use up the whole stack.
const MAX_DEPTH: u32 = 128;

/// Goes one level deeper.
fn descend(depth: &mut u32) -> std::result::Result<(), KeyError> {
    *depth += 1;
    match *depth > MAX_DEPTH {
        true => Err(KeyError::new(format!("it is nested more than {MAX_DEPTH} deep"))),
        false => Ok(()),
    }
}

/// Why a key cannot be encoded, or why bytes are not a key.
#[derive(Debug)]
struct KeyError {
    what: String,
    /// How many bytes were decoded before the error.
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
