//! `librunstone.so`: the store for C, and for languages that call C. The documentation of the
//! functions is that of `include/runstone.h`, which is made from this crate.
//!
//! * [`status`]: what a function returns. [`bytes`]: bytes and texts on their way. [`durability`]:
//!   what a write survives. [`handles`]: what C holds in place of objects.
//! * [`options`], [`store`], [`keyspace`]: opening, and what needs no object of its own.
//! * [`batch`], [`snapshot`], [`cursor`], [`transaction`], [`sorted`]: the other objects.
//! * [`callbacks`]: merge operators, compaction filters and listeners of the caller's.
//!
//! A pointer to an object is a handle, a number of [`runstone_boundary::handles`]: nothing is
//! behind it in memory. So what was closed is refused, and so is what never was one.

// The promises of a function to C stand in the header, and each argument's in `bytes`.
#![allow(clippy::missing_safety_doc)]

pub mod batch;
pub mod bytes;
pub mod callbacks;
pub mod cursor;
pub mod durability;
pub mod handles;
pub mod keyspace;
pub mod options;
pub mod snapshot;
pub mod sorted;
pub mod status;
pub mod store;
pub mod transaction;

pub(crate) use runstone_boundary::Result;
