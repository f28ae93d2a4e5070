//! A process that dies on a full disk, and a disk that stays full: the store opens for reading, and
//! for writing too, so that a delete or the drop of a keyspace can make room (P8, P9).

use std::sync::Arc;
use std::time::{Duration, Instant};

use runstone::storage::Storage;
use runstone::unstable;
use runstone::{
    Background, Error, GcPointers, KeyspaceOptions, Options, Store, ValuePlacement, WalMode,
    WriteOptions,
};
use runstone_fault_storage::SimStorage;

fn placements() -> Vec<KeyspaceOptions> {
    let of = |placement| {
        let mut keyspace = KeyspaceOptions::default();
        keyspace.write_buffer_bytes = 64 << 10;
        keyspace.block_bytes = 1024;
        let shape = unstable::numbers_mut(&mut keyspace);
        shape.table_bytes = 64 << 10;
        shape.base_bytes = 128 << 10;
        keyspace.values.placement = placement;
        keyspace.values.separate_at = 200;
        keyspace.values.groups = 4;
        keyspace.values.slot_bytes = 16 << 10;
        keyspace
    };
    let mut written_back = of(ValuePlacement::HashGrouped);
    written_back.values.gc_pointers = GcPointers::Writeback;
    let mut cooled_back = written_back.clone();
    cooled_back.values.cold_stream = true;
    let (groups, log) = (of(ValuePlacement::HashGrouped), of(ValuePlacement::Vlog));
    let apart = [groups, log, written_back, cooled_back];
    [of(ValuePlacement::Inline)].into_iter().chain(apart).collect()
}

fn options(keyspace: &KeyspaceOptions, wal_mode: WalMode) -> Options {
    Options::default()
        .background(Background::Manual)
        .memory_budget_bytes(8 << 20)
        .wal_segment_bytes(64 << 10)
        .wal_mode(wal_mode)
        .seed(5)
        .keyspace(keyspace.clone())
}

fn open(disk: &SimStorage, options: &Options) -> Result<Store, Error> {
    Store::open_on(Arc::new(disk.clone()), options.clone())
}

/// Half of the values are so small that they stay in the tables.
fn value(i: u32) -> Vec<u8> {
    let len = if i.is_multiple_of(2) { 50 } else { 900 };
    // Bytes that do not compress.
    (0..len).map(|at: u32| ((i + at).wrapping_mul(2_654_435_761) >> 11) as u8).collect()
}

/// Puts to two keyspaces in turn until the disk is full; returns how many were acknowledged.
fn fill(store: &Store, sync: bool) -> u32 {
    let big = store.keyspace("big").expect("made before");
    let write = if sync { WriteOptions::sync() } else { WriteOptions::default() };
    for i in 0..100_000u32 {
        let keyspace = if i % 4 == 0 { store.default_keyspace() } else { &big };
        if let Err(error) = keyspace.put_with(i.to_be_bytes(), value(i), write) {
            assert!(error.is_no_space(), "{error}");
            return i;
        }
    }
    panic!("the disk is never full");
}

fn check(store: &Store, count: u32, has_big: bool) {
    let big = has_big.then(|| store.keyspace("big").expect("there"));
    for i in 0..count {
        let keyspace = if i % 4 == 0 { Some(store.default_keyspace()) } else { big.as_ref() };
        let Some(keyspace) = keyspace else { continue };
        let found = keyspace.get(i.to_be_bytes()).expect("get");
        assert_eq!(found.as_deref(), Some(&value(i)[..]), "{i} of {count}");
    }
}

/// Fills the disk to the last block.
fn fill_up(disk: &SimStorage) {
    let most = 1 << 40;
    disk.set_capacity_bytes(Some(most));
    let free = disk.free_bytes().expect("it is limited");
    disk.set_capacity_bytes(Some(most - free));
    assert_eq!(disk.free_bytes(), Some(0));
}

