//! Refuses to make files and stores inside the directories of stores: a store removes files that
//! are not its own, and a copy of it does not include other files.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use crate::failure::{Exit, Failure, Result};

/// Refuses to make a store where its parent directory is missing, or is in another store.
pub fn check_new(store: &Path) -> Result<()> {
    if let Some(above) = above(store).filter(|above| !above.exists()) {
        let what = format!("there is no directory {} to make a store in", above.display());
        let hint = format!("check the path, or make it first: `mkdir -p {}`", above.display());
        return Err(Failure::new(Exit::CannotOpen, what).at(store.display()).hint(hint));
    }
    refuse_inside(store)
}

/// Refuses a file or directory that would be in the directory of a store.
pub fn refuse_inside(path: &Path) -> Result<()> {
    let Some(store) = store_around(path) else { return Ok(()) };
    let what = format!("{} lies in the directory of a store", path.display());
    let hint = format!("choose a place outside of {}", store.display());
    Err(Failure::usage(what, hint).at(path.display()))
}

/// The store whose directory contains a path, or would contain it: not a store at the path itself.
fn store_around(path: &Path) -> Option<PathBuf> {
    let above = path.ancestors().skip(1);
    let above = above.map(|at| if at.as_os_str().is_empty() { Path::new(".") } else { at });
    // For a path that does not exist yet, the nearest existing directory counts, its links
    // resolved.
    let found = above.filter_map(|at| at.canonicalize().ok()).next()?;
    found.ancestors().find(|at| is_store(at)).map(Path::to_path_buf)
}

fn above(path: &Path) -> Option<&Path> {
    path.parent().filter(|parent| !parent.as_os_str().is_empty())
}

/// Whether a directory is that of a store: its file CURRENT names a manifest of ours.
pub fn is_store(directory: &Path) -> bool {
    let mut current = [0; 128];
    let read = File::open(directory.join("CURRENT")).and_then(|mut file| file.read(&mut current));
    read.is_ok_and(|len| names_manifest(&current[..len]))
}

/// Whether the bytes of a file CURRENT are those of a store.
pub fn names_manifest(current: &[u8]) -> bool {
    current.split(|byte| *byte == b' ').next().is_some_and(|name| name.ends_with(b".manifest"))
}
