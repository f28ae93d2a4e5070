//! A table file with a life time. Versions and iterators share handles; when an obsolete table's
//! last holder lets go, its name goes to the purge list, and a background job removes the file.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use runstone_policy::shape::Table;
use runstone_storage::Storage;

use crate::cache::Cache;
use crate::error::Result;
use crate::table::reader::TableReader;

/// What all tables of a store share.
#[derive(Debug)]
pub struct TableContext {
    /// Where the files are.
    pub storage: Arc<dyn Storage>,
    /// Block cache and memory budget.
    pub cache: Arc<Cache>,
    /// Random id of the store; with the table id it makes the file's uid.
    pub store_uid: u64,
    /// Tables whose files may be removed.
    pub purge: Mutex<Vec<Obsolete>>,
}

impl TableContext {
    /// The uid of a table's file: bound into every block's checksum.
    pub fn table_uid(&self, id: u64) -> u64 {
        xxhash_rust::xxh3::xxh3_64_with_seed(&id.to_le_bytes(), self.store_uid)
    }

    fn open(&self, meta: &Table) -> Result<TableReader> {
        let uid = self.table_uid(meta.id);
        TableReader::open(&*self.storage, meta, uid, Arc::clone(&self.cache))
    }
}

/// A table that nobody needs any more.
#[derive(Debug)]
pub struct Obsolete {
    /// What it was.
    pub meta: Arc<Table>,
    reader: Option<Arc<TableReader>>,
}

impl Obsolete {
    /// Forgets its blocks, which would else fill the cache until they are the oldest. A table that
    /// cannot be read has none to speak of.
    pub fn evict(&self, context: &TableContext) {
        let reader = match &self.reader {
            Some(reader) => Ok(Arc::clone(reader)),
            None => context.open(&self.meta).map(Arc::new),
        };
        if let Ok(reader) = reader {
            reader.evict();
        }
    }
}

/// A table of the tree.
#[derive(Debug)]
pub struct TableHandle {
    meta: Arc<Table>,
    context: Arc<TableContext>,
    /// Opened at the first read: opening a store touches no table.
    reader: OnceLock<Arc<TableReader>>,
    opening: Mutex<()>,
    obsolete: AtomicBool,
    /// Accesses charged by gets while tables overlap here, see [`runstone_policy::plan::Heat`].
    accesses: AtomicU64,
}

impl TableHandle {
    /// A handle of a table that the manifest (or an edit about to be written) names.
    pub fn new(context: Arc<TableContext>, meta: Arc<Table>) -> TableHandle {
        TableHandle {
            meta,
            context,
            reader: OnceLock::new(),
            opening: Mutex::new(()),
            obsolete: AtomicBool::new(false),
            accesses: AtomicU64::new(0),
        }
    }

    /// Charges accesses; returns how many there are now.
    #[inline]
    pub fn charge(&self, accesses: u64) -> u64 {
        self.accesses.fetch_add(accesses, Relaxed) + accesses
    }

    /// Accesses charged so far.
    pub fn accesses(&self) -> u64 {
        self.accesses.load(Relaxed)
    }

    /// Metadata.
    #[inline]
    pub fn meta(&self) -> &Table {
        &self.meta
    }

    /// The open table.
    #[inline]
    pub fn reader(&self) -> Result<&Arc<TableReader>> {
        match self.reader.get() {
            Some(reader) => Ok(reader),
            None => self.open(),
        }
    }

    fn open(&self) -> Result<&Arc<TableReader>> {
        let _one_at_a_time = self.opening.lock();
        if let Some(reader) = self.reader.get() {
            return Ok(reader);
        }
        let reader = self.context.open(&self.meta)?;
        Ok(self.reader.get_or_init(|| Arc::new(reader)))
    }

    /// The tree no longer names this table; the file goes when the last holder lets go.
    pub fn mark_obsolete(&self) {
        self.obsolete.store(true, Release);
    }
}

impl Drop for TableHandle {
    fn drop(&mut self) {
        if *self.obsolete.get_mut() {
            let reader = self.reader.take();
            self.context.purge.lock().push(Obsolete { meta: Arc::clone(&self.meta), reader });
        }
    }
}
