//! Failures in the form for other languages: a code for programs, and a message that states what
//! failed, where, and what to do.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use runstone::{Error, ErrorKind};

/// The kind of a failure. The numbers are part of each binding's interface: they never change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Code {
    /// An argument or option is out of range, or null.
    InvalidArgument = 1,
    /// The path contains no store.
    NotAStore = 2,
    /// The directory contains files of something else.
    ForeignFiles = 3,
    /// A newer release wrote the store.
    NewerFormat = 4,
    /// Another process, or another handle of this one, has the store open.
    InUse = 5,
    /// The store was opened before a fork, by the other process.
    OtherProcess = 6,
    /// The store is open for reading only.
    ReadOnly = 7,
    /// The disk is full. Writes work again once there is space.
    NoSpace = 8,
    /// A background job failed. The store accepts no writes until it is opened again.
    Stopped = 9,
    /// No keyspace has that name.
    UnknownKeyspace = 10,
    /// A merge operator refused an operand or a value.
    MergeFailed = 11,
    /// Another writer wrote a key that a transaction read or wrote. Begin again.
    Conflict = 12,
    /// Another transaction held a lock for too long.
    LockTimeout = 13,
    /// Transactions wait for each other.
    Deadlock = 14,
    /// The handle, or its store, is closed.
    Closed = 15,
    /// Stored bytes differ from those that were written.
    Corruption = 16,
    /// The file system refused an operation.
    Storage = 17,
    /// A callback called into its own store.
    InsideCallback = 18,
    /// Another thread is using an object that one thread at a time may use.
    Busy = 19,
    /// A fault of the store itself. Please report it.
    Internal = 20,
    /// The writer of a store no longer keeps files for this reader. Open the store again.
    LeaseRevoked = 21,
    /// The store has lost a part of its history that was read before. Begin again with its state.
    HistoryForked = 22,
    /// The log does not reach back so far. Begin again with the state of the store.
    HistoryGone = 23,
}

/// A failure: its code, and a message for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The code, for programs.
    pub code: Code,
    /// What happened, where, and what to do.
    pub message: String,
}

/// The result of a function inside a binding.
pub type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    /// A failure of the boundary itself.
    pub fn new(code: Code, message: impl Into<String>) -> Failure {
        Failure { code, message: message.into() }
    }

    /// The failure for an invalid argument.
    pub fn invalid(message: impl Into<String>) -> Failure {
        Failure::new(Code::InvalidArgument, message)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        let message = match error.hint() {
            hint if hint.is_empty() => error.to_string(),
            hint => format!("{error}; {hint}"),
        };
        Failure::new(code_of(error.kind()), message)
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

fn code_of(kind: ErrorKind) -> Code {
    match kind {
        ErrorKind::Invalid => Code::InvalidArgument,
        ErrorKind::NotAStore => Code::NotAStore,
        ErrorKind::ForeignFiles => Code::ForeignFiles,
        ErrorKind::NewerFormat => Code::NewerFormat,
        ErrorKind::InUse => Code::InUse,
        ErrorKind::OtherProcess => Code::OtherProcess,
        ErrorKind::ReadOnly => Code::ReadOnly,
        ErrorKind::NoSpace => Code::NoSpace,
        ErrorKind::Stopped => Code::Stopped,
        ErrorKind::UnknownKeyspace => Code::UnknownKeyspace,
        ErrorKind::MergeFailed => Code::MergeFailed,
        ErrorKind::Conflict => Code::Conflict,
        ErrorKind::LockTimeout => Code::LockTimeout,
        ErrorKind::Deadlock => Code::Deadlock,
        ErrorKind::Closed => Code::Closed,
        ErrorKind::Corruption => Code::Corruption,
        ErrorKind::InsideCallback => Code::InsideCallback,
        ErrorKind::LeaseRevoked => Code::LeaseRevoked,
        ErrorKind::HistoryForked => Code::HistoryForked,
        ErrorKind::HistoryGone => Code::HistoryGone,
        // A kind that a later release adds counts as a failure of the storage.
        _ => Code::Storage,
    }
}

/// Runs the body of a foreign function. A panic becomes a failure, because it must not cross the
/// boundary.
pub fn guard<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    // The closure shares only handles with the outside. The object of a handle is either unchanged
    // or behind a lock.
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        Err(Failure::new(Code::Internal, format!("a fault in runstone: {}", text_of(&*panic))))
    })
}

fn text_of(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("a panic")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_say_what_to_do() {
        let failure = Failure::from(Error::ReadOnly);
        assert_eq!(failure.code, Code::ReadOnly);
        assert_eq!(
            failure.message,
            "the store is open for reading only; open the store for writing"
        );
    }

    #[test]
    fn a_panic_is_a_failure() {
        let failure = guard::<()>(|| panic!("number {}", 7)).expect_err("it panics");
        assert_eq!(failure, Failure::new(Code::Internal, "a fault in runstone: number 7"));
    }
}
