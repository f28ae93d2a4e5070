//! LevelDB through its C API, as Debian builds it: Snappy is its only compression. It has one
//! background thread, which has no settings. It has no range deletes or merges.
//!
//! Obligations of the calls across the boundary:
//!
//! * O1 Handles are alive: [`LevelDb`] frees its own when it is dropped, and an [`Iterator`]
//!   borrows it.
//! * O2 A pointer and a length come from one slice, which outlives the call.
//! * O3 What LevelDB returns by `malloc` is freed once, by [`Owned`].
//! * O4 LevelDB locks for itself: threads may share the database and its options.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr::{null, null_mut};
use std::time::Duration;

use runstone::{Durability, Value};
use runstone_kv::Result;
use runstone_kv::{Direction, KvMetrics, KvStore, KvWrite, Visit};
use runstone_storage::process;

use crate::disk::allocated_bytes;
use crate::plan::Setup;

const NAME: &str = "LevelDB";
/// The store counts as idle when the process used almost no processor time at this many checks in a
/// row.
const IDLE_LOOKS: u32 = 10;
const LOOK_EVERY: Duration = Duration::from_millis(20);
const IDLE_CPU_SECONDS: f64 = 0.001;
/// A key greater than all that are put: a compaction of this range only empties the memtable.
const BEHIND_ALL: [u8; 64] = [0xff; 64];

/// An object of LevelDB. The functions that take it say which kind it is.
type Handle = *mut c_void;

#[link(name = "leveldb")]
unsafe extern "C" {
    fn leveldb_options_create() -> Handle;
    fn leveldb_options_destroy(options: Handle);
    fn leveldb_options_set_create_if_missing(options: Handle, yes: u8);
    fn leveldb_options_set_write_buffer_size(options: Handle, bytes: usize);
    fn leveldb_options_set_cache(options: Handle, cache: Handle);
    fn leveldb_options_set_filter_policy(options: Handle, policy: Handle);
    fn leveldb_options_set_compression(options: Handle, kind: c_int);
    fn leveldb_cache_create_lru(bytes: usize) -> Handle;
    fn leveldb_cache_destroy(cache: Handle);
    fn leveldb_filterpolicy_create_bloom(bits: c_int) -> Handle;
    fn leveldb_filterpolicy_destroy(policy: Handle);
    fn leveldb_readoptions_create() -> Handle;
    fn leveldb_readoptions_destroy(options: Handle);
    fn leveldb_writeoptions_create() -> Handle;
    fn leveldb_writeoptions_set_sync(options: Handle, yes: u8);
    fn leveldb_writeoptions_destroy(options: Handle);
    fn leveldb_open(options: Handle, path: *const c_char, error: *mut *mut c_char) -> Handle;
    fn leveldb_close(db: Handle);
    fn leveldb_write(db: Handle, options: Handle, batch: Handle, error: *mut *mut c_char);
    fn leveldb_get(
        db: Handle,
        options: Handle,
        key: *const u8,
        key_bytes: usize,
        value_bytes: *mut usize,
        error: *mut *mut c_char,
    ) -> *mut u8;
    fn leveldb_property_value(db: Handle, name: *const c_char) -> *mut c_char;
    fn leveldb_compact_range(
        db: Handle,
        from: *const u8,
        from_bytes: usize,
        to: *const u8,
        to_bytes: usize,
    );
    fn leveldb_writebatch_create() -> Handle;
    fn leveldb_writebatch_destroy(batch: Handle);
    fn leveldb_writebatch_put(
        batch: Handle,
        key: *const u8,
        key_bytes: usize,
        value: *const u8,
        value_bytes: usize,
    );
    fn leveldb_writebatch_delete(batch: Handle, key: *const u8, key_bytes: usize);
    fn leveldb_create_iterator(db: Handle, options: Handle) -> Handle;
    fn leveldb_iter_destroy(iterator: Handle);
    fn leveldb_iter_valid(iterator: Handle) -> u8;
    fn leveldb_iter_seek_to_first(iterator: Handle);
    fn leveldb_iter_seek_to_last(iterator: Handle);
    fn leveldb_iter_seek(iterator: Handle, key: *const u8, key_bytes: usize);
    fn leveldb_iter_next(iterator: Handle);
    fn leveldb_iter_prev(iterator: Handle);
    fn leveldb_iter_key(iterator: Handle, bytes: *mut usize) -> *const u8;
    fn leveldb_iter_value(iterator: Handle, bytes: *mut usize) -> *const u8;
    fn leveldb_iter_get_error(iterator: Handle, error: *mut *mut c_char);
    fn leveldb_free(memory: *mut c_void);
}

