//! A tree by metadata alone: the simulator of the policies with the options of a keyspace, so that
//! a paper's headline can be computed at its own size. Keys are uniform, and all jobs that are due
//! run after each flush. The simulator knows the policy, the partitioner and how flushes are cut.
//! The caller knows where values are, and says how many entries of which size reach the tree.

use runstone::KeyspaceOptions;
use runstone::policy::custom;
use runstone_policy::registry;
use runstone_policy::shape::Shape;
use runstone_simulator::{FRESH_KEYS, KeyOrder, SimReport, SimWorkload, Simulator};

/// What is written.
pub(super) struct Writes {
    pub(super) bytes: u64,
    pub(super) flush_bytes: u64,
    pub(super) entry_bytes: u64,
    /// Possible keys; `None` for so many that hardly any is drawn twice.
    pub(super) keys: Option<u64>,
    /// Key prefixes; only compactions that cut by prefix look at them.
    pub(super) prefixes: u64,
}

/// Simulates the writes. The policy must be a registered one.
pub(super) fn simulate(options: &KeyspaceOptions, writes: &Writes) -> SimReport {
    simulate_shape(options, writes).0
}

/// Simulates the writes, and returns the resulting tree as well.
pub(super) fn simulate_shape(options: &KeyspaceOptions, writes: &Writes) -> (SimReport, Shape) {
    let mut simulator = simulator(options, writes);
    let flushes = writes.bytes / writes.flush_bytes;
    let report = simulator.run(flushes).expect("plans of a registered policy fit the shape");
    (report, simulator.shape().clone())
}

/// The tree before the writes.
pub(super) fn simulator(options: &KeyspaceOptions, writes: &Writes) -> Simulator<'static> {
    let workload = SimWorkload {
        flush_bytes: writes.flush_bytes,
        entry_bytes: writes.entry_bytes,
        key_space: writes.keys.unwrap_or(FRESH_KEYS),
        order: KeyOrder::Uniform,
        seed: 1,
        prefix_count: writes.prefixes,
    };
    let policy = registry::find(&options.policy).expect("a registered policy");
    let simulator = Simulator::new(policy, custom::options_of(options).clone(), workload);
    if options.partition_flushes { simulator.with_cut_flushes() } else { simulator }
}
