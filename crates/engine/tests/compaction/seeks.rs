//! Seek compaction: with this option, tables that reads probe in vain move to a deeper level.

use std::sync::Arc;

use runstone::policy::Policy;
use runstone::storage::MemoryStorage;
use runstone::unstable;
use runstone::{
    Background, KeyspaceOptions, Options, ReadOptions, Store, ValueOptions, ValuePlacement,
};
use runstone_policy::options::Numbers;

/// The keys of the deeper table are even, and those of the upper table are odd.
const KEYS: u32 = 2_000;
const ALLOWED: u32 = 100;

fn with_seeks() -> KeyspaceOptions {
    KeyspaceOptions::default().policy(Policy::fragmented_leveling().seek_compaction(true))
}

fn open(storage: &MemoryStorage, keyspace: Option<KeyspaceOptions>) -> Store {
    let options = Options::default().background(Background::Manual).keyspace(keyspace);
    Store::open_on(Arc::new(storage.clone()), options).expect("opens")
}

/// Changes the options of an open store.
fn change(store: &Store, change: impl Fn(&mut Numbers)) {
    let keyspace = store.default_keyspace();
    let mut options = KeyspaceOptions::clone(&keyspace.options());
    change(unstable::numbers_mut(&mut options));
    store.open_keyspace(keyspace.name(), Some(options)).expect("changes");
}

fn put(store: &Store, keys: impl Iterator<Item = u32>) {
    keys.for_each(|key| store.put(key.to_be_bytes(), [7; 100]).expect("puts"));
    store.flush().expect("flushes");
}

/// Makes a table of level 0 above a table of a deeper level, with the same range but different
/// keys.
fn fill(store: &Store) {
    put(store, (0..=KEYS).step_by(2));
    store.compact().expect("compacts");
    put(store, (1..KEYS).step_by(2));
    assert_eq!(tables(store), [1, 1]);
}

/// The number of tables of each level that has tables, from level 0 on.
fn tables(store: &Store) -> Vec<usize> {
    let shape = unstable::shape(store.default_keyspace());
    let mut counts: Vec<usize> =
        shape.levels.iter().map(|level| level.table_count()).filter(|count| *count > 0).collect();
    if shape.level(0).is_empty() && !counts.is_empty() {
        counts.insert(0, 0);
    }
    counts
}

/// Gets this many keys that the upper table does not contain. Then runs all jobs.
fn get_in_vain(store: &Store, gets: u32) {
    for get in 0..gets {
        let key = 2 + get * 2 % (KEYS - 2);
        assert!(store.get(key.to_be_bytes()).expect("gets").is_some());
    }
    do_jobs(store);
}

fn do_jobs(store: &Store) {
    while store.run_one_job().expect("runs") {}
}

fn check_contents(store: &Store) {
    assert_eq!(store.default_keyspace().iter().expect("scans").count() as u32, KEYS + 1);
}

#[test]
fn a_table_that_is_asked_in_vain_sinks() {
    let leveling = Policy::leveling().seek_compaction(true);
    for options in [with_seeks(), KeyspaceOptions::default().policy(leveling)] {
        let store = open(&MemoryStorage::new(), Some(options));
        fill(&store);
        // A key in a memtable or in the first table charges nothing.
        store.put(0u32.to_be_bytes(), [7; 100]).expect("puts");
        for _ in 0..10 * ALLOWED {
            store.get(1u32.to_be_bytes()).expect("gets").expect("is there");
            store.get(0u32.to_be_bytes()).expect("gets").expect("is there");
            assert!(store.get((KEYS * 2).to_be_bytes()).expect("gets").is_none());
        }
        get_in_vain(&store, ALLOWED - 2);
        assert_eq!(tables(&store), [1, 1], "one get is missing");
        get_in_vain(&store, 2);
        assert_eq!(tables(&store), [0, 1]);
        check_contents(&store);
    }
}

#[test]
fn without_the_option_it_stays() {
    let storage = MemoryStorage::new();
    let store = open(&storage, Some(KeyspaceOptions::default()));
    fill(&store);
    get_in_vain(&store, 100 * ALLOWED);
    let scan = || store.default_keyspace().iter().expect("scans").count();
    (0..100).for_each(|_| assert_eq!(scan() as u32, KEYS + 1));
    do_jobs(&store);
    assert_eq!(tables(&store), [1, 1]);
    // Counting begins when the option is set, and ends when it is unset.
    change(&store, |shape| shape.seek_compaction = true);
    get_in_vain(&store, ALLOWED / 2);
    change(&store, |shape| shape.seek_compaction = false);
    get_in_vain(&store, ALLOWED);
    assert_eq!(tables(&store), [1, 1]);
    change(&store, |shape| shape.seek_compaction = true);
    get_in_vain(&store, ALLOWED);
    assert_eq!(tables(&store), [0, 1]);
}

