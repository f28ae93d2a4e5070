//! Crashes and power cuts inside flushes and collections, and syncs that fail.

use super::*;

fn in_groups(seed: u64) -> Options {
    placed(options(seed, Background::Manual), ValuePlacement::HashGrouped)
}

fn in_a_log(seed: u64) -> Options {
    let mut options = placed(options(seed, Background::Manual), ValuePlacement::Vlog);
    if let Some(keyspace) = &mut options.keyspace {
        keyspace.values.early = false;
    }
    options
}

fn in_a_log_first(seed: u64) -> Options {
    early(options(seed, Background::Manual))
}

fn cooling(seed: u64) -> Options {
    cooled(options(seed, Background::Manual))
}

fn moving_pointers(seed: u64) -> Options {
    written_back(options(seed, Background::Manual))
}

fn moving_pointers_to_the_cold(seed: u64) -> Options {
    cooled_back(options(seed, Background::Manual))
}

/// Every placement that separates values.
const APART: [fn(u64) -> Options; 6] =
    [in_groups, in_a_log, in_a_log_first, cooling, moving_pointers, moving_pointers_to_the_cold];

/// Whether a crash at some operation breaks a promise.
fn crash_finds(bug: Bug) -> bool {
    crash_finds_in(in_groups, bug)
}

fn crash_finds_in(options: fn(u64) -> Options, bug: Bug) -> bool {
    SEEDS.into_iter().any(|seed| {
        let (options, operations) = (options(seed), generate(seed, OPERATIONS));
        let mut count = 0;
        let with_bug = || seeded::with(bug, || count_operations(&options, &operations));
        let counted = || count = seeded::without_assertions(with_bug).0;
        if panics(counted) {
            // The workload fails without any crash.
            return true;
        }
        (0..count).any(|at| {
            let crashes = [Crash::Process, Crash::Power(at), Crash::Power(at * 31 + 7)];
            let crash = || seeded::with(bug, || crash_at(&options, &operations, at, &crashes));
            panics(|| drop(seeded::without_assertions(crash)))
        })
    })
}

#[test]
fn pointers_without_their_values_are_found() {
    for (i, options) in APART.into_iter().enumerate() {
        assert!(crash_finds_in(options, Bug::PointersLoggedBeforeValues), "placement {i}");
    }
}

/// Whether the first workload that fails, without any crash, fails at this assertion.
fn trips(bug: Bug, what: &str) -> bool {
    let said = SEEDS.into_iter().find_map(|seed| {
        let (options, operations) = (in_groups(seed), generate(seed, OPERATIONS));
        let work = || seeded::with(bug, || count_operations(&options, &operations));
        panic_of(|| _ = work())
    });
    said.is_some_and(|said| said.contains(what))
}

#[test]
fn a_flush_before_the_log_is_found() {
    assert!(trips(Bug::FlushOutrunsTheLog, "before the log is synced up to it"));
    assert!(crash_finds(Bug::FlushOutrunsTheLog), "it is found by the assertion alone");
}

#[test]
fn a_part_of_a_generation_is_found() {
    let options = |seed| logless(options(seed, Background::Manual), ValuePlacement::Inline);
    assert!(crash_finds_in(options, Bug::GenerationsInPieces));
}

#[test]
fn a_collection_that_is_not_synced_is_found() {
    assert!(crash_finds(Bug::CollectionNotSynced));
}

#[test]
fn slots_freed_before_the_edit_are_found() {
    assert!(crash_finds(Bug::SlotsFreedBeforeTheEdit));
}

#[test]
fn tags_without_their_records_are_found() {
    assert!(crash_finds_in(cooling, Bug::TagsLoggedBeforeColdRecords));
}

#[test]
fn pointers_that_are_not_durable_before_old_slots_go_are_found() {
    assert!(crash_finds_in(moving_pointers, Bug::RelocationsNotSynced));
    assert!(crash_finds_in(moving_pointers_to_the_cold, Bug::RelocationsNotSynced));
    assert!(crash_finds_in(in_a_log, Bug::RelocationsNotSynced));
}

#[test]
fn appends_that_are_not_synced_are_found() {
    for (i, options) in APART.into_iter().enumerate() {
        assert!(crash_finds_in(options, Bug::AppendsNotSynced), "placement {i}");
    }
}

#[test]
fn early_values_that_are_not_synced_are_found() {
    assert!(crash_finds_in(in_a_log_first, Bug::EarlyValuesNotSynced));
}

#[test]
fn early_values_that_a_replay_does_not_check_are_found() {
    assert!(crash_finds_in(in_a_log_first, Bug::EarlyValuesUnchecked));
}

/// A reopened store has the groups as collections left them.
#[test]
fn a_collection_that_is_not_logged_is_found() {
    let run = |seed: u64| {
        let storage = MemoryStorage::new();
        let options = in_groups(seed);
        let open = || {
            let storage: Arc<dyn Storage> = Arc::new(storage.clone());
            let store = Store::open_on(storage, options.clone())?;
            keyspaces(&store)?;
            Ok::<Store, Error>(store)
        };
        let mut run = Run::new(open().expect("fresh"), Oracle::default());
        for operation in generate(seed, 1500) {
            run.apply(&operation, open).expect("no faults");
        }
    };
    run(SEEDS[0]);
    let found = (0..20).any(|seed| panics(|| seeded::with(Bug::CollectionNotLogged, || run(seed))));
    assert!(found);
}

