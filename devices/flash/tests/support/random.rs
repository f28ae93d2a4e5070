//! Random draws, and which seeds to draw from.

use std::ops::Range;

use runstone_flash::nand::FaultPlan;
pub use runstone_random::Random;

#[allow(dead_code, reason = "not every test draws choices")]
pub fn one_of<T: Clone>(random: &mut Random, choices: &[T]) -> T {
    choices[random.below(choices.len() as u64) as usize].clone()
}

/// The seeds that the environment variables name, or those of a usual test run.
#[allow(dead_code, reason = "not every test asks for seeds")]
pub fn seeds(usual: Range<u64>) -> Range<u64> {
    let number = |name, otherwise| {
        std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
    };
    let from = number("RUNSTONE_SEED", usual.start);
    from..from + number("RUNSTONE_SEEDS", usual.end - usual.start)
}

/// Faults of a round: mostly a cut soon, sometimes bad cells.
#[allow(dead_code, reason = "not every test draws faults")]
pub fn fault_plan(random: &mut Random) -> FaultPlan {
    let mut plan = FaultPlan { seed: random.below(u64::MAX), ..FaultPlan::default() };
    if !random.one_in(4) {
        let soon = one_of(random, &[5, 40, 400]);
        plan.power_cut_at = Some(random.below(soon));
    }
    if random.one_in(4) {
        plan.failing_programs.insert(random.below(200));
    }
    if random.one_in(6) {
        plan.failing_erases.insert(random.below(20));
    }
    plan
}
