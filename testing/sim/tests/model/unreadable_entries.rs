//! Entries whose value cannot be made or read, among other entries. Walks give the error in place
//! of the entry and continue, in both directions, and also in transactions. No error of a walk
//! looks like the end of the walk.

use std::sync::Arc;

use runstone::storage::{Category, MemoryStorage, Storage};
use runstone::{
    Background, Compression, Error, Keyspace, KeyspaceOptions, MergeOperator, Options, ReadOptions,
    Store, TransactionOptions, ValuePlacement, WriteOptions,
};
use runstone_fault_storage::{Fault, FaultKind, SimStorage};

/// Concatenates, and fails at operands that begin with `!`.
#[derive(Debug)]
struct Picky;

impl MergeOperator for Picky {
    fn name(&self) -> &str {
        "picky"
    }

    fn full_merge(
        &self,
        _key: &[u8],
        base: Option<&[u8]>,
        operands: &[&[u8]],
    ) -> Result<Vec<u8>, String> {
        match operands.iter().any(|operand| operand.starts_with(b"!")) {
            true => Err("an operand begins with !".into()),
            false => Ok([&[base.unwrap_or_default()], operands].concat().concat()),
        }
    }
}

fn options(change: impl FnOnce(&mut KeyspaceOptions)) -> Options {
    let mut keyspace = KeyspaceOptions::default().merge_operator("picky");
    change(&mut keyspace);
    Options::default()
        .background(Background::Manual)
        .merge_operators(vec![Arc::new(Picky)])
        .keyspace(keyspace)
}

