//! The options of LevelDB, and their meaning in Runstone.

use std::ffi::{c_char, c_int, c_void};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};

use runstone::policy::custom::options_of;
use runstone::{
    Compression, DEFAULT_KEYSPACE, KeyspaceOptions, Options, ReadOptions, Snapshot, Store,
};
use runstone_boundary::Failure;
use runstone_boundary::alone::Alone;

use runstone_boundary::handle;
use runstone_boundary::pointers::Kept;

use crate::Result;
use crate::caches::CacheShare;
use crate::handles::{
    close, keep, leveldb_cache_t, leveldb_comparator_t, leveldb_env_t, leveldb_filterpolicy_t,
    leveldb_logger_t, leveldb_options_t, leveldb_readoptions_t, leveldb_snapshot_t,
    leveldb_writeoptions_t,
};
use crate::memory::{quietly, text};
use crate::order::{Comparator, Order, State};

handle!(inherited 5 "options" leveldb_options_t: Alone<OpenOptions>);
handle!(inherited 6 "read options" leveldb_readoptions_t: ReadChoices);
handle!(inherited 7 "write options" leveldb_writeoptions_t: AtomicBool);
handle!(inherited 8 "comparator" leveldb_comparator_t: Arc<Comparator>);
handle!(inherited 9 "filter policy" leveldb_filterpolicy_t: FilterPolicy);
handle!(inherited 10 "cache" leveldb_cache_t: usize);
handle!(inherited 11 "environment" leveldb_env_t: ());

/// No compression. For leveldb_options_set_compression().
pub const leveldb_no_compression: c_int = 0;
/// A fast compression, which is LZ4 here. For leveldb_options_set_compression().
pub const leveldb_snappy_compression: c_int = 1;

/// Memory for indexes, filters and the log, which LevelDB's sizes do not include.
const SPARE_BYTES: u64 = 64 << 20;

/// The options that were set. All others keep the values of the database, or Runstone's defaults.
#[derive(Clone, Debug, Default)]
pub struct OpenOptions {
    create_if_missing: bool,
    error_if_exists: bool,
    comparator: u64,
    cache_bytes: Option<u64>,
    write_buffer_bytes: Option<u64>,
    max_open_files: Option<usize>,
    block_bytes: Option<u32>,
    restart_interval: Option<u32>,
    table_bytes: Option<u64>,
    compression: Option<Compression>,
    filter_bits_per_key: Option<u32>,
}

impl OpenOptions {
    /// Opens the database in a directory, with the caller's key order.
    pub(crate) fn open(&self, path: &str) -> Result<(Store, Option<Order>, CacheShare)> {
        let order = match self.comparator {
            0 => None,
            handle => Some(Order::new(Arc::clone(&*leveldb_comparator_t::table().get(handle)?))),
        };
        let exists = fs::exists(Path::new(path).join("CURRENT")).unwrap_or(false);
        if exists && self.error_if_exists {
            return Err(Failure::invalid(format!("{path}: exists (error_if_exists is true)")));
        }
        if !exists && !self.create_if_missing {
            let what = format!("{path}: does not exist (create_if_missing is false)");
            return Err(Failure::invalid(what));
        }
        let write_buffer_bytes =
            self.write_buffer_bytes.unwrap_or(KeyspaceOptions::default().write_buffer_bytes);
        let cache = CacheShare::take(self.cache_bytes)?;
        let fresh = (!exists).then(|| self.change(KeyspaceOptions::default())).transpose()?;
        let store = Store::open(
            path,
            Options::default()
                .create_if_missing(self.create_if_missing)
                .memory_budget_bytes(cache.bytes + 2 * write_buffer_bytes + SPARE_BYTES)
                .max_open_files(self.max_open_files)
                .keyspace(fresh),
        )?;
        let stored = KeyspaceOptions::clone(&store.default_keyspace().options());
        let wanted = self.change(stored.clone())?;
        if wanted != stored {
            store.open_keyspace(DEFAULT_KEYSPACE, Some(wanted))?;
        }
        Ok((store, order, cache))
    }

