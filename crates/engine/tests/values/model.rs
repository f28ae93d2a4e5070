//! Compares separated values with a model: every placement, with snapshots, deletes, updates
//! between small and large, collection, reopening and a change of placement.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use runstone::storage::{Category, MemoryStorage, Storage};
use runstone::unstable;
use runstone::{
    Background, Error, GcPointers, KeyspaceOptions, Options, Snapshot, Store, ValueOptions,
    ValuePlacement, WhenFull,
};

#[derive(Clone, Debug)]
enum Step {
    Put(u8, u16),
    Delete(u8),
    Get(u8),
    Scan,
    Snapshot,
    Release,
    Flush,
    Job,
    Collect,
    Compact,
    Reopen,
    Place(u8),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => (any::<u8>(), 0..3000u16).prop_map(|(key, len)| Step::Put(key % 40, len)),
        4 => any::<u8>().prop_map(|key| Step::Delete(key % 40)),
        4 => any::<u8>().prop_map(|key| Step::Get(key % 40)),
        1 => Just(Step::Scan),
        1 => Just(Step::Snapshot),
        1 => Just(Step::Release),
        3 => Just(Step::Flush),
        3 => Just(Step::Job),
        2 => Just(Step::Collect),
        1 => Just(Step::Compact),
        1 => Just(Step::Reopen),
        1 => any::<u8>().prop_map(Step::Place),
    ]
}

fn options(placement: ValuePlacement) -> KeyspaceOptions {
    KeyspaceOptions::default().write_buffer_bytes(64 << 10).values(
        ValueOptions::default().placement(placement).separate_at(200).groups(3).slot_bytes(4096),
    )
}

fn open(storage: &Arc<MemoryStorage>, placement: Option<ValuePlacement>) -> Store {
    let options = Options::default()
        .background(Background::Manual)
        .memory_budget_bytes(8 << 20)
        .keyspace(placement.map(options));
    Store::open_on(Arc::<MemoryStorage>::clone(storage), options).expect("opens")
}

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn key(key: u8) -> Vec<u8> {
    format!("key{key:03}").into_bytes()
}

fn value(key: u8, len: u16, turn: usize) -> Vec<u8> {
    let seed = format!("{key}/{turn}/");
    seed.bytes().cycle().take(len.into()).collect()
}

fn check(store: &Store, model: &Model, snapshot: Option<&Snapshot>) {
    let keyspace = store.default_keyspace();
    let mut read = runstone::ReadOptions::default();
    if let Some(snapshot) = snapshot {
        read = read.at(snapshot);
    }
    let mut cursor = keyspace.cursor(read).expect("cursor");
    cursor.seek_to_first().expect("seeks");
    for (key, value) in model {
        assert!(cursor.valid() && cursor.key() == key, "{:?}", key.escape_ascii().to_string());
        assert!(cursor.value() == value);
        cursor.next().expect("steps");
    }
    assert!(!cursor.valid());
    cursor.seek_to_last().expect("seeks");
    for (key, value) in model.iter().rev() {
        assert!(cursor.valid() && cursor.key() == key && cursor.value() == value);
        cursor.prev().expect("steps");
    }
    turn_about(&mut cursor, model);
    for (key, value) in model {
        let got = match snapshot {
            Some(snapshot) => keyspace.get_at(key, snapshot),
            None => keyspace.get(key),
        };
        assert_eq!(got.expect("reads").as_deref(), Some(&value[..]));
    }
}

/// Walks three steps forward and one back, so that the cursor drops part of what it read ahead.
fn turn_about(cursor: &mut runstone::Cursor, model: &Model) {
    let entries: Vec<_> = model.iter().collect();
    cursor.seek_to_first().expect("seeks");
    let (mut at, mut turn) = (0, 0);
    while at < entries.len() {
        assert!(cursor.valid() && cursor.key() == entries[at].0, "turn {turn}");
        assert!(cursor.value() == entries[at].1 && cursor.pin_value() == entries[at].1);
        turn += 1;
        if turn % 4 == 0 && at > 0 {
            cursor.prev().expect("steps");
            at -= 1;
        } else {
            cursor.next().expect("steps");
            at += 1;
        }
    }
    assert!(!cursor.valid());
}

