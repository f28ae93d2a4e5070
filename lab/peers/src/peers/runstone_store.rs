//! Runstone itself. One budget covers memtables, log, cache, index and filters, while the peers
//! keep index, filters and further memtables beside the cache.

use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use runstone::policy::Policy;
use runstone::unstable;
use runstone::{
    Background, Batch, Compression, Expiry, Keyspace, KeyspaceOptions, MergeOperator, Options,
    Store, TransactionOptions, WriteOptions,
};
use runstone_kv::KvStore;
use runstone_kv::Result;

use super::PutInto;
use crate::counters::{self, Counters, Way};
use crate::extras::{Appending, Expiring};
use crate::plan::{SEPARATE_AT_BYTES, Setup};

pub fn open(path: &Path, setup: &Setup) -> Result<Box<dyn KvStore>> {
    let mut keyspace = match &setup.runstone_toml {
        Some(text) => KeyspaceOptions::from_toml(text)?,
        None => KeyspaceOptions::default().write_buffer_bytes(setup.memtable_bytes),
    };
    if let Some(policy) = &setup.runstone_policy {
        keyspace.policy.clone_from(policy);
    }
    open_with(path, setup, keyspace)
}

/// The store and its keyspaces.
pub fn open_keyspaces(path: &Path, setup: &Setup) -> Result<PutInto> {
    let keyspace = KeyspaceOptions::default().write_buffer_bytes(setup.memtable_bytes);
    let options = Options::default()
        .memory_budget_bytes(setup.budget_bytes())
        .background(Background::Threads(setup.background_threads));
    let store = Store::open(path, options)?;
    let open = |n| store.open_keyspace(&format!("keyspace{n}"), Some(keyspace.clone()));
    let keyspaces = (0..setup.keyspaces).map(open).collect::<runstone::Result<Vec<_>>>()?;
    Ok(Box::new(move |at, key, value| {
        let _ = &store;
        Ok(keyspaces[at].put(key, value)?)
    }))
}

/// Opens a store with universal compaction and triggers out of reach, so that a load leaves its
/// runs.
pub fn open_universal(path: &Path, setup: &Setup) -> Result<Box<dyn KvStore>> {
    let mut keyspace = KeyspaceOptions::default().policy(Policy::named("universal"));
    keyspace.write_buffer_bytes = setup.memtable_bytes;
    let many = setup.runs.max(1) as u32 * 4;
    keyspace.l0_slowdown_runs = many * 2;
    keyspace.l0_stop_runs = many * 4;
    let shape = unstable::numbers_mut(&mut keyspace);
    shape.l0_trigger = many;
    shape.universal_trigger = many;
    open_with(path, setup, keyspace)
}

/// Opens a store with values in hash groups, by the preset.
pub fn open_hashkv(path: &Path, setup: &Setup) -> Result<Box<dyn KvStore>> {
    let mut keyspace = KeyspaceOptions::preset("hashkv")?;
    keyspace.write_buffer_bytes = setup.memtable_bytes;
    keyspace.values.separate_at = SEPARATE_AT_BYTES;
    open_with(path, setup, keyspace)
}

/// Opens a store with LevelDB's sizes and seek compactions, without filters and compression.
pub fn open_pointers(path: &Path, setup: &Setup) -> Result<Box<dyn KvStore>> {
    const WRITE_BUFFER_BYTES: u64 = 4 << 20;
    const CACHE_BYTES: u64 = 8 << 20;
    let policy =
        Policy::fragmented_leveling().l0_trigger(4).base_bytes(10 << 20).table_bytes(2 << 20);
    let keyspace = KeyspaceOptions::default()
        .policy(policy)
        .write_buffer_bytes(WRITE_BUFFER_BYTES)
        .filter_bits_per_key(0.0)
        .compression(vec![Compression::None]);
    let setup =
        Setup { cache_bytes: CACHE_BYTES, memtable_bytes: 2 * WRITE_BUFFER_BYTES, ..setup.clone() };
    open_with(path, &setup, keyspace)
}

