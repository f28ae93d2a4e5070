//! Makes the kernel write back a part of a file now, ahead of its sync. Not a sync: the kernel
//! makes no promise about the medium, the blocks or the length.
//!
//! Obligations of the unsafe code, cited by number below:
//!
//! * O1 the descriptor belongs to a borrowed file, so it is open during the call.
//! * O2 the call takes no pointer. Offset and length are checked to fit its signed numbers.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;

use rustix::io::Errno;

/// Errors of the call where it is not available: on an old or emulated kernel, in a sandbox, or on
/// a file system that does not support it. Then the sync does all the work, as it would without
/// this module.
const UNAVAILABLE: [Errno; 5] =
    [Errno::NOSYS, Errno::INVAL, Errno::SPIPE, Errno::PERM, Errno::OPNOTSUPP];

/// Begins to write a range back.
pub(crate) fn begin(file: &File, range: &Range<u64>) -> io::Result<()> {
    call(file, range, libc::SYNC_FILE_RANGE_WRITE)
}

/// Waits until a range that was begun is written back. The kernel reports an error of the
/// write-back to this call or to the next sync, but not to both, so it must not be ignored.
pub(crate) fn wait(file: &File, range: &Range<u64>) -> io::Result<()> {
    call(file, range, libc::SYNC_FILE_RANGE_WAIT_BEFORE)
}

fn call(file: &File, range: &Range<u64>, flags: libc::c_uint) -> io::Result<()> {
    // A length of zero would mean "to the end".
    let Some(len_bytes) = range.end.checked_sub(range.start).filter(|len| *len > 0) else {
        return Ok(());
    };
    let (Ok(offset), Ok(len_bytes)) = (i64::try_from(range.start), i64::try_from(len_bytes)) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    loop {
        // SAFETY: O1, O2.
        let done = unsafe { libc::sync_file_range(file.as_raw_fd(), offset, len_bytes, flags) };
        let Some(error) = (done != 0).then(io::Error::last_os_error) else { return Ok(()) };
        match Errno::from_io_error(&error) {
            Some(Errno::INTR) => {}
            Some(errno) if UNAVAILABLE.contains(&errno) => return Ok(()),
            _ => return Err(error),
        }
    }
}
