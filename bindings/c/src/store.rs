//! The store: opening, closing, and functions that concern all keyspaces.

use std::ffi::c_char;
use std::ptr;

use runstone::{Keyspace, Options, Store};
use runstone_boundary::stores::{self, OpenStore};
use runstone_boundary::{Failure, Handles};

use runstone_boundary::handle;
use runstone_boundary::pointers::Kept;

use crate::Result;
use crate::bytes::{Place, optional_text, runstone_bytes, text};
use crate::durability::write_options;
use crate::handles::{runstone_batch, runstone_keyspace, runstone_options, runstone_store};
use crate::status::{answer, runstone_status};

handle!(1 "store" runstone_store: OpenStore);

/// A store in the form that the functions for all bindings take.
fn named(store: *const runstone_store) -> (&'static Handles<OpenStore>, u64) {
    (runstone_store::table(), store.addr() as u64)
}

/// Opens the store in a directory, or makes one there. `options` may be null. With `read_only =
/// true`, a store that another process has open is followed, as by runstone_follow().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn runstone_open(
    path: *const c_char,
    options: *const runstone_options,
    store: *mut *mut runstone_store,
) -> runstone_status {
    answer(|| {
        // SAFETY: the caller keeps the rules of the header.
        let (path, place) = unsafe { (text("path", path)?, Place::new("store", store)?) };
        let opened = match runstone_options::get_some(options)? {
            Some(options) => options.lock()?.open(path)?,
            None => OpenStore::open(path, Options::default())?,
        };
        place.keep(opened)
    })
}

/// Opens a store for reading, whether or not another process writes to it, and does not hinder that
/// process. It shows one moment; runstone_refresh() shows a later one. The writer keeps the files
/// that this moment needs, within its limits (`follower_keep_bytes`, `follower_keep_seconds`);
/// beyond them, reads and refreshes end with RUNSTONE_LEASE_REVOKED. `options` may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn runstone_follow(
    path: *const c_char,
    options: *const runstone_options,
    store: *mut *mut runstone_store,
) -> runstone_status {
    answer(|| {
        // SAFETY: the caller keeps the rules of the header.
        let (path, place) = unsafe { (text("path", path)?, Place::new("store", store)?) };
        let followed = match runstone_options::get_some(options)? {
            Some(options) => options.lock()?.follow(path)?,
            None => OpenStore::follow(path, Options::default())?,
        };
        place.keep(followed)
    })
}

/// Makes the commits of another process visible in a store that is open for reading. `is_newer`,
/// which may be null, gets whether there were any. The store and its keyspaces show them from then
/// on; snapshots and cursors keep their moment. A transaction that began before refuses these
/// keyspaces: begin it again. Other threads can read during the call. A dropped keyspace is refused
/// with RUNSTONE_UNKNOWN_KEYSPACE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn runstone_refresh(
    store: *mut runstone_store,
    is_newer: *mut bool,
) -> runstone_status {
    answer(|| {
        let found = stores::refresh(named(store), runstone_keyspace::table())?;
        if !is_newer.is_null() {
            // SAFETY: the caller promises a valid place.
            unsafe { Place::new("is_newer", is_newer) }?.set(found);
        }
        Ok(())
    })
}

/// The largest possible age, in milliseconds, of the view of a store that is open for reading: the
/// view contains everything committed before then. 0 for a store that no other process can write
/// to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn runstone_age(
    store: *const runstone_store,
    age_ms: *mut u64,
) -> runstone_status {
    answer(|| {
        // SAFETY: the caller promises a valid place.
        let place = unsafe { Place::new("age_ms", age_ms) }?;
        let age = runstone_store::get(store)?.age()?;
        place.set(u64::try_from(age.as_millis()).unwrap_or(u64::MAX));
        Ok(())
    })
}

/// The process that writes to a store, and the time of its last report.
#[allow(non_camel_case_types)]
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct runstone_live_state {
    /// The process that writes to the store.
    pub process: u64,
    /// How long ago it reported, in milliseconds.
    pub age_ms: u64,
    /// Whether that was in the last seconds. If not, the process ended, hangs, or does not report.
    pub is_current: bool,
}

