//! What an LSM tree inside a flash device decides, for the firmware and for its simulator: which
//! levels contain the runs of a policy, and which pages a compaction keeps. Pure: metadata in, plan
//! out. Source: KVSSD.

#![forbid(unsafe_code)]

pub mod bands;
pub mod remap;
