//! The types of handles, which C programs keep in place of objects. The module of each type
//! declares the object behind it.

use std::ptr;

use runstone_boundary::pointers::Kept;

/// An open database.
pub struct leveldb_t(());

/// A view that later writes do not change.
pub struct leveldb_snapshot_t(());

/// A position in a database, which moves.
pub struct leveldb_iterator_t(());

/// Writes that happen together or not at all.
pub struct leveldb_writebatch_t(());

/// Options of a database.
pub struct leveldb_options_t(());

/// How to read.
pub struct leveldb_readoptions_t(());

/// How to write.
pub struct leveldb_writeoptions_t(());

/// A key order. Keys are accepted only if it orders them as their bytes do.
pub struct leveldb_comparator_t(());

/// How filters are made. Filters are always those of this library. It uses only the bits per key of
/// a Bloom filter policy.
pub struct leveldb_filterpolicy_t(());

/// The size of a cache.
pub struct leveldb_cache_t(());

/// The operating system.
pub struct leveldb_env_t(());

/// A logger. The interface has no way to make one, so it is always null.
pub struct leveldb_logger_t(());

/// Stores an object. The handle is null only if there is no room.
pub(crate) fn keep<T: Kept>(object: T::Object) -> *mut T {
    T::keep(object).unwrap_or(ptr::null_mut())
}

/// Closes a handle. If it is not a handle, nothing happens.
pub(crate) fn close<T: Kept>(handle: *const T) {
    let _ = T::close(handle);
}
