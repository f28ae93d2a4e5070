//! Stores without a log: a crash leaves the store as of one moment, in all keyspaces.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use runstone::storage::Storage;
use runstone::{
    Background, Batch, Durability, Error, GcPointers, Keyspace, KeyspaceOptions, Options, Store,
    TransactionOptions, ValueOptions, ValuePlacement, WalMode, WriteOptions,
};
use runstone_fault_storage::SimStorage;

fn options(background: Background) -> Options {
    let keyspace = KeyspaceOptions::default().write_buffer_bytes(64 << 10);
    Options::default().wal_mode(WalMode::Off).background(background).keyspace(keyspace)
}

fn open(storage: &SimStorage) -> Store {
    Store::open_on(Arc::new(storage.clone()), options(Background::Manual)).expect("opens")
}

fn value(keyspace: &Keyspace, key: &str) -> Option<String> {
    let found = keyspace.get(key).expect("reads")?;
    Some(String::from_utf8(found.to_vec()).expect("text"))
}

#[test]
fn a_crash_takes_what_is_not_flushed_in_any_keyspace() {
    let storage = SimStorage::new(1);
    let store = open(&storage);
    let other = store.open_keyspace("other", None).expect("opens");
    store.put("a", "1").expect("puts");
    other.put("a", "1").expect("puts");
    store.sync().expect("flushes");
    other.put("a", "2").expect("puts");
    // This fills a memtable, and the flush that follows includes the other keyspace.
    store.put("large", vec![1; 100 << 10]).expect("puts");
    store.put("a", "2").expect("puts");
    store.wait_idle().expect("flushes");
    store.put("a", "3").expect("puts");
    let files = storage.list().expect("lists");
    assert!(files.iter().all(|file| !file.name.ends_with(".wal")), "{files:?}");
    let left = storage.process_crash();
    let store = open(&left);
    assert_eq!(value(&store.keyspace("other").expect("exists"), "a").as_deref(), Some("2"));
    assert_eq!(value(store.default_keyspace(), "a").as_deref(), Some("1"));
    store.put("a", "4").expect("puts");
    store.close().expect("a close flushes");
    assert_eq!(value(open(&left).default_keyspace(), "a").as_deref(), Some("4"));
}

/// A store that is open for reading has nothing to flush. Once, its close failed, because it had no
/// log to keep unflushed writes.
#[test]
fn a_store_that_is_only_read_can_be_closed() {
    let storage = SimStorage::new(3);
    let store = open(&storage);
    store.put("a", "1").expect("puts");
    store.close().expect("flushes");
    let reading = options(Background::Manual).read_only(true);
    let store = Store::open_on(Arc::new(storage.clone()), reading).expect("opens");
    assert_eq!(value(store.default_keyspace(), "a").as_deref(), Some("1"));
    store.close().expect("nothing is to be flushed");
}

#[test]
fn what_needs_a_log_is_refused() {
    let storage = SimStorage::new(2);
    let refused = |options: Options| {
        let refused = Store::open_on(Arc::new(storage.clone()), options).expect_err("refused");
        assert!(refused.to_string().contains("wal_mode \"off\""), "{refused}");
    };
    let off = || options(Background::Manual);
    refused(off().durability(Durability::Sync));
    refused(off().flush_at_close(false));
    let log = ValueOptions::default().placement(ValuePlacement::Vlog);
    let writes_back = ValueOptions::default()
        .placement(ValuePlacement::HashGrouped)
        .gc_pointers(GcPointers::Writeback);
    for values in [log, writes_back] {
        let keyspace = KeyspaceOptions::default().values(values);
        refused(off().keyspace(keyspace.clone()));
        let store = open(&storage);
        let refused = store.open_keyspace("apart", Some(keyspace)).expect_err("refused");
        assert!(refused.to_string().contains("keyspace \"apart\""), "{refused}");
    }
    let store = open(&storage);
    let synced = || WriteOptions::default().durability(Durability::Sync);
    let mut batch = Batch::new();
    batch.put(store.default_keyspace(), "a", "1").expect("fits");
    let mut transaction = store.begin(TransactionOptions::default()).expect("begins");
    transaction.put(store.default_keyspace(), "a", "1").expect("fits");
    for refused in [store.write(&batch, synced()), transaction.commit(synced())] {
        let refused = refused.expect_err("refused").to_string();
        assert!(refused.contains("a synced write needs the log"), "{refused}");
    }
    assert_eq!(value(store.default_keyspace(), "a"), None);
}

