//! What a full disk costs with many keyspaces.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use allocation_counter::measure;
use runstone::storage::{Category, Counters, Error, FileInfo, LockMode, MemoryStorage, Operation};
use runstone::storage::{Result, Storage, StorageFile, StorageLock};
use runstone::{Background, Batch, KeyspaceOptions, Options, Store, WriteOptions};
use runstone_fault_storage::forward;

/// A storage without room for another table, if it is full. Unlike a simulated disk it allocates
/// nothing for a sync.
#[derive(Debug)]
struct Full {
    inner: MemoryStorage,
    is_full: AtomicBool,
}

impl Storage for Full {
    fn create(&self, name: &str, category: Category) -> Result<Arc<dyn StorageFile>> {
        if category == Category::Table && self.is_full.load(SeqCst) {
            let source = ErrorKind::StorageFull.into();
            return Err(Error::new(Operation::Create, name.to_string(), source));
        }
        self.inner.create(name, category)
    }
    forward! {
        Result:
        open create_mapped open_mapped rename remove list sync_dir lock create_sibling link_into
        counters location
    }
}

/// The bytes that jobs allocate per keyspace, when they drop the only table of each of `count`
/// keyspaces.
fn freed(count: u64) -> u64 {
    let disk = Arc::new(Full { inner: MemoryStorage::new(), is_full: AtomicBool::new(false) });
    let options = Options::default()
        .background(Background::Manual)
        .memory_budget_bytes(256 << 20)
        .keyspace(KeyspaceOptions::default());
    let store = Store::open_on(Arc::clone(&disk) as Arc<dyn Storage>, options).expect("opens");
    let make = |number| store.open_keyspace(&format!("keyspace{number}"), None).expect("made");
    let keyspaces: Vec<_> = (0..count).map(make).collect();
    keyspaces.iter().for_each(|one| one.put("key", "value").expect("puts"));
    store.flush().expect("flushes");
    disk.is_full.store(true, SeqCst);
    store.put("key", "value").expect("the log has room");
    store.flush().expect_err("the disk is full");
    let mut batch = Batch::new();
    keyspaces.iter().for_each(|one| batch.delete_range(one, "a".."z").expect("a delete"));
    store.write(&batch, WriteOptions::default()).expect("deletes are taken");
    let tables = |keyspace| runstone::unstable::shape(keyspace).tables().count();
    let measured = measure(|| {
        // One job drops the tables of a keyspace, and one removes their files.
        (0..2 * count).for_each(|_| drop(store.run_one_job()));
    });
    assert_eq!(keyspaces.iter().map(tables).sum::<usize>(), 0, "some table stays");
    measured.bytes_total / count
}

/// Once, each search for the next keyspace copied the ids of all keyspaces, under the lock of the
/// jobs.
#[test]
fn tables_are_freed_on_a_full_disk_one_keyspace_after_the_other() {
    let (few, many) = (freed(100), freed(10_000));
    println!("{few} bytes a keyspace with few of them, {many} with many");
    assert!(many < 2 * few, "{many} bytes a keyspace with many of them, {few} with few");
}
