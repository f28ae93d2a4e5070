//! What others learn of a store's history: changes in order, and mirrors that are made of them.

mod archives;
mod attacks;
mod beside;
mod bridged;
mod copied;
mod crossed;
mod cut_short;
mod eras;
mod faults;
mod full;
mod gaps;
#[path = "../follow/hooked.rs"]
mod hooked;
mod loading;
mod mirrors;
mod repaired;
mod replaced;

use std::sync::Arc;

use runstone::{Options, Store};
use runstone_fault_storage::SimStorage;
use runstone_sim::workload::keyspaces;

fn open(storage: &SimStorage, options: &Options) -> Result<Store, runstone::Error> {
    let store = Store::open_on(Arc::new(storage.clone()), options.clone())?;
    keyspaces(&store)?;
    Ok(store)
}