fn patiently(what: &str, mut work: impl FnMut() -> Result<(), Error>) {
    let patience = Instant::now() + Duration::from_secs(20);
    while let Err(error) = work() {
        assert!(error.is_no_space(), "{what}: {error}");
        assert!(Instant::now() < patience, "{what}: {error}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A store that died on the full disk, left as by a crash of the process or by a power loss.
fn died(options: &Options, power_lost: bool) -> (SimStorage, u32) {
    let disk = SimStorage::new(7);
    disk.set_capacity_bytes(Some(1200 << 10));
    let store = open(&disk, options).expect("open");
    store.open_keyspace("big", options.keyspace.clone()).expect("keyspace");
    let count = fill(&store, power_lost);
    assert!(count > 300, "{count}");
    let left = if power_lost { disk.power_cut(count.into()).0 } else { disk.process_crash() };
    fill_up(&left);
    (left, count)
}

/// Once, an open had to write a new manifest, and then the values of hash groups to their slots. On
/// a full disk the store did not open, and nothing in it could be dropped.
#[test]
fn a_full_disk_opens_after_a_crash() {
    for keyspace in placements() {
        for (wal_mode, power_lost) in [(WalMode::Mapped, false), (WalMode::Write, true)] {
            let options = options(&keyspace, wal_mode);
            let (disk, count) = died(&options, power_lost);
            let what = format!("{:?}, {wal_mode:?}", keyspace.values);
            let reading = options.clone().read_only(true).keyspace(None);
            let store = open(&disk, &reading).unwrap_or_else(|error| panic!("{what}: {error}"));
            check(&store, count, true);
            drop(store);
            // More than once: an attempt must not use up the space that the next attempt needs.
            for _ in 0..3 {
                let store = open(&disk, &options).unwrap_or_else(|error| panic!("{what}: {error}"));
                check(&store, count, true);
                let refused = store.put("more", vec![1; 3_000_000]).expect_err("the disk is full");
                assert!(refused.is_no_space(), "{what}: {refused}");
                drop(store);
            }
            let store = open(&disk, &options).unwrap_or_else(|error| panic!("{what}: {error}"));
            store.delete("a key").unwrap_or_else(|error| panic!("{what}: {error}"));
            store.drop_keyspace("big").unwrap_or_else(|error| panic!("{what}: {error}"));
            patiently(&what, || store.run_one_job().map(drop));
            patiently(&what, || store.put("more", "after the drop"));
            check(&store, count, false);
            patiently(&what, || store.flush());
            store.close().expect("close");
            let store = open(&disk, &options).expect("reopen");
            check(&store, count, false);
            assert!(store.get("more").expect("get").is_some());
            assert!(store.verify().expect("verify").is_clean(), "{what}");
        }
    }
}

/// An open on a full disk leaves writes in the log and continues their numbers. They survive the
/// next crash together with the new writes, and the power loss after that.
#[test]
fn a_log_that_stays_goes_on() {
    for keyspace in placements() {
        let options = options(&keyspace, WalMode::Mapped);
        for seed in 0..20 {
            let (disk, count) = died(&options, true);
            let store = open(&disk, &options).expect("open");
            store.delete("first").expect("a delete is taken");
            let later = disk.process_crash();
            let store_after = open(&later, &options).expect("open again");
            check(&store_after, count, true);
            let sync = WriteOptions::sync();
            let keyspace = store_after.default_keyspace();
            keyspace.delete_with("second", sync).expect("a delete is taken");
            let (last, _) = later.power_cut(seed);
            last.set_capacity_bytes(None);
            let reopened = open(&last, &options).expect("open with space");
            check(&reopened, count, true);
            assert!(reopened.verify().expect("verify").is_clean());
            reopened.close().expect("close");
            drop((store, store_after));
        }
    }
}

/// A log that is not removed still contains the writes of dropped keyspaces. Once, a new keyspace
/// with the id of a dropped one got its writes after the next crash.
#[test]
fn a_new_keyspace_does_not_get_the_writes_of_a_dropped_one() {
    let options = options(&placements()[0], WalMode::Mapped);
    let disk = SimStorage::new(7);
    disk.set_capacity_bytes(Some(1200 << 10));
    let store = open(&disk, &options).expect("open");
    let gone = store.open_keyspace("gone", options.keyspace.clone()).expect("keyspace");
    // These keep the segment with the writes of the other keyspace.
    (0..10u32).for_each(|i| store.put(i.to_be_bytes(), value(i)).expect("put"));
    (0..10u32).for_each(|i| gone.put(i.to_be_bytes(), "of the dropped one").expect("put"));
    store.drop_keyspace("gone").expect("drop");
    let disk = disk.process_crash();
    fill_up(&disk);
    let store = open(&disk, &options).expect("open on a full disk");
    disk.set_capacity_bytes(None);
    patiently("open_keyspace", || store.open_keyspace("new", options.keyspace.clone()).map(drop));
    let disk = disk.process_crash();
    let reopened = open(&disk, &options).expect("open with space");
    let found = reopened.keyspace("new").expect("there").get(3u32.to_be_bytes()).expect("get");
    assert_eq!(found.as_deref(), None, "the keyspace is new and empty");
}

/// A segment with a damaged header looks like one that was only prepared. Once, an open on a full
/// disk removed it before the replay reported that synced writes are missing. The only copy of
/// these writes was removed with it.
#[test]
fn a_damaged_segment_is_not_given_up_for_space() {
    for keyspace in placements() {
        let options = options(&keyspace, WalMode::Write);
        let (disk, _) = died(&options, true);
        let files = disk.list().expect("list");
        let logs: Vec<_> = files.iter().filter(|file| file.name.ends_with(".wal")).collect();
        assert!(logs.len() > 2, "{}", logs.len());
        let name = &logs[logs.len() / 2].name;
        let file = disk.open(name, runstone::storage::Category::Wal).expect("open");
        file.write_at(0, &[0; 128]).expect("damage");
        let refused = open(&disk, &options).expect_err("synced writes are missing");
        assert!(refused.is_corruption(), "{refused}");
        let left = disk.list().expect("list");
        assert!(left.iter().any(|file| file.name == *name), "{:?}: {name}", keyspace.values);
    }
}
