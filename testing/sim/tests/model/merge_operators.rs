//! Merge operators: operators that fail, panic, are unknown or change, and what they leave.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use runstone::seeded::Bug;
use runstone::storage::{MemoryStorage, Storage};
use runstone::unstable;
use runstone::{
    Background, Batch, Error, Event, EventListener, GcPointers, KeyspaceOptions, MergeOperator,
    Options, Store, ValuePlacement, WriteOptions,
};
use runstone_fault_storage::SimStorage;
use runstone_sim::found::holds_and_finds;

fn options(operator: &str, change: impl FnOnce(&mut KeyspaceOptions)) -> Options {
    let mut keyspace = KeyspaceOptions::default().merge_operator(operator);
    keyspace.write_buffer_bytes = 1 << 20;
    change(&mut keyspace);
    Options::default().background(Background::Manual).keyspace(keyspace)
}

fn open(storage: &(impl Storage + Clone + 'static), options: &Options) -> Result<Store, Error> {
    Store::open_on(Arc::new(storage.clone()), options.clone())
}

fn get(store: &Store, key: &str) -> Option<String> {
    let value = store.get(key).expect("reads");
    value.map(|value| String::from_utf8(value.to_vec()).expect("text"))
}

/// An operator that appends its operand. While a flag is set, it fails or panics.
#[derive(Debug, Default)]
struct Fickle {
    fails: AtomicBool,
    panics: AtomicBool,
}

impl MergeOperator for Fickle {
    fn name(&self) -> &str {
        "fickle"
    }

    fn full_merge(
        &self,
        _key: &[u8],
        base: Option<&[u8]>,
        operands: &[&[u8]],
    ) -> Result<Vec<u8>, String> {
        assert!(!self.panics.load(Relaxed), "told to");
        match self.fails.load(Relaxed) {
            true => Err("told to".into()),
            false => Ok([&[base.unwrap_or_default()], operands].concat().concat()),
        }
    }
}

/// How often operators failed, and why.
#[derive(Debug, Default)]
struct Failures(Mutex<Vec<(u64, String)>>);

impl EventListener for Failures {
    fn on_event(&self, event: &Event) {
        if let Event::MergeFailed { keyspace, times, error } = event {
            assert_eq!(keyspace, "default");
            self.0.lock().expect("sound").push((*times, error.to_string()));
        }
    }
}

impl Failures {
    fn take(&self) -> Vec<(u64, String)> {
        std::mem::take(&mut *self.0.lock().expect("sound"))
    }
}

/// If an operator fails or panics, a reader gets an error, and a compaction reports an event.
/// Operands that compactions could not fold are still there when the operator works again.
#[test]
fn a_failing_operator_loses_nothing() {
    let (operator, failures) = (Arc::new(Fickle::default()), Arc::new(Failures::default()));
    let mut options = options("fickle", |_| ());
    options.listener = Some(Arc::clone(&failures) as Arc<dyn EventListener>);
    options.merge_operators = vec![Arc::clone(&operator) as Arc<dyn MergeOperator>];
    let storage = MemoryStorage::new();
    let store = open(&storage, &options).expect("opens");
    let keyspace = store.default_keyspace();
    store.put("based", "0").expect("puts");
    store.put("deleted", "x").expect("puts");
    store.flush().expect("flushes");
    store.delete("deleted").expect("deletes");
    for flag in [&operator.fails, &operator.panics] {
        flag.store(true, Relaxed);
        for key in ["based", "deleted", "fresh"] {
            keyspace.merge(key, "1").expect("writes");
            store.flush().expect("flushes");
            keyspace.merge(key, "2").expect("writes");
        }
        store.compact().expect("compacts");
        let error = store.get("based").expect_err("the operator fails");
        assert!(matches!(&error, Error::MergeFailed { key, .. } if key == "based"), "{error}");
        let mut scan = keyspace.iter().expect("opens");
        assert!((0..3).all(|_| scan.next().expect("an item").is_err()) && scan.next().is_none());
        assert!(store.verify().expect("verifies").is_clean());
        let (times, why) = failures.take().pop().expect("of the compaction");
        assert_eq!(times, 3, "{why}");
        assert!(why.contains("fickle"), "{why}");
        flag.store(false, Relaxed);
    }
    for _ in 0..2 {
        assert_eq!(get(&store, "based").as_deref(), Some("01212"));
        assert_eq!(get(&store, "deleted").as_deref(), Some("1212"));
        assert_eq!(get(&store, "fresh").as_deref(), Some("1212"));
        store.compact().expect("compacts");
    }
    assert_eq!(failures.take(), []);
    let shape = unstable::shape(keyspace);
    assert_eq!(shape.tables().map(|(_, table)| table.entries).sum::<u64>(), 3, "all are folded");
}

/// Without its operator, a store reads everything else, compacts, verifies and writes. An event
/// reports operands that a compaction could not fold.
#[test]
fn an_unknown_operator_is_named() {
    let mut known = options("fickle", |_| ());
    let failures = Arc::new(Failures::default());
    let listener = Arc::clone(&failures) as Arc<dyn EventListener>;
    let unknown = known.clone().listener(listener);
    known.merge_operators = vec![Arc::new(Fickle::default())];
    let storage = MemoryStorage::new();
    let store = open(&storage, &known).expect("opens");
    store.put("plain", "1").expect("puts");
    store.default_keyspace().merge("merged", "1").expect("writes");
    store.close().expect("closes");
    let store = open(&storage, &unknown).expect("opens");
    let error = store.get("merged").expect_err("unknown");
    assert!(error.to_string().contains("needs merge operator fickle"), "{error}");
    store.default_keyspace().merge("merged", "2").expect("writes");
    store.compact().expect("compacts");
    let (times, why) = failures.take().pop().expect("of the compaction");
    assert!(times == 1 && why.contains("needs merge operator fickle"), "{times}: {why}");
    assert!(store.verify().expect("verifies").is_clean());
    assert_eq!(get(&store, "plain").as_deref(), Some("1"));
    store.close().expect("closes");
    let store = open(&storage, &known).expect("opens");
    assert_eq!(get(&store, "merged").as_deref(), Some("12"));
}

#[test]
fn what_cannot_work_is_refused() {
    let storage = MemoryStorage::new();
    let store = open(&storage, &options("", |_| ())).expect("opens");
    let keyspace = store.default_keyspace();
    let refused = |outcome: Result<(), Error>| outcome.expect_err("refused").to_string();
    assert!(refused(keyspace.merge("k", "1")).contains("has no merge operator"));
    assert!(refused(Batch::new().merge(keyspace, "k", "1")).contains("has no merge operator"));
    let change = |operator| store.open_keyspace("default", options(operator, |_| ()).keyspace);
    change("add-u64").expect("the first operator");
    assert!(refused(keyspace.merge("k", "one")).contains("3 bytes are no integer"));
    keyspace.merge("k", 1u64.to_le_bytes()).expect("writes");
    assert!(change("max").expect_err("another").to_string().contains("operands of merge operator"));
    assert!(change("").is_err(), "and none");
    store.close().expect("closes");
    assert!(open(&storage, &options("max", |_| ())).is_err(), "nor at open");
    open(&storage, &options("add-u64", |_| ())).expect("opens");
    for (placement, pointers) in [
        (ValuePlacement::Vlog, GcPointers::Stable),
        (ValuePlacement::HashGrouped, GcPointers::Writeback),
    ] {
        let options = options("max", |keyspace| {
            (keyspace.values.placement, keyspace.values.gc_pointers) = (placement, pointers);
        });
        let error = open(&MemoryStorage::new(), &options).expect_err("refused");
        assert!(error.to_string().contains("above the operands"), "{error}");
    }
}

/// Operands on a separated value are folded with it, and its record becomes garbage.
#[test]
fn operands_on_separated_values() {
    let options = options("append()", |keyspace| {
        keyspace.values.placement = ValuePlacement::HashGrouped;
        keyspace.values.separate_at = 100;
        (keyspace.values.groups, keyspace.values.slot_bytes) = (1, 4096);
    });
    let store = open(&MemoryStorage::new(), &options).expect("opens");
    for round in 0..20 {
        for key in 0..20 {
            let key = format!("k{key:02}");
            match round {
                0 => store.put(&key, "v".repeat(1000)).expect("puts"),
                _ => store.default_keyspace().merge(&key, "o").expect("writes"),
            }
        }
        store.flush().expect("flushes");
        let expected = format!("{}{}", "v".repeat(1000), "o".repeat(round));
        assert_eq!(get(&store, "k07"), Some(expected));
        if round % 5 == 4 {
            store.compact().expect("compacts");
        }
    }
    store.compact().expect("compacts");
    let used: u64 = store.default_keyspace().value_usage().iter().map(|usage| usage.bytes()).sum();
    assert!(used < 30_000, "{used} bytes of records for 20 values of 1,019 bytes");
}

/// A cursor whose view is from before a compaction continues through the operands that the
/// compaction folded. A collection frees their base, because the record of the result replaces it.
/// Once, the cursor reported the missing base as damage.
#[test]
fn a_cursor_outlives_the_folding_of_its_operands() {
    let options = options("append(,)", |keyspace| {
        keyspace.values.placement = ValuePlacement::HashGrouped;
        keyspace.values.separate_at = 60;
        keyspace.values.groups = 1;
        keyspace.values.slot_bytes = 4096;
    });
    let storage = MemoryStorage::new();
    let store = open(&storage, &options).expect("opens");
    let keyspace = store.default_keyspace();
    let key = |number: u32| format!("k{number:03}");
    (0..100).try_for_each(|number| keyspace.put(key(number), [b'b'; 300])).expect("puts");
    store.flush().expect("flushes");
    (0..100).try_for_each(|number| keyspace.merge(key(number), "operand")).expect("merges");
    store.close().expect("closes");
    // After a reopen, the cache does not have the blocks that the flush wrote.
    let store = open(&storage, &options).expect("reopens");
    let keyspace = store.default_keyspace();
    let mut pairs = keyspace.iter().expect("opens");
    // A seek would take a new view.
    pairs.next().expect("the first").expect("reads");
    store.compact().expect("folds and collects");
    let used: u64 = keyspace.value_usage().iter().map(|usage| usage.bytes()).sum();
    assert!(used < 50_000, "{used} bytes: the bases are collected");
    let wanted = [&[b'b'; 300][..], b",operand"].concat();
    for number in 1..100 {
        let (found, value) = pairs.next().expect("one more").expect("reads");
        assert_eq!((&*found, &*value), (key(number).as_bytes(), &*wanted));
    }
}

/// A small log is logged again at open. After a crash before the new manifest, recovery finds both
/// logs. Operands must not count twice (as pointers did, see `regressions`).
#[test]
fn no_operand_counts_twice() {
    let options = options("append()", |_| ());
    let first = SimStorage::new(1);
    let store = open(&first, &options).expect("opens");
    for operand in ["1", "2", "3"] {
        let mut batch = Batch::new();
        batch.merge(store.default_keyspace(), "k", operand).expect("fits");
        store.write(&batch, WriteOptions::default()).expect("writes");
    }
    let left = first.process_crash();
    for at in 0..100 {
        use runstone_fault_storage::{Fault, FaultKind};
        let storage = left.process_crash();
        let (kind, at_op) = (FaultKind::Crash, storage.ops() + at);
        storage.inject(Fault { at_op, kind, sticky: true, category: None });
        drop(open(&storage, &options));
        let store = open(&storage.process_crash(), &options).expect("P8");
        assert_eq!(get(&store, "k").as_deref(), Some("123"), "operation {at}");
    }
}

/// Two operands, only one of which a snapshot sees, are not folded together.
#[test]
fn operands_are_folded_between_snapshots() {
    holds_and_finds(Bug::OperandsFoldedAcrossSnapshots, || {
        let store = open(&MemoryStorage::new(), &options("append(,)", |_| ())).expect("opens");
        let keyspace = store.default_keyspace();
        store.put("k", "base").expect("puts");
        ["1", "2"].iter().for_each(|operand| keyspace.merge("k", operand).expect("merges"));
        let between = store.snapshot();
        ["3", "4"].iter().for_each(|operand| keyspace.merge("k", operand).expect("merges"));
        for work in [Store::flush, Store::compact] {
            work(&store).expect("folds");
            let then = keyspace.get_at("k", &between).expect("reads");
            assert_eq!(then.as_deref(), Some(&b"base,1,2"[..]));
            assert_eq!(get(&store, "k").as_deref(), Some("base,1,2,3,4"));
        }
    });
}

/// Operands above a delete apply to nothing, wherever the delete and the older versions are.
#[test]
fn a_delete_ends_a_chain_of_operands() {
    let check = || {
        let store = open(&MemoryStorage::new(), &options("append(,)", |_| ())).expect("opens");
        let keyspace = store.default_keyspace();
        store.put("k", "flushed").expect("puts");
        store.flush().expect("flushes");
        keyspace.merge("k", "older").expect("merges");
        store.delete("k").expect("deletes");
        ["1", "2"].iter().for_each(|operand| keyspace.merge("k", operand).expect("merges"));
        for work in [|_: &Store| Ok(()), Store::flush, Store::compact] {
            work(&store).expect("folds");
            assert_eq!(get(&store, "k").as_deref(), Some("1,2"));
        }
    };
    holds_and_finds(Bug::OperandsReadOverDeletes, check);
    holds_and_finds(Bug::OperandsFoldedOverDeletes, check);
}