/// The latest counters, sizes and latencies that the process that writes to a store has reported,
/// in the text format of Prometheus, as runstone_metrics() returns them in that process. It reports
/// once a second while another process follows the store. `metrics` is null if there is no report,
/// because no process writes to the store or the writer began less than a second ago. `state` may
/// be null. The store must be open for reading.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn runstone_live(
    store: *const runstone_store,
    state: *mut runstone_live_state,
    metrics: *mut runstone_bytes,
) -> runstone_status {
    answer(|| {
        // SAFETY: the caller promises a valid place.
        let place = unsafe { Place::empty("metrics", metrics) }?;
        let Some(told) = runstone_store::get(store)?.live()? else { return Ok(()) };
        if !state.is_null() {
            // SAFETY: the caller promises a valid place.
            unsafe { Place::new("state", state) }?.set(runstone_live_state {
                process: told.process.into(),
                age_ms: u64::try_from(told.age.as_millis()).unwrap_or(u64::MAX),
                is_current: told.is_current(),
            });
        }
        place.set(runstone_bytes::of_text(told.metrics.to_prometheus()));
        Ok(())
    })
}

/// Closes a store: waits for running jobs, writes the data in memory to tables, and releases the
/// directory. Its keyspaces, batches, snapshots and transactions fail with RUNSTONE_CLOSED from
/// then on; a cursor of a keyspace continues to show the moment of its snapshot, and keeps the
/// memory and files that it needs. Close all of these too. A call from a callback of the store is
/// refused with RUNSTONE_INSIDE_CALLBACK, and the store stays open. A null store is not an error.
#[unsafe(no_mangle)]
pub extern "C" fn runstone_close(store: *mut runstone_store) -> runstone_status {
    answer(|| match store.is_null() {
        true => Ok(()),
        false => stores::close(named(store), runstone_keyspace::table()),
    })
}

/// Applies all writes of a batch, or none. The batch keeps them.
#[unsafe(no_mangle)]
pub extern "C" fn runstone_write(
    store: *const runstone_store,
    batch: *const runstone_batch,
    durability: i32,
) -> runstone_status {
    answer(|| {
        let (store, batch) = (runstone_store::get(store)?, runstone_batch::get(batch)?);
        Ok(store.write(&*batch.lock()?, write_options(durability)?)?)
    })
}

/// Makes all completed writes durable, so that they survive a power loss.
#[unsafe(no_mangle)]
pub extern "C" fn runstone_sync(store: *const runstone_store) -> runstone_status {
    answer(|| Ok(runstone_store::get(store)?.sync()?))
}

/// Writes the data in memory to tables.
#[unsafe(no_mangle)]
pub extern "C" fn runstone_flush(store: *const runstone_store) -> runstone_status {
    answer(|| Ok(runstone_store::get(store)?.flush()?))
}

/// Waits until no flush or compaction is running or due.
#[unsafe(no_mangle)]
pub extern "C" fn runstone_wait_idle(store: *const runstone_store) -> runstone_status {
    answer(|| Ok(runstone_store::get(store)?.wait_idle()?))
}

/// Compacts everything. Afterwards, deleted and replaced entries use no space.
#[unsafe(no_mangle)]
pub extern "C" fn runstone_compact(store: *const runstone_store) -> runstone_status {
    answer(|| Ok(runstone_store::get(store)?.compact()?))
}

/// Copies the store, as of now, into a new directory. Tables are hard links where possible. Nothing
/// is flushed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn runstone_checkpoint(
    store: *const runstone_store,
    path: *const c_char,
) -> runstone_status {
    answer(|| {
        // SAFETY: the caller promises valid strings.
        let path = unsafe { text("path", path) }?;
        Ok(runstone_store::get(store)?.checkpoint(path)?)
    })
}

/// Does the same as runstone_checkpoint, and copies the tables too: damage to a file of the store
/// does not reach the copy.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn runstone_checkpoint_copied(
    store: *const runstone_store,
    path: *const c_char,
) -> runstone_status {
    answer(|| {
        // SAFETY: the caller promises valid strings.
        let path = unsafe { text("path", path) }?;
        Ok(runstone_store::get(store)?.checkpoint_copied(path)?)
    })
}

