//! Dead ranges are the stretches of hidden entries that walks jump over (`catalog/dead_ranges.rs`).
//! The tests show that walks do jump and that no visible entry is lost. Each rule has a test that
//! holds and that finds the bug the rule prevents.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use runstone::seeded::{self, Bug, Waypoint};
use runstone::storage::MemoryStorage;
use runstone::{
    Background, Batch, Clock, Cursor, Keyspace, Options, ReadOptions, Snapshot, Store, WriteOptions,
};
use runstone_sim::clock::{LASTING, TestClock};
use runstone_sim::found::panics;
use runstone_sim::random::{Random, for_seeds};

/// A store whose clock shows 1000.
fn open_with_clock() -> (Arc<Store>, Arc<TestClock>) {
    let clock = TestClock::at(1000);
    let options = Options::default()
        .background(Background::Manual)
        .clock(Arc::clone(&clock) as Arc<dyn Clock>);
    let store = Store::open_on(Arc::new(MemoryStorage::new()), options).expect("opens");
    (Arc::new(store), clock)
}

fn put_for(keyspace: &Keyspace, key: &[u8], millis: u64) {
    keyspace.put_with_ttl(key, "v", Duration::from_millis(millis)).expect("puts");
}

fn open(background: Background) -> Arc<Store> {
    let options = Options::default().background(background);
    Arc::new(Store::open_on(Arc::new(MemoryStorage::new()), options).expect("opens"))
}

fn key(stem: &str, number: u64) -> Vec<u8> {
    format!("{stem}{number:06}").into_bytes()
}

/// A cursor over the keys from `from` on, below `end`.
fn cursor(keyspace: &Keyspace, from: &[u8], end: &[u8], at: Option<&Snapshot>) -> Cursor {
    let options = ReadOptions::default().with_bounds(Some(from), Some(end));
    let options = match at {
        Some(snapshot) => options.at(snapshot),
        None => options,
    };
    keyspace.cursor(options).expect("opens")
}

/// The first key in the range.
fn first(keyspace: &Keyspace, from: &[u8], end: &[u8], at: Option<&Snapshot>) -> Option<Vec<u8>> {
    let mut cursor = cursor(keyspace, from, end, at);
    cursor.seek_to_first().expect("seeks");
    cursor.valid().then(|| cursor.key().to_vec())
}

/// The last key in the range.
fn last(keyspace: &Keyspace, from: &[u8], end: &[u8], at: Option<&Snapshot>) -> Option<Vec<u8>> {
    let mut cursor = cursor(keyspace, from, end, at);
    cursor.seek_to_last().expect("seeks");
    cursor.valid().then(|| cursor.key().to_vec())
}

/// `first` or `last`, since every rule holds in both directions.
type End = fn(&Keyspace, &[u8], &[u8], Option<&Snapshot>) -> Option<Vec<u8>>;

/// Puts and deletes a hundred keys.
fn hide(keyspace: &Keyspace, stem: &str) {
    (0..100).for_each(|number| keyspace.put(key(stem, number), "v").expect("puts"));
    (0..100).for_each(|number| keyspace.delete(key(stem, number)).expect("deletes"));
}

fn holds_and_finds(bug: Bug, check: impl Fn(End)) {
    for (end, name) in [(first as End, "upward"), (last as End, "downward")] {
        check(end);
        assert!(panics(|| seeded::with(bug, || check(end))), "{bug:?} is not found {name}");
    }
}

/// The number of hidden entries that a thousand steps pass, at first and later.
fn passed(store: &Store, mut step: impl FnMut(u64)) -> (u64, u64) {
    let passed = || store.metrics().counters.hidden_passed;
    (0..1_000).for_each(&mut step);
    let at_first = passed();
    (1_000..10_000).for_each(step);
    (at_first, (passed() - at_first) / 9)
}

fn assert_steady((at_first, later): (u64, u64)) {
    assert!(at_first > 0 && later <= at_first * 2, "{at_first} at first, {later} a thousand later");
}

