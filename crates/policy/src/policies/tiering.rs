//! Tiering, as Cassandra and many write-heavy stores do it: T runs per level, compacted once on
//! their way down. It has the least writing and the most runs to read. Not lazy: the last level has
//! as many runs as the others.
//!
//! 1. When level 0 has `l0_trigger` idle runs, counted from the oldest, they become one new run of
//!    level 1, which is not read.
//! 2. When level i >= 1 has its T-th run, all its runs become one new run of level i+1, which is
//!    not read. The last level is no exception: when it sinks, it makes the next one.
//!
//! Sizes do not matter, so `base_bytes` is not used. Each byte is written once per level, and a get
//! without filters probes up to T - 1 runs per level. The rules for moves, for layouts of other
//! policies and for concurrent jobs are in `tiered.rs`.

use crate::policies::tiered::{Keep, Rules, Tiered};

pub(crate) static TIERING: Tiered = Tiered {
    name: "tiering",
    doc: "T runs per level, compacted into one run of the next: least writing, most runs",
    rules: |options| Rules { above: Keep::arrivals(options), last: Keep::arrivals(options) },
};
