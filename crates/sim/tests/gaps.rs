//! Gaps, the stretches of hidden entries that walks jump over (`read/gap.rs`): that they are jumped
//! over, and that nothing is lost in them. Each rule is a test that holds, and that finds the bug
//! which the rule is there against.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use runstone::seeded::{self, Bug, Place};
use runstone::storage::MemoryStorage;
use runstone::{Background, Batch, Keyspace, Options, ReadOptions, Snapshot, Store, WriteOptions};
use runstone_sim::found::panics;
use runstone_sim::random::{Random, number};

fn open(background: Background) -> Arc<Store> {
    let options = Options { background, ..Options::default() };
    Arc::new(Store::open_on(Arc::new(MemoryStorage::new()), options).expect("opens"))
}

fn key(stem: &str, number: u64) -> Vec<u8> {
    format!("{stem}{number:06}").into_bytes()
}

/// The first key from `from` on, below `end`.
fn first(keyspace: &Keyspace, from: &[u8], end: &[u8], at: Option<&Snapshot>) -> Option<Vec<u8>> {
    let mut options = ReadOptions::default().with_bounds(Some(from), Some(end));
    if let Some(snapshot) = at {
        options = options.at(snapshot);
    }
    let mut cursor = keyspace.cursor(options).expect("opens");
    cursor.seek_to_first().expect("seeks");
    cursor.valid().then(|| cursor.key().to_vec())
}

/// Puts and deletes a hundred keys.
fn hide(keyspace: &Keyspace, stem: &str) {
    (0..100).for_each(|number| keyspace.put(key(stem, number), "v").expect("puts"));
    (0..100).for_each(|number| keyspace.delete(key(stem, number)).expect("deletes"));
}

fn holds_and_finds(bug: Bug, check: impl Fn()) {
    check();
    assert!(panics(|| seeded::with(bug, &check)), "{bug:?} is not found");
}

/// A queue's deleted keys lie where the next walk begins. Each walk passed all of them: 10,000 pops
/// passed a hundred million entries.
#[test]
fn a_queue_costs_the_same_however_long_it_runs() {
    let store = open(Background::Manual);
    let queue = store.default_keyspace();
    let passed = || store.metrics().counters.hidden_passed;
    let pop = |number: u64| {
        queue.put(key("q", number + 50), "job").expect("puts");
        assert_eq!(first(queue, b"", b"\xff", None), Some(key("q", number)));
        queue.delete(key("q", number)).expect("deletes");
    };
    (0..50).for_each(|number| queue.put(key("q", number), "job").expect("puts"));
    (0..1_000).for_each(pop);
    let at_first = passed();
    (1_000..10_000).for_each(pop);
    let later = (passed() - at_first) / 9;
    assert!(at_first > 0 && later <= at_first * 2, "{at_first} at first, {later} a thousand later");
}

/// A gap of many entries is known, then each kind of write puts a key into it.
#[test]
fn what_is_put_into_a_gap_is_seen() {
    holds_and_finds(Bug::GapsIgnorePuts, || {
        let store = open(Background::Manual);
        let keyspace = store.default_keyspace();
        hide(keyspace, "k");
        keyspace.put("z", "v").expect("puts");
        let walk = || first(keyspace, b"", b"\xff", None);
        (0..3).for_each(|_| assert_eq!(walk(), Some(b"z".to_vec())));
        keyspace.put(key("k", 50), "back").expect("puts");
        assert_eq!(walk(), Some(key("k", 50)));
        let mut batch = Batch::new();
        batch.delete(keyspace, "z").expect("fits");
        batch.put(keyspace, key("k", 20), "back").expect("fits");
        store.write(&batch, WriteOptions::default()).expect("writes");
        assert_eq!(walk(), Some(key("k", 20)));
        assert_eq!(first(keyspace, &key("k", 21), b"\xff", None), Some(key("k", 50)));
    });
}

#[test]
fn a_snapshot_sees_what_a_gap_has_hidden_since() {
    holds_and_finds(Bug::GapsForAllSnapshots, || {
        let store = open(Background::Manual);
        let keyspace = store.default_keyspace();
        (0..100).for_each(|number| keyspace.put(key("k", number), "v").expect("puts"));
        (0..50).for_each(|number| keyspace.delete(key("k", number)).expect("deletes"));
        let snapshot = store.snapshot();
        (50..100).for_each(|number| keyspace.delete(key("k", number)).expect("deletes"));
        (0..3).for_each(|_| assert_eq!(first(keyspace, b"", b"\xff", None), None));
        assert_eq!(first(keyspace, b"", b"\xff", Some(&snapshot)), Some(key("k", 50)));
    });
}

/// A key is put into a stretch that nobody watches yet; a reader of an older snapshot passes it.
#[test]
fn a_walk_from_before_the_watch_proves_nothing() {
    holds_and_finds(Bug::GapsProvedUnwatched, || {
        let store = open(Background::Manual);
        let keyspace = store.default_keyspace();
        hide(keyspace, "a");
        hide(keyspace, "b");
        let snapshot = store.snapshot();
        keyspace.put(key("a", 50), "new").expect("puts");
        assert_eq!(first(keyspace, b"b", b"c", None), None, "the watch begins");
        assert_eq!(first(keyspace, b"a", b"b", Some(&snapshot)), None);
        assert_eq!(first(keyspace, b"a", b"b", None), Some(key("a", 50)));
    });
}

