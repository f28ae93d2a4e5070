//! Which writes count as conflicts, wherever they are at the time of the commit.

use std::sync::Arc;

use runstone::seeded::{self, Bug, Waypoint};
use runstone::storage::MemoryStorage;
use runstone::{
    Batch, Keyspace, ReadOptions, Store, Transaction, TransactionOptions, ValuePlacement,
    WriteOptions,
};
use runstone_sim::found::panics;

use crate::{is_conflict_of, options, store};

fn begin(store: &Store) -> Transaction {
    store.begin(TransactionOptions::serializable()).expect("begins")
}

fn commit(transaction: Transaction) -> runstone::Result<()> {
    transaction.commit(WriteOptions::default())
}

/// Where the conflicting write is at the commit.
const PLACES: [fn(&Store); 3] =
    [|_| {}, |store| store.flush().expect("flushes"), |store| store.compact().expect("compacts")];

/// Each way to read or write a key, or a range with it, conflicts with each way to write it, in
/// memtables, in level 0 and below.
fn every_way_conflicts() {
    let touches: [fn(&mut Transaction, &Keyspace); 5] = [
        |one, keyspace| one.put(keyspace, "k", "own").expect("puts"),
        |one, keyspace| one.delete(keyspace, "k").expect("deletes"),
        |one, keyspace| drop(one.get(keyspace, "k").expect("reads")),
        |one, keyspace| one.delete_range(keyspace, "j".."l").expect("deletes"),
        |one, keyspace| {
            let options = ReadOptions::default().with_prefix(b"k");
            assert!(one.scan(keyspace, options).expect("scans").count() < 2);
        },
    ];
    let writes: [fn(&Keyspace); 3] = [
        |keyspace| keyspace.put("k", "other").expect("puts"),
        |keyspace| keyspace.delete("k").expect("deletes"),
        |keyspace| keyspace.delete_range("a".."z").expect("deletes"),
    ];
    for place in PLACES {
        for touch in touches {
            for write in writes {
                let store = store();
                let keyspace = store.default_keyspace();
                keyspace.put("k", "old").expect("puts");
                let mut one = begin(&store);
                touch(&mut one, keyspace);
                one.put(keyspace, "zz", "x").expect("puts");
                write(keyspace);
                place(&store);
                let outcome = commit(one);
                let is_named = |keyspace: &str, key: &[u8]| {
                    keyspace == "default" && (&b"j"[..]..&b"l"[..]).contains(&key)
                };
                assert!(
                    matches!(&outcome, Err(runstone::Error::Conflict { key, keyspace })
                        if is_named(keyspace, key)),
                    "{outcome:?}"
                );
                assert!(keyspace.get("zz").expect("reads").is_none(), "nothing was written");
            }
        }
    }
}

#[test]
fn every_write_conflicts_wherever_it_lies() {
    every_way_conflicts();
}

#[test]
fn range_deletes_that_are_not_checked_are_found() {
    assert!(panics(|| seeded::with(Bug::RangeDeletesNotChecked, every_way_conflicts)));
}

#[test]
fn tables_that_are_not_checked_are_found() {
    assert!(panics(|| seeded::with(Bug::TablesNotChecked, every_way_conflicts)));
}

/// Writes of neighbours, of the same keys in another keyspace, and earlier writes do not conflict.
#[test]
fn nothing_else_conflicts() {
    for place in PLACES {
        let store = store();
        let (keyspace, other) =
            (store.default_keyspace(), store.open_keyspace("other", None).expect("opens"));
        for key in ["a", "b", "c", "d", "e", "f"] {
            keyspace.put(key, "old").expect("puts");
        }
        let mut one = begin(&store);
        one.put(keyspace, "b", "own").expect("puts");
        assert!(one.get(keyspace, "d").expect("reads").is_some());
        let options = ReadOptions::default();
        let mut cursor = one.cursor(keyspace, options).expect("opens");
        // From "e" on the cursor reads no further than "f", and from there down no further than
        // "d".
        cursor.seek(b"e").expect("seeks");
        cursor.next().expect("steps");
        cursor.prev().expect("steps");
        cursor.prev().expect("steps");
        assert_eq!(cursor.key(), b"d");
        drop(cursor);
        for key in ["a", "c", "ba", "g"] {
            keyspace.put(key, "other").expect("puts");
        }
        keyspace.delete_range("bb".."d").expect("deletes");
        other.put("b", "other").expect("puts");
        place(&store);
        commit(one).expect("nothing came between");
        assert_eq!(keyspace.get("b").expect("reads").as_deref(), Some(&b"own"[..]));
    }
}

