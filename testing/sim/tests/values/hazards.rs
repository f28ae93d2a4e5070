//! The hazards of separated values. Each is a test that holds without a bug and that finds the bug
//! its rule prevents (`runstone::seeded`).
//!
//! | hazard | bugs | found by |
//! |---|---|---|
//! | a snapshot needs an older version | `CollectionForgetsSnapshots` | `compaction/policies.rs` |
//! | collection against a put | `CollectionWithoutClosing` | a put between copy and edit |
//! | | `RelocationOverwritesNewer` | a put between look-up and relocation |
//! | | `CheckedBeforeTheLock` | a put and a range delete after that |
//! | | `WrittenKeysForgotten` | a put and its flush there |
//! | | `RelocationsTakenForWrites` | two collections between flushes |
//! | | `VersionsNotMarked` | deletions and small values before a collection |
//! | collection against a compaction | `CollectionBesideInstall` | a collection inside an install |
//! | | `GroupTrustedTooEarly` | a deletion from before the value file |
//! | moved values under a snapshot | `OldSlotsFreedUnderSnapshots` | a snapshot across one |
//! | a pointer into a slot used again | `SlotsFreedEarly` | a collection before the read |
//! | | `CursorDoesNotRegister` | a collection under a cursor |
//! | | `ChecksumsWithoutGeneration` | writes that the disk lost |
//! | a cached value of a slot used again | `ValuesCachedByPlace` | reads between collections |
//! | a get against collection | `GetDoesNotLookAgain` | a collection inside a get |
//! | a value durable, its write lost | `PointersLoggedBeforeValues` | crashes |
//! | | `FlushOutrunsTheLog` | power cuts |
//! | a crash inside collection | `CollectionNotSynced` | power cuts |
//! | | `SlotsFreedBeforeTheEdit` | crashes |
//! | | `RelocationsNotSynced` | power cuts |
//! | a torn append | `AppendsNotSynced` | power cuts |
//! | | `RecordsUnchecked` | flipped bytes |
//! | the table of segments | `CollectionNotLogged` | model, with reopening |
//! | a failed sync | `FailedSyncIgnored` | failing syncs of the value file |
//! | | `UnknownSlotsFreed` | a failing sync of the manifest |
//! | a tag without its cold record | `TagsLoggedBeforeColdRecords` | crashes |
//! | | `TagsPublishedFirst` | a get between the two |
//! | a cold record without its tag | `DroppedTagsForgotten` | space |

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use runstone::policy::custom;
use runstone::seeded::{self, Bug, Waypoint};
use runstone::storage::{Category, MemoryStorage, Storage};
use runstone::unstable;
use runstone::{
    Background, Error, GcPointers, KeyspaceOptions, Options, ReadOptions, Store, ValueOptions,
    ValuePlacement,
};
use runstone_fault_storage::{Fault, FaultKind, SimStorage};
use runstone_sim::crash::{Crash, count_operations, crash_at, judge, run_until_error};
use runstone_sim::found::panics;
use runstone_sim::oracle::Oracle;
use runstone_sim::workload::{Run, cooled, generate, keyspaces, options, placed, written_back};

/// Seeds that pass without a bug, as `crash/every_operation.rs` shows.
const SEEDS: [u64; 3] = [11, 12, 13];
const OPERATIONS: usize = 200;
const SLOT_BYTES: u64 = 4096;

/// The check holds without a bug and fails with it.
fn holds_and_finds(bug: Bug, check: impl Fn()) {
    check();
    assert!(panics(|| seeded::with(bug, &check)), "{bug:?} is not found");
}

/// Values are collected only when a test asks for it.
fn keyspace_options(placement: ValuePlacement) -> KeyspaceOptions {
    let values = ValueOptions::default()
        .placement(placement)
        .separate_at(100)
        .groups(1)
        .slot_bytes(SLOT_BYTES as u32)
        .reserve(100.0)
        .vlog_chunk_bytes(2 * SLOT_BYTES);
    KeyspaceOptions::default().write_buffer_bytes(64 << 10).values(values)
}

fn open(storage: &Arc<MemoryStorage>, placement: ValuePlacement) -> Arc<Store> {
    open_with(storage, keyspace_options(placement))
}

/// Hash groups whose collections move values without updates to the cold stream.
fn open_cooling() -> Arc<Store> {
    let mut keyspace = keyspace_options(ValuePlacement::HashGrouped);
    keyspace.values.cold_stream = true;
    open_with(&Arc::default(), keyspace)
}

/// Hash groups whose collections write pointers.
fn writing_back() -> KeyspaceOptions {
    let mut keyspace = keyspace_options(ValuePlacement::HashGrouped);
    keyspace.values.gc_pointers = GcPointers::Writeback;
    keyspace
}

fn open_writing_back() -> Arc<Store> {
    open_with(&Arc::default(), writing_back())
}

