//! No partitioning: a compaction writes one table, as stack-based stores did at first. Not for
//! large stores: a run that is a single table needs one large compaction, which only one thread can
//! do.

use crate::partition::Rule;

pub(crate) static NONE: Rule = Rule { name: "none", cuts: |_| Vec::new() };
