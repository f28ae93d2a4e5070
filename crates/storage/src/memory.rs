//! Files in memory, for tests and `mem:` stores. Nothing survives the process, and nothing is lost
//! before it ends. A simulated disk that loses power exists only in the tests.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};

use crate::copy::copy_into;
use crate::handle::Handle;
use crate::locks::LockTable;
use crate::names::{check_name, checked_end};
use crate::{
    Category, Counters, Error, FileInfo, LockMode, Operation, Result, Storage, StorageFile,
    StorageLock,
};

/// A directory in memory. Clones share its files and counters, so that a test can open a store
/// again after dropping it.
#[derive(Clone, Debug)]
pub struct MemoryStorage {
    world: Arc<World>,
    place: PathBuf,
    counters: Arc<Counters>,
}

/// All directories made from one `MemoryStorage::new`.
#[derive(Debug, Default)]
struct World {
    directories: Mutex<BTreeMap<PathBuf, Directory>>,
    locks: LockTable,
}

type Directory = BTreeMap<String, Arc<Content>>;
type Content = RwLock<Vec<u8>>;

impl Default for MemoryStorage {
    fn default() -> Self {
        Self::new()
    }
}

impl MemoryStorage {
    /// An empty storage that shares nothing with any other.
    pub fn new() -> Self {
        let world = Arc::<World>::default();
        world.directories.lock().insert(PathBuf::new(), Directory::new());
        MemoryStorage { world, place: PathBuf::new(), counters: Arc::default() }
    }

    /// The storage that `create_sibling` made at `path`, with counters of its own.
    pub fn open_sibling(&self, path: &Path) -> Option<MemoryStorage> {
        self.world.directories.lock().contains_key(path).then(|| self.sibling(path))
    }

    fn sibling(&self, path: &Path) -> MemoryStorage {
        let (world, place) = (Arc::clone(&self.world), path.to_path_buf());
        MemoryStorage { world, place, counters: Arc::default() }
    }

    fn failed(&self, operation: Operation, name: &str, kind: io::ErrorKind) -> Error {
        Error::new(operation, path_text(&self.place, name), kind.into())
    }

    /// Runs `f` on this directory's entries. The entry exists because the storage does.
    fn with_entries<T>(&self, f: impl FnOnce(&mut Directory) -> T) -> T {
        f(self.world.directories.lock().entry(self.place.clone()).or_default())
    }

    fn file(
        &self,
        name: &str,
        category: Category,
        content: Arc<Content>,
        fixed_capacity_bytes: Option<u64>,
    ) -> Arc<dyn StorageFile> {
        let (path, counters) = (path_text(&self.place, name), Arc::clone(&self.counters));
        let handle = Handle { path, category, counters, fixed_capacity_bytes };
        Arc::new(MemoryFile { content, handle })
    }

    fn create_content(&self, name: &str, bytes: Vec<u8>) -> Result<Arc<Content>> {
        check_name(Operation::Create, name)?;
        self.with_entries(|entries| {
            if entries.contains_key(name) {
                return Err(self.failed(Operation::Create, name, io::ErrorKind::AlreadyExists));
            }
            let content = Arc::new(RwLock::new(bytes));
            entries.insert(name.to_string(), Arc::clone(&content));
            Ok(content)
        })
    }
}

impl Storage for MemoryStorage {
    fn create(&self, name: &str, category: Category) -> Result<Arc<dyn StorageFile>> {
        let content = self.create_content(name, Vec::new())?;
        Ok(self.file(name, category, content, None))
    }

    fn create_mapped(
        &self,
        name: &str,
        category: Category,
        capacity_bytes: u64,
    ) -> Result<Arc<dyn StorageFile>> {
        let mut bytes = Vec::new();
        resize(&mut bytes, capacity_bytes).map_err(|source| {
            Error::new(Operation::Create, path_text(&self.place, name), source)
        })?;
        let content = self.create_content(name, bytes)?;
        Ok(self.file(name, category, content, Some(capacity_bytes)))
    }

    fn open(&self, name: &str, category: Category) -> Result<Arc<dyn StorageFile>> {
        check_name(Operation::Open, name)?;
        match self.with_entries(|entries| entries.get(name).cloned()) {
            Some(content) => Ok(self.file(name, category, content, None)),
            None => Err(self.failed(Operation::Open, name, io::ErrorKind::NotFound)),
        }
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        check_name(Operation::Rename, from)?;
        check_name(Operation::Rename, to)?;
        self.with_entries(|entries| match entries.remove(from) {
            Some(content) => {
                entries.insert(to.to_string(), content);
                self.world.locks.replace(&path_text(&self.place, to));
                Ok(())
            }
            None => Err(self.failed(Operation::Rename, from, io::ErrorKind::NotFound)),
        })
    }

    fn remove(&self, name: &str) -> Result<()> {
        check_name(Operation::Remove, name)?;
        match self.with_entries(|entries| entries.remove(name)) {
            Some(_) => Ok(()),
            None => Err(self.failed(Operation::Remove, name, io::ErrorKind::NotFound)),
        }
    }

