//! Objects that one thread at a time may use.

use parking_lot::{Mutex, MutexGuard};
use runstone::Error;
use runstone_storage::fork::Process;

use crate::failure::{Code, Failure, Result};

/// An object that one thread at a time may use.
#[derive(Debug)]
pub struct Alone<T> {
    object: Mutex<T>,
    process: Process,
}

impl<T> Alone<T> {
    /// An object that nobody is using yet.
    pub fn new(object: T) -> Alone<T> {
        Alone { object: Mutex::new(object), process: Process::current() }
    }

    /// The object, until the result is dropped.
    ///
    /// # Errors
    /// If another thread is using it.
    #[inline]
    pub fn lock(&self) -> Result<MutexGuard<'_, T>> {
        self.object.try_lock().ok_or_else(|| self.busy())
    }

    /// The object, once no thread uses it any more.
    ///
    /// # Errors
    /// In a fork, if a thread that does not exist there was using it, since that use never ends.
    #[inline]
    pub fn wait(&self) -> Result<MutexGuard<'_, T>> {
        match self.object.try_lock() {
            Some(object) => Ok(object),
            None if self.process.is_current() => Ok(self.object.lock()),
            None => Err(self.busy()),
        }
    }

    #[cold]
    fn busy(&self) -> Failure {
        if !self.process.is_current() {
            return Error::OtherProcess.into();
        }
        let what = "another thread is using this object, which one thread at a time may use";
        Failure::new(Code::Busy, what)
    }
}
