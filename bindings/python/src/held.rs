//! What an object of Python holds of the store, and how that ends.
//!
//! Python ends objects while it holds its own lock, in whichever thread drops the last reference:
//!
//! 1. An end may wait for threads of the store, and those may wait for Python to run a merge
//!    operator. So Python's lock is let go meanwhile.
//! 2. A merge operator or filter may drop the last reference to its own store. The job that called
//!    it would wait for itself, so another thread ends the object.
//! 3. A fork has none of the store's threads, but their locks. There nothing is used or ended: the
//!    memory is the fork's until it exits.

use std::thread;

use pyo3::Python;
use runstone::Error;
use runstone::storage::fork::Process;
use runstone_boundary::Result;

use crate::programs::is_inside;

/// An object of the store.
pub struct Held<T: Send + 'static> {
    /// `None` only while it ends.
    object: Option<T>,
    process: Process,
}

impl<T: Send + 'static> Held<T> {
    pub fn new(object: T) -> Held<T> {
        Held { object: Some(object), process: Process::current() }
    }

    /// The object.
    ///
    /// # Errors
    /// In a fork of the process that made it.
    #[inline]
    pub fn get(&self) -> Result<&T> {
        match &self.object {
            Some(object) if !self.is_foreign() => Ok(object),
            _ => Err(Error::OtherProcess.into()),
        }
    }

    /// Whether this is a fork of the process that made it.
    pub fn is_foreign(&self) -> bool {
        !self.process.is_current()
    }
}

impl<T: Send + 'static> Drop for Held<T> {
    fn drop(&mut self) {
        let Some(object) = self.object.take() else { return };
        if self.is_foreign() {
            std::mem::forget(object);
        } else if is_inside() {
            // Without a thread to spare, it ends here.
            let _ = thread::Builder::new().spawn(move || drop(object));
        } else {
            // Without Python, at its very end, the object goes with what was to end it.
            Python::try_attach(|py| py.detach(move || drop(object)));
        }
    }
}
