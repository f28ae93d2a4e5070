//! The goals of Runstone against its peers, judged on medians. A goal is one line.

use serde::Serialize;

use crate::plan::{Measured, Median, Setup};

/// A goal and its outcome.
#[derive(Debug, Serialize)]
pub struct Judged {
    pub what: &'static str,
    pub against: &'static str,
    /// The ratio, or the number itself if there is no store to compare with.
    pub value: f64,
    pub bound: f64,
    /// Whether the bound is a lower one.
    pub at_least: bool,
    pub met: bool,
}

/// A goal for the store `own` against another store, or against the better of two.
struct Goal {
    own: &'static str,
    what: &'static str,
    against: &'static str,
    at_least: bool,
    bound: f64,
    field: fn(&Measured) -> f64,
}

const fn at_least(
    what: &'static str,
    against: &'static str,
    bound: f64,
    field: fn(&Measured) -> f64,
) -> Goal {
    Goal { own: "runstone", what, against, at_least: true, bound, field }
}

const fn at_most(what: &'static str, bound: f64, field: fn(&Measured) -> f64) -> Goal {
    Goal { at_least: false, ..at_least(what, "rocksdb", bound, field) }
}

/// RocksDB or fjall; both must have run.
const BETTER: &str = "the better";

static GOALS: &[Goal] = &[
    at_least("load", "rocksdb", 2.0, |run| run.loads_per_second),
    at_least("load", "fjall", 1.6, |run| run.loads_per_second),
    at_least("hits", "rocksdb", 2.0, |run| run.hits_per_second),
    at_least("hits", "fjall", 1.5, |run| run.hits_per_second),
    at_least("misses", "rocksdb", 3.0, |run| run.misses_per_second),
    at_least("misses", "fjall", 1.2, |run| run.misses_per_second),
    at_least("scans", BETTER, 1.3, |run| run.scans_per_second),
    at_least("optimistic", BETTER, 1.5, |run| run.counted.optimistic_per_second),
    at_least("pessimistic", BETTER, 1.5, |run| run.counted.pessimistic_per_second),
    at_most("bytes written", 1.0, |run| run.written_bytes as f64),
    at_most("bytes on disk", 1.0, |run| run.disk_bytes as f64),
];

static SCENARIO_GOALS: &[Goal] = &[
    Goal {
        own: "runstone-universal",
        ..at_least("compacted per cpu s", "rocksdb-universal", 1.0, |run| {
            run.compacted_per_cpu_second()
        })
    },
    Goal {
        own: "runstone-hashkv",
        ..at_least("updates", "rocksdb-blobdb", 1.3, |run| run.updates_per_second)
    },
    Goal {
        own: "runstone-hashkv",
        ..at_least("updates", "rocksdb-blobdb-tight", 1.3, |run| run.updates_per_second)
    },
];

/// A goal for a number of Runstone alone, or for a ratio of two such numbers.
struct OwnGoal {
    what: &'static str,
    against: &'static str,
    at_least: bool,
    bound: f64,
    value: fn(&Measured) -> f64,
}

/// Goals that are judged if they were measured.
static OWN_GOALS: &[OwnGoal] = &[
    OwnGoal {
        what: "merges",
        against: "own puts",
        at_least: true,
        bound: 0.8,
        value: |run| run.counted.merges_per_second / run.counted.puts_per_second,
    },
    OwnGoal {
        what: "merges",
        against: "own get+put",
        at_least: true,
        bound: 2.0,
        value: |run| run.counted.merges_per_second / run.counted.gets_and_puts_per_second,
    },
    OwnGoal {
        what: "deleting half, us",
        against: "-",
        at_least: false,
        bound: 1000.0,
        value: |run| run.range_deleted.half_us,
    },
    OwnGoal {
        what: "step across it, us",
        against: "-",
        at_least: false,
        bound: 1000.0,
        value: |run| run.range_deleted.step_us,
    },
    OwnGoal {
        what: "a get's time under many",
        against: "under one",
        at_least: false,
        bound: 1.5,
        value: |run| {
            run.range_deleted.gets_before_per_second / run.range_deleted.gets_under_per_second
        },
    },
];

const WORST_PUT_MS: f64 = 10.0;
const PEAK_OVER_BUDGET: f64 = 1.1;

/// Judges the goals for which the needed stores and phases ran.
pub fn judge(medians: &[Median], setup: &Setup) -> Vec<Judged> {
    let find = |name: &str| {
        medians.iter().find(|median| median.name == name).map(|median| &median.measured)
    };
    let ratio = |goal: &Goal| {
        let of = |name: &str| find(name).map(goal.field);
        let own = of(goal.own).filter(|own| *own > 0.0)?;
        let other = match goal.against {
            BETTER => of("rocksdb")?.max(of("fjall")?),
            name => of(name)?,
        };
        Some(verdict(goal.what, goal.against, own / other, goal.bound, goal.at_least))
    };
    let mut judged: Vec<Judged> = GOALS.iter().filter_map(ratio).collect();
    if let Some(own) = find("runstone") {
        let peak = own.peak_bytes as f64 / setup.budget_bytes() as f64;
        let (worst, own_worst) = (own.put_worst_ms, own.put_own_worst_ms);
        judged.push(verdict("worst put, ms", "-", worst, WORST_PUT_MS, false));
        judged.push(verdict("the same, not stolen", "-", own_worst, WORST_PUT_MS, false));
        judged.push(verdict("peak memory", "budget", peak, PEAK_OVER_BUDGET, false));
        let values = OWN_GOALS.iter().map(|goal| (goal, (goal.value)(own)));
        // All numbers of a phase that was not measured are zero.
        judged.extend(values.filter(|(_, value)| value.is_normal()).map(|(goal, value)| {
            verdict(goal.what, goal.against, value, goal.bound, goal.at_least)
        }));
    }
    judged.extend(SCENARIO_GOALS.iter().filter_map(ratio));
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
