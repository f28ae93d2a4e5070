//! The store as a user sees it: point operations, batches, snapshots, iteration, reopen.

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::sync::Arc;
use std::time::Duration;

use runstone::storage::{Category, MemoryStorage, Storage};
use runstone::unstable;
use runstone::{
    Background, Batch, Error, Expiry, KeyspaceOptions, Options, ReadOptions, Store,
    TransactionOptions, TransactionScan, ValuePlacement, WriteOptions,
};
use runstone_fault_storage::SimStorage;

fn small() -> Options {
    let mut keyspace = KeyspaceOptions::default();
    keyspace.write_buffer_bytes = 64 << 10;
    let shape = unstable::numbers_mut(&mut keyspace);
    shape.table_bytes = 32 << 10;
    shape.base_bytes = 128 << 10;
    Options::default().memory_budget_bytes(4 << 20).wal_segment_bytes(256 << 10).keyspace(keyspace)
}

fn key(i: u64) -> Vec<u8> {
    format!("key{:08}", i.wrapping_mul(2_654_435_761) % 100_000_000).into_bytes()
}

#[test]
fn many_writes_survive_flushes_compactions_and_reopen() {
    for background in [Background::Threads(2), Background::Manual] {
        let storage = MemoryStorage::new();
        let open = || {
            let storage: Arc<dyn Storage> = Arc::new(storage.clone());
            Store::open_on(storage, small().background(background)).expect("open")
        };
        let store = open();
        for i in 0..20_000u64 {
            store.put(key(i), format!("value {i}")).expect("put");
        }
        for i in (0..20_000u64).step_by(3) {
            store.delete(key(i)).expect("delete");
        }
        let check = |store: &Store| {
            for i in 0..20_000u64 {
                let value = store.get(key(i)).expect("get");
                match i % 3 {
                    0 => assert_eq!(value, None, "{i}"),
                    _ => assert_eq!(value.as_deref(), Some(format!("value {i}").as_bytes())),
                }
            }
            let forward: Vec<Vec<u8>> = store
                .default_keyspace()
                .iter()
                .expect("iter")
                .map(|e| e.expect("entry").0)
                .collect();
            assert_eq!(forward.len(), 20_000 - 6_667);
            assert!(forward.windows(2).all(|pair| pair[0] < pair[1]));
            let iter = store.default_keyspace().iter().expect("iter").rev();
            let mut backward: Vec<Vec<u8>> = iter.map(|e| e.expect("entry").0).collect();
            backward.reverse();
            assert_eq!(forward, backward);
        };
        check(&store);
        store.flush().expect("flush");
        store.wait_idle().expect("idle");
        check(&store);
        assert!(store.verify().expect("verify").is_clean());
        assert!(store.metrics().counters.compactions > 0);
        store.close().expect("close");
        let store = open();
        check(&store);
        store.compact().expect("compact");
        check(&store);
        store.wait_idle().expect("idle");
        let shape = unstable::shape(store.default_keyspace());
        assert_eq!(shape.levels.iter().filter(|level| !level.is_empty()).count(), 1);
        assert_eq!(shape.tables().map(|(_, table)| table.tombstones).sum::<u64>(), 0);
        assert_eq!(shape.tables().map(|(_, table)| table.entries).sum::<u64>(), 13_333);
        let tables = storage.list().expect("list");
        let tables = tables.iter().filter(|file| file.name.ends_with(".table")).count();
        drop(store);
        assert_eq!(tables, shape.tables().count(), "obsolete tables are removed");
    }
}

/// Once, an open with refused options left the directory behind, and its new parents.
#[test]
fn refused_options_make_no_directory() {
    let root = tempfile::tempdir().expect("temporary directory");
    let path = root.path().join("above/store");
    let options = Options::default().memory_budget_bytes(1);
    let refused = Store::open(&path, options).err();
    assert!(matches!(refused, Some(Error::InvalidArgument { .. })), "{refused:?}");
    assert!(!root.path().join("above").exists());
}

