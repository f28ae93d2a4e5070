//! The counters of the memory budget, while the sizes of cached objects change.

use std::sync::Arc;

use runstone::storage::{Category, MemoryStorage, Storage};
use runstone::{Background, Keyspace, KeyspaceOptions, Options, Store, ValuePlacement};

const BUDGET_BYTES: u64 = 16 << 20;
const KEYS: u32 = 20_000;

fn key(number: u32) -> [u8; 4] {
    number.wrapping_mul(2_654_435_761).to_be_bytes()
}

/// A keyspace of 20 MB in tables.
fn filled(store: &Store, name: &str, change: impl FnOnce(&mut KeyspaceOptions)) -> Keyspace {
    let mut options = KeyspaceOptions::default().write_buffer_bytes(1 << 20);
    options.compression = vec![runstone::Compression::None];
    change(&mut options);
    let keyspace = store.open_keyspace(name, Some(options)).expect("a keyspace");
    (0..KEYS).for_each(|number| keyspace.put(key(number), [7; 1_000]).expect("a put"));
    store.flush().expect("a flush");
    keyspace
}

/// Checks that the counted memory, and the memory that is mapped for blocks and values, stay within
/// the budget: slots of sizes that nobody reads any more are freed.
fn check(store: &Store, what: &str) {
    let memory = store.metrics().memory;
    let used = memory.memtable_bytes + memory.pinned_bytes;
    let all = used + memory.mapped_bytes.max(memory.cache_bytes);
    assert!(all <= BUDGET_BYTES + BUDGET_BYTES / 16, "{what}: {all} bytes, {memory:?}");
    assert!(memory.cache_bytes > (BUDGET_BYTES - used) / 2, "{what}: it is used, {memory:?}");
}

#[test]
fn the_budget_holds_while_sizes_change() {
    let options = Options::default()
        .memory_budget_bytes(BUDGET_BYTES)
        .wal_segment_bytes(256 << 10)
        .background(Background::Manual);
    let store = Store::open_on(Arc::new(MemoryStorage::new()), options).expect("a store");
    let all = [
        filled(&store, "small blocks", |options| options.block_bytes = 1 << 10),
        filled(&store, "usual blocks", |_| ()),
        filled(&store, "large blocks", |options| options.block_bytes = 32 << 10),
        filled(&store, "values", |options| {
            options.values.placement = ValuePlacement::HashGrouped;
            options.values.separate_at = 500;
        }),
    ];
    let mut kept = Vec::new();
    for round in 0..3 {
        for keyspace in &all {
            for number in 0..KEYS {
                // Reads twice, because a value that was read only once is not cached.
                for _ in 0..2 {
                    let value = keyspace.get(key(number % 9_000 + round * 5_000));
                    let value = value.expect("a get").expect("it is there");
                    if number % 1_000 == 0 {
                        kept.push(value);
                    }
                }
                if number % 500 == 0 {
                    check(&store, &format!("round {round}, {}, {number}", keyspace.name()));
                }
            }
        }
    }
    assert!(kept.iter().all(|value| *value == [7; 1_000]), "also what outlives its slab's others");
    drop((all, store));
    assert!(kept.iter().all(|value| *value == [7; 1_000]), "and the store");
}

/// Once, keyspaces whose memtables were not full took 361 MB together during a replay, under a
/// budget of 16 MB.
#[test]
fn a_replay_keeps_the_budget() {
    let storage = Arc::new(MemoryStorage::new());
    let options = || {
        Options::default()
            .memory_budget_bytes(BUDGET_BYTES)
            .flush_at_close(false)
            .background(Background::Manual)
    };
    let names: Vec<String> = (0..8).map(|number| format!("keyspace {number}")).collect();
    // Writes with room for everything, so that nothing is flushed.
    let wide = options().memory_budget_bytes(1 << 30);
    let store = Store::open_on(Arc::<MemoryStorage>::clone(&storage), wide).expect("a store");
    for name in &names {
        let keyspace = store.open_keyspace(name, None).expect("a keyspace");
        (0..5_000).for_each(|number| keyspace.put(key(number), [7; 1_000]).expect("a put"));
    }
    store.close().expect("it closes");
    let store = Store::open_on(storage, options()).expect("it opens");
    let memory = store.metrics().memory;
    assert!(memory.memtable_peak_bytes <= BUDGET_BYTES, "{memory:?}");
    for name in &names {
        let keyspace = store.keyspace(name).expect("it is there");
        assert_eq!(keyspace.iter().expect("a walk").count(), 5_000);
    }
}

/// Once, a budget below two write buffers was refused if options were given, as the command always
/// does, but accepted without options.
#[test]
fn the_least_budget_works_with_the_usual_options() {
    for keyspace in [None, Some(KeyspaceOptions::default())] {
        let options = Options::default()
            .memory_budget_bytes(1 << 20)
            .background(Background::Manual)
            .keyspace(keyspace);
        let store = Store::open_on(Arc::new(MemoryStorage::new()), options).expect("a store");
        for number in 0..KEYS {
            store.put(key(number), [7; 300]).expect("a put");
            let memory = store.metrics().memory;
            let all = memory.memtable_bytes + memory.pinned_bytes + memory.mapped_bytes;
            assert!(all <= 3 << 20, "{number}: {memory:?}");
        }
        for number in 0..KEYS {
            assert!(store.get(key(number)).expect("a get").is_some_and(|value| *value == [7; 300]));
        }
    }
    let options = Options::default().memory_budget_bytes((1 << 20) - 1);
    let refused = Store::open_on(Arc::new(MemoryStorage::new()), options);
    let told = refused.map(drop).expect_err("below the least").to_string();
    assert!(told.contains("must be at least 1048576"), "{told}");
}

/// A flush that writes to a thousand groups has a buffer for each group. Under a small budget,
/// buffers are written before they are full.
#[test]
fn buffers_of_value_groups_follow_the_budget() {
    let writes = |budget_bytes: u64| {
        let storage = Arc::new(MemoryStorage::new());
        let options = Options::default()
            .memory_budget_bytes(budget_bytes)
            .wal_segment_bytes(256 << 10)
            .background(Background::Manual);
        let shared: Arc<dyn Storage> = Arc::<MemoryStorage>::clone(&storage);
        let store = Store::open_on(shared, options).expect("a store");
        let mut values = KeyspaceOptions::default().write_buffer_bytes(32 << 20);
        values.values.placement = ValuePlacement::HashGrouped;
        (values.values.separate_at, values.values.groups) = (500, 1_000);
        let keyspace = store.open_keyspace("values", Some(values)).expect("a keyspace");
        (0..8_000).for_each(|number| keyspace.put(key(number), [7; 1_000]).expect("a put"));
        let before = storage.counters().snapshot(Category::Value).writes;
        store.flush().expect("a flush");
        let read = |number| keyspace.get(key(number)).expect("a get").expect("it is there").len();
        assert!((0..8_000).all(|number| read(number) == 1_000));
        storage.counters().snapshot(Category::Value).writes - before
    };
    let (large, small) = (writes(1 << 30), writes(24 << 20));
    // By chance a group gets no key at all: one of three stores has such a group.
    assert!((990..1_100).contains(&large), "one for each group: {large}");
    assert!(small > 4 * large, "{small} beside {large}");
}
