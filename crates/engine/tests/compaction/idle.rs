//! Compactions of an idle store: they remove the tombstones that scans pass, and free the space of
//! deleted data.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use runstone::policy::Policy;
use runstone::storage::MemoryStorage;
use runstone::unstable;
use runstone::{Background, Clock, KeyspaceOptions, Options, ReadOptions, Store, ValuePlacement};

const KEYS: u32 = 20_000;

fn open(storage: &MemoryStorage, policy: &str, idle_after: Option<Duration>) -> Store {
    open_with(storage, KeyspaceOptions::default().policy(Policy::named(policy)), idle_after)
}

fn open_with(
    storage: &MemoryStorage,
    mut keyspace: KeyspaceOptions,
    idle_after: Option<Duration>,
) -> Store {
    keyspace.write_buffer_bytes = 256 << 10;
    let options = Options::default()
        .background(Background::Threads(2))
        .idle_after(idle_after)
        .keyspace(keyspace);
    Store::open_on(Arc::new(storage.clone()), options).expect("opens")
}

fn fill_and_delete(store: &Store) {
    (0..KEYS).for_each(|key| store.put(key.to_be_bytes(), [7; 100]).expect("puts"));
    let gone = (0..KEYS).filter(|key| key % 100 > 0);
    gone.for_each(|key| store.delete(key.to_be_bytes()).expect("deletes"));
}

/// The number of tombstones in tables, and of hidden entries that a first walk passes.
fn litter(store: &Store) -> (u64, u64) {
    let shape = unstable::shape(store.default_keyspace());
    let tombstones = shape.tables().map(|(_, table)| table.tombstones).sum();
    let hidden = || store.metrics().counters.hidden_passed;
    let before = hidden();
    let mut cursor = store.default_keyspace().cursor(ReadOptions::default()).expect("opens");
    cursor.seek(1u32.to_be_bytes()).expect("seeks");
    assert_eq!(cursor.key(), 100u32.to_be_bytes());
    drop(cursor);
    (tombstones, hidden() - before)
}

/// Waits until the condition is true. That takes far less than a minute.
fn wait_for(store: &Store, what: impl Fn(&Store) -> bool) {
    let start = Instant::now();
    while !what(store) {
        assert!(start.elapsed() < Duration::from_secs(60), "{:?}", litter(store));
        std::thread::sleep(Duration::from_millis(50));
    }
    store.wait_idle().expect("is idle");
}

#[test]
fn an_idle_store_ends_its_tombstones() {
    for policy in ["fragmented-leveling", "tiering", "adaptive-tiering", "universal"] {
        let storage = MemoryStorage::new();
        let store = open(&storage, policy, Some(Duration::from_millis(1)));
        fill_and_delete(&store);
        // The entries in the memtable count too, and so does the space of the deleted entries.
        let bytes = |store: &Store| unstable::shape(store.default_keyspace()).bytes();
        wait_for(&store, |store| litter(store) == (0, 0) && bytes(store) < 100_000);
        assert_eq!(store.default_keyspace().iter().expect("scans").count() as u32, KEYS / 100);
    }
}

/// An option turns idle compaction off. A store that is reopened with idle compaction makes up for
/// it.
#[test]
fn a_store_that_must_not_leaves_them() {
    let storage = MemoryStorage::new();
    let open = |idle_after| {
        // No compaction is due before the store is idle.
        let mut keyspace = KeyspaceOptions::default();
        unstable::numbers_mut(&mut keyspace).l0_trigger = 1_000;
        (keyspace.l0_slowdown_runs, keyspace.l0_stop_runs) = (2_000, 3_000);
        open_with(&storage, keyspace, idle_after)
    };
    let store = open(None);
    fill_and_delete(&store);
    store.flush().expect("flushes");
    store.wait_idle().expect("is idle");
    std::thread::sleep(Duration::from_millis(1200));
    assert!(litter(&store).0 > 10_000, "{:?}", litter(&store));
    store.close().expect("closes");
    let store = open(Some(Duration::from_millis(1)));
    wait_for(&store, |store| litter(store) == (0, 0));
}

/// A snapshot keeps the entries that it sees. The store tries once, and tries again when the
/// snapshot is released.
#[test]
fn an_idle_store_waits_for_snapshots() {
    let storage = MemoryStorage::new();
    let store = open(&storage, "fragmented-leveling", Some(Duration::from_millis(1)));
    (0..KEYS).for_each(|key| store.put(key.to_be_bytes(), [7; 100]).expect("puts"));
    let snapshot = store.snapshot();
    let gone = (0..KEYS).filter(|key| key % 100 > 0);
    gone.for_each(|key| store.delete(key.to_be_bytes()).expect("deletes"));
    store.flush().expect("flushes");
    std::thread::sleep(Duration::from_millis(2000));
    store.wait_idle().expect("is idle");
    let compactions = || store.metrics().counters.compactions;
    let (tombstones, before) = (litter(&store).0, compactions());
    assert!(tombstones > 10_000, "{tombstones}");
    std::thread::sleep(Duration::from_millis(1500));
    assert_eq!(compactions(), before, "what a snapshot keeps is compacted again and again");
    drop(snapshot);
    wait_for(&store, |store| litter(store) == (0, 0));
}

/// A clock that tests set, in seconds.
#[derive(Debug, Default)]
struct TestClock(AtomicU64);

