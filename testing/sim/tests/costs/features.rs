//! The features, each with the steps whose costs are compared.

use std::time::Duration;

use runstone::{Batch, ReadOptions, Store, TransactionOptions, WriteOptions};

use crate::{COUNTS, Costs, READS, try_with};

fn key(number: u64) -> String {
    format!("key{number:08}")
}

fn fill(store: &Store, count: u64) {
    (0..count).for_each(|number| store.put(key(number), "value").expect("puts"));
}

fn first(store: &Store) {
    let mut cursor = store.default_keyspace().cursor(ReadOptions::default()).expect("a cursor");
    cursor.seek_to_first().expect("seeks");
}

fn last(store: &Store) {
    let mut cursor = store.default_keyspace().cursor(ReadOptions::default()).expect("a cursor");
    cursor.seek_to_last().expect("seeks");
}

/// Measures gets, and reads at both ends, after earlier reads have left dead ranges and cached
/// blocks. The cache keeps a block only when the block is read for the second time.
fn reads(costs: &mut Costs, names: [&'static str; 3], of: u64) {
    let store = costs.store;
    let get = || {
        (0..READS).for_each(|read| drop(store.get(key(read * 7919 % of)).expect("reads")));
    };
    let (first, last) =
        (|| (0..READS).for_each(|_| first(store)), || (0..READS).for_each(|_| last(store)));
    (0..3).for_each(|_| get());
    costs.step(names[0], READS, get);
    (0..3).for_each(|_| first());
    costs.step(names[1], READS, first);
    (0..3).for_each(|_| last());
    costs.step(names[2], READS, last);
}

fn flush_and_compact(costs: &mut Costs, count: u64) {
    let store = costs.store;
    costs.step("flush", count, || store.flush().expect("flushes"));
    reads(costs, ["get in tables", "first in tables", "last in tables"], count);
    costs.step("compact", count, || store.compact().expect("compacts"));
}

#[test]
fn live_snapshots() {
    try_with(&COUNTS, "", |costs, count| {
        let store = costs.store;
        fill(store, count);
        let snapshots: Vec<_> = costs.step("put and snapshot", count, || {
            let one = |number| {
                store.put(key(number / 2), "newer").expect("puts");
                store.snapshot()
            };
            (0..count).map(one).collect()
        });
        reads(costs, ["get", "first", "last"], count);
        flush_and_compact(costs, count);
        costs.step("drop", count, || drop(snapshots));
        costs.step("compact without", count, || store.compact().expect("compacts"));
    });
}

#[test]
fn standing_cursors() {
    try_with(&COUNTS, "", |costs, count| {
        let store = costs.store;
        fill(store, count);
        let keyspace = store.default_keyspace();
        let cursors: Vec<_> = costs.step("put and cursor", count, || {
            let one = |number| {
                store.put(key(number / 2), "newer").expect("puts");
                let mut cursor = keyspace.cursor(ReadOptions::default()).expect("a cursor");
                cursor.seek(key(number)).expect("seeks");
                cursor
            };
            (0..count).map(one).collect()
        });
        flush_and_compact(costs, count);
        costs.step("drop", count, || drop(cursors));
    });
}

#[test]
fn entries_of_a_batch() {
    try_with(&COUNTS, "", |costs, count| {
        let store = costs.store;
        let (keyspace, mut batch) = (store.default_keyspace(), Batch::new());
        costs.step("fill", count, || {
            (0..count).for_each(|i| batch.put(keyspace, key(i), "value").expect("puts"));
        });
        costs.step("write", count, || {
            store.write(&batch, WriteOptions::default()).expect("writes");
        });
        let keys: Vec<String> = (0..count).map(key).collect();
        costs.step("multi_get", count, || keyspace.multi_get(&keys).expect("reads"));
        flush_and_compact(costs, count);
    });
}

#[test]
fn steps_of_a_transaction() {
    try_with(&COUNTS, "", |costs, count| {
        let store = costs.store;
        fill(store, count);
        let keyspace = store.default_keyspace();
        let mut transaction = store.begin(TransactionOptions::default()).expect("begins");
        costs.step("get and put", count, || {
            for number in 0..count {
                transaction.get(keyspace, key(number)).expect("reads");
                transaction.put(keyspace, key(number), "newer").expect("puts");
            }
        });
        costs.step("savepoint and put", count, || {
            for number in 0..count {
                transaction.set_savepoint();
                transaction.put(keyspace, key(number / 2), "newest").expect("puts");
            }
        });
        costs.step("scan", count, || {
            let options = ReadOptions::default();
            assert_eq!(transaction.scan(keyspace, options).expect("scans").count() as u64, count);
        });
        costs.step("roll back", count, || {
            for _ in 0..count {
                transaction.rollback_to_savepoint().expect("a savepoint");
            }
        });
        costs.step("commit", count, || {
            transaction.commit(WriteOptions::default()).expect("commits");
        });
    });
}

/// Once, each range delete moved all writes behind it, and each savepoint copied all ranges.
#[test]
fn range_deletes_of_a_transaction() {
    try_with(&COUNTS, "", |costs, count| {
        let store = costs.store;
        let keyspace = store.default_keyspace();
        let options = TransactionOptions::default().max_write_bytes(256 << 20);
        let mut transaction = store.begin(options).expect("begins");
        (0..count).for_each(|n| transaction.put(keyspace, key(n), "newer").expect("puts"));
        let range = |number: u64| key(number % count)..key(number % count) + "x";
        costs.step("delete", READS, || {
            for number in 0..READS {
                transaction.delete_range(keyspace, range(number * 7919)).expect("deletes");
            }
        });
        costs.step("savepoint and delete", READS, || {
            for number in 0..READS {
                transaction.set_savepoint();
                transaction.delete_range(keyspace, range(number * 104_729)).expect("deletes");
            }
        });
        costs.step("roll back", READS, || {
            (0..READS).for_each(|_| transaction.rollback_to_savepoint().expect("a savepoint"));
        });
        costs.step("savepoint, put and delete", count, || {
            for number in 0..count {
                transaction.set_savepoint();
                transaction.put(keyspace, key(number), "newest").expect("puts");
                transaction.delete_range(keyspace, range(number / 2)).expect("deletes");
            }
        });
        costs.step("roll back all but one", count, || {
            (1..count).for_each(|_| transaction.rollback_to_savepoint().expect("a savepoint"));
        });
        costs.step("delete all", count, || {
            transaction.delete_range(keyspace, key(0)..).expect("deletes");
        });
        costs.step("commit", READS, || {
            transaction.commit(WriteOptions::default()).expect("commits");
        });
    });
}

#[test]
fn open_transactions() {
    try_with(&COUNTS, "", |costs, count| {
        let store = costs.store;
        fill(store, count);
        let keyspace = store.default_keyspace();
        let open: Vec<_> = costs.step("begin", count, || {
            let one = |number| {
                let options = TransactionOptions::pessimistic();
                let mut transaction = store.begin(options).expect("begins");
                transaction.put(keyspace, key(number), "newer").expect("puts");
                transaction
            };
            (0..count).map(one).collect()
        });
        reads(costs, ["get", "first", "last"], count);
        costs.step("put elsewhere", READS, || {
            (0..READS).for_each(|number| store.put(format!("x{number}"), "").expect("puts"));
        });
        costs.step("commit", count, || {
            let mut open = open;
            open.drain(..).for_each(|one| one.commit(WriteOptions::default()).expect("commits"));
        });
    });
}

#[test]
fn versions_of_a_key() {
    try_with(&COUNTS, "", |costs, count| {
        let store = costs.store;
        let keyspace = store.default_keyspace();
        let oldest = store.snapshot();
        let overwrite = || (0..count).for_each(|_| store.put(key(0), "value").expect("puts"));
        costs.step("put", count, overwrite);
        let middle = store.snapshot();
        costs.step("put again", count, overwrite);
        reads(costs, ["get", "first", "last"], 1);
        costs.step("get at", READS, || {
            for _ in 0..READS {
                assert!(keyspace.get_at(key(0), &middle).expect("reads").is_some());
                assert!(keyspace.get_at(key(0), &oldest).expect("reads").is_none());
            }
        });
        costs.step("flush", count, || store.flush().expect("flushes"));
    });
}

/// A keyspace has a memtable and an entry in the manifest, so a run with 100,000 keyspaces would
/// take long and show no more.
#[test]
fn keyspaces() {
    try_with(&[10, 100, 1_000, 10_000], "", |costs, count| {
        let store = costs.store;
        let keyspaces: Vec<_> = costs.step("make", count, || {
            let one = |number: u64| store.open_keyspace(&key(number), None).expect("a keyspace");
            (0..count).map(one).collect()
        });
        costs.step("put into each", count, || {
            keyspaces.iter().for_each(|one| one.put("key", "value").expect("puts"));
        });
        costs.step("put into one", READS, || fill(store, READS));
        costs.step("flush", count, || store.flush().expect("flushes"));
        costs.step("put and flush", READS, || {
            for number in 0..READS {
                store.put(key(number), "value").expect("puts");
                store.flush().expect("flushes");
            }
        });
        costs.step("drop", count, || {
            let drop_one = |number| store.drop_keyspace(&key(number)).expect("drops");
            drop(keyspaces);
            (0..count).for_each(drop_one);
        });
    });
}

#[test]
fn entries_that_expire() {
    try_with(&COUNTS, "", |costs, count| {
        let store = costs.store;
        let keyspace = store.default_keyspace();
        costs.step("put", count, || {
            for number in 0..count {
                let ttl = Duration::from_secs(1_000 + number);
                keyspace.put_with_ttl(key(number), "value", ttl).expect("puts");
            }
        });
        reads(costs, ["get", "first", "last"], count);
        flush_and_compact(costs, count);
    });
}

fn values_apart(costs: &mut Costs, count: u64) {
    let store = costs.store;
    let write = |value: [u8; 200]| {
        (0..count).for_each(|number| store.put(key(number), value).expect("puts"));
        store.flush().expect("flushes");
    };
    costs.step("write", count, || write([1; 200]));
    costs.step("overwrite", count, || write([2; 200]));
    reads(costs, ["get", "first", "last"], count);
    costs.step("collect", count, || store.collect_values().expect("collects"));
    costs.step("delete", count, || {
        (0..count).for_each(|number| store.delete(key(number)).expect("deletes"));
    });
    flush_and_compact(costs, count);
}

/// A log of fewer values has nothing to collect.
#[test]
fn values_in_a_log() {
    let toml = "[values]\nplacement = \"vlog\"\nseparate_at = 100\nvlog_chunk_bytes = 65536";
    try_with(&[100_000, 300_000], toml, values_apart);
}

/// Many slots wait for the edit of a flush.
#[test]
fn values_in_a_log_first() {
    let toml = "write_buffer_bytes = 268435456\n[values]\nplacement = \"vlog\"\nseparate_at = 100\n\
                early = true\nslot_bytes = 16384\nvlog_chunk_bytes = 1048576";
    try_with(&[100_000, 300_000], toml, values_apart);
}

#[test]
fn values_in_groups() {
    let toml = "[values]\nplacement = \"hash-grouped\"\nseparate_at = 100\nslot_bytes = 65536";
    try_with(&COUNTS, toml, values_apart);
}

#[test]
fn range_deletes() {
    try_with(&COUNTS, "", |costs, count| {
        let store = costs.store;
        let keyspace = store.default_keyspace();
        fill(store, count);
        costs.step("delete", count, || {
            for number in 0..count {
                keyspace.delete_range(key(number)..key(number + 50)).expect("deletes");
            }
        });
        costs.step("put", count, || fill(store, count));
        // After enough reads, readers share a skyline over all range deletes.
        costs.step("many gets", count, || {
            (0..count).for_each(|number| drop(store.get(key(number)).expect("reads")));
        });
        reads(costs, ["get", "first", "last"], count);
        flush_and_compact(costs, count);
    });
}
