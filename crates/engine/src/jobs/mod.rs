//! Background work: flushes, compactions, collections. Policies decide (`runstone-policy`), this
//! room executes:
//!
//! * [`scheduler`]: which job runs next, on which thread.
//! * [`flush`]: a memtable becomes a level-0 run.
//! * [`compaction`]: the plan of a policy is executed.
//! * [`collection`]: garbage of value files.
//! * [`cutter`]: where one output table ends and the next begins.
//! * [`install`]: a finished job becomes part of the tree, by one manifest edit.

pub(crate) mod collection;
pub(crate) mod compaction;
mod cutter;
pub(crate) mod flush;
pub(crate) mod install;
pub(crate) mod scheduler;
