//! Finds how much of a file is in the kernel's page cache.
//!
//! `cachestat` (Linux 6.5) reports a range in one call, and maps nothing. `mincore` would need a
//! mapping of each file.
//!
//! Obligations of the unsafe code, cited by number below:
//!
//! * O1 the descriptor belongs to a borrowed file, so it is open during the call.
//! * O2 both structures are as the kernel defines them, live on the stack, and outlive the call.

use std::fs::File;
use std::os::fd::AsRawFd;

/// The number of the call, the same on all architectures of Linux.
const CACHESTAT: libc::c_long = 451;
const PAGE_BYTES: u64 = 4096;

#[repr(C)]
struct Stretch {
    offset: u64,
    len_bytes: u64,
}

#[repr(C)]
#[derive(Default)]
struct Found {
    cached: u64,
    dirty: u64,
    written_back: u64,
    evicted: u64,
    recently_evicted: u64,
}

/// Bytes of a range that are in the page cache, in whole pages. `None` if the system does not
/// report them, as on an older kernel, another system, or a file system without a page cache.
pub(crate) fn cached_bytes(file: &File, offset: u64, len_bytes: u64) -> Option<u64> {
    // A length of zero would mean "to the end".
    if len_bytes == 0 {
        return Some(0);
    }
    if cfg!(not(target_os = "linux")) {
        return None;
    }
    let stretch = Stretch { offset, len_bytes };
    let mut found = Found::default();
    // SAFETY: O1, O2.
    let done = unsafe {
        libc::syscall(CACHESTAT, file.as_raw_fd(), &raw const stretch, &raw mut found, 0)
    };
    (done == 0).then(|| found.cached * PAGE_BYTES)
}