/// Between a cursor's view and its number a new memtable takes a key, and a watch begins. The
/// number is that of the key, but the cursor cannot see it.
#[test]
fn a_cursor_that_missed_a_memtable_does_not_prove_it_empty() {
    holds_and_finds(Bug::GapsProvedByNumber, || {
        let store = open(Background::Threads(1));
        let keyspace = store.default_keyspace();
        hide(keyspace, "a");
        hide(keyspace, "b");
        // What is hidden must outlast the flush.
        let _held = store.snapshot();
        let beside = Arc::clone(&store);
        seeded::step_in(Place::ViewLoaded, move || {
            beside.flush().expect("flushes");
            let keyspace = beside.default_keyspace();
            keyspace.put(key("a", 50), "new").expect("puts");
            assert_eq!(first(keyspace, b"b", b"c", None), None, "the watch begins");
        });
        assert_eq!(first(keyspace, b"a", b"b", None), None, "as it was before the flush");
        assert!(seeded::has_stepped_in());
        assert_eq!(first(keyspace, b"a", b"b", None), Some(key("a", 50)));
    });
}

/// Stretches of keys are deleted and partly put again, beside walks from anywhere, of snapshots and
/// of cursors that were opened long ago; a map says what each must see.
#[test]
fn walks_see_what_a_map_says() {
    let (from, count) = (number("RUNSTONE_SEED", 0), number("RUNSTONE_SEEDS", 40));
    for seed in from..from + count {
        let mut random = Random::new(seed);
        let store = open(Background::Manual);
        let keyspace = store.default_keyspace();
        let mut now: BTreeMap<Vec<u8>, u64> = BTreeMap::new();
        let mut held: Vec<(Snapshot, BTreeMap<Vec<u8>, u64>)> = Vec::new();
        for step in 0..400 {
            let at = random.below(400);
            match random.below(12) {
                0..3 => (at..at + random.below(60)).for_each(|number| {
                    keyspace.put(key("", number), step.to_string()).expect("puts");
                    now.insert(key("", number), step);
                }),
                3..6 => (at..at + random.below(200)).for_each(|number| {
                    keyspace.delete(key("", number)).expect("deletes");
                    now.remove(&key("", number));
                }),
                6 => held.push((store.snapshot(), now.clone())),
                7 if !held.is_empty() => {
                    drop(held.swap_remove(random.below(held.len() as u64) as usize))
                }
                8 if random.one_in(6) => store.flush().expect("flushes"),
                9 if random.one_in(6) => store.compact().expect("compacts"),
                _ => {
                    let from = key("", at);
                    let end = key("", at + random.below(400));
                    let old = held.get(random.below(held.len() as u64 * 2 + 1) as usize);
                    check(keyspace, (&from, &end), old, &now);
                }
            }
        }
    }
}

type Held = (Snapshot, BTreeMap<Vec<u8>, u64>);

fn check(
    keyspace: &Keyspace,
    (from, end): (&[u8], &[u8]),
    old: Option<&Held>,
    now: &BTreeMap<Vec<u8>, u64>,
) {
    let mut options = ReadOptions::default().with_bounds(Some(from), Some(end));
    let mut wanted = now;
    if let Some((snapshot, then)) = old {
        options = options.at(snapshot);
        wanted = then;
    }
    let mut cursor = keyspace.cursor(options).expect("opens");
    cursor.seek_to_first().expect("seeks");
    let inside = wanted.iter().filter(|(key, _)| from <= &key[..] && &key[..] < end);
    for (key, step) in inside {
        assert!(cursor.valid(), "{} is missing", key.escape_ascii());
        assert_eq!((cursor.key(), cursor.value()), (&key[..], step.to_string().as_bytes()));
        cursor.next().expect("steps");
    }
    assert!(!cursor.valid(), "{} is too much", cursor.key().escape_ascii());
}

/// One thread makes gaps without an end, another puts keys into them, and has to see each at once.
#[test]
fn a_put_is_seen_beside_threads_that_make_gaps() {
    let store = open(Background::Threads(1));
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let keyspace = store.default_keyspace();
            while !done.load(Relaxed) {
                hide(keyspace, "k");
                (0..20).for_each(|_| drop(first(keyspace, b"", b"\xff", None)));
            }
        });
        let keyspace = store.default_keyspace();
        let mut random = Random::new(7);
        for _ in 0..1_000 {
            let mut own = key("k", random.below(100));
            own.push(b'!');
            keyspace.put(&own, "mine").expect("puts");
            let mut end = own.clone();
            end.push(0);
            assert_eq!(first(keyspace, &own, &end, None), Some(own.clone()));
            let from = key("k", random.below(100));
            let seen = first(keyspace, &from, b"\xff", None);
            assert!(from > own || seen.is_some_and(|seen| seen <= own));
            keyspace.delete(&own).expect("deletes");
        }
        done.store(true, Relaxed);
    });
}
