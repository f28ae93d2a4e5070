//! Pure decisions about the shape of an LSM tree: what is compacted when, what moves, what it
//! costs.
//!
//! Metadata in, plan out. No I/O, no clock, no randomness, no floating point in a result, no hash
//! order: the same shape always gives the same plan. The crate cannot name the storage crate, so
//! its purity is checked by the build. The engine, the simulator and the flash firmware all drive
//! the same functions.
//!
//! Start reading at [`shape`], then [`plan`], then one policy in [`policies`]. A new policy is one
//! file in `policies/` and one line in [`registry`].
//!
//! `shape` represents the tree and its plans as data. `partition` and `policy` make decisions about
//! it. `policies` build on both, and the registry builds on `policies`.

#![forbid(unsafe_code)]

mod covering;
pub mod drop_guard;
pub mod edit;
pub mod filters;
pub mod options;
mod overlap;
pub mod partition;
pub mod parts;
pub mod policies;
pub mod policy;
pub mod prefix;
pub mod registry;
pub mod shape;
pub mod sketch;
pub mod text;
pub mod units;

pub use policy::{range, space, whole};
pub use shape::{overlapping, plan};
