//! Handles: what C holds in place of objects. Their types are here; which object is behind each
//! stands in the module that is about it.

use std::ops::Deref;
use std::ptr;

use runstone_boundary::Handles;

use crate::Result;

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

/// An order of keys. Only that of bytes is accepted.
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

/// A type of handles.
pub(crate) trait Kept: Sized {
    type Object: Send + Sync + 'static;

    fn table() -> &'static Handles<Self::Object>;

    /// The object of a handle.
    #[inline]
    fn get(handle: *const Self) -> Result<impl Deref<Target = Self::Object>> {
        Self::table().get(handle.addr() as u64)
    }

    /// Takes an object. The handle is null only if there is no room.
    fn keep(object: Self::Object) -> *mut Self {
        let handle = Self::table().keep(object).map_or(0, |handle| handle.get());
        ptr::without_provenance_mut(handle as usize)
    }

    /// Closes a handle. What is none is passed over.
    fn close(handle: *const Self) {
        let _ = Self::table().close(handle.addr() as u64);
    }
}

/// Defines which objects are behind a type of handles: the number of their kind, the name by which
/// messages call them, and their type.
macro_rules! handle {
    ($kind:literal $name:literal $c:ty: $object:ty) => {
        impl crate::handles::Kept for $c {
            type Object = $object;

            fn table() -> &'static runstone_boundary::Handles<$object> {
                static TABLE: runstone_boundary::Handles<$object> =
                    runstone_boundary::Handles::new($kind, $name);
                &TABLE
            }
        }
    };
}
pub(crate) use handle;
