//! Batches that do not fit a log segment, with concurrent writers and readers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use runstone::storage::{MemoryStorage, Storage};
use runstone::{
    Background, Batch, KeyspaceOptions, Options, Store, TransactionMode, TransactionOptions,
    WalMode, WriteOptions,
};
use runstone_fault_storage::SimStorage;

fn open(storage: Arc<dyn Storage>, background: Background) -> Store {
    let mut keyspace = KeyspaceOptions::default();
    keyspace.write_buffer_bytes = 1 << 20;
    let options = Options::default()
        .wal_segment_bytes(256 << 10)
        .wal_mode(WalMode::Write)
        .background(background)
        .keyspace(keyspace);
    Store::open_on(storage, options).expect("opens")
}

/// Thousands of versions of a few keys, including deletes, over two keyspaces.
fn batch(store: &Store, round: u32) -> Batch {
    let (one, other) = (store.default_keyspace(), store.keyspace("other").expect("exists"));
    let mut batch = Batch::new();
    for version in 0..4_000u32 {
        let key = format!("key{}", version % 7);
        let value = format!("{round}.{version}.{}", "x".repeat(100));
        batch.put(one, &key, &value).expect("fits");
        batch.delete(one, format!("gone{}", version % 7)).expect("fits");
        batch.put(&other, &key, &value).expect("fits");
    }
    batch
}

fn check(store: &Store, round: u32) {
    let (one, other) = (store.default_keyspace(), store.keyspace("other").expect("exists"));
    for keyspace in [one, &other] {
        for last in 3_993..4_000u32 {
            let found = keyspace.get(format!("key{}", last % 7)).expect("reads").expect("is there");
            assert!(found.starts_with(format!("{round}.{last}.").as_bytes()), "{round}, {last}");
        }
        assert_eq!(keyspace.iter().expect("scans").count(), 7);
    }
}

/// Writes `rounds` batches. Then the process is killed, or the power is cut.
fn write_and_crash(rounds: u32, loses_power: bool) {
    let storage = SimStorage::new(7);
    let store = open(Arc::new(storage.clone()), Background::Manual);
    store.open_keyspace("other", None).expect("opens");
    for round in 0..rounds {
        (0..7).for_each(|key| store.put(format!("gone{key}"), "there").expect("puts"));
        let before = store.snapshot();
        store.write(&batch(&store, round), WriteOptions::default()).expect("writes");
        check(&store, round);
        let gone = store.default_keyspace().get_at("gone3", &before).expect("reads");
        assert_eq!(gone.as_deref(), Some(&b"there"[..]));
        // Later writes are newer.
        store.put("key3", "newer").expect("puts");
        assert_eq!(store.get("key3").expect("reads").as_deref(), Some(&b"newer"[..]));
        store.put("key3", format!("{round}.3993.")).expect("puts");
        if round == 1 {
            store.flush().expect("flushes");
            check(&store, round);
        }
    }
    store.sync().expect("syncs");
    let left = match loses_power {
        true => storage.power_cut(rounds.into()).0,
        false => storage.process_crash(),
    };
    check(&open(Arc::new(left), Background::Manual), rounds - 1);
}

#[test]
fn a_large_batch_shows_its_last_versions_and_survives() {
    for rounds in 1..4 {
        write_and_crash(rounds, false);
        write_and_crash(rounds, true);
    }
}

/// Readers see all of a batch or nothing of it, whatever they read while the batch gets its
/// sequence numbers.
#[test]
fn readers_beside_large_batches_see_whole_ones() {
    let store = Arc::new(open(Arc::new(MemoryStorage::new()), Background::Threads(2)));
    store.open_keyspace("other", None).expect("opens");
    store.write(&batch(&store, 0), WriteOptions::default()).expect("writes");
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 1..30 {
                store.write(&batch(&store, round), WriteOptions::default()).expect("writes");
            }
            done.store(true, Relaxed);
        });
        scope.spawn(|| {
            for number in 0u32.. {
                store.put(format!("small{number}"), number.to_be_bytes()).expect("puts");
                let found = store.get(format!("small{number}")).expect("reads");
                assert_eq!(found.as_deref(), Some(&number.to_be_bytes()[..]));
                if done.load(Relaxed) {
                    break;
                }
            }
        });
        let round_of = |value: &[u8]| -> u32 {
            let text = String::from_utf8_lossy(value);
            text.split('.').next().expect("has one").parse().expect("a number")
        };
        let mut last = 0;
        while !done.load(Relaxed) {
            let snapshot = store.snapshot();
            let other = store.keyspace("other").expect("exists");
            let seen = [store.default_keyspace(), &other].map(|keyspace| {
                let read = |key: u32| keyspace.get_at(format!("key{key}"), &snapshot);
                [0, 3, 6].map(|key| round_of(&read(key).expect("reads").expect("is there")))
            });
            let rounds = seen.as_flattened();
            assert!(rounds.iter().all(|round| *round == rounds[0]), "{seen:?}");
            assert!(rounds[0] >= last, "{} after {last}", rounds[0]);
            last = rounds[0];
            let scanned = other.prefix(b"key").expect("scans").count();
            assert_eq!(scanned, 7);
        }
    });
}

/// Once, a flush wrote a large batch to tables, but the batch's segment stayed until the next
/// write. The segment kept its space on disk, and the next open replayed it.
#[test]
fn a_flushed_large_batch_leaves_no_segment() {
    let storage = MemoryStorage::new();
    let store = open(Arc::new(storage.clone()), Background::Manual);
    store.put("large", vec![7; 8 << 20]).expect("puts");
    store.flush().expect("flushes");
    let files = storage.list().expect("lists");
    let log = files.iter().filter(|file| file.name.ends_with(".wal"));
    let bytes: u64 = log.map(|file| file.len_bytes).sum();
    assert!(bytes < 1 << 20, "{bytes} bytes of log for nothing");
}

/// Once, a large batch noticed that the store was closed only when its segment could not be
/// created. The released lock returned the error, and the store reported a failure to its listener.
#[test]
fn a_large_batch_after_the_close_is_told_so() {
    let store = open(Arc::new(MemoryStorage::new()), Background::Manual);
    let keyspace = store.default_keyspace().clone();
    store.close().expect("closes");
    let refused = keyspace.put("large", vec![7; 8 << 20]).expect_err("it is closed");
    assert!(matches!(refused, runstone::Error::Closed), "{refused:?}");
}

/// Once, a large commit that deletes a range took the lock of the ranges after the lock of large
/// batches, although the lock order requires the reverse.
#[test]
fn a_large_transaction_deletes_a_range_beside_a_pessimistic_one() {
    let store = open(Arc::new(MemoryStorage::new()), Background::Manual);
    let keyspace = store.default_keyspace().clone();
    let mode = TransactionOptions::default().mode(TransactionMode::Pessimistic);
    let mut locking = store.begin(mode).expect("begins");
    locking.put(&keyspace, "z", "1").expect("locks");
    let mut large = store.begin(TransactionOptions::default()).expect("begins");
    large.delete_range(&keyspace, "a".."b").expect("deletes");
    large.put(&keyspace, "large", vec![7; 8 << 20]).expect("puts");
    large.commit(WriteOptions::default()).expect("commits");
    locking.commit(WriteOptions::default()).expect("commits");
    assert_eq!(keyspace.get("large").expect("reads").map(|value| value.len()), Some(8 << 20));
}
