//! Loads together with range deletes, operands, transactions and snapshots. Each of these needs the
//! sequence numbers of entries, and only the manifest has the number of a load.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use runstone::seeded::{self, Bug, Waypoint};
use runstone::storage::MemoryStorage;
use runstone::unstable;
use runstone::{
    Background, Error, Event, EventListener, Expiry, Keyspace, KeyspaceOptions, Options,
    ReadOptions, Snapshot, Store, Transaction, TransactionOptions, WriteOptions,
};
use runstone_fault_storage::SimStorage;
use runstone_sim::found::{holds_and_trips, panics};

fn open(storage: &MemoryStorage) -> Store {
    let keyspace = KeyspaceOptions::default().merge_operator("append(,)");
    let options = Options::default().background(Background::Manual).keyspace(keyspace);
    Store::open_on(Arc::new(storage.clone()), options).expect("opens")
}

fn numbered(numbers: std::ops::Range<u32>) -> impl Iterator<Item = (String, String)> {
    numbers.map(|number| (format!("k{number:03}"), format!("loaded {number}")))
}

fn all(keyspace: &Keyspace, snapshot: Option<&Snapshot>) -> Vec<(String, String)> {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("text");
    let options =
        snapshot.map_or_else(ReadOptions::default, |snapshot| ReadOptions::default().at(snapshot));
    let mut cursor = keyspace.cursor(options).expect("opens");
    cursor.seek_to_first().expect("seeks");
    let mut found = Vec::new();
    while cursor.valid() {
        let pair = (text(cursor.key()), text(cursor.value()));
        let got = match snapshot {
            Some(snapshot) => keyspace.get_at(cursor.key(), snapshot),
            None => keyspace.get(cursor.key()),
        };
        assert_eq!(got.expect("reads").as_deref(), Some(cursor.value()), "gets agree");
        found.push(pair);
        cursor.next().expect("moves");
    }
    found
}

/// Runs `check` at once, after a flush, after a compaction, and after a reopen.
fn at_each_place(storage: &MemoryStorage, store: Store, check: impl Fn(&Store)) {
    check(&store);
    store.flush().expect("flushes");
    check(&store);
    store.compact().expect("compacts");
    check(&store);
    let report = store.verify().expect("verifies");
    assert!(report.is_clean(), "{:?}", report.damage);
    store.close().expect("closes");
    check(&open(storage));
}

#[test]
fn a_load_over_an_older_range_delete_is_seen() {
    for is_flushed in [false, true] {
        let storage = MemoryStorage::new();
        let store = open(&storage);
        let keyspace = store.default_keyspace();
        keyspace.put("k001", "old").expect("puts");
        keyspace.put("k200", "old").expect("puts");
        keyspace.delete_range("k".."l").expect("deletes");
        if is_flushed {
            store.flush().expect("flushes");
        }
        let before = store.snapshot();
        assert_eq!(keyspace.bulk_load(numbered(0..100)).expect("loads"), 100);
        assert_eq!(all(keyspace, Some(&before)), []);
        drop(before);
        let wanted: Vec<_> = numbered(0..100).collect();
        at_each_place(&storage, store, |store| {
            assert_eq!(all(store.default_keyspace(), None), wanted);
        });
    }
}

#[test]
fn a_range_delete_behind_a_load_hides_it() {
    for is_flushed in [false, true] {
        let storage = MemoryStorage::new();
        let store = open(&storage);
        let keyspace = store.default_keyspace();
        assert_eq!(keyspace.bulk_load(numbered(0..100)).expect("loads"), 100);
        if is_flushed {
            store.compact().expect("compacts");
        }
        let before = store.snapshot();
        keyspace.delete_range("k010".."k090").expect("deletes");
        let loaded: Vec<_> = numbered(0..100).collect();
        assert_eq!(all(keyspace, Some(&before)), loaded);
        store.flush().expect("flushes");
        assert_eq!(all(keyspace, Some(&before)), loaded);
        store.compact().expect("compacts");
        assert_eq!(all(keyspace, Some(&before)), loaded);
        drop(before);
        let wanted: Vec<_> = numbered(0..10).chain(numbered(90..100)).collect();
        at_each_place(&storage, store, |store| {
            assert_eq!(all(store.default_keyspace(), None), wanted);
        });
    }
}

