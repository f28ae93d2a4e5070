//! Bytes and strings that cross the boundary, in both directions.

use std::ffi::{CStr, c_char, c_void};
use std::ops::Bound;
use std::{ptr, slice, str};

use runstone::{MAX_VALUE_BYTES, Value};
use runstone_boundary::Failure;
use runstone_boundary::pointers::Kept;

use crate::Result;

/// Bytes that the library returns. Release them with runstone_bytes_free(). If a function
/// fails, the bytes are null, except for the report of a check that found damage.
#[allow(non_camel_case_types)]
#[derive(Debug)]
#[repr(C)]
pub struct runstone_bytes {
    /// The first byte; null if there are no bytes, as for an absent key. The pointer to empty bytes
    /// is not null.
    pub data: *const c_void,
    /// The number of bytes.
    pub size: usize,
    /// Belongs to the library. Do not change it.
    pub owner: *mut c_void,
}

/// Values of up to this size own their bytes, and are returned as a box of the bytes, without a
/// copy. Larger values borrow from a block, and are returned in a box that contains the value.
const OWNED_BYTES: usize = 4 << 10;

impl runstone_bytes {
    /// No bytes.
    pub(crate) const NONE: runstone_bytes =
        runstone_bytes { data: ptr::null(), size: 0, owner: ptr::null_mut() };

    /// Converts a value, without a copy of its bytes.
    #[inline]
    pub(crate) fn of(value: Value) -> runstone_bytes {
        let size = value.len();
        if size > OWNED_BYTES {
            return runstone_bytes::borrowing(value, size);
        }
        let bytes = Box::into_raw(Vec::from(value).into_boxed_slice());
        runstone_bytes { data: bytes.cast(), size, owner: bytes.cast() }
    }

    /// The first `size` bytes of a value, which is not copied.
    fn borrowing(value: Value, size: usize) -> runstone_bytes {
        let value = Box::new(value);
        runstone_bytes { data: value.as_ptr().cast(), size, owner: Box::into_raw(value).cast() }
    }

    /// Converts a string. A zero byte follows it, which the size does not include.
    pub(crate) fn of_text(text: String) -> runstone_bytes {
        let size = text.len();
        let mut bytes = text.into_bytes();
        bytes.push(0);
        runstone_bytes::borrowing(Value::owned(bytes), size)
    }
}

/// Releases bytes, and sets them to null. Neither null bytes nor a null pointer are an error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn runstone_bytes_free(bytes: *mut runstone_bytes) {
    // SAFETY: the caller passes null or a place of its own.
    let Some(bytes) = (unsafe { bytes.as_mut() }) else { return };
    let runstone_bytes { data, size, owner } = std::mem::replace(bytes, runstone_bytes::NONE);
    if owner.is_null() {
        return;
    }
    if owner.cast_const() == data {
        let bytes = ptr::slice_from_raw_parts_mut(owner.cast::<u8>(), size);
        // SAFETY: `of` made the pointer from such a box, and it was just removed from the only
        // place that had it.
        drop(unsafe { Box::from_raw(bytes) });
    } else {
        // SAFETY: as above.
        drop(unsafe { Box::from_raw(owner.cast::<Value>()) });
    }
}

/// The bytes at an address that the caller gave; `None` for a null pointer of size 0.
///
/// # Safety
/// `size` bytes at `data` are readable for as long as the caller uses the result.
#[inline]
pub(crate) unsafe fn optional<'a>(
    name: &str,
    data: *const c_void,
    size: usize,
) -> Result<Option<&'a [u8]>> {
    match (data.is_null(), size as u64) {
        (true, 0) => Ok(None),
        // SAFETY: the caller's promise, and the size is within the address space.
        (false, ..=MAX_VALUE_BYTES) => {
            Ok(Some(unsafe { slice::from_raw_parts(data.cast(), size) }))
        }
        (is_null, _) => Err(no_bytes(name, is_null, size)),
    }
}

/// The error for a pointer and a size that are not valid bytes. It is a separate function to keep
/// the frequent check small.
#[cold]
fn no_bytes(name: &str, is_null: bool, size: usize) -> Failure {
    Failure::invalid(match is_null {
        true => format!("{name} is null, but its size is {size}"),
        // The usual cause is a negative number, or a size and a pointer in the wrong order.
        false => format!("{name} has {size} bytes; at most {MAX_VALUE_BYTES} fit"),
    })
}

