//! Memory that counts against a store's budget to the byte.
//!
//! * [`slabs`]: what the cache holds, in mapped slabs of one slot size each.
//! * [`region`]: memory from the system, past the allocator.
//! * [`limit`]: what the system allows at most.

pub mod limit;
pub mod region;
pub mod slabs;
