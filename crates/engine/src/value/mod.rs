//! Where values lie: inline in the tables, or apart in a value file with the tree holding pointers
//! (spec: value placement; HashKV, ATC'18; WiscKey, FAST'16).
//!
//! * `options`: the choice, per keyspace.
//! * `record`: bytes of records, footers and pointers.
//! * `layout`: which records lie where, as metadata; changes by edits of the manifest only.
//! * `pool`: slots of the file.
//! * `store`: an open value file, and the state behind it.
//! * `read`: a value, from the cache or the file.
//! * `batch`: many values read at once.
//! * `appender`: appends of one flush, merge or collection.
//! * `place`: what a flush or merge does with each value.
//! * `collect`: garbage collection of a group, without a look at the tree.
//! * `scan`: all records of segments, as collection and verification read them.
//! * `keep`: which records and segments a collection keeps.
//! * `copy`: survivors to fresh slots, cold ones to the cold stream.
//! * `vlog`: garbage collection of a log at its tail, which asks the tree.
//! * `writeback`: garbage collection of a group that writes pointers into the tree.
//! * `relocate`: what those two have in common.
//! * `dump`: a value file as text.
//! * `pinned`: the value type that readers get.

pub(crate) mod appender;
pub(crate) mod batch;
pub(crate) mod collect;
mod copy;
pub(crate) mod dump;
mod keep;
pub(crate) mod layout;
pub(crate) mod options;
mod pinned;
pub(crate) mod place;
pub(crate) mod pool;
mod read;
pub(crate) mod record;
mod relocate;
mod scan;
pub(crate) mod store;
mod vlog;
mod writeback;

pub(crate) use pinned::INLINE_BYTES;
pub use pinned::Value;
