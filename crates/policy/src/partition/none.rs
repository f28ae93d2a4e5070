//! No partitioning: a compaction writes one table, as stack-based stores did at first. Not for
//! large stores: a run that is one table is one compaction, and one thread.

use crate::partition::{CutKey, Input, Partition};

/// See the module docs.
pub struct NoPartition;

impl Partition for NoPartition {
    fn name(&self) -> &'static str {
        "none"
    }

    fn doc(&self) -> &'static str {
        "one table per compaction, however large"
    }

    fn cuts(&self, _input: &Input<'_>) -> Vec<CutKey> {
        Vec::new()
    }
}
