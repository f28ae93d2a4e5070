//! Tiering, as Cassandra and many write-heavy stores do it: T runs per level, compacted once on
//! their way down. Least writing, most runs to read. Not lazy: the last level has as many runs as
//! the others.
//!
//! 1. Level 0, at `l0_trigger` idle runs counted from the oldest: they become one new run of level
//!    1, which is not read.
//! 2. Level i >= 1, at its T-th run: all of them become one new run of level i+1, which is not
//!    read. The last level is no exception: when it sinks, it makes the next one.
//!
//! Sizes do not matter, so `base_bytes` is not used. Each byte is written once per level, and a get
//! without filters meets up to T - 1 runs per level. The rules of moves, of foreign layouts and of
//! jobs side by side are in `tiered.rs`.

use crate::policies::tiered::{Keep, Rules, Tiered};

pub(crate) static TIERING: Tiered = Tiered {
    name: "tiering",
    doc: "T runs per level, compacted into one run of the next: least writing, most runs",
    rules: |options| Rules { above: Keep::arrivals(options), last: Keep::arrivals(options) },
};
