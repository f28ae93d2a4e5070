//! A file of a database, which can be read at any offset but never beyond its end.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::error::{Error, Fault, Result};

/// See the module docs.
#[derive(Debug)]
pub struct SourceFile {
    file: File,
    pub path: PathBuf,
    /// The length when the file was opened.
    pub bytes: u64,
}

impl SourceFile {
    pub fn open(path: &Path) -> Result<SourceFile> {
        let failed = |error| Error::io(path, &error);
        let file = File::open(path).map_err(failed)?;
        let bytes = file.metadata().map_err(failed)?.len();
        Ok(SourceFile { file, path: path.into(), bytes })
    }

    /// Reads a range of the file.
    pub fn read(&self, offset: u64, bytes: u64) -> Result<Vec<u8>> {
        let end = offset.checked_add(bytes).filter(|end| *end <= self.bytes);
        let Some(length) = end.and_then(|_| usize::try_from(bytes).ok()) else {
            let what = format!("{bytes} bytes should be there, and the file has {}", self.bytes);
            return Err(self.fault(offset, Fault::damaged(what)));
        };
        let mut buffer = vec![0; length];
        let read = self.file.read_exact_at(&mut buffer, offset);
        read.map_err(|error| Error::io(&self.path, &error))?;
        Ok(buffer)
    }

    pub fn fault(&self, offset: u64, fault: Fault) -> Error {
        fault.at(&self.path, Some(offset))
    }

    pub fn damaged(&self, offset: u64, what: impl Into<String>) -> Error {
        self.fault(offset, Fault::damaged(what))
    }
}
