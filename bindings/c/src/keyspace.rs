//! Keyspaces: reads and writes of keys and ranges. Writes that depend on what is there are in
//! `conditional`.

use std::ffi::{c_char, c_void};
use std::path::PathBuf;
use std::time::Duration;

use runstone::{Keyspace, Value};

use runstone_boundary::handle;
use runstone_boundary::pointers::Kept;

use crate::Result;
use crate::bytes::{Place, array, optional, places, range, required, runstone_bytes, text};
use crate::durability::write_options;
use crate::handles::{runstone_keyspace, runstone_snapshot};
use crate::status::{answer, runstone_status};

handle!(2 "keyspace" runstone_keyspace: Keyspace);

/// The size that runstone_get_into() returns for an absent value.
pub const RUNSTONE_ABSENT: usize = usize::MAX;

/// Passes the value of a key to `give`, if there is one.
#[inline]
fn look_up(
    keyspace: *const runstone_keyspace,
    snapshot: *const runstone_snapshot,
    key: &[u8],
    give: impl FnOnce(Value),
) -> Result<()> {
    runstone_keyspace::with(keyspace, |keyspace| {
        let found = match snapshot.is_null() {
            true => keyspace.get(key),
            false => runstone_snapshot::with(snapshot, |at| {
                Ok(at.keyspace(keyspace)?.get_at(key, &at.snapshot))
            })?,
        };
        if let Some(value) = found? {
            give(value);
        }
        Ok(())
    })
}

/// Closes the handle of a keyspace; the keyspace stays. Null is not an error.
#[unsafe(no_mangle)]
pub extern "C" fn runstone_keyspace_close(keyspace: *mut runstone_keyspace) -> runstone_status {
    answer(|| runstone_keyspace::close(keyspace))
}

/// Stores a value. `durability` is a runstone_durability.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn runstone_put(
    keyspace: *const runstone_keyspace,
    key: *const c_void,
    key_size: usize,
    value: *const c_void,
    value_size: usize,
    durability: i32,
) -> runstone_status {
    answer(|| {
        // SAFETY: the caller promises valid bytes.
        let (key, value) =
            unsafe { (required("key", key, key_size)?, required("value", value, value_size)?) };
        let options = write_options(durability)?;
        runstone_keyspace::with(keyspace, |keyspace| Ok(keyspace.put_with(key, value, options)?))
    })
}

/// Stores a value that expires `ttl_ms` milliseconds from now. `durability` is a
/// runstone_durability.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn runstone_put_with_ttl(
    keyspace: *const runstone_keyspace,
    key: *const c_void,
    key_size: usize,
    value: *const c_void,
    value_size: usize,
    ttl_ms: u64,
    durability: i32,
) -> runstone_status {
    answer(|| {
        // SAFETY: the caller promises valid bytes.
        let (key, value) =
            unsafe { (required("key", key, key_size)?, required("value", value, value_size)?) };
        let options = write_options(durability)?.ttl(Duration::from_millis(ttl_ms));
        Ok(runstone_keyspace::get(keyspace)?.put_with(key, value, options)?)
    })
}

/// Looks up a key, as of a snapshot unless that is null. The value of an absent key is null.
/// Release any other value with runstone_bytes_free().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn runstone_get(
    keyspace: *const runstone_keyspace,
    snapshot: *const runstone_snapshot,
    key: *const c_void,
    key_size: usize,
    value: *mut runstone_bytes,
) -> runstone_status {
    answer(|| {
        // SAFETY: the caller promises valid bytes and places.
        let (place, key) =
            unsafe { (Place::empty("value", value)?, required("key", key, key_size)?) };
        look_up(keyspace, snapshot, key, |value| place.set(runstone_bytes::of(value)))
    })
}

/// Looks up a key, and copies as much of its value to `buffer` as fits there. `value_size` gets the
/// size of the whole value, or RUNSTONE_ABSENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn runstone_get_into(
    keyspace: *const runstone_keyspace,
    snapshot: *const runstone_snapshot,
    key: *const c_void,
    key_size: usize,
    buffer: *mut c_void,
    buffer_size: usize,
    value_size: *mut usize,
) -> runstone_status {
    answer(|| {
        // SAFETY: the caller promises valid bytes and places.
        let (key, place) =
            unsafe { (required("key", key, key_size)?, Place::new("value_size", value_size)?) };
        // SAFETY: as above; only the size is checked.
        unsafe { optional("buffer", buffer, buffer_size) }?;
        place.set(RUNSTONE_ABSENT);
        look_up(keyspace, snapshot, key, |value| {
            let count = value.len().min(buffer_size);
            if count > 0 {
                // SAFETY: the buffer is the caller's and has that many bytes; the value is ours.
                unsafe { buffer.cast::<u8>().copy_from_nonoverlapping(value.as_ptr(), count) };
            }
            place.set(value.len());
        })
    })
}

