//! The interfaces through which hosts use a KVSSD: the key-value commands of NVMe, and an API in
//! the style of SNIA's.
//!
//! A front is thin: it checks sizes and looks up conditions, and the device does the rest.
//! Throughout its life a device is used through only one front, because the API puts a prefix
//! before each key. A front borrows the device exclusively, so nobody else can write between the
//! look-up of a condition and the write.

mod nvme;
mod snia;

pub use nvme::{NvmeError, NvmeKv, OnMissing, StoreIf};
pub use snia::{IteratorId, KeyFilter, KeySpace, OnRetrieve, Snia, SniaError, StoreMode};
