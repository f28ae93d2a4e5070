//! Loads while other threads write, read, make checkpoints and change options.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use runstone::policy::Policy;
use runstone::seeded::{self, Waypoint};
use runstone::storage::MemoryStorage;
use runstone::unstable;
use runstone::{
    Background, Batch, Keyspace, KeyspaceOptions, Options, Store, ValuePlacement, WalMode,
    WriteOptions,
};
use runstone_policy::registry::POLICIES;
use runstone_sim::random::{Random, for_seeds};

const KEYS: u64 = 400;

fn key(number: u64) -> Vec<u8> {
    format!("key{number:06}").into_bytes()
}

pub(super) fn options(policy: &str, placement: ValuePlacement, background: Background) -> Options {
    let mut keyspace =
        KeyspaceOptions::default().policy(Policy::named(policy)).write_buffer_bytes(64 << 10);
    let shape = unstable::numbers_mut(&mut keyspace);
    shape.base_bytes = 32 << 10;
    shape.table_bytes = 8 << 10;
    keyspace.values.placement = placement;
    keyspace.values.separate_at = 1;
    (keyspace.values.groups, keyspace.values.slot_bytes) = (2, 4096);
    Options::default().background(background).keyspace(keyspace)
}

pub(super) fn open(storage: &MemoryStorage, options: &Options) -> Store {
    Store::open_on(Arc::new(storage.clone()), options.clone()).expect("opens")
}

/// Opens the copy of a checkpoint.
fn open_copy(storage: &MemoryStorage, options: &Options, place: &str) -> Store {
    let copy = storage.open_sibling(Path::new(place)).expect("is there");
    Store::open_on(Arc::new(copy), options.clone()).expect("opens")
}

/// The writer and the number in a value such as `w12`.
fn parse(value: &[u8]) -> (u8, u64) {
    let text = std::str::from_utf8(&value[1..]).expect("digits");
    (value[0], text.parse().expect("digits"))
}

/// Checks that two values that only loads write come from one load, at any snapshot.
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

/// Checks that copies of the store contain only whole loads, including each load that had ended
/// before the copy. They contain everything that was written before their newest write of the other
/// keyspace.
fn check_copies(store: &Store, storage: &MemoryStorage, options: &Options, loaded: &AtomicU64) {
    for turn in 0..6 {
        let (place, mut least) = (format!("/copy-{turn}"), loaded.load(Acquire));
        store.checkpoint(&place).expect("copies");
        let copy = open_copy(storage, options, &place);
        let keyspace = copy.default_keyspace();
        check_whole(&copy, keyspace, &mut least);
        let other = copy.keyspace("other").expect("is there");
        for item in other.iter().expect("opens") {
            let (key, behind) = item.expect("reads");
            let (by, round) = parse(&keyspace.get(&key).expect("reads").expect("came before"));
            let least = parse(&behind).1;
            assert!(by == b'l' || round >= least, "{place}: {round} of {least} rounds");
        }
    }
}

