//! Loads compared with a map, under every policy and placement of values; and what loads refuse.

use runstone::storage::MemoryStorage;
use runstone::unstable;
use runstone::{Background, Error, KeyspaceOptions, Options, ReadOptions, Store};
use runstone_policy::registry::POLICIES;
use runstone_sim::oracle::{Oracle, assert_same};
use runstone_sim::workload::{Run, options, options_for, read_all, separated, without_operands};

use crate::{Step, apply, open, steps};

fn check(options: &Options, seed: u64, count: usize) -> u64 {
    let storage = MemoryStorage::new();
    let mut run = Run::new(open(&storage, options).expect("fresh"), Oracle::default());
    let policy = options.keyspace.as_ref().map_or("", |keyspace| &keyspace.policy).to_string();
    let has_operator =
        options.keyspace.as_ref().is_some_and(|keyspace| !keyspace.merge_operator.is_empty());
    let mut loads = 0;
    for (i, step) in steps(seed, count, 12).into_iter().enumerate() {
        let step = match step {
            Step::Usual(operation) if !has_operator => {
                let left = without_operands(vec![operation]);
                let Some(operation) = left.into_iter().next() else { continue };
                Step::Usual(operation)
            }
            step => step,
        };
        let outcome = apply(&mut run, &step, &storage, options);
        outcome.unwrap_or_else(|error| panic!("{policy}, seed {seed}, step {i}: {error}"));
        let store = run.store.as_ref().expect("open");
        if matches!(step, Step::Load { .. }) {
            let what = format!("{policy}, seed {seed}, after load {i}");
            assert_same(&read_all(store, None).expect("reads"), run.oracle.state(), &what);
            loads += 1;
        }
    }
    let store = run.store.take().expect("open");
    store.compact().expect("compacts");
    store.wait_idle().expect("idle");
    let what = format!("{policy}, seed {seed}, in the end");
    assert_same(&read_all(&store, None).expect("reads"), run.oracle.state(), &what);
    let report = store.verify().expect("verify");
    assert!(report.is_clean(), "{what}: {:?}", report.damage);
    store.close().expect("close");
    let store = open(&storage, options).expect("reopens");
    assert_same(&read_all(&store, None).expect("reads"), run.oracle.state(), &what);
    loads
}

#[test]
fn every_policy_stepped() {
    for policy in POLICIES {
        let loads: u64 = (0..12)
            .map(|seed| check(&options_for(policy.name(), seed, Background::Manual), seed, 300))
            .sum();
        assert!(loads > 50, "{}: {loads}", policy.name());
    }
}

#[test]
fn any_policy_on_threads() {
    for seed in 100..140 {
        check(&options(seed, Background::Threads(1 + seed as usize % 2)), seed, 300);
    }
}

#[test]
fn every_placement_of_values() {
    for seed in 200..215 {
        for options in separated(&options(seed, Background::Manual)) {
            check(&options, seed, 300);
        }
    }
}

fn fresh() -> (MemoryStorage, Store) {
    let storage = MemoryStorage::new();
    let mut keyspace = KeyspaceOptions::default();
    unstable::numbers_mut(&mut keyspace).table_bytes = 1 << 20;
    let keyspace = Some(keyspace);
    let options = Options::default().background(Background::Manual).keyspace(keyspace);
    let store = open(&storage, &options).expect("fresh");
    (storage, store)
}

fn tables(store: &Store) -> usize {
    unstable::shape(store.default_keyspace()).tables().count()
}

#[test]
fn keys_that_do_not_ascend_are_named_and_nothing_is_stored() {
    let (storage, store) = fresh();
    let keyspace = store.default_keyspace();
    keyspace.put("kept", "1").expect("puts");
    let files = |storage: &MemoryStorage| {
        let names = runstone::storage::Storage::list(storage).expect("lists");
        names.iter().filter(|file| file.name.ends_with(".table")).count()
    };
    let told = |entries: &[(&str, &str)]| {
        let error = keyspace.bulk_load(entries.iter().copied()).expect_err("refused");
        assert!(matches!(error, Error::InvalidArgument { .. }));
        error.to_string()
    };
    let unsorted = told(&[("a", "1"), ("c", "2"), ("b", "3")]);
    assert_eq!(unsorted, "key \"b\", entry 3, comes out of order: behind \"c\"");
    let twice = told(&[("a", "1"), ("a", "2")]);
    assert_eq!(twice, "key \"a\", entry 2, comes twice: behind \"a\"");
    told(&[("a", "1"), (&"b".repeat(1 << 16), "2")]);
    let own = [Ok(("a", "1")), Err(Error::Closed)];
    assert!(matches!(keyspace.try_bulk_load(own), Err(Error::Closed)), "the source's own error");
    assert_eq!(keyspace.bulk_load::<&str, &str>([]).expect("nothing is no error"), 0);
    assert_eq!(files(&storage), 0, "nothing is left behind");
    assert_eq!(keyspace.iter().expect("opens").count(), 1);
    keyspace.put("and", "2").expect("the store goes on");
}

