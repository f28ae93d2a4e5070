//! Readers beside a writer where the writer frees, revokes or closes at the worst moment.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use runstone::storage::Storage;
use runstone::{
    Background, Backups, ErrorKind, KeyspaceOptions, Options, Store, ValueOptions, ValuePlacement,
};
use runstone_fault_storage::SimStorage;

use super::hooked::Hooked;

fn values(placement: ValuePlacement) -> KeyspaceOptions {
    let values = ValueOptions::default().placement(placement).separate_at(1000);
    KeyspaceOptions::default().values(values.groups(1).slot_bytes(4096).vlog_chunk_bytes(8192))
}

fn plain(placement: ValuePlacement) -> Options {
    Options::default()
        .memory_budget_bytes(2 << 20)
        .background(Background::Manual)
        .wal_segment_bytes(64 << 10)
        .seed(7)
        .keyspace(values(placement))
}

fn open(storage: &SimStorage, options: &Options) -> Store {
    Store::open_on(Arc::new(storage.clone()), options.clone()).expect("it opens")
}

fn key(number: u32) -> Vec<u8> {
    format!("key{number:05}").into_bytes()
}

fn fill(store: &Store, numbers: std::ops::Range<u32>, byte: u8, bytes: usize) {
    numbers.for_each(|number| store.put(key(number), vec![byte; bytes]).expect("it writes"));
}

/// The lease of a backup is revoked while it copies, and the data that it copies are overwritten.
#[test]
fn a_backup_without_its_lease_is_no_backup() {
    for placement in [ValuePlacement::Vlog, ValuePlacement::HashGrouped] {
        let options = plain(placement).follower_keep_bytes(1);
        let storage = SimStorage::new(1);
        let store = open(&storage, &options);
        fill(&store, 0..100, 1, 2000);
        store.flush().expect("it flushes");
        fill(&store, 0..10, 2, 2000);
        let (other, done) = (store.clone(), AtomicBool::new(false));
        let hook = move |name: &str| {
            if name.ends_with(".values") && !done.swap(true, SeqCst) {
                for round in 3..40 {
                    fill(&other, 0..100, round, 2000);
                    other.flush().expect("it flushes");
                    other.compact().expect("it compacts");
                    other.collect_values().expect("it collects");
                }
            }
        };
        let disk: Arc<dyn Storage> = Arc::new(SimStorage::new(2));
        let backups = Backups::open_on(disk).expect("it opens");
        let source = Hooked::new(&storage, Box::new(hook));
        let Err(error) = backups.create_on(source) else {
            let target = SimStorage::new(3);
            backups.restore_on(1, &(Arc::new(target.clone()) as Arc<dyn Storage>)).expect("r");
            let copy = open(&target, &options);
            for number in 0..100 {
                let expected = if number < 10 { 2 } else { 1 };
                let found = copy.get(key(number)).unwrap_or_else(|e| panic!("{placement:?}: {e}"));
                assert_eq!(found.as_deref(), Some(&[expected; 2000][..]), "{placement:?}");
            }
            continue;
        };
        assert!(store.metrics().follower_leases_revoked > 0);
        assert_eq!(error.kind(), ErrorKind::LeaseRevoked, "{placement:?}: {error}");
        assert_eq!(backups.list().expect("it lists"), []);
    }
}

