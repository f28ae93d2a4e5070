//! The memory budget as its counters tell it, while what is cached changes its sizes.

use std::sync::Arc;

use runstone::storage::MemoryStorage;
use runstone::{Background, Keyspace, KeyspaceOptions, Options, Store, ValuePlacement};

const BUDGET_BYTES: u64 = 16 << 20;
const KEYS: u32 = 20_000;

fn key(number: u32) -> [u8; 4] {
    number.wrapping_mul(2_654_435_761).to_be_bytes()
}

/// A keyspace of 20 MB in tables.
fn filled(store: &Store, name: &str, change: impl FnOnce(&mut KeyspaceOptions)) -> Keyspace {
    let mut options = KeyspaceOptions { write_buffer_bytes: 1 << 20, ..KeyspaceOptions::default() };
    options.compression = vec![runstone::Compression::None];
    change(&mut options);
    let keyspace = store.open_keyspace(name, Some(options)).expect("a keyspace");
    (0..KEYS).for_each(|number| keyspace.put(key(number), [7; 1_000]).expect("a put"));
    store.flush().expect("a flush");
    keyspace
}

/// What the budget counts, and what is mapped for blocks and values, which must not exceed what
/// memtables and partitions leave: free slots of sizes that nobody reads any more go.
fn check(store: &Store, what: &str) {
    let memory = store.metrics().memory;
    let used = memory.memtable_bytes + memory.pinned_bytes;
    let all = used + memory.mapped_bytes.max(memory.cache_bytes);
    assert!(all <= BUDGET_BYTES + BUDGET_BYTES / 16, "{what}: {all} bytes, {memory:?}");
    assert!(memory.cache_bytes > (BUDGET_BYTES - used) / 2, "{what}: it is used, {memory:?}");
}

#[test]
fn the_budget_holds_while_sizes_change() {
    let options = Options {
        memory_budget_bytes: BUDGET_BYTES,
        wal_segment_bytes: 256 << 10,
        background: Background::Manual,
        ..Options::default()
    };
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
                // Twice: a value that was read once is not cached.
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
