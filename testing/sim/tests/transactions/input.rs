//! Wrong use, and stores that cannot commit: each gives a clear error and leaves nothing half done.

use std::sync::Arc;
use std::thread::sleep;
use std::time::Duration;

use runstone::storage::{MemoryStorage, Storage};
use runstone::{
    Background, Error, Isolation, ReadOptions, Store, TransactionMode, TransactionOptions,
    WriteOptions,
};
use runstone_fault_storage::{Fault, FaultKind, SimStorage};

use crate::{options, store};

fn is_advice<T: std::fmt::Debug>(outcome: Result<T, Error>, what: &str) {
    let error = outcome.expect_err("it is refused");
    assert!(matches!(error, Error::InvalidArgument { .. }), "{error:?}");
    assert!(error.to_string().contains(what) && !error.hint().is_empty(), "{error}");
}

#[test]
fn a_keyspace_of_another_store() {
    let (store, other) = (store(), store());
    let foreign = other.default_keyspace();
    let mut one = store.begin(TransactionOptions::default()).expect("begins");
    is_advice(one.get(foreign, "k"), "another store");
    is_advice(one.put(foreign, "k", "v"), "another store");
    is_advice(one.delete(foreign, "k"), "another store");
    is_advice(one.merge(foreign, "k", "v"), "another store");
    is_advice(one.delete_range(foreign, "a".."z"), "another store");
    is_advice(one.cursor(foreign, ReadOptions::default()), "another store");
    is_advice(one.scan(foreign, ReadOptions::default()), "another store");
    one.commit(WriteOptions::default()).expect("nothing to commit");
}

#[test]
fn a_dropped_keyspace() {
    let store = store();
    let (kept, dropped) =
        (store.default_keyspace(), store.open_keyspace("dropped", None).expect("opens"));
    dropped.put("k", "v").expect("puts");
    let options = TransactionOptions::serializable();
    let mut writer = store.begin(options).expect("begins");
    writer.put(&dropped, "k", "own").expect("puts");
    writer.put(kept, "k", "own").expect("puts");
    let mut reader = store.begin(options).expect("begins");
    assert!(reader.get(&dropped, "k").expect("reads").is_some());
    reader.put(kept, "k", "own").expect("puts");
    store.drop_keyspace("dropped").expect("drops");
    let is_unknown = |outcome| matches!(outcome, Err(Error::UnknownKeyspace { .. }));
    assert!(is_unknown(reader.put(&dropped, "k", "again")));
    assert!(is_unknown(reader.commit(WriteOptions::default())));
    assert!(is_unknown(writer.commit(WriteOptions::default())));
    assert!(kept.get("k").expect("reads").is_none(), "nothing of them was written");
    let mut locks = store.begin(TransactionOptions::pessimistic()).expect("begins");
    assert!(is_unknown(locks.get_for_update(&dropped, "k").map(drop)));
}

#[test]
fn a_closed_store() {
    let store = store();
    let keyspace = store.default_keyspace().clone();
    let (mut late, mut locks) = (
        store.begin(TransactionOptions::default()).expect("begins"),
        store.begin(TransactionOptions::pessimistic()).expect("begins"),
    );
    late.put(&keyspace, "k", "v").expect("puts");
    locks.put(&keyspace, "k", "v").expect("puts");
    store.close().expect("closes");
    assert!(matches!(late.get(&keyspace, "other"), Err(Error::Closed)));
    assert!(matches!(late.put(&keyspace, "k", "v"), Err(Error::Closed)));
    assert!(matches!(locks.get_for_update(&keyspace, "k"), Err(Error::Closed)));
    assert!(matches!(late.commit(WriteOptions::default()), Err(Error::Closed)));
    assert!(matches!(locks.commit(WriteOptions::default()), Err(Error::Closed)));
    assert!(matches!(keyspace.put_if_absent("k", "v"), Err(Error::Closed)));
}

