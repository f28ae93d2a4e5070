//! A directory that becomes a store only once it is complete: the target of a restore, a
//! checkpoint, the first copy of a mirror, or a repair.
//!
//! 1. The lock of the store is taken. Of two writers to one directory, the second is refused, and
//!    does not disturb the first.
//! 2. The file `RESTORING` is made durable. While it exists, nothing opens, follows or repairs the
//!    directory: a part of a store does not say what it lacks.
//! 3. The files are written, the manifest and `CURRENT` last.
//! 4. `RESTORING` is removed. After a failure, all other files are removed first.

use std::sync::Arc;

use runstone_storage::{Category, LockMode, Storage, StorageLock};

use super::open::{LOCK_NAME, take_lock};
use crate::error::{Error, Result};
use crate::tree::manifest::CURRENT;

/// The file that exists until the store is complete.
pub(crate) const RESTORING: &str = "RESTORING";

/// Refuses a directory whose store is not complete yet.
pub(crate) fn check_finished(storage: &dyn Storage) -> Result<()> {
    match storage.open(RESTORING, Category::Other) {
        Err(error) if error.is_not_found() => Ok(()),
        Err(error) => Err(error.into()),
        Ok(_) => Err(unfinished(storage)),
    }
}

fn unfinished(storage: &dyn Storage) -> Error {
    let place = storage.location();
    Error::invalid(
        format!(
            "{place} is no store yet: a restore, checkpoint, mirror or repair into it is under \
             way, or did not come to its end"
        ),
        "wait until it is done; if none is under way, empty the directory, and begin again",
    )
}

/// Refuses a directory that has any file but the lock, which remains if a copy is killed early.
pub(crate) fn check_empty(target: &dyn Storage) -> Result<()> {
    match other_file(target)? {
        Some(name) if name == RESTORING => {
            // If somebody is writing to the directory, this error says so.
            let _lock = take_lock(target, LockMode::Shared)?;
            Err(unfinished(target))
        }
        found => found.map_or(Ok(()), |example| Err(foreign(target, example))),
    }
}

/// A file of a directory other than the lock. It is the mark, if the mark exists.
fn other_file(target: &dyn Storage) -> Result<Option<String>> {
    let names = target.list()?.into_iter().map(|file| file.name);
    Ok(names.filter(|name| name != LOCK_NAME).min_by_key(|name| name != RESTORING))
}

fn foreign(target: &dyn Storage, example: String) -> Error {
    Error::ForeignFiles { path: target.location(), example }
}

/// A store that is being written into an empty directory.
#[derive(Debug)]
pub(crate) struct Unfinished {
    target: Arc<dyn Storage>,
    lock: Option<Box<dyn StorageLock>>,
}

impl Unfinished {
    /// Runs steps 1 and 2.
    ///
    /// # Errors
    /// [`Error::InUse`] if another process writes there; [`Error::ForeignFiles`]; or a storage
    /// error. The files of the directory stay.
    pub(crate) fn begin(target: &Arc<dyn Storage>) -> Result<Unfinished> {
        // No lock file is made in a directory with foreign files.
        check_empty(&**target)?;
        let lock = lock(&**target)?;
        // Somebody may have written there before the lock was taken.
        if let Some(example) = other_file(&**target)? {
            return Err(foreign(&**target, example));
        }
        let unfinished = Unfinished { target: Arc::clone(target), lock: Some(lock) };
        match mark(&**target) {
            Ok(()) => Ok(unfinished),
            Err(error) => unfinished.end(Err(error)),
        }
    }

    /// Hands over the lock, so that the store can be opened for the remaining writes. The mark
    /// keeps others out even once the lock is free.
    pub(crate) fn take_lock(&mut self) -> Option<Box<dyn StorageLock>> {
        self.lock.take()
    }

    /// Runs step 4. Returns the outcome of step 3, or the error of this step.
    pub(crate) fn end<T>(self, written: Result<T>) -> Result<T> {
        let target = &*self.target;
        let ended = written.and_then(|written| {
            target.remove(RESTORING)?;
            target.sync_dir()?;
            Ok(written)
        });
        // Half a store is of no use. If a file cannot be removed, the directory stays marked.
        if ended.is_err()
            && let Some(_lock) = self.lock.or_else(|| lock(target).ok())
        {
            if check_finished(target).is_ok() {
                let _ = mark(target);
            }
            let _ = remove_all(target);
        }
        ended
    }
}

/// Removes a copy that is of no use, unless somebody has opened it meanwhile.
pub(crate) fn remove_copy(target: &dyn Storage) {
    if let Ok(_lock) = lock(target) {
        // A full disk may have no room for the mark.
        let _ = mark(target);
        let _ = remove_all(target);
    }
}

/// Takes the lock that the finished store will use, too.
fn lock(target: &dyn Storage) -> Result<Box<dyn StorageLock>> {
    let lock = take_lock(target, LockMode::Exclusive)?;
    // Another process may have removed the lock file with its failed copy while this process locked
    // it.
    lock.check()?;
    Ok(lock)
}

fn mark(target: &dyn Storage) -> Result<()> {
    target.create(RESTORING, Category::Other)?.sync()?;
    Ok(target.sync_dir()?)
}

/// Removes everything: `CURRENT` first, and last the lock, which the caller holds, and the mark.
fn remove_all(target: &dyn Storage) -> runstone_storage::Result<()> {
    let mut names: Vec<String> = target.list()?.into_iter().map(|file| file.name).collect();
    let lasts = [RESTORING, LOCK_NAME];
    names.sort_by_key(|name| name != CURRENT);
    let (last, first): (Vec<_>, Vec<_>) =
        names.iter().partition(|name| lasts.contains(&name.as_str()));
    first.into_iter().try_for_each(|name| target.remove(name))?;
    target.sync_dir()?;
    last.into_iter().try_for_each(|name| target.remove(name))
}
