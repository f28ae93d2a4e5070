//! Locks of pessimistic transactions: who waits, for how long, and who is refused.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use runstone::seeded::{self, Bug};
use runstone::{Error, Keyspace, Store, Transaction, TransactionOptions, WriteOptions};

use runstone_sim::found::holds_and_finds;

use crate::{is_conflict_of, store};

/// So long that only a test that fails waits to its end.
const LONG: Duration = Duration::from_secs(30);

fn begin(store: &Store, lock_timeout: Duration) -> Transaction {
    let options = TransactionOptions::pessimistic().lock_timeout(lock_timeout);
    store.begin(options).expect("begins")
}

fn lock(transaction: &mut Transaction, keyspace: &Keyspace, key: &str) -> Result<(), Error> {
    transaction.get_for_update(keyspace, key).map(drop)
}

/// A lock is free after a commit, a rollback and a drop, and not before.
#[test]
fn locks_end_with_their_transaction() {
    let store = store();
    let keyspace = store.default_keyspace();
    let ends: [fn(Transaction); 3] =
        [|one| one.commit(WriteOptions::default()).expect("commits"), Transaction::rollback, drop];
    for end in ends {
        let (mut one, mut two) = (begin(&store, LONG), begin(&store, Duration::ZERO));
        one.put(keyspace, "a", "1").expect("locks");
        one.delete(keyspace, "b").expect("locks");
        one.set_savepoint();
        lock(&mut one, keyspace, "c").expect("locks");
        one.rollback_to_savepoint().expect("there is one");
        for key in ["a", "b", "c"] {
            let refused = lock(&mut two, keyspace, key).expect_err("it is locked");
            assert!(
                matches!(refused, Error::LockTimeout { holder, .. } if Some(holder) == one.id())
            );
        }
        end(one);
        for key in ["a", "b", "c"] {
            lock(&mut two, keyspace, key).expect("it is free");
        }
    }
}

/// A transaction that waits continues when the lock is free, and sees the committed value.
#[test]
fn a_waiter_sees_the_newest_value() {
    let store = store();
    let keyspace = store.default_keyspace();
    let mut one = begin(&store, LONG);
    one.put(keyspace, "a", "new").expect("locks");
    thread::scope(|scope| {
        let (began, has_begun) = mpsc::channel();
        let store = &store;
        let waiter = scope.spawn(move || {
            let mut two = begin(store, LONG);
            began.send(()).expect("somebody listens");
            let seen = two.get_for_update(keyspace, "a").expect("waits");
            assert!(two.get(keyspace, "a").expect("reads").is_none(), "as of its beginning");
            seen.map(|value| value.to_vec())
        });
        has_begun.recv().expect("it begins");
        one.commit(WriteOptions::default()).expect("commits");
        assert_eq!(waiter.join().expect("waits").as_deref(), Some(&b"new"[..]));
    });
}

/// Takes three locks in a circle: each of three transactions holds one and requests the next one's
/// lock. Returns the errors.
fn circle(store: &Store, timeout: Duration, bug: Option<Bug>) -> Vec<Error> {
    let keyspace = store.default_keyspace();
    let (sent, received) = mpsc::channel();
    thread::scope(|scope| {
        let keys = ["a", "b", "c"];
        let mut all: Vec<Transaction> = keys.iter().map(|_| begin(store, timeout)).collect();
        for (one, key) in all.iter_mut().zip(keys) {
            lock(one, keyspace, key).expect("nobody has it");
        }
        for (mut one, key) in all.into_iter().zip(["b", "c", "a"]) {
            let sent = sent.clone();
            scope.spawn(move || {
                let mut work = || lock(&mut one, keyspace, key);
                let outcome = match bug {
                    Some(bug) => seeded::with(bug, work),
                    None => work(),
                };
                sent.send(outcome.err()).expect("somebody listens");
            });
        }
    });
    drop(sent);
    received.into_iter().flatten().collect()
}

/// The transaction whose request closes the circle gets the error, which names the circle; the
/// others continue.
#[test]
fn a_circle_is_found_and_named() {
    let store = store();
    let errors = circle(&store, LONG, None);
    assert_eq!(store.metrics().counters.deadlocks, 1);
    let [Error::Deadlock { cycle }] = &errors[..] else { panic!("one of three: {errors:?}") };
    for key in ["\"a\" of \"default\"", "\"b\" of \"default\"", "\"c\" of \"default\""] {
        assert!(cycle.contains(key), "{cycle}");
    }
}

#[test]
fn a_circle_that_is_not_sought_is_found() {
    let errors = circle(&store(), Duration::from_millis(100), Some(Bug::DeadlocksNotSought));
    let is_late = |error: &Error| matches!(error, Error::LockTimeout { .. });
    assert!(!errors.is_empty() && errors.iter().all(is_late), "{errors:?}");
}

#[test]
fn locks_are_limited() {
    let store = store();
    let keyspace = store.default_keyspace();
    let options = TransactionOptions::pessimistic().max_locks(2);
    let mut one = store.begin(options).expect("begins");
    one.put(keyspace, "a", "1").expect("the first");
    lock(&mut one, keyspace, "b").expect("the second");
    lock(&mut one, keyspace, "a").expect("it has that");
    let refused = one.put(keyspace, "c", "1").expect_err("the third");
    assert!(refused.to_string().contains("2 locks"), "{refused}");
    assert!(refused.hint().contains("max_locks"));
    one.commit(WriteOptions::default()).expect("commits what it wrote");
}