#[test]
fn a_store_for_reading() {
    let storage = Arc::new(MemoryStorage::new());
    let written = Store::open_on(Arc::<MemoryStorage>::clone(&storage), options()).expect("opens");
    written.put("k", "v").expect("puts");
    written.close().expect("closes");
    let store = Store::open_on(storage, options().read_only(true)).expect("opens");
    let keyspace = store.default_keyspace();
    let mut one = store.begin(TransactionOptions::default()).expect("begins");
    assert_eq!(one.get(keyspace, "k").expect("reads").as_deref(), Some(&b"v"[..]));
    assert!(matches!(one.put(keyspace, "k", "w"), Err(Error::ReadOnly)));
    assert!(matches!(one.delete_range(keyspace, "a".."z"), Err(Error::ReadOnly)));
    one.commit(WriteOptions::default()).expect("nothing to commit");
    assert!(matches!(keyspace.put_if_absent("new", "v"), Err(Error::ReadOnly)));
}

#[test]
fn what_does_not_go_together() {
    let store = store();
    let keyspace = store.default_keyspace();
    is_advice(
        store.begin(
            TransactionOptions::default()
                .isolation(Isolation::Serializable)
                .mode(TransactionMode::Pessimistic),
        ),
        "serializable",
    );
    let mut one = store.begin(TransactionOptions::default()).expect("begins");
    is_advice(one.get_for_update(keyspace, "k"), "no locks");
    let options = ReadOptions::default().at(&store.snapshot());
    is_advice(one.scan(keyspace, options.clone()), "own snapshot");
    is_advice(one.cursor(keyspace, options), "own snapshot");
    is_advice(one.put(keyspace, vec![0; 1 << 16], "v"), "65536 bytes");
    is_advice(one.delete_range(keyspace, "z".."a"), "before it starts");
    let mut locks = store.begin(TransactionOptions::pessimistic()).expect("begins");
    is_advice(locks.delete_range(keyspace, "a".."z"), "keys, not ranges");
}

#[test]
fn reads_are_tracked_up_to_a_limit() {
    let store = store();
    let keyspace = store.default_keyspace();
    let max_tracked_bytes = 10_000;
    let options = TransactionOptions::serializable().max_tracked_bytes(max_tracked_bytes);
    let one = store.begin(options).expect("begins");
    let gets = (0..1000).map(|number| one.get(keyspace, format!("{number:04}")));
    let refused = gets.take_while(Result::is_ok).count();
    assert!((50..200).contains(&refused), "{refused} keys of 4 bytes");
    is_advice(one.get(keyspace, "another"), "10000 bytes");
    is_advice(
        one.cursor(keyspace, ReadOptions::default()).and_then(|mut c| c.seek_to_first()),
        "10000",
    );
    let loose = TransactionOptions::default().max_tracked_bytes(max_tracked_bytes);
    let two = store.begin(loose).expect("begins");
    for number in 0..1000 {
        two.get(keyspace, format!("{number:04}")).expect("nothing is tracked");
    }
}

/// Overwritten values, and writes that a savepoint undid, no longer count.
#[test]
fn writes_take_memory_up_to_a_limit() {
    let store = store();
    let keyspace = store.default_keyspace();
    let options = TransactionOptions::default().max_write_bytes(10_000);
    let mut one = store.begin(options).expect("begins");
    for number in 0..1000 {
        one.put(keyspace, "counter", format!("{number:04}")).expect("one write");
        one.put(keyspace, "xx", [0; 100]).expect("the range takes it out");
        one.delete_range(keyspace, "x".."y").expect("one range");
    }
    for _ in 0..10 {
        one.set_savepoint();
        (0..20).for_each(|key| one.put(keyspace, [key], [key; 100]).expect("below the limit"));
        one.delete_range(keyspace, "a".."b").expect("below the limit");
        one.rollback_to_savepoint().expect("was set");
    }
    is_advice(one.put(keyspace, "large", vec![0; 10_000]), "10000 bytes of writes");
    assert!(one.get(keyspace, "large").expect("reads").is_none(), "refused as a whole");
    let puts = (0u16..1000).map(|key| one.put(keyspace, key.to_be_bytes(), "value"));
    let fitting = puts.take_while(Result::is_ok).count();
    assert!((50..100).contains(&fitting), "{fitting} writes");
    is_advice(one.delete_range(keyspace, "a".."b"), "10000 bytes of writes");
    one.put(keyspace, 0u16.to_be_bytes(), "other").expect("takes no more than what it replaces");
    one.commit(WriteOptions::default()).expect("what was accepted");
    assert_eq!(keyspace.iter().expect("opens").count(), fitting + 1);
    assert!(store.get("large").expect("reads").is_none());
}

