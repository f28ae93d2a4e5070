//! Loads beside writers, readers, checkpoints and changes of options, on threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};

use runstone::policy::registry::POLICIES;
use runstone::storage::MemoryStorage;
use runstone::{Background, Batch, Keyspace, KeyspaceOptions, Options, Store, WriteOptions};

const KEYS: u64 = 400;

fn key(number: u64) -> Vec<u8> {
    format!("key{number:06}").into_bytes()
}

fn open(policy: &str, threads: usize) -> Store {
    let mut keyspace = KeyspaceOptions {
        policy: policy.to_string(),
        write_buffer_bytes: 64 << 10,
        ..KeyspaceOptions::default()
    };
    keyspace.shape.base_bytes = 32 << 10;
    keyspace.shape.table_bytes = 8 << 10;
    let options = Options {
        background: Background::Threads(threads),
        keyspace: Some(keyspace),
        ..Options::default()
    };
    Store::open_on(Arc::new(MemoryStorage::new()), options).expect("opens")
}

/// Number in a value such as `w12`, and who wrote it.
fn parse(value: &[u8]) -> (u8, u64) {
    let text = std::str::from_utf8(&value[1..]).expect("digits");
    (value[0], text.parse().expect("digits"))
}

/// Two values that only loads write are always those of one load, at any snapshot.
fn check_whole(store: &Store, keyspace: &Keyspace, last: &mut u64) {
    let snapshot = store.snapshot();
    let load = |key: &str| {
        let value = keyspace.get_at(key, &snapshot).expect("reads");
        value.map_or(0, |value| parse(&value).1)
    };
    let (low, high) = (load("a"), load("z"));
    assert_eq!(low, high, "a part of a load is visible");
    assert!(low >= *last, "load {last} went away");
    *last = low;
}

fn check(policy: &str, threads: usize) {
    let store = open(policy, threads);
    let keyspace = store.default_keyspace();
    let other = store.open_keyspace("other", None).expect("makes");
    let written: Vec<AtomicU64> = (0..KEYS).map(|_| AtomicU64::new(0)).collect();
    let done = AtomicBool::new(false);
    let mut before_last = Vec::new();
    std::thread::scope(|scope| {
        for writer in 0..2u64 {
            let (written, done, other) = (&written, &done, &other);
            scope.spawn(move || {
                let mut round = 0u64;
                while !done.load(Relaxed) {
                    round += 1;
                    for number in (writer..KEYS).step_by(2) {
                        let value = format!("w{round}");
                        keyspace.put(key(number), &value).expect("puts");
                        other.put(key(number), &value).expect("puts");
                        written[number as usize].store(round, Release);
                    }
                }
            });
        }
        let (reader_store, reader_done) = (&store, &done);
        scope.spawn(move || {
            let mut last = 0;
            while !reader_done.load(Relaxed) {
                check_whole(reader_store, keyspace, &mut last);
            }
        });
        for load in 1..=12u64 {
            before_last = written.iter().map(|round| round.load(Acquire)).collect();
            let value = format!("l{load}");
            let keys = (0..KEYS).map(key);
            let all = std::iter::once(b"a".to_vec()).chain(keys).chain([b"z".to_vec()]);
            let loaded = keyspace.bulk_load(all.map(|key| (key, &value))).expect("loads");
            assert_eq!(loaded, KEYS + 2);
            assert_eq!(keyspace.get("a").expect("reads").as_deref(), Some(value.as_bytes()));
            if load % 4 == 0 {
                let options =
                    KeyspaceOptions { hash_index: load % 8 == 0, ..(*keyspace.options()).clone() };
                store.open_keyspace(runstone::DEFAULT_KEYSPACE, Some(options)).expect("changes");
            }
        }
        done.store(true, Relaxed);
    });
    for is_compacted in [false, true] {
        for (number, before) in (0..KEYS).zip(&before_last) {
            let value = keyspace.get(key(number)).expect("reads").expect("is there");
            let (by, round) = parse(&value);
            let place = format!("{policy}: key {number} is {} {round}", by as char);
            assert!(by == b'w' && round > *before || (by, round) == (b'l', 12), "{place}");
            let last = written[number as usize].load(Acquire);
            assert!(by == b'l' || round == last, "{place}, not the last of {last}");
        }
        if !is_compacted {
            store.compact().expect("compacts");
        }
    }
}

/// Somebody flushes and somebody commits large batches while loads end: both put newer memtables
/// behind the load's back, whose writes become visible only after it.
#[test]
fn flushes_and_large_batches() {
    let store = open("leveling", 2);
    let keyspace = store.default_keyspace();
    let done = AtomicBool::new(false);
    let work = |kind: u8| match kind {
        0 => keyspace.put("small", "value").expect("puts"),
        1 => store.flush().expect("flushes"),
        _ => {
            let mut batch = Batch::new();
            batch.put(keyspace, "large", vec![1; 9 << 20]).expect("adds");
            store.write(&batch, WriteOptions::default()).expect("writes");
        }
    };
    std::thread::scope(|scope| {
        let (work, done) = (&work, &done);
        for kind in 0..3 {
            scope.spawn(move || {
                while !done.load(Relaxed) {
                    work(kind);
                }
            });
        }
        for load in 0..40u64 {
            let entries = (0..50).map(|number| (key(number), load.to_be_bytes()));
            assert_eq!(keyspace.bulk_load(entries).expect("loads"), 50);
            let found = keyspace.get(key(7)).expect("reads");
            assert_eq!(found.as_deref(), Some(&load.to_be_bytes()[..]));
        }
        done.store(true, Relaxed);
    });
    assert!(store.verify().expect("verifies").is_clean());
}

#[test]
fn writers_of_the_same_keys_under_every_policy() {
    for (at, policy) in POLICIES.iter().enumerate() {
        check(policy.name(), 1 + at % 2);
    }
}
