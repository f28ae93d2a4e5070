//! Bugs of the log, the manifest and the life of keyspaces, each with its story. The tests keep
//! them from coming back. Bugs that random crashes and faults find are in `crash` and `faults`.

use std::sync::{Arc, mpsc};
use std::time::Duration;

use runstone::seeded::{self, Bug, Waypoint};
use runstone::storage::{Access, Category, PosixStorage, Storage};
use runstone::{
    Background, Batch, Error, GcPointers, KeyspaceOptions, Options, Store, ValueOptions,
    ValuePlacement, WalMode, WhenFull, WriteOptions,
};
use runstone_fault_storage::{Fault, FaultKind, SimStorage};
use runstone_sim::found::holds_and_finds;

fn options() -> Options {
    let mut keyspace = KeyspaceOptions::default();
    keyspace.write_buffer_bytes = 1 << 20;
    Options::default()
        .background(Background::Manual)
        .memory_budget_bytes(8 << 20)
        .wal_segment_bytes(64 << 10)
        .keyspace(keyspace)
}

fn open(storage: &SimStorage) -> Result<Store, Error> {
    Store::open_on(Arc::new(storage.clone()), options())
}

fn names(storage: &dyn Storage, ending: &str) -> Vec<String> {
    let names = storage.list().expect("lists").into_iter().map(|file| file.name);
    names.filter(|name| name.ends_with(ending)).collect()
}

/// A process died while it wrote a record of several fragments after padding, and the first
/// fragment was whole. Recovery took the padding for the end of the log, and the fragment for a
/// later record. That counts as corruption when no power was lost (P8).
#[test]
fn a_torn_record_behind_padding_is_no_corruption() {
    // The previous record ends in any of the last bytes of a frame.
    for value_bytes in 32_590..32_640 {
        let storage = SimStorage::new(1);
        let options = options().wal_segment_bytes(256 << 10);
        let store = Store::open_on(Arc::new(storage.clone()), options).expect("opens");
        store.put("whole", vec![1; value_bytes]).expect("puts");
        store.put("torn", vec![2; 100_000]).expect("puts");
        let left = storage.process_crash();
        drop(store);
        for name in names(&left, ".wal") {
            let mut bytes = left.read_all(&name).expect("is there");
            bytes[65_536..].fill(0);
            left.overwrite(&name, &bytes).expect("is there");
        }
        let store = open(&left).unwrap_or_else(|error| panic!("{value_bytes}: P8: {error}"));
        assert!(store.get("whole").expect("reads").is_some(), "{value_bytes}");
        assert!(store.get("torn").expect("reads").is_none(), "{value_bytes}");
    }
}

/// The manifest kept the beginning of the log at the place where a keyspace had held it, even after
/// that keyspace was dropped. A close removes the segments one by one. A process that died between
/// two removals left a log without its beginning, which was mistaken for corruption (P8).
#[test]
fn a_crash_in_a_close_after_a_drop_is_no_corruption() {
    let run = |storage: &SimStorage, crash_at: Option<u64>| {
        let store = open(storage).expect("opens");
        let gone = store.open_keyspace("gone", None).expect("new");
        (0..200u32).for_each(|k| gone.put(k.to_be_bytes(), [7; 1000]).expect("puts"));
        store.drop_keyspace("gone").expect("drops");
        let kind = FaultKind::Crash;
        let before = storage.ops();
        crash_at.into_iter().for_each(|at| {
            storage.inject(Fault { at_op: before + at, kind, sticky: true, category: None });
        });
        let _ = store.close();
        storage.ops() - before
    };
    let count = run(&SimStorage::new(1), None);
    for at in 0..count {
        let storage = SimStorage::new(1);
        run(&storage, Some(at));
        for left in [storage.process_crash(), storage.power_cut(at).0] {
            open(&left).unwrap_or_else(|error| panic!("operation {at}: P8: {error}"));
        }
    }
}

