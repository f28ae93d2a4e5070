//! A refresh that fails at any of its reads loses nothing: the next one shows everything.

use std::sync::Arc;

use runstone::{Background, Options, Store};
use runstone_fault_storage::{Fault, FaultKind, SimStorage};

/// So many keyspaces, with names so long, that the edits of their flushes take several reads.
const KEYSPACES: u32 = 150;
/// A value so long that its record in the log takes several reads.
const LONG: usize = 100_000;

fn name(number: u32) -> String {
    format!("{number:0200}")
}

fn check(view: &Store) {
    assert!(!view.keyspaces().contains(&name(0)), "a dropped keyspace is there");
    for number in 1..KEYSPACES {
        let keyspace = view.keyspace(&name(number)).expect("it is there");
        let value = keyspace.get("key").expect("it reads").expect("the key is there");
        assert_eq!(*value, *name(number).as_bytes());
    }
    let long = view.get("long").expect("it reads").expect("the key is there");
    assert_eq!(*long, [7; LONG]);
}

#[test]
fn a_refresh_may_fail_at_any_read() {
    let options = || Options::default().background(Background::Manual).seed(1);
    for at in 0.. {
        let storage = SimStorage::new(1);
        let shared = || Arc::new(storage.clone());
        let store = Store::open_on(shared(), options()).expect("it opens");
        store.open_keyspace(&name(0), None).expect("it is made");
        let follower = Store::follow_on(shared(), options()).expect("it follows");
        for number in 1..KEYSPACES {
            let keyspace = store.open_keyspace(&name(number), None).expect("it is made");
            keyspace.put("key", name(number)).expect("it writes");
            store.flush().expect("it flushes");
        }
        store.drop_keyspace(&name(0)).expect("it is dropped");
        store.put("long", [7; LONG]).expect("it writes");
        let at_op = storage.reads() + at;
        storage.inject(Fault { at_op, kind: FaultKind::EioOnRead, sticky: false, category: None });
        // The refresh need not fail: a position in a lease that cannot be read counts as a position
        // that needs everything.
        let is_refreshed = follower.refresh().is_ok();
        if storage.fired().is_empty() {
            assert!(is_refreshed && at > 5, "a refresh has several reads");
            break;
        }
        follower.refresh().unwrap_or_else(|error| panic!("after a failure of read {at}: {error}"));
        check(&follower.store());
    }
}
