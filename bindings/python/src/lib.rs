//! The native part of the Python package: `runstone._runstone`. Its interface for users is declared
//! in `python/runstone/_runstone.pyi`.
//!
//! * [`errors`]: failures as exceptions. [`bytes`]: conversion of keys and values.
//! * [`keyspace`], [`store`]: a store is its default keyspace and more.
//! * [`keyspace::views`]: the results of `keys`, `values` and `items`.
//! * [`batch`], [`snapshot`], [`transaction`], [`walk`]: the other objects.
//! * [`backups`]: backups, and every moment between them. [`repair`]: a new store from the readable
//!   contents of a damaged one.
//! * [`changes`]: committed changes, in order. [`mirror`]: a second store that follows them.
//! * [`live`]: the reports of the process that writes to a store.
//! * [`between`]: iterators like plyvel's. [`page`]: entries that iterators read ahead.
//! * [`resources`]: resources that many stores share.
//! * [`programs`]: merge operators, compaction filters and listeners in Python.
//!
//! * [`held`]: how a Python object holds parts of a store, and releases them.
//!
//! Every call that can wait lets other Python threads run, and so does dropping an object. In a
//! fork, every object from before the fork is refused. Panics become exceptions.

#![forbid(unsafe_code)]
// Documentation for users is in the stubs and in the Python sources.
#![allow(missing_docs)]

mod backups;
mod batch;
mod between;
mod bytes;
mod changes;
mod errors;
mod held;
mod keyspace;
mod live;
mod mirror;
mod page;
mod programs;
mod repair;
mod resources;
mod snapshot;
mod store;
mod transaction;
mod walk;

use pyo3::prelude::*;

/// The native part of runstone.
#[pymodule]
fn _runstone(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    errors::add(module)?;
    module.add_class::<store::Store>()?;
    module.add_class::<store::Opening>()?;
    module.add_class::<keyspace::Keyspace>()?;
    module.add_class::<batch::WriteBatch>()?;
    module.add_class::<snapshot::Snapshot>()?;
    module.add_class::<transaction::Transaction>()?;
    module.add_class::<walk::Walk>()?;
    module.add_class::<walk::Cursor>()?;
    module.add_class::<keyspace::views::EntriesView>()?;
    module.add_class::<keyspace::views::Keys>()?;
    module.add_class::<keyspace::views::Values>()?;
    module.add_class::<keyspace::views::Items>()?;
    module.add_class::<between::Iterator>()?;
    module.add_class::<between::RawIterator>()?;
    module.add_function(wrap_pyfunction!(between::iterator, module)?)?;
    module.add_function(wrap_pyfunction!(between::raw_iterator, module)?)?;
    module.add_class::<bytes::View>()?;
    module.add_class::<programs::Event>()?;
    module.add_class::<resources::Resources>()?;
    module.add_class::<backups::Backups>()?;
    module.add_class::<backups::Backup>()?;
    module.add_class::<backups::Archive>()?;
    module.add_class::<backups::Restored>()?;
    module.add_class::<backups::Position>()?;
    module.add_class::<backups::Archiver>()?;
    module.add_class::<backups::Archiving>()?;
    module.add_class::<changes::Changes>()?;
    module.add_class::<changes::Change>()?;
    module.add_class::<changes::Writes>()?;
    module.add_class::<changes::Write>()?;
    module.add_class::<mirror::Mirror>()?;
    module.add_class::<mirror::Mirroring>()?;
    module.add_function(wrap_pyfunction!(mirror::mirror, module)?)?;
    module.add_class::<live::LiveState>()?;
    module.add_class::<repair::RepairReport>()?;
    module.add_class::<repair::Doubt>()?;
    module.add_function(wrap_pyfunction!(repair::repair, module)?)?;
    module.add_function(wrap_pyfunction!(store::open, module)?)?;
    module.add_function(wrap_pyfunction!(store::destroy, module)?)
}
