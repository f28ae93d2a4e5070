//! Failures as exceptions of Python.

use pyo3::PyTypeInfo;
use pyo3::create_exception;
use pyo3::exceptions::{PyException, PyOSError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyTuple, PyType};
use runstone_boundary::{Code, Failure, guard};

use crate::programs::{in_call, raised};

create_exception!(runstone, Error, PyException, "What the store refuses, or cannot do.");
create_exception!(runstone, IteratorInvalidError, Error, "The iterator is on no entry.");

/// Defines an exception class for each failure code, and the two functions that need all of them.
/// The classes of the second list also derive from a Python class.
macro_rules! exceptions {
    (
        [$($name:ident: $what:literal,)*]
        [$($second:ident ($base:ty): $of_second:literal,)*]
    ) => {
        $(create_exception!(runstone, $name, Error, $what);)*

        $(
            struct $second;

            impl $second {
                fn class(py: Python<'_>) -> PyResult<Bound<'_, PyType>> {
                    static CLASS: PyOnceLock<Py<PyType>> = PyOnceLock::new();
                    both::<$base>(py, &CLASS, stringify!($second), $of_second)
                }
            }
        )*

        /// The exception of a failure.
        fn exception(failure: Failure) -> PyErr {
            match failure.code {
                $(Code::$name => $name::new_err(failure.message),)*
                $(Code::$second => Python::attach(|py| match $second::class(py) {
                    Ok(class) => PyErr::from_type(class, failure.message),
                    Err(error) => error,
                }),)*
            }
        }

        /// Adds the exceptions to the module.
        pub fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
            let py = module.py();
            module.add("Error", py.get_type::<Error>())?;
            module.add("IteratorInvalidError", py.get_type::<IteratorInvalidError>())?;
            $(module.add(stringify!($name), py.get_type::<$name>())?;)*
            $(module.add(stringify!($second), $second::class(py)?)?;)*
            Ok(())
        }
    };
}

exceptions! {
    [
        NotAStore: "The path holds no store.",
        ForeignFiles: "The directory holds files of something else.",
        NewerFormat: "A newer release wrote the store.",
        InUse: "Another process, or another object of this one, has the store open.",
        OtherProcess: "The store was opened before a fork, by the other process.",
        ReadOnly: "The store is open for reading only.",
        NoSpace: "The disk is full. Writes work again once there is space.",
        Stopped: "A background job failed; the store takes no writes until it is opened again.",
        UnknownKeyspace: "No keyspace has that name.",
        MergeFailed: "A merge operator refused an operand or a value.",
        Conflict: "Somebody else wrote what a transaction read or wrote. Begin again.",
        LockTimeout: "Another transaction held a lock for too long.",
        Deadlock: "Transactions wait for each other.",
        Corruption: "Stored bytes are not what was written.",
        InsideCallback: "A callback called into its own store.",
        Busy: "Another thread is using an object that one thread at a time may use.",
        Internal: "A fault of the store itself. Please report it.",
        LeaseRevoked: "The writer keeps no files for this reader any more. Open the store again.",
        HistoryForked: "The store has lost what was read of its history. Begin with its state.",
        HistoryGone: "The changes after the position are not known any more. Begin with the state.",
    ]
    [
        InvalidArgument(PyValueError): "An argument or option is out of range.",
        Closed(PyRuntimeError): "The object, or its store, is closed.",
        Storage(PyOSError): "The file system refused an operation.",
    ]
}

/// An exception class that derives from [`Error`] and from a Python class. `create_exception`
/// accepts only one base.
fn both<'py, B: PyTypeInfo>(
    py: Python<'py>,
    class: &'static PyOnceLock<Py<PyType>>,
    name: &str,
    what: &str,
) -> PyResult<Bound<'py, PyType>> {
    let class = class.get_or_try_init(py, || {
        let bases = PyTuple::new(py, [py.get_type::<Error>(), B::type_object(py)])?;
        let inside = PyDict::new(py);
        inside.set_item("__doc__", what)?;
        inside.set_item("__module__", "runstone")?;
        let made = py.get_type::<PyType>().call1((name, bases, inside))?;
        Ok::<_, PyErr>(made.cast_into::<PyType>()?.unbind())
    })?;
    Ok(class.bind(py).clone())
}

/// Runs an operation that may wait, while other threads of Python run.
#[inline]
pub fn wait<T: Send>(
    py: Python<'_>,
    work: impl FnOnce() -> runstone_boundary::Result<T> + Send,
) -> PyResult<T> {
    let outcome = py.detach(|| in_call(|| guard(work)));
    if let Some(error) = raised() {
        // It may be a store, whose drop may wait.
        py.detach(|| drop(outcome));
        return Err(error);
    }
    outcome.map_err(exception)
}

/// The outcome of an operation that does not wait.
pub fn outcome<T>(result: runstone_boundary::Result<T>) -> PyResult<T> {
    result.map_err(exception)
}

/// The message of an object that was closed.
pub fn closed(name: &str) -> Failure {
    Failure::new(Code::Closed, format!("the {name} is closed"))
}
