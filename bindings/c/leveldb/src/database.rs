//! A database: opening, reading, writing, and the functions that LevelDB calls management.

use std::ffi::{c_char, c_int};
use std::ops::Bound;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, MutexGuard};
use std::{iter, ptr};

use runstone::{Durability, Keyspace, ReadOptions, Snapshot, Store, Value, WriteOptions};
use runstone_boundary::guard;

use runstone_boundary::handle;
use runstone_boundary::pointers::Kept;
use runstone_boundary::properties::property;

use crate::Result;
use crate::caches::CacheShare;
use crate::destroy::{destroy, verify};
use crate::handles::{
    close, keep, leveldb_options_t, leveldb_readoptions_t, leveldb_snapshot_t, leveldb_t,
    leveldb_writebatch_t, leveldb_writeoptions_t,
};
use crate::memory::{bytes, copy, name as text, quietly, report, text as own_text};
use crate::options::moment;
use crate::order::Order;

handle!(1 "database" leveldb_t: Database);
handle!(2 "snapshot" leveldb_snapshot_t: Snapshot);

/// An open database.
#[derive(Debug)]
pub struct Database {
    pub(crate) store: Store,
    /// The caller's key order.
    pub(crate) order: Option<Arc<Order>>,
    /// Held while the database is open.
    _cache: CacheShare,
}

impl Database {
    pub(crate) fn keyspace(&self) -> &Keyspace {
        self.store.default_keyspace()
    }

    /// Checks keys that are about to be written against the caller's order. Other writers wait
    /// until the result is dropped.
    fn check_writes<'k>(
        &self,
        keys: impl Iterator<Item = &'k [u8]>,
    ) -> Result<Option<MutexGuard<'_, ()>>> {
        self.order.as_ref().map(|order| order.check_writes(self.keyspace(), keys)).transpose()
    }

    fn get(&self, key: &[u8], snapshot: Option<Snapshot>) -> Result<Option<Value>> {
        let (keyspace, snapshot) = (self.keyspace(), snapshot.as_ref());
        let found = match snapshot {
            None => keyspace.get(key)?,
            Some(snapshot) => keyspace.get_at(key, snapshot)?,
        };
        if let Some(order) = &self.order {
            order.check()?;
            if found.is_none() {
                let options = ReadOptions::default().keys_only();
                let options = snapshot.map_or(options.clone(), |snapshot| options.at(snapshot));
                order.check_around(&mut keyspace.cursor(options)?, key)?;
            }
        }
        Ok(found)
    }
}

/// Opens a database. Returns null and an error if that fails.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_open(
    options: *const leveldb_options_t,
    name: *const c_char,
    errptr: *mut *mut c_char,
) -> *mut leveldb_t {
    // SAFETY: the caller promises valid strings and a valid place.
    let opened = unsafe {
        report(errptr, || {
            let path = text(name)?;
            let options = leveldb_options_t::get(options)?.wait()?.clone();
            let (store, order, cache) = options.open(path)?;
            Ok(Database { store, order: order.map(Arc::new), _cache: cache })
        })
    };
    opened.map_or(ptr::null_mut(), keep)
}

/// Closes a database. Open iterators and snapshots of it fail from then on.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_close(db: *mut leveldb_t) {
    quietly((), || {
        let store = Store::clone(&leveldb_t::get(db)?.store);
        close(db);
        Ok(store.close()?)
    });
}

/// Chooses the durability: without `sync`, a write to LevelDB survives a crash of the process.
fn write_options(options: *const leveldb_writeoptions_t) -> Result<WriteOptions> {
    let is_synced = leveldb_writeoptions_t::with(options, |sync| Ok(sync.load(Relaxed)))?;
    let durability = if is_synced { Durability::Sync } else { Durability::Buffered };
    Ok(WriteOptions::default().durability(durability))
}

/// Stores a value.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_put(
    db: *mut leveldb_t,
    options: *const leveldb_writeoptions_t,
    key: *const c_char,
    keylen: usize,
    val: *const c_char,
    vallen: usize,
    errptr: *mut *mut c_char,
) {
    // SAFETY: the caller promises valid bytes and places.
    unsafe {
        report(errptr, || {
            let (key, value) = (bytes(key, keylen)?, bytes(val, vallen)?);
            let db = leveldb_t::get(db)?;
            let _writing = db.check_writes(iter::once(key))?;
            Ok(db.keyspace().put_with(key, value, write_options(options)?)?)
        });
    }
}

/// Removes a key. Removing an absent key is not an error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_delete(
    db: *mut leveldb_t,
    options: *const leveldb_writeoptions_t,
    key: *const c_char,
    keylen: usize,
    errptr: *mut *mut c_char,
) {
    // SAFETY: the caller promises valid bytes and places.
    unsafe {
        report(errptr, || {
            let key = bytes(key, keylen)?;
            let db = leveldb_t::get(db)?;
            let _writing = db.check_writes(iter::once(key))?;
            Ok(db.keyspace().delete_with(key, write_options(options)?)?)
        });
    }
}

