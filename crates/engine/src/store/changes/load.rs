//! The entries of a load, read from the tables that it made.

use std::sync::Arc;

use runstone_policy::shape::Table;
use runstone_storage::Storage;
use runstone_storage::fork::Process;

use crate::cache::Cache;
use crate::error::{Error, Result};
use crate::keys::{KeyspaceId, Kind, kind_of};
use crate::lease::holder::LeasePart;
use crate::table::handle::file_uid;
use crate::table::iterator::{Access, TableIter};
use crate::table::reader::TableReader;
use crate::wal::batch::{Batch, Operation};

/// Memory for blocks. A load is read once, in order.
const CACHE_BYTES: u64 = 1 << 20;
/// About how large a batch of entries becomes.
const BATCH_BYTES: usize = 1 << 20;

/// A load into a keyspace: entries that became visible together.
#[derive(Clone, Debug)]
pub struct Load {
    keyspace: KeyspaceId,
    tables: Vec<Arc<Table>>,
    storage: Arc<dyn Storage>,
    store_uid: u64,
    /// The process whose lease keeps the tables.
    process: Process,
    _part: Option<Arc<LeasePart>>,
}

impl Load {
    pub(super) fn new(
        keyspace: KeyspaceId,
        tables: Vec<Arc<Table>>,
        (storage, store_uid): (&Arc<dyn Storage>, u64),
        part: Option<LeasePart>,
    ) -> Load {
        let (storage, part) = (Arc::clone(storage), part.map(Arc::new));
        Load { keyspace, tables, storage, store_uid, process: Process::current(), _part: part }
    }

    /// The keyspace that was loaded.
    pub fn keyspace(&self) -> KeyspaceId {
        self.keyspace
    }

    /// The size of its tables.
    pub(super) fn bytes(&self) -> u64 {
        self.tables.iter().map(|table| table.bytes).sum()
    }

    /// Passes its entries to `see` in the order of their keys, in batches of about 1 MiB. Together
    /// they are one change.
    ///
    /// # Errors
    /// [`Error::Corruption`], a storage error, or one of `see`; [`Error::OtherProcess`] in a fork.
    pub fn read(&self, mut see: impl FnMut(&Batch) -> Result<()>) -> Result<()> {
        if !self.process.is_current() {
            return Err(Error::OtherProcess);
        }
        let mut batch = Batch::new();
        for table in &self.tables {
            let (cache, uid) = (Cache::new(CACHE_BYTES), file_uid(self.store_uid, table.id));
            let reader = TableReader::open(&*self.storage, table, uid, Arc::new(cache))?;
            let mut entries = TableIter::new(Arc::new(reader), Access::Sequential);
            entries.seek_to_first()?;
            while let Some(entry) = entries.cursor().filter(|entry| entry.valid()) {
                let kind = Kind::from_u8(kind_of(entry.trailer()));
                let kind = kind.ok_or_else(|| {
                    Error::corruption("a table", 0, "an entry of a load is of unknown kind")
                })?;
                let (keyspace, key, value) = (self.keyspace, entry.key(), entry.value());
                let (is_folded, place) = (false, &[][..]);
                batch.push_same(&Operation { kind, keyspace, key, value, is_folded, place });
                if batch.encoded().len() >= BATCH_BYTES {
                    see(&batch)?;
                    batch.clear();
                }
                entries.next()?;
            }
        }
        if batch.is_empty() { Ok(()) } else { see(&batch) }
    }
}