/// Each sync of a value file fails in turn. Nothing that relies on it is acknowledged.
fn fail_value_syncs(options: fn(u64) -> Options, seed: u64) {
    let (options, operations) = (options(seed), generate(seed, 120));
    let (count, _) = count_operations(&options, &operations);
    let mut fired = 0;
    for at_op in 0..count {
        let storage = SimStorage::new(seed);
        let category = Some(Category::Value);
        storage.inject(Fault { at_op, kind: FaultKind::FailedSync, sticky: false, category });
        let oracle = run_until_error(&storage, &options, &operations);
        fired += storage.fired().len();
        storage.clear_faults();
        let place = format!("seed {seed}, failed sync from operation {at_op}");
        judge(&storage.power_cut(at_op).0, &options, &oracle, true, &place);
    }
    assert!(fired > 0, "no sync failed");
}

#[test]
fn a_failed_sync_of_values_is_heeded() {
    for options in APART {
        let check = || SEEDS.into_iter().for_each(|seed| fail_value_syncs(options, seed));
        holds_and_finds(Bug::FailedSyncIgnored, check);
    }
}

/// Once, a collection that the user requested ran into a failed sync. The caller got the error, but
/// later writes were still accepted. The kernel reports lost bytes once: the next sync of the same
/// file succeeds, even for a flush whose values were lost together with the collection's. So
/// nothing is acknowledged any more (P7).
#[test]
fn a_failed_sync_in_a_collection_stops_the_store() {
    let storage = SimStorage::new(1);
    let mut options = in_groups(SEEDS[0]);
    if let Some(keyspace) = &mut options.keyspace {
        keyspace.values = ValueOptions::default()
            .placement(ValuePlacement::HashGrouped)
            .separate_at(100)
            .groups(1)
            .slot_bytes(4096)
            .reserve(100.0);
    }
    let store = Store::open_on(Arc::new(storage.clone()), options).expect("fresh");
    (0..3).for_each(|turn| write(&store, turn));
    let at_op = storage.ops();
    let category = Some(Category::Value);
    storage.inject(Fault { at_op, kind: FaultKind::FailedSync, sticky: false, category });
    store.collect_values().expect_err("the sync fails");
    let error = store.put("more", "x").expect_err("refused");
    assert!(matches!(error, Error::Stopped { .. }), "{error}");
    assert_eq!(storage.fired().len(), 1);
    check(&store, 3, 2);
}

/// The sync of the edit that names a flush's values fails. The edit may still be on disk, so
/// nothing may reuse the slots, not even a compaction that is still running.
#[test]
fn slots_that_an_edit_may_name_are_not_used_again() {
    holds_and_finds(Bug::UnknownSlotsFreed, || {
        let storage = SimStorage::new(1);
        let options = Options::default()
            .background(Background::Manual)
            .memory_budget_bytes(8 << 20)
            .keyspace(keyspace_options(ValuePlacement::HashGrouped));
        let store = Store::open_on(Arc::new(storage.clone()), options.clone()).expect("fresh");
        write(&store, 0);
        let used = |store: &Store| store.default_keyspace().value_usage()[0].used_slots;
        let before = used(&store);
        let (at_op, category) = (storage.ops(), Some(Category::Manifest));
        storage.inject(Fault { at_op, kind: FaultKind::FailedSync, sticky: false, category });
        (10..20).for_each(|k| store.put(key(k), value(1)).expect("puts"));
        store.flush().expect_err("the sync fails");
        assert_eq!(storage.fired().len(), 1);
        assert!(used(&store) > before, "{} slots as before", used(&store));
        drop(store);
        storage.clear_faults();
        let left = storage.process_crash();
        let store = Store::open_on(Arc::new(left), options).expect("opens");
        (0..10).for_each(|k| check(&store, k, 0));
        (10..20).for_each(|k| check(&store, k, 1));
    });
}

/// Ends the process, with power loss or without, between the copies of a collection and their
/// pointers, and opens what is left.
fn crash_before_pointers(storage: &SimStorage, store: &Store, power: Option<u64>) -> Arc<Store> {
    let (told, left) = std::sync::mpsc::channel();
    let disk = storage.clone();
    seeded::step_in(Waypoint::GroupCopied, move || {
        let copy = match power {
            Some(seed) => disk.power_cut(seed).0,
            None => disk.process_crash(),
        };
        told.send(copy).expect("somebody waits");
    });
    store.collect_values().expect_err("the crash");
    assert!(seeded::has_stepped_in());
    open_any(Arc::new(left.recv().expect("the crash came")), cooling_back())
}

