//! The write path: commit pipeline, write-ahead log, back-pressure, recovery of the log.

pub mod commit;
#[cfg(test)]
mod model;
pub mod pressure;
pub mod recovery;
pub mod tickets;
pub mod wal;

use crate::sync;