fn open_with(storage: &Arc<MemoryStorage>, keyspace: KeyspaceOptions) -> Arc<Store> {
    let options = Options::default()
        .background(Background::Manual)
        .memory_budget_bytes(8 << 20)
        .keyspace(keyspace);
    let storage: Arc<dyn Storage> = Arc::<MemoryStorage>::clone(storage);
    Arc::new(Store::open_on(storage, options).expect("fresh"))
}

fn key(number: u64) -> String {
    format!("key{number:03}")
}

fn value(turn: u64) -> Vec<u8> {
    (0..1000).map(|i| (i * 7 + turn * 13) as u8).collect()
}

/// Writes keys 0 to 9 anew, to the value file.
fn write(store: &Store, turn: u64) {
    (0..10).for_each(|k| store.put(key(k), value(turn)).expect("puts"));
    store.flush().expect("flushes");
}

fn check(store: &Store, number: u64, turn: u64) {
    let got = store.get(key(number)).expect("reads");
    assert_eq!(got.as_deref(), Some(&value(turn)[..]), "key {number}");
}

/// Reads the value of a key and leaves nothing in the cache for the next read.
fn get_from_file(store: &Store, number: u64) -> Result<Option<Vec<u8>>, Error> {
    let options = ReadOptions::default().fill_cache(false);
    let mut cursor = store.default_keyspace().cursor(options)?;
    cursor.seek(key(number).as_bytes())?;
    Ok((cursor.key() == key(number).as_bytes()).then(|| cursor.value().to_vec()))
}

/// A flush appends to a group while the group is collected. The new records go behind the records
/// that the collection replaces. The fill and the garbage of the segments decide whether the
/// collection also replaces the segment that is being filled.
#[test]
fn a_put_beside_a_collection_is_kept() {
    let with = |more_keys: u64, rewritten: u64, rounds: u64| {
        let store = open(&Arc::default(), ValuePlacement::HashGrouped);
        (10..10 + more_keys).for_each(|k| store.put(key(k), value(0)).expect("puts"));
        (0..3).for_each(|turn| write(&store, turn));
        for turn in 3..3 + rounds {
            (0..rewritten).for_each(|k| store.put(key(k), value(turn)).expect("puts"));
            store.flush().expect("flushes");
        }
        let beside = Arc::clone(&store);
        seeded::step_in(Waypoint::GroupCopied, move || {
            beside.put(key(4), value(9)).expect("puts");
            beside.flush().expect("flushes");
        });
        store.collect_values().expect("collects");
        assert!(seeded::has_stepped_in());
        for k in 0..10 {
            let turn = if k < rewritten { 2 + rounds } else { 2 };
            check(&store, k, if k == 4 { 9 } else { turn });
        }
        assert!(store.verify().expect("verifies").is_clean());
    };
    holds_and_finds(Bug::CollectionWithoutClosing, || {
        for (more_keys, rewritten) in (0..3).flat_map(|more| (1..6).map(move |n| (more, n))) {
            with(more_keys, rewritten, 1);
            with(more_keys, rewritten, 2);
        }
    });
}

/// A key is written after the collection looked up its value and before it writes the value's new
/// place.
#[test]
fn a_relocation_does_not_overwrite_a_newer_value() {
    let opened = [|| open(&Arc::default(), ValuePlacement::Vlog), open_writing_back];
    let overwrites = |open: fn() -> Arc<Store>| {
        let store = open();
        write(&store, 0);
        (5..10).for_each(|k| store.put(key(k), value(1)).expect("puts"));
        store.flush().expect("flushes");
        let beside = Arc::clone(&store);
        seeded::step_in(Waypoint::LiveValuesFound, move || {
            beside.put(key(0), value(9)).expect("puts");
        });
        store.collect_values().expect("collects");
        assert!(seeded::has_stepped_in());
        for k in 0..10 {
            check(&store, k, if k == 0 { 9 } else { u64::from(k > 4) });
        }
    };
    opened.into_iter().for_each(|open| {
        holds_and_finds(Bug::RelocationOverwritesNewer, || overwrites(open));
    });
}

/// Keys are written after the relocations were checked against the tree, and before they have a
/// place in the log.
#[test]
fn a_relocation_does_not_overwrite_what_came_at_the_last_moment() {
    let opened = [|| open(&Arc::default(), ValuePlacement::Vlog), open_writing_back];
    let overwrites = |open: fn() -> Arc<Store>| {
        let store = open();
        write_upper_half_again(&store);
        let beside = Arc::clone(&store);
        seeded::step_in(Waypoint::TransactionChecked, move || {
            beside.put(key(0), value(9)).expect("puts");
            beside.default_keyspace().delete_range(key(6)..key(8)).expect("deletes");
        });
        store.collect_values().expect("collects");
        assert!(seeded::has_stepped_in());
        let check_all = || {
            for k in (0..10).filter(|k| !(6..8).contains(k)) {
                check(&store, k, if k == 0 { 9 } else { u64::from(k > 4) });
            }
            (6..8).for_each(|k| assert!(store.get(key(k)).expect("reads").is_none()));
        };
        check_all();
        store.compact().expect("compacts");
        check_all();
    };
    opened.into_iter().for_each(|open| {
        holds_and_finds(Bug::CheckedBeforeTheLock, || overwrites(open));
    });
}

