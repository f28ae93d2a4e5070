//! The n-th operation fails: EIO, a full disk, a failed sync, a short write. Acknowledged writes
//! stay; after a failed sync nothing more is acknowledged (P7); a full disk is waited out (P9).
//! Also a crash during recovery.

use std::sync::Arc;

use runstone::seeded::{self, Waypoint};
use runstone::storage::{Category, Storage};
use runstone::{
    Background, Cursor, Error, Keyspace, KeyspaceOptions, Options, ReadOptions, Store,
    ValuePlacement, WriteOptions,
};
use runstone_fault_storage::{Fault, FaultKind, SimStorage};
use runstone_sim::crash::{count_operations, judge, run, run_until_error};
use runstone_sim::oracle::Oracle;
use runstone_sim::workload::{self, generate, keyspaces, read_all};

fn fail_everywhere(kind: FaultKind, sticky: bool, seeds: std::ops::Range<u64>) {
    let mut fired = 0;
    for seed in seeds {
        let operations = generate(seed, 120);
        let (count, _) =
            count_operations(&workload::options(seed, Background::Manual), &operations);
        for at in 0..count {
            let storage = SimStorage::new(seed);
            let options = workload::options(seed, Background::Manual);
            storage.inject(Fault { at_op: at, kind, sticky, category: None });
            // The workload stops at the first error, as a careful program would, and the store is
            // dropped and does whatever it still can.
            let oracle = run_until_error(&storage, &options, &operations);
            fired += storage.fired().len();
            storage.clear_faults();
            let place = format!("{kind:?} sticky {sticky}, seed {seed}, operation {at}");
            judge(&storage.process_crash(), &options, &oracle, false, &place);
            judge(&storage.power_cut(at).0, &options, &oracle, true, &place);
        }
    }
    assert!(fired > 0, "{kind:?} never fired");
}

#[test]
fn eio_once() {
    fail_everywhere(FaultKind::Eio, false, 20..23);
}

#[test]
fn eio_for_ever() {
    fail_everywhere(FaultKind::Eio, true, 23..25);
}

#[test]
fn no_space_once() {
    fail_everywhere(FaultKind::NoSpace, false, 25..28);
}

#[test]
fn short_writes() {
    fail_everywhere(FaultKind::ShortWrite, false, 28..30);
}

#[test]
fn reads_that_fail() {
    fail_everywhere(FaultKind::EioOnRead, false, 33..36);
    fail_everywhere(FaultKind::ShortRead, false, 36..38);
}

#[test]
fn bits_that_reads_flip() {
    fail_everywhere(FaultKind::BitFlipOnRead, false, 38..41);
}

#[test]
fn failed_syncs() {
    fail_everywhere(FaultKind::FailedSync, false, 30..33);
}

/// A file that is not needed any more stops nothing. Once, when an old manifest or a spare log
/// segment could not be removed, writes stopped until the next open, and an open that found such a
/// file failed.
#[test]
fn files_that_cannot_be_removed_stop_nothing() {
    let mut left = 0;
    for seed in 42..54 {
        let operations = generate(seed, 200);
        let options = workload::options(seed, Background::Manual);
        let storage = SimStorage::new(seed);
        // A file that does not exist has no category and cannot stay.
        let keep_all = |storage: &SimStorage| {
            for category in Category::ALL.map(Some) {
                let kind = FaultKind::FailedRemove;
                storage.inject(Fault { at_op: 0, kind, sticky: true, category });
            }
        };
        keep_all(&storage);
        let (oracle, outcome) = run(&storage, &options, &operations);
        outcome.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        left += storage.fired().len();
        let place = format!("removes that fail, seed {seed}");
        let crashed = storage.process_crash();
        keep_all(&crashed);
        let store = Store::open_on(Arc::new(crashed.clone()), options.clone());
        let store = store.unwrap_or_else(|error| panic!("{place}: {error}"));
        oracle.judge(&read_all(&store, None).expect("no faults")).expect("nothing is lost");
        drop(store);
        crashed.clear_faults();
        judge(&crashed, &options, &oracle, false, &place);
    }
    assert!(left > 0, "nothing was removed");
}

