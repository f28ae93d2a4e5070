//! LMDB: a copy-on-write B+ tree in a file mapping. It has no cache, filter or compression of its
//! own; pages of the mapping count as resident memory. One writer at a time, no group commit.
//!
//! A buffered write commits with `MDB_NOSYNC`, a synced one without it. The flag belongs to the
//! environment, so writers take a lock around both.
//!
//! Obligations of the unsafe calls:
//!
//! * O1 No other handle maps the directory: every run has a directory of its own.
//! * O2 One thread at a time sets flags: only [`Lmdb::transact`] does, under its lock.

use std::fs;
use std::ops::Bound;
use std::path::Path;
use std::sync::Mutex;

use heed::types::Bytes;
use heed::{Database, Env, EnvFlags, EnvOpenOptions, FlagSetMode, RwTxn, WithoutTls};
use runstone::{Durability, Value};
use runstone_kv::{Direction, KvMetrics, KvStore, KvWrite, Visit};
use runstone_kv::{Error, Result};

use crate::plan::Setup;

const NAME: &str = "LMDB";
/// The size of the mapping, far more than any run needs. It is address space, not disk space.
const MAP_BYTES: usize = 1 << 38;

pub fn open(path: &Path, _: &Setup) -> Result<Box<dyn KvStore>> {
    fs::create_dir_all(path).map_err(|e| super::foreign(NAME, e))?;
    let mut options = EnvOpenOptions::new().read_txn_without_tls();
    options.map_size(MAP_BYTES).max_readers(256);
    // SAFETY: O1.
    let env = unsafe { options.open(path) }.map_err(error)?;
    let mut transaction = env.write_txn().map_err(error)?;
    let database = env.create_database(&mut transaction, None).map_err(error)?;
    transaction.commit().map_err(error)?;
    Ok(Box::new(Lmdb { env, database, syncs: Mutex::new(true) }))
}

struct Lmdb {
    env: Env<WithoutTls>,
    database: Database<Bytes, Bytes>,
    /// Whether commits of the environment now sync.
    syncs: Mutex<bool>,
}

impl Lmdb {
    fn transact(
        &self,
        durability: Durability,
        change: impl FnOnce(&mut RwTxn<'_>) -> heed::Result<()>,
    ) -> Result<()> {
        let mut syncs = self.syncs.lock().expect("no writer panicked");
        let wanted = durability == Durability::Sync;
        if *syncs != wanted {
            let mode = if wanted { FlagSetMode::Disable } else { FlagSetMode::Enable };
            // SAFETY: O2, by the lock above.
            unsafe { self.env.set_flags(EnvFlags::NO_SYNC, mode) }.map_err(error)?;
            *syncs = wanted;
        }
        let mut transaction = self.env.write_txn().map_err(error)?;
        change(&mut transaction).map_err(error)?;
        transaction.commit().map_err(error)
    }
}

impl KvStore for Lmdb {
    fn name(&self) -> String {
        NAME.into()
    }

    fn write(&self, writes: &[KvWrite<'_>], durability: Durability) -> Result<()> {
        self.transact(durability, |transaction| {
            for write in writes {
                match *write {
                    KvWrite::Put { key, value } => self.database.put(transaction, key, value)?,
                    KvWrite::Delete { key } => {
                        self.database.delete(transaction, key)?;
                    }
                }
            }
            Ok(())
        })
    }

    /// Puts the entries in one transaction, whatever their order.
    fn load(&self, entries: &mut dyn Iterator<Item = (Vec<u8>, Vec<u8>)>) -> Result<u64> {
        let mut count = 0;
        self.transact(Durability::Sync, |transaction| {
            for (key, value) in entries {
                self.database.put(transaction, &key, &value)?;
                count += 1;
            }
            Ok(())
        })?;
        Ok(count)
    }

    fn get(&self, key: &[u8]) -> Result<Option<Value>> {
        let transaction = self.env.read_txn().map_err(error)?;
        let value = self.database.get(&transaction, key).map_err(error)?;
        Ok(value.map(Value::owned))
    }

    /// LMDB accepts no empty keys, not even as a bound.
    fn scan(&self, from: Option<&[u8]>, direction: Direction, visit: &mut Visit<'_>) -> Result<()> {
        let transaction = self.env.read_txn().map_err(error)?;
        let bound = match (from, direction) {
            (None, _) | (Some([]), Direction::Forward) => Bound::Unbounded,
            (Some([]), Direction::Reverse) => return Ok(()),
            (Some(key), _) => Bound::Included(key),
        };
        match direction {
            Direction::Forward => {
                let range = (bound, Bound::Unbounded);
                walk(self.database.range(&transaction, &range).map_err(error)?, visit)
            }
            Direction::Reverse => {
                let range = (Bound::Unbounded, bound);
                walk(self.database.rev_range(&transaction, &range).map_err(error)?, visit)
            }
        }
    }

    fn flush(&self) -> Result<()> {
        let _syncs = self.syncs.lock().expect("no writer panicked");
        self.env.force_sync().map_err(error)
    }

    /// LMDB does nothing in the background.
    fn wait_idle(&self) -> Result<()> {
        Ok(())
    }

    /// LMDB returns no page to the file system; free pages are used again.
    fn compact(&self) -> Result<()> {
        Ok(())
    }

    fn metrics(&self) -> Result<KvMetrics> {
        let disk_bytes = self.env.real_disk_size().map_err(error)?;
        Ok(KvMetrics { disk_bytes, ..KvMetrics::default() })
    }
}

fn walk<'t>(
    entries: impl Iterator<Item = heed::Result<(&'t [u8], &'t [u8])>>,
    visit: &mut Visit<'_>,
) -> Result<()> {
    for entry in entries {
        let (key, value) = entry.map_err(error)?;
        if !visit(key, value) {
            break;
        }
    }
    Ok(())
}

fn error(error: heed::Error) -> Error {
    super::foreign(NAME, error)
}
