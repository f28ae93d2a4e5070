//! Named files behind one trait. The engine accesses a disk only through [`Storage`], so that every
//! byte can be counted, every fault injected, and a flash device can replace a directory.
//!
//! A storage is one flat directory of files. The engine chooses the names (`000017.table`); they
//! never come from users. This crate has two implementations:
//!
//! * [`PosixStorage`]: a directory; positioned I/O, directory sync, advisory lock, 0600/0700.
//! * [`MemoryStorage`]: for tests and `mem:` stores; nothing survives the process.
//!
//! Not here: formats, checksums, caching. Those belong to the engine.

#![deny(unsafe_code)]

mod copy;
mod counters;
mod error;
#[allow(unsafe_code)]
pub mod fork;
pub mod full;
mod handle;
mod locks;
#[allow(unsafe_code)]
mod mapped;
mod memory;
mod names;
#[allow(unsafe_code)]
mod page_cache;
mod posix;
mod posix_file;
pub mod process;
pub mod support;
#[allow(unsafe_code)]
mod uring;
#[allow(unsafe_code)]
mod write_back;

use std::fmt::Debug;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

pub use counters::{Counters, CountersSnapshot};
pub use error::{Error, Operation, Result};
pub use full::Full;
pub use memory::MemoryStorage;
pub use posix::{Access, PosixStorage};

/// The purpose of a file. Counters are kept per category, and faults can be aimed at one category.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Category {
    /// Write-ahead log segments.
    Wal,
    /// Sorted tables.
    Table,
    /// The edit log and the pointer to it.
    Manifest,
    /// Separated values.
    Value,
    /// Lock file, exports, anything else.
    Other,
}

impl Category {
    /// Every category, in the order of the counters.
    pub const ALL: [Category; 5] =
        [Category::Wal, Category::Table, Category::Manifest, Category::Value, Category::Other];

    /// Short lower-case name, for metrics.
    pub fn name(self) -> &'static str {
        match self {
            Category::Wal => "wal",
            Category::Table => "table",
            Category::Manifest => "manifest",
            Category::Value => "value",
            Category::Other => "other",
        }
    }
}

/// A file name with its length, as [`Storage::list`] reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileInfo {
    /// Name inside the storage, without any directory part.
    pub name: String,
    /// Length in bytes; for a preallocated file its allocated length.
    pub len_bytes: u64,
}

/// Shared: many readers. Exclusive: one writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockMode {
    /// Any number of holders, none of them a writer.
    Shared,
    /// One holder.
    Exclusive,
}

/// A lock, which a store holds as long as it is open. Dropping the value releases the lock.
pub trait StorageLock: Send + Sync + Debug {
    /// Fails if another process may hold the lock by now: if this process is a fork of the one that
    /// took the lock, or if the lock file was removed or replaced.
    fn check(&self) -> Result<()> {
        Ok(())
    }
}

/// A flat directory of named files.
///
/// Durability contract, which every implementation keeps and the tests' simulated disk exploits:
/// * bytes written are durable only after [`StorageFile::sync`] of that file returned `Ok`;
/// * a name (create, rename, remove) is durable only after [`Storage::sync_dir`] returned `Ok`;
/// * after a failed sync the unsynced bytes may be lost for ever; callers must not retry it.
pub trait Storage: Send + Sync + Debug {
    /// Creates a file for reading and writing. Fails with `AlreadyExists` if the name is taken.
    fn create(&self, name: &str, category: Category) -> Result<Arc<dyn StorageFile>>;

    /// Creates a file of exactly `capacity_bytes` zero bytes, with its blocks reserved. Where the
    /// implementation can do so safely, a `write_at` to this file is a memory copy. A full disk
    /// causes an error here, not at a later write. Falls back to an ordinary preallocated file. In
    /// either case `set_len` and `punch` fail on this handle, and concurrent writes must not
    /// overlap. The handle need not keep a descriptor open, so reads may fail once the name is
    /// removed.
    fn create_mapped(
        &self,
        name: &str,
        category: Category,
        capacity_bytes: u64,
    ) -> Result<Arc<dyn StorageFile>>;

