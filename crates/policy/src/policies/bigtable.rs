//! Bigtable: when the stack has more than k runs, the newest of them merge, down to the first run
//! that is no larger than all newer ones together (as in Bigtable and HBase; spec: merge policies
//! §6). Not bounded in what a single merge rewrites.
//!
//! 1. More than k runs: the least i, counted from the oldest, with size(i) at most the sum of the
//!    newer ones; else the two newest. Runs i and newer become one.
//!
//! So a run that is left alone is larger than all above it, and a byte's run at least doubles with
//! each merge but those of the two newest. The rest is in `stack.rs`.

use crate::options::{OptionError, PolicyOptions};
use crate::plan::{Busy, Heat, Plan};
use crate::policies::stack::{self, Choice, Choose};
use crate::policy::{LevelTarget, MergePolicy};
use crate::shape::Shape;

/// See the module docs.
pub struct Bigtable;

impl MergePolicy for Bigtable {
    fn name(&self) -> &'static str {
        "bigtable"
    }

    fn doc(&self) -> &'static str {
        "a stack of at most k runs; merges down to a run larger than all newer (HBase)"
    }

    fn check(&self, options: &PolicyOptions) -> Result<(), OptionError> {
        options.check_common()
    }

    fn targets(&self, shape: &Shape, options: &PolicyOptions) -> Vec<LevelTarget> {
        stack::targets(shape, options.stack_runs)
    }

    fn debt_bytes(&self, shape: &Shape, options: &PolicyOptions) -> u64 {
        stack::debt_bytes(shape, &Choose::BySizes(&|sizes| choose(sizes, options)))
    }

    fn pick(
        &self,
        shape: &Shape,
        busy: &Busy,
        _heat: &Heat,
        options: &PolicyOptions,
    ) -> Option<Plan> {
        stack::pick(shape, busy, options, &Choose::BySizes(&|sizes| choose(sizes, options)))
    }
}

/// Slot 0 is the newest.
fn choose(sizes: &[u64], options: &PolicyOptions) -> Option<Choice> {
    let (count, most) = (sizes.len(), options.stack_runs);
    if count as u64 <= u64::from(most) {
        return None;
    }
    // At least two runs, since k is at least one.
    let mut newer: u128 = sizes.iter().map(|bytes| u128::from(*bytes)).sum();
    let oldest = (1..count).rev().find(|slot| {
        let bytes = u128::from(sizes[*slot]);
        newer -= bytes;
        bytes <= newer
    });
    let slots = 0..oldest.unwrap_or(1) + 1;
    Some(Choice { slots, reason: format!("{count} runs, at most {most}") })
}
