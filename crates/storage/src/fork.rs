//! Distinguishes the process that something was made in from copies that `fork` made of it. A copy
//! has the same memory and the same open files, but not the threads, and what it does to the files
//! it does to those of the other. `getpid` would do so too, for a system call each time.
//!
//! Not noticed: a copy made by the bare system call, without the C library.
//!
//! Obligations of the unsafe code, cited by number below:
//!
//! * O1 the handler runs in a copy of a process that may have had many threads, so it may do no
//!   more than a signal handler: it adds to an atomic number.
//! * O2 it is a function of this program, which exists for as long as the process.

use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// How many forks lie between the first process and this one, since it was first asked.
static FORKS: AtomicU64 = AtomicU64::new(0);

/// A process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process {
    forks: u64,
}

impl Process {
    /// The process that calls.
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

    /// Whether it is the calling process. Costs a load.
    #[inline]
    pub fn is_current(self) -> bool {
        FORKS.load(Relaxed) == self.forks
    }
}

unsafe extern "C" fn count_fork() {
    FORKS.fetch_add(1, Relaxed);
}