/// A small log is logged again at open, and a crash before the new manifest replays both. For a
/// pointer that a collection had written, this made two versions with one record. A compaction
/// dropped the older version and reported to the group that the record was dead, and the next
/// collection removed the value that the newer version still showed (seed 22969 of `crash
/// in_a_row`).
#[test]
fn a_relocation_that_is_replayed_twice_keeps_its_value() {
    let mut options = options();
    let keyspace = options.keyspace.as_mut().expect("set");
    keyspace.write_buffer_bytes = 64 << 10;
    keyspace.values = ValueOptions::default()
        .placement(ValuePlacement::HashGrouped)
        .gc_pointers(GcPointers::Writeback)
        .separate_at(16)
        .groups(1)
        .slot_bytes(4096);
    let open = |storage: &SimStorage| Store::open_on(Arc::new(storage.clone()), options.clone());
    let first = SimStorage::new(1);
    let store = open(&first).expect("opens");
    for round in 0..3u8 {
        store.put("kept", [7; 1000]).expect("puts");
        (0..20u8).for_each(|k| store.put([k], [round; 1000]).expect("puts"));
        store.flush().expect("flushes");
    }
    // Pointers follow these in the log, so that two copies of it divide them between two memtables.
    (100..140u8).for_each(|k| store.put([k], [7; 1000]).expect("puts"));
    store.collect_values().expect("collects");
    assert!(store.metrics().counters.value_collections > 0, "pointers are in the log");
    let left = first.process_crash();
    for at in 0..200 {
        // An open that crashes at any operation leaves the writes that it logged again to the next
        // open.
        let storage = left.process_crash();
        let (kind, before) = (FaultKind::Crash, storage.ops());
        storage.inject(Fault { at_op: before + at, kind, sticky: true, category: None });
        drop(open(&storage));
        let storage = storage.process_crash();
        let store = open(&storage).expect("P8");
        store.compact().expect("compacts");
        for round in 3..6u8 {
            (0..20u8).for_each(|k| store.put([k], [round; 1000]).expect("puts"));
            store.flush().expect("flushes");
        }
        store.compact().expect("compacts");
        store.collect_values().expect("collects");
        let kept = store.get("kept").unwrap_or_else(|error| panic!("operation {at}: {error}"));
        assert_eq!(kept.as_deref(), Some(&[7; 1000][..]), "operation {at}");
    }
}

/// Two threads dropped a keyspace at the same time. Both logged the drop in the manifest, and the
/// store did not open again: "drops a keyspace that does not exist".
#[test]
fn a_keyspace_is_dropped_once() {
    let storage = SimStorage::new(1);
    let store = Arc::new(open(&storage).expect("opens"));
    store.open_keyspace("gone", None).expect("new");
    let faster = Arc::clone(&store);
    seeded::step_in(Waypoint::KeyspaceFound, move || faster.drop_keyspace("gone").expect("drops"));
    let refused = store.drop_keyspace("gone").expect_err("another was faster");
    assert!(seeded::has_stepped_in());
    assert!(matches!(refused, Error::UnknownKeyspace { .. }), "{refused}");
    store.put("still", "writable").expect("puts");
    drop(open(&storage.process_crash()).expect("opens again"));
}

/// A thread changed the options of a keyspace while another dropped it. The manifest then named the
/// keyspace again, and the next open replayed its records from the log.
#[test]
fn a_dropped_keyspace_is_not_brought_back_by_options() {
    let storage = SimStorage::new(1);
    let store = Arc::new(open(&storage).expect("opens"));
    let gone = store.open_keyspace("gone", None).expect("new");
    gone.put("key", "value").expect("puts");
    let faster = Arc::clone(&store);
    seeded::step_in(Waypoint::KeyspaceFound, move || faster.drop_keyspace("gone").expect("drops"));
    let other = KeyspaceOptions::default().block_bytes(1024);
    let refused = store.open_keyspace("gone", Some(other)).expect_err("another was faster");
    assert!(matches!(refused, Error::UnknownKeyspace { .. }), "{refused}");
    let store = open(&storage.process_crash()).expect("opens again");
    assert_eq!(store.keyspaces(), ["default"]);
}

