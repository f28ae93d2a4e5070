//! A storage that wraps another and counts the bytes written to it. This is the place for quotas,
//! encryption, tracing or a custom device. Methods that are left out have defaults, which at worst
//! are slower.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use runstone::Store;
use runstone::storage::{Category, Counters, FileInfo, LockMode, MemoryStorage, Result};
use runstone::storage::{Storage, StorageFile, StorageLock};

/// A wrapper around a storage, and around each of its files.
#[derive(Debug)]
struct Counting<S> {
    inner: S,
    written_bytes: Arc<AtomicU64>,
}

/// Defines methods that call the same methods of the inner object.
macro_rules! forward {
    ($($name:ident($($arg:ident: $of:ty),*) -> $to:ty;)*) => {$(
        fn $name(&self, $($arg: $of),*) -> $to {
            self.inner.$name($($arg),*)
        }
    )*};
}

fn counting<T>(inner: T, by: &Arc<AtomicU64>) -> Arc<Counting<T>> {
    Arc::new(Counting { inner, written_bytes: Arc::clone(by) })
}

impl<S: Storage> Storage for Counting<S> {
    fn create(&self, name: &str, category: Category) -> Result<Arc<dyn StorageFile>> {
        Ok(counting(self.inner.create(name, category)?, &self.written_bytes))
    }
    fn create_mapped(&self, name: &str, of: Category, bytes: u64) -> Result<Arc<dyn StorageFile>> {
        Ok(counting(self.inner.create_mapped(name, of, bytes)?, &self.written_bytes))
    }
    fn open(&self, name: &str, category: Category) -> Result<Arc<dyn StorageFile>> {
        Ok(counting(self.inner.open(name, category)?, &self.written_bytes))
    }
    forward! {
        rename(from: &str, to: &str) -> Result<()>;
        remove(name: &str) -> Result<()>;
        list() -> Result<Vec<FileInfo>>;
        sync_dir() -> Result<()>;
        lock(name: &str, mode: LockMode) -> Result<Option<Box<dyn StorageLock>>>;
        create_sibling(path: &Path) -> Result<Arc<dyn Storage>>;
        link_into(name: &str, category: Category, target: &dyn Storage) -> Result<()>;
        counters() -> &Counters;
        location() -> String;
    }
}

impl StorageFile for Counting<Arc<dyn StorageFile>> {
    fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.written_bytes.fetch_add(data.len() as u64, Relaxed);
        self.inner.write_at(offset, data)
    }
    forward! {
        read_at(offset: u64, buffer: &mut [u8]) -> Result<()>;
        sync() -> Result<()>;
        len() -> Result<u64>;
        set_len(len_bytes: u64) -> Result<()>;
        allocate(offset: u64, len_bytes: u64) -> Result<()>;
        punch(offset: u64, len_bytes: u64) -> Result<()>;
    }
}

pub(crate) fn main() -> runstone::Result<()> {
    let written_bytes = Arc::new(AtomicU64::new(0));
    let store = Store::builder_on(counting(MemoryStorage::new(), &written_bytes)).open()?;
    (0..1000u32).try_for_each(|key| store.put(key.to_be_bytes(), [7; 100]))?;
    store.close()?;
    let written = written_bytes.load(Relaxed);
    println!("{written} bytes written for 104000 put");
    assert!(written > 104_000);
    Ok(())
}
