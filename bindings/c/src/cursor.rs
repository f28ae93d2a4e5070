//! Cursors over a keyspace, of a store or of a transaction.

use std::ffi::c_void;
use std::ptr;

use runstone::ReadOptions;
use runstone_boundary::cursors::AnyCursor;
use runstone_boundary::transactions::Move;

use runstone_boundary::alone::Alone;
use runstone_boundary::handle;
use runstone_boundary::pointers::Kept;

use crate::Result;
use crate::bytes::{Place, optional, required};
use crate::handles::{runstone_cursor, runstone_keyspace, runstone_snapshot};
use crate::status::{answer, runstone_status};

handle!(5 "cursor" runstone_cursor: Alone<AnyCursor>);

/// How a cursor reads. All zero means everything, as of now.
#[allow(non_camel_case_types)]
#[derive(Debug)]
#[repr(C)]
pub struct runstone_read_options {
    /// The snapshot to read; null means now.
    pub snapshot: *const runstone_snapshot,
    /// The first key to show; null means the first key of all.
    pub from: *const c_void,
    /// Its size.
    pub from_size: usize,
    /// The key at which to stop, which is not shown; null means no bound.
    pub to: *const c_void,
    /// Its size.
    pub to_size: usize,
    /// Shows only keys that begin with this prefix; null means all. It cannot be combined with
    /// `from` and `to`.
    pub prefix: *const c_void,
    /// Its size.
    pub prefix_size: usize,
    /// Does not read values that are separated from their keys, and shows them as empty.
    pub keys_only: bool,
    /// Does not add the data that it reads to the cache. This is for a scan that reads everything
    /// once.
    pub skip_cache: bool,
}

/// An entry that a cursor shows. It is valid until the cursor moves or is closed.
#[allow(non_camel_case_types)]
#[derive(Debug)]
#[repr(C)]
pub struct runstone_entry {
    /// The key.
    pub key: *const c_void,
    /// Its size.
    pub key_size: usize,
    /// The value.
    pub value: *const c_void,
    /// Its size.
    pub value_size: usize,
}

/// Converts the options of a cursor.
///
/// # Safety
/// `options` is null or points to options whose bytes are readable.
pub(crate) unsafe fn read_options(options: *const runstone_read_options) -> Result<ReadOptions> {
    // SAFETY: the caller's promise.
    let Some(given) = (unsafe { options.as_ref() }) else { return Ok(ReadOptions::default()) };
    // SAFETY: the caller's promise.
    let (from, to, prefix) = unsafe {
        (
            optional("from", given.from, given.from_size)?,
            optional("to", given.to, given.to_size)?,
            optional("prefix", given.prefix, given.prefix_size)?,
        )
    };
    let mut options = ReadOptions::default().fill_cache(!given.skip_cache);
    if given.keys_only {
        options = options.keys_only();
    }
    if let Some(snapshot) = runstone_snapshot::get_some(given.snapshot)? {
        options = options.at(&snapshot.snapshot);
    }
    match prefix {
        None => Ok(options.with_bounds(from, to)),
        Some(prefix) if from.is_none() && to.is_none() => Ok(options.with_prefix(prefix)),
        Some(_) => Err(runstone_boundary::Failure::invalid(
            "the options have a prefix and bounds; give one of them",
        )),
    }
}

/// Makes a cursor. `options` may be null. Move it before you look at it, and close it with
/// runstone_cursor_close().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn runstone_cursor_create(
    keyspace: *const runstone_keyspace,
    options: *const runstone_read_options,
    cursor: *mut *mut runstone_cursor,
) -> runstone_status {
    answer(|| {
        // SAFETY: the caller promises valid options and a valid place.
        let (snapshot, place) = unsafe {
            (options.as_ref().map(|given| given.snapshot), Place::new("cursor", cursor)?)
        };
        // SAFETY: as above.
        let options = unsafe { read_options(options) }?;
        let moment = runstone_snapshot::get_some(snapshot.unwrap_or(ptr::null()))?;
        let keyspace = runstone_keyspace::get(keyspace)?;
        let made = match moment {
            Some(moment) => moment.keyspace(&keyspace)?.cursor(options)?,
            None => keyspace.cursor(options)?,
        };
        place.keep(Alone::new(AnyCursor::from(made)))
    })
}

/// Closes a cursor. Null is not an error.
#[unsafe(no_mangle)]
pub extern "C" fn runstone_cursor_close(cursor: *mut runstone_cursor) -> runstone_status {
    answer(|| runstone_cursor::close(cursor))
}

#[inline]
fn go(cursor: *mut runstone_cursor, to: Move<'_>) -> runstone_status {
    answer(|| runstone_cursor::with(cursor, |cursor| cursor.lock()?.go(to)))
}

/// Moves to the first entry.
#[unsafe(no_mangle)]
pub extern "C" fn runstone_cursor_first(cursor: *mut runstone_cursor) -> runstone_status {
    go(cursor, Move::First)
}

/// Moves to the last entry.
#[unsafe(no_mangle)]
pub extern "C" fn runstone_cursor_last(cursor: *mut runstone_cursor) -> runstone_status {
    go(cursor, Move::Last)
}

/// Moves to the next entry, or to no entry after the last.
#[unsafe(no_mangle)]
pub extern "C" fn runstone_cursor_next(cursor: *mut runstone_cursor) -> runstone_status {
    go(cursor, Move::Next)
}

/// Moves to the previous entry, or to no entry before the first.
#[unsafe(no_mangle)]
pub extern "C" fn runstone_cursor_previous(cursor: *mut runstone_cursor) -> runstone_status {
    go(cursor, Move::Previous)
}

/// Moves to the first entry whose key is not less than `key`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn runstone_cursor_seek(
    cursor: *mut runstone_cursor,
    key: *const c_void,
    key_size: usize,
) -> runstone_status {
    answer(|| {
        // SAFETY: the caller promises valid bytes.
        let key = unsafe { required("key", key, key_size) }?;
        runstone_cursor::get(cursor)?.lock()?.go(Move::Seek(key))
    })
}

/// Moves to the last entry whose key is not greater than `key`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn runstone_cursor_seek_for_previous(
    cursor: *mut runstone_cursor,
    key: *const c_void,
    key_size: usize,
) -> runstone_status {
    answer(|| {
        // SAFETY: the caller promises valid bytes.
        let key = unsafe { required("key", key, key_size) }?;
        runstone_cursor::get(cursor)?.lock()?.go(Move::SeekForPrevious(key))
    })
}

/// Gets the entry that a cursor is on. Returns false if the cursor is not on an entry, or closed.
/// The results of the moves distinguish the end from an error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn runstone_cursor_entry(
    cursor: *const runstone_cursor,
    entry: *mut runstone_entry,
) -> bool {
    let mut is_on_one = false;
    answer(|| {
        // SAFETY: the caller promises a valid place.
        let place = unsafe { Place::new("entry", entry) }?;
        runstone_cursor::with(cursor, |cursor| {
            let cursor = cursor.lock()?;
            let Some((key, value)) = cursor.entry() else { return Ok(()) };
            is_on_one = true;
            // The bytes belong to the cursor. They stay in place until it moves. A move needs the
            // lock, so none can be in progress now.
            place.set(runstone_entry {
                key: key.as_ptr().cast(),
                key_size: key.len(),
                value: value.as_ptr().cast(),
                value_size: value.len(),
            });
            Ok(())
        })
    });
    is_on_one
}
