//! Estimates of ranges are close to the counts of a scan.

use std::sync::Arc;
use std::time::Duration;

use runstone::policy::Policy;
use runstone::storage::MemoryStorage;
use runstone::unstable;
use runstone::{
    Background, Clock, Keyspace, KeyspaceOptions, Options, Store, ValueOptions, ValuePlacement,
};
use runstone_sim::clock::TestClock;

const KEYS: u64 = 20_000;

fn key(number: u64) -> String {
    format!("key{number:06}")
}

/// A store of small tables, with keys in no order, and values of 50 to 149 bytes.
fn loaded(keyspace: KeyspaceOptions) -> Store {
    let options = Options::default().background(Background::Manual).keyspace(keyspace);
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
    let mut keyspace = KeyspaceOptions::default().policy(Policy::named(policy));
    keyspace.write_buffer_bytes = 256 << 10;
    let shape = unstable::numbers_mut(&mut keyspace);
    shape.table_bytes = 64 << 10;
    shape.base_bytes = 256 << 10;
    keyspace
}

#[test]
fn estimates_are_near_the_truth() {
    for policy in ["fragmented-leveling", "tiering", "adaptive-tiering"] {
        let store = loaded(small(policy));
        let keyspace = store.default_keyspace();
        let all = keyspace.estimate(..).expect("estimates");
        check(keyspace, all.bytes as f64, policy);
        assert_eq!(keyspace.estimate("x".."y").expect("estimates"), Default::default());
        assert!(keyspace.estimate("y".."x").is_err());
    }
}

/// Once, estimates left out separated values: a keyspace of large values seemed to contain little
/// but keys.
#[test]
fn values_apart_are_reckoned() {
    let values = ValueOptions::default().placement(ValuePlacement::HashGrouped).separate_at(32);
    let store = loaded(small("leveling").values(values));
    store.flush().expect("flushes");
    let keyspace = store.default_keyspace();
    let files = keyspace.value_usage();
    let apart: u64 = files.iter().flat_map(|file| &file.groups).map(|group| group.bytes).sum();
    let tables: u64 = unstable::shape(keyspace).tables().map(|(_, table)| table.bytes).sum();
    let user: u64 = (0..KEYS).map(|number| value_len(number) as u64).sum();
    assert!(apart > user, "{apart} bytes hold {user}");
    check(keyspace, (tables + apart) as f64, "values apart");
}

/// Once, an estimate walked over all entries of the memtables. Now the tree gives the estimate,
/// whether keys were put in order, which leaves full nodes, or not, which leaves half-full nodes.
#[test]
fn memtables_are_not_walked() {
    for ascending in [false, true] {
        let keyspace = KeyspaceOptions::default().write_buffer_bytes(64 << 20);
        let options = Options::default().background(Background::Manual).keyspace(keyspace);
        let store = Store::open_on(Arc::new(MemoryStorage::new()), options).expect("opens");
        let numbers = (0..KEYS).map(|i| if ascending { i } else { i * 7919 % KEYS });
        for number in numbers {
            store.put(key(number), vec![0; value_len(number)]).expect("puts");
        }
        let keyspace = store.default_keyspace();
        assert_eq!(unstable::shape(keyspace).tables().count(), 0);
        let user: u64 = (0..KEYS).map(|number| 9 + value_len(number) as u64).sum();
        check(keyspace, user as f64, if ascending { "in order" } else { "in no order" });
        let few = keyspace.approximate_count(key(70)..key(90)).expect("estimates");
        assert_eq!(few, 20, "small ranges are counted");
    }
}

/// Where the entries are when they are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Memtable,
    /// Puts are in tables, and the entries that hide them are in the memtable.
    Both,
    /// Puts are in some tables, and the entries that hide them are in others.
    Tables,
    /// All entries are in one run.
    Compacted,
}

