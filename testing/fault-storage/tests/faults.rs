//! The fault model itself: what a power cut may and may not do, and that every fault fires. A model
//! that never loses anything would let every store pass.

use std::io::ErrorKind;
use std::path::Path;

use runstone_fault_storage::{CrashReport, Fault, FaultKind, SimStorage};
use runstone_storage::{Category, LockMode, Operation, Storage, StorageFile};

const SEEDS: std::ops::Range<u64> = 0..200;

fn fault(at_op: u64, kind: FaultKind) -> Fault {
    Fault { at_op, kind, sticky: false, category: None }
}

fn has(storage: &SimStorage, name: &str) -> bool {
    storage.list().unwrap().iter().any(|file| file.name == name)
}

/// A durable file "a" of these bytes.
fn with_durable(seed: u64, bytes: &[u8]) -> (SimStorage, std::sync::Arc<dyn StorageFile>) {
    let storage = SimStorage::new(seed);
    let file = storage.create("a", Category::Table).unwrap();
    file.write_at(0, bytes).unwrap();
    file.sync().unwrap();
    storage.sync_dir().unwrap();
    (storage, file)
}

fn add(total: &mut CrashReport, report: CrashReport) {
    total.kept_count += report.kept_count;
    total.dropped_count += report.dropped_count;
    total.torn_count += report.torn_count;
    total.garbage_count += report.garbage_count;
    total.zero_extended_count += report.zero_extended_count;
    total.reordered_count += report.reordered_count;
    total.entries_kept_count += report.entries_kept_count;
    total.entries_lost_count += report.entries_lost_count;
}

/// Does some of everything, and leaves changes pending at the end.
fn workload(storage: &SimStorage) {
    let log = storage.create_mapped("log", Category::Wal, 64 << 10).unwrap();
    let table = storage.create("table", Category::Table).unwrap();
    storage.sync_dir().unwrap();
    for round in 0..20u64 {
        log.write_at(round * 1000, &[round as u8 + 1; 1000]).unwrap();
        table.write_at(round * 3000, &[round as u8 + 1; 3000]).unwrap();
        if round == 5 {
            log.sync().unwrap();
            table.sync().unwrap();
        }
    }
    let next = storage.create("next", Category::Manifest).unwrap();
    next.write_at(0, &[3; 700]).unwrap();
    storage.rename("next", "current").unwrap();
    storage.create("orphan", Category::Other).unwrap();
    storage.remove("orphan").unwrap();
}

#[test]
fn synced_bytes_survive_every_seed() {
    for seed in SEEDS {
        let (storage, file) = with_durable(1, &[5; 10_000]);
        file.write_at(10_000, &[6; 10_000]).unwrap();
        file.write_at(20_000, &[7; 10_000]).unwrap();
        let (after, _) = storage.power_cut(seed);
        let bytes = after.read_all("a").unwrap();
        assert_eq!(bytes[..10_000], [5; 10_000], "seed {seed}");
    }
}

#[test]
fn a_torn_overwrite_stays_in_its_range() {
    for seed in SEEDS {
        let (storage, file) = with_durable(1, &[5; 30_000]);
        file.write_at(10_001, &[6; 9_998]).unwrap();
        let (after, _) = storage.power_cut(seed);
        let bytes = after.read_all("a").unwrap();
        assert_eq!(bytes.len(), 30_000);
        assert!(bytes[..10_001].iter().chain(&bytes[19_999..]).all(|&byte| byte == 5));
    }
}