/// A leaked cursor never reports how far it moved, so everything that it could pass counts as read.
#[test]
fn a_leaked_cursor_conflicts() {
    let store = store();
    let keyspace = store.default_keyspace();
    keyspace.put("a", "old").expect("puts");
    let mut one = begin(&store);
    one.put(keyspace, "x", "own").expect("puts");
    let mut cursor = one.cursor(keyspace, ReadOptions::default()).expect("opens");
    cursor.seek(b"a").expect("seeks");
    std::mem::forget(cursor);
    keyspace.put("b", "other").expect("puts");
    assert!(is_conflict_of(&commit(one), "b"));
}

/// The same holds for a cursor that has turned around, in its new direction.
#[test]
fn a_leaked_cursor_that_turned_conflicts() {
    let store = store();
    let keyspace = store.default_keyspace();
    for key in ["b", "d", "m", "p"] {
        keyspace.put(key, "old").expect("puts");
    }
    for (is_up, other) in [(true, "c"), (false, "n")] {
        let mut one = begin(&store);
        one.put(keyspace, "x", "own").expect("puts");
        let mut cursor = one.cursor(keyspace, ReadOptions::default()).expect("opens");
        match is_up {
            true => cursor.seek(b"m").and_then(|()| cursor.prev()).and_then(|()| cursor.prev()),
            false => {
                cursor.seek_for_prev(b"d").and_then(|()| cursor.next()).and_then(|()| cursor.next())
            }
        }
        .expect("walks");
        std::mem::forget(cursor);
        keyspace.put(other, "other").expect("puts");
        assert!(is_conflict_of(&commit(one), other), "{other}");
    }
}

/// A write between the check and the lock conflicts, even if it is in a table by the time of the
/// lock.
#[test]
fn a_write_that_is_flushed_before_the_lock_conflicts() {
    let store = Arc::new(store());
    let keyspace = store.default_keyspace().clone();
    keyspace.put("k", "old").expect("puts");
    let mut one = begin(&store);
    one.put(&keyspace, "k", "own").expect("puts");
    keyspace.put("elsewhere", "x").expect("puts");
    let (other, between) = (Arc::clone(&store), keyspace.clone());
    seeded::step_in(Waypoint::TransactionChecked, move || {
        between.put("k", "other").expect("puts");
        other.flush().expect("flushes");
    });
    assert!(is_conflict_of(&commit(one), "k"));
    assert!(seeded::has_stepped_in());
}

/// Once, a cursor that sought a key beyond its bounds hid the other ranges of its transaction from
/// range deletes that were made between the check and the lock.
#[test]
fn a_seek_beyond_the_bounds_hides_no_conflict() {
    let store = store();
    let keyspace = store.default_keyspace().clone();
    keyspace.put("c6", "old").expect("puts");
    let mut one = begin(&store);
    assert_eq!(one.range(&keyspace, "a".."d").expect("scans").count(), 1);
    for (start, end) in [(None, Some("c")), (Some("m"), None)] {
        let bytes = |bound: Option<&'static str>| bound.map(str::as_bytes);
        let options = ReadOptions::default().with_bounds(bytes(start), bytes(end));
        let mut cursor = one.cursor(&keyspace, options).expect("opens");
        match end {
            Some(_) => cursor.seek("m").expect("seeks"),
            None => cursor.seek_for_prev("a").expect("seeks"),
        }
        assert!(!cursor.valid());
    }
    one.put(&keyspace, "x", "own").expect("puts");
    let between = keyspace.clone();
    seeded::step_in(Waypoint::TransactionChecked, move || {
        between.delete_range("c5".."c7").expect("deletes");
    });
    assert!(commit(one).is_err_and(|error| matches!(error, runstone::Error::Conflict { .. })));
    assert!(seeded::has_stepped_in());
}

