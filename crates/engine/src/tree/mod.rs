//! The tree at one moment: which tables make it up, and the log of edits that says so.
//!
//! * [`version`]: an immutable shape with its open tables; readers hold one by count.
//! * [`level`]: one level of it, for searching; `probe`: tables that a get is about to probe.
//! * [`manifest`]: the edit log, sole commit point of the store.
//! * [`record`]: how edits are encoded; `pending`: the plans in them.

pub mod level;
pub mod manifest;
mod pending;
mod probe;
pub mod record;
pub mod version;
