//! The lifetime of a table file. Versions and iterators share handles. When the last holder of an
//! obsolete table releases the table, the table's name is added to the purge list, and a background
//! job removes the file.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use std::sync::{Arc, OnceLock};

use crate::sync::{Mutex, rank, subtract};
use runstone_policy::options::Charge;
use runstone_policy::shape::Table;
use runstone_storage::Storage;

use crate::cache::Cache;
use crate::error::Result;
use crate::lease::holder::Lease;
use crate::lease::{KeepLimits, Leases};
use crate::table::reader::TableReader;

/// The state that all tables of a store share.
#[derive(Debug)]
pub struct TableContext {
    /// The storage with the files.
    pub storage: Arc<dyn Storage>,
    /// Block cache and memory budget.
    pub cache: Arc<Cache>,
    /// Random id of the store; with the table id it makes the file's uid.
    pub store_uid: u64,
    /// Tables whose files may be removed.
    pub purge: Mutex<rank::Purge, Vec<Obsolete>>,
    /// The bytes of all table files, including files that are in no tree.
    pub disk: Arc<DiskUse>,
    /// The files that a writer keeps for readers in other processes.
    pub(crate) leases: Arc<Leases>,
    /// The lease of this store, if it is opened as a reader beside a writer.
    pub(crate) lease: Option<Arc<Lease>>,
}

/// The bytes of finished table files, whoever still needs them, and their maximum since the store
/// was opened. Compactions need the space beyond the tree's for a while.
#[derive(Debug, Default)]
pub struct DiskUse {
    now: AtomicU64,
    peak: AtomicU64,
}

impl DiskUse {
    /// The counts at the open of a store whose trees have this many bytes.
    pub fn of(bytes: u64) -> DiskUse {
        DiskUse { now: AtomicU64::new(bytes), peak: AtomicU64::new(bytes) }
    }

    /// Counts a file that was finished.
    pub fn add(&self, bytes: u64) {
        let now = self.now.fetch_add(bytes, Relaxed) + bytes;
        self.peak.fetch_max(now, Relaxed);
    }

    /// Counts a file that was removed.
    pub fn remove(&self, bytes: u64) {
        subtract(&self.now, bytes);
    }

    /// The bytes now, and their maximum.
    pub fn now_and_peak(&self) -> (u64, u64) {
        (self.now.load(Relaxed), self.peak.load(Relaxed))
    }
}

/// The uid of a file of a store.
pub fn file_uid(store_uid: u64, number: u64) -> u64 {
    xxhash_rust::xxh3::xxh3_64_with_seed(&number.to_le_bytes(), store_uid)
}

impl TableContext {
    /// The context of the tables of a store that has no followers.
    pub fn new(storage: Arc<dyn Storage>, cache: Arc<Cache>, store_uid: u64) -> TableContext {
        TableContext {
            leases: Arc::new(Leases::new(Arc::clone(&storage), KeepLimits::NONE)),
            storage,
            cache,
            store_uid,
            purge: Mutex::default(),
            disk: Arc::default(),
            lease: None,
        }
    }

    /// The uid of a table's file, which every block's checksum depends on.
    pub fn table_uid(&self, id: u64) -> u64 {
        file_uid(self.store_uid, id)
    }

    fn open(&self, meta: &Table) -> Result<TableReader> {
        let uid = self.table_uid(meta.id);
        let opened = TableReader::open(&*self.storage, meta, uid, Arc::clone(&self.cache));
        opened.map_err(|error| self.lease.iter().fold(error, |error, lease| lease.explain(error)))
    }
}

/// A table that no tree or reader needs any more.
#[derive(Debug)]
pub struct Obsolete {
    /// The metadata of the table.
    pub meta: Arc<Table>,
    reader: Option<Arc<TableReader>>,
}

impl Obsolete {
    /// The metadata of the table, without the open file.
    pub fn into_meta(self) -> Arc<Table> {
        self.meta
    }

    /// Removes the table's blocks from the cache, where they would otherwise stay until they are
    /// the oldest. A table that cannot be read has few blocks there.
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

/// A table file in use. Any number of versions may show all or part of the file.
#[derive(Debug)]
struct TableFile {
    /// The metadata of the whole file.
    meta: Arc<Table>,
    context: Arc<TableContext>,
    /// The reader is opened at the first read, so that opening a store touches no table.
    reader: OnceLock<Arc<TableReader>>,
    opening: Mutex<rank::OpeningTable, ()>,
    obsolete: AtomicBool,
    /// The number of gets that searched this table, and of cursor samples in it, while tables
    /// overlapped; see [`runstone_policy::plan::Heat`].
    probes: AtomicU64,
    /// The number of these gets that read a block and found nothing.
    vain_reads: AtomicU64,
    /// Seeks that were charged since the table was written or moved, see `tree::seeks`.
    seeks: AtomicU64,
}

/// A table of the tree: a whole file, or the part of a file from some key on.
#[derive(Debug)]
pub struct TableHandle {
    meta: Arc<Table>,
    file: Arc<TableFile>,
}

impl TableHandle {
    /// A handle of a table that the manifest names, or an edit that is about to be written.
    pub fn new(context: Arc<TableContext>, meta: Arc<Table>) -> TableHandle {
        let file = TableFile {
            meta: Arc::clone(&meta),
            context,
            reader: OnceLock::new(),
            opening: Mutex::new(()),
            obsolete: AtomicBool::new(false),
            probes: AtomicU64::new(0),
            vain_reads: AtomicU64::new(0),
            seeks: AtomicU64::new(0),
        };
        TableHandle { meta, file: Arc::new(file) }
    }

