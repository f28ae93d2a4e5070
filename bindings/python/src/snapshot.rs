//! Snapshots.

use std::sync::Arc;

use pyo3::prelude::*;
use runstone_boundary::alone::Alone;
use runstone_boundary::stores::Moment;

use crate::errors::{closed, wait};
use crate::held::{Family, Held};

/// A view of all keyspaces that later writes do not change.
#[pyclass(frozen, module = "runstone")]
pub struct Snapshot(Held<Alone<Option<Moment>>>);

impl Snapshot {
    pub fn new(moment: Moment, family: &Arc<Family>) -> Snapshot {
        Snapshot(Held::new(Alone::new(Some(moment)), family))
    }

    pub fn get(&self, py: Python<'_>) -> PyResult<Moment> {
        wait(py, || self.0.get()?.wait()?.clone().ok_or_else(|| closed("snapshot")))
    }
}

#[pymethods]
impl Snapshot {
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        if self.0.is_foreign() {
            return Ok(());
        }
        wait(py, || {
            *self.0.get()?.wait()? = None;
            Ok(())
        })
    }

    fn __enter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyAny>) -> PyResult<()> {
        self.close(py)
    }
}