/// The same test for a checkpoint of a follower, and for tables.
#[test]
fn a_checkpoint_without_its_lease_is_no_store() {
    let options = plain(ValuePlacement::Vlog).follower_keep_bytes(1);
    let storage = SimStorage::new(1);
    let store = open(&storage, &options);
    fill(&store, 0..100, 1, 2000);
    store.flush().expect("it flushes");
    let (other, armed) = (store.clone(), Arc::new(AtomicBool::new(false)));
    let is_armed = Arc::clone(&armed);
    let hook = move |name: &str| {
        if name.ends_with(".values") && is_armed.swap(false, SeqCst) {
            for round in 3..40 {
                fill(&other, 0..100, round, 2000);
                other.flush().expect("it flushes");
                other.compact().expect("it compacts");
                other.collect_values().expect("it collects");
            }
        }
    };
    let source = Hooked::new(&storage, Box::new(hook));
    let follower = Store::follow_on(source, options.clone()).expect("it follows");
    armed.store(true, SeqCst);
    let path = std::path::Path::new("copy");
    let Err(error) = follower.checkpoint(path) else {
        let copy = open(&storage.open_sibling(path).expect("it is there"), &options);
        for number in 0..100 {
            let found = copy.get(key(number)).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(found.as_deref(), Some(&[1; 2000][..]));
        }
        return;
    };
    assert_eq!(error.kind(), ErrorKind::LeaseRevoked, "{error}");
}

/// The view of a follower is a store without a lease of its own. A checkpoint of the view would
/// copy files that the writer may overwrite at the same time.
#[test]
fn a_view_makes_no_checkpoint() {
    let storage = SimStorage::new(1);
    let store = open(&storage, &plain(ValuePlacement::Inline));
    store.put("key", "value").expect("no faults");
    let follower = Store::follow_on(Arc::new(storage.clone()), plain(ValuePlacement::Inline));
    let follower = follower.expect("it follows");
    let refused = follower.store().checkpoint("copy").expect_err("it is a view");
    assert!(refused.hint().contains("Follower::checkpoint"), "{refused}");
    follower.checkpoint("copy").expect("the follower does it");
}

/// A writer that flushes whenever a reader looks for its manifest is always ahead of the part of
/// the log that the reader has. Once, the reader gave up after some rounds: it used the tables
/// without the writes that only the log had, or reported that the log was corrupt.
#[test]
fn a_writer_that_always_flushes_is_followed() {
    let mut options = plain(ValuePlacement::Inline);
    options.keyspace.get_or_insert_default().write_buffer_bytes = 64 << 10;
    let storage = SimStorage::new(1);
    let store = open(&storage, &options);
    let logged = store.open_keyspace("logged", None).expect("it is made");
    let (other, round) = (store.clone(), Arc::new(AtomicU32::new(0)));
    let written = Arc::clone(&round);
    let hook = move |name: &str| {
        if name == "CURRENT" {
            let round = written.fetch_add(1, SeqCst) as u8;
            logged.put("round", [round]).expect("it is logged");
            fill(&other, 0..40, round, 2000);
            while other.run_one_job().expect("it flushes") {}
        }
    };
    let source = Hooked::new(&storage, Box::new(hook));
    let follower = Store::follow_on(source.clone(), options.clone()).expect("it follows");
    for _ in 0..3 {
        let before = round.load(SeqCst);
        follower.refresh().expect("it is readable");
        let view = follower.store();
        let flushed = view.get(key(0)).expect("it reads").expect("it is there")[0];
        let logged = view.keyspace("logged").expect("it is there");
        let logged = logged.get("round").expect("it reads").expect("it is there")[0];
        assert!(logged >= flushed && u32::from(flushed) + 1 >= before, "{logged}, {flushed}");
        let backups = Backups::open_on(Arc::new(SimStorage::new(2))).expect("it opens");
        backups.create_on(source.clone()).expect("it is made");
    }
}

/// The writer closes while a backup copies. The lease keeps the log.
#[test]
fn a_close_leaves_a_backup_its_log() {
    close_in_a_backup(100);
    close_in_a_backup(0);
}

