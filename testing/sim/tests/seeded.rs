//! Bugs that the store must not have, seeded to show that the tests would find them: syncs that are
//! left out, checksums that are not looked at. Those of separated values are in `hazards.rs`, those
//! of compacts in `policies.rs`; docs/faults.md lists all.

use std::sync::Arc;

use runstone::seeded::{self, Bug};
use runstone::storage::{Category, MemoryStorage, Storage};
use runstone::{Background, Compression, KeyspaceOptions, Options, Store};
use runstone_sim::crash::{Crash, count_operations, crash_at};
use runstone_sim::found::panics;
use runstone_sim::workload::{generate, options};

const SEEDS: std::ops::Range<u64> = 21..25;
const OPERATIONS: usize = 200;

/// Whether a crash at some I/O operation breaks a promise.
fn crash_finds(bug: Bug) -> bool {
    SEEDS.into_iter().any(|seed| {
        let (options, operations) = (options(seed, Background::Manual), generate(seed, OPERATIONS));
        let (count, _) = seeded::with(bug, || count_operations(&options, &operations));
        (0..count).any(|at| {
            let crashes = [Crash::Power(at), Crash::Power(at * 31 + 7)];
            panics(|| drop(seeded::with(bug, || crash_at(&options, &operations, at, &crashes))))
        })
    })
}

#[test]
fn an_acknowledgement_before_the_sync_is_found() {
    assert!(crash_finds(Bug::AcknowledgedBeforeSync));
}

#[test]
fn a_name_that_is_not_synced_is_found() {
    assert!(crash_finds(Bug::DirectoryNotSynced));
}

#[test]
fn a_table_that_is_not_synced_is_found() {
    assert!(crash_finds(Bug::TableNotSynced));
}

#[test]
fn an_edit_that_is_not_synced_is_found() {
    assert!(crash_finds(Bug::EditNotSynced));
}

/// Bytes of a table changed one at a time: reads tell, or show what is right.
#[test]
fn a_block_that_is_not_checked_is_found() {
    let check = || {
        let storage = MemoryStorage::new();
        let keyspace =
            KeyspaceOptions { compression: vec![Compression::None], ..KeyspaceOptions::default() };
        let options = Options {
            background: Background::Manual,
            keyspace: Some(keyspace),
            ..Options::default()
        };
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
