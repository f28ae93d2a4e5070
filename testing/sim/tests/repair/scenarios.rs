//! Single cases of repairs, each with the hazard that it shows.

use std::sync::Arc;

use runstone::storage::Storage;
use runstone::{
    Background, DoubtReason, Error, KeyspaceOptions, Options, RepairBasis, RepairOptions,
    RepairReport, Store, ValueOptions, ValuePlacement,
};
use runstone_fault_storage::SimStorage;

fn options() -> Options {
    Options::default()
        .background(Background::Manual)
        .memory_budget_bytes(8 << 20)
        .wal_segment_bytes(64 << 10)
        .seed(1)
}

fn open(storage: &SimStorage) -> Store {
    Store::open_on(Arc::new(storage.clone()), options()).expect("opens")
}

fn names(storage: &SimStorage, extension: &str) -> Vec<String> {
    let files = storage.list().expect("lists").into_iter().map(|file| file.name);
    let mut names: Vec<String> = files.filter(|name| name.ends_with(extension)).collect();
    names.sort();
    names
}

fn repaired(from: &SimStorage, wanted: RepairOptions) -> Result<(RepairReport, Store), Error> {
    let (source, target): (Arc<dyn Storage>, _) = (Arc::new(from.clone()), SimStorage::new(9));
    let wanted = wanted.store(options());
    let report = Store::repair_on(&source, || Ok(Arc::new(target.clone())), wanted)?;
    Ok((report, open(&target)))
}

fn value(store: &Store, key: &str) -> Option<String> {
    let found = store.get(key).expect("reads")?;
    Some(String::from_utf8(found.to_vec()).expect("text"))
}

/// Many values, some in each table, and a log with the newest.
fn filled(storage: &SimStorage) -> Store {
    let store = open(storage);
    for round in 0..4 {
        for key in 0..500 {
            store.put(format!("key{key:04}"), format!("{round}-{key}")).expect("puts");
        }
        store.flush().expect("flushes");
    }
    store.put("logged", "newest").expect("puts");
    store.sync().expect("syncs");
    store
}

#[test]
fn a_healthy_store_and_an_open_one_are_left_alone() {
    let storage = SimStorage::new(1);
    let store = filled(&storage);
    let refused = repaired(&storage, RepairOptions::default()).expect_err("it is open");
    assert!(refused.is_in_use(), "{refused}");
    store.close().expect("closes");
    let (report, _) = repaired(&storage, RepairOptions::default()).expect("is healthy");
    assert!(report.is_healthy && report.keyspaces.is_empty());
}

#[test]
fn what_is_no_store_and_a_target_that_is_not_empty_are_refused() {
    let storage = SimStorage::new(1);
    let refused = repaired(&storage, RepairOptions::default()).expect_err("nothing is there");
    assert!(refused.is_not_found(), "{refused}");
    filled(&storage).close().expect("closes");
    storage.remove("CURRENT").expect("removes");
    let source: Arc<dyn Storage> = Arc::new(storage.clone());
    let target = SimStorage::new(2);
    filled(&target).close().expect("closes");
    let repair = || {
        let to = || Ok(Arc::new(target.clone()) as Arc<dyn Storage>);
        Store::repair_on(&source, to, RepairOptions::default())
    };
    assert!(matches!(repair(), Err(Error::ForeignFiles { .. })));
    assert_eq!(value(&open(&target), "logged").as_deref(), Some("newest"));
}

/// The manifest records everything that `CURRENT` does, so nothing is in doubt.
#[test]
fn without_current_nothing_is_lost() {
    let storage = SimStorage::new(1);
    filled(&storage).close().expect("closes");
    storage.remove("CURRENT").expect("removes");
    let (report, store) = repaired(&storage, RepairOptions::default()).expect("repairs");
    assert_eq!((report.basis, &report.doubts[..]), (RepairBasis::Manifest, &[][..]));
    // The tables contain older versions of the 500 keys too.
    assert_eq!((report.entries, report.carried_tables), (4 * 500 + 1, report.tables));
    assert_eq!(value(&store, "key0007").as_deref(), Some("3-7"));
    assert_eq!(value(&store, "logged").as_deref(), Some("newest"));
}

/// Each table says which keyspace it belongs to. The keyspace's name and options are lost.
#[test]
fn without_a_manifest_keyspaces_stay_apart() {
    let storage = SimStorage::new(1);
    let store = filled(&storage);
    let other = store.open_keyspace("other", None).expect("opens");
    other.put("key0007", "of the other").expect("puts");
    other.put("only", "here").expect("puts");
    store.close().expect("closes");
    names(&storage, ".manifest").iter().for_each(|name| storage.remove(name).expect("removes"));
    let (report, store) = repaired(&storage, RepairOptions::default()).expect("repairs");
    assert_eq!(report.basis, RepairBasis::Tables);
    assert_eq!(report.keyspaces, ["default", "keyspace-1"]);
    assert!(report.doubts.iter().all(|doubt| doubt.reason == DoubtReason::MayBeBack));
    assert_eq!(value(&store, "key0007").as_deref(), Some("3-7"));
    assert_eq!(value(&store, "only"), None);
    let other = store.keyspace("keyspace-1").expect("is there");
    assert_eq!(other.get("key0007").expect("reads").as_deref(), Some(&b"of the other"[..]));
}

