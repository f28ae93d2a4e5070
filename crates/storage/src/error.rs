//! The only error type of this crate: which operation failed, on which file, and why.

use std::fmt;
use std::io;

use rustix::io::Errno;

use crate::full::Full;

/// Result of a storage operation.
pub type Result<T> = std::result::Result<T, Error>;

/// The attempted operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
#[non_exhaustive]
pub enum Operation {
    Create,
    Open,
    Read,
    Write,
    Sync,
    SyncDir,
    Length,
    SetLen,
    Allocate,
    Punch,
    Rename,
    Remove,
    List,
    Lock,
    Link,
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = match self {
            Operation::Create => "create",
            Operation::Open => "open",
            Operation::Read => "read",
            Operation::Write => "write",
            Operation::Sync => "sync",
            Operation::SyncDir => "sync the directory",
            Operation::Length => "take the length of",
            Operation::SetLen => "set the length of",
            Operation::Allocate => "reserve space for",
            Operation::Punch => "punch a hole in",
            Operation::Rename => "rename",
            Operation::Remove => "remove",
            Operation::List => "list",
            Operation::Lock => "lock",
            Operation::Link => "link",
        };
        f.write_str(words)
    }
}

/// A failed storage operation.
#[derive(Debug, thiserror::Error)]
#[error("cannot {operation} {path}: {source}")]
pub struct Error {
    /// The attempted operation.
    pub operation: Operation,
    /// The file or directory.
    pub path: String,
    /// Why it failed.
    pub source: io::Error,
}

impl Error {
    /// Wraps an I/O error with its context.
    pub fn new(operation: Operation, path: impl Into<String>, source: io::Error) -> Self {
        Error { operation, path: path.into(), source }
    }

    /// The kind of the underlying I/O error.
    pub fn kind(&self) -> io::ErrorKind {
        self.source.kind()
    }

    /// Whether the device is full, or a quota or limit is used up. The caller may continue once
    /// there is space again (P9).
    pub fn is_no_space(&self) -> bool {
        self.full().is_some()
    }

    /// The resource that is used up, if that is why the operation failed.
    pub fn full(&self) -> Option<Full> {
        Full::of(&self.source)
    }

    /// Whether the process, or the machine, may open no more files.
    pub fn is_out_of_files(&self) -> bool {
        let refused = [Errno::MFILE, Errno::NFILE].map(|errno| Some(errno.raw_os_error()));
        refused.contains(&self.source.raw_os_error())
    }

    /// Whether the file is mapped for writing by another handle.
    pub fn is_busy(&self) -> bool {
        self.source.kind() == io::ErrorKind::ResourceBusy
    }

    /// Whether permissions or the file system forbid writing there.
    pub fn is_refused(&self) -> bool {
        matches!(
            self.source.kind(),
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem
        )
    }

    /// Whether the file does not exist.
    pub fn is_not_found(&self) -> bool {
        self.source.kind() == io::ErrorKind::NotFound
    }
}
