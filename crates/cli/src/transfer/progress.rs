//! The progress of an import, kept in the store itself: it is written in the batch that contains
//! the data, so that both are there or neither.

use std::path::Path;

use runstone::{Batch, Keyspace, KeyspaceOptions, Store};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::source::Position;
use crate::failure::{Failure, Result};

/// Name of the keyspace that contains the progress; it is dropped when no import is under way.
pub const KEYSPACE: &str = "_runstone.import";

/// The stored record.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    pub position: Position,
    pub records: u64,
    pub malformed: u64,
    /// How many records had expired when they were read.
    #[serde(default)]
    pub expired: u64,
}

/// The identity of an import: the path, and `how` it is read. The position, which is a sum over
/// what was read, shows whether the source is still the same. The length and time of a file do not
/// show it, because many files share them.
pub fn source_key(source: &Path, how: &str) -> Result<String> {
    let path = source.canonicalize().map_err(|error| Failure::file(source, "read", &error))?;
    let path = crate::encoding::to_hex(path.as_os_str().as_encoded_bytes());
    Ok(json!([path, how]).to_string())
}

/// The progress of one import.
pub struct ProgressRecord {
    keyspace: Keyspace,
    key: Vec<u8>,
}

impl ProgressRecord {
    /// Opens the record of a source; `how` distinguishes imports of the same file into different
    /// keyspaces.
    pub fn open(store: &Store, source: &Path, how: &str) -> Result<ProgressRecord> {
        // This keyspace has a few hundred bytes, so a full-size buffer would only waste memory.
        let options = KeyspaceOptions::default().write_buffer_bytes(1 << 20);
        let keyspace = store.open_keyspace(KEYSPACE, Some(options))?;
        Ok(ProgressRecord { keyspace, key: source_key(source, how)?.into_bytes() })
    }

    /// The progress of an earlier import. Progress that does not decode counts as none.
    pub fn read(&self) -> Result<Option<Progress>> {
        let stored = self.keyspace.get(&self.key)?;
        Ok(stored.and_then(|stored| serde_json::from_slice(&stored).ok()))
    }

    /// Adds the progress to a batch.
    pub fn put(&self, batch: &mut Batch, progress: &Progress) -> Result<()> {
        let text = serde_json::to_vec(progress)
            .map_err(|error| Failure::usage(error, "import without resuming: --restart"))?;
        Ok(batch.put(&self.keyspace, &self.key, text)?)
    }

    /// Adds the removal of the progress to the last batch of the import.
    pub fn delete(&self, batch: &mut Batch) -> Result<()> {
        Ok(batch.delete(&self.keyspace, &self.key)?)
    }

    /// Drops the keyspace if no other import is under way.
    pub fn close(self, store: &Store) -> Result<()> {
        let is_empty = self.keyspace.iter()?.next().is_none();
        drop(self.keyspace);
        if is_empty {
            store.drop_keyspace(KEYSPACE)?;
        }
        Ok(())
    }
}
