//! State that one thread uses, call by call, and that another thread may change between two calls.
//! An example is the memory that a cursor holds, which a flush releases while the cursor is idle.
//!
//! The owner must not pay for the visitor, which visits once per flush. So the owner's side of the
//! handshake is two plain stores and a load for each call, and the visitor's side has the barrier
//! for both: `membarrier` makes every thread of the process pass a barrier. If the system does not
//! have `membarrier`, nobody visits.
//!
//! 1. The owner makes `turns` odd, and checks whether it has been called. If so, it waits for the
//!    lock.
//! 2. The visitor takes the lock, calls, and passes the barrier. If `turns` is then even, the owner
//!    is outside, and it sees the call when it enters.
//! 3. The owner makes `turns` even when it leaves.
//!
//! Obligations that keep the unsafe code here sound:
//! 1. Only [`Owner::enter`], which borrows the one owner, lets the owner change the state.
//! 2. Only [`visit`] lets another thread change the state: under the lock, and after the barrier
//!    has shown that the owner is outside. The owner enters again only through the lock.
//! 3. [`Owner::look`] gives only read access: under the lock, and nobody enters while the owner is
//!    borrowed.
#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use super::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use super::sync::{Mutex, MutexGuard, heavy_barrier, light_barrier, lock};

/// The state as seen by everybody except its owner.
pub struct Standing<T: ?Sized> {
    /// Odd while the owner is inside. Only the owner writes it.
    turns: AtomicU64,
    /// Whether there was a visitor since the owner last entered.
    called: AtomicBool,
    lock: Mutex<()>,
    state: UnsafeCell<T>,
}

// SAFETY: the state moves from thread to thread, and two threads never use it at once (obligations
// 1 to 3).
unsafe impl<T: ?Sized + Send> Sync for Standing<T> {}

impl<T: ?Sized> fmt::Debug for Standing<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Standing").finish_non_exhaustive()
    }
}

/// The owner's handle to the state.
#[derive(Debug)]
pub struct Owner<T>(Arc<Standing<T>>);

impl<T> Owner<T> {
    pub fn new(state: T) -> Owner<T> {
        Owner(Arc::new(Standing {
            turns: AtomicU64::new(0),
            called: AtomicBool::new(false),
            lock: Mutex::new(()),
            state: UnsafeCell::new(state),
        }))
    }

    /// The handle with which others visit the state.
    pub fn standing(&self) -> &Arc<Standing<T>> {
        &self.0
    }

    /// Enters, to work with the state. Waits for a visitor that is inside. Not for use in a forked
    /// process, where perhaps nobody ever releases the lock.
    #[inline]
    pub fn enter(&mut self) -> Inside<'_, T> {
        let shared = &*self.0;
        shared.turns.store(shared.turns.load(Relaxed) + 1, Relaxed);
        light_barrier();
        let is_called = shared.called.load(Relaxed);
        if is_called {
            answer(&shared.lock, &shared.called);
        }
        Inside { shared, is_called }
    }

    /// Reads the state while no visitor is inside. Not for use in a forked process.
    pub fn look(&self) -> Look<'_, T> {
        let _visitors = lock(&self.0.lock);
        // SAFETY: obligation 3.
        Look { state: unsafe { &*self.0.state.get() }, _visitors }
    }
}

#[cold]
fn answer(visitors: &Mutex<()>, called: &AtomicBool) {
    let _visitors = lock(visitors);
    called.store(false, Relaxed);
}

/// The owner while it is inside.
#[derive(Debug)]
pub struct Inside<'a, T> {
    shared: &'a Standing<T>,
    /// Whether there was a visitor since the owner was last inside.
    pub is_called: bool,
}

impl<T> Deref for Inside<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: obligation 1.
        unsafe { &*self.shared.state.get() }
    }
}

impl<T> DerefMut for Inside<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: obligation 1.
        unsafe { &mut *self.shared.state.get() }
    }
}

impl<T> Drop for Inside<'_, T> {
    #[inline]
    fn drop(&mut self) {
        // Release: a thread that sees that the owner is outside sees what the owner did.
        self.shared.turns.store(self.shared.turns.load(Relaxed) + 1, Release);
    }
}

/// Read access to the state.
#[derive(Debug)]
pub struct Look<'a, T> {
    state: &'a T,
    _visitors: MutexGuard<'a, ()>,
}

impl<T> Deref for Look<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        self.state
    }
}

/// Calls all owners, and passes the states of the owners that are outside to `each`. One barrier
/// serves all of them and takes a few microseconds. Owners that enter meanwhile wait until all
/// states have been visited.
pub fn visit<T: ?Sized>(all: &[Arc<Standing<T>>], mut each: impl FnMut(&mut T)) {
    let visitors: Vec<_> = all.iter().map(|one| lock(&one.lock)).collect();
    all.iter().for_each(|one| one.called.store(true, Relaxed));
    if !heavy_barrier() {
        return;
    }
    for one in all {
        let is_outside = one.turns.load(Acquire).is_multiple_of(2) || seeded!(VisitedWhileInside);
        if is_outside {
            // SAFETY: obligation 2.
            each(unsafe { &mut *one.state.get() });
        }
    }
    drop(visitors);
}
