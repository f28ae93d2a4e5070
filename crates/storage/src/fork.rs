//! Distinguishes the process in which something was made from the copies of that process that
//! `fork` makes. A copy has the same memory and the same open files, but not the threads. Its
//! changes to files are changes to the files of the original process. `getpid` could distinguish
//! the two as well, but it costs a system call each time.
//!
//! This module does not notice a copy made with the bare system call, without the C library.
//!
//! Obligations of the unsafe code, cited by number below:
//!
//! * O1 the handler runs in a copy of a process that may have had many threads, so it may do no
//!   more than a signal handler: it reads and changes atomic numbers, and calls `open`, `dup2` and
//!   `close`, which POSIX allows in a signal handler.
//! * O2 the handler is a function of this program, which exists for as long as the process.
//! * O3 the handler replaces only descriptors of locks of this process. They stay valid, but in the
//!   copy they refer to another file.

use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::Once;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering::Relaxed};

/// The number of forks between the process that first called [`Process::current`] and this process.
static FORKS: AtomicU64 = AtomicU64::new(0);

/// The largest number of locks that forks release. If a process holds more, the others stay held
/// until its last copy has ended.
const MOST_LOCKS: usize = 1024;

/// The descriptors of locks; [`NONE`] in free slots.
static LOCKS: [AtomicI32; MOST_LOCKS] = [const { AtomicI32::new(NONE) }; MOST_LOCKS];
const NONE: RawFd = -1;

/// A descriptor of a lock. The lock belongs to an open file, and a copy of the process has the same
/// open file: if the process died, the copy would still hold the lock. So a copy closes its
/// descriptor.
#[derive(Debug)]
pub struct OwnLock {
    slot: Option<usize>,
}

impl OwnLock {
    /// Makes later forks release the descriptor. It must not be closed before this value is
    /// dropped.
    pub fn new(descriptor: BorrowedFd<'_>) -> OwnLock {
        Process::current();
        let descriptor = descriptor.as_raw_fd();
        let take =
            |slot: &AtomicI32| slot.compare_exchange(NONE, descriptor, Relaxed, Relaxed).is_ok();
        OwnLock { slot: LOCKS.iter().position(take) }
    }
}

impl Drop for OwnLock {
    fn drop(&mut self) {
        if let Some(slot) = self.slot {
            LOCKS[slot].store(NONE, Relaxed);
        }
    }
}

/// A process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process {
    forks: u64,
}

impl Process {
    /// The calling process.
    ///
    /// # Panics
    /// If the C library has no memory for the handler.
    pub fn current() -> Process {
        static WATCHED: Once = Once::new();
        // SAFETY: O1, O2.
        WATCHED.call_once(|| {
            let failed = unsafe { libc::pthread_atfork(None, None, Some(count_fork)) };
            assert_eq!(failed, 0, "out of memory");
        });
        Process { forks: FORKS.load(Relaxed) }
    }

    /// Whether this is the calling process. Costs one load.
    #[inline]
    pub fn is_current(self) -> bool {
        FORKS.load(Relaxed) == self.forks
    }
}

unsafe extern "C" fn count_fork() {
    FORKS.fetch_add(1, Relaxed);
    // SAFETY: O1, O3.
    unsafe {
        let nothing = libc::open(c"/dev/null".as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC);
        if nothing < 0 {
            return;
        }
        for slot in &LOCKS {
            let descriptor = slot.load(Relaxed);
            if descriptor != NONE {
                libc::dup2(nothing, descriptor);
            }
        }
        libc::close(nothing);
    }
}
