//! Converts keys and values between Python and Rust.

use std::ops::Deref;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyMemoryView, PyString};
use runstone::{MAX_VALUE_BYTES, Value};
use runstone_boundary::Failure;

use crate::errors::outcome;

/// The bytes of an argument: `bytes` as they are, other buffers as a copy.
#[derive(Debug)]
pub struct Buffer(PyBackedBytes);

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl<'a, 'py> FromPyObject<'a, 'py> for Buffer {
    type Error = PyErr;

    fn extract(given: Borrowed<'a, 'py, PyAny>) -> PyResult<Buffer> {
        if let Ok(bytes) = given.cast::<PyBytes>() {
            return Ok(Buffer(PyBackedBytes::from(bytes.to_owned())));
        }
        if given.cast::<PyString>().is_ok() {
            return Err(PyTypeError::new_err("keys and values are bytes, not str: encode it"));
        }
        // A buffer may change while the store works, so its present content is copied.
        let view = PyMemoryView::from(&given).map_err(|error| {
            if !error.is_instance_of::<PyTypeError>(given.py()) {
                // It is a buffer, but not a valid one, such as a released memoryview.
                return error;
            }
            let name = given.get_type().name().map(|name| name.to_string());
            let name = name.unwrap_or_default();
            PyTypeError::new_err(format!("keys and values are bytes or buffers, not {name}"))
        })?;
        let size: u64 = view.getattr("nbytes")?.extract()?;
        if size > MAX_VALUE_BYTES {
            // The store would also refuse such a value, but only after the copy, for which there
            // may be too little memory.
            let what = format!("a buffer has {size} bytes; at most {MAX_VALUE_BYTES} fit");
            outcome(Err(Failure::invalid(what)))?;
        }
        let copy = view.call_method0("tobytes")?.cast_into::<PyBytes>()?;
        Ok(Buffer(PyBackedBytes::from(copy)))
    }
}

/// A value that Python reads in place. `runstone.get_view` makes a `memoryview` of it.
#[pyclass(frozen, module = "runstone._runstone")]
pub struct View(pub Value);

#[pymethods]
impl View {
    /// Where the bytes are, for as long as the object lives.
    #[getter]
    fn address(&self) -> usize {
        self.0.as_ptr().addr()
    }

    fn __len__(&self) -> usize {
        self.0.len()
    }
}
