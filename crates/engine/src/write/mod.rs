//! The write path.
//!
//! * [`commit`]: a batch gets its numbers, is logged, inserted and published.
//! * [`log`]: syncs of the log, and its segments.
//! * [`rotation`]: memtables are replaced.
//! * [`pressure`]: writers are slowed down before they must be stopped.

pub(crate) mod commit;
mod log;
pub(crate) mod pressure;
mod rotation;