    fn change(&self, mut options: KeyspaceOptions) -> runstone::Result<KeyspaceOptions> {
        fn set<T: Copy>(option: &mut T, given: Option<T>) {
            *option = given.unwrap_or(*option);
        }
        set(&mut options.write_buffer_bytes, self.write_buffer_bytes);
        set(&mut options.block_bytes, self.block_bytes);
        set(&mut options.restart_interval, self.restart_interval);
        set(
            &mut options.filter_bits_per_key,
            self.filter_bits_per_key.map(|bits| f64::from(bits).into()),
        );
        if let Some(codec) = self.compression {
            options.compression = vec![codec];
        }
        // A table can be cut only between blocks.
        let stored = options_of(&options).table_bytes();
        let table_bytes = self.table_bytes.unwrap_or(stored).max(options.block_bytes.into());
        match table_bytes == stored {
            true => Ok(options),
            false => options.with_toml(&format!("[shape]\ntable_bytes = {table_bytes}")),
        }
    }
}

/// How to read. Threads share these options, and read them without a lock.
#[derive(Debug, Default)]
pub struct ReadChoices {
    /// The handle of a snapshot; 0 means as of now.
    snapshot: AtomicU64,
    skip_cache: AtomicBool,
}

/// The snapshot of read options, if they have one.
pub(crate) fn moment(options: *const leveldb_readoptions_t) -> Result<Option<Snapshot>> {
    leveldb_readoptions_t::with(options, |choices| match choices.snapshot.load(Relaxed) {
        0 => Ok(None),
        handle => leveldb_snapshot_t::table().with(handle, |taken| Ok(Some(taken.clone()))),
    })
}

/// The options of a cursor.
pub(crate) fn read_options(options: *const leveldb_readoptions_t) -> Result<ReadOptions> {
    let skips =
        leveldb_readoptions_t::with(options, |choices| Ok(choices.skip_cache.load(Relaxed)))?;
    let read = ReadOptions::default().fill_cache(!skips);
    Ok(match moment(options)? {
        None => read,
        Some(snapshot) => read.at(&snapshot),
    })
}

/// Makes options with LevelDB's defaults: a database that does not exist is an error.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_options_create() -> *mut leveldb_options_t {
    keep(Alone::new(OpenOptions::default()))
}

/// Frees options. Databases that were opened with them stay open.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_options_destroy(options: *mut leveldb_options_t) {
    close(options);
}

fn set(options: *mut leveldb_options_t, change: impl FnOnce(&mut OpenOptions)) {
    quietly((), || {
        change(&mut *leveldb_options_t::get(options)?.wait()?);
        Ok(())
    });
}

/// Sets the key order: see leveldb_comparator_create().
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_options_set_comparator(
    options: *mut leveldb_options_t,
    comparator: *mut leveldb_comparator_t,
) {
    set(options, |options| options.comparator = comparator.addr() as u64);
}

/// Sets how filters are made: see leveldb_filterpolicy_create_bloom().
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_options_set_filter_policy(
    options: *mut leveldb_options_t,
    policy: *mut leveldb_filterpolicy_t,
) {
    quietly((), || {
        let bits = match policy.is_null() {
            true => None,
            false => leveldb_filterpolicy_t::get(policy)?.bits_per_key,
        };
        set(options, |options| options.filter_bits_per_key = bits);
        Ok(())
    });
}

/// Whether to make a database that does not exist.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_options_set_create_if_missing(
    options: *mut leveldb_options_t,
    value: u8,
) {
    set(options, |options| options.create_if_missing = value != 0);
}

/// Whether it is an error if the database exists already.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_options_set_error_if_exists(options: *mut leveldb_options_t, value: u8) {
    set(options, |options| options.error_if_exists = value != 0);
}

/// Changes nothing: all data is checked when it is read.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_options_set_paranoid_checks(_: *mut leveldb_options_t, _value: u8) {}

/// Changes nothing: there is one environment.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_options_set_env(_: *mut leveldb_options_t, _: *mut leveldb_env_t) {}

