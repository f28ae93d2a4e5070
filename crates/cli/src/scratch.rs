//! A directory for a store that lives no longer than the command.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use crate::failure::{Failure, Result};

/// Removed when dropped.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
}

impl Scratch {
    /// Makes a directory of its own below that for temporary files.
    pub fn make(name: &str) -> Result<Scratch> {
        let parent = std::env::temp_dir();
        for attempt in 0..1000 {
            let path = parent.join(format!("runstone-{name}-{}-{attempt}", std::process::id()));
            match DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => return Ok(Scratch { path }),
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
        // What cannot be removed is left to whoever cleans the directory for temporary files.
        let _ = fs::remove_dir_all(&self.path);
    }
}
