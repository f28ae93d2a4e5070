//! A full disk under a store whose jobs its callers run.

use std::sync::Arc;

use runstone::storage::Category;
use runstone::{Background, KeyspaceOptions, Options, Store, WalMode};
use runstone_fault_storage::{Fault, FaultKind, SimStorage};

fn open(disk: &SimStorage) -> Store {
    let mut keyspace = KeyspaceOptions::default().write_buffer_bytes(64 << 10);
    keyspace.max_immutable_memtables = 1;
    let options = Options::default()
        .background(Background::Manual)
        .memory_budget_bytes(2 << 20)
        .wal_segment_bytes(64 << 10)
        .max_wal_bytes(512 << 10)
        .keyspace(keyspace);
    Store::open_on(Arc::new(disk.clone()), options).expect("opens")
}

/// Once, with jobs run by hand, a store still reported a full disk when there was space again.
/// Writes failed with an error that no longer applied, and for a quarter of a second no job ran
/// that would have noticed the space. Now a caller who runs the jobs notices it at once.
#[test]
fn writes_go_on_once_there_is_space() {
    for category in [Some(Category::Table), Some(Category::Wal), None] {
        let disk = SimStorage::new(1);
        let store = open(&disk);
        store.put("first", "1").expect("writes");
        let (at_op, kind) = (disk.ops(), FaultKind::NoSpace);
        disk.inject(Fault { at_op, kind, sticky: true, category });
        let mut refused = 0;
        for number in 0..4_000u32 {
            if let Err(error) = store.put(number.to_be_bytes(), [7; 200]) {
                assert!(error.is_no_space(), "{category:?}: {error}");
                refused += 1;
            }
        }
        assert!(refused > 0, "{category:?}");
        let flushed = store.flush();
        assert!(flushed.is_err() || category == Some(Category::Wal), "{category:?}");
        disk.clear_faults();
        let outcome = store.put("after", "it");
        outcome.unwrap_or_else(|error| panic!("{category:?}: that is over: {error}"));
        for number in 0..2_000u32 {
            let outcome = store.put(number.to_be_bytes(), [8; 200]);
            outcome.unwrap_or_else(|error| panic!("{category:?}, {number}: {error}"));
        }
        store.flush().expect("flushes");
        assert_eq!(store.get("after").expect("reads").as_deref(), Some(&b"it"[..]));
    }
}

/// Once, the disk was full when the log had all bytes but the last of a range delete without an
/// end. Such a delete is the only write of its kind that ends with a zero. Deletes then continue in
/// a small segment of their own. But the file had the zero already, so the record was whole, and
/// the next segment began with the same sequence number: the store did not open again. The
/// simulation of a cluster found this. Now the rest of a failed write is voided before another
/// segment continues.
#[test]
fn a_failed_write_that_is_whole_by_its_zeros_is_not_replayed() {
    let mut struck = 0;
    for seed in 0..200 {
        let disk = SimStorage::new(seed);
        let store = open(&disk);
        store.put("a", "1").expect("writes");
        store.sync().expect("syncs");
        let (at_op, kind) = (disk.ops(), FaultKind::NoSpace);
        disk.inject(Fault { at_op, kind, sticky: false, category: Some(Category::Wal) });
        if seed % 2 == 0 {
            store.default_keyspace().delete_range("b"..).expect("deletes go on");
        } else {
            // The same happens to a put, if the next one needs another segment.
            assert!(store.put("b", [0; 9]).is_err_and(|error| error.is_no_space()));
            disk.clear_faults();
            store.put("c", vec![7; 40_000]).expect("writes");
            store.put("d", vec![7; 40_000]).expect("writes");
        }
        struck += disk.fired().len();
        store.put("last", "2").expect("writes");
        store.sync().expect("syncs");
        store.put("later", "3").expect("writes");
        let left = disk.process_crash();
        let store = open(&left);
        assert_eq!(store.get("last").expect("reads").as_deref(), Some(&b"2"[..]), "seed {seed}");
        assert_eq!(store.get("later").expect("reads").as_deref(), Some(&b"3"[..]));
        assert!(store.get("b").expect("reads").is_none());
    }
    assert_eq!(struck, 200);
}

/// Once, the rest of a failed write in the log could not be voided, so the segment was not ended,
/// and the floor of the log stayed before it. Nothing was left to flush, because the keyspace was
/// dropped: a close removed the log anyway, and the store did not open again. A test of readers
/// beside a full disk found this.
#[test]
fn a_close_leaves_a_log_whose_end_it_cannot_write() {
    let mut struck = 0;
    for at in 0..8 {
        let disk = SimStorage::new(at);
        let options = Options::default().background(Background::Manual).wal_mode(WalMode::Write);
        let opened = || Store::open_on(Arc::new(disk.clone()), options.clone()).expect("it opens");
        let store = opened();
        let dropped = store.open_keyspace("dropped", None).expect("there is room");
        dropped.put("a", "1").expect("there is room");
        store.sync().expect("no faults");
        let (at_op, kind, category) = (disk.ops(), FaultKind::NoSpace, Some(Category::Wal));
        disk.inject(Fault { at_op, kind, sticky: true, category });
        struck += u32::from(dropped.put("b", "2").is_err_and(|error| error.is_no_space()));
        store.drop_keyspace("dropped").expect("a full disk is a reason to drop one");
        // The close may or may not report an error.
        let _ = store.close();
        disk.clear_faults();
        opened().put("c", "3").expect("there is room again");
    }
    assert_eq!(struck, 8);
}
