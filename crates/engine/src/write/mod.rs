//! The write path: commit pipeline, write-ahead log, back-pressure, recovery of the log.

pub mod commit;
pub mod pressure;
pub mod recovery;
pub mod wal;
