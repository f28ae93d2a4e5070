//! A follower beside a writer, on one simulated disk: each view is the store as of one moment, and
//! stays so. `kill.rs` kills real processes that write, follow or mirror.

mod attacks;
mod backups;
mod crashed;
mod failing;
mod healed;
mod hooked;
mod kill;
mod mixed;
mod unfinished;

use std::sync::Arc;

use runstone::seeded::Bug;
use runstone::{Background, Follower, Options, Store, ValuePlacement};
use runstone_fault_storage::SimStorage;
use runstone_policy::registry::POLICIES;
use runstone_sim::clock::WorkloadClock;
use runstone_sim::found::holds_and_finds;
use runstone_sim::oracle::{Oracle, State, assert_same};
use runstone_sim::random::Random;
use runstone_sim::workload::{
    Operation, Run, generate, generate_large, keyspaces, logless, options, options_for, placed,
    read_all, separated,
};

const OPERATIONS: usize = 400;

fn follow(storage: &SimStorage, options: &Options) -> Follower {
    let followed = Store::follow_on(Arc::new(storage.clone()), options.clone());
    followed.expect("it can be followed")
}

/// Runs a workload, and compares the view of a follower with the oracle, now and later.
fn check(options: &Options, operations: &[Operation]) {
    WorkloadClock::restart();
    let seed = options.seed.expect("seeded");
    let mut random = Random::new(seed ^ 0xf0_110e);
    let storage = SimStorage::new(seed);
    let open = || {
        let store = Store::open_on(Arc::new(storage.clone()), options.clone())?;
        keyspaces(&store)?;
        Ok(store)
    };
    let mut run = Run::new(open().expect("no faults"), Oracle::default()).with(options);
    let mut follower = follow(&storage, options);
    let mut views: Vec<(Store, State)> = Vec::new();
    for (step, operation) in operations.iter().enumerate() {
        run.apply(operation, open).expect("no faults");
        let place = format!("seed {seed}, step {step}");
        if random.one_in(40) {
            follower = follow(&storage, options);
        }
        if random.one_in(3) {
            follower.refresh().unwrap_or_else(|error| panic!("{place}: {error}"));
            // A view that is read later opens its tables then.
            if random.one_in(2) {
                let found = read_all(&follower.store(), None);
                let found = found.unwrap_or_else(|error| panic!("{place}: {error}"));
                assert_same(&found, run.oracle.state(), &place);
            }
            if random.one_in(3) {
                views.push((follower.store(), run.oracle.state().clone()));
            }
        }
        if views.len() > 3 || (!views.is_empty() && random.one_in(20)) {
            let (view, state) = views.remove(0);
            let found = read_all(&view, None);
            let found = found.unwrap_or_else(|error| panic!("{place}: an old view: {error}"));
            assert_same(&found, &state, &format!("{place}: an old view"));
        }
    }
}

/// The same check for a store without a log: a view is the store as of some flush.
fn check_flushed(options: &Options, operations: &[Operation]) {
    WorkloadClock::restart();
    let seed = options.seed.expect("seeded");
    let storage = SimStorage::new(seed);
    let open = || {
        let store = Store::open_on(Arc::new(storage.clone()), options.clone())?;
        keyspaces(&store)?;
        Ok(store)
    };
    let mut run = Run::new(open().expect("no faults"), Oracle::default()).with(options);
    let follower = follow(&storage, options);
    for (step, operation) in operations.iter().enumerate() {
        run.apply(operation, open).expect("no faults");
        follower.refresh().unwrap_or_else(|error| panic!("seed {seed}, step {step}: {error}"));
        let found = read_all(&follower.store(), None).expect("no faults");
        let mut oracle = run.oracle.clone();
        oracle.crash(true);
        oracle.judge(&found).unwrap_or_else(|what| panic!("seed {seed}, step {step}: {what}"));
    }
}

#[test]
fn views_are_moments_whatever_the_policy() {
    for (seed, policy) in (0..).zip(POLICIES) {
        let options = options_for(policy.name(), seed, Background::Manual);
        check(&options, &generate(seed, OPERATIONS));
    }
}

#[test]
fn views_are_moments_for_any_options() {
    for seed in 100..130 {
        check(&options(seed, Background::Manual), &generate(seed, OPERATIONS));
    }
}

#[test]
fn large_batches_are_followed() {
    for seed in 200..206 {
        check(&options(seed, Background::Manual), &generate_large(seed, OPERATIONS / 2));
    }
}

#[test]
fn separated_values_are_followed() {
    for seed in 300..306 {
        let operations = generate(seed, OPERATIONS);
        for options in separated(&options(seed, Background::Manual)) {
            check(&options, &operations);
        }
    }
}

#[test]
fn a_store_without_a_log_is_followed_from_flush_to_flush() {
    for seed in 400..406 {
        let options = logless(options(seed, Background::Manual), ValuePlacement::HashGrouped);
        let operations = generate(seed, OPERATIONS);
        check_flushed(&options, &operations);
    }
}

/// Files that a follower needs are removed or overwritten.
#[test]
fn a_writer_that_ignores_leases_is_found() {
    for placement in [ValuePlacement::Inline, ValuePlacement::Vlog] {
        let options = placed(options(300, Background::Manual), placement);
        let operations = generate(300, OPERATIONS);
        holds_and_finds(Bug::LeasesIgnored, || check(&options, &operations));
    }
}
