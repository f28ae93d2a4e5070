//! When deletes are compacted with the data that they delete. Until then, scans pass both.

use std::sync::Arc;

use runstone::storage::MemoryStorage;
use runstone::unstable;
use runstone::{Background, Keyspace, KeyspaceOptions, Options, Store};

const KEYS: u64 = 125_000;

fn open(policy: &str) -> Store {
    let mut keyspace = KeyspaceOptions::default();
    keyspace.policy = policy.to_owned();
    keyspace.write_buffer_bytes = 128 << 10;
    let shape = unstable::numbers_mut(&mut keyspace);
    shape.base_bytes = 1 << 20;
    shape.table_bytes = 128 << 10;
    shape.size_ratio = 5;
    shape.l0_trigger = 4;
    let options = Options::default().background(Background::Manual).keyspace(keyspace);
    Store::open_on(Arc::new(MemoryStorage::new()), options).expect("opens")
}

/// The number of tombstones in tables in which they are at least a quarter of the entries.
fn crowded(keyspace: &Keyspace) -> u64 {
    let shape = unstable::shape(keyspace);
    let crowded = shape.tables().filter(|(_, table)| table.tombstones * 4 >= table.entries);
    crowded.map(|(_, table)| table.tombstones).sum()
}

/// A tenth of the keys are deleted in key order, and a third of the others are overwritten. Tables
/// of tombstones are compacted before their turn.
#[test]
fn tables_of_tombstones_sink_before_their_turn() {
    for policy in ["fragmented-leveling", "garnering"] {
        let store = open(policy);
        let keyspace = store.default_keyspace();
        let mut state = 7u64;
        let mut random = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 11) % KEYS
        };
        let work = || while store.run_one_job().expect("works") {};
        let put = |key: u64| {
            keyspace.put(key.to_be_bytes(), [7; 100]).expect("puts");
            work();
        };
        (0..2 * KEYS).for_each(|_| put(random()));
        let gone = KEYS / 3..KEYS / 3 + KEYS / 10;
        for key in gone.clone() {
            keyspace.delete(key.to_be_bytes()).expect("deletes");
            work();
        }
        let before = crowded(keyspace);
        assert!(before > KEYS / 50, "{policy}: {before} tombstones");
        for _ in 0..6 {
            (0..KEYS / 20).map(|_| random()).filter(|key| !gone.contains(key)).for_each(put);
        }
        assert_eq!(crowded(keyspace), 0, "{policy}: of {before}");
    }
}
