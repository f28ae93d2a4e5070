//! Binomial: the stack-based policy that weighs reading against writing. The stack of a small store
//! has few runs, and deepens with the store up to k (Mao et al.). Not adaptive: compactions depend
//! on the number of flushes alone, not on sizes. The policy is worth using where flushes have about
//! the same size.
//!
//! 1. After t flushes, run j of the stack ends at the flush that `binomial_layout.rs` computes. The
//!    runs that belong to one run of that layout are compacted, newest first; several such
//!    compactions may run at once.
//! 2. A stack of few runs is compacted too, because early compactions keep the total cost low.
//!    Waiting until there are k runs costs a third more (n = 1000, k = 8).
//!
//! For k = 6 the stack has 4.0 runs on average over the first 209 flushes, where min-latency has
//! 4.8. Over 923 flushes, the averages are 5.0 and 5.15, with write amplifications of 6.2 and 5.65.
//! The rest is in `stack.rs`.

use crate::policies::binomial_layout::Tree;
use crate::policies::stack::{Choose, Stack};

pub(crate) static BINOMIAL: Stack = Stack {
    name: "binomial",
    doc: "a stack of at most k runs, compacted by flush count; few while the store is small",
    max_runs: |options| options.numbers.stack_runs,
    choose: Choose::ByEnds(Tree::Binomial),
};
