//! Presents a backup as a storage on which a store opens, without copying it. Its files consist of
//! pieces of the files in the directory, and writes stay in memory.
//!
//! 1. A file of the backup is a list of pieces, each a part of a table or of a pack. Between them
//!    are zeros.
//! 2. A write changes pages in memory, which hide the bytes below them. So a store can replay an
//!    archive over a backup without changing either.
//! 3. Files that the store makes exist only in memory.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use runstone_storage::{
    Category, Counters, Error, FileInfo, LockMode, MemoryStorage, Operation, Result, Storage,
    StorageFile, StorageLock,
};

use crate::sync::{Mutex, rank};

const PAGE_BYTES: u64 = 4096;

/// A part of a file.
#[derive(Debug)]
pub(super) struct Part {
    /// Where it begins in the file.
    pub(super) at: u64,
    pub(super) bytes: u64,
    pub(super) from: Arc<dyn StorageFile>,
    /// Where it begins in the source.
    pub(super) offset: u64,
}

/// See the module docs.
#[derive(Debug, Default)]
pub(super) struct Overlay {
    files: Mutex<rank::OverlayFiles, BTreeMap<String, Arc<dyn StorageFile>>>,
    /// Creates the files that the store makes. Their names are numbers, because a file keeps its
    /// first name here when it is renamed.
    memory: MemoryStorage,
    made: AtomicU64,
}

impl Overlay {
    /// Adds a file of the backup.
    pub(super) fn add(&self, name: String, bytes: u64, mut parts: Vec<Part>) {
        parts.sort_by_key(|part| part.at);
        let file = OverlayFile {
            name: name.clone(),
            parts,
            bytes: AtomicU64::new(bytes),
            pages: Mutex::default(),
        };
        self.files.lock().insert(name, Arc::new(file));
    }

    fn insert(&self, name: &str, file: Arc<dyn StorageFile>) -> Arc<dyn StorageFile> {
        self.files.lock().insert(name.to_string(), Arc::clone(&file));
        file
    }

    fn take(&self, operation: Operation, name: &str) -> Result<Arc<dyn StorageFile>> {
        self.files
            .lock()
            .remove(name)
            .ok_or_else(|| failed(operation, name, io::ErrorKind::NotFound))
    }

    fn number(&self) -> String {
        self.made.fetch_add(1, Relaxed).to_string()
    }
}

fn failed(operation: Operation, name: &str, kind: io::ErrorKind) -> Error {
    Error::new(operation, name, kind.into())
}

impl Storage for Overlay {
    fn create(&self, name: &str, category: Category) -> Result<Arc<dyn StorageFile>> {
        Ok(self.insert(name, self.memory.create(&self.number(), category)?))
    }

    fn create_mapped(
        &self,
        name: &str,
        category: Category,
        capacity_bytes: u64,
    ) -> Result<Arc<dyn StorageFile>> {
        let file = self.memory.create_mapped(&self.number(), category, capacity_bytes)?;
        Ok(self.insert(name, file))
    }

    fn open(&self, name: &str, _category: Category) -> Result<Arc<dyn StorageFile>> {
        let file = self.files.lock().get(name).cloned();
        file.ok_or_else(|| failed(Operation::Open, name, io::ErrorKind::NotFound))
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        let file = self.take(Operation::Rename, from)?;
        self.insert(to, file);
        Ok(())
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.take(Operation::Remove, name).map(drop)
    }

    fn list(&self) -> Result<Vec<FileInfo>> {
        let info = |(name, file): (&String, &Arc<dyn StorageFile>)| {
            Ok(FileInfo { name: name.clone(), len_bytes: file.len()? })
        };
        self.files.lock().iter().map(info).collect()
    }

    fn sync_dir(&self) -> Result<()> {
        Ok(())
    }

    fn lock(&self, _name: &str, _mode: LockMode) -> Result<Option<Box<dyn StorageLock>>> {
        Ok(Some(Box::new(NoLock)))
    }

    fn create_sibling(&self, path: &Path) -> Result<Arc<dyn Storage>> {
        let name = path.display().to_string();
        Err(failed(Operation::Create, &name, io::ErrorKind::Unsupported))
    }

    fn link_into(&self, name: &str, _category: Category, _target: &dyn Storage) -> Result<()> {
        Err(failed(Operation::Link, name, io::ErrorKind::Unsupported))
    }

    fn counters(&self) -> &Counters {
        self.memory.counters()
    }

    fn location(&self) -> String {
        "a backup that is verified".to_string()
    }
}

/// A lock that does nothing, because nobody else has the overlay.
#[derive(Debug)]
struct NoLock;

impl StorageLock for NoLock {}

/// A file of a backup.
#[derive(Debug)]
struct OverlayFile {
    name: String,
    /// Ordered by their places.
    parts: Vec<Part>,
    bytes: AtomicU64,
    /// Pages that were written to, by number.
    pages: Mutex<rank::OverlayPages, BTreeMap<u64, Box<[u8]>>>,
}

