//! What every binding needs where another language calls into the store:
//!
//! * [`handles`]: numbers that represent objects and show whether an object was closed.
//!   [`pointers`]: the same as C pointers. [`alone`]: objects that one thread at a time may use.
//! * [`stores`]: open stores, and the refresh of a store that follows another process.
//! * [`failure`]: failures as a code and a message. Panics end here.
//! * [`options`]: options of a store as TOML. [`events`]: events of a store as kinds and fields.
//! * [`transactions`]: transactions that several objects share, and their cursors. [`cursors`]:
//!   cursors over a store or over a transaction.
//! * [`backups`]: backups and archives. [`changes`]: changes in order, with names of keyspaces.
//!   [`mirrors`]: stores that follow another store.
//! * [`properties`]: properties that programs written for LevelDB read from a store.

#![forbid(unsafe_code)]

pub mod alone;
pub mod backups;
pub mod changes;
pub mod cursors;
pub mod events;
pub mod failure;
pub mod handles;
pub mod mirrors;
pub mod options;
pub mod pointers;
pub mod properties;
pub mod stores;
pub mod transactions;

pub use failure::{Code, Failure, Result, guard};
pub use handles::{Handle, Handles};
