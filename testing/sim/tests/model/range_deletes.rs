//! Range deletes: which entries they hide, for whom, and when they and the hidden entries may be
//! dropped. Each rule has a test that passes without a bug, and that finds the bug which the rule
//! prevents.

use std::ops::Bound;
use std::sync::Arc;

use runstone::seeded::Bug;
use runstone::storage::MemoryStorage;
use runstone::unstable;
use runstone::{
    Background, Batch, Error, GcPointers, Keyspace, KeyspaceOptions, Options, ReadOptions, Store,
    TransactionOptions, ValueOptions, ValuePlacement, WriteOptions,
};
use runstone_sim::found::holds_and_finds;

fn options(change: impl FnOnce(&mut KeyspaceOptions)) -> Options {
    let mut keyspace = KeyspaceOptions::default().write_buffer_bytes(1 << 20);
    let shape = unstable::numbers_mut(&mut keyspace);
    shape.base_bytes = 64 << 10;
    shape.table_bytes = 16 << 10;
    change(&mut keyspace);
    Options::default().background(Background::Manual).keyspace(keyspace)
}

fn open(change: impl FnOnce(&mut KeyspaceOptions)) -> Store {
    Store::open_on(Arc::new(MemoryStorage::new()), options(change)).expect("opens")
}

fn key(number: u64) -> Vec<u8> {
    format!("key{number:06}").into_bytes()
}

fn fill(store: &Store, numbers: std::ops::Range<u64>) {
    numbers.for_each(|number| store.put(key(number), [number as u8; 100]).expect("puts"));
}

fn delete(store: &Store, from: u64, to: u64) {
    store.default_keyspace().delete_range(key(from)..key(to)).expect("deletes");
}

/// The number of keys, by scans in both directions and by gets.
fn count(keyspace: &Keyspace) -> usize {
    let all: Vec<_> = keyspace.iter().expect("opens").map(|item| item.expect("reads").0).collect();
    let back = keyspace.iter().expect("opens").rev().count();
    assert_eq!(all.len(), back, "both directions show the same");
    assert!(all.iter().all(|key| keyspace.get(key).expect("reads").is_some()), "and so do gets");
    all.len()
}

#[test]
fn bounds_are_those_of_a_range() {
    let left = |delete: &dyn Fn(&Keyspace) -> Result<(), Error>| {
        let store = open(|_| ());
        ["", "a", "b", "c"].iter().for_each(|key| store.put(key, "v").expect("puts"));
        delete(store.default_keyspace()).expect("deletes");
        let keys = store.default_keyspace().iter().expect("opens");
        let keys = keys.map(|item| String::from_utf8(item.expect("reads").0).expect("text"));
        keys.collect::<Vec<_>>().join(",")
    };
    assert_eq!(left(&|all| all.delete_range("a".."c")), ",c");
    assert_eq!(left(&|all| all.delete_range("a"..="b")), ",c");
    assert_eq!(left(&|all| all.delete_range((Bound::Excluded("a"), Bound::Unbounded))), ",a");
    assert_eq!(left(&|all| all.delete_range(.."b")), "b,c");
    assert_eq!(left(&Keyspace::clear), "");
    assert_eq!(left(&|all| all.delete_range("b".."b")), ",a,b,c", "an empty range");
    let refused = open(|_| ()).default_keyspace().delete_range("c".."a").expect_err("inverted");
    assert!(refused.to_string().contains("\"c\" to \"a\" ends before it starts"), "{refused}");
}

/// Every call with a range refuses a range that ends before it starts, instead of finding nothing
/// in it. An empty range is not refused.
#[test]
fn inverted_ranges_are_refused_everywhere() {
    let store = open(|_| ());
    let all = store.default_keyspace();
    ["a", "b", "c"].iter().for_each(|key| store.put(key, "v").expect("puts"));
    let transaction = store.begin(TransactionOptions::default()).expect("begins");
    let read = |from: &'static str, to: &'static str| {
        let ranged = || ReadOptions::default().with_range(from..to);
        let bounded = ReadOptions::default().with_bounds(Some(from.as_ref()), Some(to.as_ref()));
        [
            ("a cursor", all.cursor(ranged()).map(drop)),
            ("a cursor by bounds", all.cursor(bounded).map(drop)),
            ("a scan", all.scan(ranged()).map(drop)),
            ("a range", all.range(from..to).map(drop)),
            ("an estimate", all.estimate(from..to).map(drop)),
            ("a cursor of a transaction", transaction.cursor(all, ranged()).map(drop)),
            ("a scan of a transaction", transaction.scan(all, ranged()).map(drop)),
            ("a compaction", all.compact_range(from..to)),
            ("a range delete", all.delete_range(from..to)),
        ]
    };
    for (what, outcome) in read("c", "a") {
        let error = outcome.expect_err(what).to_string();
        assert!(error.contains("\"c\" to \"a\" ends before it starts"), "{what}: {error}");
    }
    for (what, outcome) in read("b", "b") {
        outcome.expect(what);
    }
    let between = (Bound::Excluded("a"), Bound::Excluded("c"));
    let inside = all.scan(ReadOptions::default().with_range(between)).expect("scans");
    assert_eq!(inside.count(), 1);
    assert_eq!(all.prefix("b").expect("scans").count(), 1);
}

