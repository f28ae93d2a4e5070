//! Pure decisions about the shape of an LSM tree: what merges when, what moves, what it will cost.
//!
//! Metadata in, plan out. No I/O, no clock, no randomness, no floating point in a result, no hash
//! order: the same shape always gives the same plan. The crate cannot name the storage crate, so
//! its purity is checked by the build. The engine, the simulator and the flash firmware all drive
//! the same functions.
//!
//! Start reading at [`shape`], then [`plan`], then one policy in [`policies`]. A new policy is one
//! file in `policies/` and one line in [`registry`].

#![forbid(unsafe_code)]

pub mod drop_guard;
pub mod edit;
pub mod filters;
pub mod options;
mod overlap;
pub mod overlapping;
pub mod partition;
pub mod parts;
pub mod plan;
pub mod policies;
pub mod policy;
pub mod prefix;
pub mod registry;
pub mod shape;
pub mod simulator;
pub mod sketch;
pub mod space;
pub mod text;
pub mod whole;
