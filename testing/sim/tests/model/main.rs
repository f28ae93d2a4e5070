//! The store compared with a map: operations, cursors, dead ranges, versions, any options, any
//! storage.

mod block_ssd;
mod compaction_filters;
mod cursors;
mod dead_ranges;
mod estimates;
mod expiry;
mod extreme_options;
mod handles;
mod held_operands;
mod many_ranges;
mod merge_operators;
mod operand_chains;
mod operands_and_snapshots;
mod operations;
mod range_deletes;
mod range_scenarios;
mod slabs;
mod standing;
mod unlike_ranges;
mod unreadable_entries;
mod versions;
mod write_back;
