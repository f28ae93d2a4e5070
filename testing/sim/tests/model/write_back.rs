//! Values that gets make from many operands and write back: when gets do that, what may interfere,
//! and what must not be written.

use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use runstone::seeded::{self, Bug, Waypoint};
use runstone::storage::{Category, MemoryStorage, Storage};
use runstone::unstable;
use runstone::{
    Background, Change, Changes, ChangesFrom, Clock, Expiry, Keyspace, KeyspaceOptions, Kind,
    Mirror, Options, ReadOptions, Store, TransactionOptions, ValuePlacement, WalMode, WriteOptions,
};
use runstone_fault_storage::{Fault, FaultKind, SimStorage};
use runstone_sim::clock::TestClock;
use runstone_sim::found::holds_and_finds;

fn options(change: impl FnOnce(&mut KeyspaceOptions)) -> Options {
    let mut keyspace = KeyspaceOptions::default().merge_operator("json-merge-patch");
    keyspace.write_buffer_bytes = 1 << 20;
    change(&mut keyspace);
    Options::default().background(Background::Manual).keyspace(keyspace)
}

fn open(storage: &(impl Storage + Clone + 'static), options: &Options) -> Store {
    Store::open_on(Arc::new(storage.clone()), options.clone()).expect("opens")
}

fn fresh() -> Store {
    open(&MemoryStorage::new(), &options(|_| ()))
}

/// Sets a field in the value of a key to each of `numbers` in turn, by one operand each.
fn patch(keyspace: &Keyspace, key: &str, numbers: std::ops::Range<u32>) {
    for number in numbers {
        keyspace.merge(key, format!(r#"{{"n":{number}}}"#)).expect("merges");
    }
}

fn get(keyspace: &Keyspace, key: &str) -> Option<String> {
    let value = keyspace.get(key).expect("reads");
    value.map(|value| String::from_utf8(value.to_vec()).expect("text"))
}

fn written(store: &Store) -> u64 {
    store.metrics().counters.folded_values_written
}

/// A get, and how many operands it applied.
fn counted(store: &Store, key: &str) -> (Option<String>, u64) {
    let before = store.metrics().counters;
    let value = get(store.default_keyspace(), key);
    (value, store.metrics().counters.since(&before).operands_read)
}

/// A cursor is always open somewhere. It continues to see the operands.
#[test]
fn cursors_do_not_hold_it_up() {
    let store = fresh();
    let keyspace = store.default_keyspace();
    patch(keyspace, "k", 0..200);
    let mut cursor = keyspace.cursor(ReadOptions::default()).expect("opens");
    let seen = get(keyspace, "k");
    assert_eq!((counted(&store, "k"), written(&store)), ((seen.clone(), 0), 1));
    cursor.seek("k").expect("seeks");
    assert_eq!(Some(cursor.value()), seen.as_ref().map(String::as_bytes));
}

/// The second get of a key with a thousand operands applies none, under policies of every kind,
/// with inline and separated values. A snapshot between the operands still sees the same value.
#[test]
fn many_operands_are_applied_once() {
    let shapes = [
        ("leveling", ValuePlacement::Inline),
        ("tiering", ValuePlacement::Inline),
        ("universal", ValuePlacement::HashGrouped),
        ("adaptive-tiering", ValuePlacement::Inline),
    ];
    for ((policy, placement), is_flushed) in
        shapes.into_iter().flat_map(|s| [(s, false), (s, true)])
    {
        let storage = MemoryStorage::new();
        let options = options(|keyspace| {
            keyspace.policy = policy.into();
            keyspace.values.placement = placement;
            keyspace.values.separate_at = 20;
        });
        let store = open(&storage, &options);
        let keyspace = store.default_keyspace();
        keyspace.put("k", r#"{"base":"of more than twenty bytes"}"#).expect("puts");
        // Operands that are flushed together with their base are folded there.
        store.compact().expect("compacts");
        patch(keyspace, "k", 0..500);
        let between = store.snapshot();
        patch(keyspace, "k", 500..1000);
        if is_flushed {
            store.flush().expect("flushes");
        }
        let value_of = |n: u32| format!(r#"{{"base":"of more than twenty bytes","n":{n}}}"#);
        let now = Some(value_of(999));
        let place = format!("{policy}, flushed {is_flushed}");
        assert_eq!(counted(&store, "k"), (now.clone(), 1000), "{place}");
        assert_eq!((counted(&store, "k"), written(&store)), ((now.clone(), 0), 1), "{place}");
        let then = keyspace.get_at("k", &between).expect("reads");
        assert_eq!(then.as_deref(), Some(value_of(499).as_bytes()), "{place}");
        for work in [Store::flush, Store::compact] {
            work(&store).expect("works");
            assert_eq!(counted(&store, "k"), (now.clone(), 0), "{place}");
            let then = keyspace.get_at("k", &between).expect("reads");
            assert_eq!(then.as_deref(), Some(value_of(499).as_bytes()), "{place}");
        }
        drop(between);
        store.close().expect("closes");
        let store = open(&storage, &options);
        assert_eq!(counted(&store, "k"), (now, 0), "{place}");
        store.put("l", "[]").expect("puts");
        store.compact().expect("compacts");
        let shape = unstable::shape(store.default_keyspace());
        let entries: u64 = shape.tables().map(|(_, table)| table.entries).sum();
        assert_eq!(entries, 2, "{place}: the operands are gone");
    }
}

/// A few operands are left to flushes and compactions, and so are operands that calls other than
/// gets read.
#[test]
fn few_operands_are_not_written_back() {
    let store = fresh();
    let keyspace = store.default_keyspace();
    patch(keyspace, "k", 0..64);
    get(keyspace, "k").expect("is there");
    patch(keyspace, "k", 64..100);
    let snapshot = store.snapshot();
    keyspace.get_at("k", &snapshot).expect("reads").expect("is there");
    drop(snapshot);
    assert!(keyspace.contains_key("k").expect("reads"));
    keyspace.multi_get(&["k"]).expect("reads");
    assert_eq!(keyspace.iter().expect("opens").count(), 1);
    assert_eq!(written(&store), 0);
    get(keyspace, "k").expect("is there");
    assert_eq!(written(&store), 1);
}

/// Writes of another thread between the fold and the write are not lost.
#[test]
fn what_comes_between_is_kept() {
    type Step = fn(&Keyspace, &Store);
    let steps: [(Step, Option<&str>); 6] = [
        (|keyspace, _| patch(keyspace, "k", 7..8), Some(r#"{"n":7}"#)),
        (|keyspace, _| keyspace.put("k", "[]").expect("puts"), Some("[]")),
        (|keyspace, _| keyspace.delete("k").expect("deletes"), None),
        (|keyspace, _| keyspace.clear().expect("deletes"), None),
        (
            |keyspace, store| {
                patch(keyspace, "k", 7..8);
                store.flush().expect("flushes");
            },
            Some(r#"{"n":7}"#),
        ),
        (|keyspace, _| _ = keyspace.bulk_load([("k", "[1]")]).expect("loads"), Some("[1]")),
    ];
    for (step, after) in steps {
        holds_and_finds(Bug::FoldedOverNewer, || {
            let store = Arc::new(fresh());
            let keyspace = store.default_keyspace();
            patch(keyspace, "k", 0..100);
            let beside = (keyspace.clone(), Arc::clone(&store));
            seeded::step_in(Waypoint::ValueFolded, move || step(&beside.0, &beside.1));
            assert_eq!(get(keyspace, "k").as_deref(), Some(r#"{"n":99}"#));
            assert!(seeded::has_stepped_in());
            assert_eq!(get(keyspace, "k").as_deref(), after);
        });
    }
}

/// A get that began between the tables of a load and its sequence number does not see the load, and
/// does not overwrite it.
#[test]
fn a_load_that_becomes_visible_is_not_written_over() {
    let store = Arc::new(fresh());
    let keyspace = store.default_keyspace();
    patch(keyspace, "k", 0..100);
    let (begin, begun) = mpsc::channel();
    let (fold, folded) = mpsc::channel();
    let (end, ended) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(move || {
            begun.recv().expect("the load goes on");
            seeded::step_in(Waypoint::ValueFolded, move || {
                fold.send(()).expect("the load waits");
                ended.recv().expect("the load ends");
            });
            assert_eq!(get(keyspace, "k").as_deref(), Some(r#"{"n":99}"#));
            assert!(seeded::has_stepped_in());
        });
        seeded::step_in(Waypoint::LoadShown, move || {
            begin.send(()).expect("the reader waits");
            folded.recv().expect("the reader folds");
        });
        keyspace.bulk_load([("k", "[1]")]).expect("loads");
        assert!(seeded::has_stepped_in());
        end.send(()).expect("the reader waits");
    });
    assert_eq!(get(keyspace, "k").as_deref(), Some("[1]"));
    assert_eq!(written(&store), 0);
}

/// If a flush happens in between, the get leaves the write to a later get.
#[test]
fn another_view_is_left_to_a_later_get() {
    let store = Arc::new(fresh());
    let keyspace = store.default_keyspace();
    keyspace.put("k", "{}").expect("puts");
    store.compact().expect("compacts");
    patch(keyspace, "k", 0..100);
    let beside = Arc::clone(&store);
    seeded::step_in(Waypoint::ValueFolded, move || beside.flush().expect("flushes"));
    for writes in [0, 1] {
        assert_eq!(get(keyspace, "k").as_deref(), Some(r#"{"n":99}"#));
        assert_eq!(written(&store), writes);
    }
}

/// Several threads count up and down while others read: no count is lost.
#[test]
fn no_operand_is_lost_beside_readers() {
    const TURNS: i64 = 5_000;
    let store = open(
        &MemoryStorage::new(),
        &options(|keyspace| {
            keyspace.merge_operator = "add-i64".into();
        }),
    );
    let keyspace = store.default_keyspace();
    let sum = || {
        let value = keyspace.get("k").expect("reads");
        value.map_or(0, |value| i64::from_le_bytes(value[..].try_into().expect("eight bytes")))
    };
    std::thread::scope(|scope| {
        for number in [3_i64, -2] {
            scope.spawn(move || {
                for _ in 0..TURNS {
                    keyspace.merge("k", number.to_le_bytes()).expect("merges");
                }
            });
        }
        for _ in 0..2 {
            scope.spawn(|| (0..TURNS / 5).for_each(|_| _ = sum()));
        }
    });
    assert_eq!(sum(), TURNS);
    sum();
    assert!(written(&store) > 0);
}

/// A locked key is not written, and the reader does not wait. A transaction does not conflict with
/// a get.
#[test]
fn transactions_notice_nothing() {
    let store = fresh();
    let keyspace = store.default_keyspace();
    patch(keyspace, "k", 0..100);
    for options in [TransactionOptions::serializable(), TransactionOptions::pessimistic()] {
        let mut transaction = store.begin(options).expect("begins");
        let value = match transaction.id() {
            None => transaction.get(keyspace, "k"),
            Some(_) => transaction.get_for_update(keyspace, "k"),
        };
        assert_eq!(value.expect("reads").as_deref(), Some(&br#"{"n":99}"#[..]));
        assert_eq!(get(keyspace, "k").as_deref(), Some(r#"{"n":99}"#));
        transaction.put(keyspace, "other", "[]").expect("puts");
        transaction.commit(WriteOptions::default()).expect("commits");
        assert_eq!(written(&store), 0);
    }
    // A transaction that began before the operands, and holds another key, does not interfere.
    let mut earlier = store.begin(TransactionOptions::pessimistic()).expect("begins");
    earlier.put(keyspace, "other", "[]").expect("puts");
    patch(keyspace, "k", 100..101);
    get(keyspace, "k");
    assert_eq!(written(&store), 1);
    earlier.put(keyspace, "k", "[]").expect("is free");
    patch(keyspace, "k", 101..200);
    assert_eq!(get(keyspace, "k").as_deref(), Some(r#"{"n":199}"#));
    assert_eq!(written(&store), 1, "it is locked");
    earlier.commit(WriteOptions::default()).expect("commits");
    assert_eq!(get(keyspace, "k").as_deref(), Some("[]"));
}

/// If writers are delayed or refused, gets still work and write nothing.
#[test]
fn gets_do_not_wait_for_room() {
    let storage = MemoryStorage::new();
    let pressed = options(|keyspace| {
        (unstable::numbers_mut(keyspace).l0_trigger, keyspace.l0_slowdown_runs) = (1, 2);
    });
    let store = open(&storage, &pressed);
    let keyspace = store.default_keyspace();
    keyspace.put("k", "{}").expect("puts");
    store.compact().expect("compacts");
    for numbers in [0..50, 50..100] {
        patch(keyspace, "k", numbers);
        store.flush().expect("flushes");
    }
    assert!(store.metrics().pressure.level.parts() > 0);
    assert_eq!(counted(&store, "k").1, 100);
    assert_eq!(counted(&store, "k"), (Some(r#"{"n":99}"#.into()), 100));
    assert_eq!(written(&store), 0);
    store.close().expect("closes");
    let store = open(&storage, &pressed.read_only(true));
    assert_eq!(counted(&store, "k"), (Some(r#"{"n":99}"#.into()), 100));
    assert_eq!(counted(&store, "k").1, 100);
    assert_eq!(written(&store), 0);
}

/// A value that is made from an expiring base is not written, because the value is another one
/// after the expiry. A value that never expires does not expire because it was written back,
/// whatever the keyspace's time to live is.
#[test]
fn expiry_is_kept() {
    let clock = TestClock::at(0);
    let mut options = options(|keyspace| keyspace.ttl_seconds = 10);
    options.clock = Arc::clone(&clock) as Arc<dyn Clock>;
    let store = open(&MemoryStorage::new(), &options);
    let keyspace = store.default_keyspace();
    keyspace.put("based", r#"{"base":1}"#).expect("puts");
    keyspace.put_with_ttl("apart", r#"{"base":1}"#, Duration::from_secs(10)).expect("puts");
    for key in ["based", "apart", "bare"] {
        patch(keyspace, key, 0..100);
    }
    for key in ["based", "apart"] {
        assert_eq!(get(keyspace, key).as_deref(), Some(r#"{"base":1,"n":99}"#));
    }
    assert_eq!(written(&store), 0);
    get(keyspace, "bare");
    assert_eq!(written(&store), 1);
    clock.set(10_000);
    for key in ["based", "apart", "bare"] {
        assert_eq!(get(keyspace, key).as_deref(), Some(r#"{"n":99}"#));
        assert_eq!(keyspace.expiry(key).expect("reads"), Some(Expiry::Never));
    }
    assert_eq!(written(&store), 3);
    clock.set(30_000);
    store.compact().expect("compacts");
    for key in ["based", "apart", "bare"] {
        assert_eq!(counted(&store, key), (Some(r#"{"n":99}"#.into()), 0));
    }
}

/// Deletes hide values that were written back, through flushes and compactions.
#[test]
fn deletes_hide_what_was_written_back() {
    for delete in [|one: &Keyspace| one.delete("k"), |one: &Keyspace| one.delete_range("a".."z")] {
        let store = fresh();
        let keyspace = store.default_keyspace();
        patch(keyspace, "k", 0..100);
        get(keyspace, "k");
        assert_eq!(written(&store), 1);
        delete(keyspace).expect("deletes");
        for work in [|_: &Store| Ok(()), Store::flush, Store::compact] {
            work(&store).expect("works");
            assert_eq!(get(keyspace, "k"), None);
        }
        patch(keyspace, "k", 1..2);
        assert_eq!(get(keyspace, "k").as_deref(), Some(r#"{"n":1}"#));
    }
}

/// If the log fails during the write of a get, the reader still gets the value. After a crash the
/// earlier contents exist, with that write or without it.
#[test]
fn a_write_back_that_fails_is_not_told() {
    for kind in [FaultKind::Eio, FaultKind::NoSpace, FaultKind::ShortWrite, FaultKind::Crash] {
        let storage = SimStorage::new(1);
        let options = options(|_| ()).wal_mode(WalMode::Write);
        let store = open(&storage, &options);
        let keyspace = store.default_keyspace();
        patch(keyspace, "k", 0..100);
        let category = (kind != FaultKind::Crash).then_some(Category::Wal);
        storage.inject(Fault { at_op: storage.ops(), kind, sticky: false, category });
        for _ in 0..2 {
            assert_eq!(get(keyspace, "k").as_deref(), Some(r#"{"n":99}"#), "{kind:?}");
        }
        assert_eq!((storage.fired().len(), written(&store)), (1, 0), "{kind:?}");
        // A writer who runs the jobs finds out by itself when a full disk has space again.
        let is_over = kind == FaultKind::NoSpace;
        let put = keyspace.put("k", "[]");
        assert_eq!(put.is_ok(), is_over, "{kind:?}: the log failed, whoever wrote to it");
        let last = if is_over { "[]" } else { r#"{"n":99}"# };
        drop(store);
        storage.clear_faults();
        let store = open(&storage.process_crash(), &options);
        assert_eq!(get(store.default_keyspace(), "k").as_deref(), Some(last), "{kind:?}");
    }
}

/// The writes of a store's log: their kinds and values, and whether a get made them.
fn logged(storage: &MemoryStorage) -> Vec<(Kind, Vec<u8>, bool)> {
    let mut changes =
        Changes::open_on(Arc::new(storage.clone()), ChangesFrom::Oldest).expect("opens");
    let mut writes = Vec::new();
    while let Some(changed) = changes.next().expect("reads") {
        if let Change::Writes(batch) = changed.change {
            let own = batch.operations();
            writes.extend(own.map(|one| (one.kind, one.value.to_vec(), one.is_folded)));
        }
    }
    writes
}

/// A consumer that counts the writes of users can leave out a put that a get made. A mirror that
/// applies such a put logs it in the same way.
#[test]
fn readers_of_the_history_learn_that_nobody_asked_for_the_put() {
    let (source, target) = (MemoryStorage::new(), MemoryStorage::new());
    let store = open(&source, &options(|_| ()));
    let (from, to) = (Arc::new(source.clone()), Arc::new(target.clone()));
    let mut mirror = Mirror::open_on(from, to, options(|_| ())).expect("opens");
    let keyspace = store.default_keyspace();
    patch(keyspace, "k", 0..100);
    let value = get(keyspace, "k").expect("there");
    keyspace.put("k", value.as_bytes()).expect("puts");

    let writes = logged(&source);
    let mut expected = vec![(Kind::Merge, false); 100];
    expected.extend([(Kind::Put, true), (Kind::Put, false)]);
    let how = writes.iter().map(|(kind, _, is_folded)| (*kind, *is_folded));
    assert_eq!(how.collect::<Vec<_>>(), expected);
    assert!(writes[100..].iter().all(|(_, put, _)| put == value.as_bytes()));

    while !mirror.advance(Duration::ZERO).expect("advances").is_drained {}
    let mirrored = logged(&target);
    assert_eq!(mirrored.iter().filter(|(.., is_folded)| *is_folded).count(), 1);
    assert_eq!(get(mirror.store().default_keyspace(), "k"), Some(value));
}
