//! Mirrors behind handles. A close waits for the running round, and that round may wait for a
//! callback of the mirror. So a close from a callback is refused before it waits for anything.

use parking_lot::{Mutex, MutexGuard};
use runstone::{Mirror, Store, unstable};

use crate::alone::Alone;
use crate::failure::{Code, Failure, Result};

/// A mirror that one thread at a time may use, and that any thread may close.
#[derive(Debug)]
pub struct OpenMirror {
    /// `None` once it is closed.
    mirror: Alone<Option<Mirror>>,
    /// The mirror as a store, for callers that must not wait for a round. `None` once it is closed.
    store: Mutex<Option<Store>>,
}

impl OpenMirror {
    /// A mirror that nobody is using yet.
    pub fn new(mirror: Mirror) -> OpenMirror {
        let store = Mutex::new(Some(mirror.store().clone()));
        OpenMirror { mirror: Alone::new(Some(mirror)), store }
    }

    /// Runs `work` on the mirror.
    ///
    /// # Errors
    /// If another thread is using it, or if it is closed. Also those of `work`.
    pub fn now<T>(&self, work: impl FnOnce(&mut Mirror) -> runstone::Result<T>) -> Result<T> {
        with(self.mirror.lock()?, work)
    }

    /// Runs `work` on the mirror, once no other thread is using it.
    ///
    /// # Errors
    /// If it is closed, or in a callback of the mirror. Also those of `work`.
    pub fn later<T>(&self, work: impl FnOnce(&mut Mirror) -> runstone::Result<T>) -> Result<T> {
        self.check_caller()?;
        with(self.mirror.wait()?, work)
    }

    /// Refuses calls from a callback of the mirror. A refused close changes nothing.
    ///
    /// # Errors
    /// Those of [`unstable::check_caller`].
    pub fn check_caller(&self) -> Result<()> {
        let store = self.store.lock().clone();
        Ok(store.as_ref().map_or(Ok(()), unstable::check_caller)?)
    }

    /// Closes the mirror once no round is running. A second call does nothing.
    ///
    /// # Errors
    /// If called in a callback of the mirror. Also those of [`Mirror::close`].
    pub fn close(&self) -> Result<()> {
        self.check_caller()?;
        let ended = self.mirror.wait()?.take();
        *self.store.lock() = None;
        Ok(ended.map_or(Ok(()), Mirror::close)?)
    }
}

fn with<T>(
    mut mirror: MutexGuard<'_, Option<Mirror>>,
    work: impl FnOnce(&mut Mirror) -> runstone::Result<T>,
) -> Result<T> {
    let closed = || Failure::new(Code::Closed, "the mirror is closed");
    Ok(work(mirror.as_mut().ok_or_else(closed)?)?)
}
