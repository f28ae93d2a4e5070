//! The cost of a step does not depend on how often a feature is used. Each feature is tried with
//! 10, 1,000 and 100,000 uses, and the cost of a step must not double from one number to the next.
//!
//! Cost is counted, not timed: bytes and calls of the allocator, bytes written, and entries, blocks
//! and runs that reads pass. Jobs are run by hand, so that everything happens in this thread. A
//! loop over existing data allocates nothing and is not counted; the tests of range deletes,
//! operands and dead ranges count the steps of such loops, and `locks` those under a lock.

mod copies;
mod features;
mod full;
mod jobs;
#[cfg(debug_assertions)]
mod locks;
mod log_readers;
mod opens;
mod values;

use std::sync::Arc;

use allocation_counter::measure;
use runstone::storage::MemoryStorage;
use runstone::{Background, KeyspaceOptions, Options, Store};

/// How often a feature is used.
const COUNTS: [u64; 3] = [10, 1_000, 100_000];
/// A step that costs the same for every number is repeated this often.
const READS: u64 = 128;
/// A call of the allocator, and an entry or block that a read passes, count as this many bytes.
const STEP_BYTES: u64 = 64;
/// The cost of things that writes do once, however many there are: chunks of memtables, buffers of
/// a flush.
const ONCE_BYTES: u64 = 6 << 20;
/// The cost that a step may have in any case: with few uses there may be nothing to do.
const LEAST_BYTES: u64 = 512;

/// The costs of the steps of a feature, for one number of uses.
struct Costs<'a> {
    store: &'a Store,
    steps: Vec<(&'static str, u64, u64)>,
}

impl<'a> Costs<'a> {
    fn of(store: &'a Store) -> Costs<'a> {
        Costs { store, steps: Vec::new() }
    }

    /// Runs a step that does something this many times.
    fn step<T>(&mut self, name: &'static str, times: u64, work: impl FnOnce() -> T) -> T {
        let before = self.store.metrics().counters;
        let mut result = None;
        let allocated = measure(|| result = Some(work()));
        let counters = self.store.metrics().counters.since(&before);
        let passed = counters.hidden_passed
            + counters.iterated
            + counters.runs_sought
            + counters.tables_probed
            + counters.blocks_searched
            + counters.blocks_read
            + counters.operands_read;
        let written = counters.flush_bytes_written
            + counters.compaction_bytes_written
            + counters.value_bytes_written
            + counters.value_gc_bytes_written;
        let steps = allocated.count_total + passed;
        self.steps.push((name, times, allocated.bytes_total + written + steps * STEP_BYTES));
        result.expect("the work was done")
    }
}

fn open(keyspace: KeyspaceOptions) -> Store {
    let background = Background::Manual;
    let options = Options::default().background(background).keyspace(keyspace);
    Store::open_on(Arc::new(MemoryStorage::new()), options).expect("opens")
}

/// Tries a feature with each number, and compares the costs of its steps.
fn try_with(counts: &[u64], toml: &str, feature: fn(&mut Costs, u64)) {
    let mut earlier: Vec<(&'static str, u64, u64)> = Vec::new();
    for count in counts {
        let store = open(KeyspaceOptions::from_toml(toml).expect("options"));
        let mut costs = Costs::of(&store);
        feature(&mut costs, *count);
        for ((name, times, cost), (_, times_before, before)) in costs.steps.iter().zip(&earlier) {
            let (one, one_before) = (cost / times, before / times_before);
            println!("{count} {name}: {one} each, {one_before} before");
            let once = if *times == READS { 0 } else { ONCE_BYTES };
            let most = 2 * one_before.max(LEAST_BYTES) * times + once;
            assert!(*cost <= most, "{name}: {one} with {count}, {one_before} with fewer");
        }
        earlier = costs.steps;
    }
}
