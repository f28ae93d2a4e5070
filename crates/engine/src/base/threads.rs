//! Numbers for threads, which spread shared state over cache lines, and the bell that calls
//! background threads.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

/// A thread that finds work for the background, but cannot wake anybody where it is, rings the
/// bell. The next writer that has released its locks answers it.
#[derive(Debug, Default)]
pub struct Bell(AtomicBool);

impl Bell {
    /// Rings.
    pub(crate) fn ring(&self) {
        self.0.store(true, Relaxed);
    }

    /// Whether it was rung since the last call.
    #[inline]
    pub(crate) fn answer(&self) -> bool {
        self.0.load(Relaxed) && self.0.swap(false, Relaxed)
    }
}

/// A number of the calling thread, from 1 on: the same at every call, never another thread's.
#[inline]
pub(crate) fn thread_number() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(1);
    thread_local! {
        static MINE: usize = NEXT.fetch_add(1, Relaxed);
    }
    MINE.with(|mine| *mine)
}
