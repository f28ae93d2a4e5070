//! A store that follows another store, change by change.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use runstone_boundary::mirrors::OpenMirror;
use runstone_boundary::options::of_store;

use crate::backups::{Position, SLICE, place_of};
use crate::errors::{outcome, wait};
use crate::held::Own;
use crate::programs::{filters, mergers};

/// A store that follows another store.
#[pyclass(frozen, weakref, module = "runstone")]
pub struct Mirror(Own<OpenMirror>);

/// The result of a round of mirroring.
#[pyclass(frozen, eq, get_all, skip_from_py_object, module = "runstone")]
#[derive(Clone, PartialEq)]
pub struct Mirroring {
    changes: u64,
    bytes: u64,
    is_drained: bool,
}

/// Continues a mirror, or makes one. `options` is TOML.
#[pyfunction]
pub fn mirror(
    py: Python<'_>,
    source: &Bound<'_, PyAny>,
    target: PathBuf,
    options: &str,
    merge_operators: &Bound<'_, PyDict>,
    compaction_filters: &Bound<'_, PyDict>,
) -> PyResult<Mirror> {
    let source = place_of(source)?;
    let mut options = outcome(of_store(options))?;
    options.merge_operators = mergers(merge_operators, &mut Vec::new())?;
    options.compaction_filters = filters(compaction_filters, &mut Vec::new())?;
    let made = wait(py, || Ok(runstone::Mirror::open(source, target, options)?))?;
    Ok(Mirror(Own::new(OpenMirror::new(made))))
}

impl Mirror {
    fn with<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut runstone::Mirror) -> runstone::Result<T> + Send,
    ) -> PyResult<T> {
        wait(py, || self.0.get()?.later(work))
    }
}

#[pymethods]
impl Mirror {
    #[pyo3(signature = (wait=0.0))]
    fn advance(&self, py: Python<'_>, wait: f64) -> PyResult<Mirroring> {
        let most = Duration::try_from_secs_f64(wait).map_err(|_| {
            PyValueError::new_err(format!("wait is a number of seconds from 0 up, not {wait}"))
        })?;
        let began = Instant::now();
        loop {
            let left = most.saturating_sub(began.elapsed());
            let round = self.with(py, |mirror| mirror.advance(left.min(SLICE)))?;
            if round.changes > 0 || left <= SLICE {
                let runstone::Mirroring { changes, bytes, is_drained, .. } = round;
                return Ok(Mirroring { changes, bytes, is_drained });
            }
            py.check_signals()?;
        }
    }

    #[getter]
    fn position(&self, py: Python<'_>) -> PyResult<Position> {
        self.with(py, |mirror| Ok(Position(mirror.position())))
    }

    /// Neither a second call nor a call in a fork does anything.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        if self.0.is_foreign() {
            return Ok(());
        }
        wait(py, || self.0.get()?.close())
    }

    fn __enter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyAny>) -> PyResult<()> {
        self.close(py)
    }
}

#[pymethods]
impl Mirroring {
    fn __repr__(&self) -> String {
        let Mirroring { changes, bytes, is_drained } = self;
        let drained = if *is_drained { "True" } else { "False" };
        format!("<runstone.Mirroring changes={changes} bytes={bytes} is_drained={drained}>")
    }
}
