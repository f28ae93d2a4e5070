//! Batches: writes that happen together or not at all, in any keyspaces of a store.

use std::ffi::c_void;
use std::time::Duration;

use runstone::Batch;

use runstone_boundary::alone::Alone;
use runstone_boundary::handle;
use runstone_boundary::pointers::Kept;

use crate::bytes::{Place, range, required};
use crate::handles::{runstone_batch, runstone_keyspace};
use crate::status::{answer, runstone_status};

handle!(inherited 3 "batch" runstone_batch: Alone<Batch>);

/// Makes an empty batch. Close it with runstone_batch_close().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn runstone_batch_create(batch: *mut *mut runstone_batch) -> runstone_status {
    answer(|| {
        // SAFETY: the caller promises a valid place.
        let place = unsafe { Place::new("batch", batch) }?;
        place.keep(Alone::new(Batch::new()))
    })
}

/// Closes a batch. Null is not an error.
#[unsafe(no_mangle)]
pub extern "C" fn runstone_batch_close(batch: *mut runstone_batch) -> runstone_status {
    answer(|| runstone_batch::close(batch))
}

/// Removes all writes from a batch, and keeps its memory for later writes.
#[unsafe(no_mangle)]
pub extern "C" fn runstone_batch_clear(batch: *mut runstone_batch) -> runstone_status {
    answer(|| {
        runstone_batch::get(batch)?.lock()?.clear();
        Ok(())
    })
}

/// The number of writes in a batch.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn runstone_batch_count(
    batch: *const runstone_batch,
    count: *mut u64,
) -> runstone_status {
    answer(|| {
        // SAFETY: the caller promises a valid place.
        let place = unsafe { Place::new("count", count) }?;
        place.set(runstone_batch::get(batch)?.lock()?.len());
        Ok(())
    })
}

/// Adds a put.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn runstone_batch_put(
    batch: *mut runstone_batch,
    keyspace: *const runstone_keyspace,
    key: *const c_void,
    key_size: usize,
    value: *const c_void,
    value_size: usize,
) -> runstone_status {
    answer(|| {
        // SAFETY: the caller promises valid bytes.
        let (key, value) =
            unsafe { (required("key", key, key_size)?, required("value", value, value_size)?) };
        let (batch, keyspace) = (runstone_batch::get(batch)?, runstone_keyspace::get(keyspace)?);
        Ok(batch.lock()?.put(&keyspace, key, value)?)
    })
}

/// Adds a put that expires `ttl_ms` milliseconds from now.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn runstone_batch_put_with_ttl(
    batch: *mut runstone_batch,
    keyspace: *const runstone_keyspace,
    key: *const c_void,
    key_size: usize,
    value: *const c_void,
    value_size: usize,
    ttl_ms: u64,
) -> runstone_status {
    answer(|| {
        // SAFETY: the caller promises valid bytes.
        let (key, value) =
            unsafe { (required("key", key, key_size)?, required("value", value, value_size)?) };
        let (batch, keyspace) = (runstone_batch::get(batch)?, runstone_keyspace::get(keyspace)?);
        let ttl = Duration::from_millis(ttl_ms);
        Ok(batch.lock()?.put_with_ttl(&keyspace, key, value, ttl)?)
    })
}

/// Adds a delete. Deleting an absent key is not an error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn runstone_batch_delete(
    batch: *mut runstone_batch,
    keyspace: *const runstone_keyspace,
    key: *const c_void,
    key_size: usize,
) -> runstone_status {
    answer(|| {
        // SAFETY: the caller promises valid bytes.
        let key = unsafe { required("key", key, key_size) }?;
        let (batch, keyspace) = (runstone_batch::get(batch)?, runstone_keyspace::get(keyspace)?);
        Ok(batch.lock()?.delete(&keyspace, key)?)
    })
}

/// Adds an operand of the keyspace's merge operator.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn runstone_batch_merge(
    batch: *mut runstone_batch,
    keyspace: *const runstone_keyspace,
    key: *const c_void,
    key_size: usize,
    operand: *const c_void,
    operand_size: usize,
) -> runstone_status {
    answer(|| {
        // SAFETY: the caller promises valid bytes.
        let (key, operand) = unsafe {
            (required("key", key, key_size)?, required("operand", operand, operand_size)?)
        };
        let (batch, keyspace) = (runstone_batch::get(batch)?, runstone_keyspace::get(keyspace)?);
        Ok(batch.lock()?.merge(&keyspace, key, operand)?)
    })
}

/// Adds the removal of all keys from `from` (null: the first key) up to but not including `to`
/// (null: no bound). This includes keys that were put earlier in the batch.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn runstone_batch_delete_range(
    batch: *mut runstone_batch,
    keyspace: *const runstone_keyspace,
    from: *const c_void,
    from_size: usize,
    to: *const c_void,
    to_size: usize,
) -> runstone_status {
    answer(|| {
        // SAFETY: the caller promises valid bytes.
        let range = unsafe { range(from, from_size, to, to_size) }?;
        let (batch, keyspace) = (runstone_batch::get(batch)?, runstone_keyspace::get(keyspace)?);
        Ok(batch.lock()?.delete_range(&keyspace, range)?)
    })
}
