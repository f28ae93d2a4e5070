//! The write-ahead log: batches as it stores them, its segments, and how it is read back.

pub(crate) mod batch;
pub(crate) mod recovery;
pub(crate) mod segments;
