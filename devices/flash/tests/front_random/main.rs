//! The fronts of the KVSSD against models. Commands are drawn at random: keys and values at their
//! limits and past them, buffers of any size, iterators during writes, key spaces that come and go,
//! snapshots that outlive a front, and keys written without the front. The devices suffer a full
//! flash, power cuts, and failing programs and erases, and are opened with other options. The model
//! predicts each status, and a refused command changes nothing.
//!
//! To test more devices than a test run has time for: `RUNSTONE_SEED=100 RUNSTONE_SEEDS=900 cargo
//! test --release -p runstone-flash --test front_random`.

#[path = "../support/bench.rs"]
mod bench;
mod nvme;
#[path = "../support/random.rs"]
mod random;
mod snia;

use std::ops::Range;

use bench::Sums;
use nvme::run_nvme;
use random::seeds;
use snia::run_snia;

const SEEDS: Range<u64> = 225..249;

fn run_all(run: fn(u64, &mut Sums)) {
    let mut sums = Sums::default();
    for seed in seeds(SEEDS) {
        let once = std::panic::AssertUnwindSafe(|| run(seed, &mut sums));
        assert!(std::panic::catch_unwind(once).is_ok(), "seed {seed}: see above");
    }
    let Sums { cuts, refusals, listed } = sums;
    println!("{cuts} power cuts, {refusals} refusals, {listed} keys or pairs listed");
    let is_enough = cuts > 30 && refusals > 50 && listed > 1000;
    assert!(is_enough || seeds(SEEDS) != SEEDS, "{cuts} {refusals} {listed}");
}

#[test]
fn random_nvme_commands_equal_a_model() {
    run_all(run_nvme);
}

#[test]
fn random_snia_commands_equal_a_model() {
    run_all(run_snia);
}