/// The deleted keys of a queue are where the next walk begins. Once, each walk passed all of them,
/// so 10,000 pops passed a hundred million entries.
#[test]
fn a_queue_costs_the_same_however_long_it_runs() {
    let store = open(Background::Manual);
    let queue = store.default_keyspace();
    (0..50).for_each(|number| queue.put(key("q", number), "job").expect("puts"));
    assert_steady(passed(&store, |number| {
        queue.put(key("q", number + 50), "job").expect("puts");
        assert_eq!(first(queue, b"", b"\xff", None), Some(key("q", number)));
        queue.delete(key("q", number)).expect("deletes");
    }));
}

/// Six queues whose keys are side by side in one keyspace, each with a dead range of its own.
#[test]
fn queues_beside_each_other_cost_no_more() {
    let store = open(Background::Manual);
    let queue = store.default_keyspace();
    let stems = ["a", "b", "c", "d", "e", "f"];
    for stem in stems {
        (0..50).for_each(|number| queue.put(key(stem, number), "job").expect("puts"));
    }
    assert_steady(passed(&store, |number| {
        let (stem, number) = (stems[number as usize % 6], number / 6);
        queue.put(key(stem, number + 50), "job").expect("puts");
        let found = first(queue, stem.as_bytes(), &key(stem, 999_999), None);
        assert_eq!(found, Some(key(stem, number)));
        queue.delete(key(stem, number)).expect("deletes");
    }));
}

/// The deleted keys of a stack are where the next downward walk begins, and the stack puts new keys
/// among them.
#[test]
fn a_stack_costs_the_same_however_long_it_runs() {
    let store = open(Background::Manual);
    let stack = store.default_keyspace();
    let mut random = Random::new(3);
    let mut keys: Vec<Vec<u8>> = Vec::new();
    assert_steady(passed(&store, |number| {
        let pops = random.below(10).min(keys.len() as u64);
        for _ in 0..pops {
            let top = keys.pop();
            assert_eq!(last(stack, b"", b"\xff", None), top);
            stack.delete(top.expect("is there")).expect("deletes");
        }
        for i in 0..random.below(10) {
            keys.push(key("s", number * 10 + i));
            stack.put(key("s", number * 10 + i), "frame").expect("puts");
        }
    }));
}

/// A queue is emptied by batches of 2,000 entries. Once, a batch of more than a thousand writes
/// ended all ranges, even if it only deleted. So each batch passed all entries that earlier batches
/// had taken.
#[test]
fn a_queue_that_is_drained_passes_each_entry_a_few_times() {
    const ENTRIES: u64 = 100_000;
    let store = open(Background::Manual);
    let queue = store.default_keyspace();
    (0..ENTRIES).for_each(|number| queue.put(key("q", number), "job").expect("puts"));
    let mut taken = 0;
    loop {
        match queue.drain(.., 2_000).expect("drains").len() as u64 {
            0 => break,
            some => taken += some,
        }
    }
    assert_eq!(taken, ENTRIES);
    let passed = store.metrics().counters.hidden_passed;
    assert!(passed <= 3 * ENTRIES, "{passed} hidden entries were passed");
}

/// Each batch puts a job into each of forty queues. Once, the limit of writes in a batch counted
/// each of them forty times, so such a batch ended the ranges of all the queues.
#[test]
fn queues_that_are_filled_together_cost_no_more() {
    let store = open(Background::Manual);
    let make = |number| store.open_keyspace(&format!("queue{number}"), None).expect("a keyspace");
    let queues: Vec<Keyspace> = (0..40).map(make).collect();
    assert_steady(passed(&store, |number| {
        let mut batch = Batch::new();
        for queue in &queues {
            batch.put(queue, key("q", number), "job").expect("fits");
        }
        store.write(&batch, WriteOptions::default()).expect("writes");
        let (queue, number) = (&queues[number as usize % 40], number / 40);
        assert_eq!(first(queue, b"", b"\xff", None), Some(key("q", number)));
        queue.delete(key("q", number)).expect("deletes");
    }));
}