#[test]
fn every_outcome_occurs() {
    let mut total = CrashReport::default();
    let mut lengths = std::collections::BTreeSet::new();
    for seed in SEEDS {
        let storage = SimStorage::new(1);
        workload(&storage);
        let (after, report) = storage.power_cut(seed);
        add(&mut total, report);
        lengths.insert(after.read_all("table").unwrap().len());
        let log = after.read_all("log").unwrap();
        assert_eq!(log.len(), 64 << 10, "the length was synced");
        for round in 0..6 {
            assert!(log[round * 1000..][..1000].iter().all(|&byte| byte == round as u8 + 1));
        }
        match seed % 8 {
            0 => assert_eq!((report.kept_count, report.entries_kept_count), (0, 0)),
            1 => assert_eq!((report.dropped_count, report.entries_lost_count), (0, 0)),
            _ => {}
        }
    }
    let CrashReport { kept_count, dropped_count, torn_count, garbage_count, .. } = total;
    assert!(
        kept_count > 0 && dropped_count > 0 && torn_count > 0 && garbage_count > 0,
        "{total:?}"
    );
    assert!(total.zero_extended_count > 0 && total.reordered_count > 0, "{total:?}");
    assert!(total.entries_kept_count > 0 && total.entries_lost_count > 0, "{total:?}");
    assert!(lengths.len() > 5, "{lengths:?}");
}

#[test]
fn a_rename_is_durable_only_with_the_directory() {
    let (mut lost, mut kept, mut kept_without_data) = (0, 0, 0);
    for seed in SEEDS {
        let (storage, _) = with_durable(1, b"old");
        let next = storage.create("b", Category::Table).unwrap();
        next.write_at(0, &[1; 5000]).unwrap();
        storage.rename("b", "a").unwrap();
        assert_eq!(storage.read_all("a").unwrap(), [1; 5000]);
        let (after, _) = storage.power_cut(seed);
        let bytes = after.read_all("a").unwrap();
        match bytes == b"old" {
            true => lost += 1,
            false => kept += 1,
        }
        kept_without_data += u64::from(bytes.is_empty());
        storage_is_consistent(&after);
    }
    assert!(lost > 20 && kept > 20 && kept_without_data > 5, "{lost} {kept} {kept_without_data}");
}

fn storage_is_consistent(storage: &SimStorage) {
    for file in storage.list().unwrap() {
        let handle = storage.open(&file.name, Category::Table).unwrap();
        assert_eq!(handle.len().unwrap(), file.len_bytes);
    }
}

#[test]
fn synced_names_survive_and_lost_ones_take_their_followers() {
    for seed in SEEDS {
        let (storage, _) = with_durable(1, b"1");
        storage.create("b", Category::Table).unwrap();
        storage.sync_dir().unwrap();
        storage.remove("b").unwrap();
        storage.create("b", Category::Table).unwrap().write_at(0, b"2").unwrap();
        storage.create("c", Category::Table).unwrap();
        storage.rename("c", "d").unwrap();
        let (after, _) = storage.power_cut(seed);
        assert!(has(&after, "a"));
        assert!(!(has(&after, "c") && has(&after, "d")));
    }
}

#[test]
fn a_failed_sync_loses() {
    for seed in SEEDS {
        let (storage, file) = with_durable(1, &[1; 4096]);
        file.write_at(0, &[2; 8192]).unwrap();
        storage.inject(fault(storage.ops(), FaultKind::FailedSync));
        assert_eq!(file.sync().unwrap_err().source.raw_os_error(), Some(5));
        assert_eq!(storage.read_all("a").unwrap(), [2; 8192], "readers still see it");
        file.write_at(8192, &[3; 10]).unwrap();
        file.sync().unwrap();
        let (after, _) = storage.power_cut(seed);
        let expected = [&[1; 4096][..], &[0; 4096], &[3; 10]].concat();
        assert_eq!(after.read_all("a").unwrap(), expected);
    }
}

/// A write-back makes nothing durable, however often it is requested. A failed write-back loses the
/// same data as a failed sync, and later syncs succeed without that data.
#[test]
fn a_write_back_promises_nothing_and_fails_as_a_sync_does() {
    let (storage, file) = with_durable(0, b"old");
    file.write_at(0, b"new").unwrap();
    file.write_back(0..3, 0..0).unwrap();
    file.write_back(0..0, 0..3).unwrap();
    assert_eq!(storage.counters().snapshot(Category::Table).write_backs, 2);
    assert_eq!(storage.power_cut(0).0.read_all("a").unwrap(), b"old");

    for (kind, code) in [(FaultKind::FailedSync, 5), (FaultKind::Eio, 5)] {
        let (storage, file) = with_durable(0, b"old");
        file.write_at(0, b"new").unwrap();
        storage.inject(fault(storage.ops(), kind));
        let failed = file.write_back(0..3, 0..0).unwrap_err();
        assert_eq!(failed.source.raw_os_error(), Some(code));
        assert_eq!(failed.operation, Operation::Sync);
        file.sync().unwrap();
        assert_eq!(storage.power_cut(1).0.read_all("a").unwrap(), b"old");
    }
}

