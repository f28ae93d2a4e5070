//! The space of a directory on disk.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Blocks of all files below `path`, as `du` counts them.
pub fn allocated_bytes(path: &Path) -> io::Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        bytes += match entry.metadata() {
            Ok(metadata) if metadata.is_dir() => allocated_bytes(&entry.path())?,
            Ok(metadata) => metadata.blocks() * 512,
            // The store has removed this file in the meantime.
            Err(_) => 0,
        };
    }
    Ok(bytes)
}
