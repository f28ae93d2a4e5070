//! MinLatency: the stack-based policy of least writing for k runs that a read may meet at any time:
//! its stack has all k from the start (Mao et al.). Not adaptive, as binomial is not.
//!
//! 1. After t flushes, run j of the stack ends where `binomial_layout.rs` says. The runs that
//!    belong to one run of that layout are compacted, newest first; several such compactions may
//!    run at once.
//! 2. There is no early return for a stack of few runs, see `binomial.rs`.
//!
//! It is best at the end of a phase, C(d+k, d) - 1 flushes, and pays for the next one in advance:
//! the first flush of a phase rewrites all. For k = 6 that is a write amplification of 5.65 after
//! 923 flushes and 6.41 after 1000. The rest is in `stack.rs`.

use crate::policies::binomial_layout::Tree;
use crate::policies::stack::{Choose, Stack};

pub(crate) static MIN_LATENCY: Stack = Stack {
    name: "min-latency",
    doc: "a stack of k runs, compacted by flush count; least writing for k",
    max_runs: |options| options.stack_runs,
    choose: Choose::ByEnds(Tree::MinLatency),
};
