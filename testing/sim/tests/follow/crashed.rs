//! The writer dies under a living follower, and another one opens the store.

use std::sync::Arc;

use runstone::{Background, Follower, Options, Store};
use runstone_fault_storage::SimStorage;
use runstone_sim::clock::WorkloadClock;
use runstone_sim::oracle::{Oracle, State, assert_same};
use runstone_sim::random::Random;
use runstone_sim::workload::{
    Operation, Run, early, generate, generate_large, keyspaces, options, read_all, separated,
};

use super::follow;

const OPERATIONS: usize = 400;

fn open(storage: &SimStorage, options: &Options) -> Result<Store, runstone::Error> {
    let store = Store::open_on(Arc::new(storage.clone()), options.clone())?;
    keyspaces(&store)?;
    Ok(store)
}

/// A view, and the state that it must show.
type Held = (Follower, Store, State);

fn read(view: &Store, state: &State, place: &str) {
    let found = read_all(view, None).unwrap_or_else(|error| panic!("{place}: {error}"));
    assert_same(&found, state, place);
}

/// Kills the writer again and again. Before the next one opens the store, a follower takes a view.
fn check(options: &Options, operations: &[Operation]) {
    WorkloadClock::restart();
    let seed = options.seed.expect("seeded");
    let mut random = Random::new(seed ^ 0xdead);
    let mut storage = SimStorage::new(seed);
    let mut run =
        Run::new(open(&storage, options).expect("no faults"), Oracle::default()).with(options);
    let mut held: Vec<Held> = Vec::new();
    for (step, operation) in operations.iter().enumerate() {
        let disk = storage.clone();
        run.apply(operation, || open(&disk, options)).expect("no faults");
        let place = format!("seed {seed}, step {step}");
        for (follower, ..) in &held {
            if random.one_in(20) {
                follower.refresh().unwrap_or_else(|error| panic!("{place}: {error}"));
                read(&follower.store(), run.oracle.state(), &place);
            }
        }
        if !held.is_empty() && random.one_in(20) {
            let (_, view, state) = held.remove(0);
            read(&view, &state, &format!("{place}: an old view"));
        }
        if !random.one_in(25) {
            continue;
        }
        let state = run.oracle.state().clone();
        held.clear();
        storage = storage.process_crash();
        let follower = follow(&storage, options);
        let view = follower.store();
        if random.one_in(2) {
            read(&view, &state, &format!("{place}: the writer is dead"));
        }
        held.push((follower, view, state.clone()));
        let store = open(&storage, options).unwrap_or_else(|error| panic!("{place}: {error}"));
        read(&store, &state, &format!("{place}: the next writer"));
        run = Run::new(store, Oracle::from_state(state)).with(options);
    }
}

#[test]
fn the_writer_dies_under_a_follower() {
    for seed in 900..930 {
        check(&options(seed, Background::Manual), &generate(seed, OPERATIONS));
    }
}

#[test]
fn the_writer_dies_with_separated_values() {
    for seed in 1000..1006 {
        let operations = generate(seed, OPERATIONS);
        for options in separated(&options(seed, Background::Manual)) {
            check(&options, &operations);
        }
    }
}

#[test]
fn the_writer_dies_with_early_values() {
    for seed in 1000..1010 {
        check(&early(options(seed, Background::Manual)), &generate(seed, OPERATIONS));
    }
}

#[test]
fn the_writer_dies_with_large_batches() {
    for seed in 1100..1106 {
        check(&options(seed, Background::Manual), &generate_large(seed, OPERATIONS / 2));
    }
}
