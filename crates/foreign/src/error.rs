//! Why a database cannot be read: what is wrong, where, and what to do.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// Result of an operation that reads a database.
pub type Result<T> = std::result::Result<T, Error>;

/// The kind of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The directory contains no such database.
    NotFound,
    /// Another process has it open.
    InUse,
    /// It uses a feature that this crate does not support.
    Unsupported,
    /// Bytes differ from those that were written.
    Damaged,
    /// The operating system failed to read.
    Io,
}

/// See the module docs.
#[derive(Clone, Debug)]
pub struct Error {
    /// The kind of error.
    pub cause: Cause,
    /// What is wrong.
    pub what: String,
    /// The file or directory with the error.
    pub path: PathBuf,
    /// The offset in the file, if there is one.
    pub offset: Option<u64>,
    /// What to do.
    pub hint: String,
}

impl Error {
    pub(crate) fn new(cause: Cause, path: &Path, what: impl Into<String>, hint: &str) -> Error {
        Error { cause, what: what.into(), path: path.into(), offset: None, hint: hint.into() }
    }

    pub(crate) fn io(path: &Path, error: &io::Error) -> Error {
        let (what, hint) = match error.kind() {
            io::ErrorKind::NotFound => ("there is no such file".into(), "restore it from a copy"),
            io::ErrorKind::PermissionDenied => (error.to_string(), "check the owner and mode"),
            _ => (error.to_string(), "check the device"),
        };
        let cause = match error.kind() {
            io::ErrorKind::NotFound => Cause::Damaged,
            _ => Cause::Io,
        };
        Error::new(cause, path, format!("cannot read: {what}"), hint)
    }

    /// File and offset, if known.
    pub fn place(&self) -> String {
        match self.offset {
            Some(offset) => format!("{} byte {offset}", self.path.display()),
            None => self.path.display().to_string(),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}; {}", self.place(), self.what, self.hint)
    }
}

impl std::error::Error for Error {}

/// Damage or an unknown feature, found by code that does not know the file of the bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    Damaged(String),
    Unsupported { what: String, hint: &'static str },
}

impl Fault {
    pub fn damaged(what: impl Into<String>) -> Fault {
        Fault::Damaged(what.into())
    }

    pub fn unsupported(what: impl Into<String>, hint: &'static str) -> Fault {
        Fault::Unsupported { what: what.into(), hint }
    }

    /// Adds the path and the offset.
    pub fn at(self, path: &Path, offset: Option<u64>) -> Error {
        let error = match self {
            Fault::Damaged(what) => {
                let hint = "restore the database from a copy, or repair it with its own tools";
                Error::new(Cause::Damaged, path, what, hint)
            }
            Fault::Unsupported { what, hint } => Error::new(Cause::Unsupported, path, what, hint),
        };
        Error { offset, ..error }
    }
}