/// A transaction that is too large for a log segment is checked like any other.
#[test]
fn a_large_transaction_conflicts() {
    let store = store();
    let keyspace = store.default_keyspace();
    let large = vec![7; 32 << 20];
    for is_late in [true, false] {
        let mut one = begin(&store);
        one.put(keyspace, "k", &large).expect("puts");
        if is_late {
            keyspace.put("k", "other").expect("puts");
        }
        assert_eq!(commit(one).is_ok(), !is_late);
        let found = keyspace.get("k").expect("reads").expect("it is there");
        assert_eq!(found.len(), if is_late { 5 } else { large.len() });
    }
}

/// A store whose values are separated, with one live value for a collection to move.
fn collected(move_it: impl FnOnce(&Store, &Keyspace)) -> runstone::Result<()> {
    let mut options = options();
    let own = options.keyspace.get_or_insert_default();
    own.write_buffer_bytes = 1 << 20;
    own.values = own.values.clone().placement(ValuePlacement::Vlog).separate_at(1);
    let store = Store::open_on(Arc::new(MemoryStorage::new()), options).expect("opens");
    let keyspace = store.default_keyspace();
    keyspace.put("k", vec![1; 1000]).expect("puts");
    for _ in 0..20 {
        let mut batch = Batch::new();
        for number in 0..200 {
            batch.put(keyspace, format!("garbage/{number}"), vec![2; 1000]).expect("puts");
        }
        store.write(&batch, WriteOptions::default()).expect("writes");
        store.flush().expect("flushes");
    }
    let mut one = begin(&store);
    assert!(one.get(keyspace, "k").expect("reads").is_some());
    let scan = one.scan(keyspace, ReadOptions::default().with_prefix(b"k")).expect("scans");
    assert_eq!(scan.count(), 1);
    one.put(keyspace, "k", "own").expect("puts");
    move_it(&store, keyspace);
    assert!(store.metrics().counters.value_pointers_written > 0, "the value was moved");
    commit(one)
}

/// A collection of values moves the value of a key. That does not count as a write: neither while
/// its pointer is in a memtable, nor when it is in a table, nor when compactions have dropped the
/// version that it moved.
#[test]
fn moved_values_do_not_conflict() {
    for place in PLACES {
        let outcome = collected(|store, _| {
            store.compact().expect("compacts");
            place(store);
        });
        outcome.expect("nobody wrote");
    }
    let bug = || collected(|store, _| store.compact().expect("compacts")).expect("nobody wrote");
    assert!(panics(|| seeded::with(Bug::RelocationsConflict, bug)));
}

/// A write before the collection conflicts, although the pointer hides it.
#[test]
fn a_write_below_a_moved_value_conflicts() {
    for place in PLACES {
        let outcome = collected(|store, keyspace| {
            keyspace.put("k", vec![3; 1000]).expect("puts");
            store.flush().expect("flushes");
            store.compact().expect("compacts");
            place(store);
        });
        assert!(is_conflict_of(&outcome, "k"), "{outcome:?}");
    }
}

/// Work begins again as long as others interfere, in a new transaction each time. Errors of the
/// work itself end it, and its writes are discarded.
#[test]
fn transact_begins_again() {
    let store = store();
    let keyspace = store.default_keyspace();
    let (optimistic, write) = (TransactionOptions::default(), WriteOptions::default());
    let mut attempts = 0;
    let made = store.transact(optimistic, write, |work| {
        attempts += 1;
        let seen = work.get(keyspace, "k")?.map_or(0, |value| value[0]);
        if attempts < 4 {
            keyspace.put("k", [attempts])?;
        }
        work.put(keyspace, "k", [seen + 10])?;
        Ok(seen)
    });
    assert_eq!((made.expect("commits"), attempts), (3, 4));
    assert_eq!(store.get("k").expect("reads").as_deref(), Some(&[13][..]));

    let mut attempts = 0;
    let outcome = store.transact(optimistic, write, |work| {
        attempts += 1;
        keyspace.put("k", "faster")?;
        work.put(keyspace, "k", "late")
    });
    assert!(is_conflict_of(&outcome, "k"));
    assert_eq!(attempts, 100);

    let outcome = store.transact(optimistic, write, |work| {
        work.put(keyspace, "k", "gone")?;
        work.put(keyspace, [0; 70_000], "the key is too long")
    });
    assert!(outcome.expect_err("refused").is_invalid());
    assert_eq!(store.get("k").expect("reads").as_deref(), Some(&b"faster"[..]));
}
