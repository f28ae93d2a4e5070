//! Where values lie: inline in the tables, or apart in a value file with the tree holding pointers
//! (HashKV, ATC'18; WiscKey, FAST'16).
//!
//! * `layout`: which records lie where, as metadata; changes by edits of the manifest only.
//! * `pool`: slots of the file.
//! * `file`: an open value file, and the state behind it.
//! * `read`: a value, from the cache or the file; `lookup`: many values read at once.
//! * `appender`: appends of one flush, compaction or collection.
//! * `separation`: what a flush or compact does with each value.
//! * `scan`: all records of segments, as collection and verification read them.
//! * `liveness`: which records and segments a collection keeps.
//! * `copy`: survivors to fresh slots, cold ones to the cold stream.
//! * `value`: the type that readers get.

pub(crate) mod appender;
pub(crate) mod copy;
pub(crate) mod file;
pub(crate) mod layout;
pub(crate) mod liveness;
pub(crate) mod lookup;
pub(crate) mod pool;
pub(crate) mod read;
pub(crate) mod scan;
pub(crate) mod separation;
mod value;

pub(crate) use value::INLINE_BYTES;
pub use value::Value;
