//! RocksDB: LZ4 on all levels, a full Bloom filter of 10 bits, an LRU cache for data blocks; index
//! and filters stay outside the cache, as by default.

use std::path::Path;
use std::time::SystemTime;

use rocksdb::compaction_filter::Decision as CompactionDecision;
use rocksdb::{
    BlockBasedOptions, Cache, DB, DBCompactionStyle, DBCompressionType, MergeOperands,
    OptimisticTransactionDB, Options, Transaction, TransactionDB, TransactionDBOptions,
    WaitForCompactOptions, WriteBatch, WriteOptions, properties,
};
use runstone::{Durability, Value};
use runstone_kv::{Direction, KvMetrics, KvStore, KvWrite, Visit};
use runstone_kv::{Error, Result};

use super::PutInto;
use crate::counters::{self, Counters, Way};
use crate::extras::{self, Appending, ByReader, Expiring};
use crate::plan::{SEPARATE_AT_BYTES, Setup};

const NAME: &str = "RocksDB";

pub fn open(path: &Path, setup: &Setup) -> Result<Box<dyn KvStore>> {
    open_with(path, &options(setup))
}

/// Opens column families. Their memtables share `db_write_buffer_size`, as Runstone's share its
/// budget.
pub fn open_keyspaces(path: &Path, setup: &Setup) -> Result<PutInto> {
    let mut options = options(setup);
    options.set_db_write_buffer_size((setup.budget_bytes() / 2) as usize);
    let mut db = DB::open(&options, path).map_err(error)?;
    let names: Vec<String> = (0..setup.keyspaces).map(|n| format!("keyspace{n}")).collect();
    names.iter().try_for_each(|name| db.create_cf(name, &options).map_err(error))?;
    Ok(Box::new(move |at, key, value| {
        let family = db.cf_handle(&names[at]).expect("was made");
        db.put_cf(family, key, value).map_err(error)
    }))
}

/// Opens a store with universal compaction, which is started only by hand, so that a load leaves
/// its runs.
pub fn open_universal(path: &Path, setup: &Setup) -> Result<Box<dyn KvStore>> {
    let mut options = options(setup);
    options.set_compaction_style(DBCompactionStyle::Universal);
    options.set_disable_auto_compactions(true);
    // Runs wait to be compacted, so writers must not be stopped because of them.
    options.set_level_zero_slowdown_writes_trigger(-1);
    options.set_level_zero_stop_writes_trigger(i32::MAX);
    options.set_max_subcompactions(setup.background_threads as u32);
    open_with(path, &options)
}

/// Opens a store with separated values, which compactions collect, at its defaults.
pub fn open_blobdb(path: &Path, setup: &Setup) -> Result<Box<dyn KvStore>> {
    open_with(path, &blob_options(setup))
}

/// Opens such a store, but collections are forced if a third of the oldest half of the blobs is
/// garbage: for a comparison at equal space.
pub fn open_blobdb_tight(path: &Path, setup: &Setup) -> Result<Box<dyn KvStore>> {
    let mut options = blob_options(setup);
    options.set_blob_gc_age_cutoff(0.5);
    options.set_blob_gc_force_threshold(0.3);
    open_with(path, &options)
}

/// Counts with an associative merge operator, `OptimisticTransactionDB` and `TransactionDB`.
pub fn open_counters(path: &Path, setup: &Setup, way: Way) -> Result<Option<Box<dyn Counters>>> {
    let mut options = options(setup);
    Ok(match way {
        Way::Merge => {
            options.set_merge_operator_associative("add-u64", add);
            Some(Box::new(Merging(DB::open(&options, path).map_err(error)?)))
        }
        Way::Optimistic => {
            let db = OptimisticTransactionDB::open(&options, path).map_err(error)?;
            Some(Box::new(Optimistic(db)))
        }
        Way::Pessimistic => {
            let db = TransactionDB::open(&options, &TransactionDBOptions::default(), path);
            Some(Box::new(Pessimistic(db.map_err(error)?)))
        }
        Way::Put | Way::GetAndPut => None,
    })
}

fn add(_: &[u8], base: Option<&[u8]>, operands: &MergeOperands) -> Option<Vec<u8>> {
    let numbers = base.into_iter().chain(operands);
    let sum = numbers.map(|bytes| counters::number(Some(bytes)).ok()).sum::<Option<u64>>()?;
    Some(sum.to_le_bytes().to_vec())
}

