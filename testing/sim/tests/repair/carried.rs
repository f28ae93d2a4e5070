//! Tables that a repair carries over as they are: when it may, what it then writes, and that the
//! new store continues with them as the old one would have.

use std::path::Path;
use std::sync::Arc;

use runstone::seeded::{self, Bug};
use runstone::storage::{Category, Storage};
use runstone::unstable;
use runstone::{
    Background, Compression, KeyspaceOptions, Options, RepairBasis, RepairOptions, RepairReport,
    Store, ValuePlacement,
};
use runstone_fault_storage::{Fault, FaultKind, SimStorage};
use runstone_policy::registry::POLICIES;
use runstone_sim::found::panics;
use runstone_sim::random::for_seeds;
use runstone_sim::workload::{
    Operation, Run, cooled, early, generate, keyspaces, logless, options_for, placed,
    without_operands, written_back,
};

use crate::{Left, content, files, left, repair};

/// How values and the log are kept.
const PLACEMENTS: [&str; 6] =
    ["inline", "early log of values", "hash groups", "cold stream", "written back", "no log"];

fn make(policy: &str, placement: &str, seed: u64) -> Left {
    let own = options_for(policy, seed, Background::Manual);
    let mut operations = generate(seed, 120);
    if seed.is_multiple_of(2) {
        // If values are separated, the content of the log is merged with all tables.
        operations.extend([Operation::Collect, Operation::Flush]);
    }
    match placement {
        "inline" => left(seed, placed(own, ValuePlacement::Inline), &operations),
        "early log of values" => left(seed, early(own), &without_operands(operations)),
        "hash groups" => left(seed, placed(own, ValuePlacement::HashGrouped), &operations),
        "cold stream" => left(seed, cooled(own), &operations),
        "written back" => left(seed, written_back(own), &without_operands(operations)),
        _ => left(seed, logless(own, ValuePlacement::Inline), &operations),
    }
}

/// Removes `CURRENT` and repairs. Returns whether all tables were carried over.
fn check(left: &Left, placement: &str, seed: u64, place: &str) -> bool {
    let damaged = left.storage.process_crash();
    damaged.remove("CURRENT").expect("it is there");
    let (report, target) = repair(&damaged, &left.options, false);
    if report.basis != RepairBasis::Manifest {
        // If there is a table that the manifest does not name, the manifest's end may be missing.
        return false;
    }
    assert_eq!(report.doubts, [], "{place}");
    let open = || {
        let store = Store::open_on(Arc::new(target.clone()), left.options.clone())?;
        keyspaces(&store)?;
        Ok(store)
    };
    let mut run = Run::new(open().expect("it opens"), left.oracle.clone()).with(&left.options);
    run.apply(&Operation::Scan, open).unwrap_or_else(|error| panic!("{place}: {error}"));
    let mut more = generate(seed ^ 0x5a11, 60);
    if ["early log of values", "written back"].contains(&placement) {
        more = without_operands(more);
    }
    let last = [Operation::Compact, Operation::Collect, Operation::Reopen, Operation::Scan];
    for operation in more.iter().chain(&last) {
        run.apply(operation, open).unwrap_or_else(|error| panic!("{place}: {error}"));
    }
    let store = run.store.take().expect("it is open");
    let verified = store.verify().expect("it can be verified");
    assert!(verified.is_clean(), "{place}: {verified:#?}");
    store.close().expect("it closes");
    assert_eq!(content(&target, &left.options), *run.oracle.state(), "{place}");
    report.carried_tables == report.tables && report.tables > 0
}

/// A store that has lost only `CURRENT` is the same store after a repair: nothing is in doubt, and
/// more writes, compactions, collections and opens keep it right. With each policy and placement,
/// the tables of some such store are carried over.
#[test]
fn a_store_without_current_goes_on_with_its_tables() {
    for policy in POLICIES {
        for placement in PLACEMENTS {
            let name = policy.name();
            let mut carried = 0;
            for_seeds(4, |seed| {
                let left = make(name, placement, seed);
                let place = format!("{name}, {placement}, seed {seed}");
                carried += u32::from(check(&left, placement, seed, &place));
            });
            assert!(carried > 0, "{name}, {placement}: no tables are carried over");
        }
    }
}

fn small() -> Options {
    let mut keyspace = KeyspaceOptions::default();
    keyspace.write_buffer_bytes = 64 << 10;
    keyspace.compression = vec![Compression::None];
    let shape = unstable::numbers_mut(&mut keyspace);
    (shape.table_bytes, shape.base_bytes) = (64 << 10, 128 << 10);
    Options::default()
        .background(Background::Manual)
        .memory_budget_bytes(8 << 20)
        .wal_segment_bytes(64 << 10)
        .keyspace(keyspace)
        .seed(1)
}

fn key(number: u32) -> String {
    format!("key{number:06}")
}

fn value(number: u32) -> String {
    format!("{number}-{}", "v".repeat(200))
}

