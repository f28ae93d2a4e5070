//! The merge policies, one file each. Not their list: that is the registry.

pub mod adaptive_tiering;
pub mod fragmented_leveling;
mod leveled;
pub mod leveling;