/// A dead range with many entries is known. Then writes of each kind put a key into it.
#[test]
fn what_is_put_into_a_dead_range_is_seen() {
    holds_and_finds(Bug::DeadRangesIgnorePuts, |end| {
        let store = open(Background::Manual);
        let keyspace = store.default_keyspace();
        hide(keyspace, "k");
        let walk = || end(keyspace, b"", b"\xff", None);
        (0..3).for_each(|_| assert_eq!(walk(), None));
        keyspace.put(key("k", 50), "back").expect("puts");
        assert_eq!(walk(), Some(key("k", 50)));
        let mut batch = Batch::new();
        batch.delete(keyspace, key("k", 50)).expect("fits");
        batch.put(keyspace, key("k", 20), "back").expect("fits");
        batch.put(keyspace, key("k", 80), "back").expect("fits");
        store.write(&batch, WriteOptions::default()).expect("writes");
        assert_eq!(end(keyspace, b"", &key("k", 79), None), Some(key("k", 20)));
        assert_eq!(end(keyspace, &key("k", 21), b"\xff", None), Some(key("k", 80)));
    });
}

#[test]
fn a_snapshot_sees_what_a_dead_range_has_hidden_since() {
    holds_and_finds(Bug::DeadRangesForAllSnapshots, |end| {
        let store = open(Background::Manual);
        let keyspace = store.default_keyspace();
        (0..100).for_each(|number| keyspace.put(key("k", number), "v").expect("puts"));
        (0..100).filter(|n| n % 50 > 0).for_each(|number| {
            keyspace.delete(key("k", number)).expect("deletes");
        });
        keyspace.delete(key("k", 0)).expect("deletes");
        let snapshot = store.snapshot();
        keyspace.delete(key("k", 50)).expect("deletes");
        (0..3).for_each(|_| assert_eq!(end(keyspace, b"", b"\xff", None), None));
        assert_eq!(end(keyspace, b"", b"\xff", Some(&snapshot)), Some(key("k", 50)));
    });
}

/// A key is put into a stretch that has no watch yet, and a reader of an older snapshot walks over
/// it.
#[test]
fn a_walk_from_before_the_watch_proves_nothing() {
    holds_and_finds(Bug::DeadRangesProvedUnwatched, |end| {
        let store = open(Background::Manual);
        let keyspace = store.default_keyspace();
        hide(keyspace, "a");
        hide(keyspace, "b");
        let snapshot = store.snapshot();
        keyspace.put(key("a", 50), "new").expect("puts");
        assert_eq!(end(keyspace, b"b", b"c", None), None, "the watch begins");
        assert_eq!(end(keyspace, b"a", b"b", Some(&snapshot)), None);
        assert_eq!(end(keyspace, b"a", b"b", None), Some(key("a", 50)));
    });
}

/// A cursor takes its sequence number and then its view. In between, a new memtable receives a key
/// and a watch begins. The cursor does not see the key, and proves nothing about the present.
#[test]
fn a_cursor_from_before_a_memtable_does_not_prove_it_empty() {
    for end in [first as End, last as End] {
        let store = open(Background::Threads(1));
        let keyspace = store.default_keyspace();
        hide(keyspace, "a");
        hide(keyspace, "b");
        // The snapshot keeps the hidden entries through the flush.
        let _held = store.snapshot();
        let beside = Arc::clone(&store);
        seeded::step_in(Waypoint::ViewLoaded, move || {
            beside.flush().expect("flushes");
            let keyspace = beside.default_keyspace();
            keyspace.put(key("a", 50), "new").expect("puts");
            assert_eq!(end(keyspace, b"b", b"c", None), None, "the watch begins");
        });
        assert_eq!(end(keyspace, b"a", b"b", None), None, "as it was before the flush");
        assert!(seeded::has_stepped_in());
        assert_eq!(end(keyspace, b"a", b"b", None), Some(key("a", 50)));
    }
}