    /// Opens an existing file for writes within its length. An implementation that can safely map
    /// the file makes such a `write_at` a memory copy; any other calls [`Storage::open`]. The store
    /// opens recycled log segments with it.
    fn open_mapped(&self, name: &str, category: Category) -> Result<Arc<dyn StorageFile>> {
        self.open(name, category)
    }

    /// Opens an existing file: for reading and writing, or only for reading on a read-only storage.
    fn open(&self, name: &str, category: Category) -> Result<Arc<dyn StorageFile>>;

    /// Renames a file, replacing the target if it exists. Open handles follow the file.
    fn rename(&self, from: &str, to: &str) -> Result<()>;

    /// Removes a name. Open handles stay readable.
    fn remove(&self, name: &str) -> Result<()>;

    /// All files, sorted by name. Subdirectories are not listed.
    fn list(&self) -> Result<Vec<FileInfo>>;

    /// The names of the files with this extension, sorted. For a directory, listing only names is
    /// several times as fast as listing names and lengths.
    fn names(&self, extension: &str) -> Result<Vec<String>> {
        let names = self.list()?.into_iter().map(|file| file.name);
        Ok(names.filter(|name| names::has_extension(name, extension)).collect())
    }

    /// A number that identifies a file. It stays the same when the directory is moved, and a copy
    /// of the file has another number. 0 if there is no such file, or if the storage has no such
    /// numbers.
    fn file_number(&self, name: &str) -> u64 {
        let _ = name;
        0
    }

    /// Makes all creates, renames and removes so far durable.
    fn sync_dir(&self) -> Result<()>;

    /// Takes the store's lock on `name`; `Ok(None)` if another holder excludes it.
    fn lock(&self, name: &str, mode: LockMode) -> Result<Option<Box<dyn StorageLock>>>;

    /// The process that holds a lock which could not be taken; `None` if it is unknown.
    fn lock_holder(&self, name: &str) -> Option<u32> {
        let _ = name;
        None
    }

    /// Fails if this process may no longer change the storage (see [`StorageLock::check`]). A
    /// storage that a store has opened checks this itself before it creates, renames or removes a
    /// file, syncs the directory, or writes to a table or a value file.
    fn check_owner(&self) -> Result<()> {
        Ok(())
    }

    /// Opens another storage of the same kind at `path`, for checkpoints, and creates it if it is
    /// absent. Fails with `AlreadyExists` if it exists and is not empty.
    fn create_sibling(&self, path: &Path) -> Result<Arc<dyn Storage>>;

    /// Makes `name` appear in `target` under the same name, as a hard link if both are directories
    /// of the same file system, or else as a copy. `name` must no longer be written to. A
    /// write-protected file is copied.
    fn link_into(&self, name: &str, category: Category, target: &dyn Storage) -> Result<()>;

    /// The bytes that are free for new files, if the implementation knows this.
    fn free_bytes(&self) -> Option<u64> {
        None
    }

    /// Whether all changes fail.
    fn is_read_only(&self) -> bool {
        false
    }

    /// Byte and operation counters of this storage.
    fn counters(&self) -> &Counters;

    /// Human-readable location, for error messages: a directory path or a URL.
    fn location(&self) -> String;

    /// The directory, if there is one. `link_into` uses it to link instead of copying.
    fn directory(&self) -> Option<&Path> {
        None
    }
}

/// One of several reads of a file.
#[derive(Debug, Default)]
pub struct ReadRequest {
    /// Where it begins.
    pub offset: u64,
    /// The buffer, which is filled as a whole.
    pub buffer: Vec<u8>,
}

/// An open file. All I/O is positioned, so one handle serves many threads.
pub trait StorageFile: Send + Sync + Debug {
    /// Fills `buf` from `offset`. Reading past the end is an `UnexpectedEof` error.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()>;

    /// As [`StorageFile::read_at`], into new memory. An implementation need not clear the memory
    /// first.
    fn read_vec(&self, offset: u64, len_bytes: usize) -> Result<Vec<u8>> {
        let mut bytes = vec![0; len_bytes];
        self.read_at(offset, &mut bytes)?;
        Ok(bytes)
    }

    /// Fills all buffers and stops at the first error. An implementation may do many reads at once.
    /// This default announces all of them before it waits for the first.
    fn read_many(&self, reads: &mut [ReadRequest]) -> Result<()> {
        announce(self, reads);
        reads.iter_mut().try_for_each(|read| self.read_at(read.offset, &mut read.buffer))
    }

