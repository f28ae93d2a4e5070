//! A KVSSD: flash that keeps an LSM tree and speaks keys and values (nLSM, dLSM, lLSM, rLSM(-),
//! rLSM).
//!
//! Read [`KvSsd`] (`device.rs`) first, then `compact.rs`, `collect.rs` and `boot.rs`. Listed below
//! are the parts that decide and encode without a device: page formats, references, the plan of a
//! remapping compaction, and lookups and merges over clipped pages.

mod boot;
mod collect;
mod compact;
mod compaction;
mod counters;
mod device;
mod format;
mod options;
mod pending;
mod scan;
mod space;
mod tables;
mod tree;
mod values;
mod verify;

pub use compaction::append::plan_append;
pub use compaction::remap::{CompactionInput, Output, RemapLimits, plan_compaction};
pub use counters::{Cause, KvSsdAmplification, KvSsdCounters, Programs};
pub use device::{BlockReport, KvSsd, RamReport};
pub use format::draft::build_pages;
pub use format::key::Key;
pub use format::kv_page::{KvPage, find_in};
pub use format::meta_page::{Clip, Entry, Real, TableMeta};
pub use format::page_filter::PageFilter;
pub use format::record::{KeyBlock, Kind, Record, Version};
pub use options::{Durability, Form, KvSsdOptions, Placement, ValuePlacement, cut_names};
pub use pending::Write;
pub use runstone_policy::partition::{CutKey, Partitioner};
pub use scan::{Direction, Visit};
pub use tables::lookup::find_record;
pub use tables::merge::Merged;
pub use tables::rewrite::Rewriter;
pub use tables::{PageReader, PageWriter};
pub use tree::references::References;
pub use tree::{Commit, Node, Tree, ValueEntry, Values};
pub use verify::Verified;
