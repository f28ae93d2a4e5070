//! Emulated NAND flash and the devices that are built on it, with counters and simulated time,
//! never wall-clock time.
//!
//! * [`nand`]: pages, blocks, spare bytes, program and erase rules, timing, wear, faults.
//! * [`ftl`]: an ordinary, page-mapped block SSD on that flash.
//! * [`block`]: files on that SSD behind the storage trait, so that the file engine runs on it.
//! * [`kvssd`]: a KVSSD: firmware that keeps an LSM tree on flash and speaks keys and values.
//! * [`front`]: the interfaces for hosts of a KVSSD: NVMe key-value commands, and an API in SNIA's
//!   style.
//!
//! Everything is in one image file and survives a restart and a power cut. Not here: the file
//! engine, which is one user of this crate among others.

#![forbid(unsafe_code)]

pub mod block;
mod error;
pub mod front;
pub mod ftl;
mod geometry;
pub mod kvssd;
pub mod nand;
mod rest;

pub use error::{Error, Result, Rule};
