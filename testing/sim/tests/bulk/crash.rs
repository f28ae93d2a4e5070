//! A crash, a power cut or a failure at every I/O operation of workloads with loads.

use runstone::seeded::Bug;
use runstone::{Background, Options, ValuePlacement};
use runstone_fault_storage::{Fault, FaultKind, SimStorage};
use runstone_policy::registry::POLICIES;
use runstone_sim::crash::judge;
use runstone_sim::found::holds_and_trips;
use runstone_sim::oracle::Oracle;
use runstone_sim::workload::{Run, keyspaces, options, options_for, placed, separated};

use crate::{Step, apply, open};

/// The cost of a test grows with the square of this number.
const OPERATIONS: usize = 40;

/// A workload that begins with a load. If collections write pointers back, later loads find
/// existing keys in their range and are refused.
fn steps(seed: u64) -> Vec<Step> {
    let mut steps = crate::steps(seed, OPERATIONS, 6);
    let puts = |step: &Step| match step {
        Step::Load { entries, .. } => entries.values().any(Option::is_some),
        Step::Usual(_) => false,
    };
    let first = steps.iter().position(puts).expect("a load that does not only delete");
    let first = steps.remove(first);
    steps.insert(0, first);
    steps
}

fn run(storage: &SimStorage, options: &Options, steps: &[Step]) -> Oracle {
    let Ok(store) = open(storage, options) else { return Oracle::default() };
    let mut run = Run::new(store, Oracle::default());
    let _ = steps.iter().try_for_each(|step| apply(&mut run, step, storage, options));
    run.oracle
}

fn count(options: &Options, steps: &[Step]) -> u64 {
    let storage = SimStorage::new(options.seed.expect("seeded"));
    run(&storage, options, steps);
    storage.ops()
}

fn crash_everywhere(options: &Options, seed: u64) {
    let steps = steps(seed);
    let loads = steps.iter().filter(|step| matches!(step, Step::Load { .. })).count();
    assert!(loads > 2, "seed {seed} has {loads} loads");
    let first = run(&SimStorage::new(seed), options, &steps[..1]);
    assert!(!first.state().is_empty(), "the first load is not refused");
    let keyspace = options.keyspace.as_ref().expect("given");
    let policy = format!("{}, {:?}", keyspace.policy, keyspace.values.placement);
    for at in 0..count(options, &steps) {
        let storage = SimStorage::new(seed);
        storage.inject(Fault { at_op: at, kind: FaultKind::Crash, sticky: true, category: None });
        let oracle = run(&storage, options, &steps);
        assert!(!storage.fired().is_empty(), "{policy}, seed {seed}: no fault at {at}");
        let place = format!("{policy}, seed {seed}, crash at operation {at}");
        judge(&storage.process_crash(), options, &oracle, false, &place);
        for cut in [at, at.wrapping_mul(31) + 7] {
            judge(&storage.power_cut(cut).0, options, &oracle, true, &format!("{place}, {cut}"));
        }
    }
}

#[test]
fn at_every_operation_under_every_policy() {
    for (seed, policy) in (1..).zip(POLICIES) {
        crash_everywhere(&options_for(policy.name(), seed, Background::Manual), seed);
    }
}

#[test]
fn at_every_operation_under_every_placement() {
    placements(30).iter().for_each(|options| crash_everywhere(options, 30));
}

/// Options of a seed, with each placement of values.
fn placements(seed: u64) -> Vec<Options> {
    let options = options(seed, Background::Manual);
    let inline = placed(options.clone(), ValuePlacement::Inline);
    [inline].into_iter().chain(separated(&options)).collect()
}

fn fail_everywhere(kind: FaultKind, sticky: bool) {
    let mut fired = 0;
    for (seed, options) in (50..).zip(placements(50)) {
        let steps = steps(seed);
        for at in 0..count(&options, &steps) {
            let storage = SimStorage::new(seed);
            storage.inject(Fault { at_op: at, kind, sticky, category: None });
            let oracle = run(&storage, &options, &steps);
            fired += storage.fired().len();
            storage.clear_faults();
            let place = format!("{kind:?} sticky {sticky}, seed {seed}, operation {at}");
            judge(&storage.process_crash(), &options, &oracle, false, &place);
            judge(&storage.power_cut(at).0, &options, &oracle, true, &place);
        }
    }
    assert!(fired > 0, "{kind:?} never fired");
}

#[test]
fn failures_at_every_operation() {
    fail_everywhere(FaultKind::Eio, false);
    fail_everywhere(FaultKind::NoSpace, false);
    fail_everywhere(FaultKind::FailedSync, false);
    fail_everywhere(FaultKind::ShortWrite, false);
}

#[test]
fn a_disk_that_stays_full() {
    fail_everywhere(FaultKind::NoSpace, true);
}

/// When a load returns, it is durable, and so is every earlier write, even to other keyspaces (P2).
#[test]
fn earlier_writes_are_durable_with_a_load() {
    holds_and_trips(Bug::LoadsOutrunTheLog, "before the log is synced up to it", || {
        let options = options(1, Background::Manual);
        let storage = SimStorage::new(1);
        let store = open(&storage, &options).expect("fresh");
        let made = keyspaces(&store).expect("made");
        made[1].put("before", "1").expect("puts");
        made[0].bulk_load([("loaded", "1")]).expect("loads");
        for cut in 0..8 {
            let store = open(&storage.power_cut(cut).0, &options).expect("P8");
            let left = keyspaces(&store).expect("there");
            assert!(left[0].contains_key("loaded").expect("reads"), "cut {cut}: P1");
            assert!(left[1].contains_key("before").expect("reads"), "cut {cut}: P2");
        }
    });
}