fn open(storage: &(impl Storage + Clone + 'static), options: &Options) -> Store {
    Store::open_on(Arc::new(storage.clone()), options.clone()).expect("opens")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("text")
}

type Item = Result<(Vec<u8>, runstone::Value), Error>;

/// The keys of items, and `!` for each error.
fn shown(items: impl Iterator<Item = Item>) -> String {
    items.map(|item| item.map_or("!".to_string(), |(key, _)| text(&key))).collect()
}

/// a, b, d and f have values; the values of c and e cannot be made.
fn fill(keyspace: &Keyspace) {
    for key in ["a", "b", "c", "d", "e", "f"] {
        keyspace.put(key, "0").expect("writes");
    }
    keyspace.merge("c", "!").expect("merges");
    keyspace.merge("d", "1").expect("merges");
    keyspace.merge("e", "!").expect("merges");
}

/// Once, one operand that its operator refused ended every scan, count and export at that entry.
#[test]
fn walks_go_on_behind_a_value_that_cannot_be_made() {
    for (is_flushed, is_apart) in [(false, false), (true, false), (true, true)] {
        let options = options(|keyspace| {
            if is_apart {
                keyspace.values.placement = ValuePlacement::HashGrouped;
                keyspace.values.separate_at = 1;
            }
        });
        let store = open(&MemoryStorage::new(), &options);
        let keyspace = store.default_keyspace();
        fill(keyspace);
        if is_flushed {
            store.compact().expect("compacts");
        }
        assert_eq!(shown(keyspace.iter().expect("opens")), "ab!d!f");
        assert_eq!(shown(keyspace.iter().expect("opens").rev()), "f!d!ba");
        let mut both = keyspace.iter().expect("opens");
        let mut ends = String::new();
        for _ in 0..4 {
            ends += &shown(both.next().into_iter());
            ends += &shown(both.next_back().into_iter());
        }
        assert_eq!(ends, "afb!!d", "each key once, from both ends");
        assert!(both.next().is_none() && both.next_back().is_none());
        assert_eq!(shown(keyspace.range("c".."f").expect("opens")), "!d!");
        let mut keys = keyspace.cursor(ReadOptions::default().keys_only()).expect("opens");
        keys.seek_to_first().expect("needs no value");
        for _ in 0..6 {
            assert!(keys.valid());
            keys.next().expect("needs no value");
        }
        assert!(!keys.valid());
    }
}

/// Once, the cursor turned invalid at an entry whose value could not be made, and the next step
/// reported that there were no more entries.
#[test]
fn a_cursor_tells_the_key_and_goes_on() {
    let store = open(&MemoryStorage::new(), &options(|_| ()));
    fill(store.default_keyspace());
    let mut cursor = store.default_keyspace().cursor(ReadOptions::default()).expect("opens");
    let refused = |outcome: Result<(), Error>| {
        assert!(matches!(outcome, Err(Error::MergeFailed { .. })), "{outcome:?}");
    };
    cursor.seek("b").expect("seeks");
    refused(cursor.next());
    assert_eq!((cursor.valid(), cursor.key(), cursor.value()), (false, &b"c"[..], &b""[..]));
    cursor.next().expect("goes on");
    assert_eq!((cursor.key(), cursor.value()), (&b"d"[..], &b"01"[..]));
    refused(cursor.prev());
    assert_eq!(cursor.key(), b"c");
    cursor.prev().expect("goes on");
    assert_eq!(cursor.key(), b"b");
    refused(cursor.seek("c"));
    cursor.prev().expect("turns around");
    assert_eq!(cursor.key(), b"b");
    refused(cursor.seek_for_prev("e"));
    cursor.next().expect("turns around");
    assert_eq!((cursor.key(), cursor.valid()), (&b"f"[..], true));
    cursor.next().expect("the end");
    assert!(!cursor.valid() && cursor.key().is_empty());
    cursor.next().expect("still the end");
}

/// Writes of a transaction hide entries that cannot be read.
#[test]
fn transactions_walk_on_too() {
    let store = open(&MemoryStorage::new(), &options(|_| ()));
    let keyspace = store.default_keyspace();
    fill(keyspace);
    let mut transaction = store.begin(TransactionOptions::default()).expect("begins");
    let scan =
        |transaction: &runstone::Transaction| shown(transaction.iter(keyspace).expect("opens"));
    assert_eq!(scan(&transaction), "ab!d!f");
    transaction.put(keyspace, "c", "own").expect("writes");
    assert_eq!(scan(&transaction), "abcd!f");
    assert_eq!(shown(transaction.iter(keyspace).expect("opens").rev()), "f!dcba");
    transaction.delete(keyspace, "e").expect("writes");
    transaction.put(keyspace, "cc", "own").expect("writes");
    assert_eq!(scan(&transaction), "abcccdf");
    let mut cursor = transaction.cursor(keyspace, ReadOptions::default()).expect("opens");
    cursor.seek("c").expect("an own write");
    cursor.next().expect("goes on");
    cursor.next().expect("goes on");
    assert_eq!(cursor.key(), b"d");
    drop(cursor);
    transaction.rollback();
    let transaction = store.begin(TransactionOptions::default()).expect("begins");
    let mut cursor = transaction.cursor(keyspace, ReadOptions::default()).expect("opens");
    cursor.seek("c").expect_err("no value");
    assert_eq!((cursor.valid(), cursor.key()), (false, &b"c"[..]));
    cursor.prev().expect("turns around");
    assert_eq!(cursor.key(), b"b");
    cursor.next().expect_err("no value");
    cursor.next().expect("goes on");
    assert_eq!(cursor.key(), b"d");
}

/// Once, after a failed read a cursor was on no entry, and its next step reported the
/// end of the walk.
#[test]
fn an_error_does_not_look_like_an_end() {
    let disk = SimStorage::new(1);
    let small = options(|keyspace| keyspace.compression = vec![Compression::None]);
    let store = open(&disk, &small);
    for number in 0..2_000u32 {
        store.put(number.to_be_bytes(), [7; 500]).expect("writes");
    }
    store.close().expect("closes");
    let store = open(&disk, &small);
    let keyspace = store.default_keyspace();
    let options = || ReadOptions::default().fill_cache(false);
    for is_upward in [true, false] {
        let mut cursor = keyspace.cursor(options()).expect("opens");
        let transaction = store.begin(TransactionOptions::default()).expect("begins");
        let mut inside = transaction.cursor(keyspace, options()).expect("opens");
        match is_upward {
            true => (cursor.seek_to_first(), inside.seek_to_first()),
            false => (cursor.seek_to_last(), inside.seek_to_last()),
        }
        .0
        .expect("reads");
        let (at_op, kind) = (disk.reads(), FaultKind::EioOnRead);
        disk.inject(Fault { at_op, kind, sticky: true, category: Some(Category::Table) });
        let mut step = || if is_upward { cursor.next() } else { cursor.prev() };
        let mut step_inside = || if is_upward { inside.next() } else { inside.prev() };
        assert!((0..5_000).any(|_| step().is_err()), "{is_upward}");
        assert!((0..5_000).any(|_| step_inside().is_err()), "{is_upward}");
        for _ in 0..3 {
            step().expect_err("no end");
            step_inside().expect_err("no end");
        }
        disk.clear_faults();
        assert!(!cursor.valid() && !inside.valid());
        cursor.seek(1_000u32.to_be_bytes()).expect("a seek begins anew");
        inside.seek(1_000u32.to_be_bytes()).expect("a seek begins anew");
        assert!(cursor.valid() && inside.valid());
        cursor.next().expect("steps");
    }
    let scan = store.default_keyspace().iter().expect("opens");
    assert_eq!(scan.count(), 2_000);
    store.write(&runstone::Batch::new(), WriteOptions::default()).expect("goes on");
}

/// A walk over separated values reads ahead. Once, an error during the read-ahead was reported in
/// place of entries that had been read before it, and these entries were never shown.
#[test]
fn what_lies_before_a_damaged_block_is_shown() {
    let disk = SimStorage::new(1);
    let apart = options(|keyspace| {
        keyspace.compression = vec![Compression::None];
        keyspace.block_bytes = 256;
        keyspace.values.placement = ValuePlacement::HashGrouped;
        keyspace.values.separate_at = 16;
    });
    let store = open(&disk, &apart);
    (0..2_000u32).for_each(|number| store.put(number.to_be_bytes(), [7; 50]).expect("writes"));
    store.close().expect("closes");
    let names = disk.list().expect("lists").into_iter().map(|file| file.name);
    let table = names.filter(|name| name.ends_with(".table")).max().expect("there is one");
    let mut bytes = disk.read_all(&table).expect("is there");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    disk.overwrite(&table, &bytes).expect("is there");
    let store = open(&disk, &apart);
    let count = |options: ReadOptions| {
        let mut cursor = store.default_keyspace().cursor(options).expect("opens");
        let mut moved = cursor.seek_to_first();
        let mut count = 0;
        while moved.is_ok() {
            assert!(cursor.valid(), "the damage comes before the end");
            count += 1;
            moved = cursor.next();
        }
        cursor.next().expect_err("no end");
        count
    };
    let keys = count(ReadOptions::default().keys_only());
    assert!((100..1_900).contains(&keys), "{keys}");
    assert_eq!(count(ReadOptions::default()), keys);
}

/// Once, a walk in a transaction that turned around at a write of its own, and failed there, took
/// the store below for an empty one: it showed only the transaction's own writes, and then the end.
#[test]
fn a_turn_that_fails_is_no_end() {
    let disk = SimStorage::new(1);
    let plain = options(|keyspace| keyspace.compression = vec![Compression::None]);
    let store = open(&disk, &plain);
    (0..2_000u32).for_each(|number| store.put(number.to_be_bytes(), [7; 500]).expect("writes"));
    store.close().expect("closes");
    let store = open(&disk, &plain);
    let keyspace = store.default_keyspace();
    let mut transaction = store.begin(TransactionOptions::default()).expect("begins");
    for number in [500u32, 1_000, 1_500] {
        transaction.put(keyspace, number.to_be_bytes(), "own").expect("writes");
    }
    let options = || ReadOptions::default().fill_cache(false);
    for is_upward in [true, false] {
        let mut cursor = transaction.cursor(keyspace, options()).expect("opens");
        let number = 1_000u32.to_be_bytes();
        match is_upward {
            true => cursor.seek_for_prev(number),
            false => cursor.seek(number),
        }
        .expect("an own write");
        assert_eq!(cursor.value(), b"own");
        let (at_op, kind) = (disk.reads(), FaultKind::EioOnRead);
        disk.inject(Fault { at_op, kind, sticky: true, category: Some(Category::Table) });
        for _ in 0..3 {
            let outcome = if is_upward { cursor.next() } else { cursor.prev() };
            outcome.expect_err("no end");
            assert!(!cursor.valid());
        }
        disk.clear_faults();
        cursor.seek(number).expect("a seek begins anew");
        cursor.next().expect("steps");
        assert_eq!(cursor.key(), 1_001u32.to_be_bytes());
    }
}
