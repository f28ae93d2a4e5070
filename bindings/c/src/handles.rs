//! Handles: what C holds in place of objects. Their types are here; which object is behind each
//! stands in the module that is about it.

use std::ops::Deref;
use std::ptr;

use parking_lot::{Mutex, MutexGuard};
use runstone_boundary::{Code, Failure, Handles};

use crate::Result;
use crate::bytes::Place;

/// An open store. Any number of threads may use it.
#[allow(non_camel_case_types)]
pub struct runstone_store(());

/// An ordered map from keys to values in a store. Any number of threads may use it. Keys have up to
/// 65,535 bytes and are ordered by them; values have up to 4 GiB.
#[allow(non_camel_case_types)]
pub struct runstone_keyspace(());

/// Writes for runstone_write(). One thread at a time may use it.
#[allow(non_camel_case_types)]
pub struct runstone_batch(());

/// A view of all keyspaces that later writes do not change. Any number of threads may use it. While
/// it is open, the store keeps what it shows.
#[allow(non_camel_case_types)]
pub struct runstone_snapshot(());

/// A place in a keyspace, which moves. One thread at a time may use it. It shows the moment when it
/// was made, or a snapshot's.
#[allow(non_camel_case_types)]
pub struct runstone_cursor(());

/// Reads and writes that happen together or not at all. One thread at a time may use it.
#[allow(non_camel_case_types)]
pub struct runstone_transaction(());

/// Writes a file for runstone_ingest(). One thread at a time may use it.
#[allow(non_camel_case_types)]
pub struct runstone_sorted_writer(());

/// Options for runstone_open(), which takes a copy. One thread at a time may use them.
#[allow(non_camel_case_types)]
pub struct runstone_options(());

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

/// A type of handles.
pub(crate) trait Kept: Sized {
    type Object: Send + Sync + 'static;

    fn table() -> &'static Handles<Self::Object>;

    /// The object of a handle.
    #[inline]
    fn get(handle: *const Self) -> Result<impl Deref<Target = Self::Object>> {
        Self::table().get(handle.addr() as u64)
    }

    /// The object of a handle; `None` for a null one.
    #[inline]
    fn get_some(handle: *const Self) -> Result<Option<impl Deref<Target = Self::Object>>> {
        (!handle.is_null()).then(|| Self::get(handle)).transpose()
    }

    /// Takes an object, and stores its handle.
    fn keep(object: Self::Object, place: Place<*mut Self>) -> Result<()> {
        let handle = Self::table().keep(object)?;
        place.set(ptr::without_provenance_mut(handle.get() as usize));
        Ok(())
    }

    /// Closes a handle. A null one is no error, as for `free`.
    fn close(handle: *const Self) -> Result<()> {
        match handle.is_null() {
            true => Ok(()),
            false => Self::table().close(handle.addr() as u64),
        }
    }
}

/// An object that one thread at a time may use.
#[derive(Debug)]
pub(crate) struct Alone<T>(Mutex<T>);

impl<T> Alone<T> {
    pub(crate) fn new(object: T) -> Alone<T> {
        Alone(Mutex::new(object))
    }

    /// # Errors
    /// If another thread is using it.
    #[inline]
    pub(crate) fn lock(&self) -> Result<MutexGuard<'_, T>> {
        self.0.try_lock().ok_or_else(|| {
            let what = "another thread is using this object, which one thread at a time may use";
            Failure::new(Code::Busy, what)
        })
    }
}