    /// Whether `read_many` does its reads at once. If not, it only calls `read_ahead` and then
    /// `read_at` for each.
    fn reads_together(&self) -> bool {
        false
    }

    /// Writes all of `data` at `offset`, extending the file as needed. On a mapped file writing
    /// past its capacity is an error.
    fn write_at(&self, offset: u64, data: &[u8]) -> Result<()>;

    /// Whether a write inside the capacity is a memory copy, which needs no space and waits for no
    /// device.
    fn is_mapped(&self) -> bool {
        false
    }

    /// Makes content and length durable. After an error the unsynced bytes are lost: the caller
    /// must not try again (P7).
    fn sync(&self) -> Result<()>;

    /// Begins to write the range `begin` to the medium, and waits for the range `wait_for`, which
    /// was begun earlier. Either range may be empty. So the next sync has little left to write, and
    /// few bytes are being written while other files sync. This call makes nothing durable, and an
    /// implementation may do nothing. An error means the same as an error of [`StorageFile::sync`].
    fn write_back(&self, _begin: Range<u64>, _wait_for: Range<u64>) -> Result<()> {
        Ok(())
    }

    /// Current length in bytes.
    fn len(&self) -> Result<u64>;

    /// Bytes that the file uses on its medium: holes use none, but reserved space counts. If this
    /// is not known, the length.
    fn disk_bytes(&self) -> Result<u64> {
        self.len()
    }

    /// When the file was last written, by the clock of the machine and accurate to about a minute.
    /// `None` if this is not known.
    fn modified(&self) -> Result<Option<SystemTime>> {
        Ok(None)
    }

    /// Whether the file has no bytes.
    fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Cuts or zero-extends the file.
    fn set_len(&self, len_bytes: u64) -> Result<()>;

    /// Reserves space for `[offset, offset + len_bytes)`, so that writes there cannot fail for lack
    /// of space. The length stays the same. Best effort if the file system cannot reserve.
    fn allocate(&self, offset: u64, len_bytes: u64) -> Result<()>;

    /// Whether [`StorageFile::allocate`] reserves for certain: the file system overwrites reserved
    /// blocks in place, and does not need new ones for a write.
    fn can_reserve(&self) -> bool {
        false
    }

    /// Frees the space of the range, which then reads as zeros. Best effort.
    fn punch(&self, offset: u64, len_bytes: u64) -> Result<()>;

    /// Announces that the range will be read soon. This is a hint: it never fails and may do
    /// nothing.
    fn read_ahead(&self, _offset: u64, _len_bytes: u64) {}

    /// How many bytes of a range the system has cached in memory for readers of the file; `None` if
    /// the system does not report it. The number may change at any moment.
    fn cached_bytes(&self, _offset: u64, _len_bytes: u64) -> Option<u64> {
        None
    }

    /// Informs the system that it need not cache a range in memory. Bytes that are not yet written
    /// back stay cached. This is a hint, which changes no byte.
    fn drop_cached(&self, _offset: u64, _len_bytes: u64) {}

    /// Whether `read_ahead` has an effect. If not, a caller should not request bytes that it does
    /// not need yet.
    fn heeds_hints(&self) -> bool {
        false
    }

    /// Passes the present bytes of the range to `see` and returns true, if the file is in the
    /// memory of the process and contains the range. Writes wait meanwhile. This does not count as
    /// a read.
    fn show(&self, _offset: u64, _len_bytes: u64, _see: &mut dyn FnMut(&[u8])) -> bool {
        false
    }

    /// Whether the file is in the memory of the process, so that `show` works.
    fn is_memory(&self) -> bool {
        false
    }

    /// Makes sure that writes in `[offset, offset + len_bytes)` of a mapped file are memory copies
    /// and cannot fault. An error here is an ordinary I/O error. A no-op on other files.
    fn prepare(&self, _offset: u64, _len_bytes: u64) -> Result<()> {
        Ok(())
    }
}

/// Announces all reads to the file before the caller waits for the first.
fn announce<F: StorageFile + ?Sized>(file: &F, reads: &[ReadRequest]) {
    if reads.len() > 1 {
        reads.iter().for_each(|read| file.read_ahead(read.offset, read.buffer.len() as u64));
    }
}
