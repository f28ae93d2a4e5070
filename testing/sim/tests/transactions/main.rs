//! Transactions: what each level of isolation prevents, by name and by random histories, and what a
//! crash leaves of a commit. Not here: batches and single writes (`concurrency`, `crash`).

mod anomalies;
mod bank;
mod conflicts;
mod crash;
mod cursors;
mod faults;
mod histories;
mod input;
mod locks;
mod merges;
mod single_keys;

use std::sync::Arc;

use runstone::storage::MemoryStorage;
use runstone::{Background, Error, Options, Store};

/// Options of a small store in which nothing happens by itself.
fn options() -> Options {
    Options::default().background(Background::Manual).memory_budget_bytes(4 << 20).seed(1)
}

/// An empty store.
fn store() -> Store {
    Store::open_on(Arc::new(MemoryStorage::new()), options()).expect("opens")
}

/// Whether a commit failed because of this key.
fn is_conflict_of(outcome: &Result<(), Error>, wanted: &str) -> bool {
    matches!(outcome, Err(Error::Conflict { key, .. }) if key == wanted.as_bytes())
}