pub fn open(path: &Path, setup: &Setup) -> Result<Box<dyn KvStore>> {
    // SAFETY: O1: the store frees cache and filter.
    unsafe {
        let cache = leveldb_cache_create_lru(setup.cache_bytes as usize);
        let filter = leveldb_filterpolicy_create_bloom(10);
        open_with(path, (cache, filter), |options| {
            leveldb_options_set_write_buffer_size(options, setup.memtable_bytes as usize);
        })
    }
}

/// Opens a store with the library's settings, but without compression, because pointers do not
/// compress.
pub fn open_pointers(path: &Path, _: &Setup) -> Result<Box<dyn KvStore>> {
    const NO_COMPRESSION: c_int = 0;
    open_with(path, (null_mut(), null_mut()), |options| {
        // SAFETY: O1.
        unsafe { leveldb_options_set_compression(options, NO_COMPRESSION) }
    })
}

/// Null means the library's own cache, or no filter.
fn open_with(
    path: &Path,
    (cache, filter): (Handle, Handle),
    set: impl FnOnce(Handle),
) -> Result<Box<dyn KvStore>> {
    let name = CString::new(path.as_os_str().as_bytes()).map_err(|e| super::foreign(NAME, e))?;
    // SAFETY: O1, O2: the options take handles that live in the store, and a string that outlives
    // the call. LevelDB copies the options themselves.
    unsafe {
        let options = leveldb_options_create();
        leveldb_options_set_create_if_missing(options, 1);
        if !cache.is_null() {
            leveldb_options_set_cache(options, cache);
        }
        if !filter.is_null() {
            leveldb_options_set_filter_policy(options, filter);
        }
        set(options);
        let opened = checked(|error| leveldb_open(options, name.as_ptr(), error));
        leveldb_options_destroy(options);
        let sync = leveldb_writeoptions_create();
        leveldb_writeoptions_set_sync(sync, 1);
        Ok(Box::new(LevelDb {
            db: opened?,
            cache,
            filter,
            read: leveldb_readoptions_create(),
            buffered: leveldb_writeoptions_create(),
            sync,
            path: path.to_path_buf(),
        }))
    }
}

struct LevelDb {
    db: Handle,
    cache: Handle,
    filter: Handle,
    read: Handle,
    buffered: Handle,
    sync: Handle,
    path: PathBuf,
}

// SAFETY: O4.
unsafe impl Send for LevelDb {}
// SAFETY: O4.
unsafe impl Sync for LevelDb {}

impl Drop for LevelDb {
    fn drop(&mut self) {
        // SAFETY: O1: each was made by `open`, and no iterator is left.
        unsafe {
            leveldb_close(self.db);
            leveldb_readoptions_destroy(self.read);
            leveldb_writeoptions_destroy(self.buffered);
            leveldb_writeoptions_destroy(self.sync);
            if !self.cache.is_null() {
                leveldb_cache_destroy(self.cache);
            }
            if !self.filter.is_null() {
                leveldb_filterpolicy_destroy(self.filter);
            }
        }
    }
}

