//! The write path.
//!
//! - [`commit`]: gives a batch its sequence numbers, logs, inserts and publishes it.
//! - [`apart`]: writes the record of a batch that is too long to be copied under the lock.
//! - [`later`]: commits that can be awaited; `awaited`: the commits that wait; [`syncing`]: the
//!   thread that syncs for them.
//! - [`early`]: writes large values to their files before their batch is logged.
//! - [`conditional`]: commits a batch if no conflicting write came in between, for transactions.
//! - [`relocation`]: writes the new pointers of values that a collection moved.
//! - [`large`]: commits batches that do not fit into a log segment.
//! - [`held`]: how much work may be done under the lock, and how much was done.
//! - [`recent`]: the keys that were written lately, for conditional commits.
//! - [`generations`]: what is flushed together in a store without a log.
//! - [`load`]: the sequence number of a bulk load.
//! - [`log`]: syncs the log, and manages its segments.
//! - [`rotation`]: replaces memtables.
//! - [`buffers`]: the memory of memtables and its limits.
//! - [`pressure`]: slows writers down before they must be stopped; [`siblings`]: the stores that
//!   share the budget.

mod apart;
mod awaited;
pub(crate) mod buffers;
pub(crate) mod commit;
pub(crate) mod conditional;
mod early;
pub(crate) mod generations;
pub(crate) mod held;
mod large;
pub(crate) mod later;
pub(crate) mod load;
mod log;
pub(crate) mod pressure;
pub(crate) mod recent;
pub(crate) mod relocation;
mod rotation;
pub(crate) mod siblings;
pub(crate) mod syncing;
