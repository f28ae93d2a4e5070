//! Blocks in the slabs of the cache: each keeps its own bytes.

use std::sync::Arc;

use runstone::seeded::Bug;
use runstone::storage::MemoryStorage;
use runstone::{Background, KeyspaceOptions, Options, Store};
use runstone_sim::found::holds_and_finds;

const BUDGET_BYTES: u64 = 8 << 20;
/// More than the budget, in values of 1,000 bytes.
const KEYS: u64 = 10_000;

fn open() -> Store {
    let toml = "compression = [\"none\"]\nwrite_buffer_bytes = 1048576";
    let keyspace = KeyspaceOptions::from_toml(toml).expect("options");
    let options = Options::default()
        .background(Background::Manual)
        .memory_budget_bytes(BUDGET_BYTES)
        .keyspace(keyspace);
    let store = Store::open_on(Arc::new(MemoryStorage::new()), options).expect("opens");
    (0..KEYS).for_each(|n| store.put(n.to_be_bytes(), value(n)).expect("puts"));
    store.flush().expect("flushes");
    while store.run_one_job().expect("runs") {}
    store
}

fn value(number: u64) -> Vec<u8> {
    number.to_be_bytes().repeat(125)
}

#[test]
fn a_block_in_memory_keeps_its_bytes() {
    holds_and_finds(Bug::SlotsOverlap, || {
        let store = open();
        for round in 0..3 {
            for number in (0..KEYS).step_by(5) {
                let found = store.get(number.to_be_bytes()).expect("reads");
                assert_eq!(found.as_deref(), Some(&value(number)[..]), "round {round}");
            }
        }
    });
}
