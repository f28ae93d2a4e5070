//! Keeps a collection from filling the system's page cache, as `table/behind.rs` does for
//! compactions. A collection reads whole groups once, which would push out pages that are read
//! often.
//!
//! 1. Before the scan, the system is asked how much of the segments it has in memory
//!    ([`ValueFile::is_cold`]).
//! 2. If less than half is in memory, the segments that the collection replaces are dropped from
//!    memory afterwards, and so are the copies, which are durable by then. The few readers that
//!    still need the old segments read them from the disk.
//! 3. Otherwise everything stays in memory. The next appends go to the freed slots, and a write
//!    that ends within a page which is not in memory would have to read that page first.

use crate::values::file::ValueFile;
use crate::values::layout::Segment;

impl ValueFile {
    /// Whether the system has less than half of these segments in memory. If the system does not
    /// report this, the segments count as in memory.
    pub(crate) fn is_cold(&self, segments: &[Segment]) -> bool {
        let cached = |one: &Segment| self.file.cached_bytes(self.position(one), one.bytes);
        let Some(cached) = segments.iter().map(cached).sum::<Option<u64>>() else { return false };
        cached * 2 < segments.iter().map(|one| one.bytes).sum()
    }

    /// Drops segments from the system's memory.
    pub(crate) fn drop_cached(&self, segments: &[Segment]) {
        for one in segments {
            self.file.drop_cached(self.position(one), u64::from(one.slots) * self.slot_bytes);
        }
    }
}
