//! Runstone itself. One budget covers memtables, log, cache, index and filters, where the peers
//! keep index, filters and further memtables beside the cache.

use std::path::Path;

use runstone::kv::KvStore;
use runstone::{Background, KeyspaceOptions, Options, Result, Store};

use crate::plan::Setup;

/// Makes or opens a store.
pub fn open(path: &Path, setup: &Setup) -> Result<Box<dyn KvStore>> {
    let mut keyspace = match &setup.runstone_toml {
        Some(text) => KeyspaceOptions::from_toml(text)?,
        None => KeyspaceOptions {
            write_buffer_bytes: setup.memtable_bytes,
            ..KeyspaceOptions::default()
        },
    };
    if let Some(policy) = &setup.runstone_policy {
        keyspace.policy.clone_from(policy);
    }
    let options = Options {
        memory_budget_bytes: setup.budget_bytes(),
        background: Background::Threads(setup.background_threads),
        keyspace: Some(keyspace),
        ..Options::default()
    };
    Ok(Box::new(Store::open(path, options)?))
}