#[test]
fn snapshots_keep_what_they_saw_across_compactions() {
    let store = Store::open_on(Arc::new(MemoryStorage::new()), small()).expect("open");
    let keyspace = store.default_keyspace();
    let mut snapshots = Vec::new();
    for round in 0..10u64 {
        for i in 0..2_000 {
            store.put(key(i), format!("{round}/{i}")).expect("put");
        }
        snapshots.push((round, store.snapshot()));
    }
    store.compact().expect("compact");
    for (round, snapshot) in &snapshots {
        for i in (0..2_000).step_by(17) {
            let value = keyspace.get_at(key(i), snapshot).expect("get");
            assert_eq!(value.as_deref(), Some(format!("{round}/{i}").as_bytes()));
        }
        let mut cursor = keyspace.cursor(ReadOptions::default().at(snapshot)).expect("cursor");
        cursor.seek_to_first().expect("seek");
        let mut count = 0;
        while cursor.valid() {
            assert!(cursor.value().starts_with(format!("{round}/").as_bytes()));
            count += 1;
            cursor.next().expect("next");
        }
        assert_eq!(count, 2_000);
    }
    drop(snapshots);
    store.put("another", "write").expect("put");
    store.compact().expect("compact");
    let entries: u64 = unstable::shape(keyspace).tables().map(|(_, table)| table.entries).sum();
    assert_eq!(entries, 2_001, "without snapshots one version of each key is left");
}

/// Keyspaces of two stores can have the same ids. Once, a write meant for one store went to the
/// other.
#[test]
fn a_batch_is_for_one_store() {
    let [one, other] = [(), ()].map(|()| {
        Store::open_on(Arc::new(MemoryStorage::new()), Options::default()).expect("open")
    });
    let mut batch = Batch::new();
    batch.put(one.default_keyspace(), "a", "1").expect("push");
    let refused = batch.put(other.default_keyspace(), "b", "2").expect_err("another store");
    assert!(matches!(refused, Error::InvalidArgument { .. }), "{refused}");
    batch.delete(other.default_keyspace(), "a").expect_err("another store");
    other.write(&batch, WriteOptions::default()).expect_err("another store");
    assert_eq!(other.get("a").expect("get"), None);
    one.write(&batch, WriteOptions::default()).expect("its own");
    assert_eq!(one.get("a").expect("get").as_deref(), Some(&b"1"[..]));
    assert_eq!(one.get("b").expect("get"), None);
    batch.clear();
    batch.put(other.default_keyspace(), "b", "2").expect("an empty batch is for any store");
    other.write(&batch, WriteOptions::default()).expect("write");
    assert_eq!(other.get("b").expect("get").as_deref(), Some(&b"2"[..]));
}

#[test]
fn a_batch_takes_the_writes_of_another() {
    let [one, other] = [(), ()].map(|()| {
        Store::open_on(Arc::new(MemoryStorage::new()), Options::default()).expect("open")
    });
    let keyspace = one.default_keyspace();
    one.put("a0", "old").expect("put");
    let (mut batch, mut more) = (Batch::new(), Batch::new());
    batch.append(&more).expect("nothing");
    more.delete_range(keyspace, "a".."b").expect("push");
    more.put(keyspace, "a1", "1").expect("push");
    more.delete(keyspace, "c").expect("push");
    batch.put(keyspace, "a2", "2").expect("push");
    batch.put(keyspace, "c", "3").expect("push");
    batch.append(&more).expect("of the same store");
    assert_eq!((batch.len(), batch.user_bytes()), (5, 3 + 2 + more.user_bytes()));
    assert_eq!(batch.operations().count(), 5);

    let mut foreign = Batch::new();
    foreign.put(other.default_keyspace(), "x", "y").expect("push");
    batch.append(&foreign).expect_err("another store");
    assert_eq!(batch.len(), 5, "it stays as it was");

    one.write(&batch, WriteOptions::default()).expect("write");
    let left: Vec<Vec<u8>> =
        keyspace.iter().expect("iter").map(|entry| entry.expect("entry").0.to_vec()).collect();
    assert_eq!(left, [b"a1"], "the range was deleted behind the first batch");
}

