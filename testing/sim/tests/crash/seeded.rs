//! Syncs that are left out: bugs that are seeded to show that a crash at every operation finds
//! them. docs/faults.md lists all seeded bugs.

use runstone::Background;
use runstone::seeded::{self, Bug};
use runstone_sim::crash::{Crash, count_operations, crash_at};
use runstone_sim::found::panics;
use runstone_sim::workload::{generate, options};

const SEEDS: std::ops::Range<u64> = 21..25;
const OPERATIONS: usize = 200;

/// Whether a crash at some I/O operation breaks a promise.
fn crash_finds(bug: Bug) -> bool {
    SEEDS.into_iter().any(|seed| {
        let (options, operations) = (options(seed, Background::Manual), generate(seed, OPERATIONS));
        let with_bug = || seeded::with(bug, || count_operations(&options, &operations));
        let (count, _) = seeded::without_assertions(with_bug);
        (0..count).any(|at| {
            let crashes = [Crash::Power(at), Crash::Power(at * 31 + 7)];
            let crash = || seeded::with(bug, || crash_at(&options, &operations, at, &crashes));
            panics(|| drop(seeded::without_assertions(crash)))
        })
    })
}

#[test]
fn an_acknowledgement_before_the_sync_is_found() {
    assert!(crash_finds(Bug::AcknowledgedBeforeSync));
}

#[test]
fn a_name_that_is_not_synced_is_found() {
    assert!(crash_finds(Bug::DirectoryNotSynced));
}

#[test]
fn a_table_that_is_not_synced_is_found() {
    assert!(crash_finds(Bug::TableNotSynced));
}

#[test]
fn an_edit_that_is_not_synced_is_found() {
    assert!(crash_finds(Bug::EditNotSynced));
}
