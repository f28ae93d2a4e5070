//! Reads the manifest while another process appends to it.

use std::collections::BTreeSet;
use std::sync::Arc;

use runstone_storage::Storage;

use crate::error::{Error, Result};
use crate::keys::KeyspaceId;
use crate::log::{LogReader, Next};
use crate::tree::manifest::{
    CURRENT, Current, StoreState, apply_record, manifest_name, open_manifest, read_current,
};
use crate::tree::record::Change;

/// A manifest, read up to some edit.
#[derive(Debug)]
pub struct ManifestTail {
    storage: Arc<dyn Storage>,
    number: u64,
    reader: LogReader,
    /// The state after the edits that were read.
    pub state: StoreState,
}

/// How often the tail looks for a manifest that another one has just replaced.
const MOST_LOOKS: usize = 16;

impl ManifestTail {
    /// Reads the manifest in force.
    pub fn open(storage: &Arc<dyn Storage>) -> Result<ManifestTail> {
        for _ in 0..MOST_LOOKS {
            let not_a_store = || Error::NotAStore { path: storage.location() };
            let current = read_current(&**storage)?.ok_or_else(not_a_store)?;
            let reader = match open_manifest(&**storage, current.number) {
                // The writer has switched to another one since.
                Err(_) if read_current(&**storage)?.is_some_and(|now| now > current) => continue,
                opened => opened?,
            };
            let (storage, number) = (Arc::clone(storage), current.number);
            let mut tail = ManifestTail { storage, number, reader, state: StoreState::default() };
            tail.read(current.least_bytes)?;
            if tail.state.log_start_seq == 0 {
                let what = "no record says where the log is";
                return Err(Error::corruption(
                    manifest_name(number),
                    tail.place().least_bytes,
                    what,
                ));
            }
            return Ok(tail);
        }
        Err(Error::corruption(CURRENT, 0, "it names manifests that are not there"))
    }

    /// How much was read.
    pub fn place(&self) -> Current {
        Current { number: self.number, least_bytes: self.reader.position() }
    }

    /// Reads what was appended. Returns the keyspaces that changed; `None` if the writer has begun
    /// a new manifest, so that any of them may have. O(bytes read).
    pub fn advance(&mut self) -> Result<Option<BTreeSet<KeyspaceId>>> {
        let current = read_current(&*self.storage)?;
        let Some(current) = current else {
            return Err(Error::NotAStore { path: self.storage.location() });
        };
        if current.number == self.number {
            return self.read(current.least_bytes).map(Some);
        }
        let next = ManifestTail::open(&self.storage)?;
        if next.state.uid != self.state.uid {
            return Err(Error::invalid(
                format!("{} holds another store now", self.storage.location()),
                "follow it again",
            ));
        }
        *self = next;
        Ok(None)
    }

    /// Reads the records that are there. At least this many bytes are durable.
    fn read(&mut self, least_bytes: u64) -> Result<BTreeSet<KeyspaceId>> {
        let name = manifest_name(self.number);
        let mut changed = BTreeSet::new();
        // The file has grown.
        self.reader.rewind(self.reader.position())?;
        loop {
            let before = self.reader.position();
            let Next::Record { offset, bytes } = self.reader.next()? else {
                // The writer may be about to write here.
                self.reader.rewind(before)?;
                if before < least_bytes {
                    let what = format!("valid to here, but {least_bytes} bytes were written");
                    return Err(Error::corruption(name, before, what));
                }
                return Ok(changed);
            };
            for change in apply_record(&mut self.state, &name, offset, &bytes)? {
                changed.extend(keyspace_of(&change));
            }
        }
    }
}

/// The keyspace that a change is of.
fn keyspace_of(change: &Change) -> Option<KeyspaceId> {
    match change {
        Change::Store { .. } | Change::Counters { .. } | Change::Log { .. } => None,
        Change::Keyspace { id, .. }
        | Change::Dropped { id }
        | Change::Edit { id, .. }
        | Change::Shape { id, .. }
        | Change::ValueFile { id, .. }
        | Change::Values { id, .. }
        | Change::ValueFileGone { id, .. } => Some(*id),
    }
}