#[test]
fn batches_span_keyspaces_and_keyspaces_come_back() {
    let storage = MemoryStorage::new();
    {
        let store = Store::open_on(Arc::new(storage.clone()), small()).expect("open");
        let users = store.open_keyspace("users", Some(KeyspaceOptions::default())).expect("new");
        let gone = store.open_keyspace("gone", None).expect("new");
        let mut batch = Batch::new();
        batch.put(store.default_keyspace(), "a", "1").expect("push");
        batch.put(&users, "a", "2").expect("push");
        batch.put(&gone, "a", "3").expect("push");
        batch.delete(store.default_keyspace(), "a").expect("push");
        store.write(&batch, WriteOptions::sync()).expect("write");
        store.drop_keyspace("gone").expect("drop");
        assert!(gone.put("b", "c").is_err());
        assert!(store.drop_keyspace("default").is_err());
    }
    let store = Store::open_on(Arc::new(storage), small()).expect("open");
    assert_eq!(store.keyspaces(), ["default", "users"]);
    assert_eq!(store.get("a").expect("get"), None);
    let users = store.keyspace("users").expect("exists");
    assert_eq!(users.get("a").expect("get").as_deref(), Some(&b"2"[..]));
    assert!(store.keyspace("gone").is_err());
}

#[test]
fn empty_keys_and_values_are_legal_and_limits_are_told() {
    let store = Store::open_on(Arc::new(MemoryStorage::new()), small()).expect("open");
    store.put("", "").expect("empty");
    assert_eq!(store.get("").expect("get").as_deref(), Some(&b""[..]));
    store.put(vec![b'k'; 65_535], vec![b'v'; 300_000]).expect("largest key");
    assert_eq!(store.get(vec![b'k'; 65_535]).expect("get").map(|v| v.len()), Some(300_000));
    let refused = store.put(vec![b'k'; 65_536], "v").expect_err("too long");
    assert!(refused.to_string().contains("65535"), "{refused}");
    store.flush().expect("flush");
    assert_eq!(store.get("").expect("get").as_deref(), Some(&b""[..]));
    assert_eq!(store.get(vec![b'k'; 65_535]).expect("get").map(|v| v.len()), Some(300_000));
    let keys: Vec<usize> =
        store.default_keyspace().iter().expect("iter").map(|e| e.expect("entry").0.len()).collect();
    assert_eq!(keys, [0, 65_535]);
}

#[test]
fn cursors_turn_around_and_respect_bounds() {
    let store = Store::open_on(Arc::new(MemoryStorage::new()), small()).expect("open");
    for i in 0..5_000u64 {
        store.put(format!("{i:05}"), i.to_string()).expect("put");
        if i % 2 == 1 {
            store.delete(format!("{i:05}")).expect("delete");
        }
    }
    let bounds = ReadOptions::default().with_bounds(Some(b"01000"), Some(b"02000"));
    let mut cursor = store.default_keyspace().cursor(bounds).expect("cursor");
    cursor.seek_to_first().expect("seek");
    assert_eq!(cursor.key(), b"01000");
    cursor.prev().expect("prev");
    assert!(!cursor.valid());
    cursor.seek_to_last().expect("seek");
    assert_eq!(cursor.key(), b"01998");
    cursor.next().expect("next");
    assert!(!cursor.valid());
    cursor.seek(b"01500").expect("seek");
    for expected in ["01502", "01504", "01502", "01500", "01498", "01500"] {
        if cursor.key() < expected.as_bytes() {
            cursor.next().expect("next");
        } else {
            cursor.prev().expect("prev");
        }
        assert_eq!((cursor.key(), cursor.value().len()), (expected.as_bytes(), 4));
    }
    cursor.seek_for_prev(b"01501").expect("seek");
    assert_eq!(cursor.key(), b"01500");
    cursor.seek_for_prev(b"09999").expect("seek");
    assert_eq!(cursor.key(), b"01998");
    cursor.seek(b"00000").expect("seek");
    assert_eq!(cursor.key(), b"01000");
    let mut both = store.default_keyspace().range("00010".."00020").expect("scan");
    let mut seen = Vec::new();
    while let Some(item) = both.next() {
        seen.push(item.expect("entry").0);
        if let Some(item) = both.next_back() {
            seen.push(item.expect("entry").0);
        }
    }
    seen.sort();
    assert_eq!(seen, [b"00010", b"00012", b"00014", b"00016", b"00018"].map(|k| k.to_vec()));
}

