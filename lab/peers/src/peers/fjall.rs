//! fjall: LZ4 on all levels (its default leaves the upper two uncompressed), Bloom filters of 10
//! bits on all levels, its journal passed to the operating system at every write, but not synced.

use std::ops::Bound;
use std::path::Path;
use std::time::Duration;

use fjall::config::{BloomConstructionPolicy, CompressionPolicy, FilterPolicy, FilterPolicyEntry};
use fjall::{
    CompressionType, Database, Keyspace, KeyspaceCreateOptions, OptimisticTxDatabase,
    OptimisticTxKeyspace, PersistMode, Readable, SingleWriterTxDatabase, SingleWriterTxKeyspace,
};
use runstone::{Durability, Value};
use runstone_kv::{Direction, KvMetrics, KvStore, KvWrite, Visit};
use runstone_kv::{Error, Result};

use super::PutInto;
use crate::counters::{self, Counters, Way};
use crate::plan::Setup;

const NAME: &str = "fjall";
/// The store counts as idle when nothing was running at this many checks in a row.
const IDLE_LOOKS: u32 = 10;
const LOOK_EVERY: Duration = Duration::from_millis(20);

pub fn open(path: &Path, setup: &Setup) -> Result<Box<dyn KvStore>> {
    let database = open_database(path, setup)?;
    let keyspace = database.keyspace("default", || keyspace_options(setup)).map_err(error)?;
    Ok(Box::new(Fjall { database, keyspace }))
}

/// The database and its keyspaces.
pub fn open_keyspaces(path: &Path, setup: &Setup) -> Result<PutInto> {
    let database = open_database(path, setup)?;
    let open = |n| {
        let name = format!("keyspace{n}");
        database.keyspace(&name, || keyspace_options(setup)).map_err(error)
    };
    let keyspaces = (0..setup.keyspaces).map(open).collect::<Result<Vec<_>>>()?;
    Ok(Box::new(move |at, key, value| {
        let _ = &database;
        keyspaces[at].insert(key, value).map_err(error)
    }))
}

/// fjall has no merge operators. Its transactions are checked at the commit, or run one at a time.
pub fn open_counters(path: &Path, setup: &Setup, way: Way) -> Result<Option<Box<dyn Counters>>> {
    Ok(match way {
        Way::Optimistic => {
            let builder = OptimisticTxDatabase::builder(path).cache_size(setup.cache_bytes);
            let database = builder.worker_threads(setup.background_threads).open();
            let database = database.map_err(error)?;
            let keyspace = database.keyspace("default", || keyspace_options(setup));
            Some(Box::new(Optimistic { keyspace: keyspace.map_err(error)?, database }))
        }
        Way::Pessimistic => {
            let builder = SingleWriterTxDatabase::builder(path).cache_size(setup.cache_bytes);
            let database = builder.worker_threads(setup.background_threads).open();
            let database = database.map_err(error)?;
            let keyspace = database.keyspace("default", || keyspace_options(setup));
            Some(Box::new(SingleWriter { keyspace: keyspace.map_err(error)?, database }))
        }
        Way::Put | Way::Merge | Way::GetAndPut => None,
    })
}

struct Optimistic {
    database: OptimisticTxDatabase,
    keyspace: OptimisticTxKeyspace,
}

impl Counters for Optimistic {
    fn add(&self, key: &[u8], by: u64) -> Result<()> {
        let mut transaction = self.database.write_tx().map_err(error)?;
        let old = transaction.get(&self.keyspace, key).map_err(error)?;
        let new = counters::number(old.as_deref())? + by;
        transaction.insert(&self.keyspace, key, new.to_le_bytes());
        transaction.commit().map_err(error)?.map_err(|conflict| super::foreign(NAME, conflict))
    }

    fn get(&self, key: &[u8]) -> Result<u64> {
        counters::number(self.keyspace.get(key).map_err(error)?.as_deref())
    }
}

struct SingleWriter {
    database: SingleWriterTxDatabase,
    keyspace: SingleWriterTxKeyspace,
}

impl Counters for SingleWriter {
    fn add(&self, key: &[u8], by: u64) -> Result<()> {
        let mut transaction = self.database.write_tx();
        let old = transaction.get(&self.keyspace, key).map_err(error)?;
        let new = counters::number(old.as_deref())? + by;
        transaction.insert(&self.keyspace, key, new.to_le_bytes());
        transaction.commit().map_err(error)
    }

