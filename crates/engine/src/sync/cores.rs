//! The synchronisation primitives of the concurrent cores. The cores refer to them as
//! `super::sync`, so that the `model` modules can compile the same files against primitives that a
//! checker schedules. This file has re-exports, and wrappers where the two kinds of primitives
//! differ.

pub use std::sync::atomic;

pub use parking_lot::{Condvar, Mutex, MutexGuard};

/// Lets another thread run, in loops that wait for that thread. `is_long` means that the other
/// thread may not be running.
#[inline]
pub fn pause(is_long: bool) {
    if is_long { std::thread::yield_now() } else { std::hint::spin_loop() }
}

/// Sleeps for a moment, in loops that have waited long already: the thread that they wait for needs
/// the processor more.
pub fn rest() {
    std::thread::sleep(std::time::Duration::from_micros(50));
}

/// Takes the lock.
#[inline]
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock()
}

/// Waits for a notification, and releases the lock meanwhile.
#[inline]
pub fn wait<'a, T>(condvar: &Condvar, mut guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    condvar.wait(&mut guard);
    guard
}

/// The light side of a barrier between two threads. For a thread that has passed the heavy side,
/// the stores before the light side happen before the loads after the light side. It costs nothing
/// where the heavy side works.
#[inline(always)]
pub fn light_barrier() {
    match cfg!(miri) {
        true => atomic::fence(atomic::Ordering::SeqCst),
        false => atomic::compiler_fence(atomic::Ordering::SeqCst),
    }
}

/// The heavy side; `false` if the system has none. It takes a few microseconds.
pub fn heavy_barrier() -> bool {
    if cfg!(miri) {
        atomic::fence(atomic::Ordering::SeqCst);
        return true;
    }
    pass_everywhere()
}

/// Makes each running thread of the process pass a barrier.
#[cfg(target_os = "linux")]
fn pass_everywhere() -> bool {
    use std::sync::LazyLock;

    use rustix::thread::{MembarrierCommand, membarrier};
    static REGISTERED: LazyLock<bool> =
        LazyLock::new(|| membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok());
    *REGISTERED && membarrier(MembarrierCommand::PrivateExpedited).is_ok()
}

#[cfg(not(target_os = "linux"))]
fn pass_everywhere() -> bool {
    false
}