/// The bytes at an address that the caller gave. A null pointer of size 0 is empty.
///
/// # Safety
/// As for [`optional`].
#[inline]
pub(crate) unsafe fn required<'a>(
    name: &str,
    data: *const c_void,
    size: usize,
) -> Result<&'a [u8]> {
    // SAFETY: the caller's promise.
    Ok(unsafe { optional(name, data, size) }?.unwrap_or_default())
}

/// The caller's string, which ends with a zero byte; `None` if it is null.
///
/// # Safety
/// `text` is null or such a string, for as long as the caller uses the result.
pub(crate) unsafe fn optional_text<'a>(name: &str, text: *const c_char) -> Result<Option<&'a str>> {
    if text.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller's promise.
    let text = unsafe { CStr::from_ptr(text) };
    let not_utf8 = |_| Failure::invalid(format!("{name} is not UTF-8"));
    str::from_utf8(text.to_bytes()).map(Some).map_err(not_utf8)
}

/// The caller's string, which ends with a zero byte.
///
/// # Safety
/// As for [`optional_text`].
pub(crate) unsafe fn text<'a>(name: &str, text: *const c_char) -> Result<&'a str> {
    // SAFETY: the caller's promise.
    unsafe { optional_text(name, text) }?.ok_or_else(|| null(name))
}

#[cold]
fn null(name: &str) -> Failure {
    Failure::invalid(format!("{name} is null"))
}

/// The caller's place for a result. Its content may be uninitialised, since it is only written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place<T>(*mut T);

impl<T> Place<T> {
    /// # Safety
    /// `place` is null or a place that nothing else uses until the function returns.
    #[inline]
    pub(crate) unsafe fn new(name: &str, place: *mut T) -> Result<Place<T>> {
        match place.is_null() {
            true => Err(null(name)),
            false => Ok(Place(place)),
        }
    }

    #[inline]
    pub(crate) fn set(&self, value: T) {
        // SAFETY: the promise of `new`; it is not null.
        unsafe { self.0.write(value) }
    }
}

impl Place<runstone_bytes> {
    /// A place for bytes, which is set to no bytes at once, so that the caller may release it even
    /// if the function fails.
    ///
    /// # Safety
    /// As for [`Place::new`].
    #[inline]
    pub(crate) unsafe fn empty(
        name: &str,
        place: *mut runstone_bytes,
    ) -> Result<Place<runstone_bytes>> {
        // SAFETY: the caller's promise.
        let place = unsafe { Place::new(name, place) }?;
        place.set(runstone_bytes::NONE);
        Ok(place)
    }
}

impl<T: Kept> Place<*mut T> {
    /// Keeps an object, and stores its handle in the place.
    pub(crate) fn keep(&self, object: T::Object) -> Result<()> {
        self.set(T::keep(object)?);
        Ok(())
    }
}

/// The caller's places for `count` results.
///
/// # Safety
/// As for [`Place::new`], for each of them.
pub(crate) unsafe fn places<T>(
    name: &str,
    first: *mut T,
    count: usize,
) -> Result<impl Iterator<Item = Place<T>>> {
    if first.is_null() && count > 0 || count > isize::MAX as usize / size_of::<T>().max(1) {
        return Err(Failure::invalid(format!("{name} is no array of {count} items")));
    }
    // All these places are inside the caller's array.
    Ok((0..count).map(move |at| Place(first.wrapping_add(at))))
}

/// The caller's array.
///
/// # Safety
/// `count` items at `items` are readable for as long as the caller uses the result.
pub(crate) unsafe fn array<'a, T>(name: &str, items: *const T, count: usize) -> Result<&'a [T]> {
    if count == 0 {
        return Ok(&[]);
    }
    if items.is_null() || count > isize::MAX as usize / size_of::<T>().max(1) {
        return Err(Failure::invalid(format!("{name} is no array of {count} items")));
    }
    // SAFETY: the caller's promise, and the size is within the address space.
    Ok(unsafe { slice::from_raw_parts(items, count) })
}

/// A range of keys.
type Range<'a> = (Bound<&'a [u8]>, Bound<&'a [u8]>);

/// The range from `from` up to but not including `to`. Null pointers leave it open.
///
/// # Safety
/// As for [`optional`].
pub(crate) unsafe fn range<'a>(
    from: *const c_void,
    from_size: usize,
    to: *const c_void,
    to_size: usize,
) -> Result<Range<'a>> {
    // SAFETY: the caller's promise.
    let (from, to) = unsafe { (optional("from", from, from_size)?, optional("to", to, to_size)?) };
    Ok((
        from.map_or(Bound::Unbounded, Bound::Included),
        to.map_or(Bound::Unbounded, Bound::Excluded),
    ))
}
