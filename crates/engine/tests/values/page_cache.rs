//! What a collection leaves in the system's page cache, tested on a storage that simulates one.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex};

use runstone::storage::{Category, Counters, FileInfo, LockMode, Result};
use runstone::storage::{Storage, StorageFile, StorageLock};
use runstone::{
    Background, GcPointers, KeyspaceOptions, Options, Store, ValueOptions, ValuePlacement,
};
use runstone_fault_storage::{SimStorage, forward};

const PAGE_BYTES: u64 = 4096;
const KEYS: u64 = 1_000;
const VALUE_BYTES: u64 = 1_000;

/// The pages of each file that are in memory.
type Pages = Arc<Mutex<BTreeMap<String, BTreeSet<u64>>>>;

/// A storage whose reads and writes load pages into memory.
#[derive(Clone, Debug)]
struct Paged {
    inner: SimStorage,
    pages: Pages,
}

#[derive(Debug)]
struct PagedFile {
    inner: Arc<dyn StorageFile>,
    name: String,
    pages: Pages,
}

impl Paged {
    fn file(&self, name: &str, inner: Arc<dyn StorageFile>) -> Arc<dyn StorageFile> {
        Arc::new(PagedFile { inner, name: name.into(), pages: Arc::clone(&self.pages) })
    }

    /// Bytes of value files that are in memory.
    fn value_bytes(&self) -> u64 {
        let pages = self.pages.lock().expect("no panic");
        let files = pages.iter().filter(|(name, _)| name.ends_with(".values"));
        files.map(|(_, pages)| pages.len() as u64 * PAGE_BYTES).sum()
    }
}

impl PagedFile {
    fn with<T>(
        &self,
        offset: u64,
        bytes: u64,
        f: impl FnOnce(&mut BTreeSet<u64>, Vec<u64>) -> T,
    ) -> T {
        let touched = (offset / PAGE_BYTES..(offset + bytes).div_ceil(PAGE_BYTES)).collect();
        let mut pages = self.pages.lock().expect("no panic");
        f(pages.entry(self.name.clone()).or_default(), touched)
    }
}

impl Storage for Paged {
    fn create(&self, name: &str, category: Category) -> Result<Arc<dyn StorageFile>> {
        Ok(self.file(name, self.inner.create(name, category)?))
    }
    fn open(&self, name: &str, category: Category) -> Result<Arc<dyn StorageFile>> {
        Ok(self.file(name, self.inner.open(name, category)?))
    }
    forward! {
        Result:
        create_mapped rename remove list sync_dir lock create_sibling link_into counters
        location
    }
}

impl StorageFile for PagedFile {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.with(offset, buf.len() as u64, |pages, touched| pages.extend(touched));
        self.inner.read_at(offset, buf)
    }
    fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.with(offset, data.len() as u64, |pages, touched| pages.extend(touched));
        self.inner.write_at(offset, data)
    }
    fn cached_bytes(&self, offset: u64, len_bytes: u64) -> Option<u64> {
        let there = |pages: &mut BTreeSet<u64>, touched: Vec<u64>| {
            touched.iter().filter(|page| pages.contains(page)).count() as u64
        };
        Some(self.with(offset, len_bytes, there) * PAGE_BYTES)
    }
    fn drop_cached(&self, offset: u64, len_bytes: u64) {
        self.with(offset, len_bytes, |pages, touched| {
            pages.retain(|page| !touched.contains(page));
        });
    }
    forward!(Result: sync len set_len allocate punch);
}

/// The bytes of value files in memory after a collection, and the live bytes. Before the
/// collection, all of their pages were in memory, or none.
fn left_by_a_collection(change: fn(&mut ValueOptions), is_warm: bool) -> (u64, u64) {
    let storage = Paged { inner: SimStorage::new(1), pages: Pages::default() };
    let mut values = ValueOptions::default()
        .placement(ValuePlacement::HashGrouped)
        .separate_at(100)
        .groups(1)
        .slot_bytes(64 << 10);
    change(&mut values);
    let options = Options::default()
        .background(Background::Manual)
        .keyspace(KeyspaceOptions::default().values(values));
    let store = Store::open_on(Arc::new(storage.clone()), options).expect("opens");
    let put = |k: u64| store.put(k.to_be_bytes(), [k as u8; VALUE_BYTES as usize]).expect("puts");
    (0..KEYS).for_each(put);
    store.flush().expect("flushes");
    (0..KEYS).filter(|k| k % 2 == 0).for_each(put);
    store.flush().expect("flushes");
    if !is_warm {
        storage.pages.lock().expect("no panic").clear();
    }
    store.collect_values().expect("collects");
    assert!(store.metrics().counters.value_gc_bytes_written >= KEYS / 2 * VALUE_BYTES);
    (storage.value_bytes(), KEYS * VALUE_BYTES)
}

#[test]
fn a_collection_leaves_in_memory_what_it_found_there() {
    type Change = fn(&mut ValueOptions);
    let placements: [(&str, Change); 3] = [
        ("stable", |_| ()),
        ("written back", |values| values.gc_pointers = GcPointers::Writeback),
        ("log", |values| values.placement = ValuePlacement::Vlog),
    ];
    for (place, change) in placements {
        let (bytes, live) = left_by_a_collection(change, true);
        assert!(bytes >= live / 2, "{place}: {bytes} of {live} are in memory, as before");
        let (bytes, live) = left_by_a_collection(change, false);
        assert!(bytes < live / 8, "{place}: {bytes} of {live} are in memory, and none was");
    }
}
