//! Crashes at every I/O operation of workloads of 200 operations, with and without power loss, over
//! eight seeds that draw their policies. There are also crashes at every second operation, over two
//! seeds for each policy. The tests check promises P1-P5, P8 and P10.

use runstone::{Background, Options, ValuePlacement};
use runstone_policy::registry::POLICIES;
use runstone_sim::crash::{Crash, count_operations, crash_at};
use runstone_sim::workload::{
    Operation, cooled, cooled_back, generate, generate_large, logless, options, options_for,
    placed, written_back,
};

const OPERATIONS: usize = 200;

fn crash_everywhere(options: &Options) {
    crash_everywhere_in(options, &generate(options.seed.unwrap(), OPERATIONS));
}

fn crash_everywhere_in(options: &Options, operations: &[Operation]) {
    crash_at_each(options, operations, |_| true);
}

fn crash_at_each(options: &Options, operations: &[Operation], is_wanted: impl Fn(&u64) -> bool) {
    let (count, hash) = count_operations(options, operations);
    assert_eq!(count_operations(options, operations), (count, hash), "a seed fixes the run");
    assert!(count > 100, "the workload touches the disk: {count} operations");
    let mut lost = 0;
    for at in (0..count).filter(is_wanted) {
        let crashes = [Crash::Process, Crash::Power(at), Crash::Power(at.wrapping_mul(31) + 7)];
        let survived = crash_at(options, operations, at, &crashes);
        lost += survived.iter().filter(|one| one.batches < one.attempted).count();
    }
    assert!(lost > 0, "some crash loses an unsynced suffix, or the faults prove nothing");
}

macro_rules! seeds {
    ($($name:ident = $seed:literal),+) => {
        $(#[test] fn $name() { crash_everywhere(&options($seed, Background::Manual)); })+
    };
}

seeds!(
    seed_1 = 1,
    seed_2 = 2,
    seed_3 = 3,
    seed_4 = 4,
    seed_5 = 5,
    seed_6 = 6,
    seed_7 = 7,
    seed_8 = 8
);

/// Some batches have segments of their own.
#[test]
fn large_batches() {
    for seed in [21, 22] {
        let options = options(seed, Background::Manual);
        crash_everywhere_in(&options, &generate_large(seed, OPERATIONS / 2));
    }
}

/// Separates values, whatever the seed would have drawn.
fn with_values_placed(placement: ValuePlacement) {
    for seed in [11, 12, 13] {
        crash_everywhere(&placed(options(seed, Background::Manual), placement));
    }
}

#[test]
fn values_in_hash_groups() {
    with_values_placed(ValuePlacement::HashGrouped);
}

#[test]
fn values_in_a_cold_stream() {
    for seed in [11, 12, 13] {
        crash_everywhere(&cooled(options(seed, Background::Manual)));
    }
}

#[test]
fn values_whose_pointers_are_written_back() {
    for seed in [11, 12, 13] {
        crash_everywhere(&written_back(options(seed, Background::Manual)));
    }
}

#[test]
fn values_in_a_cold_stream_whose_pointers_are_written_back() {
    for seed in [11, 12, 13] {
        crash_everywhere(&cooled_back(options(seed, Background::Manual)));
    }
}

#[test]
fn values_in_a_log() {
    with_values_placed(ValuePlacement::Vlog);
}

#[test]
fn no_log() {
    for (seed, placement) in [(11, ValuePlacement::Inline), (12, ValuePlacement::HashGrouped)] {
        crash_everywhere(&logless(options(seed, Background::Manual), placement));
    }
}

/// Called with two seeds, so that two cores share the work. An even seed crashes at even
/// operations, an odd seed at odd ones.
fn every_policy(seed: u64) {
    for policy in POLICIES {
        let options = options_for(policy.name(), seed, Background::Manual);
        crash_at_each(&options, &generate(seed, OPERATIONS), |at| at % 2 == seed % 2);
    }
}

#[test]
fn every_policy_one_seed() {
    every_policy(101);
}

#[test]
fn every_policy_another_seed() {
    every_policy(102);
}