#[test]
fn the_nth_operation_fails_and_no_other() {
    let clean = SimStorage::new(1);
    workload(&clean);
    for at_op in 0..clean.ops() {
        let storage = SimStorage::new(1);
        let crash = fault(at_op, FaultKind::Crash);
        storage.inject(crash);
        let stopped = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| workload(&storage)));
        assert!(stopped.is_err());
        assert_eq!(storage.fired(), [crash]);
        assert_eq!(storage.ops(), at_op + 1);
        assert!(storage.list().is_err() && storage.lock("L", LockMode::Shared).is_err());
        assert!(storage.create("x", Category::Wal).is_err());
        for seed in 0..8 {
            storage_is_consistent(&storage.power_cut(seed).0);
        }
        storage_is_consistent(&storage.process_crash());
    }
}

#[test]
fn crash_leaves_the_write_in_flight_pending() {
    let (storage, file) = with_durable(1, b"old");
    storage.inject(fault(storage.ops(), FaultKind::Crash));
    assert!(file.write_at(0, b"new").is_err());
    assert!(file.read_at(0, &mut [0; 1]).is_err());
    assert_eq!(storage.power_cut(0).0.read_all("a").unwrap(), b"old");
    assert_eq!(storage.power_cut(1).0.read_all("a").unwrap(), b"new");
}

#[test]
fn sticky_faults_stay_and_categories_aim() {
    let storage = SimStorage::new(1);
    let aimed = Fault { category: Some(Category::Wal), sticky: true, ..fault(0, FaultKind::Eio) };
    storage.inject(aimed);
    assert!(storage.fired().is_empty());
    storage.create("a", Category::Table).unwrap();
    assert!(storage.create("b", Category::Wal).is_err());
    assert!(storage.create("b", Category::Wal).is_err());
    assert_eq!(storage.fired(), [aimed]);
    storage.clear_faults();
    storage.create("b", Category::Wal).unwrap();

    storage.inject(fault(storage.ops() + 1, FaultKind::Eio));
    storage.create("c", Category::Wal).unwrap();
    assert!(storage.create("d", Category::Wal).is_err());
    storage.create("d", Category::Wal).unwrap();
}

#[test]
fn write_faults_do_what_they_say() {
    let old = vec![1; 8192];
    let new = vec![2; 1024];
    let run = |kind| {
        let (storage, file) = with_durable(3, &old);
        storage.inject(fault(storage.ops(), kind));
        let result = file.write_at(1024, &new).map_err(|error| error.kind());
        assert_eq!(storage.fired().len(), 1);
        (result, storage.read_all("a").unwrap())
    };
    let twos = |bytes: &[u8]| bytes.iter().filter(|&&byte| byte == 2).count();

    let (result, bytes) = run(FaultKind::Eio);
    assert!(result.is_err() && bytes == old);
    let (result, bytes) = run(FaultKind::ShortWrite);
    assert!(result.is_err() && twos(&bytes) < 1024 && bytes[..1024] == old[..1024]);
    let (result, _) = run(FaultKind::NoSpace);
    assert_eq!(result, Err(ErrorKind::StorageFull));
    let (result, bytes) = run(FaultKind::LostWrite);
    assert!(result.is_ok() && bytes == old);
    let (result, bytes) = run(FaultKind::MisdirectedWrite);
    assert!(result.is_ok() && twos(&bytes) > 0 && bytes[1024..2048] != new && bytes.len() == 8192);
}