/// Some tables, and a log with a put and two kinds of delete.
fn filled(storage: &SimStorage, keys: u32) -> Store {
    let store = Store::open_on(Arc::new(storage.clone()), small()).expect("opens");
    for number in 0..keys {
        store.put(key(number), value(number)).expect("puts");
    }
    store.compact().expect("compacts");
    store.put(key(1), "newest").expect("puts");
    store.delete(key(2)).expect("deletes");
    store.default_keyspace().delete_range(key(3)..key(5)).expect("deletes");
    store.sync().expect("syncs");
    store
}

fn expected(number: u32) -> Option<String> {
    match number {
        1 => Some("newest".to_string()),
        2..5 => None,
        _ => Some(value(number)),
    }
}

fn get(store: &Store, number: u32) -> Option<String> {
    let found = store.get(key(number)).expect("reads")?;
    Some(String::from_utf8(found.to_vec()).expect("text"))
}

/// Repairs into another directory of the same disk, where files can be linked.
fn repair_beside(from: &SimStorage) -> Result<(RepairReport, Arc<dyn Storage>), runstone::Error> {
    let (source, mut made): (Arc<dyn Storage>, _) = (Arc::new(from.clone()), None);
    let target = || {
        let target = from.create_sibling(Path::new("/repaired"))?;
        made = Some(Arc::clone(&target));
        Ok(target)
    };
    let report = Store::repair_on(&source, target, RepairOptions::default().store(small()))?;
    Ok((report, made.expect("it was asked for")))
}

/// One flipped bit in one of many tables: only that table is written again, and the others are
/// links.
#[test]
fn a_flipped_bit_costs_the_bytes_of_its_table() {
    let storage = SimStorage::new(1);
    filled(&storage, 20_000).close().expect("closes");
    let tables = storage.list().expect("lists").into_iter();
    let mut tables: Vec<_> = tables.filter(|file| file.name.ends_with(".table")).collect();
    tables.sort_by(|one, two| one.name.cmp(&two.name));
    let all: u64 = tables.iter().map(|file| file.len_bytes).sum();
    let hit = &tables[tables.len() / 2];
    assert!(tables.len() > 30 && all > 30 * hit.len_bytes, "{} tables", tables.len());
    storage.flip_bit(&hit.name, hit.len_bytes / 2, 0).expect("flips");
    let (report, target) = repair_beside(&storage).expect("repairs");
    assert_eq!(report.carried_tables, report.tables - 1);
    assert_eq!(report.lost.len(), 1);
    let written = target.counters().snapshot(Category::Table).written_bytes;
    // The log's few entries have a table of their own, which exists twice for a while.
    let most = hit.len_bytes + (16 << 10);
    assert!(written > hit.len_bytes / 2 && written < most, "{written} of {}", hit.len_bytes);
    let store = Store::open_on(target, small()).expect("opens");
    let is_listed = |number| report.doubts_of("default", key(number).as_bytes()).next().is_some();
    let listed = (0..20_000).filter(|number| is_listed(*number)).count();
    assert!((1..100).contains(&listed), "{listed} keys are in doubt: {report:#?}");
    for number in (0..20_000).filter(|number| !is_listed(*number)) {
        assert_eq!(get(&store, number), expected(number), "key {number}");
    }
    store.compact().expect("compacts");
    assert!(store.verify().expect("verifies").is_clean());
}

/// Once, a repair held all tables open together. A process that may open fewer files took the
/// others for lost. Now a repair opens a few at a time, whether it merges or carries over.
#[test]
fn a_repair_opens_few_files_at_a_time() {
    for with_manifest in [true, false] {
        let storage = SimStorage::new(1);
        filled(&storage, 20_000).close().expect("closes");
        let names = storage.list().expect("lists").into_iter().map(|file| file.name);
        let is_gone = |name: &String| match with_manifest {
            true => name == "CURRENT",
            false => name.ends_with(".manifest"),
        };
        names.filter(is_gone).for_each(|name| storage.remove(&name).expect("removes"));
        let storage = storage.process_crash();
        storage.set_most_handles(Some(24));
        let (report, target) = repair_beside(&storage).expect("repairs");
        assert_eq!(report.carried_tables > 0, with_manifest);
        assert_eq!(report.lost.len(), 1, "{:#?}", report.lost);
        assert!(report.tables > 30, "{} tables", report.tables);
        storage.set_most_handles(None);
        let store = Store::open_on(target, small()).expect("opens");
        for number in 0..20_000 {
            assert_eq!(get(&store, number), expected(number), "key {number}");
        }
    }
}

