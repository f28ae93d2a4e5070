//! A range delete on a full disk frees the tables that it covers, and nothing has to be written to
//! tables for it (P9). Deletes of single keys free nothing before a flush finds room.

use std::sync::Arc;

use runstone::seeded::Bug;
use runstone::storage::Storage;
use runstone::unstable;
use runstone::{
    Background, Clock, KeyspaceOptions, Options, ReadOptions, Store, WalMode, WriteOptions,
};
use runstone_fault_storage::{Fault, FaultKind, SimStorage};
use runstone_sim::clock::TestClock;
use runstone_sim::found::holds_and_finds;

const CAPACITY_BYTES: u64 = 1200 << 10;

fn options(wal_mode: WalMode) -> Options {
    let mut keyspace = KeyspaceOptions::default().write_buffer_bytes(64 << 10);
    let shape = unstable::numbers_mut(&mut keyspace);
    (shape.table_bytes, shape.base_bytes) = (64 << 10, 128 << 10);
    Options::default()
        .background(Background::Manual)
        .memory_budget_bytes(8 << 20)
        .wal_segment_bytes(64 << 10)
        .wal_mode(wal_mode)
        .seed(5)
        .keyspace(keyspace)
}

fn open(disk: &SimStorage, options: &Options) -> Store {
    Store::open_on(Arc::new(disk.clone()), options.clone()).expect("opens")
}

fn value(i: u32) -> Vec<u8> {
    (0..900u32).map(|at| ((i + at).wrapping_mul(2_654_435_761) >> 11) as u8).collect()
}

/// A store on a disk that is full to the last block, and how many keys it has. Other programs may
/// take free space, so the disk has no more room than the store itself frees.
fn full(wal_mode: WalMode) -> (SimStorage, Store, u32) {
    full_with(&options(wal_mode))
}

fn full_with(options: &Options) -> (SimStorage, Store, u32) {
    let disk = SimStorage::new(7);
    disk.set_capacity_bytes(Some(CAPACITY_BYTES));
    let store = open(&disk, options);
    let count = (0..100_000u32).find(|i| match store.put(i.to_be_bytes(), value(*i)) {
        Ok(()) => false,
        Err(error) => {
            assert!(error.is_no_space(), "{error}");
            true
        }
    });
    let free = disk.free_bytes().expect("it is limited");
    disk.set_capacity_bytes(Some(CAPACITY_BYTES - free));
    (disk, store, count.expect("the disk is never full"))
}

/// Runs the due jobs once, as they are tried after a failure.
fn run_jobs(store: &Store) {
    // A failed job is tried again after a while.
    std::thread::sleep(std::time::Duration::from_millis(300));
    while matches!(store.run_one_job(), Ok(true)) {}
}

fn tables(store: &Store) -> usize {
    runstone::unstable::shape(store.default_keyspace()).tables().count()
}

fn keys(store: &Store) -> Vec<u32> {
    let keys = store.default_keyspace().scan(ReadOptions::default()).expect("opens").keys();
    let number = |key: &[u8]| u32::from_be_bytes(key.try_into().expect("four bytes"));
    keys.map(|key| number(&key.expect("reads"))).collect()
}

#[test]
fn a_range_delete_frees_the_tables_that_it_covers() {
    for wal_mode in [WalMode::Mapped, WalMode::Write] {
        let (disk, store, count) = full(wal_mode);
        let before = tables(&store);
        run_jobs(&store);
        store.put("z", vec![1; 100_000]).expect_err("the disk is full");
        let snapshot = store.snapshot();
        store
            .default_keyspace()
            .delete_range(..(count - 5).to_be_bytes())
            .expect("a delete is taken");
        run_jobs(&store);
        assert!(tables(&store) >= before, "{wal_mode:?}: the snapshot sees the tables");
        let seen = store.default_keyspace().get_at(7u32.to_be_bytes(), &snapshot).expect("reads");
        assert_eq!(seen.as_deref(), Some(&value(7)[..]), "{wal_mode:?}");
        drop(snapshot);
        run_jobs(&store);
        let expected: Vec<u32> = (count - 5..count).collect();
        assert_eq!(keys(&store), expected, "{wal_mode:?}");
        store.put("more", vec![1; 100_000]).expect("there is space again");
        store.flush().expect("flushes");
        assert!(tables(&store) < before / 2, "{wal_mode:?}: {} of {before}", tables(&store));
        store.delete("more").expect("deletes");
        store.close().expect("closes");
        let store = open(&disk, &options(wal_mode));
        assert_eq!(keys(&store), expected, "{wal_mode:?}");
        assert!(store.verify().expect("verifies").is_clean(), "{wal_mode:?}");
    }
}

