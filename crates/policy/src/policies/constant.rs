//! Constant: when the stack has more than k runs, all of them become one. The simplest of stack
//! policies, and what others are measured against: each byte is rewritten every k flushes.
//!
//! Write amplification after n flushes is about n / (2 k) (spec: merge policies §6). The rest is in
//! `stack.rs`.

use crate::options::{OptionError, PolicyOptions};
use crate::plan::{Busy, Heat, Plan};
use crate::policies::stack::{self, Choice, Choose};
use crate::policy::{LevelTarget, MergePolicy};
use crate::shape::Shape;

/// See the module docs.
pub struct Constant;

impl MergePolicy for Constant {
    fn name(&self) -> &'static str {
        "constant"
    }

    fn doc(&self) -> &'static str {
        "a stack of at most k runs; one more, and all merge: simple, most writing"
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

fn choose(sizes: &[u64], options: &PolicyOptions) -> Option<Choice> {
    let (count, most) = (sizes.len(), options.stack_runs);
    (count as u64 > u64::from(most))
        .then(|| Choice { slots: 0..count, reason: format!("{count} runs, at most {most}") })
}