    fn get(&self, key: &[u8]) -> Result<u64> {
        counters::number(self.keyspace.get(key).map_err(error)?.as_deref())
    }
}

fn open_database(path: &Path, setup: &Setup) -> Result<Database> {
    let builder = Database::builder(path).cache_size(setup.cache_bytes);
    builder.worker_threads(setup.background_threads).open().map_err(error)
}

fn keyspace_options(setup: &Setup) -> KeyspaceCreateOptions {
    let bloom = FilterPolicyEntry::Bloom(BloomConstructionPolicy::BitsPerKey(10.0));
    KeyspaceCreateOptions::default()
        .max_memtable_size(setup.memtable_bytes)
        .data_block_compression_policy(CompressionPolicy::all(CompressionType::Lz4))
        .filter_policy(FilterPolicy::all(bloom))
}

struct Fjall {
    database: Database,
    keyspace: Keyspace,
}

impl Fjall {
    fn acknowledge(&self, durability: Durability) -> Result<()> {
        match durability {
            Durability::Buffered => Ok(()),
            _ => self.database.persist(PersistMode::SyncData).map_err(error),
        }
    }

    fn is_idle(&self) -> bool {
        self.database.outstanding_flushes() == 0
            && self.database.active_compactions() == 0
            && self.keyspace.sealed_memtable_count() == 0
    }
}

impl KvStore for Fjall {
    fn name(&self) -> String {
        NAME.into()
    }

    fn put(&self, key: &[u8], value: &[u8], durability: Durability) -> Result<()> {
        self.keyspace.insert(key, value).map_err(error)?;
        self.acknowledge(durability)
    }

    fn delete(&self, key: &[u8], durability: Durability) -> Result<()> {
        self.keyspace.remove(key).map_err(error)?;
        self.acknowledge(durability)
    }

    fn write(&self, writes: &[KvWrite<'_>], durability: Durability) -> Result<()> {
        let mode = match durability {
            Durability::Buffered => PersistMode::Buffer,
            _ => PersistMode::SyncData,
        };
        let mut batch = self.database.batch().durability(Some(mode));
        for write in writes {
            match *write {
                KvWrite::Put { key, value } => batch.insert(&self.keyspace, key, value),
                KvWrite::Delete { key } => batch.remove(&self.keyspace, key),
            }
        }
        batch.commit().map_err(error)
    }

    fn get(&self, key: &[u8]) -> Result<Option<Value>> {
        let value = self.keyspace.get(key).map_err(error)?;
        Ok(value.map(|value| Value::owned(&value[..])))
    }

    fn scan(&self, from: Option<&[u8]>, direction: Direction, visit: &mut Visit<'_>) -> Result<()> {
        let bound = from.map_or(Bound::Unbounded, Bound::Included);
        let mut entries = match direction {
            Direction::Forward => self.keyspace.range::<&[u8], _>((bound, Bound::Unbounded)),
            Direction::Reverse => self.keyspace.range::<&[u8], _>((Bound::Unbounded, bound)),
        };
        let mut next = || match direction {
            Direction::Forward => entries.next(),
            Direction::Reverse => entries.next_back(),
        };
        while let Some(entry) = next() {
            let (key, value) = entry.into_inner().map_err(error)?;
            if !visit(&key, &value) {
                break;
            }
        }
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        self.database.persist(PersistMode::SyncAll).map_err(error)?;
        self.keyspace.rotate_memtable_and_wait().map_err(error)
    }

    fn wait_idle(&self) -> Result<()> {
        let mut idle_looks = 0;
        while idle_looks < IDLE_LOOKS {
            std::thread::sleep(LOOK_EVERY);
            idle_looks = if self.is_idle() { idle_looks + 1 } else { 0 };
        }
        Ok(())
    }

    fn compact(&self) -> Result<()> {
        self.keyspace.major_compact().map_err(error)
    }

    fn metrics(&self) -> Result<KvMetrics> {
        let disk_bytes = self.database.disk_space().map_err(error)?;
        let memory_bytes = self.database.cache_size() + self.database.write_buffer_size();
        Ok(KvMetrics { disk_bytes, memory_bytes, ..KvMetrics::default() })
    }
}

fn error(error: fjall::Error) -> Error {
    super::foreign(NAME, error)
}