/// A table of a load that a range delete covers entirely is dropped without being read, but not
/// while a snapshot sees it.
#[test]
fn a_covered_load_goes_at_once() {
    let store = open(&MemoryStorage::new());
    let keyspace = store.default_keyspace();
    keyspace.bulk_load(numbered(0..1000)).expect("loads");
    let before = store.snapshot();
    keyspace.delete_range("k".."l").expect("deletes");
    store.flush().expect("flushes");
    store.wait_idle().expect("idle");
    assert_eq!(all(keyspace, Some(&before)).len(), 1000);
    drop(before);
    store.compact().expect("compacts");
    assert_eq!(unstable::shape(keyspace).tables().count(), 0);
    assert_eq!(keyspace.estimate(..).expect("estimates").entries, 0);
}

/// A write that is made while a load waits for flushes has a smaller sequence number than the load,
/// so it must not end up above the load.
#[test]
fn a_load_lies_above_what_came_before() {
    holds_and_trips(Bug::LoadsAboveOlderWrites, "would lie above a load", || {
        let storage = MemoryStorage::new();
        let store = open(&storage);
        let keyspace = store.default_keyspace().clone();
        let beside = keyspace.clone();
        seeded::step_in(Waypoint::MemtableReplaced, move || {
            beside.put("k001", "older").expect("puts");
        });
        keyspace.bulk_load(numbered(0..10)).expect("loads");
        assert!(seeded::has_stepped_in());
        let wanted: Vec<_> = numbered(0..10).collect();
        at_each_place(&storage, store, |store| {
            assert_eq!(all(store.default_keyspace(), None), wanted);
        });
    });
}

/// Writers with later sequence numbers wait until the load's number is published. Earlier writes
/// are durable by then: a power loss at that moment loses none of them.
#[test]
fn what_lies_before_a_load_is_synced_before_it_has_its_number() {
    let disk = SimStorage::new(1);
    let opened = |disk: &SimStorage| {
        let options = Options::default().background(Background::Manual);
        Store::open_on(Arc::new(disk.clone()), options).expect("opens")
    };
    let store = opened(&disk);
    let other = store.open_keyspace("other", None).expect("makes");
    (0..100u32).for_each(|i| other.put(i.to_be_bytes(), "not synced").expect("puts"));
    let left = Rc::new(RefCell::new(None));
    let (taking, cut) = (Rc::clone(&left), disk.clone());
    seeded::step_in(Waypoint::LoadNumbered, move || {
        *taking.borrow_mut() = Some(cut.power_cut(7).0);
    });
    store.default_keyspace().bulk_load(numbered(0..10)).expect_err("the power is off");
    let store = opened(&left.take().expect("it was there"));
    let other = store.keyspace("other").expect("is there");
    assert_eq!(other.iter().expect("opens").count(), 100);
}

/// A snapshot that is taken after a load has got its sequence number, but before the edit of the
/// load, shows the same content before and after the edit (P5).
#[test]
fn a_snapshot_inside_a_load_does_not_change() {
    holds_and_trips(Bug::LoadsPublishedFirst, "visible before it is in the tree", || {
        let store = Arc::new(open(&MemoryStorage::new()));
        let keyspace = store.default_keyspace().clone();
        keyspace.put("k001", "older").expect("puts");
        let taken = Rc::new(RefCell::new(None));
        let (beside, taking) = (Arc::clone(&store), Rc::clone(&taken));
        seeded::step_in(Waypoint::LoadNumbered, move || {
            let snapshot = beside.snapshot();
            let shown = all(beside.default_keyspace(), Some(&snapshot));
            *taking.borrow_mut() = Some((snapshot, shown));
        });
        keyspace.bulk_load(numbered(0..10)).expect("loads");
        let (snapshot, shown) = taken.take().expect("it was there");
        assert_eq!(all(&keyspace, Some(&snapshot)), shown);
        assert_eq!(all(&keyspace, None).len(), 10);
    });
}

