//! MinLatency: the stack-based policy of least writing for k runs that a read may meet at any time:
//! its stack has all k from the start (Mao et al.). Not adaptive, as binomial is not.
//!
//! 1. After t flushes, run j of the stack ends where `binomial_layout.rs` says. The runs that
//!    belong to one run of that layout merge, newest first; several such merges may run at once.
//! 2. There is no early return for a stack of few runs, see `binomial.rs`.
//!
//! It is best at the end of a phase, C(d+k, d) - 1 flushes, and pays for the next one in advance:
//! the first flush of a phase rewrites all. For k = 6 that is a write amplification of 5.65 after
//! 923 flushes and 6.41 after 1000. The rest is in `stack.rs`.

use crate::options::{OptionError, PolicyOptions};
use crate::plan::{Busy, Heat, Plan};
use crate::policies::binomial_layout::{self, Tree};
use crate::policies::stack::{self, Choose};
use crate::policy::{LevelTarget, MergePolicy};
use crate::shape::Shape;

/// See the module docs.
pub struct MinLatency;

impl MergePolicy for MinLatency {
    fn name(&self) -> &'static str {
        "min-latency"
    }

    fn doc(&self) -> &'static str {
        "a stack of k runs, merged by flush count; least writing for k"
    }

    fn check(&self, options: &PolicyOptions) -> Result<(), OptionError> {
        options.check_common()
    }

    fn targets(&self, shape: &Shape, options: &PolicyOptions) -> Vec<LevelTarget> {
        stack::targets(shape, options.stack_runs)
    }

    fn debt_bytes(&self, shape: &Shape, options: &PolicyOptions) -> u64 {
        stack::debt_bytes(shape, &Choose::ByEnds(&|t| ends(t, options)))
    }

    fn pick(
        &self,
        shape: &Shape,
        busy: &Busy,
        _heat: &Heat,
        options: &PolicyOptions,
    ) -> Option<Plan> {
        stack::pick(shape, busy, options, &Choose::ByEnds(&|t| ends(t, options)))
    }
}

fn ends(t: u64, options: &PolicyOptions) -> Vec<u64> {
    binomial_layout::ends(Tree::MinLatency, t, options.stack_runs.into())
}
