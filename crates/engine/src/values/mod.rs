//! Stores values: inline in the tables, or separated in a value file, with pointers in the tree
//! (HashKV, ATC'18; WiscKey, FAST'16).
//!
//! - `layout`: the places of records, as metadata. Only edits of the manifest change it.
//! - `shared_list`: the lists of a layout, whose versions share their common parts.
//! - `pool`: free slots of the file.
//! - `file`: an open value file, and its state.
//! - `read`: reads a value from the cache or the file; `lookup`: reads many values at once.
//! - `appender`: the appends of one flush, compaction or collection; `buffers`: their bytes that
//!   are not written yet.
//! - `early`: values that are in the file before their writes are logged; `found`: finds them again
//!   with the help of the log.
//! - `separation`: where a flush or compaction puts each value.
//! - `again`: reads again the records that a scan could not hold.
//! - `behind`: keeps a collection from filling the system's page cache.
//! - `scan`: reads all records of segments, for collection and verification.
//! - `liveness`: which records and segments a collection keeps.
//! - `copy`: copies survivors to fresh slots, and cold ones to the cold stream.
//! - `usage`: the contents of a file, as users see them.
//! - `value`: the type that readers get.

pub(crate) mod again;
pub(crate) mod appender;
mod behind;
mod buffers;
pub(crate) mod copy;
pub(crate) mod early;
pub(crate) mod file;
mod found;
pub(crate) mod held;
pub(crate) mod layout;
pub(crate) mod liveness;
pub(crate) mod lookup;
pub(crate) mod pool;
pub(crate) mod read;
pub(crate) mod scan;
pub(crate) mod separation;
pub(crate) mod shared_list;
pub(crate) mod usage;
mod value;

pub(crate) use value::COPIED_BYTES;
pub use value::Value;
