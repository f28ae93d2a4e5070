//! Lazy leveling (Dostoevsky): tiering above, leveling in the last level, where nearly all data is.
//! Its reads and space are close to those of leveling, and its writing is between the two. Not for
//! the shortest scans: those read every run of the upper levels.
//!
//! 1. Level 0 at `l0_trigger` idle runs, and each level above the last at its T-th run, become one
//!    new run of the next level, as in tiering.
//! 2. If that next level is the last, they compact with its one run instead.
//! 3. If the last level is more than T - 1 times as large as the sinking runs, it first becomes the
//!    next deeper level. This changes only metadata, because its run would be alone there.
//!
//! So levels grow by T, whatever the size of a flush, and `base_bytes` is not used. The last level
//! is the deepest that contains a table. The rules for moves, for layouts of other policies and for
//! concurrent jobs are in `tiered.rs`.

use crate::policies::tiered::{Keep, Rules, Tiered};

pub(crate) static LAZY_LEVELING: Tiered = Tiered {
    name: "lazy-leveling",
    doc: "T runs per level, one run in the last: space of leveling, writes near tiering",
    rules: |options| Rules { above: Keep::arrivals(options), last: Keep::gathered(1) },
};
