//! Merge operators and compaction filters in Python. The store calls them from its own threads too.

use std::cell::Cell;
use std::fmt;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};
use runstone::{CompactionFilter, FilterDecision, MergeOperator};

thread_local! {
    static IS_INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Whether the thread runs a merge operator or a filter.
pub fn is_inside() -> bool {
    IS_INSIDE.get()
}

/// Runs a merge operator or a filter.
fn inside<T>(work: impl FnOnce(Python<'_>) -> T) -> T {
    Python::attach(|py| {
        let before = IS_INSIDE.replace(true);
        let made = work(py);
        IS_INSIDE.set(before);
        made
    })
}

/// A function of Python under a name.
pub struct Program {
    name: String,
    function: Py<PyAny>,
}

impl Program {
    pub fn new(name: String, function: Py<PyAny>) -> Program {
        Program { name, function }
    }
}

impl fmt::Debug for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} in Python", self.name)
    }
}

/// `merge(key, base, operands)`, which gives the value.
#[derive(Debug)]
pub struct Merger(pub Program);

impl MergeOperator for Merger {
    fn name(&self) -> &str {
        &self.0.name
    }

    fn full_merge(
        &self,
        key: &[u8],
        base: Option<&[u8]>,
        operands: &[&[u8]],
    ) -> Result<Vec<u8>, String> {
        inside(|py| -> PyResult<Vec<u8>> {
            let base = base.map(|base| PyBytes::new(py, base));
            let operands = operands.iter().map(|operand| PyBytes::new(py, operand));
            let operands = PyList::new(py, operands.collect::<Vec<_>>())?;
            let made = self.0.function.call1(py, (PyBytes::new(py, key), base, operands))?;
            Ok(made.bind(py).cast::<PyBytes>()?.as_bytes().to_vec())
        })
        .map_err(|error| error.to_string())
    }
}

/// `filter(level, key, value)`, which gives `True` to keep an entry, `False` to remove it, or other
/// bytes. If it raises, the entry stays.
#[derive(Debug)]
pub struct Filter(pub Program);

impl CompactionFilter for Filter {
    fn name(&self) -> &str {
        &self.0.name
    }

    fn decide(&self, level: u32, key: &[u8], value: &[u8]) -> FilterDecision {
        inside(|py| {
            self.ask(py, level, key, value).unwrap_or_else(|error| {
                error.write_unraisable(py, None);
                FilterDecision::Keep
            })
        })
    }
}

impl Filter {
    fn ask(
        &self,
        py: Python<'_>,
        level: u32,
        key: &[u8],
        value: &[u8],
    ) -> PyResult<FilterDecision> {
        let (key, value) = (PyBytes::new(py, key), PyBytes::new(py, value));
        let made = self.0.function.call1(py, (level, key, value))?;
        let made = made.bind(py);
        if let Ok(bytes) = made.cast::<PyBytes>() {
            return Ok(FilterDecision::Change(bytes.as_bytes().to_vec()));
        }
        match made.extract::<bool>() {
            Ok(true) => Ok(FilterDecision::Keep),
            Ok(false) => Ok(FilterDecision::Remove),
            Err(_) => Err(PyTypeError::new_err("a filter gives a bool or bytes")),
        }
    }
}
