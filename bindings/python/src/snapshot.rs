//! Snapshots.

use parking_lot::Mutex;
use pyo3::prelude::*;

use crate::errors::{closed, outcome};

/// A view of all keyspaces that later writes do not change.
#[pyclass(frozen, module = "runstone")]
pub struct Snapshot(Mutex<Option<runstone::Snapshot>>);

impl Snapshot {
    pub fn new(snapshot: runstone::Snapshot) -> Snapshot {
        Snapshot(Mutex::new(Some(snapshot)))
    }

    pub fn get(&self) -> PyResult<runstone::Snapshot> {
        outcome(self.0.lock().clone().ok_or_else(|| closed("snapshot")))
    }
}

#[pymethods]
impl Snapshot {
    fn close(&self) {
        *self.0.lock() = None;
    }

    fn __enter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, _exception: &Bound<'_, PyAny>) {
        self.close();
    }
}