/// In a batch, a range delete deletes earlier writes, and no later ones.
#[test]
fn a_batch_applies_in_order() {
    holds_and_finds(Bug::RangeDeletesHideNewer, || {
        let store = open(|_| ());
        let keyspace = store.default_keyspace();
        store.put("a1", "old").expect("puts");
        let mut batch = Batch::new();
        batch.put(keyspace, "a2", "before").expect("fits");
        batch.delete_range(keyspace, "a".."b").expect("fits");
        batch.put(keyspace, "a3", "after").expect("fits");
        store.write(&batch, WriteOptions::default()).expect("writes");
        for work in [|_: &Store| Ok(()), Store::flush, Store::compact] {
            work(&store).expect("works");
            let values = keyspace.multi_get(&["a1", "a2", "a3"]).expect("reads");
            let found: Vec<bool> = values.iter().map(Option::is_some).collect();
            assert_eq!(found, [false, false, true]);
            assert_eq!(count(keyspace), 1);
        }
    });
}

/// A batch that does not fit a log segment gets its sequence numbers after it was inserted. Its
/// range deletes act by those numbers.
#[test]
fn a_large_batch_deletes_ranges() {
    let store = open(|_| ());
    let keyspace = store.default_keyspace();
    fill(&store, 0..100);
    let mut batch = Batch::new();
    batch.delete_range(keyspace, key(10)..key(90)).expect("fits");
    batch.put(keyspace, key(50), vec![1; 20 << 20]).expect("fits");
    store.write(&batch, WriteOptions::default()).expect("writes");
    assert_eq!(count(keyspace), 21);
    store.flush().expect("flushes");
    assert_eq!(count(keyspace), 21);
}

/// Snapshots from before a range delete show the entries that it hides, even after everything was
/// compacted.
#[test]
fn older_snapshots_see_what_was_deleted() {
    holds_and_finds(Bug::RangeDeletesForAllSnapshots, || {
        let store = open(|_| ());
        let keyspace = store.default_keyspace();
        fill(&store, 0..50);
        let before = store.snapshot();
        delete(&store, 10, 20);
        let between = store.snapshot();
        fill(&store, 12..14);
        delete(&store, 5, 45);
        let shown = |snapshot| {
            let mut cursor = keyspace.cursor(ReadOptions::default().at(snapshot)).expect("opens");
            cursor.seek_to_first().expect("seeks");
            let mut count = 0;
            while cursor.valid() {
                assert!(keyspace.get_at(cursor.key(), snapshot).expect("reads").is_some());
                count += 1;
                cursor.next().expect("steps");
            }
            count
        };
        for _ in 0..3 {
            assert_eq!((shown(&before), shown(&between), count(keyspace)), (50, 40, 10));
            store.compact().expect("compacts");
        }
    });
}

/// A range tombstone must stay while a table in any level contains entries that it hides. That its
/// own range is deleted is no reason to drop it, because the tombstone itself deletes the range.
#[test]
fn a_range_tombstone_outlives_what_it_hides() {
    let check = || {
        let store = open(|_| ());
        fill(&store, 0..2000);
        store.compact().expect("compacts");
        delete(&store, 500, 1500);
        // Compacts the tables with the first keys of the range, but not those after them.
        store.put(key(500), "new").expect("puts");
        store.flush().expect("flushes");
        store.default_keyspace().compact_range(key(499)..key(501)).expect("compacts");
        assert_eq!(count(store.default_keyspace()), 1001);
    };
    holds_and_finds(Bug::RangeTombstonesDroppedEarly, check);
    holds_and_finds(Bug::RangeTombstonesHideThemselves, check);
}

