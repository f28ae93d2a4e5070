//! What it costs to open a store whose manifest has many edits.

use std::sync::Arc;

use allocation_counter::measure;
use runstone::storage::{MemoryStorage, Storage};
use runstone::{Background, KeyspaceOptions, Options, Store};

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

/// Once, each edit that touched such a level worked out anew what follows from all of its tables.
#[test]
fn an_edit_of_a_manifest_costs_the_same_with_any_number_of_tables() {
    let (few, many) = (opened(100), opened(1_200));
    println!("{few} bytes an edit with few tables, {many} with many");
    assert!(many < 2 * few, "{many} bytes an edit with many tables, {few} with few");
}