/// A checkpoint copied half of a batch (P3). The batch wrote to a keyspace that was made while the
/// checkpoint began.
#[test]
fn a_checkpoint_beside_a_new_keyspace_holds_whole_batches() {
    let storage = SimStorage::new(1);
    let store = Arc::new(without_log(&storage));
    let beside = Arc::clone(&store);
    seeded::step_in(Waypoint::MomentKnown, move || {
        let made = beside.open_keyspace("made", None).expect("new");
        let mut batch = Batch::new();
        batch.put(beside.default_keyspace(), "key", "left").expect("fits");
        batch.put(&made, "key", "right").expect("fits");
        beside.write(&batch, WriteOptions::default()).expect("writes");
    });
    store.checkpoint("copy").expect("copies");
    assert!(seeded::has_stepped_in());
    let copy = open(&storage.open_sibling("copy".as_ref()).expect("is there")).expect("opens");
    let left = copy.get("key").expect("reads").is_some();
    let made = copy.keyspace("made").ok();
    let right = made.is_some_and(|made| made.get("key").expect("reads").is_some());
    assert_eq!(left, right, "P3");
}

/// A store without a log: its checkpoints flush.
fn without_log(storage: &SimStorage) -> Store {
    let options = options().wal_mode(WalMode::Off);
    Store::open_on(Arc::new(storage.clone()), options).expect("opens")
}

/// A close beside a checkpoint allows other processes to write to the files.
#[test]
fn a_checkpoint_beside_a_close_leaves_nothing() {
    let storage = SimStorage::new(1);
    let store = open(&storage).expect("opens");
    store.put("key", "value").expect("puts");
    let beside = store.clone();
    seeded::step_in(Waypoint::CutTaken, move || beside.close().expect("closes"));
    let refused = store.checkpoint("copy").expect_err("it was closed meanwhile");
    assert!(matches!(refused, Error::Closed), "{refused}");
    let left = storage.open_sibling("copy".as_ref()).expect("a directory");
    assert!(left.list().expect("lists").is_empty());
}

/// The same happened with a keyspace that is being dropped: the copy had the keyspace without its
/// memtable.
#[test]
fn a_checkpoint_beside_a_drop_holds_all_of_the_keyspace_or_nothing() {
    let storage = SimStorage::new(1);
    let store = Arc::new(open(&storage).expect("opens"));
    let gone = store.open_keyspace("gone", None).expect("new");
    gone.put("old", "1").expect("puts");
    store.flush().expect("flushes");
    gone.put("new", "2").expect("puts");
    let beside = Arc::clone(&store);
    seeded::step_in(Waypoint::KeyspaceMarked, move || beside.checkpoint("copy").expect("copies"));
    store.drop_keyspace("gone").expect("drops");
    assert!(seeded::has_stepped_in());
    let copy = open(&storage.open_sibling("copy".as_ref()).expect("is there")).expect("opens");
    if let Ok(kept) = copy.keyspace("gone") {
        assert!(kept.get("new").expect("reads").is_some(), "P2");
    }
}

/// A collection beside a checkpoint moved values and wrote their pointers after the moment of the
/// copy. In the copy, old pointers led to places that were gone. A single thread was enough,
/// because a flush collects when there is no room for its values.
#[test]
fn a_checkpoint_beside_a_collection_holds_all_values() {
    holds_and_finds(Bug::HoldsIgnored, checkpoint_beside_a_collection);
}

fn checkpoint_beside_a_collection() {
    for (placement, gc_pointers) in [
        (ValuePlacement::Vlog, GcPointers::Stable),
        (ValuePlacement::HashGrouped, GcPointers::Writeback),
    ] {
        let mut options = options();
        let keyspace = options.keyspace.as_mut().expect("set");
        keyspace.values = ValueOptions::default()
            .placement(placement)
            .gc_pointers(gc_pointers)
            .separate_at(100)
            .groups(1)
            .slot_bytes(4096)
            .vlog_chunk_bytes(8192);
        let storage = SimStorage::new(1);
        let store = Store::open_on(Arc::new(storage.clone()), options).expect("opens");
        let store = Arc::new(store);
        for turn in 0..4u8 {
            let keys = (0..40u8).filter(|k| turn == 0 || k % 2 == 0);
            keys.for_each(|k| store.put([k], [turn; 1000]).expect("puts"));
            store.flush().expect("flushes");
        }
        let beside = Arc::clone(&store);
        seeded::step_in(Waypoint::CutTaken, move || {
            (0..2).for_each(|_| beside.collect_values().expect("collects"));
            // Overwrites the places that are free, and removes tables.
            for turn in 4..8u8 {
                (0..40u8).for_each(|k| beside.put([k], [turn; 1000]).expect("puts"));
                beside.compact().expect("compacts");
                beside.collect_values().expect("collects");
            }
        });
        store.checkpoint("copy").expect("copies");
        assert!(seeded::has_stepped_in());
        let copy = open(&storage.open_sibling("copy".as_ref()).expect("is there")).expect("opens");
        for k in 0..40u8 {
            let expected = if k % 2 == 0 { 3 } else { 0 };
            let found = copy.get([k]).expect("reads");
            assert_eq!(found.as_deref(), Some(&[expected; 1000][..]), "{placement:?}, {k}");
        }
    }
}

