//! The tables, value files and manifests that are open at one time. On most machines a process may
//! open 1,024 files, and a store of 60 GB has more files. So a file that was not used for a long
//! time is closed, and it is opened again when it is used. Its readers hold a [`PooledFile`] and
//! notice nothing.
//!
//! - A file with writes that no sync has covered stays open. The kernel reports bytes that it lost
//!   only to the handles that were open then, so a handle that is opened later might not get the
//!   report (P7).
//! - A file whose name is removed stays open too, because nobody could open it again.
//! - When the kernel refuses to open a file, half of the files that can be closed are closed, and
//!   the open is tried again. This applies to files of every kind, so the log and the manifest take
//!   precedence.
//!
//! Stores may share the list of open files, and with it the limit. Each store still finds its own
//! files by name.
//!
//! Not here: the segments of the log. A mapped segment has no descriptor.

use std::collections::BTreeMap;
use std::mem;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*, fence};
use std::sync::{Arc, Weak};
use std::time::SystemTime;

use crate::sync::{Mutex, rank};
use arc_swap::ArcSwapOption;
use runstone_storage::fork::Process;
use runstone_storage::{Category, ReadRequest, Result, Storage, StorageFile};

use super::owner::Owner;
use crate::pace::io_rate::IoRate;

/// How often an open is tried.
const TRIES: usize = 8;
/// When too many files are open, one in this many of them is closed at once: the search for files
/// that were not used for a long time reads the whole list.
const CLOSED_FRACTION: usize = 8;
/// In place of a size: the file is open, or a slot was punched since the file was closed.
const UNKNOWN_BYTES: u64 = u64::MAX;
/// In place of a size: the file is being closed, and its size is being read.
const ASKED_BYTES: u64 = u64::MAX - 1;

/// The open files of one store or of several.
#[derive(Debug)]
pub(super) struct OpenList {
    /// The limit on open files. If there are more, some are closed, unless they must stay open.
    most: usize,
    /// Advances when a file is opened. The last use of a file is noted as a value of this counter.
    turn: AtomicU64,
    /// The list may still name a file that nobody holds any more.
    open: Mutex<rank::OpenFiles, Vec<Weak<PooledFile>>>,
}

/// Opens and closes the files of a store.
#[derive(Debug)]
pub(super) struct OpenFiles {
    storage: Arc<dyn Storage>,
    owner: Arc<Owner>,
    list: Arc<OpenList>,
    io_rate: Arc<IoRate>,
    process: Process,
    /// Every file that somebody holds, open or not.
    held: Mutex<rank::FileNames, BTreeMap<String, Weak<PooledFile>>>,
}

/// Entries that are taken out of the list under its lock are dropped after the lock is released,
/// because dropping the last reference to a file takes the lock.
type Dropped = (Vec<Arc<PooledFile>>, Vec<Arc<Handle>>);

impl OpenFiles {
    pub(super) fn new(
        storage: Arc<dyn Storage>,
        owner: Arc<Owner>,
        list: Arc<OpenList>,
        io_rate: Arc<IoRate>,
    ) -> Arc<OpenFiles> {
        let (process, held) = (Process::current(), Mutex::default());
        Arc::new(OpenFiles { storage, owner, list, io_rate, process, held })
    }

    /// Creates a file that is closed when it is not used.
    pub(super) fn create(
        self: &Arc<Self>,
        name: &str,
        category: Category,
    ) -> Result<Arc<dyn StorageFile>> {
        let handle = self.attempt(|| self.storage.create(name, category))?;
        Ok(self.hold(name, category, handle))
    }

    /// Opens a file that is closed when it is not used.
    pub(super) fn open(
        self: &Arc<Self>,
        name: &str,
        category: Category,
    ) -> Result<Arc<dyn StorageFile>> {
        if let Some(held) = self.held(name) {
            return Ok(held);
        }
        let handle = self.attempt(|| self.storage.open(name, category))?;
        Ok(self.hold(name, category, handle))
    }

    /// Removes a file. Those who hold it can still read it.
    pub(super) fn remove(&self, name: &str) -> Result<()> {
        if let Some(held) = self.held(name) {
            held.is_kept.store(true, SeqCst);
            // Pairs with the fence in `close`, as in `change`.
            fence(SeqCst);
            held.with(|_| Ok(()))?;
        }
        self.storage.remove(name)?;
        self.held.lock().remove(name);
        Ok(())
    }

