//! Batches: writes that happen together or not at all.

use std::sync::Arc;

use pyo3::prelude::*;
use runstone::Batch;
use runstone_boundary::Result;
use runstone_boundary::alone::Alone;

use crate::bytes::Buffer;
use crate::errors::{outcome, wait};
use crate::held::Family;
use crate::keyspace::{Keyspace, bounds, write_options};

/// Writes that happen together. As a context manager it writes them at the end of the block, unless
/// the block raises.
#[pyclass(frozen, module = "runstone")]
pub struct WriteBatch {
    /// The store. Writes without a keyspace go to its default keyspace.
    family: Arc<Family>,
    batch: Alone<Batch>,
    sync: Option<bool>,
}

impl WriteBatch {
    pub fn new(family: &Arc<Family>, sync: Option<bool>) -> WriteBatch {
        WriteBatch { family: Arc::clone(family), batch: Alone::new(Batch::new()), sync }
    }

    fn add(
        &self,
        keyspace: Option<&Keyspace>,
        work: impl FnOnce(&mut Batch, &runstone::Keyspace) -> Result<()>,
    ) -> PyResult<()> {
        outcome((|| {
            let store = self.family.store()?;
            let mut batch = self.batch.lock()?;
            match keyspace {
                None => work(&mut batch, store.default_keyspace()),
                Some(keyspace) => work(&mut batch, &*keyspace.inner()?),
            }
        })())
    }
}

#[pymethods]
impl WriteBatch {
    #[pyo3(signature = (key, value, *, keyspace=None))]
    fn put(&self, key: Buffer, value: Buffer, keyspace: Option<&Keyspace>) -> PyResult<()> {
        self.add(keyspace, |batch, keyspace| Ok(batch.put(keyspace, &key, &value)?))
    }

    fn __setitem__(&self, key: Buffer, value: Buffer) -> PyResult<()> {
        self.put(key, value, None)
    }

    #[pyo3(signature = (key, *, keyspace=None))]
    fn delete(&self, key: Buffer, keyspace: Option<&Keyspace>) -> PyResult<()> {
        self.add(keyspace, |batch, keyspace| Ok(batch.delete(keyspace, &key)?))
    }

    fn __delitem__(&self, key: Buffer) -> PyResult<()> {
        self.delete(key, None)
    }

    #[pyo3(signature = (key, operand, *, keyspace=None))]
    fn merge(&self, key: Buffer, operand: Buffer, keyspace: Option<&Keyspace>) -> PyResult<()> {
        self.add(keyspace, |batch, keyspace| Ok(batch.merge(keyspace, &key, &operand)?))
    }

    #[pyo3(signature = (start=None, stop=None, *, prefix=None, keyspace=None))]
    fn delete_range(
        &self,
        start: Option<Buffer>,
        stop: Option<Buffer>,
        prefix: Option<Buffer>,
        keyspace: Option<&Keyspace>,
    ) -> PyResult<()> {
        self.add(keyspace, |batch, keyspace| {
            Ok(batch.delete_range(keyspace, bounds(start, stop, prefix)?)?)
        })
    }

    /// Adds the writes of another batch.
    fn append(&self, other: &WriteBatch) -> PyResult<()> {
        outcome((|| {
            self.family.store()?;
            // This copies, because both may be the same.
            let other = other.batch.lock()?.clone();
            Ok(self.batch.lock()?.append(&other)?)
        })())
    }

    /// The approximate size of the batch in the log.
    fn approximate_bytes(&self) -> PyResult<u64> {
        outcome((|| {
            self.family.store()?;
            let batch = self.batch.lock()?;
            // LevelDB's batches begin with twelve bytes.
            Ok(12 + batch.user_bytes() + 4 * batch.len())
        })())
    }

    fn clear(&self) -> PyResult<()> {
        outcome(self.batch.lock())?.clear();
        Ok(())
    }

    fn __len__(&self) -> PyResult<usize> {
        Ok(outcome(self.batch.lock())?.len() as usize)
    }

    /// Writes the collected writes, and removes them unless `clear` is false.
    #[pyo3(signature = (*, clear=true))]
    fn write(&self, py: Python<'_>, clear: bool) -> PyResult<()> {
        wait(py, || {
            let store = self.family.store()?;
            let mut batch = self.batch.lock()?;
            store.write(&batch, write_options(self.sync))?;
            if clear {
                batch.clear();
            }
            Ok(())
        })
    }

    fn __enter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    fn __exit__(
        &self,
        py: Python<'_>,
        kind: &Bound<'_, PyAny>,
        _value: &Bound<'_, PyAny>,
        _trace: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        if kind.is_none() { self.write(py, true) } else { self.clear() }
    }
}
