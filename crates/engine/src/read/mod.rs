//! Ordered reads: one source per memtable and run, compacted, then filtered to what a reader may
//! see.
//!
//! Point reads do not come through here: `store/keyspace` -> `tree/version` -> `table/reader`.

pub mod cursor;
pub(crate) mod get;
pub mod merge;
pub mod source;
