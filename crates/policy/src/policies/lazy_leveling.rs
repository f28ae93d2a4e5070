//! Lazy leveling (Dostoevsky): tiering above, leveling in the last level, where nearly all data is.
//! Reads and space close to leveling, writing between the two. Not for the shortest scans: those
//! meet every run of the upper levels.
//!
//! 1. Level 0 at `l0_trigger` idle runs, and each level above the last at its T-th run, become one
//!    new run of the next level, as in tiering.
//! 2. If that next level is the last, they merge with its one run instead.
//! 3. The last level above base * T^(i-1) bytes becomes level i+1. Metadata only: its run would be
//!    alone there.
//!
//! The last level is the deepest that holds a table. The rules of moves, of foreign layouts and of
//! jobs side by side are in `tiered.rs`. Source: spec, merge policies §2.

use crate::options::{OptionError, PolicyOptions};
use crate::plan::{Busy, Heat, Plan};
use crate::policies::tiered::{self, Keep, Rules};
use crate::policy::{LevelTarget, MergePolicy};
use crate::shape::Shape;

/// See the module docs.
pub struct LazyLeveling;

fn rules(options: &PolicyOptions) -> Rules {
    Rules { above: Keep::arrivals(options), last: Keep::gathered(1) }
}

impl MergePolicy for LazyLeveling {
    fn name(&self) -> &'static str {
        "lazy-leveling"
    }

    fn doc(&self) -> &'static str {
        "T runs per level, one run in the last: space of leveling, writes near tiering"
    }

    fn check(&self, options: &PolicyOptions) -> Result<(), OptionError> {
        options.check_common()
    }

    fn targets(&self, shape: &Shape, options: &PolicyOptions) -> Vec<LevelTarget> {
        tiered::targets(shape, options, rules(options))
    }

    fn pick(
        &self,
        shape: &Shape,
        busy: &Busy,
        _heat: &Heat,
        options: &PolicyOptions,
    ) -> Option<Plan> {
        tiered::pick(shape, busy, options, rules(options))
    }
}
