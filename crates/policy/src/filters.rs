//! Decides how large the filter of a new table is: either all tables get the same bits per key, or
//! the bits go where they save most reads. This module is neither a policy nor a filter: it divides
//! a budget among levels, in bits per key.
//!
//! A get of an absent key reads a block in vain if a filter errs, which has probability p = e^(-b
//! ln^2 2) at b bits per key. Where keys are few, a small p costs little memory, so the optimum
//! gives small runs more bits per key. Minimise the sum of p over runs of n keys so that the sum of
//! n b stays within M (Monkey; Autumn §3.1):
//!
//! 1. By Lagrange p = lambda n. With A all runs, ln lambda = -(M ln^2 2 + sum n ln n) / sum n.
//! 2. If the largest run of A has p >= 1, or fewer bits per key than [`LEAST_BITS_PER_KEY`], at
//!    which a real filter is worse than the formula, it gets no filter and is removed from A.
//!    Repeat from step 1.
//! 3. If filters have a maximum, and the smallest run of A exceeds it, the run gets the maximum and
//!    is removed from A, and the maximum is subtracted from M. Repeat from step 1.
//!
//! The definitions of n and M:
//!
//! * Filters are made once and live long, so n is the number of keys that a level will contain:
//!   max(actual, half of its capacity). Levels below the deepest in use are not planned for. M is
//!   the budget times the sum of these n: the memory of the tree once it is that full. (If M
//!   counted only the actual keys, it would starve a level that starts to fill: such a level has
//!   few keys yet, but its plan is for many.)
//! * The number of runs of a level is the most that the plan allows, or its present number if the
//!   plan sets no limit. An overlapping level counts as many runs as tables overlap at its deepest
//!   point. The runs of one level are taken to be of equal size.
//! * Tables keep their filters when they move or when the plan changes. A filter that is larger
//!   than the plan gives its level is stale: its bits are subtracted from M, its keys from n, and
//!   the rest is planned again until no further filter is stale. Each round finds more of them, so
//!   the rounds end. If stale filters take all of M, new tables get no filter.
//!
//! The computation uses floating point; its results are integers, rounded so that two machines
//! differ by one thousandth of a bit at worst. Filter sizes are data and do not affect compactions.

use std::collections::BTreeSet;
use std::f64::consts::LN_2;
use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};

use crate::policy::LevelTarget;
use crate::shape::{Level, Shape, Table, TableId};

/// How the filter budget is divided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum FilterAllocation {
    /// No filters.
    None,
    /// The same bits per key in every table.
    #[default]
    Uniform,
    /// Where they save most reads.
    Optimal,
}

impl FilterAllocation {
    /// Every allocation, in the order of their numbers in a checkpoint of a device.
    pub const ALL: [FilterAllocation; 3] =
        [FilterAllocation::None, FilterAllocation::Uniform, FilterAllocation::Optimal];
}

/// With fewer bits per key, a real filter errs more often than the formula says.
pub const LEAST_BITS_PER_KEY: f64 = 0.7;

/// A filter is stale if it exceeds the plan, rounded up to whole lines, by more than one part in
/// this many. A tree whose every filter is a little too large must not count as full.
const STALE_DIVISOR: f64 = 16.0;

/// A filter consists of whole cache lines. So a tree may exceed the budget by up to one line for
/// each table.
pub const LINE_BITS: u64 = 512;

/// Added before rounding down, so that an error in the last place of a float loses no thousandth.
const ROUNDING: f64 = 1.0 / 1024.0;

/// Bits per key times this number is -ln p.
const LN_2_SQUARED: f64 = LN_2 * LN_2;

/// A budget divided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilterPlan {
    /// Per level, in thousandths of a bit per key; 0 is no filter.
    pub millibits_per_key: Vec<u32>,
    /// M.
    pub budget_bits: u64,
    /// The part of the budget that stale filters use.
    pub stale_bits: u64,
    /// The bits of all other keys, present and planned, if each gets what the plan gives its level.
    pub planned_bits: u64,
}

