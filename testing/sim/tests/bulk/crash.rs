//! A crash, a power cut or a failure at every I/O operation of workloads with loads.

use runstone::policy::registry::POLICIES;
use runstone::seeded::Bug;
use runstone::storage::{Fault, FaultKind, SimStorage};
use runstone::{Background, Options};
use runstone_sim::crash::judge;
use runstone_sim::found::holds_and_finds;
use runstone_sim::oracle::Oracle;
use runstone_sim::workload::{Run, keyspaces, options, options_for};

use crate::{Step, apply, open, steps};

const OPERATIONS: usize = 60;

/// Inline values, or a keyspace that separates them; operands only where the workload may have
/// them.
fn is_usable(options: &Options) -> bool {
    options.keyspace.as_ref().is_some_and(|keyspace| !keyspace.merge_operator.is_empty())
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
    let steps = steps(seed, OPERATIONS, 6);
    let loads = steps.iter().filter(|step| matches!(step, Step::Load { .. })).count();
    assert!(loads > 2, "seed {seed} has {loads} loads");
    let policy = &options.keyspace.as_ref().expect("given").policy;
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
        let usable = (seed..).step_by(100);
        let mut usable = usable.map(|seed| options_for(policy.name(), seed, Background::Manual));
        let options = usable.find(is_usable).expect("some seed");
        crash_everywhere(&options, options.seed.expect("seeded"));
    }
}

fn fail_everywhere(kind: FaultKind, sticky: bool) {
    let mut fired = 0;
    for seed in (50..).filter(|seed| is_usable(&options(*seed, Background::Manual))).take(2) {
        let options = options(seed, Background::Manual);
        let steps = steps(seed, OPERATIONS, 6);
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

/// A load is durable when it returns, and with it every earlier write, of other keyspaces too (P2).
#[test]
fn earlier_writes_are_durable_with_a_load() {
    holds_and_finds(Bug::LoadsOutrunTheLog, || {
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
