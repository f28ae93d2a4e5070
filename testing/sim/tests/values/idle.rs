//! What an idle store collects.

use std::sync::Arc;

use runstone::seeded::Bug;
use runstone::storage::MemoryStorage;
use runstone::{Background, KeyspaceOptions, Options, Store};
use runstone_sim::found::holds_and_finds;

/// Values that were deleted give their space back once nobody writes, and values that live stay.
#[test]
fn an_idle_store_collects_hash_groups() {
    // The reserve is so large that only an idle store collects.
    holds_and_finds(Bug::IdleGarbageKept, || {
        let toml = "[values]\nplacement = \"hash-grouped\"\nseparate_at = 100\n\
                    slot_bytes = 16384\ngroups = 4\nreserve = 100.0";
        let keyspace = KeyspaceOptions::from_toml(toml).expect("options");
        let options = Options::default().background(Background::Manual).keyspace(keyspace);
        let store = Store::open_on(Arc::new(MemoryStorage::new()), options).expect("opens");
        let keyspace = store.default_keyspace();
        (0..2_000u64).for_each(|n| keyspace.put(n.to_be_bytes(), [7; 1_000]).expect("puts"));
        store.flush().expect("flushes");
        (0..1_900u64).for_each(|n| keyspace.delete(n.to_be_bytes()).expect("deletes"));
        store.flush().expect("flushes");
        while store.run_one_job().expect("runs") {}
        let used_bytes = || keyspace.value_usage()[0].used_slots * 16_384;
        let before = used_bytes();
        assert!(before > 1_900_000, "nothing else has collected: {before} bytes");
        let jobs = (0..1_000).take_while(|_| store.run_idle_job().expect("runs")).count();
        assert!(jobs < 1_000, "an idle store comes to rest");
        assert!(used_bytes() <= before / 2, "{before} bytes, {} once idle", used_bytes());
        assert_eq!(keyspace.iter().expect("opens").count(), 100);
    });
}