/// Writes keys 0 to 9, then 5 to 9 again, so that a collection is due.
fn write_upper_half_again(store: &Store) {
    write(store, 0);
    (5..10).for_each(|k| store.put(key(k), value(1)).expect("puts"));
    store.flush().expect("flushes");
}

/// Keys are written, deleted and made small while their group is collected. Then they are flushed,
/// so that no memtable holds the changes.
#[test]
fn a_relocation_does_not_overwrite_what_was_flushed_meanwhile() {
    holds_and_finds(Bug::WrittenKeysForgotten, || {
        let store = open_writing_back();
        write_upper_half_again(&store);
        let beside = Arc::clone(&store);
        seeded::step_in(Waypoint::LiveValuesFound, move || {
            beside.put(key(0), value(9)).expect("puts");
            beside.delete(key(1)).expect("deletes");
            beside.put(key(2), "small").expect("puts");
            beside.flush().expect("flushes");
        });
        store.collect_values().expect("collects");
        assert!(seeded::has_stepped_in());
        let check_all = || {
            check(&store, 0, 9);
            assert!(store.get(key(1)).expect("reads").is_none());
            assert_eq!(store.get(key(2)).expect("reads").as_deref(), Some(&b"small"[..]));
            (3..10).for_each(|k| check(&store, k, u64::from(k > 4)));
        };
        check_all();
        store.compact().expect("compacts");
        check_all();
    });
}

/// A collection that sees only the values of a group takes deleted keys and keys with small values
/// for live.
#[test]
fn a_relocation_does_not_bring_back_what_was_deleted() {
    holds_and_finds(Bug::VersionsNotMarked, || {
        let store = open_writing_back();
        write_upper_half_again(&store);
        store.delete(key(1)).expect("deletes");
        store.put(key(2), "small").expect("puts");
        store.flush().expect("flushes");
        store.collect_values().expect("collects");
        let pointers = store.metrics().counters.value_pointers_written;
        let check_all = || {
            check(&store, 0, 0);
            assert!(store.get(key(1)).expect("reads").is_none());
            assert_eq!(store.get(key(2)).expect("reads").as_deref(), Some(&b"small"[..]));
            (3..10).for_each(|k| check(&store, k, u64::from(k > 4)));
        };
        check_all();
        assert_eq!(pointers, 8, "of ten keys, eight are live");
        store.compact().expect("compacts");
        check_all();
    });
}

/// A group is collected twice before its first pointers are flushed. The second collection must not
/// take those pointers for a user's writes.
#[test]
fn what_was_relocated_is_relocated_again() {
    holds_and_finds(Bug::RelocationsTakenForWrites, || {
        let store = open_writing_back();
        write_upper_half_again(&store);
        let beside = Arc::clone(&store);
        seeded::step_in(Waypoint::GroupCopied, move || {
            (0..5).for_each(|k| beside.put(key(k), value(2)).expect("puts"));
            beside.flush().expect("flushes");
        });
        store.collect_values().expect("collects");
        assert!(seeded::has_stepped_in());
        assert_eq!(store.metrics().counters.value_collections, 2);
        (0..10).for_each(|k| check(&store, k, if k < 5 { 2 } else { 1 }));
        assert!(store.verify().expect("verifies").is_clean());
    });
}

/// A snapshot from before a collection sees the old records. They stay while the snapshot lives and
/// go afterwards. Until then nothing more is collected, however often a caller asks.
#[test]
fn a_snapshot_keeps_what_was_relocated() {
    holds_and_finds(Bug::OldSlotsFreedUnderSnapshots, || {
        let store = open_writing_back();
        write(&store, 0);
        let snapshot = store.snapshot();
        (0..5).for_each(|k| store.put(key(k), value(1)).expect("puts"));
        store.flush().expect("flushes");
        let keyspace = store.default_keyspace();
        let used = || keyspace.value_usage()[0].used_slots;
        for turn in 0..3 {
            store.collect_values().expect("collects");
            for k in 0..10 {
                let got = keyspace.get_at(key(k), &snapshot).expect("reads");
                assert_eq!(got.as_deref(), Some(&value(0)[..]), "turn {turn}, key {k}");
                check(&store, k, u64::from(k < 5));
            }
        }
        assert_eq!(store.metrics().counters.value_collections, 1);
        let held = used();
        assert!(keyspace.value_usage()[0].groups[0].pinned_bytes > 15_000);
        drop(snapshot);
        store.collect_values().expect("frees");
        assert!(used() + 4 <= held, "{} slots of {held}", used());
        (0..10).for_each(|k| check(&store, k, u64::from(k < 5)));
    });
}