/// One flipped bit costs the keys of its block, and the report names no others.
#[test]
fn a_damaged_block_costs_its_keys_only() {
    let storage = SimStorage::new(1);
    let store = filled(&storage);
    store.compact().expect("compacts");
    store.close().expect("closes");
    let tables = names(&storage, ".table");
    storage.flip_bit(&tables[0], 100, 0).expect("flips");
    let (report, store) = repaired(&storage, RepairOptions::default()).expect("repairs");
    let is_listed = |key: &str| report.doubts_of("default", key.as_bytes()).next().is_some();
    let all = (0..500).map(|key| format!("key{key:04}"));
    let listed = all.clone().filter(|key| is_listed(key)).count();
    assert!((1..400).contains(&listed), "{listed} of 500, {report:#?}");
    for (number, key) in (0..).zip(all).filter(|(_, key)| !is_listed(key)) {
        assert_eq!(value(&store, &key), Some(format!("3-{number}")));
    }
}

/// A range delete hides keys outside the bounds of its table, so the loss of that table puts all
/// of them in doubt.
#[test]
fn a_lost_table_with_a_range_delete_puts_all_behind_it_in_doubt() {
    let storage = SimStorage::new(1);
    let store = filled(&storage);
    let before = names(&storage, ".table");
    store.default_keyspace().delete_range("key0100"..).expect("deletes");
    store.flush().expect("flushes");
    let table = names(&storage, ".table").into_iter().find(|name| !before.contains(name));
    store.close().expect("closes");
    storage.remove(&table.expect("a new one")).expect("removes");
    let (report, store) = repaired(&storage, RepairOptions::default()).expect("repairs");
    assert!(value(&store, "key0300").is_some(), "it is back");
    assert!(report.doubts_of("default", b"key0300").next().is_some());
    assert_eq!(report.doubts_of("default", b"key0099").count(), 0);
}

/// The writes after a gap are used. Writes that a recovery set aside come back on request.
#[test]
fn a_log_kept_aside_comes_back_on_request() {
    let storage = SimStorage::new(1);
    let store = open(&storage);
    for key in 0..2_000 {
        store.put(format!("key{key:04}"), "before").expect("puts");
    }
    let left = storage.process_crash();
    left.flip_bit(&names(&left, ".wal")[0], 20_000, 0).expect("flips");
    let store = open(&left);
    let lost =
        (0..2_000).map(|key| format!("key{key:04}")).filter(|key| value(&store, key).is_none());
    let lost: Vec<String> = lost.collect();
    assert!(lost.len() > 500, "the gap ends the log");
    let (newer, last) = (&lost[lost.len() - 1], &lost[lost.len() - 2]);
    store.put(newer, "after").expect("puts");
    store.close().expect("closes");
    assert!(!names(&left, ".wal").is_empty(), "it is set aside");
    let healthy = repaired(&left, RepairOptions::default()).expect("is healthy");
    assert!(healthy.0.is_healthy);
    let wanted = RepairOptions::default().lost_log(true);
    let (report, store) = repaired(&left, wanted).expect("repairs");
    assert_eq!(value(&store, newer).as_deref(), Some("after"), "it was written since");
    assert_eq!(value(&store, last).as_deref(), Some("before"));
    let doubts: Vec<DoubtReason> =
        report.doubts_of("default", last.as_bytes()).map(|doubt| doubt.reason).collect();
    assert_eq!(doubts, [DoubtReason::FromLostLog]);
    assert_eq!(report.doubts_of("default", b"key0000").count(), 0);
}

/// Without a layout, values are found by the key and the sequence number in their records.
#[test]
fn without_a_manifest_separated_values_are_found() {
    for placement in [ValuePlacement::Vlog, ValuePlacement::HashGrouped] {
        let values = ValueOptions::default().placement(placement).separate_at(10);
        let keyspace = KeyspaceOptions::default().values(values.slot_bytes(4096));
        let storage = SimStorage::new(1);
        let made = options().keyspace(keyspace);
        let store = Store::open_on(Arc::new(storage.clone()), made).expect("opens");
        let large = |key: u32, round: u32| format!("{round}-{key}-{}", "v".repeat(3_000));
        for round in 0..3 {
            for key in 0..100 {
                store.put(format!("key{key:04}"), large(key, round)).expect("puts");
            }
            store.put("huge", "h".repeat(20_000)).expect("puts");
            store.flush().expect("flushes");
            store.collect_values().expect("collects");
        }
        store.close().expect("closes");
        let manifests = names(&storage, ".manifest");
        manifests.iter().for_each(|name| storage.remove(name).expect("removes"));
        let (report, store) = repaired(&storage, RepairOptions::default()).expect("repairs");
        let is_lost = |reason: DoubtReason| reason == DoubtReason::ValueLost;
        assert!(!report.doubts.iter().any(|doubt| is_lost(doubt.reason)), "{report:#?}");
        for key in 0..100 {
            assert_eq!(value(&store, &format!("key{key:04}")), Some(large(key, 2)));
        }
        assert_eq!(value(&store, "huge").map(|value| value.len()), Some(20_000));
    }
}
