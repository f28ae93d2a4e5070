//! Values that are in their file before their writes are in the log.

use runstone::{Batch, TransactionOptions, WriteOptions};

use super::*;

fn early_options() -> KeyspaceOptions {
    let mut keyspace = keyspace_options(ValuePlacement::Vlog);
    keyspace.values.early = true;
    keyspace
}

fn options(keyspace: KeyspaceOptions) -> Options {
    Options::default()
        .background(Background::Manual)
        .memory_budget_bytes(8 << 20)
        .keyspace(Some(keyspace))
}

fn open_sim(storage: &SimStorage) -> Arc<Store> {
    let store = Store::open_on(Arc::new(storage.clone()), options(early_options()));
    Arc::new(store.expect("opens"))
}

fn written(store: &Store, category: Category) -> u64 {
    let io = store.metrics().io;
    io.iter().filter(|one| one.category == category.name()).map(|one| one.written_bytes).sum()
}

/// The log has the place of a value, and not the value itself.
#[test]
fn a_value_is_written_once() {
    let storage = MemoryStorage::new();
    let store = open_with(&Arc::new(storage.clone()), early_options());
    (0..10).for_each(|k| store.put(key(k), value(1)).expect("puts"));
    (0..10).for_each(|k| check(&store, k, 1));
    assert!(written(&store, Category::Value) > 10_000);
    assert!(written(&store, Category::Wal) < 2_000, "{}", written(&store, Category::Wal));
    store.flush().expect("flushes");
    assert!(written(&store, Category::Value) < 16_000, "{}", written(&store, Category::Value));
    (0..10).for_each(|k| check(&store, k, 1));
    assert!(store.verify().expect("verifies").is_clean());
}

/// A collection looks for the pointers of a batch that has not written them yet.
#[test]
fn a_collection_waits_for_batches_under_way() {
    holds_and_finds(Bug::EarlyValuesCollectedUnderWay, || {
        let store = open_with(&Arc::default(), early_options());
        let beside = Arc::clone(&store);
        seeded::step_in(Waypoint::EarlyValuesWritten, move || {
            (1..3).for_each(|turn| write(&beside, turn));
            beside.collect_values().expect("collects");
            // The slots are used again.
            (3..6).for_each(|turn| write(&beside, turn));
        });
        store.put(key(50), value(9)).expect("puts");
        assert!(seeded::has_stepped_in());
        check(&store, 50, 9);
        store.flush().expect("flushes");
        (0..2).for_each(|_| store.collect_values().expect("collects"));
        check(&store, 50, 9);
        (0..10).for_each(|k| check(&store, k, 5));
    });
}

/// The log still leads to values that a collection has moved. These values are not overwritten.
#[test]
fn emptied_segments_stay_until_the_log_goes() {
    holds_and_finds(Bug::EarlyValuesFreedUnflushed, || {
        let storage = SimStorage::new(1);
        let store = open_sim(&storage);
        let beside = Arc::clone(&store);
        (0..2).for_each(|turn| write(&store, turn));
        seeded::step_in(Waypoint::MemtableReplaced, move || {
            (0..10).for_each(|k| beside.put(key(k), value(7)).expect("puts"));
        });
        (0..10).for_each(|k| store.put(key(k), value(2)).expect("puts"));
        store.flush().expect("flushes");
        assert!(seeded::has_stepped_in());
        (0..12).for_each(|_| store.collect_values().expect("collects"));
        (20..60).for_each(|k| store.put(key(k), value(3)).expect("puts"));
        store.sync().expect("syncs");
        let left = storage.process_crash();
        drop(store);
        let store = open_sim(&left);
        (0..10).for_each(|k| check(&store, k, 7));
        (20..60).for_each(|k| check(&store, k, 3));
        assert!(store.verify().expect("verifies").is_clean());
    });
}