impl Clock for TestClock {
    fn unix_millis(&self) -> u64 {
        self.0.load(Relaxed) * 1000
    }
}

/// The number of entries in tables, and of hidden entries that a walk to the first key passes.
fn held_and_passed(store: &Store) -> (u64, u64) {
    let held =
        unstable::shape(store.default_keyspace()).tables().map(|(_, table)| table.entries).sum();
    let hidden = || store.metrics().counters.hidden_passed;
    let before = hidden();
    let mut cursor = store.default_keyspace().cursor(ReadOptions::default()).expect("opens");
    cursor.seek_to_first().expect("seeks");
    assert!(cursor.valid());
    drop(cursor);
    (held, hidden() - before)
}

/// Most entries expire, some live long, and nobody writes. Once, a table kept its expired entries
/// until its last entry had expired, and a memtable kept them for ever.
#[test]
fn an_idle_store_ends_what_has_expired() {
    const LIVING: u64 = 100;
    for (is_flushed, lasts) in [(false, 0), (true, 0), (true, 1 << 30)] {
        let clock = Arc::new(TestClock::default());
        let keyspace = KeyspaceOptions::default().write_buffer_bytes(16 << 20);
        let options = Options::default()
            .background(Background::Threads(2))
            .idle_after(Duration::from_millis(1))
            .clock(Arc::clone(&clock) as Arc<dyn Clock>)
            .keyspace(keyspace);
        let store = Store::open_on(Arc::new(MemoryStorage::new()), options).expect("opens");
        let put = |key: u32, seconds: u64| {
            let key = key.to_be_bytes();
            match seconds {
                0 => store.put(key, [7; 20]),
                _ => store.default_keyspace().put_with_ttl(
                    key,
                    [7; 20],
                    Duration::from_secs(seconds),
                ),
            }
            .expect("puts");
        };
        (0..KEYS).for_each(|key| put(key, 1 + u64::from(key % 3600)));
        (0..LIVING as u32).for_each(|key| put(KEYS / LIVING as u32 * key + 50, lasts));
        if is_flushed {
            store.flush().expect("flushes");
        }
        store.wait_idle().expect("is idle");
        clock.0.store(4000, Relaxed);
        let start = Instant::now();
        while held_and_passed(&store).0 != LIVING {
            let found = held_and_passed(&store);
            assert!(start.elapsed() < Duration::from_secs(60), "{is_flushed} {lasts}: {found:?}");
            std::thread::sleep(Duration::from_millis(50));
        }
        assert_eq!(held_and_passed(&store), (LIVING, 0));
        assert_eq!(store.default_keyspace().iter().expect("scans").count() as u64, LIVING);
    }
}

/// Once, values of deleted keys kept their space until somebody started a collection: 56 MB without
/// any live value.
#[test]
fn an_idle_store_gives_back_the_space_of_deleted_values() {
    let storage = MemoryStorage::new();
    let mut keyspace = KeyspaceOptions::default();
    keyspace.values.placement = ValuePlacement::HashGrouped;
    keyspace.values.separate_at = 50;
    keyspace.values.groups = 4;
    let store = open_with(&storage, keyspace, Some(Duration::from_millis(1)));
    (0..KEYS).for_each(|key| store.put(key.to_be_bytes(), [7; 500]).expect("puts"));
    store.flush().expect("flushes");
    let used = |store: &Store| {
        let usage = store.default_keyspace().value_usage();
        usage.iter().map(|file| file.used_slots * file.slot_bytes).sum::<u64>()
    };
    let full = used(&store);
    assert!(full > u64::from(KEYS) * 500, "{full}");
    let gone = (0..KEYS).filter(|key| key % 100 > 0);
    gone.for_each(|key| store.delete(key.to_be_bytes()).expect("deletes"));
    // A slot of each group stays, with the garbage in it.
    wait_for(&store, |store| used(store) <= full / 4);
    for key in (0..KEYS).step_by(100) {
        assert!(store.get(key.to_be_bytes()).expect("reads").is_some_and(|v| *v == [7; 500]));
    }
    assert!(store.verify().expect("verifies").is_clean());
}

/// Once, a group with less garbage than a slot kept its slots for ever, even if nothing in it was
/// live. With the default of 64 groups and slots of 256 KiB, that was up to 16 MiB.
#[test]
fn an_idle_store_gives_back_groups_without_live_values() {
    let storage = MemoryStorage::new();
    let mut keyspace = KeyspaceOptions::default();
    keyspace.values.placement = ValuePlacement::HashGrouped;
    keyspace.values.separate_at = 50;
    let slot_bytes = keyspace.values.slot_bytes;
    let store = open_with(&storage, keyspace, Some(Duration::from_millis(1)));
    let used = |store: &Store| {
        let usage = store.default_keyspace().value_usage();
        usage.iter().map(|file| file.used_slots).sum::<u64>()
    };
    (0..KEYS).for_each(|key| store.put(key.to_be_bytes(), [7; 500]).expect("puts"));
    store.flush().expect("flushes");
    assert!(used(&store) >= 64 && u64::from(KEYS) * 500 < 64 * u64::from(slot_bytes));
    (0..KEYS).for_each(|key| store.delete(key.to_be_bytes()).expect("deletes"));
    wait_for(&store, |store| used(store) == 0);
    assert!(store.verify().expect("verifies").is_clean());
}