/// Counts with the operator `add-u64`, and with both kinds of transactions.
pub fn open_counters(path: &Path, setup: &Setup, way: Way) -> Result<Option<Box<dyn Counters>>> {
    let mut keyspace = KeyspaceOptions::default().write_buffer_bytes(setup.memtable_bytes);
    if way == Way::Merge {
        keyspace.merge_operator = "add-u64".into();
    }
    let transactions = match way {
        Way::Pessimistic => TransactionOptions::pessimistic(),
        _ => TransactionOptions::default(),
    };
    let store = open_store(path, setup, keyspace)?;
    let keyspace = store.default_keyspace().clone();
    Ok(Some(Box::new(Counting { store, keyspace, way, transactions })))
}

struct Counting {
    store: Store,
    keyspace: Keyspace,
    way: Way,
    transactions: TransactionOptions,
}

impl Counters for Counting {
    fn add(&self, key: &[u8], by: u64) -> Result<()> {
        if self.way == Way::Merge {
            return Ok(self.keyspace.merge(key, by.to_le_bytes())?);
        }
        let mut transaction = self.store.begin(self.transactions)?;
        let old = match self.way {
            Way::Pessimistic => transaction.get_for_update(&self.keyspace, key)?,
            _ => transaction.get(&self.keyspace, key)?,
        };
        let new = counters::number(old.as_deref())? + by;
        transaction.put(&self.keyspace, key, new.to_le_bytes())?;
        Ok(transaction.commit(WriteOptions::default())?)
    }

    fn get(&self, key: &[u8]) -> Result<u64> {
        counters::number(self.keyspace.get(key)?.as_deref())
    }
}

/// Appends operands to each other. Two of them without a base are not joined.
#[derive(Debug)]
struct Append;

impl MergeOperator for Append {
    fn name(&self) -> &str {
        "append-apart"
    }

    fn full_merge(
        &self,
        _: &[u8],
        base: Option<&[u8]>,
        operands: &[&[u8]],
    ) -> std::result::Result<Vec<u8>, String> {
        let all: Vec<&[u8]> = base.into_iter().chain(operands.iter().copied()).collect();
        Ok(all.concat())
    }
}

pub fn open_appending(path: &Path, setup: &Setup) -> Result<Box<dyn Appending>> {
    let keyspace = KeyspaceOptions::default()
        .write_buffer_bytes(setup.memtable_bytes)
        .merge_operator(Append.name());
    let options = store_options(setup, keyspace).merge_operators(vec![Arc::new(Append)]);
    Ok(Box::new(Store::open(path, options)?))
}

impl Appending for Store {
    fn store(&self) -> &dyn KvStore {
        self
    }

    fn append(&self, key: &[u8], operand: &[u8]) -> Result<()> {
        Ok(self.default_keyspace().merge(key, operand)?)
    }
}

/// Uses its own expiry.
pub fn open_expiring(path: &Path, setup: &Setup) -> Result<Box<dyn Expiring>> {
    let keyspace = KeyspaceOptions::default().write_buffer_bytes(setup.memtable_bytes);
    Ok(Box::new(open_store(path, setup, keyspace)?))
}

impl Expiring for Store {
    fn store(&self) -> &dyn KvStore {
        self
    }

    fn put_until(&self, key: &[u8], value: &[u8], end: SystemTime) -> Result<()> {
        let mut batch = Batch::new();
        batch.put_with_expiry(self.default_keyspace(), key, value, Expiry::At(end))?;
        Ok(self.write(&batch, WriteOptions::default())?)
    }
}

fn open_with(path: &Path, setup: &Setup, keyspace: KeyspaceOptions) -> Result<Box<dyn KvStore>> {
    Ok(Box::new(open_store(path, setup, keyspace)?))
}

fn open_store(path: &Path, setup: &Setup, keyspace: KeyspaceOptions) -> Result<Store> {
    Ok(Store::open(path, store_options(setup, keyspace))?)
}

fn store_options(setup: &Setup, keyspace: KeyspaceOptions) -> Options {
    Options::default()
        .memory_budget_bytes(setup.budget_bytes())
        .background(Background::Threads(setup.background_threads))
        .keyspace(keyspace)
}
