//! Numbers for threads, by which shared state is spread over cache lines.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// A number of the calling thread, from 1 on: the same at every call, never another thread's.
#[inline]
pub(crate) fn thread_number() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(1);
    thread_local! {
        static MINE: usize = NEXT.fetch_add(1, Relaxed);
    }
    MINE.with(|mine| *mine)
}
