//! The synchronisation of threads. Every lock of the engine has a rank, except the locks of the
//! cores that a model checker schedules.
//!
//! - [`rank`]: the order of the locks.
//! - [`ranked`]: locks that are checked against this order.
//! - [`threads`]: numbers and buffers of threads, and the bell that calls workers.
//! - [`subtract`]: counters that never fall below zero.
//! - [`cores`]: the primitives of the cores, which the checker can replace.

pub(crate) mod cores;
mod counter;
pub(crate) mod rank;
mod ranked;
pub(crate) mod threads;

pub use counter::subtract;
#[cfg(all(debug_assertions, feature = "seeded-bugs"))]
pub use ranked::most_looked;
pub use ranked::{Aside, Condvar, Mutex, MutexGuard, RwLock, looked};