/// A store can switch from a log to no log and back. Without a log, a batch may have any size.
#[test]
fn a_log_can_be_left_and_taken_up() {
    let storage = SimStorage::new(3);
    let with_log = || {
        let options = options(Background::Manual).wal_mode(WalMode::Write);
        Store::open_on(Arc::new(storage.clone()), options).expect("opens")
    };
    let store = with_log();
    store.put("logged", "1").expect("puts");
    store.sync().expect("syncs");
    drop(store);
    let store = open(&storage);
    assert_eq!(value(store.default_keyspace(), "logged").as_deref(), Some("1"));
    let mut batch = Batch::new();
    for i in 0..200 {
        batch.put(store.default_keyspace(), format!("{i:03}"), vec![0; 100 << 10]).expect("fits");
    }
    store.write(&batch, WriteOptions::default()).expect("writes");
    store.close().expect("closes");
    let store = with_log();
    assert_eq!(store.default_keyspace().iter().expect("scans").count(), 201);
    store.put("logged", "2").expect("puts");
    drop(store);
    assert_eq!(value(open(&storage).default_keyspace(), "logged").as_deref(), Some("2"));
}

const WRITERS: usize = 3;
const ROUNDS: u32 = 6;
const NAMES: [&str; 3] = ["a", "b", "c"];

/// Runs a writer that increments a counter and puts it into one keyspace after another, and now and
/// then into all keyspaces together. The writer ends when the process is killed.
fn count(store: &Store, writer: usize, done: &AtomicBool) {
    let keyspaces = NAMES.map(|name| store.keyspace(name).expect("exists"));
    for number in 0u32.. {
        let key = format!("{writer}/{number:08}");
        let written = if number.is_multiple_of(7) {
            let mut batch = Batch::new();
            keyspaces.iter().for_each(|one| batch.put(one, &key, [7; 50]).expect("fits"));
            store.write(&batch, WriteOptions::default())
        } else {
            keyspaces[number as usize % 3].put(&key, [7; 50])
        };
        if done.load(Relaxed) {
            break;
        }
        written.expect("writes until then");
    }
}

/// Checks that the numbers of each writer have no gaps, and that batches are whole.
fn check(store: &Store) {
    let keyspaces = NAMES.map(|name| store.keyspace(name).expect("exists"));
    for writer in 0..WRITERS {
        let holds = |one: &Keyspace, number: u32| {
            one.get(format!("{writer}/{number:08}")).expect("reads").is_some()
        };
        let held = |number: u32| match number.is_multiple_of(7) {
            true => keyspaces.iter().filter(|one| holds(one, number)).count() * 10,
            false => usize::from(holds(&keyspaces[number as usize % 3], number)),
        };
        let whole = |number: &u32| held(*number) == if number.is_multiple_of(7) { 30 } else { 1 };
        let end = (0u32..).find(|number| !whole(number)).expect("an end");
        assert_eq!(held(end), 0, "writer {writer}: half a batch at {end} (P3)");
        let later = (end..end + 5_000).find(|number| held(*number) > 0);
        assert_eq!(later, None, "writer {writer}: a gap at {end} (P2)");
    }
}