#[test]
fn after_a_failed_sync_nothing_is_acknowledged() {
    let storage = SimStorage::new(1);
    let options = workload::options(1, Background::Manual);
    let shared: Arc<dyn Storage> = Arc::new(storage.clone());
    let store = Store::open_on(shared, options).expect("open");
    store.put("before", "1").expect("put");
    let at_op = storage.ops();
    let category = Some(Category::Wal);
    storage.inject(Fault { at_op, kind: FaultKind::FailedSync, sticky: false, category });
    let keyspace = store.default_keyspace();
    let error = keyspace.put_with("a", "1", WriteOptions::sync()).expect_err("sync fails");
    assert!(matches!(error, Error::Stopped { .. }), "{error}");
    for _ in 0..3 {
        let error = keyspace.put_with("b", "1", WriteOptions::sync()).expect_err("stopped");
        assert!(matches!(error, Error::Stopped { .. }), "{error}");
        let error = store.put("c", "1").expect_err("stopped");
        assert!(matches!(error, Error::Stopped { .. }), "{error}");
    }
    assert_eq!(store.get("before").expect("reads go on").as_deref(), Some(&b"1"[..]));
    assert_eq!(storage.fired().len(), 1);
}

/// A directory sync by the manifest failed beside a writer that had begun a synced write. The
/// writer's own directory sync, which covers the name of its log segment, then succeeded. After the
/// failure nobody knows what that success means.
#[test]
fn a_failed_sync_of_the_directory_counts_for_all_who_share_it() {
    let storage = SimStorage::new(1);
    let options = workload::options(1, Background::Manual);
    let store = Store::open_on(Arc::new(storage.clone()), options).expect("open");
    let store = Arc::new(store);
    let (beside, disk) = (Arc::clone(&store), storage.clone());
    seeded::step_in(Waypoint::LogSyncBegun, move || {
        let (at_op, kind) = (disk.ops(), FaultKind::FailedDirSync);
        disk.inject(Fault { at_op, kind, sticky: false, category: None });
        let error = beside.flush().expect_err("the directory is not synced");
        assert!(matches!(error, Error::Stopped { .. }), "{error}");
    });
    let outcome = store.default_keyspace().put_with("key", "1", WriteOptions::sync());
    assert!(seeded::has_stepped_in());
    let error = outcome.expect_err("P7");
    assert!(matches!(error, Error::Stopped { .. }), "{error}");
}

/// Once, only a sync of the manifest or of values reported the full disk. The store waited for
/// space although nobody knew what those files contained. Writes continued until the next edit was
/// refused (P7).
#[test]
fn a_full_disk_that_a_sync_finds_is_not_waited_out() {
    for (category, placement) in [
        (Category::Manifest, ValuePlacement::Inline),
        (Category::Value, ValuePlacement::HashGrouped),
    ] {
        let storage = SimStorage::new(1);
        let options = workload::placed(workload::options(1, Background::Manual), placement);
        let store = Store::open_on(Arc::new(storage.clone()), options).expect("open");
        store.put("before", [1; 3000]).expect("put");
        let (at_op, kind) = (storage.ops(), FaultKind::NoSpaceOnSync);
        storage.inject(Fault { at_op, kind, sticky: false, category: Some(category) });
        store.flush().expect_err("the disk is full");
        assert_eq!(storage.fired().len(), 1);
        let error = store.put("after", "1").expect_err("P7");
        assert!(matches!(error, Error::Stopped { .. }), "{category:?}: {error}");
    }
}

/// Collections write the pointers of some values. Once, a flush of such values that needed a
/// collection was refused for lack of space, and nothing else could detect that space was back.
#[test]
fn a_full_disk_is_waited_out() {
    let options = || workload::options(2, Background::Manual);
    wait_out_a_full_disk(options());
    for placement in [ValuePlacement::HashGrouped, ValuePlacement::Vlog] {
        wait_out_a_full_disk(workload::placed(options(), placement));
    }
    wait_out_a_full_disk(workload::written_back(options()));
    wait_out_a_full_disk(workload::cooled_back(options()));
}

