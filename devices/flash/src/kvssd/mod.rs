//! A KVSSD: flash that keeps an LSM tree and speaks keys and values (nLSM, dLSM, lLSM, rLSM(-),
//! rLSM).
//!
//! [`KvSsd`] (`device.rs`) joins the owners of its state. A room refers only to rooms further down:
//!
//! | room | what | owner |
//! |---|---|---|
//! | `device` | the public calls | [`KvSsd`] |
//! | `write` | what is refused, what makes room, where a write waits | `Writer` |
//! | `boot`, `verify` | opening a device from its flash; checking its consistency | |
//! | `compaction/` | flushes and compactions, and the plans of the variants | |
//! | `collection/` | the budget of pages, garbage collection, wear | |
//! | `read/` | gets and scans over the memtable and the tables | `View` |
//! | `catalog/` | what is on the flash and where; transactions and their pages | `Catalog` |
//! | `values/` | separated values | `ValueMap` |
//! | `pending/` | writes that are in no table, the log, the capacitor | `Pending` |
//! | `tree/` | tables by key, references to pages, bytes of commits | [`Tree`], [`References`] |
//! | `tables/` | look-ups, merges and rewrites of pages, wherever they are | |
//! | `space`, `snapshots` | blocks and programs; snapshots that are held | `Space`, `Snapshots` |
//! | `options`, `counters`, `format/` | options, counts, pages as bytes | |

mod boot;
mod catalog;
mod collection;
mod compaction;
mod counters;
mod device;
mod format;
mod options;
mod pending;
mod read;
mod snapshots;
mod space;
mod tables;
mod tree;
mod values;
mod verify;
mod write;

pub use compaction::append::plan_append;
pub use compaction::remap::{CompactionInput, Output, RemapLimits, plan_compaction};
pub use counters::{Cause, KvSsdAmplification, KvSsdCounters, Programs};
pub use device::{BlockReport, KvSsd, RamReport};
pub use format::draft::build_pages;
pub use format::key::Key;
pub use format::kv_page::{KvPage, find_in};
pub use format::meta_page::{Clip, Entry, Real, TableMeta};
pub use format::page_filter::{FilterSize, PageFilter};
pub use format::record::{KeyBlock, Kind, Record, Version};
pub use options::{Durability, Form, KvSsdOptions, Placement, ValuePlacement, cut_names};
pub use pending::Write;
pub use read::scan::{Direction, Visit};
pub use runstone_policy::filters::FilterAllocation;
pub use runstone_policy::partition::{CutKey, Partitioner};
pub use tables::lookup::find_record;
pub use tables::merge::Merged;
pub use tables::rewrite::Rewriter;
pub use tables::{PageReader, PageWriter};
pub use tree::references::References;
pub use tree::{Commit, Node, Tree, ValueEntry, Values};
pub use verify::Verified;