impl LevelDb {
    fn property(&self, name: &CStr) -> String {
        // SAFETY: O1, O2; O3 by `Owned`.
        let text = unsafe { Owned(leveldb_property_value(self.db, name.as_ptr())) };
        text.text()
    }

    /// Table bytes that flushes and compactions wrote, in whole MiB: the last column of a table
    /// with a line for each level.
    fn table_bytes_written(&self) -> u64 {
        let written = |line: &str| {
            let columns: Vec<f64> =
                line.split_whitespace().map_while(|word| word.parse().ok()).collect();
            if columns.len() == 6 { columns[5] } else { 0.0 }
        };
        let mebibytes: f64 = self.property(c"leveldb.stats").lines().map(written).sum();
        (mebibytes * f64::from(1 << 20)) as u64
    }

    fn compact_between(&self, from: &[u8], to: &[u8]) {
        let at = |bytes: &[u8]| if bytes.is_empty() { null() } else { bytes.as_ptr() };
        // SAFETY: O1, O2; null means that there is no bound.
        unsafe { leveldb_compact_range(self.db, at(from), from.len(), at(to), to.len()) }
    }

    fn iterator(&self) -> Iterator<'_> {
        // SAFETY: O1.
        Iterator { handle: unsafe { leveldb_create_iterator(self.db, self.read) }, _store: self }
    }
}

impl KvStore for LevelDb {
    fn name(&self) -> String {
        NAME.into()
    }

    fn write(&self, writes: &[KvWrite<'_>], durability: Durability) -> Result<()> {
        let options = match durability {
            Durability::Buffered => self.buffered,
            _ => self.sync,
        };
        // SAFETY: O1, O2: the batch copies keys and values, and is freed here.
        unsafe {
            let batch = leveldb_writebatch_create();
            for write in writes {
                match *write {
                    KvWrite::Put { key, value } => leveldb_writebatch_put(
                        batch,
                        key.as_ptr(),
                        key.len(),
                        value.as_ptr(),
                        value.len(),
                    ),
                    KvWrite::Delete { key } => {
                        leveldb_writebatch_delete(batch, key.as_ptr(), key.len());
                    }
                }
            }
            let written = checked(|error| leveldb_write(self.db, options, batch, error));
            leveldb_writebatch_destroy(batch);
            written
        }
    }

    fn get(&self, key: &[u8]) -> Result<Option<Value>> {
        let mut bytes = 0;
        // SAFETY: O1, O2; O3 by `Owned`; the value has as many bytes as LevelDB says.
        unsafe {
            let value = checked(|error| {
                leveldb_get(self.db, self.read, key.as_ptr(), key.len(), &mut bytes, error)
            })?;
            let owned = Owned(value.cast());
            let slice = || std::slice::from_raw_parts(value, bytes);
            Ok((!owned.0.is_null()).then(|| Value::owned(slice())))
        }
    }

    fn scan(&self, from: Option<&[u8]>, direction: Direction, visit: &mut Visit<'_>) -> Result<()> {
        let iterator = self.iterator();
        iterator.start(from, direction);
        while let Some((key, value)) = iterator.entry() {
            if !visit(key, value) {
                break;
            }
            iterator.step(direction);
        }
        iterator.status()
    }

    /// An empty batch that syncs makes the log durable.
    fn flush(&self) -> Result<()> {
        self.write(&[], Durability::Sync)?;
        self.compact_between(&BEHIND_ALL, &BEHIND_ALL);
        Ok(())
    }

    /// LevelDB does not say whether it is compacting.
    fn wait_idle(&self) -> Result<()> {
        let (mut idle_looks, mut before) = (0, process::cpu_seconds());
        while idle_looks < IDLE_LOOKS {
            std::thread::sleep(LOOK_EVERY);
            let now = process::cpu_seconds();
            let is_idle = now - before < IDLE_CPU_SECONDS;
            idle_looks = if is_idle { idle_looks + 1 } else { 0 };
            before = now;
        }
        Ok(())
    }

    fn compact(&self) -> Result<()> {
        self.compact_between(&[], &[]);
        Ok(())
    }

    fn metrics(&self) -> Result<KvMetrics> {
        let disk_bytes = allocated_bytes(&self.path).map_err(|e| super::foreign(NAME, e))?;
        let memory_bytes = self.property(c"leveldb.approximate-memory-usage").parse().unwrap_or(0);
        let compaction_bytes_written = self.table_bytes_written();
        Ok(KvMetrics { disk_bytes, memory_bytes, compaction_bytes_written, ..KvMetrics::default() })
    }
}

struct Iterator<'s> {
    handle: Handle,
    _store: &'s LevelDb,
}

