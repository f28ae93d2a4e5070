//! Fluid (Dostoevsky): at most K runs in a level above the last, at most Z in the last; every
//! trade-off between leveling and tiering by two numbers. Not a tuner: a user who knows the
//! workload sets K (`max_runs`) and Z (`last_level_runs`).
//!
//! * K >= T-1: the level keeps each arrival as a run and sinks at the T-th, as in tiering. A larger
//!   K acts as T-1: at the T-th arrival the level has reached its capacity.
//! * K < T-1: arrivals gather in runs of capacity / K bytes, and the level sinks above its
//!   capacity, base * T^(i-1) bytes. So each run takes about T/K arrivals, and each byte is written
//!   about T/(2K) times per level.
//! * Z works likewise for the last level, the deepest that contains a table; Z = 1 always gathers.
//!   Above its capacity, a last level of one run becomes the next deeper level, by a change of
//!   metadata only. A last level of several runs compacts into one run of the next level. If K >=
//!   T-1, its capacity is T times the arriving bytes.
//!
//! The extreme cases, for T > 2:
//!
//! * K = Z = T-1 is tiering, and K = T-1 with Z = 1 lazy leveling, job by job.
//! * K = Z = 1 has the levels and the triggers of leveling. But only overlapping tables are
//!   rewritten, and a last level above its capacity is relabelled, where leveling moves its tables.
//!
//! With T = 2 the two cases coincide: K = 1 = T-1 keeps arrivals separate, and Z = 1 gathers (lazy
//! leveling). The rules for moves, for layouts of other policies and for concurrent jobs are in
//! `tiered.rs`.

use crate::options::PolicyOptions;
use crate::policies::tiered::{Keep, Rules, Tiered};

pub(crate) static FLUID: Tiered = Tiered {
    name: "fluid",
    doc: "K runs per level, Z in the last: anything between leveling and tiering",
    rules,
};

fn rules(options: &PolicyOptions) -> Rules {
    let keep = |runs: u32, always_gathers: bool| match runs < options.numbers.size_ratio - 1 {
        false if !always_gathers => Keep::arrivals(options),
        _ => Keep::gathered(runs),
    };
    let (k, z) = (options.numbers.max_runs, options.numbers.last_level_runs);
    Rules { above: keep(k, false), last: keep(z, z == 1) }
}