/// Applies all writes of a batch, or none. The batch keeps them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_write(
    db: *mut leveldb_t,
    options: *const leveldb_writeoptions_t,
    batch: *mut leveldb_writebatch_t,
    errptr: *mut *mut c_char,
) {
    // SAFETY: the caller promises a valid place.
    unsafe {
        report(errptr, || {
            let db = leveldb_t::get(db)?;
            let batch = leveldb_writebatch_t::get(batch)?;
            let writes = batch.wait()?;
            let _writing = db.check_writes(writes.keys())?;
            let batch = writes.to_batch(db.keyspace())?;
            drop(writes);
            Ok(db.store.write(&batch, write_options(options)?)?)
        });
    }
}

/// Looks up a key. Returns a copy that the caller frees, or null if the key is absent.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_get(
    db: *mut leveldb_t,
    options: *const leveldb_readoptions_t,
    key: *const c_char,
    keylen: usize,
    vallen: *mut usize,
    errptr: *mut *mut c_char,
) -> *mut c_char {
    // SAFETY: the caller promises valid bytes and places.
    let found = unsafe {
        report(errptr, || {
            let key = bytes(key, keylen)?;
            leveldb_t::get(db)?.get(key, moment(options)?)
        })
    };
    let value = found.flatten();
    if !vallen.is_null() {
        // SAFETY: the caller promises a valid place.
        unsafe { vallen.write(value.as_ref().map_or(0, |value| value.len())) };
    }
    value.map_or(ptr::null_mut(), |value| copy(&value))
}

/// Takes a snapshot.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_create_snapshot(db: *mut leveldb_t) -> *const leveldb_snapshot_t {
    let taken: Result<Snapshot> = guard(|| Ok(leveldb_t::get(db)?.store.snapshot()));
    taken.map_or(ptr::null(), |snapshot| keep::<leveldb_snapshot_t>(snapshot).cast_const())
}

/// Releases a snapshot.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_release_snapshot(
    _db: *mut leveldb_t,
    snapshot: *const leveldb_snapshot_t,
) {
    close(snapshot);
}

/// A property, as a string that the caller frees; null if the property is not known.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_property_value(
    db: *mut leveldb_t,
    propname: *const c_char,
) -> *mut c_char {
    quietly(ptr::null_mut(), || {
        // SAFETY: the caller promises valid strings.
        let asked = unsafe { text(propname) }?;
        let found = property(&leveldb_t::get(db)?.store, asked);
        Ok(found.map_or(ptr::null_mut(), |value| own_text(&value)))
    })
}

/// The approximate number of bytes of each range, excluding its limit. 0 if the size is not known.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_approximate_sizes(
    db: *mut leveldb_t,
    num_ranges: c_int,
    range_start_key: *const *const c_char,
    range_start_key_len: *const usize,
    range_limit_key: *const *const c_char,
    range_limit_key_len: *const usize,
    sizes: *mut u64,
) {
    for at in 0..usize::try_from(num_ranges).unwrap_or(0) {
        let size = quietly(0, || {
            // SAFETY: the caller promises arrays of that many items, and valid bytes where they
            // point.
            let (start, limit) = unsafe {
                (
                    bytes(*range_start_key.add(at), *range_start_key_len.add(at))?,
                    bytes(*range_limit_key.add(at), *range_limit_key_len.add(at))?,
                )
            };
            Ok(leveldb_t::get(db)?.keyspace().estimate(start..limit)?.bytes)
        });
        // SAFETY: as above.
        unsafe { sizes.add(at).write(size) };
    }
}

/// Compacts a range. A null key leaves its end of the range open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_compact_range(
    db: *mut leveldb_t,
    start_key: *const c_char,
    start_key_len: usize,
    limit_key: *const c_char,
    limit_key_len: usize,
) {
    quietly((), || {
        // SAFETY: the caller promises valid bytes. The size of a null key is ignored.
        let (start, limit) = unsafe {
            let some =
                |key: *const c_char, size| (!key.is_null()).then(|| bytes(key, size)).transpose();
            (some(start_key, start_key_len)?, some(limit_key, limit_key_len)?)
        };
        let db = leveldb_t::get(db)?;
        let start = start.map_or(Bound::Unbounded, Bound::Included);
        let limit = limit.map_or(Bound::Unbounded, Bound::Excluded);
        Ok(db.keyspace().compact_range((start, limit))?)
    });
}

/// Removes a database and its files. Anything that is not a database of this library is refused.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_destroy_db(
    _options: *const leveldb_options_t,
    name: *const c_char,
    errptr: *mut *mut c_char,
) {
    // SAFETY: the caller promises valid strings and a valid place.
    unsafe {
        report(errptr, || destroy(text(name)?));
    }
}

/// Verifies a database. It repairs nothing: damage is an error, whose message names the place.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_repair_db(
    _options: *const leveldb_options_t,
    name: *const c_char,
    errptr: *mut *mut c_char,
) {
    // SAFETY: the caller promises valid strings and a valid place.
    unsafe {
        report(errptr, || verify(text(name)?));
    }
}