/// A commit that takes no locks of its own still respects a lock that another transaction holds.
#[test]
fn an_optimistic_commit_respects_locks() {
    let store = store();
    let keyspace = store.default_keyspace();
    let mut one = begin(&store, LONG);
    lock(&mut one, keyspace, "a").expect("locks");
    for key in ["a", "b"] {
        let mut two = store.begin(TransactionOptions::default()).expect("begins");
        two.put(keyspace, key, "2").expect("puts");
        let outcome = two.commit(WriteOptions::default());
        assert_eq!(outcome.is_ok(), key == "b", "{outcome:?}");
    }
    one.put(keyspace, "a", "1").expect("puts");
    one.commit(WriteOptions::default()).expect("commits");
    assert_eq!(keyspace.get("a").expect("reads").as_deref(), Some(&b"1"[..]));
}

/// A commit that deletes a range also respects locks: a locked key inside the range stops it.
#[test]
fn a_range_delete_respects_locks() {
    holds_and_finds(Bug::LocksIgnoredByRanges, || {
        let store = store();
        let keyspace = store.default_keyspace();
        let mut one = begin(&store, LONG);
        lock(&mut one, keyspace, "b").expect("locks");
        for (range, is_free) in [("a".."b", true), ("c".."d", true), ("a".."c", false)] {
            let mut two = store.begin(TransactionOptions::default()).expect("begins");
            two.delete_range(keyspace, range).expect("writes");
            match two.commit(WriteOptions::default()) {
                Ok(()) => assert!(is_free),
                outcome => assert!(!is_free && is_conflict_of(&outcome, "b"), "{outcome:?}"),
            }
        }
        drop(one);
        let mut two = store.begin(TransactionOptions::default()).expect("begins");
        two.delete_range(keyspace, "a".."c").expect("writes");
        two.commit(WriteOptions::default()).expect("nobody holds a lock any more");
    });
}

/// Keys that a transaction has locked do not change while others delete ranges over them.
#[test]
fn locked_keys_stay_while_ranges_are_deleted() {
    let store = store();
    let keyspace = store.default_keyspace();
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for turn in 0..500_u32 {
                    let mut one = begin(&store, LONG);
                    let seen = one.get_for_update(keyspace, "k").expect("waits");
                    assert_eq!(keyspace.get("k").expect("reads"), seen);
                    one.put(keyspace, "k", turn.to_be_bytes()).expect("is locked");
                    one.commit(WriteOptions::default()).expect("commits");
                }
            });
            scope.spawn(|| {
                for _ in 0..500 {
                    let mut two = store.begin(TransactionOptions::default()).expect("begins");
                    two.delete_range(keyspace, "a".."z").expect("writes");
                    match two.commit(WriteOptions::default()) {
                        Ok(()) | Err(Error::Conflict { .. }) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
            });
        }
    });
}

/// The counters show how transactions ended and why locks were refused.
#[test]
fn outcomes_are_counted() {
    let store = store();
    let keyspace = store.default_keyspace();
    let commit = |one: Transaction| one.commit(WriteOptions::default());
    let mut late = store.begin(TransactionOptions::default()).expect("begins");
    late.put(keyspace, "a", "late").expect("writes");
    store.put("a", "between").expect("writes");
    assert!(matches!(commit(late), Err(Error::Conflict { .. })));
    let (mut one, mut two) = (begin(&store, LONG), begin(&store, Duration::ZERO));
    one.put(keyspace, "a", "1").expect("locks");
    assert!(matches!(two.put(keyspace, "a", "2"), Err(Error::LockTimeout { .. })));
    commit(one).expect("commits");
    commit(two).expect("commits, without a write");
    let counters = store.metrics().counters;
    let ended = (counters.transactions_committed, counters.transaction_conflicts);
    assert_eq!((ended, counters.lock_timeouts, counters.deadlocks), ((2, 1), 1, 0));
}

/// If a lock were passed from waiter to waiter, it would never be free. Then an update that holds a
/// lock only during its commit would wait for ever.
#[test]
fn an_update_gets_its_turn_among_waiters() {
    const MOST_TURNS: u32 = 100_000;
    let store = store();
    let keyspace = store.default_keyspace();
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        let take_turns = || {
            for _ in 0..MOST_TURNS {
                if is_done.load(Relaxed) {
                    return true;
                }
                let mut one = begin(&store, LONG);
                lock(&mut one, keyspace, "a").expect("it is its turn");
                one.put(keyspace, "a", "turn").expect("it has the lock");
                one.commit(WriteOptions::default()).expect("commits");
            }
            false
        };
        let others = [0, 1, 2].map(|_| scope.spawn(take_turns));
        for _ in 0..3 {
            let update = |_: Option<&[u8]>| Some(b"update".to_vec());
            keyspace.fetch_update("a", update).expect("it gets its turn");
        }
        is_done.store(true, Relaxed);
        for other in others {
            assert!(other.join().expect("no panic"), "the updates came after all turns");
        }
    });
}

/// Many wait for one lock, and each gets it.
#[test]
fn all_waiters_get_their_turn() {
    let store = store();
    let keyspace = store.default_keyspace();
    let add = || {
        for _ in 0..20 {
            let mut one = begin(&store, LONG);
            let old = one.get_for_update(keyspace, "count").expect("it is its turn");
            let count = old.map_or(0, |old| u32::from_be_bytes(old[..].try_into().expect("four")));
            one.put(keyspace, "count", (count + 1).to_be_bytes()).expect("it has the lock");
            one.commit(WriteOptions::default()).expect("commits");
        }
    };
    thread::scope(|scope| (0..50).for_each(|_| _ = scope.spawn(add)));
    let count = keyspace.get("count").expect("reads").expect("it is there");
    assert_eq!(count[..], 1_000u32.to_be_bytes());
}
