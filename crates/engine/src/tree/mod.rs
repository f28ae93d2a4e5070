//! The tree at one moment: its tables, and the log of edits that records them.
//!
//! - [`version`]: an immutable shape with its open tables, which readers share.
//! - [`level`]: one level of a version, for searching; `probe`: tables that a get will probe;
//!   [`versions`]: all versions of one key; `newer`: what was written after some number;
//!   `in_memory`: what memory says about a key.
//! - [`manifest`]: the log of edits, the sole commit point of the store; [`tail`]: the same beside
//!   a process that appends to it; [`history`]: which numbers mean the same write.
//! - `seeks`: what reads charge tables with, for policies.
//! - [`record`]: how edits are encoded; `pending`: how plans in them are; [`replay`]: how a state
//!   follows them.

pub(crate) mod history;
mod in_memory;
pub mod level;
pub mod manifest;
mod newer;
mod pending;
mod probe;
pub mod record;
pub(crate) mod replay;
pub(crate) mod seeks;
pub(crate) mod tail;
pub mod version;
pub(crate) mod versions;
