//! Background work: flushes, compactions, collections. Policies decide what to do
//! (`runstone-policy`), and this module does it.
//!
//! - [`runner`]: which job of a store runs next; [`search`]: what the choice knows of readers;
//!   [`workers`]: the threads that run jobs, of one store or of many; [`exclusive`]: jobs that a
//!   caller runs.
//! - [`supervisor`]: runs jobs that have a claim, and stops the store if one panics.
//! - [`flush`]: writes a memtable to a level-0 run; [`flush_cuts`]: where that run is cut.
//! - [`compaction`]: executes the plan of a policy.
//! - [`collection`]: collects garbage in value files.
//! - [`covered`]: tables that a range delete hides, which are dropped without being read.
//! - [`idle`]: what to do while nobody writes.
//! - [`load`]: bulk loads, which a caller's thread writes to tables.
//! - [`prepare`]: prepares what writers will need soon.
//! - [`output`]: the tables that a flush or a compaction writes; [`liveness`]: which versions stay;
//!   [`outside`]: what debug builds compare that with; [`neighbours`]: which versions outside the
//!   compaction are next to them; [`filtering`]: how compaction filters change them; [`folding`]:
//!   operands of merge operators; [`cutter`]: where a table ends; [`copier`]: which blocks are
//!   copied whole.
//! - [`install`]: makes a finished job part of the tree, with one manifest edit.

pub(crate) mod collection;
pub(crate) mod compaction;
mod copier;
mod covered;
mod cutter;
mod exclusive;
mod filtering;
pub(crate) mod flush;
mod flush_cuts;
mod folding;
mod idle;
pub(crate) mod install;
mod liveness;
pub(crate) mod load;
mod neighbours;
pub(crate) mod output;
mod outside;
pub(crate) mod prepare;
pub(crate) mod runner;
mod search;
pub(crate) mod supervisor;
pub(crate) mod workers;
