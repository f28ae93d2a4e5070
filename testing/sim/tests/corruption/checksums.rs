//! Shows that changing bytes finds a seeded bug that skips checksums.

use std::sync::Arc;

use runstone::seeded::{self, Bug};
use runstone::storage::{Category, MemoryStorage, Storage};
use runstone::{Background, Compression, KeyspaceOptions, Options, Store};
use runstone_sim::found::panics;

/// Changes the bytes of a table one at a time. Reads report an error or return the right data.
#[test]
fn a_block_that_is_not_checked_is_found() {
    let check = || {
        let storage = MemoryStorage::new();
        let keyspace = KeyspaceOptions::default().compression(vec![Compression::None]);
        let options = Options::default().background(Background::Manual).keyspace(keyspace);
        let open = || Store::open_on(Arc::new(storage.clone()), options.clone()).expect("opens");
        let store = open();
        for k in 0..50u64 {
            store.put(k.to_be_bytes(), [7; 20]).expect("puts");
        }
        store.close().expect("closes");
        let is_table = |name: &String| name.ends_with(".table");
        let mut names = storage.list().expect("memory").into_iter().map(|file| file.name);
        let name = names.find(is_table).expect("a table");
        let file = storage.open(&name, Category::Table).expect("is there");
        let len = file.len().expect("memory");
        for at in 0..len {
            let mut byte = [0];
            file.read_at(at, &mut byte).expect("inside");
            file.write_at(at, &[byte[0] ^ 4]).expect("memory");
            if let Ok(store) = Store::open_on(Arc::new(storage.clone()), options.clone()) {
                for k in 0..50u64 {
                    if let Ok(got) = store.get(k.to_be_bytes()) {
                        assert!(got.as_deref() == Some(&[7; 20]), "byte {at} of {len}, key {k}");
                    }
                }
            }
            file.write_at(at, &byte).expect("memory");
        }
    };
    check();
    assert!(panics(|| seeded::with(Bug::BlocksUnchecked, check)));
}
