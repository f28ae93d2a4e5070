//! What hosts speak to a KVSSD: the key-value commands of NVMe, and an API in the style of SNIA's.
//!
//! Thin: sizes are checked, conditions are looked up, and the rest is the device's. A device speaks
//! one of them in its life, since the API puts a prefix before each key. Nobody else can write
//! between the look-up of a condition and the write, because a front holds the device.

mod nvme;
mod snia;

pub use nvme::{NvmeError, NvmeKv, OnMissing, StoreIf};
pub use snia::{IteratorId, KeyFilter, KeySpace, OnRetrieve, Snia, SniaError, StoreMode};
