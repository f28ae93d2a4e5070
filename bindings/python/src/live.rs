//! The reports of the process that writes to a store, for its followers.

use pyo3::prelude::*;

/// The last report of a writer.
#[pyclass(frozen, get_all, skip_from_py_object, module = "runstone")]
#[derive(Clone)]
pub struct LiveState {
    process: u32,
    /// How long ago it reported, in seconds.
    age: f64,
    is_current: bool,
    metrics: String,
}

impl From<runstone::LiveState> for LiveState {
    fn from(told: runstone::LiveState) -> LiveState {
        LiveState {
            process: told.process,
            age: told.age.as_secs_f64(),
            is_current: told.is_current(),
            metrics: told.metrics.to_prometheus(),
        }
    }
}

#[pymethods]
impl LiveState {
    fn __repr__(&self) -> String {
        let LiveState { process, age, .. } = self;
        format!("<runstone.LiveState of process {process}, {age:.1} s ago>")
    }
}
