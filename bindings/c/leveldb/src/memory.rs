//! Errors in the form of LevelDB, and memory that the caller frees.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::{ptr, slice};

use runstone::MAX_VALUE_BYTES;
use runstone_boundary::{Code, Failure, guard};

use crate::Result;

/// Runs the work of a function. An error becomes a string at `error`, in place of the earlier one.
///
/// # Safety
/// `error` is null, or points to null or to a string from `malloc`.
pub(crate) unsafe fn report<T>(
    error: *mut *mut c_char,
    work: impl FnOnce() -> Result<T>,
) -> Option<T> {
    let failure = match guard(work) {
        Ok(done) => return Some(done),
        Err(failure) => failure,
    };
    if !error.is_null() {
        // SAFETY: the caller's promise.
        unsafe {
            libc::free((*error).cast());
            *error = text(&format!("{}: {}", kind(failure.code), failure.message));
        }
    }
    None
}

/// Runs the work of a function that cannot report an error: it returns `fallback` instead.
pub(crate) fn quietly<T>(fallback: T, work: impl FnOnce() -> Result<T>) -> T {
    guard(work).unwrap_or(fallback)
}

/// The word with which LevelDB's own messages begin.
fn kind(code: Code) -> &'static str {
    match code {
        Code::Corruption => "Corruption",
        Code::UnknownKeyspace => "NotFound",
        Code::Storage | Code::NoSpace | Code::InUse | Code::Stopped => "IO error",
        _ => "Invalid argument",
    }
}

/// A copy that the caller frees; null if there is no memory.
pub(crate) fn copy(bytes: &[u8]) -> *mut c_char {
    // SAFETY: a size that is not 0; the copy stays inside it.
    unsafe {
        let place = libc::malloc(bytes.len().max(1)).cast::<u8>();
        if !place.is_null() {
            ptr::copy_nonoverlapping(bytes.as_ptr(), place, bytes.len());
        }
        place.cast()
    }
}

/// A string that the caller frees.
pub(crate) fn text(text: &str) -> *mut c_char {
    copy(&[text.replace('\0', "\\0").as_bytes(), &[0]].concat())
}

/// The caller's bytes.
///
/// # Safety
/// `size` bytes at `data` are readable for as long as the caller uses the result.
#[inline]
pub(crate) unsafe fn bytes<'a>(data: *const c_char, size: usize) -> Result<&'a [u8]> {
    match (data.is_null(), size) {
        (true, 0) => Ok(&[]),
        (true, _) => Err(Failure::invalid(format!("null was given as {size} bytes"))),
        (false, _) if size as u64 > MAX_VALUE_BYTES => {
            Err(Failure::invalid(format!("{size} bytes were given; at most {MAX_VALUE_BYTES} fit")))
        }
        // SAFETY: the caller's promise, and the size is within the address space.
        (false, _) => Ok(unsafe { slice::from_raw_parts(data.cast(), size) }),
    }
}

/// The caller's string.
///
/// # Safety
/// `name` is null or a string that ends with a zero byte.
pub(crate) unsafe fn name<'a>(name: *const c_char) -> Result<&'a str> {
    if name.is_null() {
        return Err(Failure::invalid("a name is null"));
    }
    // SAFETY: the caller's promise.
    let text = unsafe { CStr::from_ptr(name) };
    text.to_str().map_err(|_| Failure::invalid("a name is not UTF-8"))
}

/// Frees memory that a function of this library returned.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_free(ptr: *mut c_void) {
    // SAFETY: the caller passes a result of `copy`, or null.
    unsafe { libc::free(ptr) }
}

/// Returns 1: this is the interface of LevelDB 1.23.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_major_version() -> c_int {
    1
}

/// Returns 23: this is the interface of LevelDB 1.23.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_minor_version() -> c_int {
    23
}
