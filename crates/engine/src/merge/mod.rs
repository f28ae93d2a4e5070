//! Background work: flushes and merges. Policies decide (`runstone-policy`), this room executes:
//!
//! * [`scheduler`]: which job runs next, on which thread.
//! * [`flush`]: a memtable becomes a level-0 run.
//! * [`job`]: the merges of a plan are executed.
//! * [`copier`]: blocks that no other input meets are copied.
//! * [`cutter`]: where one output table ends and the next begins.
//! * [`slices`]: a large merge in parts that run side by side.
//! * [`parts`]: a large plan that is installed part by part.
//! * [`install`]: a finished job becomes part of the tree, by one manifest edit.

mod copier;
mod cutter;
pub(crate) mod flush;
pub(crate) mod install;
pub(crate) mod job;
mod parts;
pub(crate) mod scheduler;
pub(crate) mod slices;
