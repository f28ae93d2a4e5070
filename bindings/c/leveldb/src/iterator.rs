//! Iterators.

use std::ffi::c_char;
use std::ptr;

use runstone::{Cursor, ReadOptions};
use runstone_boundary::Failure;
use runstone_boundary::alone::Alone;

use runstone_boundary::handle;
use runstone_boundary::pointers::Kept;

use crate::Result;
use crate::handles::{close, keep, leveldb_iterator_t, leveldb_readoptions_t, leveldb_t};
use crate::memory::{bytes, quietly, report};
use crate::options::read_options;

handle!(3 "iterator" leveldb_iterator_t: Alone<Walk>);

/// A cursor, and what went wrong.
#[derive(Debug)]
pub struct Walk {
    /// `None` if it could not be made.
    cursor: Option<Cursor>,
    failure: Option<Failure>,
}

impl Walk {
    fn current(&self) -> Option<&Cursor> {
        self.cursor.as_ref().filter(|cursor| cursor.valid() && self.failure.is_none())
    }
}

fn go(iterator: *mut leveldb_iterator_t, step: impl FnOnce(&mut Cursor) -> runstone::Result<()>) {
    quietly((), || {
        let walk = leveldb_iterator_t::get(iterator)?;
        let mut walk = walk.wait()?;
        if let Some(Err(error)) = walk.cursor.as_mut().map(step) {
            walk.failure = Some(error.into());
        }
        Ok(())
    });
}

/// Makes an iterator over a database as of now, or as of the snapshot of the options. It is on no
/// entry. If it cannot be made, leveldb_iter_get_error() tells why.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_create_iterator(
    db: *mut leveldb_t,
    options: *const leveldb_readoptions_t,
) -> *mut leveldb_iterator_t {
    let open = || -> Result<Cursor> {
        let options: ReadOptions = read_options(options)?;
        Ok(leveldb_t::get(db)?.default_keyspace().cursor(options)?)
    };
    let walk = match runstone_boundary::guard(open) {
        Ok(cursor) => Walk { cursor: Some(cursor), failure: None },
        Err(failure) => Walk { cursor: None, failure: Some(failure) },
    };
    keep(Alone::new(walk))
}

/// Ends an iterator.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_iter_destroy(iterator: *mut leveldb_iterator_t) {
    close(iterator);
}

/// Whether it is on an entry.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_iter_valid(iterator: *const leveldb_iterator_t) -> u8 {
    quietly(0, || Ok(leveldb_iterator_t::get(iterator)?.wait()?.current().is_some().into()))
}

/// Moves to the first entry.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_iter_seek_to_first(iterator: *mut leveldb_iterator_t) {
    go(iterator, Cursor::seek_to_first);
}

/// Moves to the last entry.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_iter_seek_to_last(iterator: *mut leveldb_iterator_t) {
    go(iterator, Cursor::seek_to_last);
}

/// Moves to the first entry whose key is not less than `k`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_iter_seek(
    iterator: *mut leveldb_iterator_t,
    k: *const c_char,
    klen: usize,
) {
    go(iterator, |cursor| {
        // SAFETY: the caller's bytes.
        let key = unsafe { bytes(k, klen) };
        let key = key.map_err(|failure| runstone::Error::invalid(failure.message, ""))?;
        cursor.seek(key)
    });
}

/// Moves to the next entry.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_iter_next(iterator: *mut leveldb_iterator_t) {
    go(iterator, Cursor::next);
}

/// Moves to the previous entry.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_iter_prev(iterator: *mut leveldb_iterator_t) {
    go(iterator, Cursor::prev);
}

/// The bytes of the current entry that `part` shows; null if there is none. They are the cursor's,
/// and stay where they are until it moves or ends.
unsafe fn show(
    iterator: *const leveldb_iterator_t,
    size: *mut usize,
    part: impl FnOnce(&Cursor) -> &[u8],
) -> *const c_char {
    let (data, len) = quietly((ptr::null(), 0), || {
        let walk = leveldb_iterator_t::get(iterator)?;
        let walk = walk.wait()?;
        let shown = walk.current().map(part);
        Ok(shown.map_or((ptr::null(), 0), |bytes| (bytes.as_ptr().cast(), bytes.len())))
    });
    if !size.is_null() {
        // SAFETY: the caller's place.
        unsafe { size.write(len) };
    }
    data
}

/// The key of the current entry, valid until the iterator moves.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_iter_key(
    iterator: *const leveldb_iterator_t,
    klen: *mut usize,
) -> *const c_char {
    // SAFETY: the caller's place.
    unsafe { show(iterator, klen, Cursor::key) }
}

/// The value of the current entry, valid until the iterator moves.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_iter_value(
    iterator: *const leveldb_iterator_t,
    vlen: *mut usize,
) -> *const c_char {
    // SAFETY: the caller's place.
    unsafe { show(iterator, vlen, Cursor::value) }
}

/// What went wrong so far.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_iter_get_error(
    iterator: *const leveldb_iterator_t,
    errptr: *mut *mut c_char,
) {
    // SAFETY: the caller's place.
    unsafe {
        report(errptr, || {
            let walk = leveldb_iterator_t::get(iterator)?;
            walk.wait()?.failure.clone().map_or(Ok(()), Err)
        });
    }
}
