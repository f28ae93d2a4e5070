//! What it costs to open a store with many edits in its manifest, or many keyspaces in its log.

use std::sync::Arc;

use allocation_counter::measure;
use runstone::storage::{MemoryStorage, Storage};
use runstone::{Background, Keyspace, KeyspaceOptions, Options, Resources, Store};

/// The bytes that an open allocates for each edit that brought a table to a level in which tables
/// may overlap.
fn opened(count: u64) -> u64 {
    let disk: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let open = || {
        let options = KeyspaceOptions::from_toml("policy = \"guards\"").expect("options");
        let options = Options::default().background(Background::Manual).keyspace(options);
        Store::open_on(Arc::clone(&disk), options).expect("opens")
    };
    let store = open();
    for number in 0..count {
        let entry = (format!("key{number:08}"), "value");
        store.default_keyspace().bulk_load([entry]).expect("loads");
    }
    let shape = runstone::unstable::shape(store.default_keyspace());
    assert_eq!(shape.level(1).table_count() as u64, count, "the loads are in level 1");
    drop(store);
    let mut store = None;
    let allocated = measure(|| store = Some(open()));
    assert_eq!(
        store.expect("opens").default_keyspace().iter().expect("reads").count() as u64,
        count
    );
    allocated.bytes_total / count
}

/// Once, each edit of a level whose tables may overlap computed again what follows from all tables
/// of the level.
#[test]
fn an_edit_of_a_manifest_costs_the_same_with_any_number_of_tables() {
    let (few, many) = (opened(100), opened(1_200));
    println!("{few} bytes an edit with few tables, {many} with many");
    assert!(many < 2 * few, "{many} bytes an edit with many tables, {few} with few");
}

/// The number of writes in the log, and of the keyspaces that they go to in turn.
const WRITES: u64 = 20_000;
const KEYSPACES: usize = 100;

/// The bytes that an open allocates for each write in the log, while another store holds this many
/// values of 64 KiB in the memory that both share.
fn opened_beside(values: usize) -> u64 {
    let disk: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let options = || Options::default().background(Background::Manual).flush_at_close(false);
    let make = |store: &Store, count: usize| -> Vec<Keyspace> {
        let one = |number: usize| store.open_keyspace(&number.to_string(), None).expect("made");
        (0..count).map(one).collect()
    };
    let store = Store::open_on(Arc::clone(&disk), options()).expect("opens");
    let keyspaces = make(&store, KEYSPACES);
    for (number, keyspace) in (0..WRITES).zip(keyspaces.iter().cycle()) {
        keyspace.put(number.to_be_bytes(), "value").expect("puts");
    }
    drop((keyspaces, store));
    let resources = Resources::builder().memory_budget(256 << 20).threads(1);
    let resources = resources.build().expect("resources");
    let other = resources.open_on(Arc::new(MemoryStorage::new()), options()).expect("opens");
    // No memtable is full.
    let others = make(&other, 16);
    for (number, keyspace) in (0..values).zip(others.iter().cycle()) {
        keyspace.put(number.to_be_bytes(), [7; 64 << 10]).expect("puts");
    }
    assert!(other.metrics().memory.memtable_bytes >= (values as u64) << 16, "all are in memory");
    let mut store = None;
    let opened =
        measure(|| store = Some(resources.open_on(Arc::clone(&disk), options()).expect("opens")));
    drop((store, others, other));
    opened.bytes_total / WRITES
}

/// Once, each write of the log made a list of the keyspaces of earlier writes, while another store
/// had filled the memory.
#[test]
fn a_write_of_the_log_costs_the_same_beside_a_store_that_fills_the_memory() {
    let (alone, beside) = (opened_beside(1), opened_beside(2_300));
    println!("{alone} bytes a write of the log beside an idle store, {beside} beside a full one");
    assert!(beside < alone + alone / 2, "{beside} bytes a write beside a full store, {alone} else");
}