/// A process died when the edit of a collection was in the manifest but not durable. The next
/// recovery wrote values to the slots that the edit frees. A power cut then lost the edit, and the
/// tree pointed to overwritten slots.
#[test]
fn a_recovery_trusts_no_edit_that_may_be_lost() {
    let mut options = options();
    let keyspace = options.keyspace.as_mut().expect("set");
    keyspace.values = ValueOptions::default()
        .placement(ValuePlacement::HashGrouped)
        .separate_at(100)
        .groups(1)
        .slot_bytes(4096)
        .reserve(100.0);
    let open = |storage: &SimStorage| Store::open_on(Arc::new(storage.clone()), options.clone());
    let crash = |storage: &SimStorage, after: u64| {
        let (at_op, kind) = (storage.ops() + after, FaultKind::Crash);
        storage.inject(Fault { at_op, kind, sticky: true, category: None });
    };
    for at in 0.. {
        let storage = SimStorage::new(1);
        let store = open(&storage).expect("opens");
        for turn in 0..2u8 {
            (0..40 - turn).for_each(|k| store.put([k], [turn; 1000]).expect("puts"));
            store.flush().expect("flushes");
        }
        (0..30u8).for_each(|k| store.put([k], [2; 1000]).expect("puts"));
        store.sync().expect("syncs");
        crash(&storage, at);
        let _ = store.collect_values();
        if storage.fired().is_empty() {
            assert!(at > 3, "{at}: a collection touches the disk");
            return;
        }
        for step in 0.. {
            let left = storage.process_crash();
            crash(&left, step);
            drop(open(&left));
            let is_done = left.fired().is_empty();
            let store = open(&left.power_cut(0).0).expect("P8");
            for k in 0..40u8 {
                let turn = if k < 30 { 2 } else { u8::from(k < 39) };
                let found = store.get([k]);
                let found = found.unwrap_or_else(|error| panic!("{at}, {step}, {k}: {error}"));
                assert_eq!(found.as_deref(), Some(&[turn; 1000][..]), "{at}, {step}, {k}");
            }
            if is_done {
                break;
            }
        }
    }
}

/// A log segment was used again while an older sync still used it. With mapped segments that is
/// refused, and the store accepted no more writes.
#[test]
fn a_segment_under_a_sync_is_not_used_again() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let storage = PosixStorage::open(directory.path(), Access::MustExist).expect("opens");
    let store = Store::open_on(Arc::new(storage), options()).expect("opens");
    let store = Arc::new(store);
    let fill = |store: &Store| {
        (0..150u32).for_each(|k| store.put(k.to_be_bytes(), [7; 1000]).expect("puts"));
    };
    fill(&store);
    let beside = Arc::clone(&store);
    seeded::step_in(Waypoint::LogSyncBegun, move || {
        beside.flush().expect("flushes");
        fill(&beside);
        while beside.run_one_job().expect("prepares") {}
    });
    store.sync().expect("syncs");
    assert!(seeded::has_stepped_in());
    fill(&store);
}

