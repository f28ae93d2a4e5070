//! Stores that change to any policy and any placement of values, both while they are open and from
//! one opening to the next, with and without crashes.

use std::sync::Arc;

use runstone::storage::{MemoryStorage, Storage};
use runstone::{Background, Error, Options, Store};
use runstone_fault_storage::{Fault, FaultKind, SimStorage};
use runstone_sim::changes::{Life, Step, generate, options};
use runstone_sim::oracle::Oracle;
use runstone_sim::random::{Random, for_seeds, number};
use runstone_sim::workload::{keyspaces, read_all};

fn open(storage: &(impl Storage + Clone + 'static), options: &Options) -> Result<Store, Error> {
    let storage: Arc<dyn Storage> = Arc::new(storage.clone());
    let store = Store::open_on(storage, options.clone())?;
    keyspaces(&store)?;
    Ok(store)
}

/// Compacts and collects everything, and checks that everything is still there.
fn check_end(store: &Store, oracle: &Oracle, place: &str) {
    store.compact().unwrap_or_else(|error| panic!("{place}: compact: {error}"));
    store.wait_idle().unwrap_or_else(|error| panic!("{place}: {error}"));
    let found = read_all(store, None).unwrap_or_else(|error| panic!("{place}: {error}"));
    assert_eq!(&found, oracle.state(), "{place}: compacted and collected");
    let report = store.verify().unwrap_or_else(|error| panic!("{place}: {error}"));
    assert!(report.is_clean(), "{place}: {:?}", report.damage);
}

/// Runs the steps of a seed in memory. Each reopening uses other options.
fn live(seed: u64, count: usize, background: Background) {
    let storage = MemoryStorage::new();
    let mut random = Random::new(seed ^ 0x11fe);
    let mut options_of = || options(seed, random.draw(), background);
    let mut life = Life::new(open(&storage, &options_of()).expect("fresh"), Oracle::default());
    for (i, step) in generate(seed, seed, count).iter().enumerate() {
        let outcome = life.apply(step, || open(&storage, &options_of()));
        outcome.unwrap_or_else(|error| panic!("seed {seed}, step {i}, {step:?}: {error}"));
    }
    let store = life.run.store.take().expect("open");
    check_end(&store, &life.run.oracle, &format!("seed {seed}"));
}

#[test]
fn options_change_on_the_way() {
    let steps = number("RUNSTONE_STEPS", 600) as usize;
    for_seeds(40, |seed| live(seed, steps, Background::Manual));
}

#[test]
fn options_change_beside_threads() {
    let steps = number("RUNSTONE_STEPS", 600) as usize;
    for_seeds(10, |seed| live(seed, steps, Background::Threads(2)));
}

/// The machine fails at some I/O operation.
fn crash(seed: u64, count: usize, every: usize) {
    let kind = FaultKind::Crash;
    fault(seed, count, every, &[kind]);
}

/// One I/O operation fails, and the life continues if it may. At its end, or at the error that ends
/// it, the machine fails. The remains are opened under other options and used.
fn fault(seed: u64, count: usize, every: usize, kinds: &[FaultKind]) {
    let mut random = Random::new(seed ^ 0xc4a5);
    let before = options(seed, random.draw(), Background::Manual);
    let steps = generate(seed, random.draw(), count);
    let more = generate(seed, random.draw(), count / 2);
    let storage = SimStorage::new(seed);
    let (_, ended) = run_until_error(&storage, &before, &steps);
    assert!(ended.is_ok(), "seed {seed}: {ended:?}");
    let first = random.below(every as u64);
    for at_op in (first..storage.ops()).step_by(every) {
        let storage = SimStorage::new(seed);
        let kind = kinds[random.below(kinds.len() as u64) as usize];
        let sticky = kind == FaultKind::Crash;
        storage.inject(Fault { at_op, kind, sticky, category: None });
        let (oracle, _) = run_until_error(&storage, &before, &steps);
        storage.clear_faults();
        for cut in [None, Some(at_op), Some(at_op.wrapping_mul(31) + 7)] {
            let place = format!("seed {seed}, {kind:?} at operation {at_op}, power cut {cut:?}");
            let left = match cut {
                None => storage.process_crash(),
                Some(cut) => storage.power_cut(cut).0,
            };
            let after = options(seed, random.draw(), Background::Manual);
            go_on(&left, &after, &more, (&oracle, cut.is_some()), &place);
        }
    }
}

/// Opens the remains (P8), judges them, and continues with them.
fn go_on(
    left: &SimStorage,
    options: &Options,
    steps: &[Step],
    (oracle, power_lost): (&Oracle, bool),
    place: &str,
) {
    let store = open(left, options).unwrap_or_else(|error| panic!("{place}: P8: {error}"));
    let found = read_all(&store, None).unwrap_or_else(|error| panic!("{place}: {error}"));
    let mut oracle = oracle.clone();
    oracle.crash(power_lost);
    let survived = oracle.judge(&found).unwrap_or_else(|what| panic!("{place}: {what}"));
    oracle.settle(survived);
    let mut life = Life::new(store, oracle);
    for (i, step) in steps.iter().enumerate() {
        let outcome = life.apply(step, || open(left, options));
        outcome.unwrap_or_else(|error| panic!("{place}, then step {i}, {step:?}: {error}"));
    }
    check_end(life.run.store.as_ref().expect("open"), &life.run.oracle, place);
}

/// Only one kind of error lets the life continue: a full disk that did not hit a write.
fn run_until_error(
    storage: &SimStorage,
    options: &Options,
    steps: &[Step],
) -> (Oracle, Result<(), Error>) {
    let store = match open(storage, options) {
        Ok(store) => store,
        Err(error) => return (Oracle::default(), Err(error)),
    };
    let mut life = Life::new(store, Oracle::default());
    let outcome =
        steps.iter().try_for_each(|step| match life.apply(step, || open(storage, options)) {
            Err(error) if error.is_no_space() && matches!(step, Step::Change(..)) => Ok(()),
            outcome => outcome,
        });
    (life.run.oracle, outcome)
}

#[test]
fn options_change_across_crashes() {
    let steps = number("RUNSTONE_STEPS", 150) as usize;
    let every = number("RUNSTONE_EVERY", 40) as usize;
    for_seeds(6, |seed| crash(seed, steps, every));
}

#[test]
fn options_change_across_faults() {
    let steps = number("RUNSTONE_STEPS", 150) as usize;
    let every = number("RUNSTONE_EVERY", 40) as usize;
    let kinds = [FaultKind::Eio, FaultKind::NoSpace, FaultKind::FailedSync, FaultKind::ShortWrite];
    for_seeds(6, |seed| fault(seed, steps, every, &kinds));
}
