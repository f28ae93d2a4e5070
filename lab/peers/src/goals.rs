//! What Runstone sets out to reach against its peers, judged on medians. A goal is one line.

use serde::Serialize;

use crate::plan::{Measured, Median, Setup};

/// A goal and how it went.
#[derive(Debug, Serialize)]
pub struct Judged {
    /// What is compared.
    pub what: &'static str,
    /// Against whom.
    pub against: &'static str,
    /// The ratio, or the number itself where there is nobody to compare with.
    pub value: f64,
    /// The bound.
    pub bound: f64,
    /// Whether the bound is a lower one.
    pub at_least: bool,
    /// Whether it is met.
    pub met: bool,
}

#[derive(Clone, Copy)]
enum Against {
    /// The one of this name.
    Peer(&'static str),
    /// Whichever is better; all must be there.
    Better,
}

struct Goal {
    what: &'static str,
    against: Against,
    at_least: bool,
    bound: f64,
    field: fn(&Measured) -> f64,
}

const fn at_least(
    what: &'static str,
    against: Against,
    bound: f64,
    field: fn(&Measured) -> f64,
) -> Goal {
    Goal { what, against, at_least: true, bound, field }
}

const fn at_most(what: &'static str, bound: f64, field: fn(&Measured) -> f64) -> Goal {
    Goal { what, against: Against::Peer("rocksdb"), at_least: false, bound, field }
}

const ROCKSDB: Against = Against::Peer("rocksdb");
const FJALL: Against = Against::Peer("fjall");

static GOALS: &[Goal] = &[
    at_least("load", ROCKSDB, 2.0, |run| run.loads_per_second),
    at_least("load", FJALL, 1.6, |run| run.loads_per_second),
    at_least("hits", ROCKSDB, 2.0, |run| run.hits_per_second),
    at_least("hits", FJALL, 1.5, |run| run.hits_per_second),
    at_least("misses", ROCKSDB, 3.0, |run| run.misses_per_second),
    at_least("misses", FJALL, 1.2, |run| run.misses_per_second),
    at_least("scans", Against::Better, 1.3, |run| run.scans_per_second),
    at_most("bytes written", 1.0, |run| run.written_bytes as f64),
    at_most("bytes on disk", 1.0, |run| run.disk_bytes as f64),
];

/// Goals of scenarios: ours, what, against whom, at least, which number.
type ScenarioGoal = (&'static str, &'static str, &'static str, f64, fn(&Measured) -> f64);

static SCENARIO_GOALS: &[ScenarioGoal] = &[
    ("runstone-universal", "compacted per cpu s", "rocksdb-universal", 1.0, |run| {
        run.compacted_per_cpu_second()
    }),
    ("runstone-hashkv", "updates", "rocksdb-blobdb", 1.3, |run| run.updates_per_second),
    ("runstone-hashkv", "updates", "rocksdb-blobdb-tight", 1.3, |run| run.updates_per_second),
];

/// The slowest put, in milliseconds.
const WORST_PUT_MS: f64 = 10.0;
/// Peak memory over budget.
const PEAK_OVER_BUDGET: f64 = 1.1;

/// Judges what can be judged with the stores that ran.
pub fn judge(medians: &[Median], setup: &Setup) -> Vec<Judged> {
    let find = |name: &str| medians.iter().find(|median| median.name == name);
    let scenarios = SCENARIO_GOALS.iter().filter_map(|(own, what, against, bound, field)| {
        let (own, reference) = (field(&find(own)?.measured), field(&find(against)?.measured));
        (own > 0.0).then(|| verdict(what, against, own / reference, *bound, true))
    });
    let scenarios: Vec<Judged> = scenarios.collect();
    let Some(own) = find("runstone").map(|median| &median.measured) else { return scenarios };
    let mut judged: Vec<Judged> = GOALS
        .iter()
        .filter_map(|goal| {
            let field = |median: &Median| (goal.field)(&median.measured);
            let (against, reference) = match goal.against {
                Against::Peer(name) => (name, field(find(name)?)),
                Against::Better => {
                    ("the better", field(find("rocksdb")?).max(field(find("fjall")?)))
                }
            };
            let value = (goal.field)(own) / reference;
            Some(verdict(goal.what, against, value, goal.bound, goal.at_least))
        })
        .collect();
    judged.push(verdict("worst put, ms", "-", own.put_worst_ms, WORST_PUT_MS, false));
    let own_worst_ms = own.put_own_worst_ms;
    judged.push(verdict("the same, not stolen", "-", own_worst_ms, WORST_PUT_MS, false));
    let peak = own.peak_bytes as f64 / setup.budget_bytes() as f64;
    judged.push(verdict("peak memory", "budget", peak, PEAK_OVER_BUDGET, false));
    judged.extend(scenarios);
    judged
}

fn verdict(
    what: &'static str,
    against: &'static str,
    value: f64,
    bound: f64,
    at_least: bool,
) -> Judged {
    let met = if at_least { value >= bound } else { value <= bound };
    Judged { what, against, value, bound, at_least, met }
}
