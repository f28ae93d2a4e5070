//! The bytes inside files: blocks of tables, their index and filter, and the records of value
//! files. This room encodes and decodes bytes; it reads and writes no file.
//!
//! * [`block`]: sorted entries; [`resident`]: which blocks of a partition are in memory.
//! * [`index`]: separators and places of up to 512 blocks; [`filter`]: which keys they may hold.
//! * [`frame`]: compression and checksums of every part of a table.
//! * [`properties`]: what a table says about itself.
//! * [`record`]: records, footers and pointers of value files.

pub mod block;
pub mod filter;
pub mod frame;
pub mod index;
pub mod properties;
pub(crate) mod record;
pub mod resident;