fn placed(number: u8) -> KeyspaceOptions {
    use ValuePlacement::{HashGrouped, Inline, Vlog};
    match number % 5 {
        3 => writing_back(),
        4 => with_values(|values| {
            values.gc_pointers = GcPointers::Writeback;
            values.cold_stream = true;
        }),
        other => options([Inline, Vlog, HashGrouped][usize::from(other)]),
    }
}

/// Options for groups whose collections write pointers.
fn writing_back() -> KeyspaceOptions {
    with_values(|values| values.gc_pointers = GcPointers::Writeback)
}

fn run(first: ValuePlacement, steps: &[Step], changes: bool) {
    run_with(options(first), steps, changes);
}

fn run_with(first: KeyspaceOptions, steps: &[Step], changes: bool) {
    let storage = Arc::new(MemoryStorage::new());
    let mut store = open_with(&storage, first).expect("opens");
    let mut model = Model::new();
    let mut held: Vec<(Snapshot, Model)> = Vec::new();
    for (turn, step) in steps.iter().enumerate() {
        match step {
            Step::Put(k, len) => {
                let value = value(*k, *len, turn);
                store.put(key(*k), &value).expect("puts");
                model.insert(key(*k), value);
            }
            Step::Delete(k) => {
                store.delete(key(*k)).expect("deletes");
                model.remove(&key(*k));
            }
            Step::Get(k) => {
                let got = store.get(key(*k)).expect("reads");
                assert_eq!(got.as_deref(), model.get(&key(*k)).map(|value| &value[..]));
            }
            Step::Scan => check(&store, &model, None),
            Step::Snapshot => held.push((store.snapshot(), model.clone())),
            Step::Release if !held.is_empty() => drop(held.remove(turn % held.len())),
            Step::Release => {}
            Step::Flush => store.flush().expect("flushes"),
            Step::Job => drop(store.run_one_job().expect("works")),
            Step::Collect => store.collect_values().expect("collects"),
            Step::Compact => store.compact().expect("compacts"),
            Step::Reopen => {
                held.clear();
                store.close().expect("closes");
                store = open(&storage, None);
            }
            Step::Place(number) if changes => {
                store.open_keyspace("default", Some(placed(*number))).expect("changes");
            }
            Step::Place(_) => {}
        }
        for (snapshot, model) in &held {
            if turn % 7 == 0 {
                check(&store, model, Some(snapshot));
            }
        }
    }
    check(&store, &model, None);
    let report = store.verify().expect("verifies");
    assert!(report.is_clean(), "{:?}", report.damage);
    held.clear();
    store.compact().expect("compacts");
    store.collect_values().expect("collects");
    check(&store, &model, None);
    store.close().expect("closes");
    check(&open(&storage, None), &model, None);
}

fn with_values(change: impl FnOnce(&mut ValueOptions)) -> KeyspaceOptions {
    let mut options = options(ValuePlacement::HashGrouped);
    change(&mut options.values);
    options
}

/// Options for groups so small that collections find many values without updates.
fn cooling() -> KeyspaceOptions {
    with_values(|values| {
        values.cold_stream = true;
        values.groups = 2;
        values.reserve = 0.05.into();
    })
}

/// As `cooling`, but collections write pointers.
fn cooling_back() -> KeyspaceOptions {
    let mut options = cooling();
    options.values.gc_pointers = GcPointers::Writeback;
    options
}

fn open_with(storage: &Arc<MemoryStorage>, keyspace: KeyspaceOptions) -> Result<Store, Error> {
    let options = Options::default()
        .background(Background::Manual)
        .memory_budget_bytes(8 << 20)
        .keyspace(keyspace);
    Store::open_on(Arc::<MemoryStorage>::clone(storage), options)
}