impl OverlayFile {
    /// Reads the pieces of the backup.
    fn read_below(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        buf.fill(0);
        let end = offset + buf.len() as u64;
        let first = self.parts.partition_point(|part| part.at + part.bytes <= offset);
        for part in self.parts[first..].iter().take_while(|part| part.at < end) {
            let (from, to) = (part.at.max(offset), (part.at + part.bytes).min(end));
            let into = &mut buf[(from - offset) as usize..(to - offset) as usize];
            part.from.read_at(part.offset + (from - part.at), into)?;
        }
        Ok(())
    }

    /// The pages that a range overlaps, each with the part of the range inside it.
    fn pages_of(offset: u64, bytes: usize) -> impl Iterator<Item = (u64, u64, u64)> {
        let end = offset + bytes as u64;
        (offset / PAGE_BYTES..end.div_ceil(PAGE_BYTES)).map(move |page| {
            let begin = page * PAGE_BYTES;
            (page, offset.max(begin), end.min(begin + PAGE_BYTES))
        })
    }
}

impl StorageFile for OverlayFile {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let end = offset.checked_add(buf.len() as u64);
        if end.is_none_or(|end| end > self.bytes.load(Relaxed)) {
            return Err(failed(Operation::Read, &self.name, io::ErrorKind::UnexpectedEof));
        }
        self.read_below(offset, buf)?;
        let pages = self.pages.lock();
        for (page, from, to) in OverlayFile::pages_of(offset, buf.len()) {
            if let Some(bytes) = pages.get(&page) {
                let at = (from % PAGE_BYTES) as usize;
                let into = &mut buf[(from - offset) as usize..(to - offset) as usize];
                into.copy_from_slice(&bytes[at..at + into.len()]);
            }
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        let mut pages = self.pages.lock();
        for (page, from, to) in OverlayFile::pages_of(offset, data.len()) {
            let bytes = match pages.entry(page) {
                Entry::Occupied(there) => there.into_mut(),
                Entry::Vacant(free) => {
                    let mut below = vec![0; PAGE_BYTES as usize];
                    self.read_below(page * PAGE_BYTES, &mut below)?;
                    free.insert(below.into())
                }
            };
            let new = &data[(from - offset) as usize..(to - offset) as usize];
            let at = (from % PAGE_BYTES) as usize;
            bytes[at..at + new.len()].copy_from_slice(new);
        }
        self.bytes.fetch_max(offset + data.len() as u64, Relaxed);
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn len(&self) -> Result<u64> {
        Ok(self.bytes.load(Relaxed))
    }

    /// Truncated bytes need not be cleared: they are not read again, because a file of a backup
    /// only grows.
    fn set_len(&self, len_bytes: u64) -> Result<()> {
        self.bytes.store(len_bytes, Relaxed);
        Ok(())
    }

    fn allocate(&self, offset: u64, len_bytes: u64) -> Result<()> {
        self.bytes.fetch_max(offset + len_bytes, Relaxed);
        Ok(())
    }

    fn punch(&self, _offset: u64, _len_bytes: u64) -> Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// After any writes, a file shows the same bytes as a plain file, and the files below stay
    /// unchanged.
    #[test]
    fn what_is_written_hides_what_is_below() {
        let mut random = runstone_random::Random::new(7);
        let below = MemoryStorage::new().create("below", Category::Other).expect("a file");
        let content: Vec<u8> = (0..40_000).map(|_| random.draw() as u8).collect();
        below.write_at(0, &content).expect("written");
        let overlay = Overlay::default();
        let part = |at, offset, bytes| Part { at, bytes, from: Arc::clone(&below), offset };
        let parts = vec![part(20_000, 5_000, 9_000), part(100, 20_000, 10_000)];
        overlay.add("file".into(), 30_000, parts);
        let mut expected = vec![0; 30_000];
        expected[20_000..29_000].copy_from_slice(&content[5_000..14_000]);
        expected[100..10_100].copy_from_slice(&content[20_000..30_000]);
        let file = overlay.open("file", Category::Value).expect("it is there");
        for _ in 0..300 {
            let (at, bytes) = (random.below(36_000), random.below(9_000) as usize);
            if random.below(3) == 0 {
                let new: Vec<u8> = (0..bytes).map(|_| random.draw() as u8).collect();
                file.write_at(at, &new).expect("written");
                expected.resize(expected.len().max(at as usize + bytes), 0);
                expected[at as usize..at as usize + bytes].copy_from_slice(&new);
            }
            assert_eq!(file.len().expect("known"), expected.len() as u64);
            match expected.get(at as usize..at as usize + bytes) {
                Some(expected) => assert_eq!(file.read_vec(at, bytes).expect("read"), expected),
                None => assert!(file.read_vec(at, bytes).is_err()),
            }
        }
        assert_eq!(below.read_vec(0, 40_000).expect("read"), content);
        overlay.rename("file", "other").expect("renamed");
        assert!(overlay.open("file", Category::Value).is_err());
        let made = overlay.create("file", Category::Other).expect("made");
        made.write_at(0, b"new").expect("written");
        let names: Vec<String> =
            overlay.list().expect("a list").into_iter().map(|file| file.name).collect();
        assert_eq!(names, ["file", "other"]);
        overlay.remove("other").expect("removed");
        assert_eq!(overlay.list().expect("a list").len(), 1);
    }
}
