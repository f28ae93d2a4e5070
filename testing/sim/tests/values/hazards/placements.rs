//! Placements that change, and value files that come and go, on a disk that fails.

use super::*;

fn open_sim(storage: &SimStorage, keyspace: Option<KeyspaceOptions>) -> Store {
    let options = Options::default()
        .background(Background::Manual)
        .memory_budget_bytes(8 << 20)
        .keyspace(keyspace);
    Store::open_on(Arc::new(storage.clone()), options).expect("opens")
}

/// Once, a change of placement failed on a full disk after it had marked the value file as closed
/// to newer tables. Later manifest records of the tree repeated the mark, and the file was removed
/// with the older tables.
#[test]
fn a_change_of_placement_that_failed_changes_nothing() {
    let storage = SimStorage::new(1);
    let log = |l0_trigger| tiered(keyspace_options(ValuePlacement::Vlog), l0_trigger, 10);
    let store = open_sim(&storage, Some(log(2)));
    write_two_runs(&store);
    let (at_op, kind, category) = (storage.ops(), FaultKind::NoSpace, Some(Category::Manifest));
    storage.inject(Fault { at_op, kind, sticky: false, category });
    let groups = keyspace_options(ValuePlacement::HashGrouped);
    let error = store.open_keyspace("default", Some(groups)).expect_err("the disk is full");
    assert!(error.is_no_space(), "{error}");
    (0..5).for_each(|k| store.put(key(k), value(1)).expect("puts"));
    store.flush().expect("flushes");
    store.checkpoint("copy").expect("copies");
    let copy = storage.open_sibling("copy".as_ref()).expect("is there");
    let store = open_sim(&copy, Some(tiered(keyspace_options(ValuePlacement::Vlog), 50, 2)));
    run_jobs(&store);
    assert_eq!(runs(&store), [1, 0, 1]);
    (0..10).for_each(|k| check(&store, k, u64::from(k < 5)));
}

/// Once, a value file could not be removed after its last table had been removed. The compaction
/// failed and removed its outputs, although the manifest named them.
#[test]
fn a_value_file_that_cannot_be_removed_is_left_behind() {
    let storage = SimStorage::new(1);
    let log = keyspace_options(ValuePlacement::Vlog);
    let store = open_sim(&storage, Some(log));
    write(&store, 1);
    let (at_op, kind, category) = (storage.ops(), FaultKind::Eio, Some(Category::Value));
    storage.inject(Fault { at_op, kind, sticky: false, category });
    let inline = keyspace_options(ValuePlacement::Inline);
    store.open_keyspace("default", Some(inline.clone())).expect("changes");
    store.compact().expect("what is left behind is no failure");
    assert_eq!(storage.fired().len(), 1);
    (0..10).for_each(|k| check(&store, k, 1));
    store.close().expect("closes");
    let store = open_sim(&storage, Some(inline));
    (0..10).for_each(|k| check(&store, k, 1));
    let files = storage.list().expect("lists");
    assert!(!files.iter().any(|file| file.name.ends_with(".values")), "the next open removes it");
}

/// Once, the manifest broke while a log was collected. The store mistook that for damage of the log
/// and tried the collection again for ever.
#[test]
fn a_collection_ends_when_the_manifest_breaks() {
    let storage = SimStorage::new(1);
    let mut log = keyspace_options(ValuePlacement::Vlog);
    // The first chunk is dead, so the collection only has to log its removal.
    log.values.vlog_chunk_bytes = log.values.slot_bytes.into();
    let store = Arc::new(open_sim(&storage, Some(log)));
    (0..5).for_each(|turn| write(&store, turn));
    let beside = Arc::clone(&store);
    seeded::step_in(Waypoint::LogSyncBegun, move || {
        let (at_op, kind, category) = (storage.ops(), FaultKind::Eio, Some(Category::Manifest));
        storage.inject(Fault { at_op, kind, sticky: false, category });
        beside.open_keyspace("other", None).expect_err("it cannot be logged");
    });
    let refused = store.collect_values().expect_err("neither can the collection");
    assert!(seeded::has_stepped_in() && refused.to_string().contains("manifest"), "{refused}");
    (0..10).for_each(|k| check(&store, k, 4));
}

/// Once, the sync of the manifest failed in a change of options. The caller got the error, but
/// later writes were still accepted (P7).
#[test]
fn a_failed_sync_in_a_change_of_options_stops_the_store() {
    let storage = SimStorage::new(1);
    let store = open_sim(&storage, Some(keyspace_options(ValuePlacement::Vlog)));
    write(&store, 1);
    let (at_op, kind, category) = (storage.ops(), FaultKind::FailedSync, Some(Category::Manifest));
    storage.inject(Fault { at_op, kind, sticky: false, category });
    let inline = keyspace_options(ValuePlacement::Inline);
    store.open_keyspace("default", Some(inline)).expect_err("the sync fails");
    let refused = store.put(key(0), value(2)).expect_err("nothing more is acknowledged");
    assert!(matches!(refused, Error::Stopped { .. }), "{refused}");
}

/// Once, the placement changed while a user's own call collected. The collection wrote pointers
/// into the memtable after the change, and the file was removed although they led there.
#[test]
fn a_change_of_placement_waits_for_a_collection() {
    let mut log = keyspace_options(ValuePlacement::Vlog);
    log.values.vlog_chunk_bytes = 1 << 20;
    for keyspace in [log, writing_back()] {
        let store = open_with(&Arc::default(), keyspace);
        write_upper_half_again(&store);
        let mut inline = keyspace_options(ValuePlacement::Inline);
        unstable::numbers_mut(&mut inline).l0_trigger = 2;
        let beside = Arc::clone(&store);
        let (done, is_done) = std::sync::mpsc::channel();
        seeded::step_in(Waypoint::LiveValuesFound, move || {
            let change = std::thread::spawn(move || {
                beside.open_keyspace("default", Some(inline)).expect("changes");
            });
            // Long enough for the change to finish if nothing held it up.
            std::thread::sleep(Duration::from_millis(200));
            done.send(change).expect("somebody listens");
        });
        store.collect_values().expect("collects");
        is_done.recv().expect("stepped in").join().expect("changes");
        while store.run_one_job().expect("compacts") {}
        (0..10).for_each(|k| check(&store, k, u64::from(k > 4)));
        store.compact().expect("compacts");
        (0..10).for_each(|k| check(&store, k, u64::from(k > 4)));
        assert!(store.default_keyspace().value_usage().is_empty(), "nothing points there");
    }
}
