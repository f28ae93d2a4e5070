//! A KVSSD: flash that keeps an LSM tree and speaks keys and values (nLSM, dLSM, lLSM, rLSM(-),
//! rLSM).
//!
//! Read [`KvSsd`] (`device.rs`) first, then `compact.rs`, `collect.rs` and `boot.rs`. Listed below
//! are the parts that decide and encode without a device: page formats, references, the plan of a
//! remapping compaction, and lookups and merges over clipped pages.

mod append;
mod boot;
mod capacitor;
mod collect;
mod compact;
mod counters;
mod device;
mod draft;
mod frames;
mod journal;
mod key;
mod kv_page;
mod log;
mod lookup;
mod memtable;
mod merge;
mod meta_page;
mod options;
mod page_filter;
mod record;
mod references;
mod remap;
mod rewrite;
mod scan;
mod space;
mod tree;
mod value_map;
mod values;
mod verify;

use crate::error::Result;
use crate::nand::SharedBytes;
pub use append::plan_append;
pub use counters::{Cause, KvSsdAmplification, KvSsdCounters, Programs};
pub use device::{BlockReport, KvSsd, RamReport};
pub use draft::build_pages;
pub use key::Key;
pub use kv_page::{KvPage, find_in};
pub use lookup::find_record;
pub use merge::Merged;
pub use meta_page::{Clip, Entry, Real, TableMeta};
pub use options::{Durability, Form, KvSsdOptions, Placement, ValuePlacement, cut_names};
pub use page_filter::PageFilter;
pub use record::{KeyBlock, Kind, Record, Version};
pub use references::References;
pub use remap::{CompactionInput, Output, RemapLimits, plan_compaction};
pub use rewrite::Rewriter;
pub use runstone_policy::partition::{CutKey, Partitioner};
pub use scan::{Direction, Visit};
pub use tree::{Commit, Node, Tree, ValueEntry, Values};
pub use verify::Verified;

/// One write of an atomic group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Write<'a> {
    /// Stores a value.
    Put {
        /// Key.
        key: &'a [u8],
        /// Value.
        value: &'a [u8],
    },
    /// Removes a key.
    Delete {
        /// Key.
        key: &'a [u8],
    },
}

impl<'a> Write<'a> {
    /// Kind, key and value. The value of a delete is empty.
    fn parts(&self) -> (Kind, &'a [u8], &'a [u8]) {
        match self {
            Write::Put { key, value } => (Kind::Put, key, value),
            Write::Delete { key } => (Kind::Delete, key, &[]),
        }
    }
}

/// Reads the bytes of an entry's page, followed by its extension pages.
pub trait PageReader {
    /// Reads all pages of the entry.
    fn read_pages(&mut self, entry: &Entry) -> Result<SharedBytes>;
    /// Reads the metadata of a real table whose content is known.
    fn look_at(&mut self, _real: &Real) -> Result<()> {
        Ok(())
    }
}

/// Writes pages. The group of a large value is contiguous.
pub trait PageWriter {
    /// Writes whole pages and returns the number of the first.
    fn write_pages(&mut self, bytes: SharedBytes) -> Result<u32>;
}