/// A full disk left a half-made manifest behind. Each attempt left another one, and they used up
/// the space that became free (P9).
#[test]
fn a_manifest_that_does_not_fit_is_removed() {
    let storage = SimStorage::new(1);
    let store = open(&storage).expect("opens");
    // The bounds of each table take 120 KB of the manifest, which is rewritten at 1 MiB.
    (0..8u8).for_each(|round| {
        store.put(vec![round; 60_000], "value").expect("puts");
        store.flush().expect("flushes");
    });
    store.put(vec![8; 60_000], "value").expect("puts");
    let used: u64 = storage.list().expect("lists").iter().map(|file| file.len_bytes).sum();
    storage.set_capacity_bytes(Some(used + (300 << 10)));
    let error = store.flush().expect_err("the disk is full");
    assert!(error.is_no_space(), "{error}");
    assert_eq!(names(&storage, ".manifest").len(), 1);
}

/// A recovery that found the disk full left its tables behind, more at each attempt (P9). Now they
/// are removed, and the store opens with the log as it is.
#[test]
fn a_recovery_that_finds_the_disk_full_leaves_nothing() {
    let storage = SimStorage::new(1);
    let store = open(&storage).expect("opens");
    for k in 0..3000u32 {
        let value: Vec<u8> = (0..1000u32).map(|i| (((k + i) * (k ^ i)) >> 7) as u8).collect();
        store.put(k.to_be_bytes(), value).expect("puts");
    }
    let left = storage.process_crash();
    drop(store);
    let files = left.list().expect("lists");
    let used: u64 = files.iter().map(|file| file.len_bytes.next_multiple_of(4096)).sum();
    let before = names(&left, ".table");
    // Room for one table but not for a second.
    left.set_capacity_bytes(Some(used + (3 << 19)));
    let store = open(&left).expect("opens");
    assert_eq!(names(&left, ".table"), before);
    (0..3000u32).for_each(|k| assert!(store.get(k.to_be_bytes()).expect("reads").is_some(), "{k}"));
    // Where callers run the jobs, a write that finds room succeeds.
    let refused = (0..3000u32).find_map(|k| store.put(k.to_be_bytes(), [7; 1000]).err());
    let refused = refused.expect("the disk is full");
    assert!(refused.is_no_space(), "{refused}");
}

/// Log segments that found no room were left behind, one more at each attempt.
#[test]
fn a_segment_that_does_not_fit_is_removed() {
    // A segment is created, then given its blocks and its length, then begun.
    for (wal_mode, steps) in [(WalMode::Mapped, 2), (WalMode::Write, 4)] {
        for step in 0..steps {
            let storage = SimStorage::new(1);
            let options = options().wal_mode(wal_mode);
            let store = Store::open_on(Arc::new(storage.clone()), options).expect("opens");
            let (at_op, category) = (storage.ops() + step, Some(Category::Wal));
            storage.inject(Fault { at_op, kind: FaultKind::NoSpace, sticky: false, category });
            let error = store.put("key", "value").expect_err("the disk is full");
            assert!(error.is_no_space(), "{error}");
            assert_eq!(storage.fired().len(), 1);
            assert!(names(&storage, ".wal").is_empty(), "{wal_mode:?}, step {step}");
        }
    }
}

/// An empty batch with a sync is what users of other stores call a barrier. It was acknowledged,
/// and a power cut lost the writes before it.
#[test]
fn an_empty_batch_is_a_barrier() {
    let storage = SimStorage::new(1);
    let store = open(&storage).expect("opens");
    store.put("key", "value").expect("puts");
    store.write(&Batch::new(), WriteOptions::default()).expect("nothing to do");
    store.write(&Batch::new(), WriteOptions::sync()).expect("syncs");
    for seed in 0..8 {
        let store = open(&storage.power_cut(seed).0).expect("P8");
        assert!(store.get("key").expect("reads").is_some(), "seed {seed}: P1");
    }
    let storage = SimStorage::new(1);
    let store = open(&storage).expect("opens");
    let (at_op, kind) = (storage.ops(), FaultKind::FailedSync);
    storage.inject(Fault { at_op, kind, sticky: false, category: Some(Category::Wal) });
    store.put("lost", "value").expect("puts");
    for _ in 0..2 {
        let error = store.write(&Batch::new(), WriteOptions::sync()).expect_err("P7");
        assert!(matches!(error, Error::Stopped { .. }), "{error}");
    }
}

