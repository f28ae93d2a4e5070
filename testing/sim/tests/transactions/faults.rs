//! Commits on a disk that fails. Each is visible as a whole or not at all, and the store says why
//! it accepts no more. `crash` tests what a crash leaves of a commit.

use std::thread::sleep;
use std::time::Duration;

use runstone::seeded::Bug;
use runstone::{Background, Error, Options, TransactionOptions, WalMode, WriteOptions};
use runstone_fault_storage::{Fault, FaultKind, SimStorage};
use runstone_sim::crash::judge;
use runstone_sim::found::{holds_and_finds, holds_and_trips};
use runstone_sim::oracle::{Oracle, assert_same};
use runstone_sim::workload::{Operation, Run, generate_large, options, read_all};

use crate::crash::{mode, open};

/// How long a store waits before a write may find out whether there is space again.
const RETRY: Duration = Duration::from_millis(260);

/// Looks at what a failed commit left. Returns whether the store may accept later commits: in that
/// case it waits for space, and nothing of the commit is visible. A store that has stopped may show
/// all of it, because its sync is the last step.
fn look(run: &mut Run, error: &Error, place: &str) -> bool {
    let store = run.store.as_ref().expect("open");
    let shown = read_all(store, None).unwrap_or_else(|error| panic!("{place}: reads: {error}"));
    if error.is_no_space() {
        run.oracle.withdraw();
        assert_same(&shown, run.oracle.state(), place);
        return true;
    }
    let found = run.oracle.judge(&shown);
    found.unwrap_or_else(|what| panic!("{place}: {error}: {what}"));
    let mut next = store.begin(TransactionOptions::default()).expect("begins");
    next.put(store.default_keyspace(), "key", "next").expect("is held in memory");
    let refused = next.commit(WriteOptions::default()).expect_err(place);
    assert!(matches!(refused, Error::Stopped { .. }), "{place}: {refused}");
    false
}

/// Applies operations until the store has stopped. Returns how many commits succeeded after one
/// that found no space.
fn apply(
    run: &mut Run,
    storage: &SimStorage,
    options: &Options,
    operations: &[Operation],
    place: &str,
) -> u64 {
    let (mut refused, mut recovered) = (0, 0);
    for (number, operation) in operations.iter().enumerate() {
        let (is_commit, outcome) = match operation {
            Operation::Write { writes, sync } => {
                (true, run.commit(writes, *sync, mode(number, writes)))
            }
            other => (false, run.apply(other, || open(storage, options))),
        };
        match outcome {
            Ok(()) => recovered += u64::from(is_commit && refused > 0),
            Err(error) if is_commit && look(run, &error, place) => {
                refused += 1;
                if refused == 1 {
                    sleep(RETRY);
                }
            }
            Err(error) if error.is_no_space() && run.store.is_some() => {}
            Err(_) => break,
        }
    }
    recovered
}

/// Fails I/O operations of workloads, one each time, or one and all after it, and judges what a
/// crash of the process or of the machine leaves. Returns how many commits succeeded after one that
/// found no space.
fn fail(kind: FaultKind, sticky: bool, every: usize) -> u64 {
    let (mut fired, mut recovered) = (0, 0);
    for seed in 1..=2 {
        let mut options = options(seed, Background::Manual);
        options.wal_mode = [WalMode::Mapped, WalMode::Write][seed as usize % 2];
        let operations = generate_large(seed, 60);
        for at in (0..).step_by(every) {
            let place = format!("{kind:?} sticky {sticky}, seed {seed}, operation {at}");
            let storage = SimStorage::new(seed);
            storage.inject(Fault { at_op: at, kind, sticky, category: None });
            let Ok(store) = open(&storage, &options) else { continue };
            let mut run = Run::new(store, Oracle::default());
            recovered += apply(&mut run, &storage, &options, &operations, &place);
            fired += storage.fired().len();
            if storage.ops() < at {
                break;
            }
            storage.clear_faults();
            judge(&storage.process_crash(), &options, &run.oracle, false, &place);
            judge(&storage.power_cut(at).0, &options, &run.oracle, true, &place);
        }
    }
    assert!(fired > 0, "{kind:?} never fired");
    recovered
}

#[test]
fn a_write_fails() {
    holds_and_finds(Bug::RefusedWritesAcknowledged, || {
        for kind in [FaultKind::Eio, FaultKind::ShortWrite] {
            fail(kind, false, 1);
        }
    });
}

#[test]
fn a_sync_fails() {
    holds_and_trips(Bug::AcknowledgedBeforeSync, "before the log is synced", || {
        fail(FaultKind::FailedSync, false, 1);
        fail(FaultKind::FailedDirSync, false, 1);
        fail(FaultKind::NoSpaceOnSync, false, 11);
    });
}

/// The disk is full once, and later commits succeed; or it stays full until the end.
#[test]
fn the_disk_is_full() {
    holds_and_finds(Bug::RefusedWritesAcknowledged, || {
        assert!(fail(FaultKind::NoSpace, false, 17) > 0, "no commit came behind one that failed");
        fail(FaultKind::NoSpace, true, 17);
    });
}
