//! A directory as a storage: positioned I/O, directory sync, an advisory lock, 0600 and 0700. Not a
//! cache and not a retry layer: every kernel error is returned unchanged.

use std::fs::{self, DirBuilder, File, Metadata, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use rustix::fs::{FlockOperation, access, flock, major, minor, statvfs};
use rustix::io::Errno;

use crate::copy::copy_into;
use crate::fork::{OwnLock, Process};
use crate::full;
use crate::handle::Handle;
use crate::mapped::{self, Made};
use crate::names::{check_name, has_extension};
use crate::posix_file::{PosixFile, PosixMappedFile};
use crate::uring::Rings;
use crate::{
    Category, Counters, Error, FileInfo, LockMode, Operation, Result, Storage, StorageFile,
    StorageLock,
};

const FILE_MODE: u32 = 0o600;
const DIRECTORY_MODE: u32 = 0o700;

/// The changes that opening a directory may make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Access {
    /// Creates the directory, and its parents, if they are missing.
    CreateIfMissing,
    /// The directory must exist.
    MustExist,
    /// The directory must exist, and nothing in it is changed.
    ReadOnly,
}

/// A directory of the file system.
#[derive(Debug)]
pub struct PosixStorage {
    /// See [`lasting`].
    directory: PathBuf,
    /// The directory as the caller named it, for messages.
    place: PathBuf,
    /// Opened at the start, so that a sync works even if the process has no free descriptor. `None`
    /// if each sync opens the directory.
    open_directory: Option<File>,
    is_read_only: bool,
    counters: Arc<Counters>,
    rings: Option<Arc<Rings>>,
}

impl PosixStorage {
    /// Opens a directory. A directory that is created is durable when this returns; the mode of an
    /// existing directory is not changed.
    pub fn open(path: &Path, access: Access) -> Result<Self> {
        let failed = |operation, source| Error::new(operation, path.display().to_string(), source);
        let place = path.to_path_buf();
        let path = lasting(path).map_err(|source| failed(Operation::Open, source))?;
        if access == Access::CreateIfMissing {
            let made = create_directory(&path);
            made.map_err(|source| failed(Operation::Create, full::explained(source, &path)))?;
        }
        let metadata = fs::metadata(&path).map_err(|source| failed(Operation::Open, source))?;
        if !metadata.is_dir() {
            return Err(failed(Operation::Open, io::ErrorKind::NotADirectory.into()));
        }
        let open_directory = File::open(&path).map_err(|source| failed(Operation::Open, source))?;
        Ok(PosixStorage {
            directory: path,
            place,
            open_directory: Some(open_directory),
            is_read_only: access == Access::ReadOnly,
            counters: Arc::default(),
            rings: None,
        })
    }

    /// Makes files use io_uring to read many places at once, if the kernel allows it. Otherwise
    /// they announce the reads and do them one after another, as without this call.
    pub fn with_io_uring(mut self) -> Self {
        self.rings = Rings::probe().map(Arc::new);
        self
    }

    /// Keeps the directory open only while it is synced. This is for a process that opens many
    /// storages.
    pub fn with_few_descriptors(mut self) -> Self {
        self.open_directory = None;
        self
    }

    fn failed(&self, operation: Operation, name: &str, source: io::Error) -> Error {
        let source = full::explained(source, &self.directory);
        Error::new(operation, self.place.join(name).display().to_string(), source)
    }

    /// The path of `name`, if the storage may be changed.
    fn path_to_change(&self, operation: Operation, name: &str) -> Result<PathBuf> {
        check_name(operation, name)?;
        if self.is_read_only {
            return Err(self.failed(operation, name, io::ErrorKind::ReadOnlyFilesystem.into()));
        }
        Ok(self.directory.join(name))
    }

    fn create_file(&self, name: &str) -> Result<(File, PathBuf)> {
        let path = self.path_to_change(Operation::Create, name)?;
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create_new(true).mode(FILE_MODE).open(&path);
        Ok((file.map_err(|source| self.failed(Operation::Create, name, source))?, path))
    }

    fn file(&self, file: File, handle: Handle) -> Arc<dyn StorageFile> {
        let rings = self.rings.clone();
        Arc::new(PosixFile { file, handle, is_read_only: self.is_read_only, rings })
    }

    fn mapped_file(&self, made: Made, len_bytes: u64, mut handle: Handle) -> Arc<dyn StorageFile> {
        handle.fixed_capacity_bytes = Some(len_bytes);
        match made {
            Made::Mapped(mapping) => Arc::new(PosixMappedFile { mapping, handle }),
            Made::Ordinary(file) => self.file(file, handle),
        }
    }

