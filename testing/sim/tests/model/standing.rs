//! Cursors that stand still while the store is written to. Flushes and compactions release the
//! memory and files that such cursors hold. The cursors must show the same as before, continue in
//! both directions with the contents from when they began, and hold almost nothing.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use runstone::seeded::Bug;
use runstone::storage::MemoryStorage;
use runstone::{Background, Cursor, Options, ReadOptions, Store};
use runstone_policy::registry::POLICIES;
use runstone_sim::found::holds_and_trips;
use runstone_sim::random::{Random, for_seeds};
use runstone_sim::workload::options_for;

type Content = BTreeMap<Vec<u8>, Vec<u8>>;

/// A cursor, all entries that it may ever show, and its position.
struct Standing {
    cursor: Cursor,
    content: Arc<Content>,
    at: Option<Vec<u8>>,
}

impl Standing {
    /// Checks that it shows its entry, whatever happened since its last step.
    fn check(&self) {
        let expected = self.at.as_ref().map(|key| (&key[..], &self.content[key][..]));
        let found = self.cursor.valid().then(|| (self.cursor.key(), self.cursor.value()));
        assert!(found == expected, "{:?} for {:?}", found.map(|f| f.0), expected.map(|e| e.0));
        let (pinned, value) = (self.cursor.pin_value(), expected.map_or(&[][..], |(_, v)| v));
        assert!(pinned == value, "a pinned value of {} bytes", value.len());
    }

    fn go(&mut self, random: &mut Random) {
        let key = format!("k{:03}", random.below(400)).into_bytes();
        let next = |from: Bound<&Vec<u8>>| {
            let mut rest = self.content.range::<Vec<u8>, _>((from, Bound::Unbounded));
            rest.next().map(|(key, _)| key.clone())
        };
        let before = |to: Bound<&Vec<u8>>| {
            let mut rest = self.content.range::<Vec<u8>, _>((Bound::Unbounded, to));
            rest.next_back().map(|(key, _)| key.clone())
        };
        let cursor = &mut self.cursor;
        let (moved, at) = match (random.below(10), &self.at) {
            (0..4, Some(at)) => (cursor.next(), next(Bound::Excluded(at))),
            (4..8, Some(at)) => (cursor.prev(), before(Bound::Excluded(at))),
            (8, _) => (cursor.seek_for_prev(&key), before(Bound::Included(&key))),
            _ => (cursor.seek(&key), next(Bound::Included(&key))),
        };
        moved.expect("reads");
        self.at = at;
    }
}

fn options(seed: u64, random: &mut Random) -> Options {
    let background = match random.one_in(3) {
        true => Background::Threads(1),
        false => Background::Manual,
    };
    let policy = POLICIES[random.below(POLICIES.len() as u64) as usize];
    let mut options = options_for(policy.name(), seed, background);
    let keyspace = options.keyspace.as_mut().expect("given");
    keyspace.compaction_filter = String::new();
    options
}

fn write(store: &Store, content: &mut Arc<Content>, random: &mut Random) {
    let content = Arc::make_mut(content);
    for _ in 0..random.below(60) {
        let key = format!("k{:03}", random.below(400)).into_bytes();
        if random.one_in(4) {
            store.delete(&key).expect("deletes");
            content.remove(&key);
            continue;
        }
        let len = if random.one_in(20) { 5000 } else { random.below(300) };
        let value: Vec<u8> = (0..len).map(|i| (random.draw() >> (i % 40)) as u8).collect();
        store.put(&key, &value).expect("puts");
        content.insert(key, value);
    }
    if random.one_in(6) {
        let mut ends = [random.below(400), random.below(400)];
        ends.sort_unstable();
        let [low, high] = ends.map(|end| format!("k{end:03}").into_bytes());
        store.default_keyspace().delete_range(low.clone()..high.clone()).expect("deletes");
        content.retain(|key, _| *key < low || *key >= high);
    }
}

fn live(seed: u64) {
    let mut random = Random::new(seed);
    let options = options(seed, &mut random);
    let store = Store::open_on(Arc::new(MemoryStorage::new()), options).expect("opens");
    let mut content = Arc::new(Content::new());
    let mut cursors: Vec<Standing> = Vec::new();
    for _ in 0..150 {
        match random.below(10) {
            0..4 => write(&store, &mut content, &mut random),
            4 => store.flush().expect("flushes"),
            5 => drop(store.run_one_job()),
            6 if random.one_in(3) => store.compact().expect("compacts"),
            7 if cursors.len() < 8 => {
                let cursor = store.default_keyspace().cursor(ReadOptions::default());
                let (cursor, content) = (cursor.expect("opens"), Arc::clone(&content));
                cursors.push(Standing { cursor, content, at: None });
            }
            8 if random.one_in(4) && !cursors.is_empty() => {
                drop(cursors.swap_remove(random.below(cursors.len() as u64) as usize));
            }
            _ => cursors.iter_mut().filter(|_| random.one_in(2)).for_each(|standing| {
                let mut own = Random::new(seed ^ standing.content.len() as u64);
                (0..own.below(5)).for_each(|_| standing.go(&mut own));
            }),
        }
        cursors.iter().for_each(Standing::check);
    }
    for standing in &mut cursors {
        standing.cursor.seek_to_first().expect("seeks");
        for (key, value) in &*standing.content {
            assert_eq!((standing.cursor.key(), standing.cursor.value()), (&key[..], &value[..]));
            standing.cursor.next().expect("steps");
        }
        assert!(!standing.cursor.valid());
    }
}

#[test]
fn a_cursor_that_stands_shows_its_moment_and_goes_on_in_it() {
    holds_and_trips(Bug::ParkedCursorSeesThePresent, "another moment than its own", || {
        for_seeds(60, live)
    });
}

/// Once, ten cursors, each at a place of its own in a memtable of its own, used 320 MiB of a budget
/// of 96 MiB; a hundred used 955 MiB.
#[test]
fn cursors_hold_next_to_nothing_of_what_was_flushed() {
    for count in [10u32, 100, 1_000] {
        let options = Options::default().background(Background::Manual);
        let store = Store::open_on(Arc::new(MemoryStorage::new()), options).expect("opens");
        let key = |i: u32| i.wrapping_mul(0x9e37_79b9).to_be_bytes();
        let mut cursors = Vec::new();
        for i in 0..count {
            (0..20).for_each(|j| store.put(key(20 * i + j), [7; 1_000]).expect("puts"));
            let mut cursor =
                store.default_keyspace().cursor(ReadOptions::default()).expect("opens");
            cursor.seek(key(i)).expect("seeks");
            cursors.push(cursor);
            if i % (count / 10) == 0 {
                store.flush().expect("flushes");
            }
        }
        store.flush().expect("flushes");
        let held = store.metrics().memory.held_bytes / u64::from(count);
        assert!(held <= 8 << 10, "{held} bytes for each of {count}");
        let shown = cursors.iter().zip(0..).all(|(cursor, i)| cursor.key() == key(i));
        assert!(shown, "the entries stay");
        drop(cursors);
        assert_eq!(store.metrics().memory.held_bytes, 0);
    }
}
