//! How values become bytes.

use runstone::{Error, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// How values of type `V` are stored. Errors are texts, to which the keyspace adds the key.
///
/// ```
/// use runstone_typed::ValueFormat;
///
/// /// Numbers as eight bytes, as the merge operator `add-u64` has them.
/// struct LittleEndian;
///
/// impl ValueFormat<u64> for LittleEndian {
///     fn encode(value: &u64) -> Result<Vec<u8>, String> {
///         Ok(value.to_le_bytes().to_vec())
///     }
///     fn decode(bytes: &[u8]) -> Result<u64, String> {
///         bytes.try_into().map(u64::from_le_bytes).map_err(|_| "it has not 8 bytes".into())
///     }
/// }
/// type Counters = runstone_typed::TypedKeyspace<String, u64, LittleEndian>;
/// ```
pub trait ValueFormat<V> {
    /// The bytes of a value.
    fn encode(value: &V) -> std::result::Result<Vec<u8>, String>;
    /// The value that the bytes encode.
    fn decode(bytes: &[u8]) -> std::result::Result<V, String>;
}

/// Values as JSON. Stored values outlive the types of a program: fields can be added with
/// `#[serde(default)]`, and `runstone get`, `export --columns` and the merge operator
/// `json-merge-patch` read and change them. A binary format without field names is smaller, but
/// offers none of this.
#[derive(Clone, Copy, Debug)]
pub struct Json;

impl<V: Serialize + DeserializeOwned> ValueFormat<V> for Json {
    fn encode(value: &V) -> std::result::Result<Vec<u8>, String> {
        serde_json::to_vec(value).map_err(|error| error.to_string())
    }

    fn decode(bytes: &[u8]) -> std::result::Result<V, String> {
        serde_json::from_slice(bytes).map_err(|error| error.to_string())
    }
}

pub(crate) fn encode<V, F: ValueFormat<V>>(value: &V) -> Result<Vec<u8>> {
    F::encode(value).map_err(|what| {
        let what = format!("a {} cannot be stored: {what}", std::any::type_name::<V>());
        Error::invalid(what, "change the type, or give the keyspace a ValueFormat of your own")
    })
}

/// `key` and `keyspace` are for error messages.
pub(crate) fn decode<V, F: ValueFormat<V>>(bytes: &[u8], key: &[u8], keyspace: &str) -> Result<V> {
    F::decode(bytes).map_err(|what| {
        let (key, value) = (key.escape_ascii(), std::any::type_name::<V>());
        Error::invalid(
            format!("the value of key \"{key}\" in keyspace {keyspace:?} is not a {value}: {what}"),
            "read it as the type that it was written as; new fields need a default",
        )
    })
}