/// A power loss at any operation leaves all keys, or those that the delete left. `step` counts the
/// operations before it.
fn power_loss_after(step: u64, wal_mode: WalMode) {
    let (disk, store, count) = full(wal_mode);
    store.put("z", vec![1; 100_000]).expect_err("the disk is full");
    let (at_op, kind) = (disk.ops() + step, FaultKind::Crash);
    disk.inject(Fault { at_op, kind, sticky: true, category: None });
    let end = (count - 5).to_be_bytes();
    let is_synced = step.is_multiple_of(3);
    let how = if is_synced { WriteOptions::sync() } else { WriteOptions::default() };
    let deleted = store.default_keyspace().delete_range_with(..end, how);
    run_jobs(&store);
    for seed in 0..4 {
        let left = disk.power_cut(seed).0;
        left.set_capacity_bytes(None);
        let reopened = open(&left, &options(wal_mode));
        let found = keys(&reopened);
        let is_gone = found == (count - 5..count).collect::<Vec<_>>();
        let is_whole = || found.iter().copied().eq(0..found.len() as u32);
        let what = format!("{wal_mode:?}, step {step}: {} keys", found.len());
        assert!(is_gone || is_whole(), "{what}");
        assert!(is_gone || !is_synced || deleted.is_err(), "{what}");
    }
}

#[test]
fn a_power_loss_leaves_the_delete_or_not() {
    holds_and_finds(Bug::TablesFreedBeforeTheLog, || {
        // These operations are near the one that writes the edit that drops the tables.
        for (steps, wal_mode) in [(12..20, WalMode::Mapped), (30..36, WalMode::Write)] {
            steps.for_each(|step| power_loss_after(step, wal_mode));
        }
    });
}

/// Once, a close that could not flush said that there was no space, though the log had all writes:
/// a delete that was stored seemed to have failed.
#[test]
fn a_close_on_a_full_disk_leaves_the_log() {
    for wal_mode in [WalMode::Mapped, WalMode::Write] {
        let (disk, store, count) = full(wal_mode);
        store.delete(3u32.to_be_bytes()).expect("a delete is taken");
        store.close().expect("nothing is lost");
        for seed in 0..4 {
            let left = disk.power_cut(seed).0;
            left.set_capacity_bytes(None);
            let reopened = open(&left, &options(wal_mode));
            let expected: Vec<u32> = (0..count).filter(|i| *i != 3).collect();
            assert_eq!(keys(&reopened), expected, "{wal_mode:?}");
            reopened.close().expect("there is space");
        }
    }
}

/// Tables whose entries have all expired are removed on a full disk as well, without a flush first.
#[test]
fn expired_tables_leave_on_a_full_disk() {
    let clock = TestClock::at(0);
    let mut options = options(WalMode::Mapped).clock(Arc::clone(&clock) as Arc<dyn Clock>);
    options.keyspace.get_or_insert_default().ttl_seconds = 10;
    let (disk, store, count) = full_with(&options);
    assert_eq!(keys(&store).len(), count as usize);
    run_jobs(&store);
    store.put("z", vec![1; 100_000]).expect_err("the disk is full");
    let before = disk.free_bytes().expect("it is limited");
    clock.set(3_600_000);
    run_jobs(&store);
    assert!(disk.free_bytes().expect("it is limited") > before + CAPACITY_BYTES / 4);
    store.put("more", vec![1; 100_000]).expect("there is space again");
    assert_eq!(store.default_keyspace().iter().expect("opens").count(), 1);
    store.close().expect("closes");
}