#[test]
fn read_faults_do_what_they_say() {
    let (storage, file) = with_durable(3, &[0; 100]);
    let mut buf = [9; 100];
    let mut read = |kind| {
        storage.inject(fault(storage.reads(), kind));
        let result = file.read_at(0, &mut buf).map_err(|error| error.kind());
        (result, buf.iter().map(|byte| byte.count_ones()).sum::<u32>())
    };
    assert!(read(FaultKind::EioOnRead).0.is_err());
    assert_eq!(read(FaultKind::ShortRead).0, Err(ErrorKind::UnexpectedEof));
    assert_eq!(read(FaultKind::BitFlipOnRead), (Ok(()), 1));
    file.read_at(0, &mut buf).unwrap();
    assert_eq!(buf, [0; 100]);
    assert_eq!(storage.fired().len(), 3);
}

#[test]
fn a_full_disk_takes_what_fits_and_recovers() {
    let storage = SimStorage::new(1);
    storage.set_capacity_bytes(Some(16 << 10));
    let file = storage.create("a", Category::Table).unwrap();
    let error = file.write_at(0, &[1; 20_000]).unwrap_err();
    assert!(error.is_no_space());
    assert_eq!(file.len().unwrap(), 16 << 10);
    assert_eq!(storage.free_bytes(), Some(0));
    file.write_at(0, &[2; 100]).unwrap();
    assert!(storage.create_mapped("w", Category::Wal, 4096).unwrap_err().is_no_space());
    assert!(!has(&storage, "w"));
    file.punch(0, 8192).unwrap();
    storage.create_mapped("w", Category::Wal, 8192).unwrap().write_at(0, &[1; 8192]).unwrap();
    assert_eq!(storage.free_bytes(), Some(0));
    storage.remove("a").unwrap();
    assert_eq!(storage.free_bytes(), Some(0), "still open");
    drop(file);
    assert_eq!(storage.free_bytes(), Some(8192));
    assert!(storage.create("b", Category::Table).unwrap().allocate(0, 8193).is_err());
}

#[test]
fn a_killed_process_loses_nothing() {
    let storage = SimStorage::new(1);
    let file = storage.create("a", Category::Table).unwrap();
    file.write_at(0, b"unsynced").unwrap();
    let lock = storage.lock("L", LockMode::Exclusive).unwrap();
    let after = storage.process_crash();
    assert_eq!(after.read_all("a").unwrap(), b"unsynced");
    assert!(file.write_at(0, b"x").is_err());
    assert!(after.lock("L", LockMode::Exclusive).unwrap().is_some());
    assert!(!has(&after.power_cut(0).0, "a"), "it is still not durable");
    drop(lock);
}

#[test]
fn siblings_lose_power_together() {
    let (storage, _) = with_durable(1, b"1");
    let sibling = storage.create_sibling(Path::new("copy")).unwrap();
    storage.link_into("a", Category::Table, &*sibling).unwrap();
    let opened = |seed| storage.power_cut(seed).0.open_sibling(Path::new("copy")).unwrap();
    assert!(!has(&opened(0), "a"));
    assert_eq!(opened(1).read_all("a").unwrap(), b"1");
}

#[test]
fn damage_helpers_damage() {
    let (storage, _) = with_durable(1, b"abc");
    storage.flip_bit("a", 1, 0).unwrap();
    assert_eq!(storage.read_all("a").unwrap(), b"acc");
    assert!(storage.flip_bit("a", 3, 0).is_err());
    storage.truncate("a", 2).unwrap();
    assert_eq!(storage.power_cut(0).0.read_all("a").unwrap(), b"ac");
    storage.overwrite("a", b"longer").unwrap();
    assert_eq!(storage.power_cut(0).0.read_all("a").unwrap(), b"longer");
}

#[test]
fn equal_seeds_give_equal_runs() {
    let run = |seed| {
        let storage = SimStorage::new(9);
        storage.inject(fault(20, FaultKind::MisdirectedWrite));
        storage.inject(fault(30, FaultKind::LostWrite));
        workload(&storage);
        let (after, report) = storage.power_cut(seed);
        let names = after.list().unwrap();
        let images: Vec<_> = names.iter().map(|f| after.read_all(&f.name).unwrap()).collect();
        (storage.ops_trace_hash(), report, names, images)
    };
    for seed in SEEDS {
        assert_eq!(run(seed), run(seed));
    }
    assert_ne!(run(2).3, run(3).3);
}