fn check(options: &Options) {
    let storage = MemoryStorage::new();
    let store = open(&storage, options);
    let policy = &options.keyspace.as_ref().expect("given").policy;
    let loaded = AtomicU64::new(0);
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
        let copies = scope.spawn(|| check_copies(&store, &storage, options, &loaded));
        for load in 1..=12u64 {
            before_last = written.iter().map(|round| round.load(Acquire)).collect();
            let value = format!("l{load}");
            let keys = (0..KEYS).map(key);
            let all = std::iter::once(b"a".to_vec()).chain(keys).chain([b"z".to_vec()]);
            let count = keyspace.bulk_load(all.map(|key| (key, &value))).expect("loads");
            assert_eq!(count, KEYS + 2);
            loaded.store(load, Release);
            assert_eq!(keyspace.get("a").expect("reads").as_deref(), Some(value.as_bytes()));
            if load % 4 == 0 {
                let options = (*keyspace.options()).clone().hash_index(load % 8 == 0);
                store.open_keyspace(runstone::DEFAULT_KEYSPACE, Some(options)).expect("changes");
            }
        }
        let copied = copies.join();
        done.store(true, Relaxed);
        copied.expect("copies hold what they must");
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

/// One thread flushes and another commits large batches while loads end. Both add newer memtables,
/// whose writes become visible only after the load, without the load noticing.
#[test]
fn flushes_and_large_batches() {
    let options = options("leveling", ValuePlacement::Inline, Background::Threads(2));
    let store = open(&MemoryStorage::new(), &options);
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
    let placements = [ValuePlacement::Inline, ValuePlacement::HashGrouped, ValuePlacement::Vlog];
    for (at, policy) in POLICIES.iter().enumerate() {
        let background = Background::Threads(1 + at % 2);
        check(&options(policy.name(), placements[at % 3], background));
    }
}

/// A load ends while a checkpoint waits for flushes, or before its files are copied. The load
/// follows a write that the copy lacks.
#[test]
fn a_checkpoint_has_no_load_without_what_came_before() {
    load_inside_a_checkpoint(WalMode::Mapped, Waypoint::CutTaken);
    // Without a log, the checkpoint flushes.
    load_inside_a_checkpoint(WalMode::Off, Waypoint::MemtablesReplaced);
}

fn load_inside_a_checkpoint(wal_mode: WalMode, at: Waypoint) {
    let options = options("leveling", ValuePlacement::Inline, Background::Manual);
    let options = options.wal_mode(wal_mode);
    let storage = MemoryStorage::new();
    let store = open(&storage, &options);
    let keyspace = store.default_keyspace().clone();
    let other = store.open_keyspace("other", None).expect("makes");
    let (begun, begin) = mpsc::channel();
    seeded::step_in(at, move || {
        other.put("before", "1").expect("puts");
        let loading = thread::spawn(move || keyspace.bulk_load([("loaded", "1")]).expect("loads"));
        // Gives the load time to end, or to reach the point where it waits for the checkpoint.
        thread::sleep(Duration::from_millis(50));
        begun.send(loading).expect("the test waits");
    });
    store.checkpoint("/copy").expect("copies");
    assert_eq!(begin.recv().expect("it stepped in").join().expect("loads"), 1);
    let copy = open_copy(&storage, &options, "/copy");
    let has_load = copy.get("loaded").expect("reads").is_some();
    let other = copy.keyspace("other").expect("is there");
    assert!(!has_load || other.contains_key("before").expect("reads"), "a hole");
    assert!(store.get("loaded").expect("reads").is_some());
}

/// Two threads load into one keyspace, and a write follows each load of the first thread. A reader
/// that sees the write sees the load too, with `multi_get`, a cursor or gets, while the other load
/// is under way. `features.rs` has the same case stepped by hand.
#[test]
fn readers_beside_two_loads_see_what_lies_behind_them() {
    beside_two_loads(options("leveling", ValuePlacement::Inline, Background::Threads(1)), 400, 0);
}

/// The same under a policy and a placement that the seed chooses, with larger loads.
#[test]
fn readers_beside_any_two_loads_see_what_lies_behind_them() {
    for_seeds(4, |seed| {
        let mut random = Random::new(seed);
        let policy = POLICIES[random.below(POLICIES.len() as u64) as usize].name();
        let placements =
            [ValuePlacement::Inline, ValuePlacement::HashGrouped, ValuePlacement::Vlog];
        let placement = placements[random.below(3) as usize];
        let background = Background::Threads(1 + random.below(2) as usize);
        beside_two_loads(options(policy, placement, background), 100, random.below(60));
    });
}

/// `more` is the number of entries of each load in addition to those that are checked.
fn beside_two_loads(options: Options, loads: u64, more: u64) {
    let store = open(&MemoryStorage::new(), &options);
    let keyspace = store.default_keyspace();
    let number = |n: u64| n.to_be_bytes();
    keyspace.bulk_load([("x", number(0)), ("y", number(0))]).expect("loads");
    let ends = AtomicBool::new(false);
    let seen = |value: Option<&[u8]>| {
        u64::from_be_bytes(value.expect("is there").try_into().expect("a number"))
    };
    thread::scope(|scope| {
        scope.spawn(|| {
            for n in 1..=loads {
                let others = (0..more).map(|i| (key(i), number(n)));
                let all = others.chain([(b"x".to_vec(), number(n))]);
                keyspace.bulk_load(all).expect("loads");
                keyspace.put("y", number(n)).expect("puts");
            }
            ends.store(true, SeqCst);
        });
        scope.spawn(|| {
            while !ends.load(SeqCst) {
                keyspace.bulk_load([("z", "beside")]).expect("loads");
            }
        });
        for reader in 0..2 {
            let (ends, seen) = (&ends, &seen);
            scope.spawn(move || {
                while !ends.load(SeqCst) {
                    let (x, y) = if reader == 0 {
                        let found = keyspace.multi_get(&["x", "y"]).expect("reads");
                        (seen(found[0].as_deref()), seen(found[1].as_deref()))
                    } else {
                        let mut cursor = keyspace.cursor(Default::default()).expect("opens");
                        cursor.seek("x").expect("seeks");
                        let x = seen(Some(cursor.value()));
                        cursor.next().expect("steps");
                        (x, seen(Some(cursor.value())))
                    };
                    assert!(
                        x >= y,
                        "reader {reader}: y {y} lies behind the load of x, seen as {x}"
                    );
                }
            });
        }
    });
    store.close().expect("closes");
}
