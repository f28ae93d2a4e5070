//! The tests of stores that openraft provides.

use std::sync::Arc;

use openraft::StorageError;
use openraft::testing::{StoreBuilder, Suite};
use runstone::storage::MemoryStorage;
use runstone::{Options, Store};
use runstone_openraft::{LogStore, Settings, StateMachine};
use tempfile::TempDir;

use crate::node::{Registers, Types};

type Built<G> = (G, LogStore<Types>, StateMachine<Types, Registers>);

struct InMemory;

impl StoreBuilder<Types, LogStore<Types>, StateMachine<Types, Registers>, ()> for InMemory {
    async fn build(&self) -> Result<Built<()>, StorageError<u64>> {
        let options = Options::default().memory_budget_bytes(8 << 20);
        let store = Store::open_on(Arc::new(MemoryStorage::new()), options).expect("opens");
        let opened = runstone_openraft::open(store, Registers, Settings::default());
        let (log, machine) = opened.expect("opens");
        Ok(((), log, machine))
    }
}

struct OnDisk;

impl StoreBuilder<Types, LogStore<Types>, StateMachine<Types, Registers>, TempDir> for OnDisk {
    async fn build(&self) -> Result<Built<TempDir>, StorageError<u64>> {
        let directory = TempDir::new().expect("a directory");
        let options = Options::default().memory_budget_bytes(8 << 20);
        let store = Store::open(directory.path().join("store"), options).expect("opens");
        let settings =
            Settings { snapshots: Some(directory.path().join("snapshots")), ..Settings::default() };
        let opened = runstone_openraft::open(store, Registers, settings);
        let (log, machine) = opened.expect("opens");
        Ok((directory, log, machine))
    }
}

#[test]
fn the_suite_of_openraft_passes_in_memory() {
    Suite::test_all(InMemory).expect("passes");
}

#[test]
fn the_suite_of_openraft_passes_on_a_disk() {
    Suite::test_all(OnDisk).expect("passes");
}
