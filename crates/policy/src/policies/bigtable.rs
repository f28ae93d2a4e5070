//! Bigtable: when the stack has more than k runs, the newest of them are compacted, down to the
//! first run that is no larger than all newer ones together (as in Bigtable and HBase). The size of
//! a single compaction is not bounded.
//!
//! 1. If there are more than k runs, find the least i, counted from the oldest, such that size(i)
//!    is at most the sum of the newer runs. Run i and the newer runs become one. If there is no
//!    such i, the two newest runs do.
//!
//! So a run that is left alone is larger than all above it, and each compaction at least doubles
//! the size of the run that a byte is in, unless it compacts only the two newest runs. The rest is
//! in `stack.rs`.

use crate::options::PolicyOptions;
use crate::policies::stack::{Choice, Choose, Stack};

pub(crate) static BIGTABLE: Stack = Stack {
    name: "bigtable",
    doc: "a stack of at most k runs; compacts down to a run larger than all newer (HBase)",
    max_runs: |options| options.numbers.stack_runs,
    choose: Choose::BySizes(choose),
};

/// Slot 0 is the newest.
fn choose(sizes: &[u64], options: &PolicyOptions) -> Option<Choice> {
    let (count, most) = (sizes.len(), options.numbers.stack_runs);
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
