//! MinLatency: the stack-based policy with the least writing if a read may have to probe k runs at
//! any time: its stack may have all k runs from the start (Mao et al.). Like binomial, it is not
//! adaptive.
//!
//! The rules are those of `binomial.rs`, with the other layout. It is best at the end of a phase,
//! C(d+k, d) - 1 flushes, and pays for the next phase in advance: the first flush of a phase
//! rewrites everything. For k = 6, this gives a write amplification of 5.65 after 923 flushes and
//! of 6.41 after 1000 flushes. The rest is in `stack.rs`.

use crate::policies::binomial_layout::Tree;
use crate::policies::stack::{Choose, Stack};

pub(crate) static MIN_LATENCY: Stack = Stack {
    name: "min-latency",
    doc: "a stack of k runs, compacted by flush count; least writing for k",
    max_runs: |options| options.numbers.stack_runs,
    choose: Choose::ByEnds(Tree::MinLatency),
};
