//! Scans cause compactions inside a level whose tables overlap, as gets do.

use std::sync::Arc;

use runstone::policy::Policy;
use runstone::storage::MemoryStorage;
use runstone::unstable;
use runstone::{Background, KeyspaceOptions, Options, ReadOptions, Store};
use runstone_policy::shape::Level;

const KEYS: u32 = 8_000;

/// Four runs of level 0 without common keys become two sets of overlapping tables in level 1.
fn overlapping_store() -> Store {
    let mut keyspace = KeyspaceOptions::default().policy(Policy::named("adaptive-tiering"));
    let shape = unstable::numbers_mut(&mut keyspace);
    (shape.l0_trigger, shape.access_limit) = (2, 4);
    let options = Options::default().background(Background::Manual).seed(3).keyspace(keyspace);
    let store = Store::open_on(Arc::new(MemoryStorage::new()), options).expect("opens");
    for round in 0..4 {
        let keys = (round..KEYS).step_by(4);
        keys.for_each(|key| store.put(key.to_be_bytes(), [7; 100]).expect("puts"));
        store.flush().expect("flushes");
        store.wait_idle().expect("compacts");
    }
    store
}

/// The largest number of tables of level 1 that overlap at one key.
fn depth(store: &Store) -> u32 {
    match unstable::shape(store.default_keyspace()).level(1) {
        Level::Overlapping(tables) => tables.stats().depth,
        Level::Runs(runs) => panic!("{} runs", runs.len()),
    }
}

/// Once, only gets counted as accesses. So a store that was only scanned kept all overlaps
/// (workload E of YCSB). A cursor samples about one entry per MiB.
#[test]
fn scans_compact_what_overlaps() {
    let store = overlapping_store();
    assert_eq!(depth(&store), 2);
    let mut scans = 0;
    while depth(&store) > 1 {
        let mut cursor = store.default_keyspace().cursor(ReadOptions::default()).expect("opens");
        cursor.seek([0; 4]).expect("seeks");
        let mut entries = 0;
        while cursor.valid() {
            entries += 1;
            cursor.next().expect("steps");
        }
        assert_eq!(entries, KEYS);
        drop(cursor);
        store.wait_idle().expect("compacts");
        scans += 1;
        assert!(scans < 100, "80 MiB asked for nothing");
    }
    assert!(scans > 2, "four samples take more than {scans} scans of 0.8 MiB");
}
