//! The result of a C function: a status, and the message of the last failure in the thread.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char};

use runstone_boundary::{Code, Failure, guard};

use crate::Result;

/// The result of a function. 0 is success. The other values are for programs, and
/// runstone_last_message() explains them to people.
#[allow(non_camel_case_types)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub enum runstone_status {
    /// It worked.
    RUNSTONE_OK = 0,
    /// An argument or option is out of range, or null.
    RUNSTONE_INVALID_ARGUMENT = 1,
    /// The path contains no store.
    RUNSTONE_NOT_A_STORE = 2,
    /// The directory contains files of something else.
    RUNSTONE_FOREIGN_FILES = 3,
    /// A newer release wrote the store.
    RUNSTONE_NEWER_FORMAT = 4,
    /// Another process, or another handle of this one, has the store open.
    RUNSTONE_IN_USE = 5,
    /// The store was opened before a fork, by the other process.
    RUNSTONE_OTHER_PROCESS = 6,
    /// The store is open for reading only.
    RUNSTONE_READ_ONLY = 7,
    /// The disk is full. Writes work again once there is space.
    RUNSTONE_NO_SPACE = 8,
    /// A background job failed. The store accepts no writes until it is opened again.
    RUNSTONE_STOPPED = 9,
    /// No keyspace has that name.
    RUNSTONE_UNKNOWN_KEYSPACE = 10,
    /// A merge operator refused an operand or a value.
    RUNSTONE_MERGE_FAILED = 11,
    /// Another writer wrote a key that a transaction read or wrote. Begin again.
    RUNSTONE_CONFLICT = 12,
    /// Another transaction held a lock for too long.
    RUNSTONE_LOCK_TIMEOUT = 13,
    /// Transactions wait for each other.
    RUNSTONE_DEADLOCK = 14,
    /// The handle, or its store, is closed.
    RUNSTONE_CLOSED = 15,
    /// Stored bytes differ from those that were written.
    RUNSTONE_CORRUPTION = 16,
    /// The file system refused an operation.
    RUNSTONE_STORAGE = 17,
    /// A callback called into its own store.
    RUNSTONE_INSIDE_CALLBACK = 18,
    /// Another thread is using an object that one thread at a time may use.
    RUNSTONE_BUSY = 19,
    /// A fault of the store itself. Please report it.
    RUNSTONE_INTERNAL = 20,
    /// The writer of a store no longer keeps files for this reader. Open the store again.
    RUNSTONE_LEASE_REVOKED = 21,
    /// The store has lost a part of its history that was read before. Begin again with its state.
    RUNSTONE_HISTORY_FORKED = 22,
    /// The changes after the position are no longer known; the message states why. Begin again with
    /// the state of the store.
    RUNSTONE_HISTORY_GONE = 23,
}

use runstone_status::*;

impl From<Code> for runstone_status {
    fn from(code: Code) -> runstone_status {
        match code {
            Code::InvalidArgument => RUNSTONE_INVALID_ARGUMENT,
            Code::NotAStore => RUNSTONE_NOT_A_STORE,
            Code::ForeignFiles => RUNSTONE_FOREIGN_FILES,
            Code::NewerFormat => RUNSTONE_NEWER_FORMAT,
            Code::InUse => RUNSTONE_IN_USE,
            Code::OtherProcess => RUNSTONE_OTHER_PROCESS,
            Code::ReadOnly => RUNSTONE_READ_ONLY,
            Code::NoSpace => RUNSTONE_NO_SPACE,
            Code::Stopped => RUNSTONE_STOPPED,
            Code::UnknownKeyspace => RUNSTONE_UNKNOWN_KEYSPACE,
            Code::MergeFailed => RUNSTONE_MERGE_FAILED,
            Code::Conflict => RUNSTONE_CONFLICT,
            Code::LockTimeout => RUNSTONE_LOCK_TIMEOUT,
            Code::Deadlock => RUNSTONE_DEADLOCK,
            Code::Closed => RUNSTONE_CLOSED,
            Code::Corruption => RUNSTONE_CORRUPTION,
            Code::Storage => RUNSTONE_STORAGE,
            Code::InsideCallback => RUNSTONE_INSIDE_CALLBACK,
            Code::Busy => RUNSTONE_BUSY,
            Code::Internal => RUNSTONE_INTERNAL,
            Code::LeaseRevoked => RUNSTONE_LEASE_REVOKED,
            Code::HistoryForked => RUNSTONE_HISTORY_FORKED,
            Code::HistoryGone => RUNSTONE_HISTORY_GONE,
        }
    }
}

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

/// Runs the body of a function, and returns its outcome as a status.
#[inline]
pub(crate) fn answer(work: impl FnOnce() -> Result<()>) -> runstone_status {
    match guard(work) {
        Ok(()) => RUNSTONE_OK,
        Err(failure) => remember(failure),
    }
}

#[cold]
fn remember(failure: Failure) -> runstone_status {
    let text = failure.message.replace('\0', "\\0");
    // A thread that is ending cannot store the message any more.
    let _ = LAST.try_with(|last| *last.borrow_mut() = CString::new(text).unwrap_or_default());
    failure.code.into()
}

/// The message of the last failure in this thread: what happened, where, and what to do. It is
/// valid until the next failure in this thread; empty if there was none.
#[unsafe(no_mangle)]
pub extern "C" fn runstone_last_message() -> *const c_char {
    LAST.try_with(|last| last.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

/// The release of this library, such as "0.1.0".
#[unsafe(no_mangle)]
pub extern "C" fn runstone_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    CStr::from_bytes_with_nul(VERSION.as_bytes()).unwrap_or(c"").as_ptr()
}