/// Fills a store, hides some of its entries, and compares the estimates of ranges with the counts
/// of a scan.
fn check_counts(what: &str, fill: impl Fn(&Keyspace), hide: impl Fn(&Keyspace, &TestClock)) {
    for place in [Place::Memtable, Place::Both, Place::Tables, Place::Compacted] {
        let clock = TestClock::at(0);
        let mut keyspace = KeyspaceOptions::default().write_buffer_bytes(64 << 20);
        unstable::numbers_mut(&mut keyspace).table_bytes = 256 << 10;
        let options = Options::default()
            .background(Background::Manual)
            .clock(Arc::clone(&clock) as Arc<dyn Clock>)
            .keyspace(keyspace);
        let store = Store::open_on(Arc::new(MemoryStorage::new()), options).expect("opens");
        let keyspace = store.default_keyspace();
        fill(keyspace);
        if place != Place::Memtable {
            store.flush().expect("flushes");
        }
        hide(keyspace, &clock);
        match place {
            Place::Tables => store.flush().expect("flushes"),
            Place::Compacted => store.compact().expect("compacts"),
            Place::Memtable | Place::Both => {}
        }
        for (from, to) in [(0, KEYS), (0, 10_000), (5_000, 15_000), (16_000, 20_000)] {
            let range = || key(from)..key(to);
            let truth = keyspace.range(range()).expect("scans").count() as u64;
            let count = keyspace.approximate_count(range()).expect("estimates");
            let is_near = truth <= 2 * count && count <= 2 * truth;
            assert!(is_near, "{what}, {place:?}, {from}..{to}: {count} for {truth}");
        }
        let truth = keyspace.iter().expect("scans").count() as u64;
        let count = keyspace.approximate_count(..).expect("estimates");
        assert!(truth <= 2 * count && count <= 2 * truth, "{what}, {place:?}: {count} for {truth}");
    }
}

fn put_all(keyspace: &Keyspace) {
    (0..KEYS).for_each(|number| {
        let number = number * 7919 % KEYS;
        keyspace.put(key(number), [7; 50]).expect("puts");
    });
}

/// Once, deletes and the entries that they hide were counted: for 50,000 keys the estimate was
/// 250,000.
#[test]
fn deletes_are_not_counted() {
    let delete = |keyspace: &Keyspace, is_gone: &dyn Fn(u64) -> bool| {
        let gone = (0..KEYS).filter(|number| is_gone(*number));
        gone.for_each(|number| keyspace.delete(key(number)).expect("deletes"));
    };
    check_counts("scattered", put_all, |keyspace, _| delete(keyspace, &|n| n % 5 > 0));
    check_counts("most", put_all, |keyspace, _| delete(keyspace, &|n| n % 50 > 0));
    check_counts("together", put_all, |keyspace, _| delete(keyspace, &|n| n % 5_000 < 4_000));
    let few = |keyspace: &Keyspace| {
        (0..KEYS).step_by(4).for_each(|number| keyspace.put(key(number), [7; 50]).expect("puts"));
    };
    check_counts("what was not there", few, |keyspace, _| delete(keyspace, &|n| n % 4 > 0));
}

#[test]
fn what_range_deletes_hide_is_not_counted() {
    check_counts("many ranges", put_all, |keyspace, _| {
        for from in (0..KEYS).step_by(100) {
            keyspace.delete_range(key(from)..key(from + 80)).expect("deletes");
        }
    });
    check_counts("wide ranges", put_all, |keyspace, _| {
        for from in (0..KEYS).step_by(5_000) {
            keyspace.delete_range(key(from)..key(from + 4_000)).expect("deletes");
        }
    });
}

#[test]
fn what_has_expired_is_not_counted() {
    let put = |keyspace: &Keyspace, ttl: &dyn Fn(u64) -> u64| {
        for number in (0..KEYS).map(|number| number * 7919 % KEYS) {
            let ttl = Duration::from_secs(ttl(number));
            keyspace.put_with_ttl(key(number), [7; 50], ttl).expect("puts");
        }
    };
    let late = |_: &Keyspace, clock: &TestClock| clock.set(4_000_000);
    let long = 1 << 30;
    let scattered = |n: u64| if n.is_multiple_of(20) { long } else { 1 + n % 3_600 };
    check_counts("scattered", |keyspace| put(keyspace, &scattered), late);
    let together = |n: u64| if n % 5_000 < 4_000 { 1 + n % 3_600 } else { long };
    check_counts("together", |keyspace| put(keyspace, &together), late);
    check_counts("evenly", |keyspace| put(keyspace, &|n| 1 + n * 7919 % 5_000), late);
}
