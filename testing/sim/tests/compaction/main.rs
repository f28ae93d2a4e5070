//! Compactions: any policy gives the same answers, and a compaction in parts may end between any
//! two parts.

mod part_by_part;
mod policies;
