//! What is looked at or copied under one hold of a lock does not grow with what a user did. Loops
//! allocate nothing, so they count themselves (`sync::looked` in the engine); only builds with
//! debug assertions count.

use std::sync::Arc;

use runstone::storage::MemoryStorage;
use runstone::testing::most_looked;
use runstone::unstable;
use runstone::{Background, Batch, Keyspace, KeyspaceOptions, Options, ReadOptions, Store};
use runstone::{WalMode, WriteOptions};

/// The most under one hold of any of these locks.
const MOST: u64 = 4_096;

/// The locks of a job search, of writers, of readers.
const LOCKS: [&str; 8] = [
    "Claiming",
    "Refreshing",
    "Pressed",
    "Commit",
    "View",
    "Unflushed",
    "Snapshots",
    "StandingCursors",
];

/// Forgets what was done before.
fn begin() {
    LOCKS.iter().for_each(|lock| _ = most_looked(lock));
}

/// Checks each lock, and returns the most that was looked at.
fn check(what: &str, count: u64) -> u64 {
    let all = LOCKS.map(|lock| (lock, most_looked(lock)));
    println!("{count} {what}: {all:?}");
    for (lock, looked) in all {
        assert!(looked <= MOST, "{what} looks at {looked} under {lock} with {count}");
    }
    all.iter().map(|(_, looked)| *looked).max().expect("there are locks")
}

fn key(number: u64) -> [u8; 8] {
    number.to_be_bytes()
}

fn settle(store: &Store) {
    while store.run_one_job().expect("runs") {}
}

fn with_keyspaces(count: u64) -> (Store, Vec<Keyspace>) {
    let store = crate::open(KeyspaceOptions::default());
    let make = |number| store.open_keyspace(&format!("k{number}"), None).expect("makes");
    let keyspaces = (0..count).map(make).collect();
    (store, keyspaces)
}

/// Once, each search for a job looked at all keyspaces with writes under the lock of the jobs, that
/// of an idle store twice, and pressure was measured for all of them at once.
#[test]
fn keyspaces_with_writes() {
    for count in [10, 1_000, 5_000] {
        let (store, keyspaces) = with_keyspaces(count);
        settle(&store);
        begin();
        keyspaces.iter().for_each(|one| one.put("k", "v").expect("puts"));
        check("puts", count);
        store.put("k", "v").expect("puts");
        assert!(!store.run_one_job().expect("searches"), "nothing is due");
        let looked = check("search", count);
        assert!(looked <= 64, "a search looks at {looked} of {count} keyspaces");
        store.flush().expect("flushes");
        check("flush", count);
        settle(&store);
        check("search of settled trees", count);
        while store.run_idle_job().expect("runs") {}
        keyspaces.iter().for_each(|one| one.put("k", "v").expect("puts"));
        assert!(!store.run_idle_job().expect("searches"), "an idle store has nothing to do");
        check("search of an idle store", count);
        store.checkpoint("copy").expect("copies");
        check("checkpoint", count);
        // Trees and options of all keyspaces belong to one moment, so this one grows with them.
        let looked = most_looked("Manifest");
        assert!(looked <= 2 * count + 1_000, "a checkpoint looks at {looked} of {count}");
    }
}

/// Once, a flush and a compaction took the numbers of all snapshots at once, under the lock that
/// each cursor takes.
#[test]
fn snapshots() {
    for count in [10, 1_000, 100_000] {
        let store = crate::open(KeyspaceOptions::default());
        let one = |number| {
            store.put(key(number % 100), "v").expect("puts");
            store.snapshot()
        };
        let held: Vec<_> = (0..count).map(one).collect();
        begin();
        store.flush().expect("flushes");
        check("flush", count);
        store.compact().expect("compacts");
        let looked = check("compaction", count);
        assert!(looked > 0, "the snapshots are looked at");
        drop(held);
        let metrics = store.metrics();
        assert!(metrics.counters.compactions > 0 || count == 10, "{metrics:?}");
    }
}