/// The new store may drop all files that it shares with the damaged one.
#[test]
fn the_damaged_store_keeps_its_files_whatever_the_new_one_does() {
    let storage = SimStorage::new(1);
    filled(&storage, 2_000).close().expect("closes");
    storage.remove("CURRENT").expect("removes");
    let before = files(&storage);
    let (report, target) = repair_beside(&storage).expect("repairs");
    assert_eq!(report.carried_tables, report.tables);
    let store = Store::open_on(target, small()).expect("opens");
    for number in 0..2_000 {
        assert_eq!(get(&store, number), expected(number), "key {number}");
        store.put(key(number), "over").expect("puts");
    }
    store.compact().expect("compacts");
    store.default_keyspace().delete_range(key(0)..).expect("deletes");
    store.compact().expect("compacts");
    store.close().expect("closes");
    assert_eq!(files(&storage), before);
}

/// Wherever a repair is cut short, by a power loss or an error, it leaves either no store or a
/// whole one. Another repair of the damaged store then gives all of it.
#[test]
fn a_repair_that_is_cut_short_leaves_no_store() {
    let storage = SimStorage::new(1);
    filled(&storage, 1_500).close().expect("closes");
    // All that is there is durable.
    let (storage, _) = storage.power_cut(1);
    let files_there = storage.list().expect("lists").into_iter();
    let table = files_there.filter(|file| file.name.ends_with(".table"));
    let table = table.min_by(|one, two| one.name.cmp(&two.name)).expect("there is one");
    storage.flip_bit(&table.name, table.len_bytes / 2, 0).expect("flips");
    let copy = storage.process_crash();
    let before = files(&copy);
    let (whole, _) = repair_beside(&copy).expect("repairs");
    assert!(whole.carried_tables > 0 && whole.carried_tables < whole.tables);
    for at_op in 0..copy.ops() {
        for kind in [FaultKind::Crash, FaultKind::Eio, FaultKind::NoSpace] {
            let damaged = storage.process_crash();
            damaged.inject(Fault { at_op, kind, sticky: false, category: None });
            let outcome = repair_beside(&damaged);
            if damaged.fired().is_empty() {
                assert!(outcome.is_ok() && kind == FaultKind::NoSpace);
                continue;
            }
            let (after, _) = damaged.power_cut(at_op);
            let left = after.open_sibling(Path::new("/repaired"));
            let files_left = left.iter().flat_map(|left| left.list().expect("lists"));
            let names: Vec<String> = files_left.map(|file| file.name).collect();
            let has = |wanted: &str| names.iter().any(|name| name == wanted);
            // The mark is removed last: while it exists, the directory is not a store yet.
            let is_store = has("CURRENT") && !has("RESTORING");
            assert!(is_store || outcome.is_err() || kind != FaultKind::Crash, "{kind:?} {at_op}");
            assert!(files(&after) == before, "{kind:?} at {at_op}: the damaged store has changed");
            if let Some(left) = left.filter(|_| is_store) {
                let store = Store::open_on(Arc::new(left), small()).expect("it is whole");
                assert!(store.verify().expect("verifies").is_clean(), "{kind:?} at {at_op}");
                assert_eq!(get(&store, 1), expected(1));
                continue;
            }
            let (report, _) = repair(&after, &small(), false);
            assert_eq!((report.entries, report.lost), (whole.entries, whole.lost.clone()));
        }
    }
}

/// Without the deletes of the log, entries in the tables below come back.
#[test]
fn a_repair_that_forgets_deletes_is_found() {
    let finds = |seed| {
        let check_one = || {
            let left = make("leveling", "inline", seed);
            check(&left, "inline", seed, "with a bug");
        };
        panics(|| seeded::with(Bug::RepairForgetsDeletes, check_one))
    };
    assert!((1..40).any(finds));
}

/// A read that fails once costs no table. Once, a table that could not be opened was reported as
/// lost although it was carried over a moment later. Its numbers and its range deletes were
/// ignored.
#[test]
fn one_failed_read_loses_no_table() {
    for seed in 0..3 {
        let placement = if seed == 2 { "hash groups" } else { "inline" };
        let left = make("leveling", placement, seed);
        left.storage.remove("CURRENT").expect("it is there");
        let mut reads = 0..1;
        while let Some(at_op) = reads.next() {
            let damaged = left.storage.process_crash();
            let category = Some(Category::Table);
            let kind = FaultKind::EioOnRead;
            damaged.inject(Fault { at_op, kind, sticky: false, category });
            let target = SimStorage::new(1);
            let source: Arc<dyn Storage> = Arc::new(damaged.clone());
            let wanted = RepairOptions::default().store(left.options.clone());
            let made = Store::repair_on(&source, || Ok(Arc::new(target.clone())), wanted);
            reads.end = reads.end.max(damaged.reads());
            let Ok(report) = made else { continue };
            let lost: Vec<_> = report.lost.iter().map(|one| &one.file).collect();
            let is_table = |name: &&&String| name.ends_with(".table");
            assert_eq!(lost.iter().find(is_table), None, "seed {seed}, read {at_op}");
            let found = content(&target, &left.options);
            if report.doubts.is_empty() {
                assert_eq!(found, *left.oracle.state(), "seed {seed}, read {at_op}");
            }
        }
        assert!(reads.end > 100, "seed {seed}");
    }
}
