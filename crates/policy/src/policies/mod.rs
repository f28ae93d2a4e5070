//! The merge policies, one file each. Not their list: that is the registry.

pub mod adaptive_tiering;
pub mod fluid;
pub mod fragmented_leveling;
pub mod garnering;
pub mod lazy_leveling;
mod leveled;
pub mod leveling;
mod tiered;
pub mod tiering;
mod waiting;
