//! Ordered reads: one source per memtable and run, merged, then filtered to what a reader may see.
//!
//! Point reads do not come through here: `store/keyspace` -> `version` -> `table/reader`.

pub mod cursor;
pub(crate) mod gap;
pub mod merge;
pub mod source;