fn wait_out_a_full_disk(mut options: Options) {
    let storage = SimStorage::new(2);
    options.wal_segment_bytes = 64 << 10;
    let reopened = options.clone();
    let shared: Arc<dyn Storage> = Arc::new(storage.clone());
    let store = Store::open_on(shared, options).expect("open");
    storage.set_capacity_bytes(Some(600 << 10));
    let value = vec![7u8; 3000];
    let mut acknowledged = 0u32;
    let refused = loop {
        match store
            .put(acknowledged.to_be_bytes(), [&value[..], &acknowledged.to_be_bytes()].concat())
        {
            Ok(()) => acknowledged += 1,
            Err(error) => break error,
        }
        assert!(acknowledged < 10_000, "the disk is never full");
    };
    assert!(refused.is_no_space(), "{refused}");
    assert!(refused.hint().contains("space"));
    for i in 0..acknowledged {
        assert!(store.get(i.to_be_bytes()).expect("reads go on").is_some(), "{i}");
    }
    storage.set_capacity_bytes(None);
    std::thread::sleep(std::time::Duration::from_millis(600));
    let mut tries = 0;
    while let Err(error) = store.put("again", "writable") {
        assert!(error.is_no_space(), "{error}");
        std::thread::sleep(std::time::Duration::from_millis(100));
        tries += 1;
        assert!(tries < 100, "space is back, and the store does not notice");
    }
    store.flush().expect("flush");
    store.wait_idle().expect("idle");
    store.close().expect("close");
    let shared: Arc<dyn Storage> = Arc::new(storage.clone());
    let store = Store::open_on(shared, reopened).expect("reopen");
    for i in 0..acknowledged {
        assert!(store.get(i.to_be_bytes()).expect("get").is_some(), "{i} of {acknowledged}");
    }
}

#[test]
fn a_crash_during_recovery_changes_nothing() {
    for seed in [40, 41, 42] {
        let operations = generate(seed, 150);
        let (count, _) =
            count_operations(&workload::options(seed, Background::Manual), &operations);
        let options = workload::options(seed, Background::Manual);
        for at in (10..count).step_by(23) {
            let storage = SimStorage::new(seed);
            storage.inject(Fault {
                at_op: at,
                kind: FaultKind::Crash,
                sticky: true,
                category: None,
            });
            let oracle = run_until_error(&storage, &options, &operations);
            let whole = storage.power_cut(at).0;
            let before = whole.ops();
            drop(Store::open_on(Arc::new(whole.clone()), options.clone()).expect("P8"));
            let recovery_ops = whole.ops() - before;
            for step in 0..recovery_ops {
                let left = storage.power_cut(at).0;
                left.inject(Fault {
                    at_op: left.ops() + step,
                    kind: FaultKind::Crash,
                    sticky: true,
                    category: None,
                });
                drop(Store::open_on(Arc::new(left.clone()), options.clone()));
                let again = left.power_cut(step).0;
                let place = format!("seed {seed}, crash at {at}, then at {step} of recovery");
                judge(&again, &options, &oracle, true, &place);
            }
        }
    }
}

#[test]
fn concurrent_writers_keep_their_promises() {
    let storage = SimStorage::new(9);
    let options = workload::options(9, Background::Threads(2));
    let shared: Arc<dyn Storage> = Arc::new(storage.clone());
    let store = Store::open_on(shared, options.clone()).expect("open");
    std::thread::scope(|scope| {
        for writer in 0..4u32 {
            let store = &store;
            scope.spawn(move || {
                for i in 0..500u32 {
                    let key = format!("{writer}/{i}");
                    let options =
                        if i % 10 == 0 { WriteOptions::sync() } else { Default::default() };
                    store.default_keyspace().put_with(&key, &key, options).expect("put");
                    let found = store.get(&key).expect("get");
                    assert_eq!(found.as_deref(), Some(key.as_bytes()), "its own write at once");
                }
            });
        }
    });
    let cut = storage.process_crash();
    drop(store);
    let store = Store::open_on(Arc::new(cut), options).expect("reopen");
    keyspaces(&store).expect("made");
    let state = read_all(&store, None).expect("read");
    assert_eq!(state.len(), 2_000);
    let mut oracle = Oracle::from_state(state.clone());
    oracle.synced();
    assert!(oracle.judge(&state).is_ok());
}