#[test]
fn the_option_survives_a_reopen_and_counters_do_not() {
    let storage = MemoryStorage::new();
    let policy = Policy::fragmented_leveling().seek_compaction(true).least_seeks(50).seek_bytes(1);
    // A table of 100 KB may have as many seeks as it has bytes.
    let store = open(&storage, Some(KeyspaceOptions::default().policy(policy)));
    fill(&store);
    get_in_vain(&store, 10 * ALLOWED);
    assert_eq!(tables(&store), [1, 1]);
    change(&store, |shape| shape.seek_bytes = 16 << 10);
    store.close().expect("closes");
    let store = open(&storage, None);
    let options = store.default_keyspace().options();
    let shape = unstable::numbers(&options);
    assert!(shape.seek_compaction);
    assert_eq!((shape.least_seeks, shape.seek_bytes), (50, 16 << 10));
    get_in_vain(&store, 49);
    assert_eq!(tables(&store), [1, 1]);
    store.close().expect("closes");
    let read_only = Options::default().background(Background::Manual).read_only(true);
    let reader = Store::open_on(Arc::new(storage.clone()), read_only).expect("opens");
    (0..KEYS).for_each(|key| assert!(reader.get(key.to_be_bytes()).expect("gets").is_some()));
    reader.close().expect("closes");
    let store = open(&storage, None);
    get_in_vain(&store, 49);
    assert_eq!(tables(&store), [1, 1]);
    get_in_vain(&store, 1);
    assert_eq!(tables(&store), [0, 1]);
}

/// A long walk samples an entry about every MiB, and short walks about every 2 MiB, as in LevelDB.
#[test]
fn cursors_charge_by_the_bytes_that_they_read() {
    let policy = Policy::fragmented_leveling().seek_compaction(true).least_seeks(5);
    for length in [KEYS, 40] {
        let store =
            open(&MemoryStorage::new(), Some(KeyspaceOptions::default().policy(policy.clone())));
        fill(&store);
        let read = |bytes: u32| {
            for walk in 0..bytes / (104 * length) {
                let mut cursor =
                    store.default_keyspace().cursor(ReadOptions::default()).expect("opens");
                cursor.seek((walk * 40 % (KEYS - length + 1)).to_be_bytes()).expect("seeks");
                (1..length).for_each(|_| cursor.next().expect("steps"));
                assert!(cursor.valid());
            }
            do_jobs(&store);
        };
        read(2 << 20);
        assert_eq!(tables(&store), [1, 1], "walks of {length}");
        read(22 << 20);
        assert_eq!(tables(&store), [0, 1], "walks of {length}");
        check_contents(&store);
    }
}

/// A table that was searched in vain often enough moves if nothing in the next level overlaps it,
/// and its count begins again. In the deepest level it stays.
#[test]
fn a_table_that_moves_starts_anew() {
    let store = open(&MemoryStorage::new(), Some(with_seeks()));
    put(&store, 0..10);
    let mut jobs = 0;
    for round in 0..20 {
        // The newest table has only the ends of the range, so gets probe both tables.
        put(&store, [0, 9].into_iter());
        for _ in 0..ALLOWED {
            store.get(5u32.to_be_bytes()).expect("gets").expect("is there");
        }
        while store.run_one_job().expect("runs") {
            jobs += 1;
        }
        assert_eq!(tables(&store), [0, 1], "round {round}");
    }
    assert!(jobs < 20 * 5, "{jobs} jobs");
    for _ in 0..10 * ALLOWED {
        store.get(5u32.to_be_bytes()).expect("gets").expect("is there");
    }
    assert!(!store.run_one_job().expect("runs"), "nothing lies above");
}

/// A collection of a value log looks up each record that it reads.
#[test]
fn look_ups_of_collections_charge() {
    let compactions = |seeks: bool| {
        let policy = Policy::fragmented_leveling().seek_compaction(seeks);
        let values = ValueOptions::default()
            .placement(ValuePlacement::Vlog)
            .separate_at(1)
            .slot_bytes(64 << 10)
            .capacity_bytes(1 << 20)
            .vlog_chunk_bytes(128 << 10);
        let options = KeyspaceOptions::default()
            .policy(policy)
            .write_buffer_bytes(64 << 10)
            .filter_bits_per_key(0.0)
            .values(values);
        let store = open(&MemoryStorage::new(), Some(options));
        for write in 0..40_000u32 {
            let key = write.wrapping_mul(2_654_435_761) % 2_000;
            store.put(key.to_be_bytes(), [7; 200]).expect("puts");
            if write % 16 == 0 {
                do_jobs(&store);
            }
        }
        let counters = store.metrics().counters;
        assert!(counters.value_collections > 10, "{}", counters.value_collections);
        assert_eq!(counters.gets, 0);
        counters.compactions
    };
    let (without, with) = (compactions(false), compactions(true));
    assert!(with > without + 10, "{with} and {without}");
}

/// Counters are only hints: if threads charge the same tables at once while jobs run, no answer
/// changes.
#[test]
fn threads_charge_at_once() {
    let policy = Policy::fragmented_leveling().seek_compaction(true).least_seeks(1);
    let keyspace =
        KeyspaceOptions::default().policy(policy).write_buffer_bytes(64 << 10).block_bytes(1024);
    let options = Options::default().background(Background::Threads(2)).keyspace(keyspace);
    let store = Store::open_on(Arc::new(MemoryStorage::new()), options).expect("opens");
    put(&store, 0..KEYS);
    std::thread::scope(|scope| {
        for thread in 0..4u32 {
            let store = &store;
            scope.spawn(move || {
                for step in 0..20_000u32 {
                    let key = (step * 7 + thread * 501) % KEYS;
                    if step % 8 == 0 {
                        store.put(key.to_be_bytes(), [thread as u8; 100]).expect("puts");
                    }
                    assert!(store.get(key.to_be_bytes()).expect("gets").is_some());
                }
            });
        }
    });
    store.wait_idle().expect("is idle");
    assert_eq!(store.default_keyspace().iter().expect("scans").count() as u32, KEYS);
    let shape = unstable::shape(store.default_keyspace());
    assert!(shape.level(0).runs().len() < 8);
}
