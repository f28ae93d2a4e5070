//! Memory that counts against a store's budget to the byte, and what the system is told about it.
//!
//! * [`slabs`]: what the cache holds, in mapped slabs of one slot size each.
//! * [`region`]: memory from the system, not the allocator.
//! * [`prefetch`]: asks the processor for memory that is needed soon.
//! * [`limit`]: what the system allows at most.

pub mod limit;
pub(crate) mod prefetch;
pub mod region;
pub mod slabs;