    fn handle(&self, path: &Path, category: Category) -> Handle {
        Handle {
            path: path.display().to_string(),
            category,
            counters: Arc::clone(&self.counters),
            fixed_capacity_bytes: None,
        }
    }

    /// Opens the lock file. `None` if the storage is read-only and has no lock file. Every writer
    /// makes one, so then nobody holds the lock.
    fn open_lock_file(&self, name: &str) -> io::Result<Option<File>> {
        let mut options = OpenOptions::new();
        options.read(true);
        if !self.is_read_only {
            options.write(true).create(true).truncate(false).mode(FILE_MODE);
        }
        match options.open(self.directory.join(name)) {
            Ok(file) => Ok(Some(file)),
            Err(error) if self.is_read_only && error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl Storage for PosixStorage {
    fn create(&self, name: &str, category: Category) -> Result<Arc<dyn StorageFile>> {
        let (file, path) = self.create_file(name)?;
        Ok(self.file(file, self.handle(&path, category)))
    }

    fn create_mapped(
        &self,
        name: &str,
        category: Category,
        capacity_bytes: u64,
    ) -> Result<Arc<dyn StorageFile>> {
        let (file, path) = self.create_file(name)?;
        match mapped::create(file, capacity_bytes) {
            Ok(made) => Ok(self.mapped_file(made, capacity_bytes, self.handle(&path, category))),
            Err(source) => {
                // No caller knows of the file yet. If it stayed, its space would stay in use.
                let _ = fs::remove_file(&path);
                Err(self.failed(Operation::Create, name, source))
            }
        }
    }

    fn open_mapped(&self, name: &str, category: Category) -> Result<Arc<dyn StorageFile>> {
        let path = self.path_to_change(Operation::Open, name)?;
        let mapped = OpenOptions::new().read(true).write(true).open(&path).and_then(|file| {
            let len_bytes = file.metadata()?.len();
            mapped::refuse_if_mapped(&file)?;
            Ok((mapped::create(file, len_bytes)?, len_bytes))
        });
        let mapped = mapped.map_err(|source| self.failed(Operation::Open, name, source));
        let (made, len_bytes) = mapped?;
        Ok(self.mapped_file(made, len_bytes, self.handle(&path, category)))
    }

    fn open(&self, name: &str, category: Category) -> Result<Arc<dyn StorageFile>> {
        check_name(Operation::Open, name)?;
        let path = self.directory.join(name);
        let file = OpenOptions::new().read(true).write(!self.is_read_only).open(&path);
        let file = file.map_err(|source| self.failed(Operation::Open, name, source))?;
        Ok(self.file(file, self.handle(&path, category)))
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        let from_path = self.path_to_change(Operation::Rename, from)?;
        let to_path = self.path_to_change(Operation::Rename, to)?;
        fs::rename(from_path, to_path)
            .map_err(|source| self.failed(Operation::Rename, from, source))
    }

    fn remove(&self, name: &str) -> Result<()> {
        let path = self.path_to_change(Operation::Remove, name)?;
        fs::remove_file(path).map_err(|source| self.failed(Operation::Remove, name, source))
    }

    fn list(&self) -> Result<Vec<FileInfo>> {
        list_files(&self.directory).map_err(|source| self.failed(Operation::List, "", source))
    }

    fn names(&self, extension: &str) -> Result<Vec<String>> {
        let named = list_names(&self.directory, extension);
        named.map_err(|source| self.failed(Operation::List, "", source))
    }

    fn file_number(&self, name: &str) -> u64 {
        fs::metadata(self.directory.join(name)).map_or(0, |metadata| number_of(&metadata))
    }

    fn sync_dir(&self) -> Result<()> {
        let synced = match &self.open_directory {
            Some(directory) => directory.sync_all(),
            None => sync_directory(&self.directory),
        };
        synced.map_err(|source| self.failed(Operation::SyncDir, "", source))
    }

    fn lock(&self, name: &str, mode: LockMode) -> Result<Option<Box<dyn StorageLock>>> {
        check_name(Operation::Lock, name)?;
        let failed = |source| self.failed(Operation::Lock, name, source);
        if self.is_read_only && mode == LockMode::Exclusive {
            return Err(failed(io::ErrorKind::ReadOnlyFilesystem.into()));
        }
        let Some(file) = self.open_lock_file(name).map_err(failed)? else {
            return Ok(Some(Box::new(NoLock)));
        };
        let operation = match mode {
            LockMode::Shared => FlockOperation::NonBlockingLockShared,
            LockMode::Exclusive => FlockOperation::NonBlockingLockExclusive,
        };
        match flock(&file, operation) {
            Ok(()) => PosixLock::new(file, self.directory.join(name)).map(boxed).map_err(failed),
            Err(Errno::WOULDBLOCK) => Ok(None),
            Err(errno) => Err(failed(errno.into())),
        }
    }

    fn lock_holder(&self, name: &str) -> Option<u32> {
        let lock = fs::metadata(self.directory.join(name)).ok()?;
        holder_in(&fs::read_to_string("/proc/locks").ok()?, lock.dev(), lock.ino())
    }

    /// Works on a read-only storage too, because it changes nothing in its directory.
    fn create_sibling(&self, path: &Path) -> Result<Arc<dyn Storage>> {
        let failed = |source| Error::new(Operation::Create, path.display().to_string(), source);
        let is_occupied = match fs::read_dir(path) {
            Ok(mut entries) => entries.next().is_some(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => false,
            Err(error) => return Err(failed(error)),
        };
        if is_occupied {
            return Err(failed(io::ErrorKind::AlreadyExists.into()));
        }
        Ok(Arc::new(PosixStorage::open(path, Access::CreateIfMissing)?))
    }

    fn link_into(&self, name: &str, category: Category, target: &dyn Storage) -> Result<()> {
        check_name(Operation::Link, name)?;
        if target.is_read_only() {
            let source = io::ErrorKind::ReadOnlyFilesystem.into();
            return Err(Error::new(Operation::Link, target.location(), source));
        }
        let path = self.directory.join(name);
        let Some(target_directory) = target.directory().filter(|_| is_writable(&path)) else {
            return copy_into(self, name, category, target);
        };
        match fs::hard_link(path, target_directory.join(name)) {
            Ok(()) => Ok(()),
            Err(error) if is_unlinkable(error.kind()) => copy_into(self, name, category, target),
            Err(source) => Err(self.failed(Operation::Link, name, source)),
        }
    }

    fn free_bytes(&self) -> Option<u64> {
        let status = statvfs(&self.directory).ok()?;
        Some(status.f_bavail.saturating_mul(status.f_frsize))
    }

    fn is_read_only(&self) -> bool {
        self.is_read_only
    }

    fn counters(&self) -> &Counters {
        &self.counters
    }

    fn location(&self) -> String {
        self.place.display().to_string()
    }

    fn directory(&self) -> Option<&Path> {
        Some(&self.directory)
    }
}

/// The process that holds a lock of a file, in the text of `/proc/locks`:
///
/// ```text
/// 1: FLOCK  ADVISORY  WRITE 1234 fd:01:5678 0 EOF
/// ```
///
/// Processes in another namespace have number 0 or are not listed.
fn holder_in(locks: &str, device: u64, inode: u64) -> Option<u32> {
    let file = format!("{:02x}:{:02x}:{inode}", major(device), minor(device));
    let holder = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let is_it = words.get(1) == Some(&"FLOCK") && words.get(5) == Some(&file.as_str());
        words.get(4).filter(|_| is_it)?.parse().ok()
    };
    locks.lines().find_map(holder).filter(|id| *id > 0)
}

/// The lock of a reader if no writer has made a lock file.
#[derive(Debug)]
struct NoLock;

impl StorageLock for NoLock {}

#[derive(Debug)]
struct PosixLock {
    /// Dropped before the descriptor is closed.
    _own: OwnLock,
    file: File,
    path: PathBuf,
    /// Device and number of the file.
    inode: (u64, u64),
    process: Process,
}

fn boxed(lock: PosixLock) -> Option<Box<dyn StorageLock>> {
    Some(Box::new(lock))
}

impl PosixLock {
    fn new(file: File, path: PathBuf) -> io::Result<PosixLock> {
        let inode = inode_of(&file.metadata()?);
        let own = OwnLock::new(file.as_fd());
        Ok(PosixLock { _own: own, file, path, inode, process: Process::current() })
    }

    fn try_check(&self) -> io::Result<()> {
        if !self.process.is_current() {
            return Err(io::Error::other("it was locked by a process that this one is a fork of"));
        }
        match fs::metadata(&self.path) {
            Ok(metadata) if inode_of(&metadata) == self.inode => Ok(()),
            Ok(_) => Err(io::Error::other("it was replaced while the store was open")),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err(io::Error::other("it was removed while the store was open"))
            }
            Err(error) => Err(error),
        }
    }
}

fn inode_of(metadata: &Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}

/// The inode number, mixed with the creation time if the file system knows it, because inode
/// numbers are reused. The device number is not included, because it may change at each boot.
fn number_of(metadata: &Metadata) -> u64 {
    let made = metadata.created().ok().and_then(|at| at.duration_since(UNIX_EPOCH).ok());
    let made = made.map_or(0, |since| since.as_nanos() as u64);
    metadata.ino().wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ made
}

impl StorageLock for PosixLock {
    fn check(&self) -> Result<()> {
        let place = self.path.display().to_string();
        self.try_check().map_err(|source| Error::new(Operation::Lock, place, source))
    }
}

impl Drop for PosixLock {
    /// Closing the file releases the lock only when the last copy of the descriptor is closed, and
    /// a process that was forked meanwhile has a copy. So the lock is released explicitly. A forked
    /// process releases nothing.
    fn drop(&mut self) {
        if self.process.is_current() {
            let _ = flock(&self.file, FlockOperation::Unlock);
        }
    }
}

/// Kinds of error that mean that the file system cannot link these two places. A file system
/// without hard links returns `PermissionDenied`.
fn is_unlinkable(kind: io::ErrorKind) -> bool {
    use io::ErrorKind::{
        CrossesDevices, PermissionDenied, ReadOnlyFilesystem, TooManyLinks, Unsupported,
    };
    matches!(
        kind,
        CrossesDevices | PermissionDenied | ReadOnlyFilesystem | TooManyLinks | Unsupported
    )
}

/// Whether a link to a file can be opened like any file of a storage. Write-protected files are
/// copied, because a link has the permissions of the file. Root could still write to the link, but
/// the owner of the copy should not need to be root.
fn is_writable(path: &Path) -> bool {
    let is_protected = fs::metadata(path).is_ok_and(|found| found.permissions().readonly());
    !is_protected && !matches!(access(path, rustix::fs::Access::WRITE_OK), Err(Errno::ACCESS))
}

/// The absolute path, because the process may change its working directory. A path through
/// directories that the process may not search stays as it is.
fn lasting(path: &Path) -> io::Result<PathBuf> {
    let whole = std::path::absolute(path)?;
    let is_denied = |error: io::Error| error.kind() == io::ErrorKind::PermissionDenied;
    Ok(if fs::metadata(&whole).is_err_and(is_denied) { path.to_path_buf() } else { whole })
}

/// Creates `path` and its missing parents, outermost first, each made durable in its parent before
/// the next: if the directory of a store disappeared in a power cut, the whole store would be lost.
fn create_directory(path: &Path) -> io::Result<()> {
    let mut missing = Vec::new();
    for ancestor in path.ancestors().filter(|ancestor| !ancestor.as_os_str().is_empty()) {
        match fs::metadata(ancestor) {
            Ok(_) => break,
            Err(error) if error.kind() == io::ErrorKind::NotFound => missing.push(ancestor),
            Err(error) => return Err(error),
        }
    }
    for directory in missing.into_iter().rev() {
        match DirBuilder::new().mode(DIRECTORY_MODE).create(directory) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => sync_directory(parent_of(directory))?,
        }
    }
    Ok(())
}

fn parent_of(directory: &Path) -> &Path {
    match directory.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

fn sync_directory(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

/// Lists plain files only. A name that is not UTF-8 was not made by the engine and is omitted. A
/// file that is removed during the listing is not an error.
fn list_files(directory: &Path) -> io::Result<Vec<FileInfo>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let metadata = match entry.metadata() {
            Ok(metadata) if metadata.is_file() => metadata,
            Ok(_) => continue,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        if let Ok(name) = entry.file_name().into_string() {
            files.push(FileInfo { name, len_bytes: metadata.len() });
        }
    }
    files.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(files)
}

/// As `list_files`, but without lengths. The system reports the type of a file with its name.
fn list_names(directory: &Path, extension: &str) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let Ok(name) = entry.file_name().into_string() else { continue };
        if !has_extension(&name, extension) {
            continue;
        }
        match entry.file_type() {
            Ok(kind) if kind.is_file() => names.push(name),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    names.sort();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_holder_of_a_lock_is_the_one_of_this_file() {
        let locks = "1: POSIX  ADVISORY  WRITE 7 fd:01:5678 0 EOF\n\
                     2: FLOCK  ADVISORY  WRITE 8 fd:01:56789 0 EOF\n\
                     3: FLOCK  ADVISORY  WRITE 1234 fd:01:5678 0 EOF\n\
                     3: -> FLOCK  ADVISORY  WRITE 9 fd:01:5678 0 EOF\n\
                     4: FLOCK  ADVISORY  READ  0 fd:01:11 0 EOF\n";
        let device = rustix::fs::makedev(0xfd, 1);
        assert_eq!(holder_in(locks, device, 5678), Some(1234));
        assert_eq!(holder_in(locks, device, 567), None);
        assert_eq!(holder_in(locks, device, 11), None, "of another name space");
        assert_eq!(holder_in("", device, 1), None);
    }
}