/// A cursor moves back from a later key, and passes only keys that are newer than the cursor.
#[test]
fn a_cursor_that_was_elsewhere_proves_only_what_it_passed() {
    let store = open(Background::Manual);
    let keyspace = store.default_keyspace();
    keyspace.put("m", "v").expect("puts");
    hide(keyspace, "n");
    keyspace.put("z", "v").expect("puts");
    (0..3).for_each(|_| assert_eq!(first(keyspace, b"n", b"z", None), None, "a dead range"));
    let mut cursor = keyspace.cursor(ReadOptions::default()).expect("opens");
    cursor.seek(b"z").expect("seeks");
    cursor.next().expect("steps");
    (0..10).for_each(|number| keyspace.put(key("a", number), "new").expect("puts"));
    keyspace.delete("b").expect("deletes");
    cursor.seek(b"a").expect("seeks");
    assert_eq!(cursor.key(), b"m");
    assert_eq!(first(keyspace, b"b", b"\xff", None), Some(b"m".to_vec()));
}

/// Once, a walk passed all expired entries, and so did each later walk.
#[test]
fn walks_jump_over_what_has_expired() {
    for (end, name) in [(first as End, "upward"), (last as End, "downward")] {
        for (is_flushed, count) in
            [10, 1_000, 100_000].map(|count| [(false, count), (true, count)]).concat()
        {
            let (store, clock) = open_with_clock();
            let keyspace = store.default_keyspace();
            (0..count).for_each(|number| put_for(keyspace, &key("k", number), 1 + number));
            if is_flushed {
                store.flush().expect("flushes");
            }
            clock.set(2000 + count);
            let passed = || store.metrics().counters.hidden_passed;
            let walk = || assert_eq!(end(keyspace, b"", b"\xff", None), None);
            (0..3).for_each(|_| walk());
            let at_first = passed();
            let most = 3 * count + 10;
            assert!(at_first >= count && at_first <= most, "{name} {count}: {at_first} at first");
            (0..10).for_each(|_| walk());
            let later = passed() - at_first;
            assert!(later <= 50, "{name} {count}: {later} in ten walks");
            // Keys that are put there are seen.
            put_for(keyspace, &key("k", 5), 1000);
            assert_eq!(end(keyspace, b"", b"\xff", None), Some(key("k", 5)));
        }
    }
}

/// A cursor saw entries that have expired since. It continues to see them until it ends.
#[test]
fn a_cursor_from_before_the_expiry_does_not_jump() {
    let check = || {
        let (store, clock) = open_with_clock();
        let keyspace = store.default_keyspace();
        (0..100).for_each(|number| put_for(keyspace, &key("k", number), 1000 + number));
        let mut early = cursor(keyspace, b"", b"\xff", None);
        early.seek_to_first().expect("seeks");
        assert_eq!(early.key(), key("k", 0), "its clock stands");
        clock.set(2050);
        let mut later = cursor(keyspace, b"", b"\xff", None);
        later.seek_to_first().expect("seeks");
        assert_eq!(later.key(), key("k", 51));
        clock.set(5000);
        for _ in 0..3 {
            assert_eq!(first(keyspace, b"", b"\xff", None), None);
            assert_eq!(last(keyspace, b"", b"\xff", None), None);
        }
        for (cursor, lowest) in [(&mut early, 0), (&mut later, 51)] {
            cursor.seek_to_last().expect("seeks");
            assert_eq!(cursor.key(), key("k", 99));
            cursor.seek_to_first().expect("seeks");
            assert_eq!(cursor.key(), key("k", lowest));
        }
        // The store's time does not go back with the clock.
        clock.set(1500);
        assert_eq!(first(keyspace, b"", b"\xff", None), None);
        early.seek_to_first().expect("seeks");
        assert_eq!(early.key(), key("k", 0));
    };
    check();
    let bug = Bug::DeadRangesIgnoreClocks;
    assert!(panics(|| seeded::with(bug, check)), "{bug:?} is not found");
}

/// Stretches of keys are deleted, expire and are partly put again. Meanwhile walks start anywhere,
/// under snapshots and through cursors that were opened long ago, and the clock moves forward and
/// back. A map holds the entries that each walk must see.
#[test]
fn walks_see_what_a_map_says() {
    for_seeds(40, |seed| Life::new(seed).run());
}