/// Once, with a niceness of 15, compactions starved beside busy threads, and the writers stalled
/// with them.
#[cfg(target_os = "linux")]
#[test]
fn background_threads_keep_their_share_of_the_processor() {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let options = small().background(Background::Threads(2));
    let store = Store::open_on(storage, options).expect("open");
    store.put("key", "value").expect("put");
    store.compact().expect("compact");
    let own = rustix::process::getpriority_process(None).expect("own niceness");
    let (least, most) = (own, (own + 2).min(19));
    // A thread names and nices itself, so a new thread may not have done so yet.
    loop {
        let niced = niceness_of_background_threads();
        assert!(niced.iter().all(|niceness| (least..=most).contains(niceness)), "{niced:?}");
        if niced.len() >= 2 && niced.contains(&most) {
            break;
        }
        std::thread::yield_now();
    }
}

#[cfg(target_os = "linux")]
fn niceness_of_background_threads() -> Vec<i32> {
    let tasks = std::fs::read_dir("/proc/self/task").expect("own threads");
    let niceness = |task: std::io::Result<std::fs::DirEntry>| {
        let task = task.ok()?.path();
        // Threads of other tests may end meanwhile.
        let name = std::fs::read_to_string(task.join("comm")).ok()?;
        let stat = std::fs::read_to_string(task.join("stat")).ok()?;
        // Field 19, counted after the last parenthesis, which ends field 2.
        let field = stat.rsplit(") ").next()?.split(' ').nth(16)?;
        name.starts_with("runstone-").then(|| field.parse().expect("a number"))
    };
    tasks.filter_map(niceness).collect()
}

/// A compaction skips the prefix that the keys of all tables share when it compares keys. A
/// memtable may contain keys without that prefix.
#[test]
fn keys_that_begin_otherwise_than_all_tables_are_in_their_place() {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let options = small().background(Background::Manual);
    let store = Store::open_on(storage, options).expect("open");
    let shared = "tenant/00000000042/";
    let mut keys: Vec<Vec<u8>> = (0..300).map(|i| format!("{shared}{i:05}").into_bytes()).collect();
    for (at, key) in keys.iter().enumerate() {
        store.put(key, b"flushed").expect("put");
        if at % 100 == 99 {
            store.flush().expect("flush");
        }
    }
    let others: [&[u8]; 8] =
        [b"", b"\xff", b"a", b"tenant", b"tenant/", b"tenant/00000000042", b"tenant/1", b"zz"];
    for other in others {
        store.put(other, b"not flushed").expect("put");
        keys.push(other.to_vec());
    }
    keys.sort();
    let met = |reverse: bool| -> Vec<Vec<u8>> {
        let scan =
            store.default_keyspace().iter().expect("iter").map(|entry| entry.expect("entry").0);
        if reverse { scan.rev().collect() } else { scan.collect() }
    };
    assert_eq!(met(false), keys);
    keys.reverse();
    assert_eq!(met(true), keys);
}

/// In other stores an idle column family pins the log until a user flushes it. Here the log has a
/// limit. When the log exceeds the limit, the keyspace that needs the oldest segment is flushed.
#[test]
fn an_idle_keyspace_does_not_pin_the_log() {
    let storage = MemoryStorage::new();
    let options = small().max_wal_bytes(1 << 20);
    let store = Store::open_on(Arc::new(storage), options).expect("open");
    let idle = store.open_keyspace("idle", None).expect("new");
    idle.put("once", "and never again").expect("put");
    for i in 0..60_000u64 {
        store.put(key(i), [7; 100]).expect("put");
    }
    store.wait_idle().expect("idle");
    let metrics = store.metrics();
    assert!(metrics.counters.user_bytes_written > 6 << 20);
    assert!(metrics.wal_bytes <= 2 << 20, "{} bytes of log", metrics.wal_bytes);
    assert_eq!(unstable::shape(&idle).tables().count(), 1, "it was flushed");
    assert_eq!(idle.get("once").expect("get").as_deref(), Some(&b"and never again"[..]));
}