/// Flushes, loads, checkpoints, drops and changes of options run beside writers until the process
/// is killed.
#[test]
fn a_crash_beside_writers_leaves_one_moment() {
    for seed in 0..2 {
        let storage = SimStorage::new(seed);
        let options = options(Background::Threads(2)).memory_budget_bytes(8 << 20);
        let store = Store::open_on(Arc::new(storage.clone()), options).expect("opens");
        for name in NAMES {
            store.open_keyspace(name, None).expect("opens");
        }
        let done = AtomicBool::new(false);
        let mut left = None;
        std::thread::scope(|scope| {
            let (store, done) = (&store, &done);
            for writer in 0..WRITERS {
                scope.spawn(move || count(store, writer, done));
            }
            let passing = |round: u32| -> Result<(), Error> {
                let gone = store.open_keyspace("gone", None)?;
                gone.put("key", "value")?;
                gone.bulk_load((0..300).map(|i| (format!("{i:04}"), vec![round as u8; 90])))?;
                store.keyspace("a")?.bulk_load([(format!("z{round:04}"), "loaded")])?;
                store.checkpoint(format!("copy{round}"))?;
                store.drop_keyspace("gone")
            };
            (0..ROUNDS).for_each(|round| passing(round).expect("works"));
            done.store(true, Relaxed);
            left = Some(storage.process_crash());
        });
        drop(store);
        let left = left.expect("was killed");
        let store = open(&left);
        check(&store);
        let loaded = store.keyspace("a").expect("exists").prefix("z").expect("scans").count();
        assert_eq!(loaded, ROUNDS as usize, "a load is durable");
        for round in 0..ROUNDS {
            check(&open(&left.open_sibling(format!("copy{round}").as_ref()).expect("is there")));
        }
    }
}

/// An edit between the edits of two generations records the place from which a log would be needed.
/// Once, drops and loads beside flushes could leave a store that the next open called corrupt, or
/// make the store wait for itself.
#[test]
fn drops_and_loads_beside_flushes_leave_a_good_store() {
    for seed in 0..3 {
        let storage = SimStorage::new(100 + seed);
        let options = options(Background::Threads(2)).memory_budget_bytes(8 << 20);
        let store = Store::open_on(Arc::new(storage.clone()), options).expect("opens");
        store.open_keyspace("a", None).expect("opens");
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let (store, done) = (&store, &done);
            scope.spawn(move || {
                for number in 0u32.. {
                    if done.load(Relaxed) {
                        break;
                    }
                    store.put(number.to_be_bytes(), [1; 200]).expect("writes");
                }
            });
            for name in ["one", "two"] {
                scope.spawn(move || {
                    for round in 0..15u8 {
                        let gone = store.open_keyspace(name, None).expect("opens");
                        let load = |keyspace: &Keyspace| {
                            let entries = (0..50u8).map(|i| ([round, i], "loaded"));
                            keyspace.bulk_load(entries)
                        };
                        std::thread::scope(|inside| {
                            // Either the load or the drop wins.
                            let loaded = inside.spawn(|| load(&gone));
                            gone.put("key", "value").expect("writes");
                            store.drop_keyspace(name).expect("drops");
                            let _ = loaded.join().expect("no panic");
                        });
                    }
                });
            }
            for round in 0..15u32 {
                let a = store.keyspace("a").expect("exists");
                let entries = (0..50u32).map(|i| {
                    if i == 25 {
                        // A source that flushes the store waits for no load but its own.
                        store.flush().expect("flushes");
                    }
                    ((round << 8 | i).to_be_bytes(), "loaded")
                });
                a.bulk_load(entries).expect("loads");
                store.checkpoint(format!("copy{round}")).expect("copies");
            }
            done.store(true, Relaxed);
        });
        let left = storage.process_crash();
        drop(store);
        let store = open(&left);
        assert_eq!(store.keyspace("a").expect("exists").iter().expect("scans").count(), 15 * 50);
    }
}

/// One edit makes many keyspaces durable.
#[test]
fn many_keyspaces_are_flushed_together() {
    let storage = SimStorage::new(9);
    let store = open(&storage);
    let names: Vec<String> = (0..300).map(|i| format!("k{i}")).collect();
    for name in &names {
        store.open_keyspace(name, None).expect("opens").put("a", "1").expect("puts");
    }
    store.flush().expect("flushes");
    let left = open(&storage.process_crash());
    for name in &names {
        assert_eq!(value(&left.keyspace(name).expect("exists"), "a").as_deref(), Some("1"));
    }
}