    /// A handle that shows a smaller part of the same file.
    pub fn trimmed(&self, meta: Arc<Table>) -> TableHandle {
        TableHandle { meta, file: Arc::clone(&self.file) }
    }

    /// Whether both handles show parts of the same file with the same reader.
    #[cfg(test)]
    pub(crate) fn is_same_file(&self, other: &TableHandle) -> bool {
        Arc::ptr_eq(&self.file, &other.file)
    }

    /// Charges the look-up of a get, or an entry that a cursor sampled. Returns whether the policy
    /// should decide again. It should only at powers of two, because a decision costs more than a
    /// get, and a policy's limit is approximate.
    #[inline]
    pub fn charge(&self, in_vain: bool) -> bool {
        let step = |counter: &AtomicU64| (counter.fetch_add(1, Relaxed) + 1).is_power_of_two();
        // Both counters are kept, because the policy may switch to the other one.
        step(&self.file.probes) | (in_vain && step(&self.file.vain_reads))
    }

    /// Accesses charged so far.
    pub fn accesses(&self, charge: Charge) -> u64 {
        match charge {
            Charge::BlockReads => self.file.vain_reads.load(Relaxed),
            _ => self.file.probes.load(Relaxed),
        }
    }

    /// Charges a seek. Returns how many seeks were charged since the table was written or moved.
    pub fn charge_seek(&self) -> u64 {
        self.file.seeks.fetch_add(1, Relaxed) + 1
    }

    /// Seeks that were charged since the table was written or moved.
    pub fn seeks(&self) -> u64 {
        self.file.seeks.load(Relaxed)
    }

    /// Resets the seeks to zero, because the table moves.
    pub fn forget_seeks(&self) {
        self.file.seeks.store(0, Relaxed);
    }

    /// Metadata.
    #[inline]
    pub fn meta(&self) -> &Table {
        &self.meta
    }

    /// Shared metadata, for a caller that keeps it.
    pub fn shared_meta(&self) -> Arc<Table> {
        Arc::clone(&self.meta)
    }

    /// Metadata of the whole file.
    pub fn file_meta(&self) -> &Table {
        &self.file.meta
    }

    /// The smallest key that is shown, if the file has smaller keys.
    pub fn trim_key(&self) -> Option<&[u8]> {
        (self.meta.min_key != self.file.meta.min_key).then_some(&*self.meta.min_key)
    }

    /// The open file, regardless of a trim.
    #[inline]
    pub fn reader(&self) -> Result<&Arc<TableReader>> {
        match self.file.reader.get() {
            Some(reader) => Ok(reader),
            None => self.file.open(),
        }
    }

    /// The file, opened once more with a `cache` that has nothing of the file yet.
    pub fn open_anew(&self, cache: &Arc<Cache>) -> Result<Arc<TableReader>> {
        let (context, meta) = (&self.file.context, &self.file.meta);
        let uid = context.table_uid(meta.id);
        Ok(Arc::new(TableReader::open(&*context.storage, meta, uid, Arc::clone(cache))?))
    }

    /// The open file, if a read has opened it.
    #[inline]
    pub fn opened(&self) -> Option<&Arc<TableReader>> {
        self.file.reader.get()
    }

    /// Lets the last holder release the file, because the tree no longer names the table.
    pub fn mark_obsolete(&self) {
        self.file.obsolete.store(true, Release);
    }
}

impl TableFile {
    fn open(&self) -> Result<&Arc<TableReader>> {
        let _one_at_a_time = self.opening.lock();
        if let Some(reader) = self.reader.get() {
            return Ok(reader);
        }
        let reader = self.context.open(&self.meta)?;
        Ok(self.reader.get_or_init(|| Arc::new(reader)))
    }
}

impl Drop for TableFile {
    fn drop(&mut self) {
        if *self.obsolete.get_mut() {
            let reader = self.reader.take();
            self.context.purge.lock().push(Obsolete { meta: Arc::clone(&self.meta), reader });
        }
    }
}
