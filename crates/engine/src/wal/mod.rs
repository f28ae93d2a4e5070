//! The write-ahead log: batches in their stored form, segments, and recovery.

pub(crate) mod batch;
pub(crate) mod files;
pub(crate) mod kept;
pub(crate) mod note;
pub(crate) mod recovery;
pub(crate) mod reserve;
pub(crate) mod segments;
pub(crate) mod tail;
