//! Reads: point look-ups, and ordered walks over merged sources.
//!
//! - [`get`]: point reads, by `tree/version.rs` and `table/reader.rs`.
//! - [`cursor`]: filters the merged entries to what a reader may see.
//! - [`merge`]: the k-way merge; [`source`]: one sorted stream per memtable and run.

mod covers;
pub mod cursor;
pub(crate) mod get;
pub mod merge;
pub mod source;