/// A change of options retires the file while a batch with a value in it is under way.
#[test]
fn a_retired_file_stays_for_a_batch_under_way() {
    let store = open_with(&Arc::default(), early_options());
    write(&store, 0);
    let beside = Arc::clone(&store);
    seeded::step_in(Waypoint::EarlyValuesWritten, move || {
        let inline = keyspace_options(ValuePlacement::Inline);
        beside.open_keyspace("default", Some(inline)).expect("changes");
        beside.put(key(1), value(2)).expect("puts");
        beside.compact().expect("compacts");
    });
    store.put(key(0), value(3)).expect("puts");
    assert!(seeded::has_stepped_in());
    let check_all =
        || (0..10).for_each(|k| check(&store, k, [3, 2].get(k as usize).copied().unwrap_or(0)));
    check_all();
    store.compact().expect("compacts");
    check_all();
    assert!(store.default_keyspace().value_usage().is_empty(), "the file is gone");
}

/// A refused batch leaves garbage that collections know of.
#[test]
fn values_of_refused_batches_are_garbage() {
    let store = open_with(&Arc::default(), early_options());
    for k in 0..30 {
        let mut late = store.begin(TransactionOptions::default()).expect("begins");
        late.get(store.default_keyspace(), key(k)).expect("reads");
        late.put(store.default_keyspace(), key(k), value(1)).expect("puts");
        store.put(key(k), value(2)).expect("puts");
        late.commit(WriteOptions::default()).expect_err("conflicts");
    }
    store.flush().expect("flushes");
    let keyspace = store.default_keyspace();
    assert!(keyspace.value_usage()[0].garbage_bytes() >= 30 * 1000);
    for _ in 0..30 {
        store.collect_values().expect("collects");
        store.flush().expect("flushes");
    }
    assert!(keyspace.value_usage()[0].bytes() < 40 * 1024, "{:?}", keyspace.value_usage());
    (0..30).for_each(|k| check(&store, k, 2));
}

/// A power loss removes values of refused batches, between values that stay. Collections would
/// mistake the gap for a damaged record.
#[test]
fn gaps_between_found_values_are_no_damage() {
    for seed in 0..40 {
        let storage = SimStorage::new(seed);
        let store = open_sim(&storage);
        for k in 0..12 {
            let mut late = store.begin(TransactionOptions::default()).expect("begins");
            late.get(store.default_keyspace(), key(k)).expect("reads");
            late.put(store.default_keyspace(), key(k), value(1)).expect("puts");
            store.put(key(k), value(2)).expect("puts");
            late.commit(WriteOptions::default()).expect_err("conflicts");
        }
        let left = if seed == 0 { storage.process_crash() } else { storage.power_cut(seed).0 };
        drop(store);
        let store = open_sim(&left);
        let report = store.verify().expect("verifies");
        assert!(report.is_clean(), "seed {seed}: {report:?}");
        let found = (0..12).take_while(|k| store.get(key(*k)).expect("reads").is_some()).count();
        (0..found as u64).for_each(|k| check(&store, k, 2));
        (0..3).for_each(|turn| write(&store, turn));
        for _ in 0..20 {
            store.collect_values().expect("collects");
            store.flush().expect("flushes");
        }
        let groups = &store.default_keyspace().value_usage()[0].groups;
        assert!(groups.iter().all(|group| !group.quarantined));
    }
}

fn used_slots(store: &Store) -> u64 {
    store.default_keyspace().value_usage()[0].used_slots
}

/// Once, a segment with room was kept for the next early value. When none arrived, collections,
/// which begin at the tail, waited for it for ever.
#[test]
fn one_early_value_holds_no_collection_up() {
    let slots = |early_first: bool| {
        let store = open_with(&Arc::default(), early_options());
        if early_first {
            store.put(key(0), value(0)).expect("puts");
        }
        for turn in 1..30 {
            for k in 0..10 {
                let sync = WriteOptions::sync();
                store.default_keyspace().put_with(key(k), value(turn), sync).expect("puts");
            }
            store.flush().expect("flushes");
            store.collect_values().expect("collects");
        }
        (0..10).for_each(|k| check(&store, k, 29));
        used_slots(&store)
    };
    let (with, without) = (slots(true), slots(false));
    assert!(with <= without + 4, "{with} slots with one early value, {without} without");
}

