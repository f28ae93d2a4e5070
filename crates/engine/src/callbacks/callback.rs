//! User code that a store calls in the middle of its work: listeners, merge operators, compaction
//! filters, and the sources of bulk loads. If such code waited for another thread, that thread
//! could in turn be waiting for the code. So a call that could wait fails with
//! [`Error::InsideCallback`] instead.
//!
//! Reads wait for nobody, so callbacks may read. The one exception is a merge operator that reads a
//! value which it has to compute itself: that read would never end.

use std::cell::Cell;

use crate::error::{Error, Result};
use crate::sync::Aside;

thread_local! {
    /// Identifies the open store whose callback runs in this thread.
    static INSIDE: Cell<u64> = const { Cell::new(NONE) };
    /// Identifies the open store whose merge operator runs in this thread.
    static MERGING: Cell<u64> = const { Cell::new(NONE) };
}

/// A number that no opening has.
pub(crate) const NONE: u64 = u64::MAX;
/// Callbacks of several stores run: one of them wrote to another store, which then called its own
/// callback.
const SEVERAL: u64 = u64::MAX - 1;

/// While this lives, a callback runs in the thread.
pub(crate) struct Inside {
    before: u64,
    _locks: Aside,
}

impl Inside {
    #[inline]
    pub(crate) fn of(opening: u64) -> Inside {
        let before = INSIDE.get();
        INSIDE.set(if before == NONE || before == opening { opening } else { SEVERAL });
        Inside { before, _locks: Aside::begin() }
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        INSIDE.set(self.before);
    }
}

/// Refuses a call, made from a callback of the store, that could wait for that callback.
#[inline]
pub(crate) fn check_outside(opening: u64) -> Result<()> {
    let inside = INSIDE.get();
    if inside == opening || inside == SEVERAL { Err(Error::InsideCallback) } else { Ok(()) }
}

/// While this lives, a merge operator runs in the thread.
pub(crate) struct InsideMerge {
    _inside: Inside,
    before: u64,
}

impl InsideMerge {
    /// Refuses to call an operator from inside an operator of the same store: that operator would
    /// read its own result.
    #[inline]
    pub(crate) fn of(opening: u64) -> Result<InsideMerge> {
        let before = MERGING.get();
        if opening != NONE && (before == opening || before == SEVERAL) {
            return Err(Error::InsideCallback);
        }
        // One store's operator may read a second store, but not a third one, which could be the
        // first.
        MERGING.set(if before == NONE { opening } else { SEVERAL });
        Ok(InsideMerge { _inside: Inside::of(opening), before })
    }
}

impl Drop for InsideMerge {
    fn drop(&mut self) {
        MERGING.set(self.before);
    }
}
