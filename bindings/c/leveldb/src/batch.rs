//! Batches. A batch of LevelDB belongs to no database until it is written.

use std::ffi::{c_char, c_void};

use runstone::{Batch, Keyspace};

use runstone_boundary::alone::Alone;
use runstone_boundary::pointers::Kept;
use runstone_boundary::{Failure, handle};

use crate::Result;
use crate::handles::{close, keep, leveldb_writebatch_t};
use crate::memory::{bytes, quietly};

handle!(inherited 4 "batch" leveldb_writebatch_t: Alone<Writes>);

/// The end of the bytes of a write in a batch. They begin where the bytes of the previous write
/// end.
#[derive(Clone, Copy, Debug)]
struct Write {
    key_end: usize,
    /// `None` for a delete.
    value_end: Option<usize>,
}

/// The writes of a batch.
#[derive(Clone, Debug, Default)]
pub struct Writes {
    bytes: Vec<u8>,
    writes: Vec<Write>,
    /// Why a write could not be added. Writing the batch reports this.
    refused: Option<Failure>,
}

impl Writes {
    fn add(&mut self, write: Result<(&[u8], Option<&[u8]>)>) {
        let (key, value) = match write {
            Ok(write) => write,
            Err(failure) => return self.refused = Some(failure),
        };
        self.bytes.extend_from_slice(key);
        let key_end = self.bytes.len();
        self.bytes.extend_from_slice(value.unwrap_or_default());
        let value_end = value.map(|_| self.bytes.len());
        self.writes.push(Write { key_end, value_end });
    }

    /// The keys with their values; `None` for a delete.
    fn all(&self) -> impl Iterator<Item = (&[u8], Option<&[u8]>)> {
        let mut start = 0;
        self.writes.iter().map(move |write| {
            let key = &self.bytes[start..write.key_end];
            let value = write.value_end.map(|end| &self.bytes[write.key_end..end]);
            start = write.value_end.unwrap_or(write.key_end);
            (key, value)
        })
    }

    /// The keys that the batch writes.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &[u8]> {
        self.all().map(|(key, _)| key)
    }

    /// Converts it to a batch for a store.
    pub(crate) fn to_batch(&self, keyspace: &Keyspace) -> Result<Batch> {
        if let Some(failure) = &self.refused {
            return Err(failure.clone());
        }
        let mut batch = Batch::with_capacity(self.bytes.len());
        for (key, value) in self.all() {
            match value {
                Some(value) => batch.put(keyspace, key, value)?,
                None => batch.delete(keyspace, key)?,
            }
        }
        Ok(batch)
    }
}

/// Makes an empty batch.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_writebatch_create() -> *mut leveldb_writebatch_t {
    keep(Alone::new(Writes::default()))
}

/// Frees a batch.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_writebatch_destroy(batch: *mut leveldb_writebatch_t) {
    close(batch);
}

/// Removes all writes of a batch.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_writebatch_clear(batch: *mut leveldb_writebatch_t) {
    quietly((), || {
        let batch = leveldb_writebatch_t::get(batch)?;
        let mut batch = batch.wait()?;
        batch.bytes.clear();
        batch.writes.clear();
        batch.refused = None;
        Ok(())
    });
}

/// Adds a put.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_writebatch_put(
    batch: *mut leveldb_writebatch_t,
    key: *const c_char,
    klen: usize,
    val: *const c_char,
    vlen: usize,
) {
    quietly((), || {
        // SAFETY: the caller promises valid bytes.
        let write = unsafe { bytes(key, klen).and_then(|key| Ok((key, Some(bytes(val, vlen)?)))) };
        leveldb_writebatch_t::get(batch)?.wait()?.add(write);
        Ok(())
    });
}

/// Adds a delete.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_writebatch_delete(
    batch: *mut leveldb_writebatch_t,
    key: *const c_char,
    klen: usize,
) {
    quietly((), || {
        // SAFETY: the caller promises valid bytes.
        let key = unsafe { bytes(key, klen) };
        leveldb_writebatch_t::get(batch)?.wait()?.add(key.map(|key| (key, None)));
        Ok(())
    });
}

/// Calls a function for each write, in order.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_writebatch_iterate(
    batch: *const leveldb_writebatch_t,
    state: *mut c_void,
    put: Option<unsafe extern "C" fn(*mut c_void, *const c_char, usize, *const c_char, usize)>,
    deleted: Option<unsafe extern "C" fn(*mut c_void, *const c_char, usize)>,
) {
    quietly((), || {
        let batch = leveldb_writebatch_t::get(batch)?;
        // A copy, because the functions may use the batch.
        let writes = batch.wait()?.clone();
        for (key, value) in writes.all() {
            let (at, size) = (key.as_ptr().cast(), key.len());
            match (value, put, deleted) {
                // SAFETY: the caller's function; the bytes are valid until it returns.
                (Some(value), Some(put), _) => unsafe {
                    put(state, at, size, value.as_ptr().cast(), value.len());
                },
                // SAFETY: as above.
                (None, _, Some(deleted)) => unsafe { deleted(state, at, size) },
                _ => {}
            }
        }
        Ok(())
    });
}

/// Appends the writes of another batch to those of this one.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_writebatch_append(
    destination: *mut leveldb_writebatch_t,
    source: *const leveldb_writebatch_t,
) {
    quietly((), || {
        let source = leveldb_writebatch_t::get(source)?;
        // A copy, because both batches may be the same.
        let Writes { bytes, writes, refused } = source.wait()?.clone();
        let destination = leveldb_writebatch_t::get(destination)?;
        let mut destination = destination.wait()?;
        let shift = destination.bytes.len();
        destination.refused = destination.refused.take().or(refused);
        destination.bytes.extend_from_slice(&bytes);
        destination.writes.extend(writes.into_iter().map(|write| Write {
            key_end: write.key_end + shift,
            value_end: write.value_end.map(|end| end + shift),
        }));
        Ok(())
    });
}
