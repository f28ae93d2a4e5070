//! Garbage collection of value files.
//!
//! * [`groups`]: of a hash group, without a look at the tree.
//! * [`vlog`]: of a log at its tail, which asks the tree.
//! * [`write_back`]: of a group that writes pointers into the tree.
//! * [`relocate`]: what those two have in common.

pub(crate) mod groups;
mod relocate;
mod vlog;
mod write_back;