/// The filter size for tables that are made for `output_level`, in thousandths of a bit per key.
/// `budget_tenths` is the budget in tenths of a bit per key. O(tables) for each round of planning
/// (see the module docs).
pub fn millibits_per_key(
    shape: &Shape,
    targets: &[LevelTarget],
    allocation: FilterAllocation,
    budget_tenths: u32,
    output_level: u32,
) -> u32 {
    let uniform = budget_tenths.saturating_mul(100);
    match allocation {
        FilterAllocation::None => 0,
        FilterAllocation::Uniform => uniform,
        FilterAllocation::Optimal => {
            let plan = optimal(shape, targets, budget_tenths, output_level);
            plan.millibits_per_key.get(output_level as usize).copied().unwrap_or(uniform)
        }
    }
}

/// The optimal plan for a tree into whose `output_level` tables are about to be written. An empty
/// tree has no plan for any level: nothing shows how large its runs will be.
pub fn optimal(
    shape: &Shape,
    targets: &[LevelTarget],
    budget_tenths: u32,
    output_level: u32,
) -> FilterPlan {
    optimal_within(shape, targets, budget_tenths.into(), output_level, f64::INFINITY)
}

/// As [`optimal`], but no filter gets more than this many bits per key, whatever the budget.
pub fn optimal_within(
    shape: &Shape,
    targets: &[LevelTarget],
    budget_tenths: f64,
    output_level: u32,
    most_bits_per_key: f64,
) -> FilterPlan {
    let populations = populations(shape, targets, output_level);
    let total_keys: f64 = populations.iter().map(|level| level.keys).sum();
    let budget_bits = total_keys * budget_tenths / 10.0;
    let mut stale: BTreeSet<TableId> = BTreeSet::new();
    let mut stale_bits = 0.0;
    let mut rest = populations.clone();
    loop {
        let range = LEAST_BITS_PER_KEY..=most_bits_per_key;
        let bits = solve(&rest, budget_bits - stale_bits, range);
        let mut grew = false;
        for (index, table) in shape.tables() {
            let planned = bits[index as usize] * table.entries as f64;
            let most = planned + planned / STALE_DIVISOR;
            let most = (most / LINE_BITS as f64).ceil() * LINE_BITS as f64;
            if table.filter_bits as f64 > most && stale.insert(table.id) {
                stale_bits += table.filter_bits as f64;
                rest[index as usize].take_off(table, &populations[index as usize]);
                grew = true;
            }
        }
        if !grew {
            let millibits: Vec<u32> =
                bits.iter().map(|bits| (bits * 1000.0 + ROUNDING) as u32).collect();
            let used = |(level, bits): (&Population, &u32)| level.keys * f64::from(*bits) / 1000.0;
            let planned_bits: f64 = rest.iter().zip(&millibits).map(used).sum();
            return FilterPlan {
                planned_bits: planned_bits as u64,
                millibits_per_key: millibits,
                budget_bits: budget_bits as u64,
                stale_bits: stale_bits as u64,
            };
        }
    }
}

/// The planned contents of a level.
#[derive(Clone, Copy, Default)]
struct Population {
    /// Keys of all its runs.
    keys: f64,
    /// Runs: how many filters of the level a get probes.
    runs: f64,
}

impl Population {
    /// n of one run.
    fn keys_per_run(&self) -> f64 {
        self.keys / self.runs
    }

    /// Subtracts the keys of a stale table. A get then probes the level's other filters less often,
    /// so the size of a run does not change.
    fn take_off(&mut self, table: &Table, whole: &Population) {
        self.keys = (self.keys - table.entries as f64).max(0.0);
        self.runs = whole.runs * self.keys / whole.keys.max(1.0);
    }
}

/// Per level, down to the deepest in use or written to.
fn populations(shape: &Shape, targets: &[LevelTarget], output_level: u32) -> Vec<Population> {
    let entries: u64 = shape.tables().map(|(_, table)| table.entries).sum();
    if entries == 0 {
        return Vec::new();
    }
    let bytes_per_entry = shape.bytes() as f64 / entries as f64;
    let last = shape.deepest().unwrap_or(0).max(output_level);
    let population = |index: u32| {
        let target = targets.get(index as usize).unwrap_or(&LevelTarget::UNBOUNDED);
        level_population(shape.level(index), target, bytes_per_entry)
    };
    let mut found: Vec<Population> = (0..=last).map(population).collect();
    let at = output_level as usize;
    if found[at].keys == 0.0 {
        found[at] = guess(&found, at);
    }
    found
}