    /// Opens something. If the process may not open more files, closes some and tries again.
    pub(super) fn attempt<T>(&self, open: impl Fn() -> Result<T>) -> Result<T> {
        for _ in 1..TRIES {
            match open() {
                Err(error) if error.is_out_of_files() && self.list.close_half() => {}
                outcome => return outcome,
            }
        }
        open()
    }

    fn held(&self, name: &str) -> Option<Arc<PooledFile>> {
        self.held.lock().get(name).and_then(Weak::upgrade)
    }

    /// Returns a new file, or the file of that name that another caller opened meanwhile.
    fn hold(
        self: &Arc<Self>,
        name: &str,
        category: Category,
        handle: Arc<dyn StorageFile>,
    ) -> Arc<dyn StorageFile> {
        let fresh = Arc::new_cyclic(|own| PooledFile {
            files: Arc::clone(self),
            own: Weak::clone(own),
            name: name.to_string(),
            category,
            hints: Hints::of(&*handle),
            handle: ArcSwapOption::empty(),
            used: AtomicU64::new(0),
            written: AtomicU64::new(0),
            synced: AtomicU64::new(0),
            is_kept: AtomicBool::new(false),
            closed_disk_bytes: AtomicU64::new(UNKNOWN_BYTES),
        });
        let mut names = self.held.lock();
        if let Some(held) = names.get(name).and_then(Weak::upgrade) {
            // Dropping a file takes the lock.
            drop(names);
            return held;
        }
        names.insert(name.to_string(), Arc::downgrade(&fresh));
        let handle = Arc::new(Handle(handle));
        let dropped = self.list.note_open(&mut self.list.open.lock(), &fresh, handle);
        drop(names);
        drop(dropped);
        fresh
    }

    /// Opens a file again after it was closed.
    fn reopen(&self, file: &PooledFile) -> Result<Arc<Handle>> {
        let opened = self.attempt(|| self.storage.open(&file.name, file.category));
        let mut open = self.list.open.lock();
        // The file also has a handle if its name was removed meanwhile: the remover opened the file
        // first.
        if let Some(handle) = file.handle.load_full() {
            return Ok(handle);
        }
        let handle = Arc::new(Handle(opened?));
        // The caller holds the file.
        let Some(own) = file.own.upgrade() else { return Ok(handle) };
        let dropped = self.list.note_open(&mut open, &own, Arc::clone(&handle));
        drop(open);
        drop((own, dropped));
        Ok(handle)
    }
}

impl OpenList {
    /// An empty list of at most this many files.
    pub(super) fn new(most: usize) -> Arc<OpenList> {
        Arc::new(OpenList { most, turn: AtomicU64::new(1), open: Mutex::default() })
    }

    /// Adds an opened file to the list, and closes others if there are too many.
    fn note_open(
        &self,
        open: &mut Vec<Weak<PooledFile>>,
        file: &Arc<PooledFile>,
        handle: Arc<Handle>,
    ) -> Dropped {
        file.used.store(self.turn.fetch_add(1, Relaxed) + 1, Relaxed);
        file.closed_disk_bytes.store(UNKNOWN_BYTES, SeqCst);
        file.handle.store(Some(handle));
        open.push(Arc::downgrade(file));
        match open.len() > self.most {
            true => close_oldest(open, open.len() - self.most, self.most / CLOSED_FRACTION),
            false => Dropped::default(),
        }
    }

    /// Closes files if too many are open. Some could not be closed before they were synced.
    fn keep_limit(&self) {
        let dropped = {
            let mut open = self.open.lock();
            match open.len().saturating_sub(self.most) {
                0 => Dropped::default(),
                more => close_oldest(&mut open, more, 0),
            }
        };
        drop(dropped);
    }

    /// Closes half of the files that can be closed. Returns `false` if there is none.
    fn close_half(&self) -> bool {
        let (files, handles) = {
            let mut open = self.open.lock();
            let half = open.len().div_ceil(2);
            close_oldest(&mut open, half, half)
        };
        let closed = !handles.is_empty();
        drop((files, handles));
        closed
    }
}

