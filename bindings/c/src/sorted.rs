//! Files of sorted entries, for runstone_ingest().

use std::ffi::{c_char, c_void};

use runstone::{KeyspaceOptions, SortedWriter};
use runstone_boundary::options::of_keyspace;
use runstone_boundary::{Code, Failure};

use runstone_boundary::alone::Alone;
use runstone_boundary::handle;
use runstone_boundary::pointers::Kept;

use crate::Result;
use crate::bytes::{Place, optional_text, required, text};
use crate::handles::runstone_sorted_writer;
use crate::status::{answer, runstone_status};

handle!(7 "writer" runstone_sorted_writer: Alone<Option<SortedWriter>>);

fn write(
    handle: *mut runstone_sorted_writer,
    work: impl FnOnce(&mut SortedWriter) -> runstone::Result<()>,
) -> Result<()> {
    let writer = runstone_sorted_writer::get(handle)?;
    let mut writer = writer.lock()?;
    Ok(work(writer.as_mut().ok_or_else(finished)?)?)
}

fn finished() -> Failure {
    Failure::new(Code::Closed, "the file is finished; make another")
}

/// Makes a new file. `options` is null, or the TOML of a keyspace, which decides the layout of the
/// file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn runstone_sorted_writer_create(
    path: *const c_char,
    options: *const c_char,
    writer: *mut *mut runstone_sorted_writer,
) -> runstone_status {
    answer(|| {
        // SAFETY: the caller promises valid strings and a valid place.
        let (path, options, place) = unsafe {
            let place = Place::new("writer", writer)?;
            (text("path", path)?, optional_text("options", options)?, place)
        };
        let options = options.map_or_else(|| Ok(KeyspaceOptions::default()), of_keyspace)?;
        let made = SortedWriter::create(path, &options)?;
        place.keep(Alone::new(Some(made)))
    })
}

/// Adds a value. Its key must be larger than all earlier keys.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn runstone_sorted_writer_put(
    writer: *mut runstone_sorted_writer,
    key: *const c_void,
    key_size: usize,
    value: *const c_void,
    value_size: usize,
) -> runstone_status {
    answer(|| {
        // SAFETY: the caller promises valid bytes.
        let (key, value) =
            unsafe { (required("key", key, key_size)?, required("value", value, value_size)?) };
        write(writer, |writer| writer.put(key, value))
    })
}

/// Adds the deletion of a key, which must be larger than all earlier keys.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn runstone_sorted_writer_delete(
    writer: *mut runstone_sorted_writer,
    key: *const c_void,
    key_size: usize,
) -> runstone_status {
    answer(|| {
        // SAFETY: the caller promises valid bytes.
        let key = unsafe { required("key", key, key_size) }?;
        write(writer, |writer| writer.delete(key))
    })
}

/// Completes the file and makes it durable. `entries` gets the number of its entries.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn runstone_sorted_writer_finish(
    writer: *mut runstone_sorted_writer,
    entries: *mut u64,
) -> runstone_status {
    answer(|| {
        // SAFETY: the caller promises a valid place.
        let place = unsafe { Place::new("entries", entries) }?;
        let writer = runstone_sorted_writer::get(writer)?;
        let writer = writer.lock()?.take().ok_or_else(finished)?;
        place.set(writer.finish()?.entries);
        Ok(())
    })
}

/// Closes a writer. An unfinished file is removed. Null is not an error.
#[unsafe(no_mangle)]
pub extern "C" fn runstone_sorted_writer_close(
    writer: *mut runstone_sorted_writer,
) -> runstone_status {
    answer(|| runstone_sorted_writer::close(writer))
}
