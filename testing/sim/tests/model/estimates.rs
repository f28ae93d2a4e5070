//! Estimates of ranges are near what a scan counts.

use std::sync::Arc;

use runstone::storage::MemoryStorage;
use runstone::{
    Background, Keyspace, KeyspaceOptions, Options, Store, ValueOptions, ValuePlacement,
};

const KEYS: u64 = 20_000;

fn key(number: u64) -> String {
    format!("key{number:06}")
}

/// A store of small tables, with keys in no order, and values of 50 to 149 bytes.
fn loaded(keyspace: KeyspaceOptions) -> Store {
    let options =
        Options { background: Background::Manual, keyspace: Some(keyspace), ..Options::default() };
    let store = Store::open_on(Arc::new(MemoryStorage::new()), options).expect("opens");
    for number in 0..KEYS {
        let number = number * 7919 % KEYS;
        store.put(key(number), vec![number as u8; value_len(number)]).expect("puts");
        store.run_one_job().expect("a job");
    }
    store
}

fn value_len(number: u64) -> usize {
    50 + (number % 100) as usize
}

fn is_near(found: u64, truth: f64) -> bool {
    (found as f64 - truth).abs() <= truth / 10.0
}

/// Counts and sizes of ranges are within a tenth of the range's share in `all_bytes`.
fn check(keyspace: &Keyspace, all_bytes: f64, what: &str) {
    for (from, to) in [(0, KEYS), (0, 10_000), (5_000, 15_000), (18_000, 20_000), (4_000, 7_000)] {
        let count = keyspace.approximate_count(key(from)..key(to)).expect("estimates");
        let size = keyspace.approximate_size(key(from)..key(to)).expect("estimates");
        let keys = (to - from) as f64;
        assert!(is_near(count, keys), "{what} {from}..{to}: {count}");
        let bytes = all_bytes * keys / KEYS as f64;
        assert!(is_near(size, bytes), "{what} {from}..{to}: {size} for {bytes}");
    }
}

fn small(policy: &str) -> KeyspaceOptions {
    let mut keyspace = KeyspaceOptions { policy: policy.into(), ..Default::default() };
    keyspace.write_buffer_bytes = 256 << 10;
    keyspace.shape.table_bytes = 64 << 10;
    keyspace.shape.base_bytes = 256 << 10;
    keyspace
}

#[test]
fn estimates_are_near_the_truth() {
    for policy in ["fragmented-leveling", "tiering", "adaptive-tiering"] {
        let store = loaded(small(policy));
        let keyspace = store.default_keyspace();
        let all = keyspace.estimate::<&str>(..).expect("estimates");
        check(keyspace, all.bytes as f64, policy);
        assert_eq!(keyspace.estimate("x".."y").expect("estimates"), Default::default());
        assert!(keyspace.estimate("y".."x").is_err());
    }
}

/// Estimates left out what lies apart: a keyspace of large values seemed to hold little but keys.
#[test]
fn values_apart_are_reckoned() {
    let values = ValueOptions {
        placement: ValuePlacement::HashGrouped,
        separate_at: 32,
        ..ValueOptions::default()
    };
    let store = loaded(KeyspaceOptions { values, ..small("leveling") });
    store.flush().expect("flushes");
    let keyspace = store.default_keyspace();
    let files = keyspace.value_usage();
    let apart: u64 = files.iter().flat_map(|file| &file.groups).map(|group| group.bytes).sum();
    let tables: u64 = keyspace.shape().tables().map(|(_, table)| table.bytes).sum();
    let user: u64 = (0..KEYS).map(|number| value_len(number) as u64).sum();
    assert!(apart > user, "{apart} bytes hold {user}");
    check(keyspace, (tables + apart) as f64, "values apart");
}

/// An estimate walked over all that memtables held. Now the tree tells, whether its keys came in
/// order, which leaves full nodes behind, or not, which leaves them half full.
#[test]
fn memtables_are_not_walked() {
    for ascending in [false, true] {
        let keyspace = KeyspaceOptions { write_buffer_bytes: 64 << 20, ..Default::default() };
        let options = Options {
            background: Background::Manual,
            keyspace: Some(keyspace),
            ..Options::default()
        };
        let store = Store::open_on(Arc::new(MemoryStorage::new()), options).expect("opens");
        let numbers = (0..KEYS).map(|i| if ascending { i } else { i * 7919 % KEYS });
        for number in numbers {
            store.put(key(number), vec![0; value_len(number)]).expect("puts");
        }
        let keyspace = store.default_keyspace();
        assert_eq!(keyspace.shape().tables().count(), 0);
        let user: u64 = (0..KEYS).map(|number| 9 + value_len(number) as u64).sum();
        check(keyspace, user as f64, if ascending { "in order" } else { "in no order" });
        let few = keyspace.approximate_count(key(70)..key(90)).expect("estimates");
        assert_eq!(few, 20, "small ranges are counted");
    }
}
