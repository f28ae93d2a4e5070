//! A plan is executed: its inputs are read as merged streams, and what somebody can see is written
//! to new tables.
//!
//! * [`job`]: the compactions of a plan.
//! * [`copier`]: blocks that no other input meets are copied.
//! * [`slices`]: a large compact in parts that run side by side.
//! * [`parts`]: a large plan that is installed part by part.

mod copier;
pub(crate) mod job;
mod parts;
pub(crate) mod slices;