fn close_in_a_backup(unflushed: u32) {
    let options = plain(ValuePlacement::Inline);
    let storage = SimStorage::new(1);
    let store = open(&storage, &options);
    fill(&store, 0..100, 1, 200);
    store.flush().expect("it flushes");
    fill(&store, 100..100 + unflushed, 1, 200);
    let slot = Mutex::new(Some(store));
    let hook = move |name: &str| {
        if name.ends_with(".table")
            && let Some(store) = slot.lock().expect("no panic").take()
        {
            store.close().expect("it closes");
        }
    };
    let disk: Arc<dyn Storage> = Arc::new(SimStorage::new(2));
    let backups = Backups::open_on(disk).expect("it opens");
    let made = backups.create_on(Hooked::new(&storage, Box::new(hook)));
    made.unwrap_or_else(|error| panic!("{error}"));
    let target = SimStorage::new(3);
    backups.restore_on(1, &(Arc::new(target.clone()) as Arc<dyn Storage>)).expect("r");
    let copy = open(&target, &options);
    assert_eq!(copy.default_keyspace().iter().expect("scans").count(), 100 + unflushed as usize);
}

/// A revoked follower opens a table that is gone.
#[test]
fn a_missing_table_of_a_revoked_view_is_told_as_such() {
    let options = plain(ValuePlacement::Inline).follower_keep_bytes(1);
    let storage = SimStorage::new(1);
    let store = open(&storage, &options);
    fill(&store, 0..100, 1, 200);
    store.flush().expect("it flushes");
    let follower =
        Store::follow_on(Arc::new(storage.clone()), options.clone()).expect("it follows");
    let view = follower.store();
    for round in 2..5 {
        fill(&store, 0..100, round, 200);
        store.flush().expect("it flushes");
        store.compact().expect("it compacts");
        store.run_one_job().expect("it runs");
    }
    assert_eq!(store.metrics().follower_leases_revoked, 1);
    let error = view.get(key(1)).expect_err("its table is gone");
    assert_eq!(error.kind(), ErrorKind::LeaseRevoked, "{error}");
    let error = follower.refresh().expect_err("it is revoked");
    assert_eq!(error.kind(), ErrorKind::LeaseRevoked, "{error}");
}

/// The bytes of the value file of a dropped keyspace count as held by followers.
#[test]
fn the_value_file_of_a_dropped_keyspace_counts() {
    let options = plain(ValuePlacement::HashGrouped).follower_keep_bytes(100 << 20);
    let storage = SimStorage::new(1);
    let store = open(&storage, &options);
    let own =
        store.open_keyspace("own", Some(values(ValuePlacement::HashGrouped))).expect("it opens");
    for number in 0..1000 {
        own.put(key(number), vec![1; 2000]).expect("it writes");
    }
    store.flush().expect("it flushes");
    let follower =
        Store::follow_on(Arc::new(storage.clone()), options.clone()).expect("it follows");
    let view = follower.store();
    store.drop_keyspace("own").expect("it drops");
    while store.run_one_job().expect("it runs") {}
    fill(&store, 0..10, 1, 100);
    store.flush().expect("it flushes");
    let held = store.metrics().follower_held_bytes;
    assert!(held > 2_000_000, "two megabytes of values stay: {held}");
    assert_eq!(
        view.keyspace("own").expect("there").get(key(5)).expect("reads").map(|v| v.len()),
        Some(2000)
    );
}