#[test]
fn senseless_value_options_are_refused() {
    let refused = |change: fn(&mut ValueOptions)| {
        let storage = Arc::new(MemoryStorage::new());
        let error = open_with(&storage, with_values(change)).expect_err("refused");
        assert!(!error.hint().is_empty());
        error.to_string()
    };
    assert!(refused(|values| values.groups = 0).contains("values.groups is 0"));
    assert!(refused(|values| values.reserve = 0.0.into()).contains("values.reserve is 0"));
    assert!(refused(|values| values.slot_bytes = 100).contains("allowed are 4096"));
    assert!(refused(|values| values.capacity_bytes = 10_000).contains("need 24576 or more"));
    let storage = Arc::new(MemoryStorage::new());
    let store = open_with(&storage, options(ValuePlacement::HashGrouped)).expect("opens");
    let other = with_values(|values| values.groups = 4);
    let error = store.open_keyspace("default", Some(other.clone())).expect_err("fixed");
    assert!(error.to_string().contains("was made with 3"), "{error}");
    store.close().expect("closes");
    assert!(open_with(&storage, other).expect_err("fixed").to_string().contains("groups is 4"));
    open(&storage, None).close().expect("as it was");
}

/// A value that takes several slots, and a value that is larger than the configured capacity.
#[test]
fn values_larger_than_a_slot_a_group_and_the_capacity() {
    let storage = Arc::new(MemoryStorage::new());
    let keyspace = with_values(|values| values.capacity_bytes = 64 << 10);
    let store = open_with(&storage, keyspace).expect("opens");
    let mut model = Model::new();
    for (turn, len) in [(0usize, 4096u32), (1, 13_000), (2, 300_000), (3, 9_000)] {
        let large: Vec<u8> = (0..len).map(|i| (i as usize * 7 + turn) as u8).collect();
        for k in 0..3 {
            store.put(key(k), &large).expect("puts");
            model.insert(key(k), large.clone());
        }
        store.flush().expect("flushes");
        check(&store, &model, None);
        store.collect_values().expect("collects");
        check(&store, &model, None);
    }
    let used = store.default_keyspace().value_usage()[0].used_bytes();
    assert!(used <= 3 * (9_000 + 4096) + 6 * 4096, "{used} bytes for three values of 9,000");
}

