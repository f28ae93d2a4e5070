//! Background work: flushes, compactions, collections. Policies decide (`runstone-policy`), this
//! room executes.
//!
//! * [`runner`]: which job runs next, on which thread; [`exclusive`]: jobs that a caller runs.
//! * [`flush`]: a memtable becomes a level-0 run.
//! * [`compaction`]: the plan of a policy is executed.
//! * [`collection`]: garbage of value files.
//! * [`prepare`]: what writers want soon.
//! * [`output`]: the tables that a flush or a compaction writes; [`liveness`]: which versions stay,
//!   [`cutter`]: where a table ends, [`copier`]: blocks that are copied whole.
//! * [`install`]: a finished job becomes part of the tree, by one manifest edit.

pub(crate) mod collection;
pub(crate) mod compaction;
mod copier;
mod cutter;
mod exclusive;
pub(crate) mod flush;
pub(crate) mod install;
mod liveness;
pub(crate) mod output;
pub(crate) mod prepare;
pub(crate) mod runner;