/// A deletion lies above a compaction that brings the deleted value into a new value file. The
/// group does not know of the deletion until the deletion itself is compacted.
#[test]
fn a_group_is_not_trusted_before_the_tree_is_settled() {
    holds_and_finds(Bug::GroupTrustedTooEarly, || {
        let tiered = |mut keyspace: KeyspaceOptions, size_ratio| {
            keyspace.policy = "tiering".into();
            (
                custom::options_mut(&mut keyspace).l0_trigger,
                custom::options_mut(&mut keyspace).size_ratio,
            ) = (2, size_ratio);
            keyspace
        };
        let inline = tiered(keyspace_options(ValuePlacement::Inline), 10);
        let store = open_with(&Arc::default(), inline);
        for _ in 0..4 {
            write(&store, 0);
            while store.run_one_job().expect("compacts") {}
        }
        let runs = |level| unstable::shape(store.default_keyspace()).level(level).runs().len();
        assert_eq!((runs(0), runs(1)), (0, 2));
        store.delete(key(3)).expect("deletes");
        store.flush().expect("flushes");
        let changed = tiered(writing_back(), 2);
        store.open_keyspace("default", Some(changed)).expect("changes");
        while store.run_one_job().expect("compacts") {}
        assert!(store.default_keyspace().value_usage()[0].bytes() > 10_000, "they came along");
        for turn in 1..8 {
            store.put(key(0), value(turn)).expect("puts");
            store.flush().expect("flushes");
        }
        store.collect_values().expect("collects");
        assert!(store.metrics().counters.value_pointers_written > 0);
        assert_eq!(runs(0), 8, "the deletion is where it was");
        assert!(store.get(key(3)).expect("reads").is_none());
        store.compact().expect("compacts");
        assert!(store.get(key(3)).expect("reads").is_none());
    });
}

fn tiered(mut keyspace: KeyspaceOptions, l0_trigger: u32, size_ratio: u32) -> KeyspaceOptions {
    keyspace.policy = "tiering".into();
    (
        custom::options_mut(&mut keyspace).l0_trigger,
        custom::options_mut(&mut keyspace).size_ratio,
    ) = (l0_trigger, size_ratio);
    (keyspace.l0_slowdown_runs, keyspace.l0_stop_runs) = (100, 200);
    keyspace
}

fn run_jobs(store: &Store) {
    while store.run_one_job().expect("works") {}
}

/// The number of runs in each level.
fn runs(store: &Store) -> Vec<usize> {
    let shape = unstable::shape(store.default_keyspace());
    shape.levels.iter().map(|level| level.runs().len()).collect()
}

/// Two runs in level 1, which compact into level 2 with a size ratio of 2.
fn write_two_runs(store: &Store) {
    for _ in 0..4 {
        write(store, 0);
        run_jobs(store);
    }
    assert_eq!(runs(store), [0, 2]);
}

/// A group knew of a deletion, and a later compaction brought the deleted value into the group. A
/// collection between the two forgot the deletion. The next collection trusted the group by then
/// and brought the value back.
#[test]
fn a_collection_of_an_unsettled_tree_keeps_what_hides_older_values() {
    let inline = tiered(keyspace_options(ValuePlacement::Inline), 2, 10);
    let store = open_with(&Arc::default(), inline);
    write_two_runs(&store);
    let change = |size_ratio| {
        let keyspace = tiered(writing_back(), 50, size_ratio);
        store.open_keyspace("default", Some(keyspace)).expect("changes");
    };
    change(10);
    store.delete(key(3)).expect("deletes");
    store.put(key(4), "small").expect("puts");
    let update_and_collect = || {
        for turn in 1..8 {
            store.put(key(0), value(turn)).expect("puts");
            store.flush().expect("flushes");
        }
        let before = store.metrics().counters.value_collections;
        store.collect_values().expect("collects");
        assert!(store.metrics().counters.value_collections > before);
        assert!(store.get(key(3)).expect("reads").is_none());
        assert_eq!(store.get(key(4)).expect("reads").as_deref(), Some(&b"small"[..]));
    };
    update_and_collect();
    change(2);
    run_jobs(&store);
    assert_eq!(runs(&store)[1..], [0, 1], "the old values came along, the deletion did not");
    update_and_collect();
    store.compact().expect("compacts");
    update_and_collect();
}

