//! The write path.
//!
//! - [`commit`]: gives a batch its numbers, logs, inserts and publishes it.
//! - [`apart`]: writes the record of a batch that is too long for that under the lock.
//! - [`conditional`]: the same if nothing came between, for transactions.
//! - [`large`]: the same for batches that do not fit a log segment.
//! - [`held`]: what may be done under the lock, and how much was.
//! - [`recent`]: the keys that were written lately, for conditional commits.
//! - [`load`]: the number of a bulk load.
//! - [`log`]: syncs the log, and manages its segments.
//! - [`rotation`]: replaces memtables.
//! - [`buffers`]: the memory of memtables and its limits.
//! - [`pressure`]: slows writers down before they must be stopped; [`siblings`]: the stores that
//!   share the budget.

mod apart;
pub(crate) mod buffers;
pub(crate) mod commit;
pub(crate) mod conditional;
pub(crate) mod held;
mod large;
pub(crate) mod load;
mod log;
pub(crate) mod pressure;
pub(crate) mod recent;
mod rotation;
pub(crate) mod siblings;