#[test]
fn snapshots_and_cursors_from_before_see_nothing() {
    let (_, store) = fresh();
    let keyspace = store.default_keyspace();
    keyspace.put("b", "old").expect("puts");
    let snapshot = store.snapshot();
    let mut cursor = keyspace.cursor(ReadOptions::default()).expect("opens");
    let entries = [("a", "new"), ("b", "new"), ("c", "new")];
    let during = std::cell::RefCell::new(None);
    let watched = entries.into_iter().inspect(|_| {
        // The load has begun, and has no sequence number yet.
        during.borrow_mut().get_or_insert_with(|| store.snapshot());
    });
    assert_eq!(keyspace.bulk_load(watched).expect("loads"), 3);
    for snapshot in [&snapshot, during.borrow().as_ref().expect("taken")] {
        let seen = read_all(&store, Some(snapshot)).expect("reads");
        assert_eq!(seen.into_values().collect::<Vec<_>>(), [b"old"]);
    }
    cursor.seek(b"").expect("seeks");
    assert_eq!((cursor.key(), cursor.value()), (&b"b"[..], &b"old"[..]));
    let new = store.snapshot();
    store.put("b", "newest").expect("puts");
    assert_eq!(keyspace.get_at("b", &new).expect("reads").as_deref(), Some(&b"new"[..]));
    store.compact().expect("compacts");
    assert_eq!(keyspace.get_at("b", &snapshot).expect("reads").as_deref(), Some(&b"old"[..]));
    assert_eq!(keyspace.get_at("b", &new).expect("reads").as_deref(), Some(&b"new"[..]));
    assert_eq!(keyspace.get("b").expect("reads").as_deref(), Some(&b"newest"[..]));
}

/// A load is cut as the policy cuts tables, is placed below level 0, and writes only its own bytes.
#[test]
fn a_load_into_an_empty_range_is_written_once() {
    let (_, store) = fresh();
    let keyspace = store.default_keyspace();
    for range in [0..200_000u32, 300_000..400_000] {
        // Bytes that do not compress.
        let word = |n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29).to_be_bytes();
        let value = |n: u32| (0..13).flat_map(|i| word(u64::from(n) * 13 + i)).collect::<Vec<u8>>();
        let entries = range.map(|n| (n.to_be_bytes(), value(n)));
        keyspace.bulk_load(entries).expect("loads");
        assert!(unstable::shape(keyspace).level(0).is_empty(), "nothing lies above it");
    }
    assert!(tables(&store) > 10, "{} tables", tables(&store));
    store.wait_idle().expect("idle");
    assert_eq!(store.metrics().counters.compaction_bytes_written, 0);
    assert_eq!(store.metrics().counters.flush_bytes_written, 0);
}

#[test]
fn a_closed_a_read_only_and_a_dropped_one_refuse() {
    let (storage, store) = fresh();
    let dropped = store.open_keyspace("dropped", None).expect("makes");
    store.drop_keyspace("dropped").expect("drops");
    assert!(matches!(dropped.bulk_load([("a", "1")]), Err(Error::UnknownKeyspace { .. })));
    let keyspace = store.default_keyspace().clone();
    store.close().expect("closes");
    assert!(matches!(keyspace.bulk_load([("a", "1")]), Err(Error::Closed)));
    let options = Options::default().read_only(true);
    let storage: std::sync::Arc<dyn runstone::storage::Storage> = std::sync::Arc::new(storage);
    let store = Store::open_on(storage, options).expect("opens");
    assert!(matches!(store.default_keyspace().bulk_load([("a", "1")]), Err(Error::ReadOnly)));
}

/// The drop of a keyspace waits for its load, which notices the drop at its next entry.
#[test]
fn a_drop_beside_a_load_ends_it() {
    let (storage, store) = fresh();
    let keyspace = store.open_keyspace("going", None).expect("makes");
    std::thread::scope(|scope| {
        let (begun, wait) = std::sync::mpsc::channel();
        let load = scope.spawn(move || {
            let entries = (0u64..).inspect(|_| _ = begun.send(())).map(|n| (n.to_be_bytes(), "v"));
            keyspace.bulk_load(entries)
        });
        wait.recv().expect("it began");
        store.drop_keyspace("going").expect("drops");
        let outcome = load.join().expect("no panic");
        assert!(matches!(outcome, Err(Error::UnknownKeyspace { .. })), "{outcome:?}");
    });
    let names = runstone::storage::Storage::list(&storage).expect("lists");
    assert!(!names.iter().any(|file| file.name.ends_with(".table")), "its tables are gone");
}