/// Refused batches cause no flush. Once, nothing reported the space of their values as free.
#[test]
fn refused_batches_grow_the_file_little() {
    let store = open_with(&Arc::default(), early_options());
    let inline = keyspace_options(ValuePlacement::Inline);
    let other = store.open_keyspace("other", Some(inline)).expect("makes");
    for number in 0..3000 {
        let mut late = store.begin(TransactionOptions::default()).expect("begins");
        late.put(&other, key(number), "late").expect("puts");
        late.put(store.default_keyspace(), key(number), value(1)).expect("puts");
        other.put(key(number), "small").expect("puts");
        late.commit(WriteOptions::default()).expect_err("conflicts");
    }
    let refused = written(&store, Category::Value);
    assert!(refused < 1200 << 10, "{refused} bytes");
    store.put(key(1), value(2)).expect("puts");
    store.flush().expect("flushes");
    for _ in 0..60 {
        store.collect_values().expect("collects");
        store.flush().expect("flushes");
    }
    assert!(used_slots(&store) < 8, "{} slots", used_slots(&store));
}

/// Once, early values of one keyspace filled the memtables of all keyspaces of a batch.
#[test]
fn early_values_fill_the_memtable_of_their_keyspace_alone() {
    let store = open_with(&Arc::default(), early_options());
    let inline = keyspace_options(ValuePlacement::Inline);
    let index = store.open_keyspace("index", Some(inline)).expect("makes");
    for number in 0..500 {
        let mut batch = Batch::new();
        batch.put(store.default_keyspace(), key(number), value(1)).expect("puts");
        batch.put(&index, key(number), "x").expect("puts");
        store.write(&batch, WriteOptions::default()).expect("writes");
        run_jobs(&store);
    }
    assert!(unstable::tables(&index).expect("tables").is_empty());
    assert!(!unstable::tables(store.default_keyspace()).expect("tables").is_empty());
}

/// A sync of the values fails, and the process ends. The next process reads them from the kernel's
/// memory; its syncs do not write them, since the kernel considers them written.
#[test]
fn found_values_are_written_again() {
    holds_and_finds(Bug::FoundValuesTrusted, || {
        for at in 0..6 {
            let storage = SimStorage::new(7);
            let store = open_sim(&storage);
            (0..10).for_each(|k| store.put(key(k), value(1)).expect("puts"));
            let (at_op, category) = (storage.ops() + at, Some(Category::Value));
            storage.inject(Fault { at_op, kind: FaultKind::FailedSync, sticky: false, category });
            let _ = store.sync();
            let left = storage.process_crash();
            drop(store);
            let store = open_sim(&left);
            store.flush().expect("flushes");
            store.sync().expect("syncs");
            let left = left.power_cut(at).0;
            drop(store);
            let store = open_sim(&left);
            (0..10).for_each(|k| check(&store, k, 1));
        }
    });
}

/// A disk has no room for tables when the store opens, so the log stays, with its early values.
#[test]
fn early_values_of_a_log_that_is_kept_are_durable() {
    let mut kept = 0;
    for (seed, at) in (0..8).flat_map(|seed| (0..12).map(move |at| (seed, at))) {
        let storage = SimStorage::new(seed);
        let store = open_sim(&storage);
        (0..10).for_each(|k| store.put(key(k), value(1)).expect("puts"));
        let left = storage.process_crash();
        drop(store);
        let (at_op, kind) = (left.ops() + at, FaultKind::NoSpace);
        left.inject(Fault { at_op, kind, sticky: false, category: None });
        let opened = Store::open_on(Arc::new(left.clone()), options(early_options()));
        let Ok(store) = opened else { continue };
        kept += usize::from(!left.fired().is_empty());
        (0..10).for_each(|k| check(&store, k, 1));
        store.sync().expect("syncs");
        let left = left.power_cut(seed).0;
        drop(store);
        let store = open_sim(&left);
        (0..10).for_each(|k| check(&store, k, 1));
    }
    assert!(kept > 0, "the disk was full in vain");
}

