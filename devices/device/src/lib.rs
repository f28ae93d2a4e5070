//! Emulated flash devices by URL, for programs that open stores by name: the command line and
//! benchmarks.
//!
//! * `kvssd:PATH?blocks=384&policy=rlsm&th=2`: a device that is a [`runstone_kv::KvStore`].
//! * `blockssd:PATH?blocks=384`: a storage, on which the unchanged file engine runs.
//!
//! This is the one crate above both the engine and the flash, which do not know each other. It
//! contains no firmware and no store, only the connection between them.

#![forbid(unsafe_code)]

mod kvssd;
pub mod url;

pub use kvssd::{KvSsdStore, explained};
pub use url::{DeviceUrl, Kind};
