//! Resources that many stores share.

use pyo3::prelude::*;
use runstone_boundary::options::of_resources;

use crate::errors::wait;
use crate::held::Shared;

/// Memory, threads and open files of many stores.
#[pyclass(frozen, subclass, module = "runstone._runstone")]
pub struct Resources(Shared<runstone::Resources>);

impl Resources {
    /// The resources, for opening a store. Open stores keep them after a close.
    pub fn get(&self, py: Python<'_>) -> PyResult<runstone::Resources> {
        wait(py, || Ok(self.0.get()?.clone()))
    }
}

#[pymethods]
impl Resources {
    /// `options` is TOML.
    #[new]
    fn new(py: Python<'_>, options: &str) -> PyResult<Resources> {
        wait(py, || Ok(Resources(Shared::new(of_resources(options)?))))
    }

    /// The number of open stores that share the resources.
    #[getter]
    fn stores(&self, py: Python<'_>) -> PyResult<u64> {
        wait(py, || Ok(self.0.get()?.stores()))
    }

    /// Refuses to open more stores.
    fn close(&self) {
        self.0.end();
    }

    fn __enter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    fn __exit__(&self, _kind: Py<PyAny>, _error: Py<PyAny>, _traceback: Py<PyAny>) {
        self.close();
    }
}

impl Drop for Resources {
    fn drop(&mut self) {
        self.0.end();
    }
}