#[test]
fn operands_lie_above_and_below_a_load() {
    let storage = MemoryStorage::new();
    let store = open(&storage);
    let keyspace = store.default_keyspace();
    keyspace.merge("k001", "before").expect("merges");
    let early = store.snapshot();
    keyspace.bulk_load([("k001", "base"), ("k002", "base")]).expect("loads");
    let between = store.snapshot();
    keyspace.merge("k001", "one").expect("merges");
    store.flush().expect("flushes");
    keyspace.merge("k001", "two").expect("merges");
    let seen = |at: &Snapshot| keyspace.get_at("k001", at).expect("reads").map(|v| v.to_vec());
    assert_eq!(seen(&early).as_deref(), Some(&b"before"[..]));
    assert_eq!(seen(&between).as_deref(), Some(&b"base"[..]));
    store.compact().expect("compacts");
    assert_eq!(seen(&early).as_deref(), Some(&b"before"[..]));
    assert_eq!(seen(&between).as_deref(), Some(&b"base"[..]));
    drop((early, between));
    at_each_place(&storage, store, |store| {
        let value = store.get("k001").expect("reads").expect("is there");
        assert_eq!(&*value, b"base,one,two");
    });
}

/// Entries that are loaded into a keyspace with a time to live expire like entries that are put
/// there.
#[test]
fn loads_expire_by_the_keyspaces_time_to_live() {
    let storage = MemoryStorage::new();
    let store = open(&storage);
    let options = KeyspaceOptions::default().ttl_seconds(3600);
    let keyspace = store.open_keyspace("sessions", Some(options)).expect("makes");
    keyspace.bulk_load([("a", "loaded")]).expect("loads");
    keyspace.put("b", "put").expect("puts");
    for _ in 0..2 {
        let instant = |key: &str| match keyspace.expiry(key).expect("reads") {
            Some(Expiry::At(at)) => at,
            other => panic!("{key}: {other:?}"),
        };
        let between = instant("b").duration_since(instant("a")).expect("it came later");
        assert!(between < Duration::from_secs(600), "{between:?}");
        assert_eq!(keyspace.get("a").expect("reads").as_deref(), Some(&b"loaded"[..]));
        store.compact().expect("compacts");
    }
}

fn estimated(keyspace: &Keyspace, from: &str, to: &str) -> u64 {
    keyspace.estimate(from..to).expect("estimates").entries
}

#[test]
fn a_load_is_in_estimates() {
    let store = open(&MemoryStorage::new());
    let keyspace = store.default_keyspace();
    let entries = (0..100_000u32).map(|n| (format!("k{n:06}"), format!("value {n}")));
    keyspace.bulk_load(entries).expect("loads");
    assert_eq!(estimated(keyspace, "k", "l"), 100_000);
    let half = estimated(keyspace, "k025000", "k075000");
    assert!((48_000..52_000).contains(&half), "{half}");
}

fn begin(store: &Store, keyspace: &Keyspace, key: &str) -> Transaction {
    let mut one = store.begin(TransactionOptions::serializable()).expect("begins");
    one.put(keyspace, key, "own").expect("puts");
    one
}

fn commit(one: Transaction) -> Result<(), Error> {
    one.commit(WriteOptions::default())
}

fn is_conflict<T>(outcome: Result<T, Error>) -> bool {
    matches!(outcome, Err(Error::Conflict { .. }))
}

/// A load conflicts with earlier reads and writes of a transaction, whether it ends before or after
/// the check of the commit begins. It conflicts with nothing else.
fn loads_conflict() {
    for is_late in [false, true] {
        for key in ["k001", "x"] {
            let store = Arc::new(open(&MemoryStorage::new()));
            let keyspace = store.default_keyspace().clone();
            let one = begin(&store, &keyspace, key);
            let load = {
                let keyspace = keyspace.clone();
                move || assert_eq!(keyspace.bulk_load(numbered(0..10)).expect("loads"), 10)
            };
            match is_late {
                true => seeded::step_in(Waypoint::TransactionChecked, load),
                false => load(),
            }
            assert_eq!(is_conflict(commit(one)), key == "k001", "late {is_late}, {key}");
            let wanted = numbered(1..2).next().expect("one").1;
            assert_eq!(keyspace.get("k001").expect("reads").as_deref(), Some(wanted.as_bytes()));
        }
        let store = open(&MemoryStorage::new());
        let keyspace = store.default_keyspace();
        let one = begin(&store, keyspace, "x");
        let options = ReadOptions::default().with_prefix(b"k");
        assert_eq!(one.scan(keyspace, options).expect("scans").count(), 0);
        keyspace.bulk_load(numbered(0..10)).expect("loads");
        assert!(is_conflict(commit(one)), "a stretch that was read");
    }
}