/// Closes the files that have gone unused the longest: at least `needed` and up to `wanted`, if
/// that many can be closed. Files that nobody holds count as well, because they are closed already.
fn close_oldest(open: &mut Vec<Weak<PooledFile>>, needed: usize, wanted: usize) -> Dropped {
    let listed = open.len();
    let mut files: Vec<Arc<PooledFile>> =
        mem::take(open).iter().filter_map(Weak::upgrade).collect();
    let gone = listed - files.len();
    let mut handles = Vec::new();
    if gone < needed {
        let count = needed.max(wanted) - gone;
        // Each key is read once: readers change it meanwhile, and a sort may panic if a key
        // changes.
        files.sort_by_cached_key(|file| file.used.load(Relaxed));
        for file in &files {
            if handles.len() == count {
                break;
            }
            handles.extend(file.close());
        }
    }
    *open = files.iter().filter(|file| file.handle.load().is_some()).map(Arc::downgrade).collect();
    (files, handles)
}

/// An open file of the storage.
#[derive(Debug)]
struct Handle(Arc<dyn StorageFile>);

/// Facts about a file that never change.
#[derive(Clone, Copy, Debug)]
struct Hints {
    reads_together: bool,
    heeds_hints: bool,
    is_memory: bool,
}

impl Hints {
    fn of(file: &dyn StorageFile) -> Hints {
        Hints {
            reads_together: file.reads_together(),
            heeds_hints: file.heeds_hints(),
            is_memory: file.is_memory(),
        }
    }
}

/// A file that is opened when it is used.
#[derive(Debug)]
struct PooledFile {
    files: Arc<OpenFiles>,
    own: Weak<PooledFile>,
    name: String,
    category: Category,
    hints: Hints,
    handle: ArcSwapOption<Handle>,
    /// The turn of the last use.
    used: AtomicU64,
    /// How many writes began and ended, and how many of them a sync covered. A sync does not cover
    /// a write that has not ended when the sync begins.
    written: AtomicU64,
    synced: AtomicU64,
    /// Whether the name is removed, so that the file cannot be opened again.
    is_kept: AtomicBool,
    /// The size of a value file on disk when it was closed. The metrics read it, and must not open
    /// thousands of files to do so.
    closed_disk_bytes: AtomicU64,
}

impl PooledFile {
    /// Calls `with` with the open file. The file stays open meanwhile.
    fn with<T>(&self, with: impl FnOnce(&dyn StorageFile) -> Result<T>) -> Result<T> {
        let turn = self.files.list.turn.load(Relaxed);
        // The turn is stored only when it changes, because readers share the cache line.
        if self.used.load(Relaxed) != turn {
            self.used.store(turn, Relaxed);
        }
        match &*self.handle.load() {
            Some(handle) => with(&*handle.0),
            None => with(&*self.files.reopen(self)?.0),
        }
    }

    /// Does the same for a change that a sync must cover.
    fn change(&self, change: impl FnOnce(&dyn StorageFile) -> Result<()>) -> Result<()> {
        self.files.owner.check()?;
        self.written.fetch_add(1, SeqCst);
        // Pairs with the fence in `close`: either `close` sees the change, or this call does not
        // see the old handle.
        fence(SeqCst);
        let outcome = self.with(change);
        self.written.fetch_add(1, SeqCst);
        outcome
    }

    fn must_stay_open(&self) -> bool {
        self.is_kept.load(SeqCst) || self.synced.load(SeqCst) != self.written.load(SeqCst)
    }

    /// Closes the file, if that is allowed. The caller holds the lock of the list, which everyone
    /// who opens the file needs. The caller drops the handle without that lock.
    fn close(&self) -> Option<Arc<Handle>> {
        if self.must_stay_open() {
            return None;
        }
        let handle = self.handle.swap(None)?;
        fence(SeqCst);
        if self.must_stay_open() {
            // A write began in between, and uses the handle.
            self.handle.store(Some(handle));
            return None;
        }
        self.note_disk_bytes(&handle);
        Some(handle)
    }

    /// Notes the size of a file on disk. The note remains valid because nobody writes to a closed
    /// file. A punch that is still running clears the note. If another process may write to the
    /// file, nothing is noted.
    fn note_disk_bytes(&self, handle: &Handle) {
        if self.category == Category::Value && self.files.owner.is_known() {
            self.closed_disk_bytes.store(ASKED_BYTES, SeqCst);
            let bytes = handle.0.disk_bytes().unwrap_or(UNKNOWN_BYTES);
            let _ = self.closed_disk_bytes.compare_exchange(ASKED_BYTES, bytes, SeqCst, SeqCst);
        }
    }
}

