//! Finds out which resource is used up when the file system refuses to write more. Space is only
//! one of them.

use std::fmt;
use std::io;
use std::path::Path;

use rustix::fs::{StatVfs, statvfs};

/// The resource that is used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Full {
    /// The bytes of the device.
    Space,
    /// The inodes of the file system: bytes are free, but no file can be made.
    Inodes,
    /// The quota of the owner.
    Quota,
    /// The largest size of a file, by the limit of the process or of the file system.
    FileSize,
}

/// Replaces the error of the system if it reports a lack of space although only inodes are lacking.
#[derive(Debug, thiserror::Error)]
#[error("no inodes left on the file system, of which each file takes one")]
struct NoInodes;

impl Full {
    /// The resource that an error reports as used up, if any.
    pub fn of(error: &io::Error) -> Option<Full> {
        match error.kind() {
            io::ErrorKind::StorageFull => {
                let has_no_inodes = error.get_ref().is_some_and(|source| source.is::<NoInodes>());
                Some(if has_no_inodes { Full::Inodes } else { Full::Space })
            }
            io::ErrorKind::QuotaExceeded => Some(Full::Quota),
            io::ErrorKind::FileTooLarge => Some(Full::FileSize),
            _ => None,
        }
    }

    /// As [`Full::of`], for an error at a path. Checks whether the file system of the path has used
    /// up its inodes.
    pub fn at(error: &io::Error, path: &Path) -> Option<Full> {
        let full = Full::of(error)?;
        let above = path.ancestors().find(|above| above.is_dir()).unwrap_or(Path::new("."));
        let is_lack_of_inodes = || statvfs(above).is_ok_and(|status| has_no_inodes(&status));
        Some(if full == Full::Space && is_lack_of_inodes() { Full::Inodes } else { full })
    }

    /// What the user can do about it.
    pub fn hint(self) -> &'static str {
        match self {
            Full::Space => "free some space",
            Full::Inodes => "remove files there, however small, or use another file system",
            Full::Quota => "remove files of this owner there, or have the quota raised",
            Full::FileSize => {
                "raise the limit of the process (`ulimit -f`), or use a file system that takes \
                 larger files"
            }
        }
    }
}

impl fmt::Display for Full {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Full::Space => "no space left",
            Full::Inodes => "no inodes left",
            Full::Quota => "the quota is used up",
            Full::FileSize => "the limit of file sizes is reached",
        })
    }
}

/// The error of a file that could not be made. The system has the same error number for a lack of
/// space and a lack of inodes; the figures of the file system distinguish the two.
pub fn explained(error: io::Error, path: &Path) -> io::Error {
    match Full::at(&error, path) {
        Some(Full::Inodes) => io::Error::new(io::ErrorKind::StorageFull, NoInodes),
        _ => error,
    }
}

/// Whether inodes are used up but bytes are not. Some file systems do not count inodes, because
/// they make as many as they need.
fn has_no_inodes(status: &StatVfs) -> bool {
    status.f_files > 0 && status.f_favail == 0 && status.f_bavail > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file size limit, a quota and a lack of inodes were once all reported as a lack of space.
    #[test]
    fn what_is_used_up_is_told_apart() {
        let full = |errno: rustix::io::Errno| Full::of(&errno.into());
        assert_eq!(full(rustix::io::Errno::NOSPC), Some(Full::Space));
        assert_eq!(full(rustix::io::Errno::DQUOT), Some(Full::Quota));
        assert_eq!(full(rustix::io::Errno::FBIG), Some(Full::FileSize));
        assert_eq!(full(rustix::io::Errno::IO), None);
        let no_inodes = io::Error::new(io::ErrorKind::StorageFull, NoInodes);
        assert_eq!(Full::of(&no_inodes), Some(Full::Inodes));
    }

    #[test]
    fn a_file_system_without_inodes_is_known() {
        let status = statvfs(".").expect("a file system");
        let with = |f_files, f_favail, f_bavail| {
            has_no_inodes(&StatVfs { f_files, f_favail, f_bavail, ..status })
        };
        assert!(with(10, 0, 10));
        assert!(!with(10, 1, 10) && !with(0, 0, 10), "there are some, or nobody counts them");
        assert!(!with(10, 0, 0), "bytes are what is told first");
    }
}