/// Once, a commit had looked at the tables before the load. The memtable was still there, so the
/// commit concluded that nothing had reached tables since, and replaced loaded values that it had
/// not seen.
#[test]
fn transactions_conflict_with_loads() {
    loads_conflict();
    assert!(panics(|| seeded::with(Bug::LoadsNotChecked, loads_conflict)));
}

/// Makes a load, and a write after it, in the middle of a read.
fn load_between(keyspace: &Keyspace, place: Waypoint) {
    let other = keyspace.clone();
    seeded::step_in(place, move || {
        other.bulk_load([("k1", "loaded")]).expect("loads");
        other.merge("k1", "behind it").expect("merges");
        other.put("k2", "behind it").expect("puts");
    });
}

/// Readers that have their view but no sequence number see the load together with the write after
/// it, or neither.
fn readers_see_a_moment() {
    let fresh = || {
        let store = open(&MemoryStorage::new());
        let keyspace = store.default_keyspace().clone();
        keyspace.put("k1", "old").expect("puts");
        store.flush().expect("flushes");
        (store, keyspace)
    };
    let (_store, keyspace) = fresh();
    load_between(&keyspace, Waypoint::ViewLoaded);
    let found = all_once(&keyspace);
    assert!(seeded::has_stepped_in());
    assert!(found[0] == "loaded,behind it" || found == ["old"], "{found:?}");

    let (_store, keyspace) = fresh();
    load_between(&keyspace, Waypoint::ViewLoaded);
    let values = keyspace.multi_get(&["k1", "k2"]).expect("reads");
    assert!(seeded::has_stepped_in());
    let is_behind = values[0].as_deref() == Some(b"loaded,behind it");
    assert_eq!(values[1].is_some(), is_behind, "{values:?}");

    let (_store, keyspace) = fresh();
    load_between(&keyspace, Waypoint::GetViewLoaded);
    let value = keyspace.get("k1").expect("reads").expect("is there");
    assert!(seeded::has_stepped_in());
    assert_eq!(&*value, b"loaded,behind it");
}

/// In the middle of a read, a load of x and then a put of y are completed. Another load has its
/// sequence number but has not ended. That load ends when the sender is dropped.
fn loads_between(keyspace: &Keyspace, place: Waypoint) -> mpsc::Sender<()> {
    let (other, (ends, end)) = (keyspace.clone(), mpsc::channel::<()>());
    seeded::step_in(place, move || {
        other.bulk_load([("x", "loaded")]).expect("loads");
        other.put("y", "behind it").expect("puts");
        let (numbered, is_numbered) = mpsc::channel();
        thread::spawn(move || {
            seeded::step_in(Waypoint::LoadNumbered, move || {
                numbered.send(()).expect("the reader waits");
                end.recv().expect_err("nothing is sent");
            });
            other.bulk_load([("z", "unseen")]).expect("loads");
        });
        is_numbered.recv().expect("it comes there");
    });
    ends
}

