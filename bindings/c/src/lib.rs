//! `librunstone.so`: the store for C, and for languages that call C. The header
//! `include/runstone.h` is generated from this crate, including the documentation of the functions.
//!
//! * [`status`]: results of functions. [`bytes`]: bytes and strings that cross the boundary.
//!   [`durability`]: the durability of a write. [`handles`]: the types that C programs keep in
//!   place of objects.
//! * [`options`], [`store`], [`keyspace`], [`conditional`]: opening, and functions that need no
//!   other object.
//! * [`batch`], [`snapshot`], [`cursor`], [`transaction`], [`sorted`]: the other objects.
//! * [`backups`], [`archiver`]: backups, and every moment between them. [`repair`]: a new store
//!   from the data of a damaged one. [`changes`], [`mirror`]: committed changes, for other systems
//!   or for a second store.
//! * [`callbacks`]: the caller's merge operators, compaction filters and listeners.
//!
//! A pointer to an object is a handle, a number of [`runstone_boundary::handles`]: it does not
//! point to memory. So a closed object is refused, and so is a pointer that was never a handle.

// The header states the requirements of each function; `bytes` states the requirements for
// arguments.
#![allow(clippy::missing_safety_doc)]

pub mod archiver;
pub mod backups;
pub mod batch;
pub mod bytes;
pub mod callbacks;
pub mod changes;
pub mod conditional;
pub mod cursor;
pub mod durability;
pub mod handles;
pub mod keyspace;
pub mod mirror;
pub mod options;
pub mod repair;
pub mod snapshot;
pub mod sorted;
pub mod status;
pub mod store;
pub mod transaction;

pub(crate) use runstone_boundary::Result;