/// The random test notices if a range is mistaken for dead before all of its entries have expired.
#[test]
fn random_walks_find_ranges_that_ignore_clocks() {
    let bug = Bug::DeadRangesIgnoreClocks;
    let is_found = |seed| panics(|| seeded::with(bug, || Life::new(seed).run()));
    assert!((0..40).any(is_found), "{bug:?} is not found");
}

/// The step that put each key, and when the entry expires.
type Entries = BTreeMap<Vec<u8>, (u64, u64)>;

/// The entry of this key never expires. A cursor that reads it first has a fixed time from then on.
const TIMEKEEPER: &[u8] = b"!";

/// A store beside a map of its content.
struct Life {
    random: Random,
    store: Arc<Store>,
    clock: Arc<TestClock>,
    /// The latest time that the store saw.
    now_ms: u64,
    now: Entries,
    held: Vec<(Snapshot, Entries)>,
    /// Cursors, with the entries and the time at their beginning.
    cursors: Vec<(Cursor, Entries, u64)>,
}

impl Life {
    fn new(seed: u64) -> Life {
        let (store, clock) = open_with_clock();
        store.default_keyspace().put_with_ttl(TIMEKEEPER, "0", LASTING).expect("puts");
        let now = BTreeMap::from([(TIMEKEEPER.to_vec(), (0, u64::MAX))]);
        let (held, cursors) = (Vec::new(), Vec::new());
        Life { random: Random::new(seed), store, clock, now_ms: 1000, now, held, cursors }
    }

    fn run(mut self) {
        (0..400).for_each(|step| self.step(step));
    }

    fn step(&mut self, step: u64) {
        let store = Arc::clone(&self.store);
        let keyspace = store.default_keyspace();
        let at = self.random.below(400);
        // Half of the time nobody writes: only then do old cursors see the same entries as walks
        // that prove ranges dead.
        let writes = if (step / 20).is_multiple_of(2) { 0 } else { 11 };
        match writes + self.random.below(17 - writes) {
            0..2 => (at..at + self.random.below(60)).for_each(|number| {
                keyspace.put(key("", number), step.to_string()).expect("puts");
                self.now.insert(key("", number), (step, u64::MAX));
            }),
            2..5 => (at..at + self.random.below(100)).for_each(|number| {
                let ttl = 1 + self.random.below(40);
                let (value, ttl_ms) = (step.to_string(), Duration::from_millis(ttl));
                keyspace.put_with_ttl(key("", number), value, ttl_ms).expect("puts");
                self.now.insert(key("", number), (step, self.now_ms + ttl));
            }),
            5..7 => {
                let every = 1 + self.random.below(3) as usize;
                (at..at + self.random.below(200)).step_by(every).for_each(|number| {
                    keyspace.delete(key("", number)).expect("deletes");
                    self.now.remove(&key("", number));
                });
            }
            7 => self.held.push((store.snapshot(), self.now.clone())),
            8 if !self.held.is_empty() => {
                let at = self.random.below(self.held.len() as u64);
                drop(self.held.swap_remove(at as usize));
            }
            9 if self.random.one_in(6) => store.flush().expect("flushes"),
            10 if self.random.one_in(6) => store.compact().expect("compacts"),
            11 => self.turn_the_clock(),
            12 => self.hold_a_cursor(at),
            13 if !self.cursors.is_empty() => {
                let at = self.random.below(self.cursors.len() as u64) as usize;
                let (mut cursor, entries, then_ms) = self.cursors.swap_remove(at);
                check(&mut cursor, &visible(&entries, then_ms));
                if !self.random.one_in(4) {
                    self.cursors.push((cursor, entries, then_ms));
                }
            }
            _ => self.walk(at),
        }
    }