fn level_population(level: &Level, target: &LevelTarget, bytes_per_entry: f64) -> Population {
    let actual: u64 = level.tables().map(|table| table.entries).sum();
    let planned = match target.capacity_bytes {
        u64::MAX => 0.0,
        bytes => bytes as f64 / 2.0 / bytes_per_entry,
    };
    let run_count = depth(level).max(1) as f64;
    let is_planned = planned > actual as f64;
    let runs = match (level, target.max_runs) {
        (Level::Runs(_), most) if is_planned && most < u32::MAX => run_count.max(most.into()),
        _ => run_count,
    };
    Population { keys: planned.max(actual as f64), runs }
}

/// An empty level without a capacity is about to get its first run. If the level is below all
/// others, that run will contain what they contain. If some levels are below it, the run is taken
/// to be as large as the smallest run there: it will be no larger, so its filter gets no fewer bits
/// per key than that run's.
fn guess(levels: &[Population], at: usize) -> Population {
    let deeper = levels[at + 1..].iter().filter(|level| level.keys > 0.0);
    let smallest = deeper.map(Population::keys_per_run).reduce(f64::min);
    let above = || levels[..at].iter().map(|level| level.keys).sum();
    Population { keys: smallest.unwrap_or_else(above), runs: 1.0 }
}

/// Runs, or the most tables of an overlapping level that share a key.
fn depth(level: &Level) -> usize {
    match level {
        Level::Runs(runs) => runs.len(),
        Level::Overlapping(tables) => tables.stats().depth as usize,
    }
}

