//! Writes that depend on what is there: conditional puts, and entries that are removed and
//! returned.

use std::ffi::c_void;

use runstone::{Keyspace, Value, WriteOptions};

use runstone_boundary::pointers::Kept;

use crate::Result;
use crate::bytes::{Place, optional, places, range, required, runstone_bytes};
use crate::durability::write_options;
use crate::handles::runstone_keyspace;
use crate::status::{answer, runstone_status};

/// Stores a value if the key has none. Otherwise `existing` gets the present value of the key. It
/// is null if the key had none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn runstone_put_if_absent(
    keyspace: *const runstone_keyspace,
    key: *const c_void,
    key_size: usize,
    value: *const c_void,
    value_size: usize,
    durability: i32,
    existing: *mut runstone_bytes,
) -> runstone_status {
    answer(|| {
        // SAFETY: the caller promises a valid place.
        let place = unsafe { Place::empty("existing", existing) }?;
        // SAFETY: the caller promises valid bytes.
        let (key, value) =
            unsafe { (required("key", key, key_size)?, required("value", value, value_size)?) };
        let options = write_options(durability)?;
        let found = runstone_keyspace::get(keyspace)?.put_if_absent_with(key, value, options)?;
        place.set(found.map_or(runstone_bytes::NONE, runstone_bytes::of));
        Ok(())
    })
}

/// Gives a key the value `value` (null: deletes it) if it has the value `expected` (null: none).
/// `is_swapped` gets whether the key had the expected value.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn runstone_compare_and_swap(
    keyspace: *const runstone_keyspace,
    key: *const c_void,
    key_size: usize,
    expected: *const c_void,
    expected_size: usize,
    value: *const c_void,
    value_size: usize,
    durability: i32,
    is_swapped: *mut bool,
) -> runstone_status {
    answer(|| {
        // SAFETY: the caller promises valid bytes.
        let (key, expected, value) = unsafe {
            (
                required("key", key, key_size)?,
                optional("expected", expected, expected_size)?,
                optional("value", value, value_size)?,
            )
        };
        // SAFETY: the caller promises a valid place.
        let place = unsafe { Place::new("is_swapped", is_swapped) }?;
        let keyspace = runstone_keyspace::get(keyspace)?;
        let options = write_options(durability)?;
        let swapped = keyspace.compare_and_swap_with(key, expected, value, options)?;
        place.set(swapped.is_ok());
        Ok(())
    })
}

/// An entry that was removed.
type Taken = (Vec<u8>, Value);

/// Hands an entry over.
fn give((key, value): Taken, keys: &Place<runstone_bytes>, values: &Place<runstone_bytes>) {
    keys.set(runstone_bytes::of(Value::owned(key)));
    values.set(runstone_bytes::of(value));
}

/// Removes an entry that `take` finds, and hands it over.
///
/// # Safety
/// `key` and `value` are null or places that nothing else uses until the function returns.
unsafe fn pop(
    keyspace: *const runstone_keyspace,
    durability: i32,
    (key, value): (*mut runstone_bytes, *mut runstone_bytes),
    take: impl FnOnce(&Keyspace, WriteOptions) -> runstone::Result<Option<Taken>>,
) -> Result<()> {
    // SAFETY: the caller's promise.
    let (key, value) = unsafe { (Place::empty("key", key), Place::empty("value", value)) };
    let (key, value) = (key?, value?);
    let options = write_options(durability)?;
    if let Some(entry) = take(&*runstone_keyspace::get(keyspace)?, options)? {
        give(entry, &key, &value);
    }
    Ok(())
}

/// Removes the first entry, and returns its key and its value; null if there is none. Callers in
/// other threads get other entries.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn runstone_pop_first(
    keyspace: *const runstone_keyspace,
    durability: i32,
    key: *mut runstone_bytes,
    value: *mut runstone_bytes,
) -> runstone_status {
    // SAFETY: the caller promises valid places.
    answer(|| unsafe { pop(keyspace, durability, (key, value), Keyspace::pop_first_with) })
}

/// Removes the last entry, as runstone_pop_first() does the first.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn runstone_pop_last(
    keyspace: *const runstone_keyspace,
    durability: i32,
    key: *mut runstone_bytes,
    value: *mut runstone_bytes,
) -> runstone_status {
    // SAFETY: the caller promises valid places.
    answer(|| unsafe { pop(keyspace, durability, (key, value), Keyspace::pop_last_with) })
}

/// Removes the first entries from `from` (null: the first key) up to but not including `to` (null:
/// no bound), either all of them or none. `keys` and `values` have room for `most` entries, and
/// `count` gets how many there are; the rest is null. There are fewer than `most` if others remove
/// some meanwhile, or once the call has 64 MiB; there are none only if the range is empty or `most`
/// is 0. So call it until there are none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn runstone_drain(
    keyspace: *const runstone_keyspace,
    from: *const c_void,
    from_size: usize,
    to: *const c_void,
    to_size: usize,
    most: usize,
    durability: i32,
    keys: *mut runstone_bytes,
    values: *mut runstone_bytes,
    count: *mut usize,
) -> runstone_status {
    answer(|| {
        // SAFETY: the caller promises arrays of `most` items each, and a valid place.
        let arrays = || unsafe { [places("keys", keys, most), places("values", values, most)] };
        for array in arrays().into_iter().flatten() {
            array.for_each(|place| place.set(runstone_bytes::NONE));
        }
        let [keys, values] = arrays();
        // SAFETY: as above.
        let (keys, values, place) = (keys?, values?, unsafe { Place::new("count", count) }?);
        place.set(0);
        // SAFETY: the caller promises valid bytes.
        let range = unsafe { range(from, from_size, to, to_size) }?;
        let options = write_options(durability)?;
        let taken = runstone_keyspace::get(keyspace)?.drain_with(range, most, options)?;
        place.set(taken.len());
        for ((key, value), entry) in keys.zip(values).zip(taken) {
            give(entry, &key, &value);
        }
        Ok(())
    })
}