/// Looks up `count` keys at one moment. `values` gets one result for each key, in the order of
/// `keys`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn runstone_multi_get(
    keyspace: *const runstone_keyspace,
    count: usize,
    keys: *const *const c_void,
    key_sizes: *const usize,
    values: *mut runstone_bytes,
) -> runstone_status {
    answer(|| {
        // SAFETY: the caller promises arrays of `count` items each.
        let values = || unsafe { places("values", values, count) };
        values()?.for_each(|place| place.set(runstone_bytes::NONE));
        // SAFETY: as above.
        let (keys, sizes) =
            unsafe { (array("keys", keys, count)?, array("key_sizes", key_sizes, count)?) };
        let keys = keys.iter().zip(sizes);
        // SAFETY: the caller promises valid bytes.
        let keys = keys.map(|(key, size)| unsafe { required("a key", *key, *size) });
        let keys = keys.collect::<Result<Vec<&[u8]>>>()?;
        let found = runstone_keyspace::get(keyspace)?.multi_get(&keys)?;
        for (place, value) in values()?.zip(found) {
            place.set(value.map_or(runstone_bytes::NONE, runstone_bytes::of));
        }
        Ok(())
    })
}

/// Whether a key has a value.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn runstone_contains(
    keyspace: *const runstone_keyspace,
    key: *const c_void,
    key_size: usize,
    is_there: *mut bool,
) -> runstone_status {
    answer(|| {
        // SAFETY: the caller promises valid bytes and places.
        let (key, place) =
            unsafe { (required("key", key, key_size)?, Place::new("is_there", is_there)?) };
        place.set(runstone_keyspace::get(keyspace)?.contains_key(key)?);
        Ok(())
    })
}

/// Removes a key. Removing an absent key is not an error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn runstone_delete(
    keyspace: *const runstone_keyspace,
    key: *const c_void,
    key_size: usize,
    durability: i32,
) -> runstone_status {
    answer(|| {
        // SAFETY: the caller promises valid bytes.
        let key = unsafe { required("key", key, key_size) }?;
        let options = write_options(durability)?;
        Ok(runstone_keyspace::get(keyspace)?.delete_with(key, options)?)
    })
}

/// Changes a value with an operand of the keyspace's merge operator, without a read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn runstone_merge(
    keyspace: *const runstone_keyspace,
    key: *const c_void,
    key_size: usize,
    operand: *const c_void,
    operand_size: usize,
    durability: i32,
) -> runstone_status {
    answer(|| {
        // SAFETY: the caller promises valid bytes.
        let (key, operand) = unsafe {
            (required("key", key, key_size)?, required("operand", operand, operand_size)?)
        };
        let options = write_options(durability)?;
        Ok(runstone_keyspace::get(keyspace)?.merge_with(key, operand, options)?)
    })
}

/// Removes all keys from `from` (null: the first key) up to but not including `to` (null: no
/// bound), with one small record.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn runstone_delete_range(
    keyspace: *const runstone_keyspace,
    from: *const c_void,
    from_size: usize,
    to: *const c_void,
    to_size: usize,
    durability: i32,
) -> runstone_status {
    answer(|| {
        // SAFETY: the caller promises valid bytes.
        let range = unsafe { range(from, from_size, to, to_size) }?;
        let options = write_options(durability)?;
        Ok(runstone_keyspace::get(keyspace)?.delete_range_with(range, options)?)
    })
}

/// The approximate numbers of entries and bytes in a range, including deleted and replaced entries.
/// Null pointers leave the range open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn runstone_estimate(
    keyspace: *const runstone_keyspace,
    from: *const c_void,
    from_size: usize,
    to: *const c_void,
    to_size: usize,
    entries: *mut u64,
    bytes: *mut u64,
) -> runstone_status {
    answer(|| {
        // SAFETY: the caller promises valid bytes and places.
        let (range, entries, bytes) = unsafe {
            let range = range(from, from_size, to, to_size)?;
            (range, Place::new("entries", entries)?, Place::new("bytes", bytes)?)
        };
        let estimate = runstone_keyspace::get(keyspace)?.estimate(range)?;
        entries.set(estimate.entries);
        bytes.set(estimate.bytes);
        Ok(())
    })
}

/// Compacts a range of keys. Null pointers leave it open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn runstone_compact_range(
    keyspace: *const runstone_keyspace,
    from: *const c_void,
    from_size: usize,
    to: *const c_void,
    to_size: usize,
) -> runstone_status {
    answer(|| {
        // SAFETY: the caller promises valid bytes.
        let range = unsafe { range(from, from_size, to, to_size)? };
        Ok(runstone_keyspace::get(keyspace)?.compact_range(range)?)
    })
}

/// Stores all entries of `count` files that a runstone_sorted_writer made, or none of them.
/// `entries` gets the number of entries.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn runstone_ingest(
    keyspace: *const runstone_keyspace,
    count: usize,
    paths: *const *const c_char,
    entries: *mut u64,
) -> runstone_status {
    answer(|| {
        // SAFETY: the caller promises a valid array and a valid place.
        let (paths, place) =
            unsafe { (array("paths", paths, count)?, Place::new("entries", entries)?) };
        // SAFETY: the caller promises valid strings.
        let paths = paths.iter().map(|path| Ok(PathBuf::from(unsafe { text("a path", *path) }?)));
        let paths = paths.collect::<Result<Vec<PathBuf>>>()?;
        place.set(runstone_keyspace::get(keyspace)?.ingest(&paths)?);
        Ok(())
    })
}