/// Once, a compaction dropped the last range tombstone of a table if a newer table had 64 of them
/// or more. The open store still knew the tombstone, but a reopened store did not.
#[test]
fn a_range_tombstone_outlives_many_newer_ones() {
    let storage = MemoryStorage::new();
    let open = || Store::open_on(Arc::new(storage.clone()), options(|_| ())).expect("opens");
    let store = open();
    fill(&store, 0..2000);
    store.compact().expect("compacts");
    delete(&store, 500, 1500);
    store.put(key(500), "new").expect("puts");
    store.flush().expect("flushes");
    let small = |number| [format!("a{number:03}"), format!("a{number:03}x")];
    for [from, to] in (0..100).map(small) {
        store.default_keyspace().delete_range(from..to).expect("deletes");
    }
    // Both tables have the key, so they are compacted together.
    store.put(key(500), "new").expect("puts");
    store.flush().expect("flushes");
    store.default_keyspace().compact_range(key(499)..key(501)).expect("compacts");
    assert_eq!(count(store.default_keyspace()), 1001);
    store.close().expect("closes");
    assert_eq!(count(open().default_keyspace()), 1001);
}

/// A newer version of the first key is no reason to drop the range tombstone stored there.
#[test]
fn a_put_of_its_first_key_leaves_a_range_tombstone() {
    holds_and_finds(Bug::RangeTombstonesShadowed, || {
        let store = open(|_| ());
        fill(&store, 0..20);
        store.flush().expect("flushes");
        delete(&store, 5, 15);
        store.put(key(5), "new").expect("puts");
        store.flush().expect("flushes");
        assert_eq!(count(store.default_keyspace()), 11);
    });
}

/// A compaction that drops a range tombstone also drops the entries that it hides, even in blocks
/// that no other input overlaps.
#[test]
fn blocks_with_hidden_entries_are_not_copied() {
    holds_and_finds(Bug::CoveredBlocksCopied, || {
        let store = open(|_| ());
        fill(&store, 0..3000);
        store.compact().expect("compacts");
        delete(&store, 100, 2900);
        store.compact().expect("compacts");
        assert_eq!(count(store.default_keyspace()), 200);
        let shape = unstable::shape(store.default_keyspace());
        assert_eq!(shape.tables().map(|(_, table)| table.entries).sum::<u64>(), 200);
    });
}

/// Tables that a range delete covers are dropped without being read, once no reader sees them.
#[test]
fn covered_tables_leave_unread() {
    holds_and_finds(Bug::CoveredTablesDroppedUnderSnapshots, || {
        let store = open(|_| ());
        fill(&store, 0..30_000);
        store.compact().expect("compacts");
        let keyspace = store.default_keyspace();
        let before = store.snapshot();
        let tables = || unstable::shape(keyspace).tables().count();
        let all = tables();
        delete(&store, 0, 29_990);
        store.flush().expect("flushes");
        store.wait_idle().expect("waits");
        assert!(keyspace.get_at(key(1500), &before).expect("reads").is_some(), "P5");
        drop(before);
        let reads = || store.metrics().counters.compaction_bytes_read;
        let read = reads();
        store.put("zzz", "stirs").expect("puts");
        store.flush().expect("flushes");
        store.wait_idle().expect("waits");
        assert!(all > 3 && tables() <= 3, "{} of {all} tables are left", tables());
        assert!(reads() - read < 64 << 10, "{} bytes were read", reads() - read);
        assert_eq!(count(keyspace), 11);
    });
}

/// Walks jump over a deleted range at once, in both directions, wherever its entries are.
#[test]
fn walks_jump_over_a_deleted_range() {
    for is_flushed in [false, true] {
        let store = open(|_| ());
        fill(&store, 0..20_000);
        if is_flushed {
            store.compact().expect("compacts");
        }
        delete(&store, 100, 19_900);
        let passed = || store.metrics().counters.hidden_passed;
        let before = passed();
        assert_eq!(count(store.default_keyspace()), 200);
        assert!(passed() - before < 50, "{} hidden entries were passed", passed() - before);
    }
}