/// Changes nothing: no function makes a logger.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_options_set_info_log(
    _: *mut leveldb_options_t,
    _: *mut leveldb_logger_t,
) {
}

// Numbers out of range are clamped, as in LevelDB.

/// Sets how many bytes are collected in memory before they are written to a table.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_options_set_write_buffer_size(
    options: *mut leveldb_options_t,
    bytes: usize,
) {
    let bytes = (bytes as u64).clamp(64 << 10, 1 << 30);
    set(options, |options| options.write_buffer_bytes = Some(bytes));
}

/// Sets how many tables are open at most.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_options_set_max_open_files(
    options: *mut leveldb_options_t,
    files: c_int,
) {
    let files = files.clamp(74, 50_000) as usize;
    set(options, |options| options.max_open_files = Some(files));
}

/// Sets the size of the cache.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_options_set_cache(
    options: *mut leveldb_options_t,
    cache: *mut leveldb_cache_t,
) {
    quietly((), || {
        let bytes = match cache.is_null() {
            true => None,
            // A size beyond any machine's memory would make the open fail.
            false => Some((*leveldb_cache_t::get(cache)? as u64).min(1 << 40)),
        };
        set(options, |options| options.cache_bytes = bytes);
        Ok(())
    });
}

/// Sets the size of blocks before compression.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_options_set_block_size(options: *mut leveldb_options_t, bytes: usize) {
    let bytes = bytes.clamp(1 << 10, 4 << 20) as u32;
    set(options, |options| options.block_bytes = Some(bytes));
}

/// Sets how often a block stores a whole key: once in this many keys.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_options_set_block_restart_interval(
    options: *mut leveldb_options_t,
    keys: c_int,
) {
    let keys = keys.clamp(1, 1024) as u32;
    set(options, |options| options.restart_interval = Some(keys));
}

/// Sets the size of tables.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_options_set_max_file_size(options: *mut leveldb_options_t, bytes: usize) {
    let bytes = (bytes as u64).clamp(1 << 20, 1 << 30);
    set(options, |options| options.table_bytes = Some(bytes));
}

/// Sets the compression: leveldb_no_compression or leveldb_snappy_compression.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_options_set_compression(options: *mut leveldb_options_t, kind: c_int) {
    let codec = match kind {
        leveldb_no_compression => Compression::None,
        _ => Compression::Lz4,
    };
    set(options, |options| options.compression = Some(codec));
}

/// Makes a key order. It must be the order of the bytes. Writes, look-ups and iterators compare
/// neighbouring keys with it. After the first pair that disagrees, everything fails. The function
/// sees only keys that the program wrote or looked up.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_comparator_create(
    state: *mut c_void,
    destructor: Option<unsafe extern "C" fn(*mut c_void)>,
    compare: Option<
        unsafe extern "C" fn(*mut c_void, *const c_char, usize, *const c_char, usize) -> c_int,
    >,
    name: Option<unsafe extern "C" fn(*mut c_void) -> *const c_char>,
) -> *mut leveldb_comparator_t {
    let state = State { pointer: state, destructor };
    quietly(std::ptr::null_mut(), || {
        let (Some(compare), Some(name)) = (compare, name) else {
            return Err(Failure::invalid("a function of the comparator is null"));
        };
        Ok(keep(Arc::new(Comparator { state, compare, name })))
    })
}

/// Frees a key order.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_comparator_destroy(comparator: *mut leveldb_comparator_t) {
    close(comparator);
}

/// A policy for filters.
#[derive(Debug)]
pub struct FilterPolicy {
    /// `None` for a policy of the caller's own. Runstone's filters replace it.
    bits_per_key: Option<u32>,
    /// Held until the policy is freed.
    _state: State,
}