/// The commit finds no space for the log: nothing of the commit is visible, then or after a reopen,
/// and the next commit succeeds when there is space again.
#[test]
fn a_full_disk() {
    let storage = SimStorage::new(5);
    let dynamic: Arc<dyn Storage> = Arc::new(storage.clone());
    let all = options().background(Background::Manual);
    let store = Store::open_on(Arc::clone(&dynamic), all.clone()).expect("opens");
    let keyspace = store.default_keyspace();
    keyspace.put("k", "old").expect("puts");
    let fault = Fault { at_op: 0, kind: FaultKind::NoSpace, sticky: true, category: None };
    storage.inject(fault);
    let large = vec![1; 24 << 20];
    for options in [TransactionOptions::default(), TransactionOptions::pessimistic()] {
        let mut one = store.begin(options).expect("begins");
        one.put(keyspace, "k", "own").expect("puts");
        one.put(keyspace, "large", &large).expect("puts");
        let outcome = one.commit(WriteOptions::sync());
        assert!(outcome.as_ref().is_err_and(Error::is_no_space), "{outcome:?}");
        assert_eq!(keyspace.get("k").expect("reads").as_deref(), Some(&b"old"[..]));
        assert!(keyspace.get("large").expect("reads").is_none());
    }
    storage.clear_faults();
    // The store checks only from time to time whether there is space.
    let commit = || {
        let mut one = store.begin(TransactionOptions::default()).expect("begins");
        one.put(keyspace, "k", "own").expect("puts");
        one.commit(WriteOptions::sync())
    };
    let is_refused = |_: &u32| commit().is_err_and(|error| error.is_no_space());
    let refused = (0..2_000).take_while(is_refused).inspect(|_| sleep(Duration::from_millis(10)));
    assert!(refused.count() < 2_000, "there is space again");
    drop(store);
    let store = Store::open_on(dynamic, all).expect("opens");
    assert_eq!(store.get("k").expect("reads").as_deref(), Some(&b"own"[..]));
    assert!(store.get("large").expect("reads").is_none());
}

/// A sync fails: the store stops, and no later commit is accepted.
#[test]
fn a_stopped_store() {
    let storage = SimStorage::new(6);
    let store = Store::open_on(Arc::new(storage.clone()), options()).expect("opens");
    let keyspace = store.default_keyspace();
    let mut before = store.begin(TransactionOptions::default()).expect("begins");
    before.put(keyspace, "before", "v").expect("puts");
    let fault = Fault { at_op: 0, kind: FaultKind::Eio, sticky: true, category: None };
    storage.inject(fault);
    let mut one = store.begin(TransactionOptions::default()).expect("begins");
    one.put(keyspace, "k", "v").expect("puts");
    one.commit(WriteOptions::sync()).expect_err("the sync fails");
    storage.clear_faults();
    let outcome = before.commit(WriteOptions::default());
    assert!(matches!(outcome, Err(Error::Stopped { .. })), "{outcome:?}");
    assert!(keyspace.get("before").expect("reads").is_none());
}