/// A backup that was cut short left a table. A store that is restored from an earlier backup uses
/// that table's number again.
#[test]
fn a_table_that_no_backup_names_is_not_trusted() {
    let options = plain(ValuePlacement::Inline);
    let storage = SimStorage::new(1);
    let store = open(&storage, &options);
    fill(&store, 0..100, 1, 200);
    let disk = SimStorage::new(2);
    let backups = Backups::open_on(Arc::new(disk.clone())).expect("it opens");
    backups.create_on(Arc::new(storage.clone())).expect("the first");
    for round in 2..12 {
        fill(&store, 0..100, round, 200);
        store.flush().expect("it flushes");
    }
    // Killed once it has copied all tables.
    let hook = |name: &str| assert!(!name.ends_with(".wal"), "killed");
    let armed = Arc::new(AtomicBool::new(false));
    let is_armed = Arc::clone(&armed);
    let source = Hooked::new(
        &storage,
        Box::new(move |name| {
            if name.ends_with(".table") {
                is_armed.store(true, SeqCst);
            }
            if is_armed.load(SeqCst) {
                hook(name);
            }
        }),
    );
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        Backups::open_on(Arc::new(disk.clone())).expect("opens").create_on(source)
    }));
    assert!(outcome.is_err(), "it was killed");
    drop(store);
    let target = SimStorage::new(3);
    backups.restore_on(1, &(Arc::new(target.clone()) as Arc<dyn Storage>)).expect("r");
    let store = open(&target, &options);
    for round in 101..106 {
        fill(&store, 0..100, round, 200);
        store.flush().expect("it flushes");
    }
    match backups.create_on(Arc::new(target.clone())) {
        Err(error) => println!("refused: {error}"),
        Ok(made) => {
            let copy = SimStorage::new(4);
            let at: Arc<dyn Storage> = Arc::new(copy.clone());
            backups.restore_on(made.number, &at).expect("it restores");
            let found = open(&copy, &options);
            assert_eq!(found.get(key(5)).expect("reads").as_deref(), Some(&[105; 200][..]));
            for (one, number) in found.default_keyspace().iter().expect("scans").zip(0..) {
                let one = one.expect("reads");
                assert_eq!((one.0.to_vec(), one.1[0]), (key(number), 105));
            }
        }
    }
}

/// The copies of a killed backup do not stay on the disk of the backups.
#[test]
fn what_a_killed_backup_left_goes() {
    let options = plain(ValuePlacement::Inline);
    let storage = SimStorage::new(1);
    let store = open(&storage, &options);
    let disk = SimStorage::new(2);
    for round in 0..5 {
        fill(&store, 0..100, round, 200);
        store.flush().expect("it flushes");
        store.compact().expect("it compacts");
        fill(&store, 0..100, round, 200);
        let source = Hooked::new(
            &storage,
            Box::new({
                let mut armed = false;
                move |name: &str| {
                    armed |= name.ends_with(".table");
                    assert!(!(armed && name.ends_with(".wal")), "killed");
                }
            }),
        );
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            Backups::open_on(Arc::new(disk.clone())).expect("opens").create_on(source)
        }));
        assert!(outcome.is_err(), "it was killed");
        while store.run_one_job().expect("it runs") {}
    }
    let backups = Backups::open_on(Arc::new(disk.clone())).expect("it opens");
    let made = backups.create_on(Arc::new(storage.clone())).expect("it is made");
    let files = disk.list().expect("lists");
    let tables = files.iter().filter(|file| file.name.ends_with(".table")).count() as u64;
    assert_eq!(tables, made.tables, "{files:?}");
}

/// The same test where the log stays: nothing is missing, and slots are overwritten.
#[test]
fn a_backup_of_overwritten_slots_is_no_backup() {
    for placement in [ValuePlacement::Vlog, ValuePlacement::HashGrouped] {
        let options = plain(placement).follower_keep_bytes(1);
        let storage = SimStorage::new(1);
        let store = open(&storage, &options);
        let pin = store.open_keyspace("pin", None).expect("it opens");
        fill(&store, 0..100, 1, 2000);
        store.flush().expect("it flushes");
        pin.put("a", "keeps the log").expect("it writes");
        let (other, done) = (store.clone(), AtomicBool::new(false));
        let hook = move |name: &str| {
            if name.ends_with(".values") && !done.swap(true, SeqCst) {
                let own = other.default_keyspace();
                for round in 3..9 {
                    fill(&other, 0..100, round, 2000);
                    other.run_one_job().expect("it runs");
                    own.compact().expect("it compacts");
                    other.collect_values().expect("it collects");
                }
            }
        };
        let disk: Arc<dyn Storage> = Arc::new(SimStorage::new(2));
        let backups = Backups::open_on(disk).expect("it opens");
        let made = backups.create_on(Hooked::new(&storage, Box::new(hook)));
        assert!(store.metrics().follower_leases_revoked > 0);
        if let Ok(made) = &made {
            assert_eq!(backups.verify(made.number).expect("reads"), [], "as it was copied");
        }
        let error = made.expect_err("its slots were overwritten");
        assert_eq!(error.kind(), ErrorKind::LeaseRevoked, "{placement:?}: {error}");
    }
}

