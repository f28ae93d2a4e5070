//! Where an import writes: batches of records, each with how far the import is by then.

use std::path::Path;

use runstone::{Batch, Durability, Keyspace, Store, WriteOptions};

use super::progress::{Progress, ProgressRecord};
use crate::failure::Result;

/// A batch also ends at this size, so that large values do not pile up in memory.
const MOST_BATCH_BYTES: u64 = 4 << 20;

/// See the module docs.
pub trait Target {
    /// What an import of this source that was cut short left behind.
    fn left(&self) -> Result<Option<Progress>>;
    /// Adds a record to the batch; an error if it could never be written.
    fn put(&mut self, key: Vec<u8>, value: Vec<u8>) -> runstone::Result<()>;
    /// Whether the batch is as large as it gets but for its number of records.
    fn is_full(&self, most_records: u64) -> bool;
    /// Writes the batch, and how far the import is; `None` at its end.
    fn commit(&mut self, progress: Option<&Progress>) -> Result<()>;
    /// Closes what was written to.
    fn close(self: Box<Self>, is_complete: bool) -> Result<()>;
}

/// A keyspace of a store. The progress is in the batch that holds the data.
pub struct StoreTarget {
    store: Store,
    keyspace: Keyspace,
    record: ProgressRecord,
    batch: Batch,
    writes: WriteOptions,
}

impl StoreTarget {
    /// For the import of a source, `how` it is read included.
    pub fn new(
        (store, keyspace): (Store, Keyspace),
        source: &Path,
        how: &str,
        durability: Durability,
    ) -> Result<StoreTarget> {
        let record = ProgressRecord::open(&store, source, how)?;
        let writes = match durability {
            Durability::Sync => WriteOptions::sync(),
            Durability::Buffered => WriteOptions::default(),
        };
        Ok(StoreTarget { store, keyspace, record, batch: Batch::new(), writes })
    }
}

impl Target for StoreTarget {
    fn left(&self) -> Result<Option<Progress>> {
        self.record.read()
    }

    fn put(&mut self, key: Vec<u8>, value: Vec<u8>) -> runstone::Result<()> {
        self.batch.put(&self.keyspace, key, value)
    }

    fn is_full(&self, most_records: u64) -> bool {
        self.batch.len() >= most_records || self.batch.user_bytes() >= MOST_BATCH_BYTES
    }

    fn commit(&mut self, progress: Option<&Progress>) -> Result<()> {
        match progress {
            Some(progress) => self.record.put(&mut self.batch, progress)?,
            None => self.record.delete(&mut self.batch)?,
        }
        self.store.write(&self.batch, self.writes)?;
        self.batch.clear();
        Ok(())
    }

    fn close(self: Box<Self>, is_complete: bool) -> Result<()> {
        let StoreTarget { store, keyspace, record, .. } = *self;
        drop(keyspace);
        if is_complete {
            record.close(&store)?;
        }
        Ok(store.close()?)
    }
}