/// Bits per key of each level, 0 for none: steps 1 to 3 of the module docs.
fn solve(levels: &[Population], mut budget_bits: f64, range: RangeInclusive<f64>) -> Vec<f64> {
    let mut bits = vec![0.0; levels.len()];
    let mut kept: Vec<usize> = (0..levels.len()).filter(|at| levels[*at].keys > 0.0).collect();
    // Smallest runs first; levels of equal runs stay in order.
    kept.sort_by(|a, b| levels[*a].keys_per_run().total_cmp(&levels[*b].keys_per_run()));
    while let (Some(&smallest), Some(&largest)) = (kept.first(), kept.last()) {
        let ln_size = |at: usize| levels[at].keys_per_run().ln();
        let keys: f64 = kept.iter().map(|at| levels[*at].keys).sum();
        let weighted: f64 = kept.iter().map(|at| levels[*at].keys * ln_size(*at)).sum();
        let ln_lambda = -(budget_bits * LN_2_SQUARED + weighted) / keys;
        let bits_of = |at: usize| -(ln_lambda + ln_size(at)) / LN_2_SQUARED;
        if bits_of(largest) <= 0.0 || bits_of(largest) < *range.start() {
            kept.pop();
            continue;
        }
        if bits_of(smallest) <= *range.end() {
            kept.iter().for_each(|at| bits[*at] = bits_of(*at));
            break;
        }
        bits[smallest] = *range.end();
        budget_bits -= levels[smallest].keys * bits[smallest];
        kept.remove(0);
    }
    bits
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Numbers;
    use crate::policies::garnering::capacities_bytes;

    const ANY: RangeInclusive<f64> = 0.0..=f64::INFINITY;

    /// Full levels of Garnering, one key per byte.
    fn full(last: u32, size_ratio: u32, c_permille: u32) -> Vec<Population> {
        let c = crate::units::Thousandths::of_parts(c_permille);
        let numbers = Numbers { size_ratio, c, ..Numbers::default() };
        let capacities = capacities_bytes(last, &numbers.into_options());
        capacities[1..].iter().map(|keys| Population { keys: *keys as f64, runs: 1.0 }).collect()
    }

    fn cost(levels: &[Population], bits: &[f64]) -> f64 {
        let p = |bits: &f64| (-bits * LN_2_SQUARED).exp();
        levels.iter().zip(bits).map(|(level, bits)| level.runs * p(bits)).sum()
    }

    fn memory(levels: &[Population], bits: &[f64]) -> f64 {
        levels.iter().zip(bits).map(|(level, bits)| level.keys * bits).sum()
    }

    fn keys(levels: &[Population]) -> f64 {
        levels.iter().map(|level| level.keys).sum()
    }

    #[test]
    fn zero_result_costs_are_the_known_ones() {
        let round = |cost: f64| (cost * 100.0).round() / 100.0;
        for (last, c, optimal, real, uniform) in
            [(10, 1000, 1.52, 1.58, 3.83), (7, 800, 1.15, 1.15, 2.68)]
        {
            let levels = full(last, 2, c);
            let budget = 2.0 * keys(&levels);
            assert_eq!(round(cost(&levels, &vec![2.0; levels.len()])), uniform);
            assert_eq!(round(cost(&levels, &solve(&levels, budget, ANY))), optimal);
            assert_eq!(
                round(cost(&levels, &solve(&levels, budget, LEAST_BITS_PER_KEY..=f64::INFINITY))),
                real
            );
        }
    }

    /// p_(L-i) = p_L c^(i(i-1)/2) / T^i.
    #[test]
    fn full_levels_get_what_the_paper_says() {
        for (size_ratio, c_permille) in [(2, 1000), (2, 800), (5, 400)] {
            let levels = full(6, size_ratio, c_permille);
            let bits = solve(&levels, 10.0 * keys(&levels), LEAST_BITS_PER_KEY..=f64::INFINITY);
            let p = |up: usize| (-bits[5 - up] * LN_2_SQUARED).exp();
            for up in 0..6 {
                let narrow =
                    (f64::from(c_permille) / 1000.0).powi((up * up.max(1) - up) as i32 / 2);
                let expected = p(0) * narrow / f64::from(size_ratio).powi(up as i32);
                assert!((p(up) / expected - 1.0).abs() < 1e-5, "{up}: {} {expected}", p(up));
            }
        }
    }

    #[test]
    fn a_run_with_a_useless_filter_gets_none_and_the_others_share() {
        let levels = [1.0, 1000.0].map(|keys| Population { keys, runs: 1.0 });
        // 0.01 bits per key: lambda n of the large run would be above 1.
        let budget = 0.01 * 1001.0;
        let bits = solve(&levels, budget, ANY);
        assert_eq!(bits[1], 0.0);
        assert!((memory(&levels, &bits) - budget).abs() < 1e-9);
        // 0.6 is less than a real filter needs, though the formula would use it.
        assert!(solve(&levels, 0.6 * 1001.0, ANY)[1] > 0.5);
        assert_eq!(solve(&levels, 0.6 * 1001.0, LEAST_BITS_PER_KEY..=f64::INFINITY)[1], 0.0);
        assert_eq!(solve(&levels, 0.0, ANY), [0.0, 0.0]);
        assert_eq!(solve(&levels, -1.0, LEAST_BITS_PER_KEY..=f64::INFINITY), [0.0, 0.0]);
    }

    #[test]
    fn no_other_division_is_better() {
        let levels = full(5, 3, 900);
        let budget = 6.0 * keys(&levels);
        let best = solve(&levels, budget, ANY);
        let least = cost(&levels, &best);
        for (from, to) in [(4, 0), (0, 4), (3, 4), (4, 3), (1, 2)] {
            let mut other = best.clone();
            let moved = 0.05 * levels[from].keys.min(levels[to].keys);
            other[from] -= moved / levels[from].keys;
            other[to] += moved / levels[to].keys;
            assert!((memory(&levels, &other) - budget).abs() < budget * 1e-9);
            assert!(cost(&levels, &other) > least);
        }
    }

    #[test]
    fn what_small_runs_cannot_take_goes_to_the_others() {
        let levels = full(4, 10, 1000);
        let budget = 10.0 * keys(&levels);
        let free = solve(&levels, budget, ANY);
        let bits = solve(&levels, budget, 0.0..=12.0);
        assert_eq!(bits[..3], [12.0; 3], "{free:?}");
        assert!(bits[3] > free[3] && bits[3] < 10.0, "{bits:?}");
        assert!((memory(&levels, &bits) - budget).abs() < budget * 1e-9);
        assert_eq!(solve(&levels, budget, 0.0..=9.0), [9.0; 4], "no room for the budget");
    }
}