/// Files that a follower holds are given up if the writer has no other space.
#[test]
fn a_full_disk_takes_the_lease_of_a_follower() {
    let options = plain(ValuePlacement::Inline);
    let storage = SimStorage::new(3);
    let store = open(&storage, &options);
    fill(&store, 0..200, 1, 1000);
    store.compact().expect("no faults");
    let follower = Store::follow_on(Arc::new(storage.clone()), options.clone()).expect("follows");
    let old = follower.store();
    // Room for the log and for a few copies of the store's data.
    storage.set_capacity_bytes(Some(2 << 20));
    let mut refused = 0;
    for round in 0..12 {
        for number in 0..200 {
            while let Err(error) = store.put(key(number), [round; 1000]) {
                assert!(error.is_no_space(), "{error}");
                refused += 1;
                assert!(refused < 100, "round {round}: what the follower holds is never freed");
                let _ = store.compact();
            }
        }
        if let Err(error) = store.compact() {
            assert!(error.is_no_space(), "{error}");
        }
    }
    store.compact().expect("there is space for what the store holds");
    let metrics = store.metrics();
    assert_eq!((metrics.follower_leases_revoked, metrics.follower_held_bytes), (1, 0));
    let error = follower.refresh().expect_err("it has no lease");
    assert!(matches!(error.kind(), ErrorKind::LeaseRevoked), "{error}");
    // The old view shows the data that it has in memory, or the same error.
    for number in 0..200 {
        match old.get(key(number)) {
            Ok(found) => assert_eq!(found.as_deref(), Some(&[1; 1000][..])),
            Err(error) => assert!(matches!(error.kind(), ErrorKind::LeaseRevoked), "{error}"),
        }
    }
}

/// Once, one reader that had been left open cost all others their leases: a running backup failed,
/// and the archive got a gap, although its archiver had kept up.
#[test]
fn a_slow_reader_loses_its_lease_alone() {
    for placement in [ValuePlacement::Inline, ValuePlacement::HashGrouped] {
        let options = plain(placement).follower_keep_bytes(2 << 20);
        let storage = SimStorage::new(1);
        let store = open(&storage, &options);
        fill(&store, 0..100, 0, 2000);
        store.flush().expect("it flushes");
        let follow = || Store::follow_on(Arc::new(storage.clone()), options.clone());
        let (slow, current) = (follow().expect("it follows"), follow().expect("it follows"));
        let backups = Backups::open_on(Arc::new(SimStorage::new(2))).expect("it opens");
        let mut archiver = backups.archive_on(Arc::new(storage.clone())).expect("it begins");
        let mut rounds = 1..100;
        while store.metrics().follower_leases_revoked == 0 {
            fill(&store, 0..100, rounds.next().expect("one of them is too slow"), 2000);
            store.flush().expect("it flushes");
            store.compact().expect("it compacts");
            store.collect_values().expect("it collects");
            assert!(current.refresh().expect("it keeps up"), "{placement:?}");
            archiver.advance(Duration::ZERO).expect("it keeps up");
            while store.run_one_job().expect("it runs") {}
        }
        assert_eq!(store.metrics().follower_leases_revoked, 1, "{placement:?}");
        let error = slow.refresh().expect_err("it is too slow");
        assert_eq!(error.kind(), ErrorKind::LeaseRevoked, "{placement:?}: {error}");
        fill(&store, 0..100, 200, 2000);
        assert!(current.refresh().expect("it has its lease"), "{placement:?}");
        let found = current.store().get(key(7)).expect("it reads");
        assert_eq!(found.as_deref(), Some(&[200; 2000][..]), "{placement:?}");
        let done = archiver.advance(Duration::ZERO).expect("it has its lease");
        assert!(done.based.is_none() && done.changes > 0, "{placement:?}: {done:?}");
        assert_eq!(backups.archives().expect("whole").len(), 1, "{placement:?}");
    }
}
