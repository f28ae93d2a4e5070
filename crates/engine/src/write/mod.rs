//! The write path.
//!
//! - [`commit`]: gives a batch its numbers, logs, inserts and publishes it.
//! - [`log`]: syncs the log, and manages its segments.
//! - [`rotation`]: replaces memtables.
//! - [`pressure`]: slows writers down before they must be stopped.

pub(crate) mod commit;
mod log;
pub(crate) mod pressure;
mod rotation;
