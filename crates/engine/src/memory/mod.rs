//! Memory that counts against a store's budget to the byte, and hints to the system about memory.
//!
//! * [`slabs`]: the memory of cached objects, in mapped slabs of one slot size each.
//! * [`region`]: memory from the system instead of the allocator.
//! * [`prefetch`]: asks the processor for memory that is needed soon.
//! * [`limit`]: the most memory that the system allows.

pub mod limit;
pub(crate) mod prefetch;
pub mod region;
pub mod slabs;
