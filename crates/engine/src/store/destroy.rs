//! The removal of a store.

use std::path::Path;

use runstone_storage::{Access, LockMode, PosixStorage, Storage};

use super::live::is_live;
use super::open::{is_own_file, take_lock};
use super::unfinished::RESTORING;
use crate::error::{Error, Result};
use crate::tree::manifest::{CURRENT, read_current};

/// Removes the files of a store, `CURRENT` first, so that an interrupted removal does not leave a
/// store without its tables. Another call completes the removal.
pub(super) fn destroy(path: &Path) -> Result<()> {
    let not_a_store = || Error::NotAStore { path: path.display().to_string() };
    let storage = PosixStorage::open(path, Access::MustExist)
        .map_err(|error| if error.is_not_found() { not_a_store() } else { error.into() })?;
    // A damaged file is removed too, but not the file of another store.
    if let Err(error @ Error::OtherDatabase { .. }) = read_current(&storage) {
        return Err(error);
    }
    let files = storage.list()?;
    // A directory with only the file `metrics` may belong to anybody.
    if !files.iter().any(|file| is_own_file(&file.name) && !is_live(&file.name)) {
        return Err(not_a_store());
    }
    let lock = take_lock(&storage, LockMode::Exclusive)?;
    match storage.remove(CURRENT) {
        Err(error) if !error.is_not_found() => return Err(error.into()),
        _ => storage.sync_dir()?,
    }
    let mut own = storage.list()?;
    own.retain(|file| is_own_file(&file.name));
    // Files like `metrics` are removed first, so that the other files still show what an
    // interrupted removal has left. The mark of an unfinished store is removed last, so that the
    // rest is not taken for a store.
    own.sort_by_key(|file| (file.name == RESTORING, !is_live(&file.name)));
    own.iter().try_for_each(|file| storage.remove(&file.name))?;
    storage.sync_dir()?;
    drop(lock);
    Ok(())
}
