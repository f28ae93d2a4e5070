//! Handles as C pointers. Such a pointer does not point to memory: its address is the handle.

use std::ops::Deref;
use std::ptr;

use crate::failure::Result;
use crate::handles::Handles;

/// A C type whose pointers are handles. [`crate::handle`] implements it.
pub trait Kept: Sized {
    /// The type of the object of a handle.
    type Object: Send + Sync + 'static;

    /// The open objects.
    fn table() -> &'static Handles<Self::Object>;

    /// The object of a handle.
    #[inline]
    fn get(handle: *const Self) -> Result<impl Deref<Target = Self::Object>> {
        Self::table().get(handle.addr() as u64)
    }

    /// Passes the object of a handle to `work` and returns its result.
    #[inline]
    fn with<R>(handle: *const Self, work: impl FnOnce(&Self::Object) -> Result<R>) -> Result<R> {
        Self::table().with(handle.addr() as u64, work)
    }

    /// The object of a handle; `None` for a null one.
    #[inline]
    fn get_some(handle: *const Self) -> Result<Option<impl Deref<Target = Self::Object>>> {
        (!handle.is_null()).then(|| Self::get(handle)).transpose()
    }

    /// Stores an object, and returns its handle.
    fn keep(object: Self::Object) -> Result<*mut Self> {
        let handle = Self::table().keep(object)?;
        Ok(ptr::without_provenance_mut(handle.get() as usize))
    }

    /// Closes a handle. A null handle is not an error, as for `free`.
    fn close(handle: *const Self) -> Result<()> {
        match handle.is_null() {
            true => Ok(()),
            false => Self::table().close(handle.addr() as u64),
        }
    }
}

/// Defines the objects of a type of handles: the number of their kind, their name in messages, and
/// their type. With `inherited` before the number, forks may use the objects as well.
#[macro_export]
macro_rules! handle {
    ($kind:literal $name:literal $c:ty: $object:ty) => {
        $crate::handle!(new $kind $name $c: $object);
    };
    ($made:ident $kind:literal $name:literal $c:ty: $object:ty) => {
        impl $crate::pointers::Kept for $c {
            type Object = $object;

            fn table() -> &'static $crate::Handles<$object> {
                static TABLE: $crate::Handles<$object> = $crate::Handles::$made($kind, $name);
                &TABLE
            }
        }
    };
}