/// A put was admitted before its store was closed, and reaches the file after another store has
/// opened it.
#[test]
fn nothing_is_appended_after_a_close() {
    let disk = Arc::new(MemoryStorage::new());
    let store = open_with(&disk, early_options());
    (0..3).for_each(|k| store.put(key(k), value(1)).expect("puts"));
    let keyspace = store.default_keyspace().clone();
    let store = Arc::into_inner(store).expect("the only one");
    let again = Arc::new(std::sync::Mutex::new(None));
    let (given, same_disk) = (Arc::clone(&again), Arc::clone(&disk));
    seeded::step_in(Waypoint::BatchAdmitted, move || {
        store.close().expect("closes");
        let store = open_with(&same_disk, early_options());
        let sync = WriteOptions::sync();
        (3..6).for_each(|k| {
            store.default_keyspace().put_with(key(k), value(2), sync).expect("puts");
        });
        store.flush().expect("flushes");
        *given.lock().expect("nobody panicked") = Some(store);
    });
    keyspace.put(key(99), value(9)).expect_err("is closed");
    assert!(seeded::has_stepped_in());
    let store = again.lock().expect("nobody panicked").take().expect("opened");
    (0..6).for_each(|k| check(&store, k, if k < 3 { 1 } else { 2 }));
    assert!(store.verify().expect("verifies").is_clean());
}

/// Once, a retired file was judged unneeded at the moment when the last batch with a value in it
/// ended.
#[test]
fn a_retired_file_is_judged_before_the_memtables() {
    let store = open_with(&Arc::default(), early_options());
    write(&store, 0);
    let (retired, is_retired) = std::sync::mpsc::channel();
    let (looked, has_looked) = std::sync::mpsc::channel();
    let (done, is_done) = std::sync::mpsc::channel::<()>();
    let other = Arc::clone(&store);
    let compaction = std::thread::spawn(move || {
        is_retired.recv().expect("retired");
        seeded::step_in(Waypoint::RetiredFilesLookedAt, move || {
            looked.send(()).expect("somebody waits");
            is_done.recv().expect("done");
        });
        other.compact().expect("compacts");
        assert!(seeded::has_stepped_in());
    });
    let beside = Arc::clone(&store);
    seeded::step_in(Waypoint::EarlyValuesWritten, move || {
        let inline = keyspace_options(ValuePlacement::Inline);
        beside.open_keyspace("default", Some(inline)).expect("changes");
        retired.send(()).expect("somebody waits");
        has_looked.recv().expect("looked");
    });
    store.put(key(0), value(3)).expect("puts");
    done.send(()).expect("somebody waits");
    compaction.join().expect("joins");
    check(&store, 0, 3);
}

/// Once, a writer found its file marked as listed for the next sync, although the other writer had
/// not put it into the list yet.
#[test]
fn a_sync_covers_the_values_of_writers_side_by_side() {
    let storage = SimStorage::new(3);
    let store = open_sim(&storage);
    let beside = Arc::clone(&store);
    seeded::step_in(Waypoint::EarlyFileUnnoted, move || {
        beside.put(key(1), value(1)).expect("puts");
        beside.sync().expect("syncs");
    });
    let cuts: Vec<SimStorage> = {
        store.put(key(0), value(0)).expect("puts");
        assert!(seeded::has_stepped_in());
        (0..20).map(|seed| storage.power_cut(seed).0).collect()
    };
    drop(store);
    cuts.iter().for_each(|left| check(&open_sim(left), 1, 1));
}