    fn list(&self) -> Result<Vec<FileInfo>> {
        let info = |(name, content): (&String, &Arc<Content>)| FileInfo {
            name: name.clone(),
            len_bytes: content.read().len() as u64,
        };
        Ok(self.with_entries(|entries| entries.iter().map(info).collect()))
    }

    fn sync_dir(&self) -> Result<()> {
        Ok(())
    }

    /// The lock is held in a table of the process; no file appears.
    fn lock(&self, name: &str, mode: LockMode) -> Result<Option<Box<dyn StorageLock>>> {
        check_name(Operation::Lock, name)?;
        Ok(self.world.locks.take(path_text(&self.place, name), mode))
    }

    /// No other process can reach the storage.
    fn lock_holder(&self, _name: &str) -> Option<u32> {
        Some(std::process::id())
    }

    fn create_sibling(&self, path: &Path) -> Result<Arc<dyn Storage>> {
        let mut directories = self.world.directories.lock();
        let entries = directories.entry(path.to_path_buf()).or_default();
        if !entries.is_empty() {
            let source = io::ErrorKind::AlreadyExists.into();
            return Err(Error::new(Operation::Create, path.display().to_string(), source));
        }
        Ok(Arc::new(self.sibling(path)))
    }

    fn link_into(&self, name: &str, category: Category, target: &dyn Storage) -> Result<()> {
        copy_into(self, name, category, target)
    }

    fn counters(&self) -> &Counters {
        &self.counters
    }

    fn location(&self) -> String {
        path_text(&self.place, "")
    }
}

#[derive(Debug)]
struct MemoryFile {
    content: Arc<Content>,
    handle: Handle,
}

impl MemoryFile {
    /// The result of `see` for a range, if the file has all of it.
    fn try_read<T>(
        &self,
        offset: u64,
        len_bytes: usize,
        see: impl FnOnce(&[u8]) -> T,
    ) -> io::Result<T> {
        let content = self.content.read();
        let end = checked_end(offset, len_bytes, content.len() as u64);
        let end = end.map_err(|_| io::Error::from(io::ErrorKind::UnexpectedEof))?;
        Ok(see(&content[offset as usize..end as usize]))
    }

    fn try_write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let end = self.handle.end_of_write(offset, data.len())?;
        if data.is_empty() {
            return Ok(());
        }
        let mut content = self.content.write();
        if end > content.len() as u64 {
            resize(&mut content, end)?;
        }
        content[offset as usize..end as usize].copy_from_slice(data);
        Ok(())
    }

    fn try_punch(&self, offset: u64, len_bytes: u64) -> io::Result<()> {
        self.handle.check_resizable()?;
        let mut content = self.content.write();
        let limit_bytes = content.len() as u64;
        let start = offset.min(limit_bytes);
        let end = offset.saturating_add(len_bytes).min(limit_bytes);
        content[start as usize..end as usize].fill(0);
        Ok(())
    }
}

impl StorageFile for MemoryFile {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let len_bytes = buf.len();
        let read = self.try_read(offset, len_bytes, |bytes| buf.copy_from_slice(bytes));
        self.handle.read(len_bytes, read)
    }

    fn read_vec(&self, offset: u64, len_bytes: usize) -> Result<Vec<u8>> {
        self.handle.read(len_bytes, self.try_read(offset, len_bytes, <[u8]>::to_vec))
    }

    fn show(&self, offset: u64, len_bytes: u64, see: &mut dyn FnMut(&[u8])) -> bool {
        self.try_read(offset, len_bytes as usize, see).is_ok()
    }

    fn is_memory(&self) -> bool {
        true
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.handle.wrote(data.len(), self.try_write(offset, data))
    }

    fn is_mapped(&self) -> bool {
        self.handle.fixed_capacity_bytes.is_some()
    }

    fn sync(&self) -> Result<()> {
        self.handle.synced(Ok(()))
    }

    fn len(&self) -> Result<u64> {
        Ok(self.content.read().len() as u64)
    }

    fn set_len(&self, len_bytes: u64) -> Result<()> {
        let may = self.handle.check_resizable();
        let done = may.and_then(|()| resize(&mut self.content.write(), len_bytes));
        self.handle.result(Operation::SetLen, done)
    }

    fn allocate(&self, _offset: u64, _len_bytes: u64) -> Result<()> {
        Ok(())
    }

    fn can_reserve(&self) -> bool {
        true
    }

    fn punch(&self, offset: u64, len_bytes: u64) -> Result<()> {
        self.handle.result(Operation::Punch, self.try_punch(offset, len_bytes))
    }
}

fn path_text(place: &Path, name: &str) -> String {
    format!("mem:{}", place.join(name).display())
}

/// Cuts or zero-extends; a failed allocation is an error, as a full disk would be.
fn resize(bytes: &mut Vec<u8>, len_bytes: u64) -> io::Result<()> {
    let no_space = || io::Error::from(io::ErrorKind::StorageFull);
    let len = usize::try_from(len_bytes).map_err(|_| no_space())?;
    bytes.try_reserve(len.saturating_sub(bytes.len())).map_err(|_| no_space())?;
    bytes.resize(len, 0);
    Ok(())
}
