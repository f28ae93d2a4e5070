//! The errors of this crate, and how they are reported to openraft.

use std::io;

use openraft::{AnyError, ErrorSubject, ErrorVerb, NodeId, StorageError, StorageIOError};

/// Why a log or a state machine cannot continue.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] runstone::Error),
    /// A file of a snapshot failed.
    #[error("a file of a snapshot: {0}")]
    Io(#[from] io::Error),
    /// Something cannot be written as MessagePack.
    #[error("{what} cannot be stored: {source}; hint: its type must be serializable by serde")]
    Encode {
        /// What cannot be written.
        what: String,
        /// Why.
        source: rmp_serde::encode::Error,
    },
    /// Something stored cannot be read as this node's type.
    #[error("{what} cannot be read: {source}; hint: was the request type changed?")]
    Decode {
        /// What cannot be read.
        what: String,
        /// Why.
        source: rmp_serde::decode::Error,
    },
    /// The store was written by a release with another layout, or by another program.
    #[error("the store has {what}; hint: open it with the release that wrote it")]
    Layout {
        /// The difference from the expected layout.
        what: String,
    },
    /// A stream is not a snapshot, is damaged, or ends early.
    #[error("snapshot, block {block}: {what}; hint: send it again")]
    Stream {
        /// Number of the block, from 0.
        block: u64,
        /// What is wrong.
        what: &'static str,
    },
    /// The machine stopped while the log waited for a snapshot to be installed.
    #[error("the state machine stopped before its snapshot was installed; hint: see its error")]
    MachineStopped,
    /// A task that worked on the store ended without a result.
    #[error("a task ended early: {0}")]
    Task(#[from] tokio::task::JoinError),
}

/// Names what openraft was doing when something failed.
pub(crate) fn during<N: NodeId>(
    subject: ErrorSubject<N>,
    verb: ErrorVerb,
) -> impl FnOnce(Error) -> StorageError<N> {
    move |error| StorageIOError::new(subject, verb, AnyError::new(&error)).into()
}

impl From<Error> for io::Error {
    fn from(error: Error) -> io::Error {
        match error {
            Error::Io(error) => error,
            error => io::Error::other(error),
        }
    }
}

/// Runs work that may wait for a disk on a thread where it blocks no task.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    tokio::task::spawn_blocking(work).await?
}