struct Merging(DB);

impl Counters for Merging {
    fn add(&self, key: &[u8], by: u64) -> Result<()> {
        self.0.merge(key, by.to_le_bytes()).map_err(error)
    }

    fn get(&self, key: &[u8]) -> Result<u64> {
        counters::number(self.0.get_pinned(key).map_err(error)?.as_deref())
    }
}

struct Optimistic(OptimisticTransactionDB);

impl Counters for Optimistic {
    fn add(&self, key: &[u8], by: u64) -> Result<()> {
        add_in(self.0.transaction(), key, by)
    }

    fn get(&self, key: &[u8]) -> Result<u64> {
        counters::number(self.0.get_pinned(key).map_err(error)?.as_deref())
    }
}

struct Pessimistic(TransactionDB);

impl Counters for Pessimistic {
    fn add(&self, key: &[u8], by: u64) -> Result<()> {
        add_in(self.0.transaction(), key, by)
    }

    fn get(&self, key: &[u8]) -> Result<u64> {
        counters::number(self.0.get_pinned(key).map_err(error)?.as_deref())
    }
}

/// Adds to a counter in a transaction. The get declares that the key must not change, as both kinds
/// of transactions require.
fn add_in<D>(transaction: Transaction<'_, D>, key: &[u8], by: u64) -> Result<()> {
    let old = transaction.get_pinned_for_update(key, true).map_err(error)?;
    let new = counters::number(old.as_deref())? + by;
    drop(old);
    transaction.put(key, new.to_le_bytes()).map_err(error)?;
    transaction.commit().map_err(error)
}

/// Appends operands to each other. Two of them without a base are not joined.
pub fn open_appending(path: &Path, setup: &Setup) -> Result<Box<dyn Appending>> {
    let mut options = options(setup);
    let never = |_: &[u8], _: Option<&[u8]>, _: &MergeOperands| None;
    options.set_merge_operator("append", append, never);
    Ok(Box::new(open_store(path, &options)?))
}

fn append(_: &[u8], base: Option<&[u8]>, operands: &MergeOperands) -> Option<Vec<u8>> {
    let all: Vec<&[u8]> = base.into_iter().chain(operands).collect();
    Some(all.concat())
}

impl Appending for RocksDb {
    fn store(&self) -> &dyn KvStore {
        self
    }

    fn append(&self, key: &[u8], operand: &[u8]) -> Result<()> {
        self.db.merge(key, operand).map_err(error)
    }
}

/// RocksDB's own time to live hides nothing from readers. Here readers skip expired entries, and a
/// filter drops these entries in compactions.
pub fn open_expiring(path: &Path, setup: &Setup) -> Result<Box<dyn Expiring>> {
    let mut options = options(setup);
    options.set_compaction_filter("expiry", |_: u32, _: &[u8], entry: &[u8]| {
        match extras::has_expired(entry, SystemTime::now()) {
            true => CompactionDecision::Remove,
            false => CompactionDecision::Keep,
        }
    });
    Ok(Box::new(ByReader(open_with(path, &options)?)))
}

/// Values are not compressed, as in Runstone's value files.
fn blob_options(setup: &Setup) -> Options {
    let mut options = options(setup);
    options.set_enable_blob_files(true);
    options.set_min_blob_size(SEPARATE_AT_BYTES.into());
    options.set_enable_blob_gc(true);
    options
}

fn open_with(path: &Path, options: &Options) -> Result<Box<dyn KvStore>> {
    Ok(Box::new(open_store(path, options)?))
}

fn open_store(path: &Path, options: &Options) -> Result<RocksDb> {
    let db = DB::open(options, path).map_err(error)?;
    let mut sync = WriteOptions::default();
    sync.set_sync(true);
    Ok(RocksDb { db, sync, buffered: WriteOptions::default() })
}

fn options(setup: &Setup) -> Options {
    let mut table = BlockBasedOptions::default();
    table.set_block_cache(&Cache::new_lru_cache(setup.cache_bytes as usize));
    table.set_bloom_filter(10.0, false);
    let mut options = Options::default();
    options.create_if_missing(true);
    options.set_block_based_table_factory(&table);
    options.set_compression_type(DBCompressionType::Lz4);
    options.set_write_buffer_size(setup.memtable_bytes as usize);
    options.set_max_background_jobs(setup.background_threads as i32);
    options
}