impl Drop for Iterator<'_> {
    fn drop(&mut self) {
        // SAFETY: O1.
        unsafe { leveldb_iter_destroy(self.handle) }
    }
}

impl Iterator<'_> {
    /// LevelDB cannot seek to the last key that is less than or equal to another. So this seeks to
    /// the first key that is greater or equal, and steps back once unless it is equal.
    fn start(&self, from: Option<&[u8]>, direction: Direction) {
        // SAFETY: O1, O2.
        unsafe {
            match (from, direction) {
                (None, Direction::Forward) => leveldb_iter_seek_to_first(self.handle),
                (None, Direction::Reverse) => leveldb_iter_seek_to_last(self.handle),
                (Some(key), _) => leveldb_iter_seek(self.handle, key.as_ptr(), key.len()),
            }
        }
        let Some(key) = from.filter(|_| direction == Direction::Reverse) else { return };
        match self.entry().map(|(found, _)| found == key) {
            Some(true) => {}
            Some(false) => self.step(direction),
            // SAFETY: O1.
            None => unsafe { leveldb_iter_seek_to_last(self.handle) },
        }
    }

    fn step(&self, direction: Direction) {
        // SAFETY: O1; the caller has seen an entry, as LevelDB demands.
        unsafe {
            match direction {
                Direction::Forward => leveldb_iter_next(self.handle),
                Direction::Reverse => leveldb_iter_prev(self.handle),
            }
        }
    }

    /// The slices are valid until the next step.
    fn entry(&self) -> Option<(&[u8], &[u8])> {
        let (mut key_bytes, mut value_bytes) = (0, 0);
        // SAFETY: O1; key and value are read only where there is an entry, and have as many bytes
        // as LevelDB says.
        unsafe {
            if leveldb_iter_valid(self.handle) == 0 {
                return None;
            }
            let key = leveldb_iter_key(self.handle, &mut key_bytes);
            let value = leveldb_iter_value(self.handle, &mut value_bytes);
            let slice = |at, bytes| std::slice::from_raw_parts(at, bytes);
            Some((slice(key, key_bytes), slice(value, value_bytes)))
        }
    }

    fn status(&self) -> Result<()> {
        // SAFETY: O1.
        checked(|error| unsafe { leveldb_iter_get_error(self.handle, error) })
    }
}

/// A string that LevelDB allocated, or null.
struct Owned(*mut c_char);

impl Owned {
    fn text(&self) -> String {
        if self.0.is_null() {
            return String::new();
        }
        // SAFETY: LevelDB's strings end with a zero byte.
        unsafe { CStr::from_ptr(self.0) }.to_string_lossy().into_owned()
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        // SAFETY: O3; freeing null does nothing.
        unsafe { leveldb_free(self.0.cast()) }
    }
}

/// Runs a call that stores a message at its last parameter when it fails.
fn checked<T>(call: impl FnOnce(*mut *mut c_char) -> T) -> Result<T> {
    let mut message = null_mut();
    let returned = call(&mut message);
    let message = Owned(message);
    match message.0.is_null() {
        true => Ok(returned),
        false => Err(super::foreign(NAME, message.text())),
    }
}