/// A collection that writes pointers trusts the group, which does not know of range deletes.
#[test]
fn a_collection_does_not_bring_a_deleted_key_back() {
    let check = |cold_stream: bool| {
        let store = open(|keyspace| {
            keyspace.values = ValueOptions::default()
                .placement(ValuePlacement::HashGrouped)
                .gc_pointers(GcPointers::Writeback)
                .cold_stream(cold_stream)
                .separate_at(16)
                .groups(1)
                .slot_bytes(4096);
        });
        fill(&store, 0..1000);
        store.flush().expect("flushes");
        fill(&store, 500..1000);
        store.flush().expect("flushes");
        delete(&store, 0, 600);
        store.collect_values().expect("collects");
        assert_eq!(count(store.default_keyspace()), 400);
        store.compact().expect("compacts");
        store.collect_values().expect("collects");
        assert_eq!(count(store.default_keyspace()), 400);
    };
    holds_and_finds(Bug::RelocationsIgnoreRangeDeletes, || check(false));
    holds_and_finds(Bug::RelocationsIgnoreRangeDeletes, || check(true));
}

/// A collection of a log moves values that were written after a range delete, and none that the
/// range delete hides.
#[test]
fn a_collection_of_a_log_knows_range_deletes() {
    let check = || {
        let store = open(|keyspace| {
            keyspace.values.placement = ValuePlacement::Vlog;
            (keyspace.values.separate_at, keyspace.values.slot_bytes) = (16, 4096);
        });
        fill(&store, 0..1000);
        store.flush().expect("flushes");
        delete(&store, 200, 1000);
        // The replaced values are garbage, so the log is collected.
        fill(&store, 900..1000);
        store.flush().expect("flushes");
        let moved = || store.metrics().counters.value_gc_bytes_written;
        let before = moved();
        store.collect_values().expect("collects");
        let moved = moved() - before;
        assert!((1..60_000).contains(&moved), "{moved} bytes are moved of 300 live values");
        assert_eq!(count(store.default_keyspace()), 300);
        store.compact().expect("compacts");
        assert_eq!(count(store.default_keyspace()), 300);
    };
    holds_and_finds(Bug::HiddenValuesLive, check);
    holds_and_finds(Bug::ValuesUnderRangesDead, check);
}

/// Deleting everything and compacting frees the space, under every placement.
#[test]
fn space_comes_back() {
    for placement in [ValuePlacement::Inline, ValuePlacement::HashGrouped, ValuePlacement::Vlog] {
        let store = open(|keyspace| {
            keyspace.values.placement = placement;
            keyspace.values.separate_at = 16;
            (keyspace.values.groups, keyspace.values.slot_bytes) = (2, 4096);
        });
        fill(&store, 0..20_000);
        store.flush().expect("flushes");
        let held = |store: &Store| {
            let keyspace = store.default_keyspace();
            let used: u64 = keyspace.value_usage().iter().map(|usage| usage.used_bytes()).sum();
            unstable::shape(keyspace).bytes() + used
        };
        let before = held(&store);
        store.default_keyspace().clear().expect("clears");
        store.compact().expect("compacts");
        let after = held(&store);
        assert!(after * 100 <= before, "{placement:?}: {after} of {before} bytes are left");
        assert_eq!(count(store.default_keyspace()), 0);
    }
}

/// Once, a range delete refused an excluded start of the greatest length, because the smallest key
/// after it was assumed to be one byte longer, which no key may be. Reads accepted it.
#[test]
fn ranges_begin_behind_the_longest_key() {
    let store = open(|_| ());
    let keyspace = store.default_keyspace();
    let longest = |last: u8| [&vec![b'm'; (1 << 16) - 2][..], &[last]].concat();
    let keys = [longest(b'a'), longest(b'b'), longest(0xff), b"n".to_vec()];
    let after = |key: &Vec<u8>| (Bound::Excluded(key.clone()), Bound::<Vec<u8>>::Unbounded);
    for (at, key) in keys.iter().enumerate().take(3) {
        keys.iter().for_each(|key| keyspace.put(key, "v").expect("writes"));
        let seen = keyspace.range(after(key)).expect("opens").count();
        keyspace.delete_range(after(key)).expect("deletes");
        assert_eq!(count(keyspace), at + 1);
        assert_eq!(seen, keys.len() - at - 1);
        keyspace.compact_range(after(key)).expect("compacts");
        keyspace.approximate_count(after(key)).expect("counts");
    }
    let last = vec![0xff; (1 << 16) - 1];
    keyspace.put(&last, "v").expect("writes");
    keyspace.delete_range(after(&last)).expect("nothing is behind it");
    assert!(keyspace.get(&last).expect("reads").is_some());
    let too_long = vec![b'm'; 1 << 16];
    keyspace.delete_range(after(&too_long)).expect_err("no key is as long");
}
