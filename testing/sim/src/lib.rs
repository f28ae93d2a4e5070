//! Fault simulation: random workloads, an oracle that knows what must be true, and crashes at every
//! I/O operation. Nothing here is shipped; it proves the promises P1-P10 of the store.
//!
//! * [`workload`]: operations from a seed, and how they are applied.
//! * [`oracle`]: the history of writes, and which prefixes of it a crash may leave.
//! * [`changes`]: workloads whose options change while they run.
//! * [`crash`]: runs a workload into a fault and judges what a reopen shows.
//! * `found` (feature `fuzz`): whether a check fails, with or without a seeded bug.
//! * `fuzz` (feature `fuzz`): the bodies of the fuzz targets.
//! * `samples` (feature `fuzz`): makes small stores in each format.
//! * [`soak`]: random work in a child process that is killed, for as long as one likes.

#![forbid(unsafe_code)]

pub mod changes;
pub mod clock;
pub mod crash;
#[cfg(feature = "fuzz")]
pub mod found;
#[cfg(feature = "fuzz")]
pub mod fuzz;
pub mod oracle;
pub mod random;
#[cfg(feature = "fuzz")]
pub mod samples;
pub mod soak;
pub mod workload;
