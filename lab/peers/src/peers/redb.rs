//! redb: a copy-on-write B+ tree in one file, with a cache of its own; no filters, no compression.
//! One writer at a time, no group commit. A buffered write is a transaction with
//! `Durability::None`: its data, and the pages that it frees, wait for the next synced transaction.

use std::fs;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::RwLock;

use redb::{Database, ReadableDatabase, TableDefinition, WriteTransaction};
use runstone::{Durability, Value};
use runstone_kv::{Direction, KvMetrics, KvStore, KvWrite, Visit};
use runstone_kv::{Error, Result};

use crate::plan::Setup;

const NAME: &str = "redb";
const TABLE: TableDefinition<&[u8], &[u8]> = TableDefinition::new("default");

/// The cache gets the whole budget: there is no other memory.
pub fn open(path: &Path, setup: &Setup) -> Result<Box<dyn KvStore>> {
    fs::create_dir_all(path).map_err(error)?;
    let file = path.join("store.redb");
    let mut builder = Database::builder();
    builder.set_cache_size(setup.budget_bytes() as usize);
    let database = builder.create(&file).map_err(error)?;
    let transaction = database.begin_write().map_err(error)?;
    transaction.open_table(TABLE).map_err(error)?;
    transaction.commit().map_err(error)?;
    Ok(Box::new(Redb { database: RwLock::new(database), file }))
}

struct Redb {
    /// Only a compaction needs exclusive access.
    database: RwLock<Database>,
    file: PathBuf,
}

impl Redb {
    fn begin(&self, durability: Durability) -> Result<WriteTransaction> {
        let database = self.database.read().expect("no writer panicked");
        let mut transaction = database.begin_write().map_err(error)?;
        let durability = match durability {
            Durability::Buffered => redb::Durability::None,
            _ => redb::Durability::Immediate,
        };
        transaction.set_durability(durability).map_err(error)?;
        Ok(transaction)
    }
}

impl KvStore for Redb {
    fn name(&self) -> String {
        NAME.into()
    }

    fn write(&self, writes: &[KvWrite<'_>], durability: Durability) -> Result<()> {
        let transaction = self.begin(durability)?;
        let mut table = transaction.open_table(TABLE).map_err(error)?;
        for write in writes {
            match *write {
                KvWrite::Put { key, value } => drop(table.insert(key, value).map_err(error)?),
                KvWrite::Delete { key } => drop(table.remove(key).map_err(error)?),
            }
        }
        drop(table);
        transaction.commit().map_err(error)
    }

    /// Puts the entries in one transaction, whatever their order.
    fn load(&self, entries: &mut dyn Iterator<Item = (Vec<u8>, Vec<u8>)>) -> Result<u64> {
        let transaction = self.begin(Durability::Sync)?;
        let mut table = transaction.open_table(TABLE).map_err(error)?;
        let mut count = 0;
        for (key, value) in entries {
            table.insert(&key[..], &value[..]).map_err(error)?;
            count += 1;
        }
        drop(table);
        transaction.commit().map_err(error)?;
        Ok(count)
    }

    fn get(&self, key: &[u8]) -> Result<Option<Value>> {
        let transaction = self.database.read().expect("no writer panicked").begin_read();
        let table = transaction.map_err(error)?.open_table(TABLE).map_err(error)?;
        let value = table.get(key).map_err(error)?;
        Ok(value.map(|value| Value::owned(value.value())))
    }

    fn scan(&self, from: Option<&[u8]>, direction: Direction, visit: &mut Visit<'_>) -> Result<()> {
        let transaction = self.database.read().expect("no writer panicked").begin_read();
        let table = transaction.map_err(error)?.open_table(TABLE).map_err(error)?;
        let bound = from.map_or(Bound::Unbounded, Bound::Included);
        let range = match direction {
            Direction::Forward => table.range::<&[u8]>((bound, Bound::Unbounded)),
            Direction::Reverse => table.range::<&[u8]>((Bound::Unbounded, bound)),
        };
        let mut entries = range.map_err(error)?;
        let mut next = || match direction {
            Direction::Forward => entries.next(),
            Direction::Reverse => entries.next_back(),
        };
        while let Some(entry) = next() {
            let (key, value) = entry.map_err(error)?;
            if !visit(key.value(), value.value()) {
                break;
            }
        }
        Ok(())
    }

    /// An empty transaction that syncs makes all earlier ones durable.
    fn flush(&self) -> Result<()> {
        self.begin(Durability::Sync)?.commit().map_err(error)
    }

    /// redb does nothing in the background.
    fn wait_idle(&self) -> Result<()> {
        Ok(())
    }

    fn compact(&self) -> Result<()> {
        let mut database = self.database.write().expect("no writer panicked");
        database.compact().map(drop).map_err(error)
    }

    fn metrics(&self) -> Result<KvMetrics> {
        let disk_bytes = fs::metadata(&self.file).map_err(error)?.len();
        Ok(KvMetrics { disk_bytes, ..KvMetrics::default() })
    }
}

fn error(error: impl std::fmt::Display) -> Error {
    super::foreign(NAME, error)
}
