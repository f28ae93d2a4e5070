//! A crash at every I/O operation of workloads whose writes are committed by transactions: after a
//! reopen either all of a transaction exists or nothing of it (P3), in the order of commits (P2).

use std::sync::Arc;

use runstone::storage::Storage;
use runstone::{Background, Error, Options, Store, TransactionOptions};
use runstone_fault_storage::{Fault, FaultKind, SimStorage};
use runstone_sim::crash::judge;
use runstone_sim::oracle::{Change, Oracle, Write};
use runstone_sim::workload::{Operation, Run, generate, generate_large, keyspaces, options};

pub fn open(storage: &SimStorage, options: &Options) -> Result<Store, Error> {
    let storage: Arc<dyn Storage> = Arc::new(storage.clone());
    let store = Store::open_on(storage, options.clone())?;
    keyspaces(&store)?;
    Ok(store)
}

/// Every third transaction takes locks, and such transactions refuse range deletes.
pub fn mode(number: usize, writes: &[Write]) -> TransactionOptions {
    let has_range = writes.iter().any(|write| matches!(write.change, Change::DeleteRange(_)));
    match number.is_multiple_of(3) && !has_range {
        true => TransactionOptions::pessimistic(),
        false => TransactionOptions::serializable(),
    }
}

fn run(storage: &SimStorage, options: &Options, operations: &[Operation]) -> Oracle {
    let Ok(store) = open(storage, options) else { return Oracle::default() };
    let mut run = Run::new(store, Oracle::default());
    for (number, operation) in operations.iter().enumerate() {
        let outcome = match operation {
            Operation::Write { writes, sync } => run.commit(writes, *sync, mode(number, writes)),
            other => run.apply(other, || open(storage, options)),
        };
        if outcome.is_err() {
            break;
        }
    }
    run.oracle
}

fn crash_everywhere(seed: u64, operations: &[Operation]) {
    let options = options(seed, Background::Manual);
    let whole = SimStorage::new(seed);
    run(&whole, &options, operations);
    assert!(whole.ops() > 60, "the workload touches the disk");
    let mut lost = 0;
    for at in 0..whole.ops() {
        let storage = SimStorage::new(seed);
        storage.inject(Fault { at_op: at, kind: FaultKind::Crash, sticky: true, category: None });
        let oracle = run(&storage, &options, operations);
        assert!(!storage.fired().is_empty(), "the fault at operation {at} never fired");
        let place = format!("seed {seed}, crash at operation {at}");
        judge(&storage.process_crash(), &options, &oracle, false, &place);
        let survived = judge(&storage.power_cut(at).0, &options, &oracle, true, &place);
        lost += u64::from(survived.batches < survived.attempted);
    }
    assert!(lost > 0, "some crash loses an unsynced suffix, or the faults prove nothing");
}

#[test]
fn at_every_operation() {
    for seed in 1..=4 {
        crash_everywhere(seed, &generate(seed, 120));
    }
}

/// Some of the transactions get log segments of their own.
#[test]
fn large_transactions() {
    crash_everywhere(21, &generate_large(21, 60));
}
