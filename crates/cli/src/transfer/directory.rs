//! The regular files of a directory tree, by relative path. No symbolic link is followed. An entry
//! that cannot be read, or is neither a file nor a directory, is counted. It is not an error.

use std::ffi::OsStr;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::failure::{Failure, Result};

/// At most this many unreadable files are named.
const MOST_NAMED: usize = 100;

/// A file of the tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileEntry {
    /// Relative path, `/` between its parts.
    pub key: Vec<u8>,
    pub bytes: u64,
    /// When it was changed last, in seconds and nanoseconds. Programs can set back the time of a
    /// file's content, but not this time.
    changed: (i64, i64),
}

impl FileEntry {
    /// A hash of this file and of those before it, whose hash is `before`. A build with another
    /// compiler may hash differently: an import then begins again, which changes nothing.
    pub fn sum(&self, before: u64) -> u64 {
        let mut hasher = DefaultHasher::new();
        (before, &self.key, self.bytes, self.changed).hash(&mut hasher);
        hasher.finish()
    }
}

/// The skipped entries.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Skipped {
    /// Symbolic links, sockets, devices.
    pub special: u64,
    /// Files and directories that could not be read.
    pub unreadable: u64,
    /// The first of them, with the reason.
    pub unreadable_files: Vec<String>,
}

impl Skipped {
    /// Counts and names an entry that could not be read.
    pub fn unreadable(&mut self, path: &Path, error: &io::Error) {
        self.unreadable += 1;
        if self.unreadable_files.len() < MOST_NAMED {
            self.unreadable_files.push(format!("{}: {error}", path.display()));
        }
    }
}

/// A tree, sorted by key.
#[derive(Clone, Debug, Default)]
pub struct Tree {
    pub root: PathBuf,
    pub files: Vec<FileEntry>,
    pub skipped: Skipped,
}

impl Tree {
    /// Walks a directory, except for the canonical paths in `without`.
    pub fn walk(root: &Path, without: &[PathBuf]) -> Result<Tree> {
        let entries = fs::read_dir(root)
            .map_err(|error| Failure::file(root, "read the directory", &error))?;
        drop(entries);
        let mut tree = Tree { root: root.to_path_buf(), ..Tree::default() };
        // No link is followed below the root, so that different keys mean different places.
        let canonical = root.canonicalize().unwrap_or_default();
        let below = |path: &'_ PathBuf| {
            let below = path.strip_prefix(&canonical).ok();
            below.map(|below| below.as_os_str().as_bytes().to_vec())
        };
        let without: Vec<Vec<u8>> = without.iter().filter_map(below).collect();
        let mut pending = vec![Vec::new()];
        while let Some(directory) = pending.pop() {
            tree.read_directory(&directory, &without, &mut pending);
        }
        tree.files.sort_unstable_by(|a, b| a.key.cmp(&b.key));
        Ok(tree)
    }

    fn read_directory(
        &mut self,
        directory: &[u8],
        without: &[Vec<u8>],
        pending: &mut Vec<Vec<u8>>,
    ) {
        let path = self.path(directory);
        let entries = match fs::read_dir(&path) {
            Ok(entries) => entries,
            Err(error) => return self.skipped.unreadable(&path, &error),
        };
        for entry in entries {
            let found = entry.and_then(|entry| Ok((entry.file_name(), entry.metadata()?)));
            let (name, metadata) = match found {
                Ok(found) => found,
                Err(error) => {
                    self.skipped.unreadable(&path, &error);
                    continue;
                }
            };
            let mut key = directory.to_vec();
            if !key.is_empty() {
                key.push(b'/');
            }
            key.extend_from_slice(name.as_bytes());
            if without.contains(&key) {
                continue;
            }
            if metadata.is_file() {
                let changed = (metadata.ctime(), metadata.ctime_nsec());
                self.files.push(FileEntry { key, bytes: metadata.len(), changed });
            } else if metadata.is_dir() {
                pending.push(key);
            } else {
                self.skipped.special += 1;
            }
        }
    }

    /// The path of the file of a key.
    pub fn path(&self, key: &[u8]) -> PathBuf {
        match key.is_empty() {
            true => self.root.clone(),
            false => self.root.join(OsStr::from_bytes(key)),
        }
    }

    /// Sum of the file sizes.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }
}

/// The relative path that a key names, if it names one inside the directory.
pub fn path_of_key(key: &[u8]) -> std::result::Result<&Path, String> {
    let is_bad = |part: &[u8]| part.is_empty() || part == b"." || part == b"..";
    if key.split(|byte| *byte == b'/').any(is_bad) || key.contains(&0) {
        return Err("the key is not a relative path".into());
    }
    Ok(Path::new(OsStr::from_bytes(key)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_stay_inside_the_directory() {
        for key in [&b"a"[..], b"a/b", b".a/..b", b"\xff"] {
            assert!(path_of_key(key).is_ok(), "{key:?}");
        }
        for key in [&b""[..], b"/a", b"a/", b"a//b", b"../a", b"a/../b", b"./a", b"a\0"] {
            assert!(path_of_key(key).is_err(), "{key:?}");
        }
    }
}