/// Makes a filter policy. Only its destructor is called: filters are always Runstone's own.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_filterpolicy_create(
    state: *mut c_void,
    destructor: Option<unsafe extern "C" fn(*mut c_void)>,
    _create_filter: Option<
        unsafe extern "C" fn(
            *mut c_void,
            *const *const c_char,
            *const usize,
            c_int,
            *mut usize,
        ) -> *mut c_char,
    >,
    _key_may_match: Option<
        unsafe extern "C" fn(*mut c_void, *const c_char, usize, *const c_char, usize) -> u8,
    >,
    _name: Option<unsafe extern "C" fn(*mut c_void) -> *const c_char>,
) -> *mut leveldb_filterpolicy_t {
    let state = State { pointer: state, destructor };
    keep(FilterPolicy { bits_per_key: None, _state: state })
}

/// Makes a filter policy with this many bits per key.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_filterpolicy_create_bloom(
    bits_per_key: c_int,
) -> *mut leveldb_filterpolicy_t {
    let bits_per_key = Some(bits_per_key.clamp(0, 40) as u32);
    let state = State { pointer: std::ptr::null_mut(), destructor: None };
    keep(FilterPolicy { bits_per_key, _state: state })
}

/// Frees a filter policy.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_filterpolicy_destroy(policy: *mut leveldb_filterpolicy_t) {
    close(policy);
}

/// Makes read options: as of now, through the cache.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_readoptions_create() -> *mut leveldb_readoptions_t {
    keep(ReadChoices::default())
}

/// Frees read options.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_readoptions_destroy(options: *mut leveldb_readoptions_t) {
    close(options);
}

/// Changes nothing: all data is checked when it is read.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_readoptions_set_verify_checksums(
    _: *mut leveldb_readoptions_t,
    _value: u8,
) {
}

/// Whether data that an iterator reads is added to the cache.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_readoptions_set_fill_cache(
    options: *mut leveldb_readoptions_t,
    value: u8,
) {
    quietly((), || {
        leveldb_readoptions_t::get(options)?.skip_cache.store(value == 0, Relaxed);
        Ok(())
    });
}

/// Reads as of a snapshot, or as of now if it is null. Reads fail after the snapshot is released.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_readoptions_set_snapshot(
    options: *mut leveldb_readoptions_t,
    snapshot: *const leveldb_snapshot_t,
) {
    quietly((), || {
        leveldb_readoptions_t::get(options)?.snapshot.store(snapshot.addr() as u64, Relaxed);
        Ok(())
    });
}

/// Makes write options: a write survives a crash of the process.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_writeoptions_create() -> *mut leveldb_writeoptions_t {
    keep(AtomicBool::new(false))
}

/// Frees write options.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_writeoptions_destroy(options: *mut leveldb_writeoptions_t) {
    close(options);
}

/// Whether a write survives a power loss.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_writeoptions_set_sync(options: *mut leveldb_writeoptions_t, value: u8) {
    quietly((), || {
        leveldb_writeoptions_t::get(options)?.store(value != 0, Relaxed);
        Ok(())
    });
}

/// Makes a cache of this many bytes. Databases do not share it: each gets one of this size, as far
/// as the limit for all of them allows (RUNSTONE_LEVELDB_CACHE, or half of the memory).
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_cache_create_lru(capacity: usize) -> *mut leveldb_cache_t {
    keep(capacity)
}

/// Frees a cache. Databases that were opened with it keep their caches.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_cache_destroy(cache: *mut leveldb_cache_t) {
    close(cache);
}

/// Returns the default environment, which is the operating system.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_create_default_env() -> *mut leveldb_env_t {
    keep(())
}

/// Frees an environment.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_env_destroy(env: *mut leveldb_env_t) {
    close(env);
}

/// The directory for tests, which is created. The caller frees the string.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_env_get_test_directory(env: *mut leveldb_env_t) -> *mut c_char {
    quietly(std::ptr::null_mut(), || {
        leveldb_env_t::get(env)?;
        // SAFETY: the call cannot fail and changes nothing.
        let user = unsafe { libc::geteuid() };
        let given = std::env::var("TEST_TMPDIR").ok();
        let path = given.unwrap_or_else(|| format!("/tmp/leveldbtest-{user}"));
        // As in LevelDB, a failure to create the directory shows only when it is used.
        let _ = fs::create_dir_all(&path);
        Ok(text(&path))
    })
}