/// A compaction brought an old version into a group that already held a newer one, so the old
/// version lay behind the newer. When a deletion dropped both, only the newer was known to be dead.
/// A collection that rewrote the newer version's segment alone left the older one as garbage for
/// ever.
#[test]
fn a_version_behind_a_newer_one_is_collected_as_well() {
    let store = open_with(&Arc::default(), tiered(keyspace_options(ValuePlacement::Inline), 2, 10));
    write_two_runs(&store);
    let change = |size_ratio| {
        let groups = keyspace_options(ValuePlacement::HashGrouped);
        store.open_keyspace("default", Some(tiered(groups, 50, size_ratio))).expect("changes");
    };
    let put = |keys: &[u64]| {
        keys.iter().for_each(|k| store.put(key(*k), value(1)).expect("puts"));
        store.flush().expect("flushes");
    };
    let delete = |keys: &mut dyn Iterator<Item = u64>| {
        keys.for_each(|k| store.delete(key(k)).expect("deletes"));
        let keyspace = store.default_keyspace();
        keyspace.compact().expect("compacts and collects");
        let [usage] = &keyspace.value_usage()[..] else { panic!("one file") };
        usage.bytes()
    };
    change(10);
    // The newer version of key 9 is written first; three records fill a slot.
    put(&[9, 100, 101]);
    change(2);
    run_jobs(&store);
    put(&[200, 201]);
    put(&[0, 1, 2]);
    let bytes = delete(&mut [9, 100, 101].into_iter());
    assert!(bytes < 15_000, "{bytes}: collected");
    assert_eq!(delete(&mut (0..300)), 0);
}

fn open_sim(storage: &SimStorage, keyspace: Option<KeyspaceOptions>) -> Store {
    let options = Options::default()
        .background(Background::Manual)
        .memory_budget_bytes(8 << 20)
        .keyspace(keyspace);
    Store::open_on(Arc::new(storage.clone()), options).expect("opens")
}

/// A change of placement failed on a full disk after it had marked the value file as closed to
/// newer tables. Later manifest records of the tree repeated the mark, and the file was removed
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
    store.checkpoint("copy").expect("copies");
    let copy = storage.open_sibling("copy".as_ref()).expect("is there");
    let store = open_sim(&copy, Some(tiered(keyspace_options(ValuePlacement::Vlog), 50, 2)));
    run_jobs(&store);
    assert_eq!(runs(&store), [1, 0, 1]);
    (0..10).for_each(|k| check(&store, k, u64::from(k < 5)));
}

/// A value file could not be removed after its last table had gone. The compaction failed and
/// removed its outputs, although the manifest named them.
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

/// The manifest broke while a log was collected. The store took that for damage of the log and
/// tried the collection again for ever.
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

/// The sync of the manifest failed in a change of options. The caller got the error, but later
/// writes were still accepted (P7).
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