/// Once, a flush looked at all cursors under the lock that a cursor takes when it begins and ends.
#[test]
fn standing_cursors() {
    for count in [10, 1_000, 10_000] {
        let store = crate::open(KeyspaceOptions::default());
        (0..100).for_each(|number| store.put(key(number), "v").expect("puts"));
        let one = |number| {
            let mut cursor =
                store.default_keyspace().cursor(ReadOptions::default()).expect("a cursor");
            cursor.seek(key(number % 100)).expect("seeks");
            cursor
        };
        let held: Vec<_> = (0..count).map(one).collect();
        begin();
        store.flush().expect("flushes");
        assert!(check("flush", count) > 0, "the cursors are visited");
        let mut held = held;
        for (number, cursor) in held.iter_mut().enumerate().step_by(97) {
            assert_eq!(cursor.key(), key(number as u64 % 100));
            cursor.next().expect("steps");
            assert_eq!(cursor.valid(), number % 100 < 99);
        }
    }
}

/// Once, each edit of a tree copied the numbers of all range deletes that had left its tables.
#[test]
fn range_deletes_that_left() {
    for count in [10, 1_000, 100_000] {
        let store = crate::open(KeyspaceOptions::default());
        let keyspace = store.default_keyspace();
        let delete = |from: u64, to: u64| {
            for number in from..to {
                keyspace.delete_range(key(number)..key(number + 1)).expect("deletes");
            }
            store.flush().expect("flushes");
        };
        (0..count).for_each(|number| store.put(key(number), "v").expect("puts"));
        // Half of the range deletes leave, with what they hide. The snapshot keeps the others.
        delete(0, count / 2);
        let _before = store.snapshot();
        delete(count / 2, count);
        store.compact().expect("compacts");
        let shape = unstable::shape(keyspace);
        let in_tables: u64 = shape.tables().map(|(_, one)| one.range_deletes).sum();
        assert_eq!(in_tables, count / 2);
        store.put("x", "v").expect("puts");
        most_looked("Manifest");
        store.flush().expect("flushes");
        let looked = most_looked("Manifest");
        println!("{count} range deletes: {looked} under the manifest's lock");
        assert!(looked <= 256, "{looked} with {count} range deletes");
    }
}

/// Once, a batch of up to 8 MiB was copied under the commit lock where the log is not mapped, and
/// keys of a batch were copied in addition to 256 KiB of it.
#[test]
fn bytes_of_a_batch() {
    for mode in [WalMode::Write, WalMode::Mapped] {
        for (count, value) in [(10, 100), (1_000, 100), (40_000, 100), (100, 2_000), (900, 140)] {
            let options = Options::default().background(Background::Manual).wal_mode(mode);
            let options = options.wal_segment_bytes(16 << 20);
            let store = Store::open_on(Arc::new(MemoryStorage::new()), options).expect("opens");
            let keyspace = store.default_keyspace();
            let mut reading =
                store.begin(runstone::TransactionOptions::serializable()).expect("begins");
            drop(reading.get(keyspace, "read").expect("reads"));
            let mut batch = Batch::new();
            for number in 0..count {
                let key = [&key(number)[..], &[0; 120]].concat();
                batch.put(keyspace, key, vec![7; value]).expect("adds");
            }
            store.write(&batch, WriteOptions::default()).expect("writes");
            reading.put(keyspace, "own", "1").expect("adds");
            reading.commit(WriteOptions::default()).expect("commits");
            let (entries, bytes) = {
                let metrics = store.metrics();
                (metrics.commit_lock_peak_entries, metrics.commit_lock_peak_bytes)
            };
            println!("{mode:?}, {count} of {value}: {entries} entries, {bytes} bytes");
            assert!(bytes <= 256 << 10 && entries <= MOST, "{mode:?}, {count}: {bytes} bytes");
            assert_eq!(keyspace.iter().expect("opens").count() as u64, count + 1);
        }
    }
}