impl Drop for PooledFile {
    fn drop(&mut self) {
        // In a fork, a thread that does not exist there may hold the lock for ever.
        if !self.files.process.is_current() {
            return;
        }
        let mut held = self.files.held.lock();
        if held.get(&self.name).is_some_and(|file| file.strong_count() == 0) {
            held.remove(&self.name);
        }
    }
}

impl StorageFile for PooledFile {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.with(|file| file.read_at(offset, buf))
    }

    fn read_vec(&self, offset: u64, len_bytes: usize) -> Result<Vec<u8>> {
        self.with(|file| file.read_vec(offset, len_bytes))
    }

    fn read_many(&self, reads: &mut [ReadRequest]) -> Result<()> {
        self.with(|file| file.read_many(reads))
    }

    fn reads_together(&self) -> bool {
        self.hints.reads_together
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.files.io_rate.charge(data.len());
        self.change(|file| file.write_at(offset, data))
    }

    fn sync(&self) -> Result<()> {
        let written = self.written.load(SeqCst);
        self.with(|file| file.sync())?;
        self.synced.fetch_max(written, SeqCst);
        self.files.list.keep_limit();
        Ok(())
    }

    fn write_back(&self, begin: Range<u64>, wait_for: Range<u64>) -> Result<()> {
        self.with(|file| file.write_back(begin, wait_for))
    }

    fn len(&self) -> Result<u64> {
        self.with(|file| file.len())
    }

    fn modified(&self) -> Result<Option<SystemTime>> {
        self.with(|file| file.modified())
    }

    fn disk_bytes(&self) -> Result<u64> {
        let noted = self.closed_disk_bytes.load(SeqCst);
        match noted < ASKED_BYTES {
            true => Ok(noted),
            false => self.with(|file| file.disk_bytes()),
        }
    }

    fn set_len(&self, len_bytes: u64) -> Result<()> {
        self.change(|file| file.set_len(len_bytes))
    }

    fn can_reserve(&self) -> bool {
        self.with(|file| Ok(file.can_reserve())).unwrap_or(false)
    }

    fn allocate(&self, offset: u64, len_bytes: u64) -> Result<()> {
        self.change(|file| file.allocate(offset, len_bytes))
    }

    /// No sync has to cover a punch: if a power loss undoes the hole, it costs space but no data.
    fn punch(&self, offset: u64, len_bytes: u64) -> Result<()> {
        self.files.owner.check()?;
        let outcome = self.with(|file| file.punch(offset, len_bytes));
        self.closed_disk_bytes.store(UNKNOWN_BYTES, SeqCst);
        outcome
    }

    fn read_ahead(&self, offset: u64, len_bytes: u64) {
        let _ = self.with(|file| {
            file.read_ahead(offset, len_bytes);
            Ok(())
        });
    }

    fn cached_bytes(&self, offset: u64, len_bytes: u64) -> Option<u64> {
        self.with(|file| Ok(file.cached_bytes(offset, len_bytes))).ok().flatten()
    }

    fn drop_cached(&self, offset: u64, len_bytes: u64) {
        let _ = self.with(|file| {
            file.drop_cached(offset, len_bytes);
            Ok(())
        });
    }

    fn heeds_hints(&self) -> bool {
        self.hints.heeds_hints
    }

    fn show(&self, offset: u64, len_bytes: u64, see: &mut dyn FnMut(&[u8])) -> bool {
        self.hints.is_memory
            && self.with(|file| Ok(file.show(offset, len_bytes, see))).unwrap_or(false)
    }

    fn is_memory(&self) -> bool {
        self.hints.is_memory
    }

    fn prepare(&self, offset: u64, len_bytes: u64) -> Result<()> {
        self.with(|file| file.prepare(offset, len_bytes))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::OnceLock;

    use runstone_storage::{Counters, FileInfo, LockMode, MemoryStorage, StorageLock};

    use super::*;

    /// A storage that counts opens, and in which a file is removed just before a reader opens it
    /// again.
    #[derive(Debug)]
    struct Racing {
        inner: MemoryStorage,
        files: OnceLock<Weak<OpenFiles>>,
        opened: AtomicU64,
        removes: AtomicBool,
    }

    impl Storage for Racing {
        fn create(&self, name: &str, category: Category) -> Result<Arc<dyn StorageFile>> {
            self.inner.create(name, category)
        }

        fn create_mapped(
            &self,
            name: &str,
            category: Category,
            bytes: u64,
        ) -> Result<Arc<dyn StorageFile>> {
            self.inner.create_mapped(name, category, bytes)
        }

        fn open(&self, name: &str, category: Category) -> Result<Arc<dyn StorageFile>> {
            self.opened.fetch_add(1, SeqCst);
            if self.removes.swap(false, SeqCst) {
                let files = self.files.get().and_then(Weak::upgrade).expect("set");
                files.remove(name).expect("removes");
            }
            self.inner.open(name, category)
        }

        fn rename(&self, from: &str, to: &str) -> Result<()> {
            self.inner.rename(from, to)
        }

        fn remove(&self, name: &str) -> Result<()> {
            self.inner.remove(name)
        }

        fn list(&self) -> Result<Vec<FileInfo>> {
            self.inner.list()
        }

        fn sync_dir(&self) -> Result<()> {
            self.inner.sync_dir()
        }

        fn lock(&self, name: &str, mode: LockMode) -> Result<Option<Box<dyn StorageLock>>> {
            self.inner.lock(name, mode)
        }

        fn create_sibling(&self, path: &Path) -> Result<Arc<dyn Storage>> {
            self.inner.create_sibling(path)
        }

        fn link_into(&self, name: &str, category: Category, target: &dyn Storage) -> Result<()> {
            self.inner.link_into(name, category, target)
        }

        fn counters(&self) -> &Counters {
            self.inner.counters()
        }

        fn location(&self) -> String {
            self.inner.location()
        }
    }

    /// Guards against a bug: each call of the metrics opened all closed value files.
    #[test]
    fn the_size_of_a_closed_file_is_known_without_opening_it() {
        let storage = Arc::new(Racing {
            inner: MemoryStorage::new(),
            files: OnceLock::new(),
            opened: AtomicU64::new(0),
            removes: AtomicBool::new(false),
        });
        let owner = Arc::new(Owner::default());
        let lock = storage.lock("LOCK", LockMode::Exclusive).expect("locks").expect("free");
        let _lock = owner.hold(lock);
        let (list, io_rate) = (OpenList::new(8), Arc::new(IoRate::new(None)));
        let files = OpenFiles::new(Arc::clone(&storage) as _, owner, list, io_rate);
        let file = files.create("000001.values", Category::Value).expect("creates");
        for (at, bytes) in [(0, 5), (5, 10)] {
            file.write_at(at, b"value").expect("writes");
            file.sync().expect("syncs");
            assert!(files.list.close_half(), "it is closed");
            let before = storage.opened.load(SeqCst);
            (0..3).for_each(|_| assert_eq!(file.disk_bytes().expect("known"), bytes));
            assert_eq!(storage.opened.load(SeqCst), before);
        }
        file.set_len(4096).expect("opens it");
        assert_eq!(file.disk_bytes().expect("asks"), 4096, "what was noted is forgotten");
    }

    /// Guards against a bug: a file was removed just before a reader opened it again, and the
    /// reader found it missing.
    #[test]
    fn a_file_that_is_removed_while_a_reader_opens_it_again_can_be_read() {
        let storage = Arc::new(Racing {
            inner: MemoryStorage::new(),
            files: OnceLock::new(),
            opened: AtomicU64::new(0),
            removes: AtomicBool::new(false),
        });
        let (list, io_rate) = (OpenList::new(8), Arc::new(IoRate::new(None)));
        let files = OpenFiles::new(Arc::clone(&storage) as _, Arc::default(), list, io_rate);
        storage.files.set(Arc::downgrade(&files)).expect("once");
        let file = files.create("000001.values", Category::Value).expect("creates");
        file.write_at(0, b"value").expect("writes");
        file.sync().expect("syncs");
        assert!(files.list.close_half(), "it is closed");
        storage.removes.store(true, SeqCst);
        let mut bytes = [0; 5];
        file.read_at(0, &mut bytes).expect("whoever holds a file can read it");
        assert_eq!(&bytes, b"value");
    }
}