/// Once, a reader without a snapshot compared its view with the last load that had a sequence
/// number. While a second load was under way, that number was too large to be visible. The reader
/// then accepted a view from before the first load: it saw the write after the load, but not the
/// load.
fn readers_see_a_moment_beside_two_loads() {
    let fresh = || {
        let store = open(&MemoryStorage::new());
        let keyspace = store.default_keyspace().clone();
        keyspace.bulk_load([("x", "old"), ("y", "old")]).expect("loads");
        (store, keyspace)
    };
    let is_moment = |seen: &[&str]| seen == ["loaded", "behind it"] || seen == ["old", "old"];

    let (_store, keyspace) = fresh();
    let ends = loads_between(&keyspace, Waypoint::ViewLoaded);
    let found = all_once(&keyspace);
    assert!(seeded::has_stepped_in());
    assert!(is_moment(&found.iter().map(String::as_str).collect::<Vec<_>>()), "{found:?}");
    drop(ends);

    let (_store, keyspace) = fresh();
    let ends = loads_between(&keyspace, Waypoint::ViewLoaded);
    let values = keyspace.multi_get(&["x", "y"]).expect("reads");
    let seen: Vec<_> =
        values.iter().flatten().map(|value| String::from_utf8_lossy(value)).collect();
    assert!(is_moment(&seen.iter().map(|value| &**value).collect::<Vec<_>>()), "{seen:?}");
    drop(ends);

    let (_store, keyspace) = fresh();
    let ends = loads_between(&keyspace, Waypoint::GetViewLoaded);
    let value = keyspace.get("x").expect("reads").expect("is there");
    assert_eq!(&*value, b"loaded", "the load was done when the get began to look");
    drop(ends);
}

#[test]
fn readers_beside_two_loads_see_a_moment() {
    readers_see_a_moment_beside_two_loads();
    assert!(panics(|| {
        seeded::with(Bug::LoadsMissedInViews, readers_see_a_moment_beside_two_loads);
    }));
}

/// The values that a cursor shows.
fn all_once(keyspace: &Keyspace) -> Vec<String> {
    let text = |value: &[u8]| String::from_utf8(value.to_vec()).expect("text");
    let pairs = keyspace.iter().expect("opens");
    pairs.map(|pair| text(&pair.expect("reads").1)).collect()
}

#[test]
fn readers_that_began_beside_a_load_see_a_moment() {
    readers_see_a_moment();
    assert!(panics(|| seeded::with(Bug::LoadsMissedInViews, readers_see_a_moment)));
}

/// The commit of a transaction waits under the commit lock for all earlier sequence numbers,
/// and a load needs that lock to publish its own. Once, the two waited for each other.
#[test]
fn a_commit_beside_the_end_of_a_load_ends() {
    let store = Arc::new(open(&MemoryStorage::new()));
    let (ended, wait) = mpsc::channel();
    thread::spawn(move || {
        let keyspace = store.default_keyspace();
        let (other, committed) = (Arc::clone(&store), mpsc::channel());
        seeded::step_in(Waypoint::LoadNumbered, move || {
            thread::spawn(move || {
                let one = begin(&other, other.default_keyspace(), "k001");
                committed.0.send(commit(one)).expect("somebody waits");
            });
            // Gives the other thread time to reach the commit lock.
            thread::sleep(Duration::from_millis(100));
        });
        keyspace.bulk_load(numbered(0..10)).expect("loads");
        let outcome = committed.1.recv().expect("it ends");
        assert!(is_conflict(outcome));
        ended.send(()).expect("the test waits");
    });
    wait.recv_timeout(Duration::from_secs(60)).expect("both end");
}

#[derive(Debug, Default)]
struct Loads(Mutex<Vec<(String, u64, u64)>>);

impl EventListener for Loads {
    fn on_event(&self, event: &Event) {
        if let Event::Loaded { keyspace, tables, entries, .. } = event {
            self.0.lock().expect("sound").push((keyspace.clone(), *tables, *entries));
        }
    }
}

#[test]
fn listeners_hear_of_loads() {
    let loads = Arc::new(Loads::default());
    let listener = Arc::clone(&loads) as Arc<dyn EventListener>;
    let options = Options::default().listener(listener);
    let store = Store::open_on(Arc::new(MemoryStorage::new()), options).expect("opens");
    let keyspace = store.open_keyspace("squares", None).expect("opens");
    keyspace.bulk_load(numbered(0..100)).expect("loads");
    keyspace.bulk_load(numbered(0..0)).expect("loads nothing");
    assert_eq!(*loads.0.lock().expect("sound"), [("squares".to_string(), 1, 100)]);
}
