//! The simulator of policies predicts what the engine does with bulk loads of random keys.

use std::collections::BTreeSet;
use std::sync::Arc;

use runstone::policy::{Policy, custom};
use runstone::storage::MemoryStorage;
use runstone::unstable;
use runstone::{Background, Compression, KeyspaceOptions, Options, Store};
use runstone_policy::registry;
use runstone_sim::random::Random;
use runstone_simulator::{FRESH_KEYS, KeyOrder, Loads, SimWorkload, Simulator};

const FLUSHES: u64 = 160;
const ENTRIES: u64 = 500;
/// The number of flushes from one load to the next, and the size of a load in flushes. If both are
/// eight, the model predicts 22% more for `universal` than the engine writes, because this policy
/// then compares sums that are nearly equal.
const EVERY: u64 = 8;
const LARGE: u64 = 6;
/// The smallest share of loaded data, in thousandths, with which the model loads after every
/// [`EVERY`] flushes.
const SHARE_PERMILLE: u64 = (1000 * LARGE).div_ceil(EVERY + LARGE);
const VALUE: [u8; 104] = [7; 104];

/// A store with this policy after all flushes and loads. A load follows every [`EVERY`] flushes.
fn loaded(policy: &str) -> Store {
    let mut keyspace = KeyspaceOptions::default().policy(Policy::named(policy));
    keyspace.write_buffer_bytes = 1 << 20;
    keyspace.compression = vec![Compression::None];
    let shape = unstable::numbers_mut(&mut keyspace);
    shape.l0_trigger = 4;
    shape.base_bytes = 256 << 10;
    shape.table_bytes = 64 << 10;
    let background = Background::Manual;
    let options = Options::default().background(background).keyspace(keyspace);
    let store = Store::open_on(Arc::new(MemoryStorage::new()), options).expect("opens");
    let mut random = Random::new(11);
    for flush in 1..=FLUSHES {
        for _ in 0..ENTRIES {
            store.put(random.draw().to_be_bytes(), VALUE).expect("writes");
        }
        store.flush().expect("flushes");
        store.wait_idle().expect("works");
        if flush % EVERY == 0 {
            let keys = (0..ENTRIES * LARGE).map(|_| random.draw().to_be_bytes());
            let sorted: BTreeSet<[u8; 8]> = keys.collect();
            let entries = sorted.into_iter().map(|key| (key, VALUE));
            store.default_keyspace().bulk_load(entries).expect("loads");
            store.wait_idle().expect("works");
        }
    }
    store
}

/// The bytes that loads and compactions write differ by less than a tenth between engine and model.
/// When this was written, the bytes of compactions differed by 1%, and under `universal` by 6%.
#[test]
fn the_simulator_agrees_with_the_engine() {
    for name in ["fragmented-leveling", "leveling", "tiering", "universal", "garnering"] {
        let store = loaded(name);
        let counters = store.metrics().counters;
        let entry_bytes = counters.flush_bytes_written / FLUSHES / ENTRIES;
        let flush_bytes = entry_bytes * ENTRIES;
        let workload = SimWorkload {
            flush_bytes,
            entry_bytes,
            key_space: FRESH_KEYS,
            order: KeyOrder::Uniform,
            seed: 1,
            prefix_count: 1,
        };
        let shape = custom::options_of(&store.default_keyspace().options()).clone();
        let policy = registry::find(name).expect("known");
        let loads = Loads { share_permille: SHARE_PERMILLE, bytes: flush_bytes * LARGE };
        let mut simulator = Simulator::new(policy, shape, workload).with_loads(loads);
        let report = simulator.run(FLUSHES).expect("sound plans");
        for (engine, model) in [
            (counters.bulk_bytes_written, report.loaded_bytes),
            (counters.compaction_bytes_written, report.compacted_bytes),
        ] {
            assert!(engine.abs_diff(model) * 10 < engine, "{name}: {engine}, and {model} by model");
        }
    }
}
