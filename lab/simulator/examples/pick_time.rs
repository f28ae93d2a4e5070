//! How long a pick takes on a tree of about 10,000 tables, per policy. A measurement, not a test:
//! run it with `cargo run --release -p runstone-simulator --example pick_time`.
//!
//! There are three states: nothing is due; level 0 is due; and, with other options for the same
//! tree, a deep level is due. For policies that compact whole levels, this is the longest plan that
//! they can make.

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use runstone_policy::options::{Numbers, PolicyOptions};
use runstone_policy::plan::{Busy, Heat};
use runstone_policy::policy::CompactionPolicy;
use runstone_policy::registry::POLICIES;
use runstone_policy::shape::{Edit, Placement, RunSlot, Shape, Table};
use runstone_simulator::{KeyOrder, SimWorkload, Simulator};

const FLUSH_BYTES: u64 = 16 << 20;
const ROUNDS: u32 = 200;

fn main() {
    println!("{:22} {:>7} {:>12} {:>22} {:>22}", "policy", "tables", "idle", "level 0", "deep");
    for policy in POLICIES {
        let options = Numbers { base_bytes: 256 << 20, table_bytes: 4 << 20, ..Numbers::default() }
            .into_options();
        let order = KeyOrder::Uniform;
        let workload = SimWorkload {
            flush_bytes: FLUSH_BYTES,
            entry_bytes: 128,
            key_space: 1 << 60,
            order,
            seed: 1,
            prefix_count: 128,
        };
        let mut simulator = Simulator::new(*policy, options.clone(), workload);
        // After this many flushes the levels of tiering are one run short of full.
        simulator.run(2392).expect("plans fit");
        let shape = simulator.shape();
        let fed = with_flushes(shape, 2 * options.l0_trigger() - 1);
        let shrunk = Numbers::of(&options).clone();
        let shrunk = Numbers { base_bytes: 1 << 20, size_ratio: 3, ..shrunk }.into_options();
        let tables = shape.tables().count();
        let cells = [(shape, &options), (&fed, &options), (shape, &shrunk)];
        let [idle, flushed, deep] = cells.map(|(shape, options)| measure(*policy, shape, options));
        println!("{:22} {tables:>7} {idle:>12} {flushed:>22} {deep:>22}", policy.name());
    }
}

/// Median time, and how many tables the plan names.
fn measure(policy: &dyn CompactionPolicy, shape: &Shape, options: &PolicyOptions) -> String {
    let (busy, heat) = (Busy::default(), Heat::default());
    let pick = || policy.pick(black_box(shape), &busy, &heat, options);
    let mut times: Vec<Duration> = (0..ROUNDS)
        .map(|_| {
            let started = Instant::now();
            black_box(pick());
            started.elapsed()
        })
        .collect();
    times.sort_unstable();
    let micros = times[times.len() / 2].as_nanos() as f64 / 1000.0;
    match pick() {
        None => format!("{micros:.1} us"),
        Some(plan) => format!("{micros:.1} us ({} ids)", plan.table_ids().count()),
    }
}

fn with_flushes(shape: &Shape, count: u32) -> Shape {
    (0..u64::from(count)).fold(shape.clone(), |shape, at| {
        let table = Table {
            id: u64::MAX - at,
            min_key: Box::new([0; 8]),
            max_key: Box::new([0xff; 8]),
            bytes: FLUSH_BYTES,
            entries: FLUSH_BYTES / 128,
            min_seq: 1,
            max_seq: 1,
            ..Table::default()
        };
        let slot = RunSlot::New(table.id);
        let place = vec![Placement { level: 0, slot, table: Arc::new(table) }];
        shape.into_applied(&Edit { place, ..Edit::default() }).expect("it fits")
    })
}
