//! Errors of stores of any kind.

use thiserror::Error as Derive;

/// A result of [`crate::KvStore`].
pub type Result<T> = std::result::Result<T, Error>;

/// Why an operation failed.
#[derive(Debug, Derive)]
#[non_exhaustive]
pub enum Error {
    /// An error of Runstone, or an error of another store that its adapter expresses in Runstone's
    /// terms.
    #[error(transparent)]
    Store(#[from] runstone::Error),
    /// A store of another kind failed in a way of its own.
    #[error("{engine}: {what}")]
    Foreign {
        /// The name of the store.
        engine: String,
        /// Its message.
        what: String,
    },
}

impl Error {
    /// An error about invalid input, with a hint on what to do instead.
    pub fn invalid(what: impl Into<String>, hint: impl Into<String>) -> Error {
        runstone::Error::invalid(what, hint).into()
    }

    /// What the user can do.
    pub fn hint(&self) -> String {
        match self {
            Error::Store(error) => error.hint(),
            Error::Foreign { engine, .. } => format!("see the documentation of {engine}"),
        }
    }
}
