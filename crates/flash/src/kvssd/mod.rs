//! The parts of a KVSSD's firmware that decide and encode: page formats, references, the plan of a
//! remapping compaction, lookups and merges over clipped pages. No device: pages are read and
//! written through [`PageReader`] and [`PageWriter`], and commit, collection and recovery are not
//! here.

mod kv_page;
mod merge;
mod meta_page;
mod references;
mod remap;

use crate::error::Result;
pub use kv_page::{KeyBlock, Kind, KvPage, Record, build_pages};
pub use merge::{Lookup, Merged, Rewriter, lookup};
pub use meta_page::{Clip, Entry, TableMeta};
pub use references::References;
pub use remap::{CompactionInput, Output, RemapLimits, plan_compaction};

/// Gives the bytes of an entry's page, with its extension pages behind it.
pub trait PageReader {
    /// Reads all pages of the entry.
    fn read_pages(&mut self, entry: &Entry) -> Result<Vec<u8>>;
}

/// Takes pages; the group of a large value is contiguous.
pub trait PageWriter {
    /// Writes whole pages and returns the number of the first.
    fn write_pages(&mut self, bytes: &[u8]) -> Result<u32>;
}
