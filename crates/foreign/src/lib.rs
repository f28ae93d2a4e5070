//! Reads databases of other stores, LevelDB and RocksDB, from their public formats: every key with
//! its newest value, in order. The crate never writes into them, and repairs nothing. It is
//! independent of Runstone.
//!
//! 1. `CURRENT` names the manifest. Its edits list the tables of each level and the logs in use
//!    ([`Database::open`]).
//! 2. The logs are read into memory. Tables are read block by block, and each block's checksum is
//!    checked.
//! 3. All of them are merged by key, the newest version first. Entries that a delete hides are left
//!    out ([`Database::entries`]).

#![forbid(unsafe_code)]

mod batch;
mod block;
mod bytes;
mod checksum;
mod compression;
mod database;
mod directory;
mod error;
mod file;
mod footer;
mod index;
mod keys;
mod log;
mod manifest;
mod merge;
mod properties;
mod table;
mod tombstones;
mod version;

pub use database::{Database, Entries};
pub use error::{Cause, Error, Result};
pub use keys::Dialect;
