//! Handles: what C holds in place of objects. Their types are here; which object is behind each
//! stands in the module that is about it.

use std::ptr;

use runstone_boundary::pointers::Kept;

/// An open database.
pub struct leveldb_t(());

/// A view that later writes do not change.
pub struct leveldb_snapshot_t(());

/// A place in a database, which moves.
pub struct leveldb_iterator_t(());

/// Writes that happen together or not at all.
pub struct leveldb_writebatch_t(());

/// Options of a database.
pub struct leveldb_options_t(());

/// How to read.
pub struct leveldb_readoptions_t(());

/// How to write.
pub struct leveldb_writeoptions_t(());

/// An order of keys. Only keys that it orders as their bytes are accepted.
pub struct leveldb_comparator_t(());

/// How filters are made. Filters are always this library's own; of a Bloom filter it takes the
/// bits per key.
pub struct leveldb_filterpolicy_t(());

/// The size of a cache.
pub struct leveldb_cache_t(());

/// The operating system.
pub struct leveldb_env_t(());

/// A logger. The interface has no way to make one, so it is always null.
pub struct leveldb_logger_t(());

/// Takes an object. The handle is null only if there is no room.
pub(crate) fn keep<T: Kept>(object: T::Object) -> *mut T {
    T::keep(object).unwrap_or(ptr::null_mut())
}

/// Closes a handle. What is none is passed over.
pub(crate) fn close<T: Kept>(handle: *const T) {
    let _ = T::close(handle);
}
