//! A full disk under a store whose jobs its callers run.

use std::sync::Arc;

use runstone::storage::Category;
use runstone::{Background, KeyspaceOptions, Options, Store};
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

/// With jobs run by hand, a store that had met a full disk still reported it when there was space
/// again. Writes failed with an error that was over, and for a quarter of a second no job ran that
/// would have noticed the space. Now a caller who runs the jobs notices it at once.
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
