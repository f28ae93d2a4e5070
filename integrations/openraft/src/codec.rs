//! Values as bytes: MessagePack with names of fields. Rejected: JSON, which turns bytes into lists
//! of numbers and cannot have a node's id as a key; and formats without names, which fail for some
//! types with serde attributes, and to which no field can be added.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::Error;

/// The bytes of a value.
pub(crate) fn encode<T: Serialize>(what: &str, value: &T) -> Result<Vec<u8>, Error> {
    rmp_serde::to_vec_named(value)
        .map_err(|source| Error::Encode { what: what.to_string(), source })
}

/// The value that the bytes encode.
pub(crate) fn decode<T: DeserializeOwned>(
    what: impl FnOnce() -> String,
    bytes: &[u8],
) -> Result<T, Error> {
    rmp_serde::from_slice(bytes).map_err(|source| Error::Decode { what: what(), source })
}
