//! Opens a store as both halves of a node: its log and its machine.

use std::sync::Arc;

use openraft::RaftTypeConfig;
use runstone::Store;

use crate::base::{Base, Settings};
use crate::error::Error;
use crate::log::LogStore;
use crate::machine::{Machine, StateMachine};

/// Opens the log and the machine of a node in a store. The store may have other keyspaces, but
/// those are not replicated. The store must have a log (`wal_mode` is not `off`). It is closed when
/// log, machine and readers are dropped; [`crate::Reader::close`] waits for this.
///
/// Reads and writes run in the tokio runtime of the caller of `Raft`, and in its blocking threads.
///
/// # Errors
/// If the store has no log, was written by a later layout, or contains values of other types.
pub fn open<C: RaftTypeConfig, M: Machine<C>>(
    store: Store,
    machine: M,
    settings: Settings,
) -> Result<(LogStore<C>, StateMachine<C, M>), Error> {
    let base = Base::open(store, settings)?;
    let machine = StateMachine::open(Arc::clone(&base), machine)?;
    Ok((LogStore::new(base, machine.progress()), machine))
}