/// Once, a program that was started anew for each write left a table each time: ninety puts made
/// seventy tables. Now the content of a small log is logged again, and is flushed once it is worth
/// a table.
#[test]
fn a_small_log_is_kept_until_it_is_worth_a_table() {
    let storage = MemoryStorage::new();
    let open = |flush_at_close| {
        let storage: Arc<dyn Storage> = Arc::new(storage.clone());
        let options = small().flush_at_close(flush_at_close).wal_segment_bytes(64 << 10);
        Store::open_on(storage, options).expect("open")
    };
    let tables = |store: &Store| {
        let names = store.keyspaces();
        let shape = |name: &String| unstable::shape(&store.keyspace(name).expect("a keyspace"));
        names.iter().map(|name| shape(name).tables().count()).sum::<usize>()
    };
    for i in 0..90u64 {
        let store = open(false);
        store.put(key(i), format!("value {i}")).expect("put");
        store.put("counter", format!("{i}")).expect("put");
        store.delete(key(i / 2)).expect("delete");
        let other = store.open_keyspace(&format!("of {}", i % 7), None).expect("a keyspace");
        other.put("last", format!("{i}")).expect("put");
        store.close().expect("close");
        let logs = storage.list().expect("files");
        let logs = logs.iter().filter(|file| file.name.ends_with(".wal")).count();
        assert_eq!(logs, 1, "segments of earlier opens go");
    }
    let store = open(false);
    assert_eq!(tables(&store), 0);
    for i in 45..90u64 {
        let value = store.get(key(i)).expect("get");
        assert_eq!(value.as_deref(), Some(format!("value {i}").as_bytes()));
    }
    assert!(store.get(key(44)).expect("get").is_none());
    assert_eq!(store.get("counter").expect("get").as_deref(), Some(&b"89"[..]));
    for i in 83..90u64 {
        let other = store.keyspace(&format!("of {}", i % 7)).expect("a keyspace");
        let last = other.get("last").expect("get");
        assert_eq!(last.as_deref(), Some(format!("{i}").as_bytes()));
    }
    assert!(store.verify().expect("readable").is_clean());
    // The log names a dropped keyspace. A new keyspace must not get its writes.
    store.drop_keyspace("of 6").expect("dropped");
    store.close().expect("close");
    let store = open(false);
    assert_eq!((tables(&store), store.keyspaces().len()), (0, 7));
    store.open_keyspace("new", None).expect("a keyspace");
    store.close().expect("close");
    let store = open(false);
    let new = store.keyspace("new").expect("a keyspace");
    assert!(new.get("last").expect("get").is_none());
    (0..70u64).for_each(|i| store.put(key(i), [1; 1000]).expect("put"));
    store.close().expect("close");
    let store = open(true);
    assert!(tables(&store) > 0, "much goes to tables");
    assert_eq!(store.get(key(69)).expect("get").as_deref(), Some(&[1; 1000][..]));
    store.close().expect("close");
    let logs = storage.list().expect("files");
    assert!(!logs.iter().any(|file| file.name.ends_with(".wal")), "{logs:?}");
}

/// If an operation exists in one form (for one key, for the present state, with the store's
/// durability), it exists in the other forms as well.
#[test]
fn forms_of_calls_agree() {
    let store = Store::open_on(Arc::new(MemoryStorage::new()), small()).expect("opens");
    let keyspace = store.default_keyspace();
    ["a1", "a2", "b1"].iter().try_for_each(|key| store.put(key, "old")).expect("puts");
    let snapshot = store.snapshot();
    store.delete("a2").expect("deletes");
    let found = keyspace.multi_get_at(&["b1", "a2", "x"], &snapshot).expect("reads");
    assert_eq!(found.iter().map(Option::is_some).collect::<Vec<_>>(), [true, true, false]);
    let hour = Duration::from_secs(3600);
    keyspace.put_with("c1", "soon", WriteOptions::sync().ttl(hour)).expect("puts");
    assert!(matches!(keyspace.expiry("c1").expect("reads"), Some(Expiry::At(_))));

    let mut transaction = store.begin(TransactionOptions::default()).expect("begins");
    transaction.put(keyspace, "a3", "own").expect("puts");
    let keys = |scan: TransactionScan<'_>| {
        let keys = scan.map(|item| String::from_utf8(item.expect("reads").0).expect("text"));
        keys.collect::<Vec<_>>().join(",")
    };
    assert_eq!(keys(transaction.iter(keyspace).expect("scans")), "a1,a3,b1,c1");
    assert_eq!(keys(transaction.prefix(keyspace, "a").expect("scans")), "a1,a3");
    assert_eq!(keys(transaction.range(keyspace, "a2".."c").expect("scans")), "a3,b1");
}