/// Reads every byte of every table and value file, and checks it. `report` gets the amounts read
/// and all damage, as JSON. If there is damage, the status is RUNSTONE_CORRUPTION.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn runstone_verify(
    store: *const runstone_store,
    report: *mut runstone_bytes,
) -> runstone_status {
    answer(|| {
        // SAFETY: the caller promises a valid place.
        let place = unsafe { Place::empty("report", report) }?;
        let found = runstone_store::get(store)?.verify()?;
        let json = serde_json::to_string(&found);
        place.set(runstone_bytes::of_text(json.unwrap_or_default()));
        match found.damage.first() {
            None => Ok(()),
            Some(damage) => Err(Failure::new(
                runstone_boundary::Code::Corruption,
                format!(
                    "{} pieces of damage, the first in {}: {}; {}",
                    found.damage.len(),
                    damage.file,
                    damage.what,
                    runstone::Error::corruption(damage.file.as_str(), 0, "").hint()
                ),
            )),
        }
    })
}

/// The counters, sizes and latencies of the store, in the text format of Prometheus.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn runstone_metrics(
    store: *const runstone_store,
    metrics: *mut runstone_bytes,
) -> runstone_status {
    answer(|| {
        // SAFETY: the caller promises a valid place.
        let place = unsafe { Place::empty("metrics", metrics) }?;
        let store = runstone_store::get(store)?;
        place.set(runstone_bytes::of_text(store.metrics().to_prometheus()));
        Ok(())
    })
}

/// The handle of a keyspace.
fn found(
    store: *const runstone_store,
    find: impl FnOnce(&Store) -> Result<Keyspace>,
) -> Result<*mut runstone_keyspace> {
    let handle = stores::keep_keyspace(named(store), runstone_keyspace::table(), find)?;
    Ok(ptr::without_provenance_mut(handle.get() as usize))
}

/// The keyspace that every store has. Close it with runstone_keyspace_close().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn runstone_default_keyspace(
    store: *const runstone_store,
    keyspace: *mut *mut runstone_keyspace,
) -> runstone_status {
    answer(|| {
        // SAFETY: the caller promises a valid place.
        let place = unsafe { Place::new("keyspace", keyspace) }?;
        place.set(found(store, |store| Ok(store.default_keyspace().clone()))?);
        Ok(())
    })
}

/// Opens the keyspace of this name, or makes it if there is none. `options` is TOML, as `runstone
/// help options` lists it. If the keyspace exists, these options replace its own, unless they are
/// null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn runstone_open_keyspace(
    store: *const runstone_store,
    name: *const c_char,
    options: *const c_char,
    keyspace: *mut *mut runstone_keyspace,
) -> runstone_status {
    answer(|| {
        // SAFETY: the caller promises valid strings and a valid place.
        let (name, options, place) = unsafe {
            let place = Place::new("keyspace", keyspace)?;
            (text("name", name)?, optional_text("options", options)?, place)
        };
        let options = options.map(runstone_boundary::options::of_keyspace).transpose()?;
        place.set(found(store, |store| Ok(store.open_keyspace(name, options)?))?);
        Ok(())
    })
}

/// Opens the keyspace of this name, which must exist.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn runstone_find_keyspace(
    store: *const runstone_store,
    name: *const c_char,
    keyspace: *mut *mut runstone_keyspace,
) -> runstone_status {
    answer(|| {
        // SAFETY: the caller promises valid strings and a valid place.
        let (name, place) = unsafe { (text("name", name)?, Place::new("keyspace", keyspace)?) };
        place.set(found(store, |store| Ok(store.keyspace(name)?))?);
        Ok(())
    })
}

/// Drops a keyspace and its files. Handles to it fail from then on; close them too.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn runstone_drop_keyspace(
    store: *const runstone_store,
    name: *const c_char,
) -> runstone_status {
    answer(|| {
        // SAFETY: the caller promises valid strings.
        let name = unsafe { text("name", name) }?;
        Ok(runstone_store::get(store)?.drop_keyspace(name)?)
    })
}

/// The names of all keyspaces as a JSON list, in the order in which they were made.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn runstone_keyspace_names(
    store: *const runstone_store,
    names: *mut runstone_bytes,
) -> runstone_status {
    answer(|| {
        // SAFETY: the caller promises a valid place.
        let place = unsafe { Place::empty("names", names) }?;
        let json = serde_json::to_string(&runstone_store::get(store)?.keyspaces());
        place.set(runstone_bytes::of_text(json.unwrap_or_default()));
        Ok(())
    })
}

/// Removes the store in a directory: all its files, and no others. The directory stays.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn runstone_destroy(path: *const c_char) -> runstone_status {
    answer(|| {
        // SAFETY: the caller promises valid strings.
        let path = unsafe { text("path", path) }?;
        Ok(Store::destroy(path)?)
    })
}
