//! The hazards of separated values. Each is a test that holds without a bug and that finds the bug
//! its rule prevents (`runstone::seeded`).
//!
//! | hazard | bugs | found by |
//! |---|---|---|
//! | a snapshot needs an older version | `CollectionForgetsSnapshots` | `compaction/policies.rs` |
//! | collection against a put | `CollectionWithoutClosing` | a put between copy and edit |
//! | | `RelocationOverwritesNewer` | a put between look-up and relocation |
//! | | `CheckedBeforeTheLock` | a put and a range delete after the check |
//! | | `WrittenKeysForgotten` | a put and its flush after the look-up |
//! | | `RelocationsTakenForWrites` | two collections between flushes |
//! | | `VersionsNotMarked` | deletions and small values before a collection |
//! | collection against a compaction | `CollectionBesideInstall` | a collection inside an install |
//! | | `GroupTrustedTooEarly` | a deletion from before the value file |
//! | moved values under a snapshot | `OldSlotsFreedUnderSnapshots` | a snapshot, then collections |
//! | a pointer into a slot used again | `SlotsFreedEarly` | a collection before the read |
//! | | `CursorDoesNotRegister` | a collection under a cursor |
//! | | `ChecksumsWithoutGeneration` | writes that the disk lost |
//! | a cached value of a slot used again | `ValuesCachedByPlace` | reads between collections |
//! | a get against collection | `GetDoesNotLookAgain` | a collection inside a get |
//! | a value durable, its write lost | `PointersLoggedBeforeValues` | crashes |
//! | | `FlushOutrunsTheLog` | power cuts |
//! | | `GenerationsInPieces` | crashes |
//! | a crash inside collection | `CollectionNotSynced` | power cuts |
//! | | `SlotsFreedBeforeTheEdit` | crashes |
//! | | `RelocationsNotSynced` | power cuts |
//! | a torn append | `AppendsNotSynced` | power cuts |
//! | | `RecordsUnchecked` | flipped bytes |
//! | the table of segments | `CollectionNotLogged` | model, with reopening |
//! | a failed sync | `FailedSyncIgnored` | failing syncs of the value file |
//! | | `UnknownSlotsFreed` | a failing sync of the manifest |
//! | an early value without its write | `EarlyValuesNotSynced` | power cuts |
//! | | `EarlyValuesUnchecked` | power cuts |
//! | | `EarlyValuesCollectedUnderWay` | a collection inside a put |
//! | | `EarlyValuesFreedUnflushed` | a crash after a collection |
//! | | `FoundValuesTrusted` | a failed sync, then a crash |
//! | a tag without its cold record | `TagsLoggedBeforeColdRecords` | crashes |
//! | | `TagsPublishedFirst` | a get between the two |
//! | a cold record without its tag | `DroppedTagsForgotten` | space |
//! | a version with a record and a tag | `TagsTrustedOverRecords` | a crash before the pointers |
//! | | `PlacesComparedAcrossStreams` | a compaction of both places |
//! | a cold record that is not dead for good | `ColdRecordsDeadAtOnce` | a power cut |

mod collections;
mod crashes;
mod early;
mod placements;
mod readers;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use runstone::seeded::{self, Bug, Waypoint};
use runstone::storage::{Category, MemoryStorage, Storage};
use runstone::unstable;
use runstone::{
    Background, Error, GcPointers, KeyspaceOptions, Options, ReadOptions, Store, ValueOptions,
    ValuePlacement,
};
use runstone_fault_storage::{Fault, FaultKind, SimStorage};
use runstone_sim::crash::{Crash, count_operations, crash_at, judge, run_until_error};
use runstone_sim::found::{panic_of, panics};
use runstone_sim::oracle::Oracle;
use runstone_sim::workload::{
    Run, cooled, cooled_back, early, generate, keyspaces, logless, options, placed, written_back,
};

/// Seeds that pass without a bug, as `crash/every_operation.rs` shows.
const SEEDS: [u64; 3] = [11, 12, 13];
const OPERATIONS: usize = 200;
const SLOT_BYTES: u64 = 4096;

/// Checks that `check` holds without a bug and fails with it.
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

/// The same options with a cold stream.
fn cooling_back() -> KeyspaceOptions {
    let mut keyspace = writing_back();
    keyspace.values.cold_stream = true;
    keyspace
}

fn open_with(storage: &Arc<MemoryStorage>, keyspace: KeyspaceOptions) -> Arc<Store> {
    open_any(Arc::<MemoryStorage>::clone(storage), keyspace)
}

fn open_any(storage: Arc<dyn Storage>, keyspace: KeyspaceOptions) -> Arc<Store> {
    let options = Options::default()
        .background(Background::Manual)
        .memory_budget_bytes(8 << 20)
        .keyspace(keyspace);
    Arc::new(Store::open_on(storage, options).expect("opens"))
}

fn key(number: u64) -> String {
    format!("key{number:03}")
}

fn value(turn: u64) -> Vec<u8> {
    (0..1000).map(|i| (i * 7 + turn * 13) as u8).collect()
}

/// Writes keys 0 to 9 again, to the value file.
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

/// A flush appends to a group while the group is collected. The new records follow the records that
/// the collection replaces. The fill and the garbage of the segments decide whether the collection
/// also replaces the segment that is being filled.
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
/// so that no memtable contains the changes.
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

/// A collection that sees only the values of a group mistakes deleted keys, and keys that now have
/// small values, for live ones.
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
/// mistake those pointers for a user's writes.
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
/// are dropped afterwards. Until then nothing more is collected, however often a caller asks.
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

/// A deletion is above a compaction that brings the deleted value into a new value file. The group
/// does not know of the deletion until the deletion itself is compacted.
#[test]
fn a_group_is_not_trusted_before_the_tree_is_settled() {
    holds_and_finds(Bug::GroupTrustedTooEarly, || {
        let tiered = |mut keyspace: KeyspaceOptions, size_ratio| {
            keyspace.policy = "tiering".into();
            (
                unstable::numbers_mut(&mut keyspace).l0_trigger,
                unstable::numbers_mut(&mut keyspace).size_ratio,
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
        unstable::numbers_mut(&mut keyspace).l0_trigger,
        unstable::numbers_mut(&mut keyspace).size_ratio,
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
