//! The tree at one moment: its tables, and the log of edits that records them.
//!
//! - [`version`]: an immutable shape with its open tables, which readers share.
//! - [`level`]: one level of a version, for searching; `probe`: tables that a get will probe;
//!   [`versions`]: all versions of one key; `newer`: what was written after some sequence number;
//!   `in_memory`: what is known in memory about a key.
//! - [`manifest`]: the log of edits, the sole commit point of the store; [`tail`]: reads it beside
//!   a process that appends to it; [`history`]: which sequence numbers mean the same write.
//! - `seeks`: the seeks that reads charge to tables, for policies; `seq_list`: lists of sequence
//!   numbers that versions share.
//! - [`record`]: the encoding of edits; `pending`: the encoding of plans in edits; [`replay`]:
//!   applies edits to a state.

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
mod seq_list;
pub(crate) mod tail;
pub mod version;
pub(crate) mod versions;
