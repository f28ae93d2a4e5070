//! The compaction policies, one file each. The registry has the list of them.

pub mod adaptive_tiering;
pub mod bigtable;
pub mod binomial;
mod binomial_layout;
pub mod constant;
pub mod fluid;
pub mod fragmented_leveling;
pub mod garnering;
pub mod guards;
pub mod lazy_leveling;
mod leveled;
pub mod leveling;
pub mod min_latency;
mod overlapped;
mod seeks;
mod stack;
mod tiered;
pub mod tiering;
pub mod universal;
mod waiting;
