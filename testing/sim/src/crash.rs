//! Runs a workload into a crash at a chosen I/O operation, reopens what is left, and judges it.

use std::collections::BTreeSet;
use std::sync::Arc;

use runstone::storage::Storage;
use runstone::unstable;
use runstone::{Error, Options, Resources, Store, WalMode};
use runstone_fault_storage::{Fault, FaultKind, SimStorage};

use crate::clock::WorkloadClock;
use crate::oracle::{Oracle, Survived};
use crate::workload::{Operation, Run, keyspaces, read_all};

/// How the machine fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crash {
    /// The process dies; the operating system keeps what was written.
    Process,
    /// The power fails; the seed decides what is left of unsynced data.
    Power(u64),
}

/// Opens a store. With every other seed it uses resources of the kind that several stores share.
fn open(storage: &(impl Storage + Clone + 'static), options: &Options) -> Result<Store, Error> {
    let storage: Arc<dyn Storage> = Arc::new(storage.clone());
    let store = match seed_of(options) % 2 {
        0 => Store::open_on(storage, options.clone())?,
        _ => {
            let few = Resources::builder().threads(1).max_open_files(8);
            let few = few.memory_budget(options.memory_budget_bytes).build()?;
            few.open_on(storage, options.clone())?
        }
    };
    keyspaces(&store)?;
    Ok(store)
}

fn seed_of(options: &Options) -> u64 {
    options.seed.expect("simulated runs are seeded")
}

/// Runs a workload without faults; returns how many I/O operations it took and the trace hash.
pub fn count_operations(options: &Options, operations: &[Operation]) -> (u64, u64) {
    WorkloadClock::restart();
    let storage = SimStorage::new(seed_of(options));
    let store = open(&storage, options).expect("no faults");
    let mut run = Run::new(store, Oracle::default()).with(options);
    for operation in operations {
        run.apply(operation, || open(&storage, options)).expect("no faults");
    }
    drop(run);
    (storage.ops(), storage.ops_trace_hash())
}

/// Runs a workload until I/O operation `at` crashes it. Panics where a promise is broken.
pub fn crash_at(
    options: &Options,
    operations: &[Operation],
    at: u64,
    crashes: &[Crash],
) -> Vec<Survived> {
    let seed = seed_of(options);
    let storage = SimStorage::new(seed);
    storage.inject(Fault { at_op: at, kind: FaultKind::Crash, sticky: true, category: None });
    let oracle = run_until_error(&storage, options, operations);
    assert!(!storage.fired().is_empty(), "the fault at operation {at} never fired");
    crashes
        .iter()
        .map(|crash| {
            let left = match crash {
                Crash::Process => storage.process_crash(),
                Crash::Power(cut_seed) => storage.power_cut(*cut_seed).0,
            };
            let policy = options.keyspace.as_ref().map_or("", |keyspace| &keyspace.policy);
            let place = format!("{policy}, seed {seed}, crash at operation {at}, {crash:?}");
            judge(&left, options, &oracle, *crash != Crash::Process, &place)
        })
        .collect()
}

/// Applies operations until one fails, like a process that dies of the failure.
pub fn run_until_error(
    storage: &(impl Storage + Clone + 'static),
    options: &Options,
    operations: &[Operation],
) -> Oracle {
    run(storage, options, operations).0
}

/// Applies operations until one fails, and also returns how the run ended.
pub fn run(
    storage: &(impl Storage + Clone + 'static),
    options: &Options,
    operations: &[Operation],
) -> (Oracle, Result<(), Error>) {
    WorkloadClock::restart();
    let store = match open(storage, options) {
        Ok(store) => store,
        Err(error) => return (Oracle::default(), Err(error)),
    };
    let mut run = Run::new(store, Oracle::default()).with(options);
    let mut steps = operations.iter();
    let outcome = steps.try_for_each(|operation| run.apply(operation, || open(storage, options)));
    (run.oracle, outcome)
}

/// Opens what a crash left (P8), compares it with the oracle (P1-P4), checks that no file is left
/// over (P10), and that the store continues to work.
pub fn judge(
    left: &(impl Storage + Clone + 'static),
    options: &Options,
    oracle: &Oracle,
    power_lost: bool,
    place: &str,
) -> Survived {
    let store = match open(left, options) {
        Ok(store) => store,
        Err(error) => panic!("{place}: P8: open failed: {error}"),
    };
    let found = read_all(&store, None).unwrap_or_else(|error| panic!("{place}: {error}"));
    let mut oracle = oracle.clone();
    // Without a log, a crash of the process loses as much as a power loss.
    oracle.crash(power_lost || options.wal_mode == WalMode::Off);
    let survived = oracle.judge(&found);
    let survived = survived.unwrap_or_else(|what| panic!("{place}: {what}"));
    store.put("after the crash", "life goes on").unwrap_or_else(|e| panic!("{place}: {e}"));
    store.compact().unwrap_or_else(|error| panic!("{place}: compact: {error}"));
    store.wait_idle().unwrap_or_else(|error| panic!("{place}: {error}"));
    check_files(left, &store, place);
    let mut after = found;
    after.insert((0, b"after the crash".to_vec()), b"life goes on".to_vec());
    let again = read_all(&store, None).unwrap_or_else(|error| panic!("{place}: {error}"));
    assert_eq!(again, after, "{place}: after compacting everything");
    survived
}

/// P10: every table file is in the tree, there is one manifest, and no file is unknown.
fn check_files(storage: &dyn Storage, store: &Store, place: &str) {
    let mut live = BTreeSet::new();
    for keyspace in keyspaces(store).expect("they exist") {
        live.extend(
            unstable::shape(&keyspace).tables().map(|(_, table)| format!("{:06}.table", table.id)),
        );
    }
    let files = storage.list().expect("no faults");
    let names = |ending: &str| -> BTreeSet<String> {
        let names = files.iter().map(|file| file.name.clone());
        names.filter(|name| name.ends_with(ending)).collect()
    };
    assert_eq!(names(".table"), live, "{place}: P10");
    assert_eq!(names(".manifest").len(), 1, "{place}: P10");
    assert!(names(".new").is_empty(), "{place}: P10");
}
