//! The smallest form of a store, which `compact` leaves, in every placement.

use std::sync::Arc;

use runstone::storage::MemoryStorage;
use runstone::unstable;
use runstone::{Background, GcPointers, KeyspaceOptions, Options, Store, ValuePlacement};
use runstone_sim::random::Random;

/// Once, a requested compaction was followed by a collection, which wrote pointers: 61,224 entries
/// stayed for 20,000 keys, and a second compaction left 40,592.
#[test]
fn one_compaction_leaves_an_entry_for_each_key() {
    let (log, groups) = (ValuePlacement::Vlog, ValuePlacement::HashGrouped);
    for (placement, gc_pointers) in
        [(log, GcPointers::Stable), (groups, GcPointers::Writeback), (groups, GcPointers::Stable)]
    {
        let mut keyspace = KeyspaceOptions::default().write_buffer_bytes(1 << 20);
        keyspace.values.placement = placement;
        keyspace.values.gc_pointers = gc_pointers;
        keyspace.values.separate_at = 16;
        keyspace.values.vlog_chunk_bytes = 64 << 10;
        (keyspace.values.groups, keyspace.values.slot_bytes) = (4, 16 << 10);
        keyspace.values.cold_stream = false;
        let options = Options::default().background(Background::Manual).keyspace(keyspace);
        let store = Store::open_on(Arc::new(MemoryStorage::new()), options).expect("fresh");
        let mut random = Random::new(7);
        for round in 0..4 {
            for number in 0..4_000u32 {
                let number = if round == 0 { number } else { random.below(4_000) as u32 };
                store.put(number.to_be_bytes(), [round as u8; 200]).expect("writes");
            }
        }
        store.compact().expect("compacts");
        let entries = |store: &Store| {
            let shape = unstable::shape(store.default_keyspace());
            shape.tables().map(|(_, table)| table.entries).sum::<u64>()
        };
        assert_eq!(entries(&store), 4_000, "{placement:?}, {gc_pointers:?}");
        assert_eq!(store.verify().expect("verifies").log_entries, 0, "{placement:?}");
        assert!(store.verify().expect("verifies").is_clean());
        assert_eq!(store.default_keyspace().iter().expect("opens").count(), 4_000);
    }
}