/// A snapshot keeps a file that holds only garbage. Writes are refused as on a full disk while
/// reads continue. When the snapshot is released, writes are accepted again.
#[test]
fn a_reserve_full_of_pinned_garbage_refuses_writes_until_the_snapshot_goes() {
    let storage = Arc::new(MemoryStorage::new());
    let keyspace = with_values(|values| {
        values.capacity_bytes = 100 << 10;
        values.when_full = WhenFull::Error;
    });
    let store = open_with(&storage, keyspace).expect("opens");
    let write = |turn: usize| -> Result<(), Error> {
        (0..25).try_for_each(|k| store.put(key(k), value(k, 900, turn)))?;
        store.flush()
    };
    write(0).expect("fits");
    let mut held = Vec::new();
    let mut full = None;
    let mut pressures = Vec::new();
    for turn in 1..20 {
        held.push(store.snapshot());
        if let Err(error) = write(turn) {
            full = Some(error);
            break;
        }
        pressures.push(store.metrics().pressure);
    }
    let error = full.expect("the reserve is full at some time");
    let last = store.metrics().pressure;
    assert_eq!(
        (pressures[0].level.parts(), &*last.cause),
        (0, "snapshots hold the reserve for values")
    );
    assert!((1..1000).contains(&last.level.parts()), "{last:?}");
    assert!(matches!(error, Error::NoSpace { .. }), "{error}");
    assert!(error.hint().contains("snapshots"), "{}", error.hint());
    assert!(write(20).is_err(), "refused");
    assert!(store.get(key(3)).expect("reads go on").is_some());
    drop(held);
    store.collect_values().expect("what makes room is not refused");
    let started = std::time::Instant::now();
    while store.put("more", "x").is_err() || store.flush().is_err() {
        assert!(started.elapsed().as_secs() < 20, "writes never go on");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    assert_eq!(store.metrics().pressure.level.parts(), 0, "nothing is held any more");
    assert!(store.verify().expect("verifies").is_clean());
}

/// A byte of a record flips. The read reports it, a collection sets the group aside and drops
/// nothing, and verify names the file.
#[test]
fn a_damaged_group_is_set_aside() {
    set_aside(ValuePlacement::HashGrouped, GcPointers::Stable);
    set_aside(ValuePlacement::HashGrouped, GcPointers::Writeback);
    set_aside(ValuePlacement::Vlog, GcPointers::Stable);
}

fn set_aside(placement: ValuePlacement, gc_pointers: GcPointers) {
    let storage = Arc::new(MemoryStorage::new());
    let keyspace = with_values(|values| {
        values.placement = placement;
        values.groups = 1;
        values.reserve = 100.0.into();
        values.gc_pointers = gc_pointers;
    });
    let store = open_with(&storage, keyspace).expect("opens");
    for turn in 0..4 {
        for k in 0..10 {
            store.put(key(k), value(k, 1000, turn)).expect("puts");
        }
        store.flush().expect("flushes");
    }
    let name = store.default_keyspace().value_usage()[0].file.clone();
    let file = storage.open(&name, Category::Value).expect("is there");
    let at = 4096 + 300;
    let mut byte = [0];
    file.read_at(at, &mut byte).expect("reads");
    file.write_at(at, &[byte[0] ^ 1]).expect("writes");
    store.collect_values().expect("the group is set aside");
    let usage = store.default_keyspace().value_usage();
    assert!(usage[0].groups[0].quarantined && usage[0].groups[0].records == 40);
    let read = |k: u8| store.get(key(k));
    let (told, whole): (Vec<u8>, Vec<u8>) = (0..10).partition(|k| read(*k).is_err());
    assert!(told.len() <= 1);
    for k in whole {
        assert_eq!(read(k).expect("whole").as_deref(), Some(&value(k, 1000, 3)[..]));
    }
    let report = store.verify().expect("verifies");
    assert!(report.damage.iter().any(|damage| damage.file == name), "{:?}", report.damage);
}

/// Deletions and small values leave a record that looks live until compactions note in the group
/// that it is dead.
#[test]
fn what_deletions_and_small_values_replace_is_freed() {
    freed(options(ValuePlacement::HashGrouped));
    freed(writing_back());
}

fn freed(keyspace: KeyspaceOptions) {
    let storage = Arc::new(MemoryStorage::new());
    let store = open_with(&storage, keyspace).expect("opens");
    for k in 0..40 {
        store.put(key(k), value(k, 2000, 0)).expect("puts");
    }
    store.flush().expect("flushes");
    let bytes = || store.default_keyspace().value_usage()[0].bytes();
    assert!(bytes() > 80_000);
    for k in 0..40 {
        match k % 2 {
            0 => store.delete(key(k)).expect("deletes"),
            _ => store.put(key(k), "small").expect("puts"),
        }
    }
    store.compact().expect("compacts");
    store.collect_values().expect("collects");
    assert_eq!(bytes(), 0);
}

/// Writes keys 0 to 39 once, then only the even keys until collections have moved the odd ones to
/// the cold stream.
fn store_with_cold_values(
    storage: &Arc<MemoryStorage>,
    mut keyspace: KeyspaceOptions,
) -> (Store, Model) {
    keyspace.values.groups = 1;
    let store = open_with(storage, keyspace).expect("opens");
    let mut model = Model::new();
    for turn in 0..6 {
        for k in (0..40).filter(|k| turn == 0 || k % 2 == 0) {
            store.put(key(k), value(k, 1000, turn)).expect("puts");
            model.insert(key(k), value(k, 1000, turn));
        }
        store.flush().expect("flushes");
        store.collect_values().expect("collects");
    }
    (store, model)
}

/// A value without updates moves to the cold stream. Gets, cursors and snapshots find it there, it
/// survives reopening without the option, and it is removed when its key is deleted.
#[test]
fn what_is_not_updated_cools() {
    is_not_updated_and_cools(cooling());
    is_not_updated_and_cools(cooling_back());
}

fn is_not_updated_and_cools(cooling: KeyspaceOptions) {
    let storage = Arc::new(MemoryStorage::new());
    let (store, model) = store_with_cold_values(&storage, cooling.clone());
    let usage = |store: &Store| store.default_keyspace().value_usage().swap_remove(0);
    let seen = usage(&store);
    let cold = seen.cold.expect("hash groups have one");
    let in_groups: u64 = seen.groups.iter().map(|group| group.cold_bytes).sum();
    assert_eq!(in_groups, cold.bytes - cold.dead_bytes, "a tag for each: {seen:?}");
    assert!(cold.bytes > 19_000, "{seen:?}");
    assert!(store.metrics().counters.value_cold_bytes_written >= cold.bytes);
    check(&store, &model, None);
    let snapshot = store.snapshot();
    assert!(store.verify().expect("verifies").is_clean());
    (0..30).for_each(|k| store.delete(key(k)).expect("deletes"));
    store.compact().expect("compacts");
    store.collect_values().expect("collects");
    check(&store, &model, Some(&snapshot));
    drop(snapshot);
    store.close().expect("closes");

    let mut warm = cooling;
    (warm.values.cold_stream, warm.values.groups) = (false, 1);
    let store = open_with(&storage, warm).expect("opens");
    (30..40).for_each(|k| store.delete(key(k)).expect("deletes"));
    store.compact().expect("compacts");
    store.collect_values().expect("collects");
    check(&store, &Model::new(), None);
    let seen = usage(&store);
    // The stream has only the slot that is being filled, and less than a slot of garbage.
    assert!(seen.bytes() < 2 * 4096, "{seen:?}");
}

/// A checkpoint has the cold stream and the groups' tags as of one moment, whatever the original
/// collects afterwards.
#[test]
fn a_checkpoint_has_its_cold_stream() {
    checkpoint_with_a_cold_stream(cooling());
    checkpoint_with_a_cold_stream(cooling_back());
}

fn checkpoint_with_a_cold_stream(cooling: KeyspaceOptions) {
    let storage = Arc::new(MemoryStorage::new());
    let (store, mut model) = store_with_cold_values(&storage, cooling.clone());
    let cold_bytes = |store: &Store| {
        let usage = store.default_keyspace().value_usage().swap_remove(0);
        usage.cold.expect("hash groups have one").bytes
    };
    assert!(cold_bytes(&store) > 19_000);
    store.checkpoint("/copy").expect("copies");
    let then = model.clone();
    // Odd keys are removed from the cold stream and other keys cool, so the slots of both are
    // reused.
    for turn in 6..12 {
        for k in (0..40).filter(|k| k % 2 == 1 || turn == 6) {
            store.put(key(k), value(k, 1000, turn)).expect("puts");
            model.insert(key(k), value(k, 1000, turn));
        }
        store.flush().expect("flushes");
        store.collect_values().expect("collects");
    }
    check(&store, &model, None);
    let copy = storage.open_sibling("/copy".as_ref()).expect("made");
    let mut keyspace = cooling;
    keyspace.values.groups = 1;
    let copy = open_with(&Arc::new(copy), keyspace).expect("opens");
    assert!(cold_bytes(&copy) > 19_000);
    check(&copy, &then, None);
    assert!(copy.verify().expect("verifies").is_clean());
    // The copy is an independent store, so it collects too.
    (0..40).for_each(|k| copy.put(key(k), value(k, 1000, 20)).expect("puts"));
    copy.compact().expect("compacts and collects");
    let newest = (0..40).map(|k| (key(k), value(k, 1000, 20))).collect();
    check(&copy, &newest, None);
    check(&store, &model, None);
    assert!(store.verify().expect("verifies").is_clean());
}

/// A byte of a cold record flips. The read reports it, the cold stream is set aside, the groups are
/// still collected, and nothing is dropped.
#[test]
fn a_damaged_cold_stream_is_set_aside() {
    damages_the_cold_stream(cooling());
    damages_the_cold_stream(cooling_back());
}

fn damages_the_cold_stream(cooling: KeyspaceOptions) {
    let storage = Arc::new(MemoryStorage::new());
    let (store, model) = store_with_cold_values(&storage, cooling);
    let name = store.default_keyspace().value_usage()[0].file.clone();
    let file = storage.open(&name, Category::Value).expect("is there");
    let needle = &model[&key(3)];
    let mut bytes = vec![0; file.len().expect("memory") as usize];
    file.read_at(0, &mut bytes).expect("reads");
    let found = bytes.windows(needle.len()).enumerate().filter(|(_, window)| window == needle);
    // Slots may also have the record from an earlier use.
    for (at, _) in found.collect::<Vec<_>>() {
        file.write_at(at as u64 + 500, &[bytes[at + 500] ^ 1]).expect("writes");
    }
    assert!(store.get(key(3)).is_err());
    for turn in 6..12 {
        for k in (0..40).filter(|k| if turn == 6 { *k != 3 } else { k % 2 == 0 }) {
            store.put(key(k), value(k, 1000, turn)).expect("puts");
        }
        store.flush().expect("flushes");
        store.collect_values().expect("what is damaged is set aside");
    }
    let usage = store.default_keyspace().value_usage().swap_remove(0);
    assert!(usage.cold.expect("is there").quarantined, "{usage:?}");
    assert!(usage.groups.iter().all(|group| !group.quarantined), "{usage:?}");
    for k in (0..40).filter(|k| *k != 3) {
        let turn = if k % 2 == 0 { 11 } else { 6 };
        assert_eq!(store.get(key(k)).expect("reads").as_deref(), Some(&value(k, 1000, turn)[..]));
    }
    assert!(store.get(key(3)).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn hash_grouped_values_match_the_model(steps in prop::collection::vec(step(), 1..200)) {
        run(ValuePlacement::HashGrouped, &steps, false);
    }

    #[test]
    fn cold_values_match_the_model(steps in prop::collection::vec(step(), 1..300)) {
        run_with(cooling(), &steps, false);
    }

    #[test]
    fn values_with_pointers_written_back_match_the_model(
        steps in prop::collection::vec(step(), 1..300),
    ) {
        run_with(writing_back(), &steps, false);
    }

    #[test]
    fn cold_values_with_pointers_written_back_match_the_model(
        steps in prop::collection::vec(step(), 1..300),
    ) {
        run_with(cooling_back(), &steps, false);
    }

    #[test]
    fn logged_values_match_the_model(steps in prop::collection::vec(step(), 1..200)) {
        run(ValuePlacement::Vlog, &steps, false);
    }

    #[test]
    fn placements_change_under_the_model(steps in prop::collection::vec(step(), 1..200)) {
        run(ValuePlacement::Inline, &steps, true);
    }
}

/// Once, a collection had moved values of a log, and their new pointers were still in the memtable
/// when the placement changed. Compactions rewrote all tables, the log was removed, and the
/// memtable's pointers led to nothing.
#[test]
fn a_value_file_stays_while_a_memtable_points_to_it() {
    let storage = Arc::new(MemoryStorage::new());
    let mut log = options(ValuePlacement::Vlog);
    unstable::numbers_mut(&mut log).l0_trigger = 4;
    let store = open_with(&storage, log).expect("opens");
    let mut model = Model::new();
    for turn in 0..4 {
        for k in 0..40 {
            store.put(key(k), value(k, 1000, turn)).expect("puts");
            model.insert(key(k), value(k, 1000, turn));
        }
        store.flush().expect("flushes");
    }
    store.collect_values().expect("collects");
    let mut inline = options(ValuePlacement::Inline);
    unstable::numbers_mut(&mut inline).l0_trigger = 2;
    store.open_keyspace("default", Some(inline.clone())).expect("changes");
    while store.run_one_job().expect("compacts") {}
    check(&store, &model, None);
    store.flush().expect("flushes what was moved");
    check(&store, &model, None);
    store.compact().expect("compacts");
    check(&store, &model, None);
    assert!(store.default_keyspace().value_usage().is_empty(), "nothing points to it any more");
    store.close().expect("closes");
    check(&open(&storage, None), &model, None);
}

/// A flush that needs room waits until compactions have placed their values. On two cores,
/// compactions wait until a flush is done. Once, while values moved to another placement, the two
/// waited for each other for ever.
#[test]
fn flushes_and_compactions_that_place_values_do_not_wait_for_each_other() {
    let storage = Arc::new(MemoryStorage::new());
    let keyspace = |placement| {
        let mut keyspace = options(placement);
        unstable::numbers_mut(&mut keyspace).l0_trigger = 100;
        (keyspace.l0_slowdown_runs, keyspace.l0_stop_runs) = (1000, 2000);
        keyspace
    };
    let options = Options::default()
        .background(Background::Threads(2))
        .memory_budget_bytes(32 << 20)
        .keyspace(keyspace(ValuePlacement::Inline));
    let store = Store::open_on(storage, options).expect("opens");
    for k in 0..20_000u32 {
        store.put(format!("old{k:06}"), vec![k as u8; 1000]).expect("puts");
    }
    store.open_keyspace("default", Some(keyspace(ValuePlacement::HashGrouped))).expect("changes");
    std::thread::scope(|scope| {
        let compaction = scope.spawn(|| store.compact());
        let mut turn = 0;
        while !compaction.is_finished() {
            turn += 1;
            (0..10).for_each(|k| store.put(key(k), value(k, 2000, turn)).expect("puts"));
            store.flush().expect("flushes");
        }
        compaction.join().expect("no panic").expect("compacts");
    });
    assert_eq!(store.get("old000300").expect("reads").as_deref(), Some(&[44; 1000][..]));
}

/// Once, a compaction left a tree of one table unchanged. So after a change of placement the old
/// value file stayed, and collections free nothing in such a file.
#[test]
fn a_compaction_places_the_values_of_a_tree_that_is_one_table() {
    let storage = Arc::new(MemoryStorage::new());
    let mut model = Model::new();
    for placement in [ValuePlacement::HashGrouped, ValuePlacement::Inline, ValuePlacement::Vlog] {
        let store = open(&storage, Some(placement));
        if model.is_empty() {
            for k in 0..40 {
                store.put(key(k), value(k, 1000, 0)).expect("puts");
                model.insert(key(k), value(k, 1000, 0));
            }
        }
        store.compact().expect("compacts");
        assert_eq!(unstable::shape(store.default_keyspace()).tables().count(), 1);
        let usage = store.default_keyspace().value_usage();
        let files: Vec<_> = usage.iter().map(|file| (file.placement, file.retired)).collect();
        let expected = (placement != ValuePlacement::Inline).then_some((placement, false));
        assert_eq!(files, Vec::from_iter(expected));
        let compacted = store.metrics().counters.compactions;
        store.compact().expect("compacts");
        assert_eq!(store.metrics().counters.compactions, compacted, "all is in its place");
        check(&store, &model, None);
        store.close().expect("closes");
    }
}

/// A newer version hides an older one, whose record is then collected. The older version must
/// continue to hide still older versions in compactions that do not include the newer one, even
/// after the placement has changed and the file is removed. Once, such a compaction failed: "a
/// pointer to a retired file leads nowhere".
#[test]
fn a_hidden_version_outlives_its_value_file() {
    let storage = Arc::new(MemoryStorage::new());
    let keyspace = |placement, size_ratio| {
        let mut keyspace = options(placement);
        keyspace.policy = "tiering".into();
        (
            unstable::numbers_mut(&mut keyspace).l0_trigger,
            unstable::numbers_mut(&mut keyspace).size_ratio,
        ) = (2, size_ratio);
        keyspace
    };
    let store = open_with(&storage, keyspace(ValuePlacement::HashGrouped, 10)).expect("opens");
    let mut model = Model::new();
    let mut write = |turn: usize| {
        for k in 0..40 {
            store.put(key(k), value(k, 1000, turn)).expect("puts");
            model.insert(key(k), value(k, 1000, turn));
        }
        store.flush().expect("flushes");
        model.clone()
    };
    let settle = || while store.run_one_job().expect("works") {};
    for turn in 0..4 {
        write(turn);
        settle();
    }
    assert_eq!(unstable::shape(store.default_keyspace()).level(1).runs().len(), 2);
    let newest = write(4);
    store.collect_values().expect("collects");
    for placement in [ValuePlacement::Inline, ValuePlacement::Vlog, ValuePlacement::HashGrouped] {
        store.open_keyspace("default", Some(keyspace(placement, 2))).expect("changes");
        settle();
        check(&store, &newest, None);
        assert!(store.verify().expect("verifies").is_clean());
    }
    store.compact().expect("compacts");
    check(&store, &newest, None);
    assert!(store.verify().expect("verifies").is_clean());
}

/// A compaction drops a deletion, a version whose value is in an older file, and a version whose
/// value an earlier compaction has moved to the present file. Nothing in the group of the last
/// version shows that it is dead. Once, a collection that trusted the group brought this version
/// back (found by the soak test).
#[test]
fn a_version_behind_one_in_another_file_does_not_come_back() {
    const KEYS: u32 = 1_000;
    let storage = Arc::new(MemoryStorage::new());
    let reopen = |placement: ValuePlacement, base_bytes: u64| {
        let mut keyspace = options(placement);
        keyspace.values.gc_pointers = match placement {
            ValuePlacement::HashGrouped => GcPointers::Writeback,
            _ => GcPointers::Stable,
        };
        keyspace.write_buffer_bytes = 2 << 20;
        // Nothing is collected before the end.
        keyspace.values.capacity_bytes = 64 << 20;
        unstable::numbers_mut(&mut keyspace).base_bytes = base_bytes;
        (
            unstable::numbers_mut(&mut keyspace).l0_trigger,
            unstable::numbers_mut(&mut keyspace).l0_share_percent,
        ) = (3, 0);
        let options = Options::default()
            .background(Background::Manual)
            .memory_budget_bytes(8 << 20)
            .keyspace(keyspace);
        Store::open_on(Arc::<MemoryStorage>::clone(&storage), options).expect("opens")
    };
    let put_all = |store: &Store, turn: usize| {
        for at in 0..KEYS {
            store.put(format!("key{at:05}"), value(at as u8, 500, turn)).expect("put");
        }
        store.flush().expect("flush");
    };
    let (large, small) = (1 << 30, 4 << 10);
    let store = reopen(ValuePlacement::Vlog, small);
    put_all(&store, 0);
    store.compact().expect("below level 1");
    store.close().expect("close");
    let store = reopen(ValuePlacement::Vlog, large);
    (1..=3).for_each(|turn| put_all(&store, turn));
    while store.run_one_job().expect("a compact into level 1") {}
    put_all(&store, 4);
    for at in 0..KEYS {
        store.delete(format!("key{at:05}")).expect("delete");
    }
    store.close().expect("close");
    // Level 1 is too large now, so it is compacted into the next level, and its values move. Level
    // 0 waits for more tables.
    let store = reopen(ValuePlacement::HashGrouped, small);
    while store.run_one_job().expect("a compaction below level 0") {}
    assert!(store.metrics().counters.value_bytes_written > 0, "values came to the new file");
    assert_eq!(store.default_keyspace().value_usage().len(), 2, "and others did not");
    store.compact().expect("nothing is left");
    store.collect_values().expect("nothing comes back");
    check(&store, &Model::new(), None);
}