/// A writer filled the memtable of a keyspace while another thread dropped the keyspace. The writer
/// then made all writers wait until its memtables were flushed, which nothing did any more.
#[test]
fn the_pressure_of_a_dropped_keyspace_goes_with_it() {
    let storage = SimStorage::new(1);
    let store = Arc::new(open(&storage).expect("opens"));
    let options =
        KeyspaceOptions::default().write_buffer_bytes(64 << 10).max_immutable_memtables(1);
    let gone = store.open_keyspace("gone", Some(options)).expect("new");
    let beside = Arc::clone(&store);
    seeded::step_in(Waypoint::MemtableReplaced, move || {
        beside.drop_keyspace("gone").expect("drops");
    });
    let mut key = 0u32;
    while !seeded::has_stepped_in() {
        gone.put(key.to_be_bytes(), [7; 1000]).expect("puts");
        key += 1;
    }
    assert_eq!(store.metrics().pressure.level.parts(), 0);
}

/// A checkpoint did not wait for a keyspace that was being dropped. The drop then found the disk
/// full, and the copy had the keyspace without its memtable.
#[test]
fn a_checkpoint_beside_a_drop_that_fails_holds_the_keyspace() {
    let storage = SimStorage::new(1);
    let store = Arc::new(without_log(&storage));
    let gone = store.open_keyspace("kept", None).expect("new");
    gone.put("old", "1").expect("puts");
    store.flush().expect("flushes");
    gone.put("new", "2").expect("puts");
    let (marked, is_marked) = mpsc::channel();
    let (go, may_go) = mpsc::channel();
    let (beside, disk) = (Arc::clone(&store), storage.clone());
    let dropping = std::thread::spawn(move || {
        seeded::step_in(Waypoint::KeyspaceMarked, move || {
            marked.send(()).expect("is awaited");
            may_go.recv().expect("comes");
            let (at_op, kind) = (disk.ops(), FaultKind::NoSpace);
            let category = Some(Category::Manifest);
            disk.inject(Fault { at_op, kind, sticky: false, category });
        });
        let error = beside.drop_keyspace("kept").expect_err("the disk is full");
        assert!(error.is_no_space(), "{error}");
    });
    is_marked.recv().expect("comes");
    seeded::step_in(Waypoint::FlushesAwaited, move || {
        go.send(()).expect("is awaited");
        dropping.join().expect("fails as expected");
    });
    store.checkpoint("copy").expect("copies");
    assert!(seeded::has_stepped_in());
    let copy = open(&storage.open_sibling("copy".as_ref()).expect("is there")).expect("opens");
    let kept = copy.keyspace("kept").expect("was never dropped");
    assert!(kept.get("new").expect("reads").is_some(), "P2");
}

/// A checkpoint keeps old values with a snapshot. The snapshot kept the checkpoint's own flush from
/// finding room, and the store refused writes for a while.
#[test]
fn a_checkpoint_finds_room_for_its_own_flush() {
    let mut options = options();
    let keyspace = options.keyspace.as_mut().expect("set");
    keyspace.values = ValueOptions::default()
        .placement(ValuePlacement::Vlog)
        .separate_at(100)
        .slot_bytes(4096)
        .vlog_chunk_bytes(8192)
        .capacity_bytes(80_000)
        .reserve(0.3)
        .when_full(WhenFull::Error);
    let storage = SimStorage::new(1);
    let store = Store::open_on(Arc::new(storage.clone()), options).expect("opens");
    for turn in 0..12u8 {
        // Keys that are not rewritten are between the rewritten ones, so a collection has to move
        // them.
        let keys = (0..40u8).filter(|k| turn == 0 || k % 2 == 0);
        keys.for_each(|k| store.put([k], [turn; 1000]).expect("puts"));
        store.checkpoint(format!("copy{turn}")).unwrap_or_else(|error| panic!("{turn}: {error}"));
        store.put("still", "writable").expect("puts");
    }
}

