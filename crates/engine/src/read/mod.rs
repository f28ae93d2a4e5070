//! Reads: point look-ups, and ordered walks over merged sources.
//!
//! - [`get`]: point reads, through `tree/version.rs` and `table/reader.rs`.
//! - [`cached`]: point reads that read no file.
//! - [`cursor`]: the cursor of a user; [`lent`]: the entry that it shows; [`walker`]: filters the
//!   merged entries to those that a reader may see; [`kept`]: the memory that a parked cursor
//!   keeps.
//! - [`options`]: the moment and the bounds; [`ahead`]: separated values, read together.
//! - [`scan`]: a standard iterator, with a cursor for each of its [`ends`].
//! - [`covers`]: the range deletes that a walk sees; [`fold`]: the value of a key with operands.
//! - [`merge`]: the k-way merge; [`source`]: one sorted stream per memtable and run.
//! - [`sample`]: estimates how many entries readers see.

mod ahead;
pub mod cached;
mod covers;
pub mod cursor;
pub(crate) mod ends;
pub(crate) mod fold;
pub(crate) mod get;
mod kept;
mod lent;
pub mod merge;
pub mod options;
pub(crate) mod sample;
pub mod scan;
pub mod source;
mod walker;
