//! Changes of one key that depend on its value, from many threads.

use std::thread;

use runstone::{Error, Keyspace, TransactionOptions, WriteOptions};

const THREADS: u64 = 4;
const TURNS: u64 = 500;

fn number(value: Option<&[u8]>) -> u64 {
    value.map_or(0, |value| u64::from_be_bytes(value.try_into().expect("a number")))
}

fn at_once(work: impl Fn(u64) + Sync) {
    let work = &work;
    thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|id| scope.spawn(move || work(id))).collect();
        threads.into_iter().for_each(|thread| thread.join().expect("a thread"));
    });
}

/// Adds one by a swap that is repeated until it succeeds.
fn add_one(keyspace: &Keyspace) {
    let mut old = keyspace.get("count").expect("reads");
    loop {
        let new = (number(old.as_deref()) + 1).to_be_bytes();
        let outcome = keyspace.compare_and_swap("count", old.as_deref(), Some(&new));
        match outcome.expect("swaps") {
            Ok(()) => return,
            Err(current) => old = current,
        }
    }
}

#[test]
fn no_increment_is_lost() {
    let store = crate::store();
    let keyspace = store.default_keyspace();
    at_once(|id| {
        for _ in 0..TURNS {
            match id % 2 {
                0 => add_one(keyspace),
                _ => {
                    let add = |old: Option<&[u8]>| Some((number(old) + 1).to_be_bytes().to_vec());
                    keyspace.fetch_update("count", add).expect("updates");
                }
            }
        }
    });
    let count = keyspace.get("count").expect("reads");
    assert_eq!(number(count.as_deref()), THREADS * TURNS);
}

#[test]
fn one_thread_puts_what_is_absent() {
    let store = crate::store();
    let keyspace = store.default_keyspace();
    let won = std::sync::Mutex::new(Vec::new());
    at_once(|id| {
        for turn in 0..TURNS {
            let found = keyspace.put_if_absent(turn.to_be_bytes(), id.to_be_bytes());
            if found.expect("puts").is_none() {
                won.lock().expect("no panic").push((turn, id));
            }
        }
    });
    let won = won.into_inner().expect("no panic");
    assert_eq!(won.len() as u64, TURNS, "one winner each");
    for (turn, id) in won {
        let value = keyspace.get(turn.to_be_bytes()).expect("reads");
        assert_eq!(number(value.as_deref()), id);
    }
}

#[test]
fn a_swap_can_make_and_delete() {
    let store = crate::store();
    let keyspace = store.default_keyspace();
    assert!(keyspace.compare_and_swap("k", None, Some(b"1")).expect("swaps").is_ok());
    assert!(keyspace.compare_and_swap("k", None, Some(b"2")).expect("swaps").is_err());
    assert!(keyspace.compare_and_swap("k", Some(b"1"), None).expect("swaps").is_ok());
    assert!(keyspace.get("k").expect("reads").is_none());
    assert!(keyspace.fetch_update("k", |old| old.map(<[u8]>::to_vec)).expect("updates").is_none());
    assert!(keyspace.get("k").expect("reads").is_none(), "none of none");
}

/// Once, a conditional put began again for ever, because a lock held the key although no write had
/// succeeded.
#[test]
fn a_locked_key_is_waited_for_but_not_for_ever() {
    let store = crate::store();
    let keyspace = store.default_keyspace();
    let mut holder = store.begin(TransactionOptions::pessimistic()).expect("begins");
    holder.put(keyspace, "count", "1").expect("locks");
    let refused = keyspace.put_if_absent("count", "2").expect_err("it is locked");
    assert!(matches!(refused, Error::LockTimeout { .. }), "{refused}");
    assert!(keyspace.put_if_absent("other", "2").expect("is free").is_none());
    thread::scope(|scope| {
        let waiter = scope.spawn(|| keyspace.put_if_absent("count", "2").expect("waits"));
        holder.commit(WriteOptions::default()).expect("commits");
        assert_eq!(waiter.join().expect("a thread").as_deref(), Some(&b"1"[..]));
    });
}