/// The placement changed while a user's own call collected. The collection wrote pointers into the
/// memtable after the change, and the file was removed although they led there.
#[test]
fn a_change_of_placement_waits_for_a_collection() {
    let mut log = keyspace_options(ValuePlacement::Vlog);
    log.values.vlog_chunk_bytes = 1 << 20;
    for keyspace in [log, writing_back()] {
        let store = open_with(&Arc::default(), keyspace);
        write_upper_half_again(&store);
        let mut inline = keyspace_options(ValuePlacement::Inline);
        custom::options_mut(&mut inline).l0_trigger = 2;
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

/// The placement changes: a compaction places values in a log and publishes them before the tree
/// points to them. A collection in between must not take them for dead.
#[test]
fn what_a_compaction_places_in_a_log_is_not_collected_before_the_tree_has_it() {
    let bug = Bug::CollectionBesideInstall;
    let run = |is_seeded: bool| {
        let storage = Arc::default();
        let inline = open(&storage, ValuePlacement::Inline);
        (20..30).for_each(|k| inline.put(key(k), value(5)).expect("puts"));
        inline.flush().expect("flushes");
        drop(inline);
        let mut keyspace = keyspace_options(ValuePlacement::Vlog);
        keyspace.values.vlog_chunk_bytes = 1 << 20;
        let store = open_with(&storage, keyspace);
        (0..3).for_each(|turn| write(&store, turn));
        let beside = Arc::clone(&store);
        seeded::step_in(Waypoint::ValuesPublished, move || {
            let (done, is_done) = std::sync::mpsc::channel();
            std::thread::spawn(move || {
                let collect = || beside.collect_values();
                let outcome = if is_seeded { seeded::with(bug, collect) } else { collect() };
                let _ = done.send(outcome);
            });
            // With the bug the collection ends here; without it, it waits for the install.
            let _ = is_done.recv_timeout(Duration::from_millis(300));
        });
        store.compact().expect("compacts");
        assert!(seeded::has_stepped_in());
        (0..10).for_each(|k| check(&store, k, 2));
        (20..30).for_each(|k| check(&store, k, 5));
    };
    run(false);
    assert!(panics(|| run(true)), "{bug:?} is not found");
}

/// A reader finds the place of a record. Before it reads, the group is collected and written again
/// until its slots have held other contents.
#[test]
fn a_slot_is_not_used_again_under_a_reader() {
    holds_and_finds(Bug::SlotsFreedEarly, || {
        let store = open(&Arc::default(), ValuePlacement::HashGrouped);
        write(&store, 0);
        let beside = Arc::clone(&store);
        seeded::step_in(Waypoint::RecordFound, move || {
            for turn in 1..6 {
                write(&beside, turn);
                beside.collect_values().expect("collects");
            }
        });
        check(&store, 3, 0);
        assert!(seeded::has_stepped_in());
        check(&store, 3, 5);
    });
}

/// The versions that a cursor shows stay, although the user took no snapshot for it.
#[test]
fn a_cursor_keeps_its_values() {
    holds_and_finds(Bug::CursorDoesNotRegister, || {
        let store = open(&Arc::default(), ValuePlacement::HashGrouped);
        write(&store, 0);
        let mut cursor = store.default_keyspace().cursor(ReadOptions::default()).expect("opens");
        cursor.seek_to_first().expect("seeks");
        write(&store, 1);
        store.collect_values().expect("collects");
        for k in 0..10 {
            assert!(cursor.valid() && cursor.key() == key(k).as_bytes());
            assert!(cursor.value() == value(0));
            cursor.next().expect("steps");
        }
        assert!(!cursor.valid());
    });
}

/// Between the first and the last step of a get, the version that it is about to find is replaced
/// and its record dropped. No snapshot needs that version, so the get returns the new one.
#[test]
fn a_get_looks_again_when_its_record_was_collected() {
    holds_and_finds(Bug::GetDoesNotLookAgain, || {
        let store = open(&Arc::default(), ValuePlacement::HashGrouped);
        write(&store, 0);
        let beside = Arc::clone(&store);
        seeded::step_in(Waypoint::GetBegun, move || {
            write(&beside, 1);
            beside.collect_values().expect("collects");
        });
        check(&store, 5, 1);
        assert!(seeded::has_stepped_in());
    });
}

/// Keys 0 to 9 in a value file that goes with the next full compaction.
fn open_before_values_go() -> Arc<Store> {
    let store = open(&Arc::default(), ValuePlacement::HashGrouped);
    write(&store, 0);
    let inline = keyspace_options(ValuePlacement::Inline);
    store.open_keyspace("default", Some(inline)).expect("changes");
    store
}

/// The last value file goes after a `multi_get` took its view, and the versions that it reads are
/// replaced before it looks them up. Without a snapshot it found neither the old versions nor the
/// new ones.
#[test]
fn a_multi_get_finds_what_was_there_when_value_files_go() {
    let store = open_before_values_go();
    let beside = Arc::clone(&store);
    seeded::step_in(Waypoint::ViewLoaded, move || {
        beside.compact().expect("compacts");
        assert!(beside.default_keyspace().value_usage().is_empty(), "the file went");
        seeded::step_in(Waypoint::GetBegun, move || {
            write(&beside, 1);
            beside.compact().expect("compacts");
        });
    });
    let keys: Vec<String> = (0..10).map(key).collect();
    let found = store.default_keyspace().multi_get(&keys).expect("gets");
    assert!(seeded::has_stepped_in());
    for (k, found) in found.iter().enumerate() {
        assert!(found.as_deref() == Some(&value(0)[..]), "key {k}");
    }
}

/// Each time a get under a snapshot has found its pointer, the placement changes and a compaction
/// moves the value to another file. After three attempts the get reported that the value was gone,
/// so a mere change was reported as damage.
#[test]
fn a_get_under_a_snapshot_follows_its_value_through_any_number_of_files() {
    fn move_values(store: &Arc<Store>, times_left: u32) {
        let beside = Arc::downgrade(store);
        seeded::step_in(Waypoint::PointerFound, move || {
            let store = beside.upgrade().expect("who reads has it");
            let number = u64::from(times_left);
            let placements = [ValuePlacement::HashGrouped, ValuePlacement::Vlog];
            let next = keyspace_options(placements[times_left as usize % 2]);
            store.open_keyspace("default", Some(next)).expect("changes");
            store.put(key(100), value(number)).expect("puts");
            store.compact().expect("compacts");
            assert_eq!(store.default_keyspace().value_usage().len(), 1, "the old file went");
            if times_left > 0 {
                move_values(&store, times_left - 1);
            }
        });
    }
    let store = open(&Arc::default(), ValuePlacement::HashGrouped);
    write(&store, 0);
    let snapshot = store.snapshot();
    move_values(&store, 5);
    let found = store.default_keyspace().get_at(key(5), &snapshot).expect("it is there");
    assert!(seeded::has_stepped_in());
    assert!(found.as_deref() == Some(&value(0)[..]));
}

/// A cursor takes its view. The value file that the view points to goes before the cursor has
/// listed the value files.
#[test]
fn a_cursor_finds_what_was_there_when_value_files_go() {
    let store = open_before_values_go();
    let beside = Arc::clone(&store);
    seeded::step_in(Waypoint::ViewLoaded, move || {
        beside.compact().expect("compacts");
        assert!(beside.default_keyspace().value_usage().is_empty(), "the file went");
    });
    let mut cursor = store.default_keyspace().cursor(ReadOptions::default()).expect("opens");
    cursor.seek_to_first().expect("seeks");
    for k in 0..10 {
        assert_eq!((cursor.key(), cursor.value()), (key(k).as_bytes(), &value(0)[..]));
        cursor.next().expect("steps");
    }
    assert!(seeded::has_stepped_in() && !cursor.valid());
}

/// Writes keys 0 to 9, then updates the even ones until collections are due. The odd ones cool.
fn write_evens_again(store: &Store) {
    write(store, 0);
    for turn in 1..4 {
        (0..5).for_each(|k| store.put(key(2 * k), value(turn)).expect("puts"));
        store.flush().expect("flushes");
    }
}

fn check_evens_and_odds(store: &Store) {
    (0..10).for_each(|k| check(store, k, if k % 2 == 0 { 3 } else { 0 }));
}

fn cold_bytes(store: &Store) -> u64 {
    let usage = store.default_keyspace().value_usage().swap_remove(0);
    usage.cold.expect("hash groups have one").bytes
}

/// A reader that sees a tag finds the cold record it leads to.
#[test]
fn a_tag_is_never_seen_before_its_cold_record() {
    holds_and_finds(Bug::TagsPublishedFirst, || {
        let store = open_cooling();
        write_evens_again(&store);
        let beside = Arc::clone(&store);
        seeded::step_in(Waypoint::GroupPublished, move || check(&beside, 7, 0));
        store.collect_values().expect("collects");
        assert!(seeded::has_stepped_in());
        assert!(cold_bytes(&store) > 4_000);
        check_evens_and_odds(&store);
    });
}

/// Keys cool and are written again, many times. The records they leave in the cold stream go.
#[test]
fn cold_records_go_when_their_tags_do() {
    holds_and_finds(Bug::DroppedTagsForgotten, || {
        let store = open_cooling();
        for turn in 0..8 {
            write(&store, turn);
            store.collect_values().expect("collects");
            for others in 0..3 {
                (10..20).for_each(|k| store.put(key(k), value(others)).expect("puts"));
                store.flush().expect("flushes");
            }
            store.collect_values().expect("collects");
            (0..10).for_each(|k| check(&store, k, turn));
        }
        let cold = cold_bytes(&store);
        assert!((10_000..30_000).contains(&cold), "{cold} bytes for ten values of 1,000");
        assert!(store.verify().expect("verifies").is_clean());
    });
}

/// A disk acknowledges a write and still holds what was in the slot before. Every read then reports
/// an error or returns the right value. Only in a log does an older record of the same key pass
/// every other check, because relocations keep the numbers of records.
#[test]
fn an_earlier_life_of_a_slot_is_never_read() {
    holds_and_finds(Bug::ChecksumsWithoutGeneration, || {
        let storage = Arc::<MemoryStorage>::default();
        let store = open(&storage, ValuePlacement::Vlog);
        let mut lives: BTreeMap<u64, BTreeSet<Vec<u8>>> = BTreeMap::new();
        let mut last = [0; 3];
        for turn in 0..150u64 {
            let k = (turn * turn + turn / 7) % 3;
            last[k as usize] = turn;
            store.put(key(k), value(turn)).expect("puts");
            store.flush().expect("flushes");
            if turn % 2 == 0 {
                store.collect_values().expect("collects");
            }
            slots(&storage, &store, |slot, bytes| {
                lives.entry(slot).or_default().insert(bytes);
            });
        }
        let mut told = 0;
        let mut now = Vec::new();
        slots(&storage, &store, |slot, bytes| now.push((slot, bytes)));
        let file = value_file(&storage, &store);
        for (slot, bytes) in now {
            for life in &lives[&slot] {
                file.write_at(slot, life).expect("memory");
                for (k, turn) in (0..).zip(last) {
                    match get_from_file(&store, k) {
                        Err(_) => told += 1,
                        Ok(got) => assert!(got.as_deref() == Some(&value(turn)[..]), "{k}"),
                    }
                }
            }
            file.write_at(slot, &bytes).expect("memory");
        }
        assert!(told > 10, "{told} reads told");
    });
}

/// Values stay cached while their slots are used again, whichever job moved or replaced the
/// records.
#[test]
fn a_cached_value_is_never_taken_for_another() {
    let reads_are_right = |store: &Store| {
        for turn in 0..12 {
            write(store, turn);
            for _ in 0..2 {
                (0..10).for_each(|k| check(store, k, turn));
                let all = store.default_keyspace().iter().expect("opens");
                let all: Vec<_> = all.map(|entry| entry.expect("reads")).collect();
                assert_eq!(all.len(), 10);
                all.iter().for_each(|(_, found)| assert_eq!(found, &value(turn)));
                store.collect_values().expect("collects");
                store.flush().expect("flushes");
            }
        }
    };
    let stores: [fn() -> Arc<Store>; 4] = [
        || open(&Arc::default(), ValuePlacement::HashGrouped),
        || open(&Arc::default(), ValuePlacement::Vlog),
        open_cooling,
        open_writing_back,
    ];
    for open in stores {
        holds_and_finds(Bug::ValuesCachedByPlace, || reads_are_right(&open()));
    }
}

fn value_file(storage: &MemoryStorage, store: &Store) -> Arc<dyn runstone::storage::StorageFile> {
    let name = store.default_keyspace().value_usage()[0].file.clone();
    storage.open(&name, Category::Value).expect("is there")
}

/// Passes the offset and the bytes of every slot of the value file to `show`.
fn slots(storage: &MemoryStorage, store: &Store, mut show: impl FnMut(u64, Vec<u8>)) {
    let file = value_file(storage, store);
    let len = file.len().expect("memory");
    let mut at = 4096;
    while at < len {
        let mut bytes = vec![0; SLOT_BYTES.min(len - at) as usize];
        file.read_at(at, &mut bytes).expect("inside");
        show(at, bytes);
        at += SLOT_BYTES;
    }
}

/// Changes the bytes of a record one at a time. A get reports an error or returns the right value.
#[test]
fn a_changed_record_is_told() {
    let changes = |keyspace: KeyspaceOptions| {
        let storage = Arc::<MemoryStorage>::default();
        let store = open_with(&storage, keyspace);
        write(&store, 0);
        let file = value_file(&storage, &store);
        for at in (4096..4096 + 2 * SLOT_BYTES).step_by(61) {
            let mut byte = [0];
            file.read_at(at, &mut byte).expect("inside");
            file.write_at(at, &[byte[0] ^ 4]).expect("memory");
            for k in 0..10 {
                if let Ok(got) = get_from_file(&store, k) {
                    assert!(got.as_deref() == Some(&value(0)[..]), "byte {at}, key {k}");
                }
            }
            file.write_at(at, &byte).expect("memory");
        }
    };
    for keyspace in [
        keyspace_options(ValuePlacement::HashGrouped),
        keyspace_options(ValuePlacement::Vlog),
        writing_back(),
    ] {
        holds_and_finds(Bug::RecordsUnchecked, || changes(keyspace.clone()));
    }
}

fn in_groups(seed: u64) -> Options {
    placed(options(seed, Background::Manual), ValuePlacement::HashGrouped)
}

fn in_a_log(seed: u64) -> Options {
    placed(options(seed, Background::Manual), ValuePlacement::Vlog)
}

fn cooling(seed: u64) -> Options {
    cooled(options(seed, Background::Manual))
}

fn moving_pointers(seed: u64) -> Options {
    written_back(options(seed, Background::Manual))
}

/// Every placement that separates values.
const APART: [fn(u64) -> Options; 4] = [in_groups, in_a_log, cooling, moving_pointers];

/// Whether a crash at some operation breaks a promise.
fn crash_finds(bug: Bug) -> bool {
    crash_finds_in(in_groups, bug)
}

fn crash_finds_in(options: fn(u64) -> Options, bug: Bug) -> bool {
    SEEDS.into_iter().any(|seed| {
        let (options, operations) = (options(seed), generate(seed, OPERATIONS));
        let mut count = 0;
        let counted = || count = seeded::with(bug, || count_operations(&options, &operations)).0;
        if panics(counted) {
            // The workload fails without any crash.
            return true;
        }
        (0..count).any(|at| {
            let crashes = [Crash::Process, Crash::Power(at), Crash::Power(at * 31 + 7)];
            panics(|| drop(seeded::with(bug, || crash_at(&options, &operations, at, &crashes))))
        })
    })
}

#[test]
fn pointers_without_their_values_are_found() {
    for (i, options) in APART.into_iter().enumerate() {
        assert!(crash_finds_in(options, Bug::PointersLoggedBeforeValues), "placement {i}");
    }
}

#[test]
fn a_flush_before_the_log_is_found() {
    assert!(crash_finds(Bug::FlushOutrunsTheLog));
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
    assert!(crash_finds_in(in_a_log, Bug::RelocationsNotSynced));
}

#[test]
fn appends_that_are_not_synced_are_found() {
    for (i, options) in APART.into_iter().enumerate() {
        assert!(crash_finds_in(options, Bug::AppendsNotSynced), "placement {i}");
    }
}

/// A reopened store holds the groups as collections left them.
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

/// A collection that the user asked for met a failed sync. The caller got the error, but later
/// writes were still accepted. The kernel reports lost bytes once: the next sync of the same file
/// succeeds, even for a flush whose values were lost together with the collection's. So nothing is
/// acknowledged any more (P7).
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

/// The sync of the edit that names a flush's values fails. The edit may be on disk all the same, so
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