struct RocksDb {
    db: DB,
    sync: WriteOptions,
    buffered: WriteOptions,
}

impl RocksDb {
    fn options(&self, durability: Durability) -> &WriteOptions {
        match durability {
            Durability::Buffered => &self.buffered,
            _ => &self.sync,
        }
    }

    fn property(&self, name: &properties::PropName) -> Result<u64> {
        Ok(self.db.property_int_value(name).map_err(error)?.unwrap_or(0))
    }
}

impl KvStore for RocksDb {
    fn name(&self) -> String {
        NAME.into()
    }

    fn put(&self, key: &[u8], value: &[u8], durability: Durability) -> Result<()> {
        self.db.put_opt(key, value, self.options(durability)).map_err(error)
    }

    fn delete(&self, key: &[u8], durability: Durability) -> Result<()> {
        self.db.delete_opt(key, self.options(durability)).map_err(error)
    }

    fn write(&self, writes: &[KvWrite<'_>], durability: Durability) -> Result<()> {
        let mut batch = WriteBatch::default();
        for write in writes {
            match *write {
                KvWrite::Put { key, value } => batch.put(key, value),
                KvWrite::Delete { key } => batch.delete(key),
            }
        }
        self.db.write_opt(batch, self.options(durability)).map_err(error)
    }

    /// RocksDB has no range without an end: so this deletes up to the last key, and then that key.
    fn delete_range(&self, start: &[u8], end: Option<&[u8]>, durability: Durability) -> Result<()> {
        let mut batch = WriteBatch::default();
        let mut last = Vec::new();
        if end.is_none() {
            self.scan(None, Direction::Reverse, &mut |key, _| {
                last.extend_from_slice(key);
                false
            })?;
            if &last[..] < start {
                return Ok(());
            }
            batch.delete(&last);
        }
        batch.delete_range(start, end.unwrap_or(&last));
        self.db.write_opt(batch, self.options(durability)).map_err(error)
    }

    fn get(&self, key: &[u8]) -> Result<Option<Value>> {
        let pinned = self.db.get_pinned(key).map_err(error)?;
        Ok(pinned.map(|value| Value::owned(&value[..])))
    }

    fn multi_get(&self, keys: &[&[u8]]) -> Result<Vec<Option<Value>>> {
        let owned = |value: Option<Vec<u8>>| value.map(Value::owned);
        self.db.multi_get(keys).into_iter().map(|value| value.map(owned).map_err(error)).collect()
    }

    fn scan(&self, from: Option<&[u8]>, direction: Direction, visit: &mut Visit<'_>) -> Result<()> {
        let mut iterator = self.db.raw_iterator();
        match (from, direction) {
            (Some(key), Direction::Forward) => iterator.seek(key),
            (Some(key), Direction::Reverse) => iterator.seek_for_prev(key),
            (None, Direction::Forward) => iterator.seek_to_first(),
            (None, Direction::Reverse) => iterator.seek_to_last(),
        }
        while let Some((key, value)) = iterator.item() {
            if !visit(key, value) {
                break;
            }
            match direction {
                Direction::Forward => iterator.next(),
                Direction::Reverse => iterator.prev(),
            }
        }
        iterator.status().map_err(error)
    }

    fn flush(&self) -> Result<()> {
        self.db.flush_wal(true).map_err(error)?;
        self.db.flush().map_err(error)
    }

    fn wait_idle(&self) -> Result<()> {
        self.db.wait_for_compact(&WaitForCompactOptions::default()).map_err(error)
    }

    fn compact(&self) -> Result<()> {
        self.db.compact_range(None::<&[u8]>, None::<&[u8]>);
        Ok(())
    }

    fn metrics(&self) -> Result<KvMetrics> {
        let memtables = self.property(properties::CUR_SIZE_ALL_MEM_TABLES)?;
        let readers = self.property(properties::ESTIMATE_TABLE_READERS_MEM)?;
        let cache = self.property(properties::BLOCK_CACHE_USAGE)?;
        Ok(KvMetrics {
            disk_bytes: self.property(properties::TOTAL_SST_FILES_SIZE)? + memtables,
            memory_bytes: memtables + readers + cache,
            ..KvMetrics::default()
        })
    }
}

fn error(error: rocksdb::Error) -> Error {
    super::foreign(NAME, error)
}