/// Updates the even keys, and collects the garbage that this makes, a few times.
fn update_evens_and_collect(store: &Store, count: u64) {
    for turn in 0..4 {
        (0..count).step_by(2).for_each(|k| store.put(key(k), value(turn)).expect("puts"));
        store.flush().expect("flushes");
        store.collect_values().expect("collects");
    }
}

/// A crash happens between the tags of a collection and its pointers. The tree leads to the
/// records, whose group also has a tag of each.
#[test]
fn a_record_counts_although_its_version_has_a_tag() {
    holds_and_finds(Bug::TagsTrustedOverRecords, || {
        let storage = SimStorage::new(1);
        let store = open_any(Arc::new(storage.clone()), cooling_back());
        write(&store, 7);
        (0..4).for_each(|turn| {
            (0..5).for_each(|k| store.put(key(2 * k), value(turn)).expect("puts"));
            store.flush().expect("flushes");
        });
        let store = crash_before_pointers(&storage, &store, None);
        update_evens_and_collect(&store, 10);
        (0..5).for_each(|k| check(&store, 2 * k + 1, 7));
        assert!(store.verify().expect("verifies").is_clean());
    });
}

/// A snapshot keeps the segments of values that cooled, and the process ends. The next process
/// compacts both pointers of such a value. Its group has a record and a tag of the version. The
/// record is not dead merely because the tree leads elsewhere; otherwise the version would be dead
/// too.
#[test]
fn a_value_that_cooled_is_not_dead_because_of_where_it_was() {
    holds_and_finds(Bug::PlacesComparedAcrossStreams, || {
        let storage = SimStorage::new(1);
        let store = open_any(Arc::new(storage.clone()), cooling_back());
        // Moves the places in the group past the first ones of the cold stream.
        (0..8).for_each(|turn| write(&store, turn));
        store.collect_values().expect("collects");
        (0..4).for_each(|turn| {
            (0..5).for_each(|k| store.put(key(2 * k), value(turn)).expect("puts"));
            store.flush().expect("flushes");
        });
        let snapshot = store.snapshot();
        store.collect_values().expect("collects");
        store.flush().expect("flushes");
        let left = storage.process_crash();
        drop(snapshot);
        let store = open_any(Arc::new(left), cooling_back());
        store.compact().expect("compacts and collects");
        update_evens_and_collect(&store, 10);
        (0..5).for_each(|k| check(&store, 2 * k + 1, 7));
        assert!(store.verify().expect("verifies").is_clean());
    });
}

/// A range delete that is not durable yet hides cold values from a collection. Power fails in the
/// collection, and the range delete is lost.
#[test]
fn a_cold_value_is_dead_only_once_its_deletion_is_durable() {
    const KEYS: u64 = 40;
    let is_lost = std::cell::Cell::new(false);
    let run = |seed: u64| {
        let storage = SimStorage::new(seed);
        let store = open_any(Arc::new(storage.clone()), cooling_back());
        (0..KEYS).for_each(|k| store.put(key(k), value(7)).expect("puts"));
        store.flush().expect("flushes");
        update_evens_and_collect(&store, KEYS);
        (0..KEYS).step_by(2).for_each(|k| store.put(key(k), value(5)).expect("puts"));
        store.flush().expect("flushes");
        store.default_keyspace().delete_range(key(0)..key(20)).expect("deletes");
        let store = crash_before_pointers(&storage, &store, Some(seed));
        is_lost.set(is_lost.get() || store.get(key(1)).expect("reads").is_some());
        let deleted = (0..20).filter(|k| store.get(key(*k)).expect("reads").is_none()).count();
        assert!([0, 20].contains(&deleted), "a range delete is whole or lost: {deleted}");
        update_evens_and_collect(&store, KEYS);
        for k in (1..KEYS).step_by(2).filter(|k| *k > 20 || deleted == 0) {
            check(&store, k, 7);
        }
        assert!(store.verify().expect("verifies").is_clean());
    };
    holds_and_finds(Bug::ColdRecordsDeadAtOnce, || (0..8).for_each(run));
    assert!(is_lost.get(), "no power cut took the range delete");
}

/// The sync of the edit that names the copies of a collection fails. Once, collections that write
/// pointers gave the slots of the copies back, although the edit may be on disk.
#[test]
fn slots_that_the_edit_of_a_collection_may_name_are_not_used_again() {
    let log = keyspace_options(ValuePlacement::Vlog);
    for keyspace in [log, writing_back(), cooling_back()] {
        let storage = SimStorage::new(1);
        let store = open_any(Arc::new(storage.clone()), keyspace.clone());
        write_upper_half_again(&store);
        let used = || store.default_keyspace().value_usage()[0].used_slots;
        let before = used();
        let (at_op, category) = (storage.ops(), Some(Category::Manifest));
        storage.inject(Fault { at_op, kind: FaultKind::FailedSync, sticky: false, category });
        store.collect_values().expect_err("the sync fails");
        assert_eq!(storage.fired().len(), 1);
        assert!(used() > before, "{} slots as before", used());
        drop(store);
        storage.clear_faults();
        let store = open_any(Arc::new(storage.process_crash()), keyspace);
        (0..10).for_each(|k| check(&store, k, u64::from(k > 4)));
    }
}