    /// Moves the clock, sometimes back, and lets the store see it.
    fn turn_the_clock(&mut self) {
        let now_ms = self.now_ms + self.random.below(60) - 20;
        self.clock.set(now_ms);
        self.now_ms = self.now_ms.max(now_ms);
        assert!(first(self.store.default_keyspace(), b"", b"~", None).is_some());
    }

    /// A cursor whose time is fixed from now on.
    fn hold_a_cursor(&mut self, at: u64) {
        let end = key("", at + self.random.below(400));
        let snapshot = self.random.one_in(2).then(|| self.store.snapshot());
        let mut cursor = cursor(self.store.default_keyspace(), b"", &end, snapshot.as_ref());
        cursor.seek_to_first().expect("seeks");
        let mut entries = self.now.clone();
        entries.split_off(&end);
        self.cursors.push((cursor, entries, self.now_ms));
    }

    fn walk(&mut self, at: u64) {
        let (from, end) = (key("", at), key("", at + self.random.below(400)));
        let old = self.held.get(self.random.below(self.held.len() as u64 * 2 + 1) as usize);
        let entries = old.map_or(&self.now, |(_, then)| then);
        let wanted = visible(entries, self.now_ms);
        let inside = |(key, _): &(Vec<u8>, u64)| (&from..&end).contains(&key);
        let wanted: Vec<_> = wanted.into_iter().filter(inside).collect();
        let snapshot = old.map(|(snapshot, _)| snapshot);
        let mut cursor = cursor(self.store.default_keyspace(), &from, &end, snapshot);
        check(&mut cursor, &wanted);
    }
}

/// The entries that have not expired.
fn visible(entries: &Entries, now_ms: u64) -> Vec<(Vec<u8>, u64)> {
    let lasting = entries.iter().filter(|(_, (_, expiry_ms))| *expiry_ms > now_ms);
    lasting.map(|(key, (step, _))| (key.clone(), *step)).collect()
}

fn check(cursor: &mut Cursor, inside: &[(Vec<u8>, u64)]) {
    let is_at = |cursor: &Cursor, (key, step): &(Vec<u8>, u64)| {
        assert!(cursor.valid(), "{} is missing", key.escape_ascii());
        assert_eq!((cursor.key(), cursor.value()), (&key[..], step.to_string().as_bytes()));
    };
    cursor.seek_to_first().expect("seeks");
    for entry in inside {
        is_at(cursor, entry);
        cursor.next().expect("steps");
    }
    assert!(!cursor.valid(), "{} is too much", cursor.key().escape_ascii());
    cursor.seek_to_last().expect("seeks");
    for (at, entry) in inside.iter().enumerate().rev() {
        is_at(cursor, entry);
        // Walks forward and back, to cover a change of direction.
        if at % 16 == 7 {
            cursor.next().expect("steps");
            is_at_or_behind(cursor, inside.get(at + 1).map(|(key, _)| &key[..]));
            if cursor.valid() { cursor.prev() } else { cursor.seek_for_prev(&entry.0) }
                .expect("steps");
            is_at(cursor, entry);
        }
        cursor.prev().expect("steps");
    }
    assert!(!cursor.valid(), "{} is too much", cursor.key().escape_ascii());
}

fn is_at_or_behind(cursor: &Cursor, next: Option<&[u8]>) {
    assert_eq!(cursor.valid().then(|| cursor.key()), next);
}

/// Ends the other thread when it is dropped.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// One thread makes dead ranges without end. Another puts keys into them and must see each key at
/// once.
#[test]
fn a_put_is_seen_beside_threads_that_make_dead_ranges() {
    let store = open(Background::Threads(1));
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _ends_also_in_a_panic = Ends(&done);
        scope.spawn(|| {
            let keyspace = store.default_keyspace();
            while !done.load(Relaxed) {
                hide(keyspace, "k");
                for _ in 0..10 {
                    first(keyspace, b"", b"\xff", None);
                    last(keyspace, b"", b"\xff", None);
                }
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
            let seen = last(keyspace, b"", &from, None);
            assert!(from <= own || seen.is_some_and(|seen| seen >= own));
            keyspace.delete(&own).expect("deletes");
        }
    });
}
