//! Sorted tables: immutable files of blocks, partitions, a root and properties.
//!
//! ```text
//! table := (data block+ partition)+ root properties footer
//! ```
//!
//! Every part but the footer is framed (`frame`): it is compressed, and its checksum depends on the
//! file's uid and on the part's offset. The footer has a hash of everything before it. Nothing here
//! knows about levels or policies.

pub(crate) mod behind;
pub mod builder;
pub mod copy;
pub mod handle;
pub mod iterator;
pub mod reader;

/// Format version of table files.
pub const TABLE_FORMAT: u32 = 1;
/// Last eight bytes of every table file.
pub const TABLE_MAGIC: u64 = u64::from_le_bytes(*b"RunTable");
/// Bytes of the footer.
pub const FOOTER_BYTES: usize = 56;

/// File name of a table.
pub fn table_name(id: u64) -> String {
    format!("{id:06}.table")
}
