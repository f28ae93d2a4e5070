//! A storage that keeps the write-ahead log on another storage, so that a paper's table counts what
//! compactions write. A file's category decides in which storage it is made; later the file's name
//! shows where it is.

use std::path::Path;
use std::sync::Arc;

use runstone::storage::{
    Category, Counters, FileInfo, LockMode, Result, Storage, StorageFile, StorageLock,
};

/// See the module docs.
#[derive(Debug)]
pub(super) struct LogApart {
    main: Arc<dyn Storage>,
    log: Arc<dyn Storage>,
}

impl LogApart {
    pub(super) fn new(main: Arc<dyn Storage>, log: Arc<dyn Storage>) -> LogApart {
        LogApart { main, log }
    }

    fn of_category(&self, category: Category) -> &dyn Storage {
        if category == Category::Wal { &*self.log } else { &*self.main }
    }

    fn of_name(&self, name: &str) -> Result<&dyn Storage> {
        let is_log = self.log.list()?.iter().any(|file| file.name == name);
        Ok(if is_log { &*self.log } else { &*self.main })
    }
}

impl Storage for LogApart {
    fn create(&self, name: &str, category: Category) -> Result<Arc<dyn StorageFile>> {
        self.of_category(category).create(name, category)
    }

    fn create_mapped(
        &self,
        name: &str,
        category: Category,
        capacity_bytes: u64,
    ) -> Result<Arc<dyn StorageFile>> {
        self.of_category(category).create_mapped(name, category, capacity_bytes)
    }

    fn open(&self, name: &str, category: Category) -> Result<Arc<dyn StorageFile>> {
        self.of_category(category).open(name, category)
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.of_name(from)?.rename(from, to)
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.of_name(name)?.remove(name)
    }

    fn list(&self) -> Result<Vec<FileInfo>> {
        let mut files = self.main.list()?;
        files.extend(self.log.list()?);
        files.sort_by(|one, two| one.name.cmp(&two.name));
        Ok(files)
    }

    fn sync_dir(&self) -> Result<()> {
        self.log.sync_dir()?;
        self.main.sync_dir()
    }

    fn lock(&self, name: &str, mode: LockMode) -> Result<Option<Box<dyn StorageLock>>> {
        self.main.lock(name, mode)
    }

    fn create_sibling(&self, path: &Path) -> Result<Arc<dyn Storage>> {
        self.main.create_sibling(path)
    }

    fn link_into(&self, name: &str, category: Category, target: &dyn Storage) -> Result<()> {
        self.of_category(category).link_into(name, category, target)
    }

    fn free_bytes(&self) -> Option<u64> {
        self.main.free_bytes()
    }

    fn is_read_only(&self) -> bool {
        self.main.is_read_only()
    }

    fn counters(&self) -> &Counters {
        self.main.counters()
    }

    fn location(&self) -> String {
        self.main.location()
    }
}
