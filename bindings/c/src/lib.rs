//! `librunstone.so`: the store for C, and for languages that call C. The documentation of the
//! functions is that of `include/runstone.h`, which is made from this crate.
//!
//! * [`status`]: what a function returns. [`bytes`]: bytes and strings that cross the boundary.
//!   [`durability`]: what a write survives. [`handles`]: what C holds in place of objects.
//! * [`options`], [`store`], [`keyspace`]: opening, and functions that need no object of their own.
//! * [`batch`], [`snapshot`], [`cursor`], [`transaction`], [`sorted`]: the other objects.
//! * [`backups`], [`archiver`]: backups, and every moment between them. [`repair`]: a new store out
//!   of what a damaged one holds. [`changes`], [`mirror`]: what is committed, for other systems or
//!   for a second store.
//! * [`callbacks`]: the caller's merge operators, compaction filters and listeners.
//!
//! A pointer to an object is a handle, a number of [`runstone_boundary::handles`]: it points to no
//! memory. So a closed object is refused, and so is a pointer that never was one.

// The header states what a function promises to C; `bytes` states the promises for arguments.
#![allow(clippy::missing_safety_doc)]

pub mod archiver;
pub mod backups;
pub mod batch;
pub mod bytes;
pub mod callbacks;
pub mod changes;
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
