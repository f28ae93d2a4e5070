//! The properties block of a RocksDB table: only the properties that its readers need.

use std::collections::BTreeMap;

use crate::bytes::Input;
use crate::error::Fault;

/// How the index of a table is built.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IndexKind {
    #[default]
    Plain,
    /// An index of index partitions.
    Partitioned,
    /// With the first key of each block.
    WithFirstKeys,
}

/// See the module docs.
#[derive(Clone, Debug, Default)]
pub struct Properties {
    pub index: IndexKind,
    /// Whether keys in the index lack their sequence number.
    pub has_user_keys: bool,
    /// Whether each handle in the index is stored as a difference from the previous one.
    pub has_deltas: bool,
    pub comparator: Option<String>,
    /// The sequence number of all entries, if the file was made outside the database and its
    /// entries have none of their own.
    pub ingested: Option<u64>,
    /// Whether the entries are found through an index that the program supplied.
    pub has_other_index: bool,
}

impl Properties {
    pub fn of(found: &BTreeMap<Vec<u8>, Vec<u8>>) -> Result<Properties, Fault> {
        let get = |name: &str| found.get(name.as_bytes()).map(|value| Input(value));
        let number = |name: &str| get(name).and_then(|mut value| value.varint64()).unwrap_or(0);
        let kind = get("rocksdb.block.based.table.index.type");
        let index = match kind.and_then(|mut value| value.fixed32()).unwrap_or(0) {
            // A table with a hash index also has a plain index.
            0 | 1 => IndexKind::Plain,
            2 => IndexKind::Partitioned,
            3 => IndexKind::WithFirstKeys,
            other => {
                let hint = "compact it all with a two-level or binary index, then import again";
                return Err(Fault::unsupported(format!("its index has type {other}"), hint));
            }
        };
        let version = get("rocksdb.external_sst_file.version");
        let ingested = match version.and_then(|mut version| version.fixed32()) {
            None | Some(1) => None,
            Some(_) => {
                // RocksDB treats a missing number as 0.
                let number = get("rocksdb.external_sst_file.global_seqno");
                let number = number.map_or(Some(0), |mut number| number.fixed64());
                Some(number.ok_or_else(|| Fault::damaged("its sequence number is too short"))?)
            }
        };
        let name = get("rocksdb.comparator").map(|name| String::from_utf8_lossy(name.0).into());
        Ok(Properties {
            index,
            has_user_keys: number("rocksdb.index.key.is.user.key") != 0,
            has_deltas: number("rocksdb.index.value.is.delta.encoded") != 0,
            comparator: name,
            ingested,
            has_other_index: number("rocksdb.udi.is.primary.index") != 0,
        })
    }
}
