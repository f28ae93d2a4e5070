//! Iterators.

use std::ffi::c_char;
use std::ptr;
use std::sync::Arc;

use runstone::{Cursor, ReadOptions};
use runstone_boundary::Failure;
use runstone_boundary::alone::Alone;

use runstone_boundary::handle;
use runstone_boundary::pointers::Kept;

use crate::Result;
use crate::handles::{close, keep, leveldb_iterator_t, leveldb_readoptions_t, leveldb_t};
use crate::memory::{bytes, quietly, report};
use crate::options::read_options;
use crate::order::Order;

handle!(3 "iterator" leveldb_iterator_t: Alone<Walk>);

/// A cursor and its first error.
#[derive(Debug)]
pub struct Walk {
    /// `None` if the cursor could not be made.
    cursor: Option<Cursor>,
    failure: Option<Failure>,
    /// The caller's key order.
    order: Option<Arc<Order>>,
    /// The key before a step.
    before: Vec<u8>,
}

/// A move of a cursor.
type Go = fn(&mut Cursor) -> runstone::Result<()>;

impl Walk {
    fn current(&self) -> Option<&Cursor> {
        self.cursor.as_ref().filter(|cursor| cursor.valid() && self.failure.is_none())
    }

    /// Steps, and compares the keys on both sides of the step.
    fn step(&mut self, step: Go) -> Result<()> {
        let Some(cursor) = &mut self.cursor else { return Ok(()) };
        let Some(order) = &self.order else { return Ok(step(cursor)?) };
        order.check()?;
        let was_valid = cursor.valid();
        self.before.clear();
        self.before.extend_from_slice(cursor.key());
        step(cursor)?;
        if !was_valid || !cursor.valid() {
            return Ok(());
        }
        match &self.before[..] < cursor.key() {
            true => order.check_pair(&self.before, cursor.key()),
            false => order.check_pair(cursor.key(), &self.before),
        }
    }

    /// Moves to one end, and compares the keys on both sides of the first step from there: if the
    /// orders differ, another key may be at the end.
    fn jump(&mut self, jump: Go, inward: Go) -> Result<()> {
        let jump = |walk: &mut Walk| Ok(walk.cursor.as_mut().map_or(Ok(()), jump)?);
        if self.order.is_none() {
            return jump(self);
        }
        jump(self)?;
        self.step(inward)?;
        jump(self)
    }

    fn seek(&mut self, key: &[u8]) -> Result<()> {
        match (&mut self.cursor, &self.order) {
            (Some(cursor), Some(order)) => order.check_around(cursor, key),
            (Some(cursor), None) => Ok(cursor.seek(key)?),
            (None, _) => Ok(()),
        }
    }
}

fn go(iterator: *mut leveldb_iterator_t, go: impl FnOnce(&mut Walk) -> Result<()>) {
    quietly((), || {
        let walk = leveldb_iterator_t::get(iterator)?;
        let mut walk = walk.wait()?;
        if let Err(failure) = go(&mut walk) {
            walk.failure = Some(failure);
        }
        Ok(())
    });
}

/// Makes an iterator over a database, as of now or as of the snapshot in the options. It is not on
/// an entry yet. If it could not be made, leveldb_iter_get_error() reports why.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_create_iterator(
    db: *mut leveldb_t,
    options: *const leveldb_readoptions_t,
) -> *mut leveldb_iterator_t {
    let open = || -> Result<(Cursor, Option<Arc<Order>>)> {
        let options: ReadOptions = read_options(options)?;
        let db = leveldb_t::get(db)?;
        Ok((db.keyspace().cursor(options)?, db.order.clone()))
    };
    let before = Vec::new();
    let walk = match runstone_boundary::guard(open) {
        Ok((cursor, order)) => Walk { cursor: Some(cursor), failure: None, order, before },
        Err(failure) => Walk { cursor: None, failure: Some(failure), order: None, before },
    };
    keep(Alone::new(walk))
}

/// Frees an iterator.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_iter_destroy(iterator: *mut leveldb_iterator_t) {
    close(iterator);
}

/// Whether the iterator is on an entry.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_iter_valid(iterator: *const leveldb_iterator_t) -> u8 {
    quietly(0, || Ok(leveldb_iterator_t::get(iterator)?.wait()?.current().is_some().into()))
}

/// Moves to the first entry.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_iter_seek_to_first(iterator: *mut leveldb_iterator_t) {
    go(iterator, |walk| walk.jump(Cursor::seek_to_first, Cursor::next));
}

/// Moves to the last entry.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_iter_seek_to_last(iterator: *mut leveldb_iterator_t) {
    go(iterator, |walk| walk.jump(Cursor::seek_to_last, Cursor::prev));
}

/// Moves to the first entry whose key is not less than `k`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_iter_seek(
    iterator: *mut leveldb_iterator_t,
    k: *const c_char,
    klen: usize,
) {
    // SAFETY: the caller promises valid bytes.
    go(iterator, |walk| walk.seek(unsafe { bytes(k, klen) }?));
}

/// Moves to the next entry.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_iter_next(iterator: *mut leveldb_iterator_t) {
    go(iterator, |walk| walk.step(Cursor::next));
}

/// Moves to the previous entry.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_iter_prev(iterator: *mut leveldb_iterator_t) {
    go(iterator, |walk| walk.step(Cursor::prev));
}

/// The part of the current entry that `part` selects; null if there is no entry. The bytes belong
/// to the cursor, and stay valid until it moves or is freed.
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
        // SAFETY: the caller promises a valid place.
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
    // SAFETY: the caller promises a valid place.
    unsafe { show(iterator, klen, Cursor::key) }
}

/// The value of the current entry, valid until the iterator moves.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_iter_value(
    iterator: *const leveldb_iterator_t,
    vlen: *mut usize,
) -> *const c_char {
    // SAFETY: the caller promises a valid place.
    unsafe { show(iterator, vlen, Cursor::value) }
}

/// Returns the error of the iterator, if there was one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_iter_get_error(
    iterator: *const leveldb_iterator_t,
    errptr: *mut *mut c_char,
) {
    // SAFETY: the caller promises a valid place.
    unsafe {
        report(errptr, || {
            let walk = leveldb_iterator_t::get(iterator)?;
            walk.wait()?.failure.clone().map_or(Ok(()), Err)
        });
    }
}