/// A value is compared and hashed by its bytes, wherever they are.
#[test]
fn values_are_compared_by_their_bytes() {
    let store = Store::open_on(Arc::new(MemoryStorage::new()), small()).expect("opens");
    let (large, small) = (vec![7; 9000], vec![7; 10]);
    let values = ["large", "small"].map(|key| {
        store.put(key, if key == "large" { &large } else { &small }).expect("puts");
        let in_memtable = store.get(key).expect("reads").expect("is there");
        store.flush().expect("flushes");
        let in_block = store.get(key).expect("reads").expect("is there");
        assert_eq!(in_memtable, in_block);
        (in_memtable, in_block)
    });
    let (one, two) = (&values[0].1, &values[1].1);
    assert!(one > two && one.cmp(&values[0].0).is_eq());
    let hasher = BuildHasherDefault::<DefaultHasher>::default();
    for (value, bytes) in [(one, &large), (two, &small)] {
        assert_eq!(hasher.hash_one(value), hasher.hash_one(&bytes[..]));
    }
}

/// Once, flushes and compactions wrote a whole file before they synced it, and concurrent synced
/// writes waited until the file was on the disk, for 25 to 35 ms. Now the disk gets the file piece
/// by piece.
#[test]
fn what_jobs_write_goes_to_the_disk_in_pieces() {
    for placement in [ValuePlacement::Inline, ValuePlacement::Vlog] {
        let storage = SimStorage::new(1);
        let mut keyspace = KeyspaceOptions::default();
        keyspace.values.placement = placement;
        let options = Options::default().background(Background::Manual).keyspace(keyspace);
        let store = Store::open_on(Arc::new(storage.clone()), options).expect("opens");
        let category = match placement {
            ValuePlacement::Inline => Category::Table,
            _ => Category::Value,
        };
        let count_pieces = |work: &dyn Fn()| {
            let before = storage.counters().snapshot(category);
            work();
            let after = storage.counters().snapshot(category);
            let written_bytes = after.written_bytes - before.written_bytes;
            (after.write_backs - before.write_backs, written_bytes >> 20)
        };
        let mut bytes = vec![0u8; 4000];
        for i in 0..3000u64 {
            // Blocks that do not compress.
            bytes.iter_mut().zip(0..).for_each(|(byte, at)| *byte = hash(i << 32 | at));
            store.put(key(i), &bytes).expect("puts");
        }
        let (pieces, written) = count_pieces(&|| store.flush().expect("flushes"));
        assert!(written >= 4 && pieces >= written - 2, "{placement:?}: {pieces} of {written} MiB");
        if placement == ValuePlacement::Inline {
            store.put(key(7), "new").expect("puts");
            let (pieces, written) = count_pieces(&|| store.compact().expect("compacts"));
            assert!(written >= 4 && pieces >= written - 4, "{pieces} of {written} MiB");
        }
    }
}

fn hash(i: u64) -> u8 {
    (i.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29).wrapping_mul(0xBF58_476D) >> 40) as u8
}

/// Writers wait for flushes, so flushes never pause for synced writes.
#[test]
fn flushes_do_not_pause_for_synced_writes() {
    let mut options = small().background(Background::Threads(2));
    let keyspace = options.keyspace.as_mut().expect("options");
    (unstable::numbers_mut(keyspace).l0_trigger, keyspace.l0_slowdown_runs) = (500, 501);
    keyspace.l0_stop_runs = 1000;
    let store = Store::open_on(Arc::new(MemoryStorage::new()), options).expect("opens");
    for i in 0..4000u64 {
        store.default_keyspace().put_with(key(i), [7; 100], WriteOptions::sync()).expect("puts");
    }
    store.wait_idle().expect("ends");
    let counters = store.metrics().counters;
    assert!(counters.flushes >= 5 && counters.wal_syncs > 0, "{counters:?}");
    assert_eq!((counters.compactions, counters.paused_ns), (0, 0));
}

#[test]
fn who_has_a_store_open_is_told() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = Store::open(dir.path(), small()).expect("open");
    let refused = Store::open(dir.path(), small()).expect_err("it is in use");
    let own = std::process::id();
    assert!(matches!(&refused, Error::InUse { process: Some(id), .. } if *id == own), "{refused}");
    assert!(refused.to_string().ends_with("in use by this process"), "{refused}");
    let other = Error::InUse { path: "here".into(), process: Some(1) };
    assert_eq!(other.to_string(), "here is in use by process 1");
    assert_ne!(other.hint(), refused.hint());
    store.close().expect("close");
}
