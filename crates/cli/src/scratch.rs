//! A directory for a store that exists only as long as the command runs.

use std::fs::{self, DirBuilder, File};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};

use crate::failure::{Failure, Result};

/// The name of a file that is locked while a directory is in use.
const LOCK: &str = "in-use";

/// An unlocked directory younger than this may be about to be locked.
const LEAST_AGE: Duration = Duration::from_secs(60);

/// A directory that is removed when this value is dropped. If its command was killed, the next
/// command that makes a scratch directory removes it.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
    _lock: File,
}

impl Scratch {
    /// Makes a new directory inside the one for temporary files.
    pub fn make(name: &str) -> Result<Scratch> {
        let parent = std::env::temp_dir();
        remove_left_behind(&parent, name, LEAST_AGE);
        for attempt in 0..1000 {
            let path = parent.join(format!("runstone-{name}-{}-{attempt}", std::process::id()));
            match DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => {
                    let lock = path.join(LOCK);
                    let locked = File::create(&lock).and_then(|file| {
                        flock(&file, FlockOperation::LockExclusive)?;
                        Ok(file)
                    });
                    let _lock = locked.map_err(|error| Failure::file(&lock, "lock", &error))?;
                    return Ok(Scratch { path, _lock });
                }
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(Failure::file(&path, "create", &error)),
            }
        }
        let error = std::io::ErrorKind::AlreadyExists.into();
        Err(Failure::file(&parent, "create a directory in it", &error))
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Files that cannot be removed stay until somebody cleans the directory for temporary
        // files.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Removes directories that killed commands left. Best effort, as in `drop`: a directory that
/// cannot be read, locked or removed stays.
fn remove_left_behind(parent: &Path, name: &str, least_age: Duration) {
    let start = format!("runstone-{name}-");
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        if !entry.file_name().to_string_lossy().starts_with(&start) {
            continue;
        }
        let Ok(lock) = File::open(entry.path().join(LOCK)) else { continue };
        let modified = lock.metadata().and_then(|found| found.modified()).ok();
        let is_old = modified.and_then(|at| at.elapsed().ok()).is_some_and(|age| age >= least_age);
        if is_old && flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok() {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_killed_command_left_is_removed() {
        let parent = tempfile::tempdir().expect("a directory");
        let used = parent.path().join("runstone-bench-1-0");
        let left = parent.path().join("runstone-bench-2-0");
        let foreign = parent.path().join("runstone-bench-mine");
        for path in [&used, &left, &foreign] {
            fs::create_dir(path).expect("a directory");
        }
        let lock = File::create(used.join(LOCK)).expect("a file");
        flock(&lock, FlockOperation::LockExclusive).expect("it locks");
        File::create(left.join(LOCK)).expect("a file");
        remove_left_behind(parent.path(), "bench", LEAST_AGE);
        assert!(left.exists(), "it may be about to be locked");
        remove_left_behind(parent.path(), "bench", Duration::ZERO);
        assert!(used.exists() && !left.exists() && foreign.exists());
    }
}
