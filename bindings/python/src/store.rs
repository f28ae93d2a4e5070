//! The store, which is its default keyspace and more.

use std::path::PathBuf;
use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyDict;
use runstone_boundary::options::{of_keyspace, of_store};
use runstone_boundary::{Code, Failure};

use crate::batch::WriteBatch;
use crate::errors::{outcome, wait};
use crate::keyspace::Keyspace;
use crate::programs::{Filter, Merger, Program};
use crate::snapshot::Snapshot;
use crate::transaction::Transaction;

/// An open store.
#[pyclass(frozen, weakref, extends = Keyspace, module = "runstone")]
pub struct Store {
    store: runstone::Store,
    path: PathBuf,
}

/// Opens a store, or makes it. `options` is TOML.
#[pyfunction]
pub fn open<'py>(
    py: Python<'py>,
    path: PathBuf,
    options: &str,
    merge_operators: &Bound<'py, PyDict>,
    compaction_filters: &Bound<'py, PyDict>,
) -> PyResult<Bound<'py, Store>> {
    let mut options = outcome(of_store(options))?;
    for (name, function) in merge_operators.iter() {
        let program = Program::new(name.extract()?, function.unbind());
        options.merge_operators.push(Arc::new(Merger(program)));
    }
    for (name, function) in compaction_filters.iter() {
        let program = Program::new(name.extract()?, function.unbind());
        options.compaction_filters.push(Arc::new(Filter(program)));
    }
    let store = wait(py, || Ok(runstone::Store::open(&path, options)?))?;
    let keyspace = Keyspace { inner: store.default_keyspace().clone(), store: store.clone() };
    Bound::new(py, PyClassInitializer::from(keyspace).add_subclass(Store { store, path }))
}

/// Removes the files of a store.
#[pyfunction]
pub fn destroy(py: Python<'_>, path: PathBuf) -> PyResult<()> {
    wait(py, || Ok(runstone::Store::destroy(path)?))
}

#[pymethods]
impl Store {
    #[getter]
    fn path(&self) -> PathBuf {
        self.path.clone()
    }

    #[pyo3(signature = (name, options=None, *, create=true))]
    fn keyspace(
        &self,
        py: Python<'_>,
        name: &str,
        options: Option<&str>,
        create: bool,
    ) -> PyResult<Keyspace> {
        let inner = wait(py, || {
            let options = options.map(of_keyspace).transpose()?;
            Ok(match create {
                true => self.store.open_keyspace(name, options)?,
                false => self.store.keyspace(name)?,
            })
        })?;
        Ok(Keyspace { inner, store: self.store.clone() })
    }

    fn drop_keyspace(&self, py: Python<'_>, name: &str) -> PyResult<()> {
        wait(py, || Ok(self.store.drop_keyspace(name)?))
    }

    fn keyspaces(&self) -> Vec<String> {
        self.store.keyspaces()
    }

    #[pyo3(signature = (*, sync=None))]
    fn write_batch(&self, sync: Option<bool>) -> WriteBatch {
        WriteBatch::new(self.store.clone(), self.store.default_keyspace().clone(), sync)
    }

    #[pyo3(signature = (*, serializable=false, pessimistic=false, sync=None))]
    fn transaction(
        &self,
        py: Python<'_>,
        serializable: bool,
        pessimistic: bool,
        sync: Option<bool>,
    ) -> PyResult<Transaction> {
        let keyspace = self.store.default_keyspace().clone();
        wait(py, || Transaction::begin(&self.store, keyspace, [serializable, pessimistic], sync))
    }

    fn snapshot(&self) -> Snapshot {
        Snapshot::new(self.store.snapshot())
    }

    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        wait(py, || Ok(self.store.sync()?))
    }

    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        wait(py, || Ok(self.store.flush()?))
    }

    fn wait_idle(&self, py: Python<'_>) -> PyResult<()> {
        wait(py, || Ok(self.store.wait_idle()?))
    }

    fn checkpoint(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        wait(py, || Ok(self.store.checkpoint(path)?))
    }

    /// Reads and checks everything. Damage raises.
    fn verify(&self, py: Python<'_>) -> PyResult<u64> {
        wait(py, || {
            let report = self.store.verify()?;
            match report.damage.first() {
                None => Ok(report.bytes),
                Some(damage) => Err(Failure::new(
                    Code::Corruption,
                    format!("{} is damaged: {}", damage.file, damage.what),
                )),
            }
        })
    }

    /// The counters as a text for Prometheus.
    fn metrics(&self, py: Python<'_>) -> PyResult<String> {
        wait(py, || Ok(self.store.metrics().to_prometheus()))
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        wait(py, || Ok(self.store.clone().close()?))
    }

    fn __enter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyAny>) -> PyResult<()> {
        self.close(py)
    }
}