/// A log segment could not be removed. The drop of a keyspace failed and writes stopped, although
/// the keyspace was gone. Now the segment is left to the next open, as tables and value files are.
#[test]
fn a_segment_that_is_not_removed_is_left_to_the_next_open() {
    let storage = SimStorage::new(1);
    let store = open(&storage).expect("opens");
    let gone = store.open_keyspace("gone", None).expect("new");
    // A length unlike the others, so that the segment is not used again.
    gone.put("key", vec![7; 200_000]).expect("puts");
    store.put("key", vec![7; 200_000]).expect("puts");
    let before = names(&storage, ".wal");
    let (at_op, category) = (storage.ops(), Some(Category::Wal));
    storage.inject(Fault { at_op, kind: FaultKind::FailedRemove, sticky: false, category });
    store.drop_keyspace("gone").expect("drops");
    assert_eq!(storage.fired().len(), 1);
    let after = names(&storage, ".wal");
    assert!(before.iter().all(|name| after.contains(name)), "{before:?}, {after:?}");
    store.put("still", "writable").expect("puts");
    let left = storage.process_crash();
    let store = open(&left).expect("P8");
    assert!(store.get("still").expect("reads").is_some());
    assert!(names(&left, ".wal").is_empty(), "P10");
}

/// A keyspace got the id of one that was dropped before the last open and whose writes were still
/// in the log. None of these writes may reach a new keyspace, wherever the process dies or the
/// power is cut. Now no id is given out twice.
#[test]
fn a_keyspace_made_after_one_was_dropped_begins_empty() {
    for step in 0.. {
        let storage = SimStorage::new(1);
        let store = open(&storage).expect("opens");
        // Keeps the beginning of the log, so that the records of the other keyspace stay in it.
        store.put("first", "value").expect("puts");
        let gone = store.open_keyspace("gone", None).expect("new");
        gone.put("old", "value").expect("puts");
        store.drop_keyspace("gone").expect("drops");
        store.sync().expect("syncs");
        let mut left = storage.process_crash();
        let (at_op, kind) = (left.ops() + step, FaultKind::Crash);
        left.inject(Fault { at_op, kind, sticky: true, category: None });
        drop(open(&left));
        let is_done = left.fired().is_empty();
        left = if step % 2 == 0 { left.power_cut(step).0 } else { left.process_crash() };
        let store = open(&left).expect("P8");
        let made = store.open_keyspace("made", None).expect("new");
        assert_ne!(made.id(), gone.id(), "what this test is about");
        made.put("new", "value").expect("puts");
        store.sync().expect("syncs");
        for left in [left.process_crash(), left.power_cut(step).0] {
            let store = open(&left).expect("P8");
            let made = store.keyspace("made").expect("is there");
            let entries = made.iter().expect("opens").map(|entry| entry.expect("reads").0);
            let keys: Vec<_> = entries.collect();
            assert_eq!(keys, [b"new"], "step {step}");
            assert!(store.get("first").expect("reads").is_some(), "step {step}");
        }
        if is_done {
            assert!(step > 5, "{step}: an open touches the disk");
            return;
        }
    }
}

/// With jobs run by hand, a flush returned early while another thread held it back. Here the other
/// thread makes a checkpoint that has not found its moment. The data of the flush was still in
/// memory.
#[test]
fn a_flush_waits_for_what_another_thread_holds_back() {
    let storage = SimStorage::new(1);
    let store = Arc::new(without_log(&storage));
    store.put("before", "the moment").expect("puts");
    let (begun, flushing) = mpsc::channel();
    let beside = Arc::clone(&store);
    seeded::step_in(Waypoint::MemtablesReplaced, move || {
        beside.put("behind", "the moment").expect("puts");
        let (is_done, done) = mpsc::channel();
        let flush = std::thread::spawn(move || {
            beside.flush().expect("flushes");
            let left = beside.default_keyspace().memtable_bytes();
            let _ = is_done.send(());
            left
        });
        let _ = done.recv_timeout(Duration::from_millis(100));
        begun.send(flush).expect("awaited");
    });
    store.checkpoint("copy").expect("copies");
    assert!(seeded::has_stepped_in());
    let flush = flushing.recv().expect("began");
    assert_eq!(flush.join().expect("no panic"), 0, "bytes that the flush left in memory");
}
