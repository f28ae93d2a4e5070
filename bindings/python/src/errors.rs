//! Failures as exceptions of Python.

use pyo3::create_exception;
use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use runstone_boundary::{Code, Failure, guard};

create_exception!(runstone, Error, PyException, "What the store refuses, or cannot do.");

/// Defines an exception class for each failure code, and the two functions that need all of them.
macro_rules! exceptions {
    ($($name:ident: $what:literal,)*) => {
        $(create_exception!(runstone, $name, Error, $what);)*

        /// The exception of a failure.
        fn exception(failure: Failure) -> PyErr {
            match failure.code {
                $(Code::$name => $name::new_err(failure.message),)*
            }
        }

        /// Adds the exceptions to the module.
        pub fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
            let py = module.py();
            module.add("Error", py.get_type::<Error>())?;
            $(module.add(stringify!($name), py.get_type::<$name>())?;)*
            Ok(())
        }
    };
}

exceptions! {
    InvalidArgument: "An argument or option is out of range.",
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
    Closed: "The object, or its store, is closed.",
    Corruption: "Stored bytes are not what was written.",
    Storage: "The file system refused an operation.",
    InsideCallback: "A callback called into its own store.",
    Busy: "Another thread is using an object that one thread at a time may use.",
    Internal: "A fault of the store itself. Please report it.",
}

/// Does what may wait, while other threads of Python run.
#[inline]
pub fn wait<T: Send>(
    py: Python<'_>,
    work: impl FnOnce() -> runstone_boundary::Result<T> + Send,
) -> PyResult<T> {
    py.detach(|| guard(work)).map_err(exception)
}

/// The outcome of what does not wait.
pub fn outcome<T>(result: runstone_boundary::Result<T>) -> PyResult<T> {
    result.map_err(exception)
}

/// What an object says that was closed.
pub fn closed(name: &str) -> Failure {
    Failure::new(Code::Closed, format!("the {name} is closed"))
}