/// Four overlapping runs: each key has several versions, and every third key is deleted.
fn store_of_four_runs(storage: &SimStorage, placement: ValuePlacement) -> Store {
    let mut keyspace = KeyspaceOptions::default();
    keyspace.values.placement = placement;
    keyspace.values.separate_at = 100;
    let background = Background::Manual;
    let options = Options::default().background(background).keyspace(keyspace);
    let open = || Store::open_on(Arc::new(storage.clone()), options.clone()).expect("opens");
    let store = open();
    for turn in 0..4 {
        for number in (0..120).filter(|number| turn == 0 || number % 4 != turn) {
            let key = format!("{number:03}");
            match turn == 2 && number % 3 == 0 {
                true => store.delete(key).expect("deletes"),
                false => store.put(key, [turn; 150]).expect("puts"),
            }
        }
        store.flush().expect("flushes");
    }
    // Reopening empties the cache.
    store.close().expect("closes");
    open()
}

type Shown = Vec<(Vec<u8>, Vec<u8>)>;
type Step = fn(&mut Cursor) -> Result<(), Error>;

/// Returns what a walk shows. After a failed read it seeks to the last entry, or to the one whose
/// value could not be read, and continues.
fn walk(keyspace: &Keyspace, first: Step, step: Step) -> (Shown, u64) {
    let (mut shown, mut failures) = (Shown::new(), 0);
    let mut cursor = keyspace.cursor(ReadOptions::default().fill_cache(false)).expect("opens");
    let mut moved = first(&mut cursor);
    loop {
        if moved.is_err() {
            failures += 1;
            assert!(!cursor.valid(), "on no entry with a value after an error");
            if !cursor.key().is_empty() {
                // Only its value could not be read.
                let key = cursor.key().to_vec();
                moved = cursor.seek(key);
                continue;
            }
            for step in [step, Cursor::next, Cursor::prev] {
                step(&mut cursor).expect_err("this is not the end");
                assert!(!cursor.valid(), "an entry of which nobody knows what lies between");
            }
            moved = match shown.last() {
                Some((key, _)) => cursor.seek(key).and_then(|()| step(&mut cursor)),
                None => first(&mut cursor),
            };
            continue;
        }
        if moved.is_ok() && !cursor.valid() {
            return (shown, failures);
        }
        if moved.is_ok() {
            shown.push((cursor.key().to_vec(), cursor.value().to_vec()));
            moved = step(&mut cursor);
        }
    }
}

/// Once, a cursor whose read failed stayed on an entry without a key. The next step could show a
/// version that the failed step had already passed.
#[test]
fn a_cursor_is_on_no_entry_after_a_read_that_failed() {
    for placement in [ValuePlacement::Inline, ValuePlacement::HashGrouped] {
        let storage = SimStorage::new(1);
        let store = store_of_four_runs(&storage, placement);
        let forward: (Step, Step) = (Cursor::seek_to_first, Cursor::next);
        for (first, step) in [forward, (Cursor::seek_to_last, Cursor::prev)] {
            let (expected, _) = walk(store.default_keyspace(), first, step);
            let before = storage.reads();
            assert_eq!(walk(store.default_keyspace(), first, step).0, expected);
            let count = storage.reads() - before;
            // Values whose joint read fails are read one by one.
            let mut failed = 0;
            for at in 0..count {
                let (at_op, kind) = (storage.reads() + at, FaultKind::EioOnRead);
                storage.inject(Fault { at_op, kind, sticky: false, category: None });
                let (shown, failures) = walk(store.default_keyspace(), first, step);
                assert_eq!(shown, expected, "{placement:?}, read {at}");
                failed += failures;
            }
            assert!(failed >= 4, "{failed} of {count} failures seen");
        }
    }
}
