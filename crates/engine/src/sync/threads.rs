//! Numbers for threads, which spread shared state over cache lines; buffers of threads; and the
//! bell that calls background threads.

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::thread::LocalKey;

/// A thread that finds work for the background, but cannot wake a worker at that point, rings the
/// bell. The next writer that has released its locks answers it.
#[derive(Debug, Default)]
pub struct Bell(AtomicBool);

impl Bell {
    /// Rings.
    pub(crate) fn ring(&self) {
        self.0.store(true, Relaxed);
    }

    /// Whether the bell was rung since the last call.
    #[inline]
    pub(crate) fn answer(&self) -> bool {
        self.0.load(Relaxed) && self.0.swap(false, Relaxed)
    }
}

thread_local! {
    /// Whether this thread runs the jobs of stores.
    static IS_WORKER: Cell<bool> = const { Cell::new(false) };
}

/// Marks this thread as one that runs the jobs of stores.
pub(crate) fn become_worker() {
    IS_WORKER.set(true);
}

/// Whether this thread runs the jobs of stores. A callback of such a job may call another store,
/// whose jobs perhaps no other thread can run.
pub(crate) fn is_worker() -> bool {
    IS_WORKER.get()
}

/// Takes the thread's own buffer; [`keep`] gives it back. A thread that is ending no longer has a
/// buffer, but a destructor of one of its variables may still use the store. It then gets a new
/// buffer.
pub(crate) fn take<T: Default>(own: &'static LocalKey<Cell<T>>) -> T {
    own.try_with(Cell::take).unwrap_or_default()
}

/// Keeps a buffer for the thread's next [`take`].
pub(crate) fn keep<T>(own: &'static LocalKey<Cell<T>>, buffer: T) {
    // If the thread is ending, the buffer is freed.
    let _ = own.try_with(|cell| cell.set(buffer));
}

/// Lends the thread's own buffer to work that borrows nothing from the thread, see [`take`].
#[inline]
pub(crate) fn lend<T: Default, R>(
    own: &'static LocalKey<RefCell<T>>,
    mut work: impl FnMut(&mut T) -> R,
) -> R {
    let lent = own.try_with(|buffer| work(&mut buffer.borrow_mut()));
    lent.unwrap_or_else(|_| work(&mut T::default()))
}

/// A number of the calling thread, from 1 on. It is the same at every call, and no other thread has
/// it.
#[inline]
pub(crate) fn thread_number() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(1);
    thread_local! {
        static MINE: usize = NEXT.fetch_add(1, Relaxed);
    }
    MINE.with(|mine| *mine)
}
