//! No partitioning: a compaction writes one table, as stack-based stores did at first. Not for
//! large stores: a run that is one table is one compaction, and one thread.

use crate::partition::Rule;

pub(crate) static NONE: Rule = Rule { name: "none", cuts: |_| Vec::new() };
