//! Constant: when the stack has more than k runs, all of them become one. The simplest stack
//! policy, and the baseline for the others: each byte is rewritten every k flushes.
//!
//! Write amplification after n flushes is about n / (2 k). The rest is in `stack.rs`.

use crate::options::PolicyOptions;
use crate::policies::stack::{Choice, Choose, Stack};

pub(crate) static CONSTANT: Stack = Stack {
    name: "constant",
    doc: "a stack of at most k runs; one more, and all compact: simple, most writing",
    max_runs: |options| options.numbers.stack_runs,
    choose: Choose::BySizes(choose),
};

fn choose(sizes: &[u64], options: &PolicyOptions) -> Option<Choice> {
    let (count, most) = (sizes.len(), options.numbers.stack_runs);
    (count as u64 > u64::from(most))
        .then(|| Choice { slots: 0..count, reason: format!("{count} runs, at most {most}") })
}
