//! A keyspace, which is a mutable mapping from bytes to bytes.

use std::ops::Bound as End;
use std::sync::Arc;
use std::time::Duration;

use pyo3::exceptions::{PyKeyError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyTuple};
use runstone::{Durability, Value, WriteOptions, prefix_successor};
use runstone_boundary::Result;

use crate::bytes::{Buffer, View};
use crate::errors::wait;
use crate::held::{Family, Held, InUse};
use crate::snapshot::Snapshot;
use crate::walk::{Cursor, Range, Shows, Walk};

/// A keyspace of a store.
#[pyclass(frozen, subclass, mapping, module = "runstone")]
pub struct Keyspace {
    name: String,
    held: Held<runstone::Keyspace>,
}

/// The options of a write.
pub fn write_options(sync: Option<bool>) -> WriteOptions {
    let durability = |sync| if sync { Durability::Sync } else { Durability::Buffered };
    WriteOptions { durability: sync.map(durability) }
}

/// A time to live in seconds.
fn time_to_live(seconds: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(seconds)
        .map_err(|_| PyValueError::new_err(format!("a time to live of {seconds} s is none")))
}

fn bytes<'py>(py: Python<'py>, value: &Value) -> Bound<'py, PyBytes> {
    PyBytes::new(py, value)
}

impl Keyspace {
    pub fn new(keyspace: runstone::Keyspace, family: &Arc<Family>) -> Keyspace {
        Keyspace { name: keyspace.name().to_string(), held: Held::new(keyspace, family) }
    }

    pub fn inner(&self) -> Result<InUse<runstone::Keyspace>> {
        self.held.get()
    }

    /// Whose keyspace it is.
    pub fn family(&self) -> &Arc<Family> {
        self.held.family()
    }

    fn look_up(
        &self,
        py: Python<'_>,
        key: &Buffer,
        snapshot: Option<&Snapshot>,
    ) -> PyResult<Option<Value>> {
        let snapshot = snapshot.map(|at| at.get(py)).transpose()?;
        wait(py, || {
            Ok(match &snapshot {
                None => self.inner()?.get(key)?,
                Some(snapshot) => self.inner()?.get_at(key, snapshot)?,
            })
        })
    }

    fn missing(key: &Buffer) -> PyErr {
        PyKeyError::new_err(key.to_vec())
    }

    fn walk(&self, py: Python<'_>, range: Range, shows: Shows, reverse: bool) -> PyResult<Walk> {
        let keys_only = shows == Shows::Keys;
        let cursor = wait(py, || -> Result<runstone::Cursor> {
            let options = range.options()?;
            Ok(self.inner()?.cursor(if keys_only { options.keys_only() } else { options })?)
        })?;
        Ok(Walk::new(cursor.into(), shows, reverse, self.held.family()))
    }
}

#[pymethods]
impl Keyspace {
    #[getter]
    fn name(&self) -> &str {
        &self.name
    }

    #[pyo3(signature = (key, default=None, *, snapshot=None))]
    fn get<'py>(
        &self,
        py: Python<'py>,
        key: Buffer,
        default: Option<Bound<'py, PyAny>>,
        snapshot: Option<&Snapshot>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        Ok(match self.look_up(py, &key, snapshot)? {
            None => default,
            Some(value) => Some(bytes(py, &value).into_any()),
        })
    }

    fn __getitem__<'py>(&self, py: Python<'py>, key: Buffer) -> PyResult<Bound<'py, PyBytes>> {
        let found = self.look_up(py, &key, None)?;
        found.map(|value| bytes(py, &value)).ok_or_else(|| Keyspace::missing(&key))
    }

    #[pyo3(signature = (key, *, snapshot=None))]
    fn _view(
        &self,
        py: Python<'_>,
        key: Buffer,
        snapshot: Option<&Snapshot>,
    ) -> PyResult<Option<View>> {
        Ok(self.look_up(py, &key, snapshot)?.map(View))
    }

    fn multi_get<'py>(
        &self,
        py: Python<'py>,
        keys: Vec<Buffer>,
    ) -> PyResult<Vec<Option<Bound<'py, PyBytes>>>> {
        let found = wait(py, || Ok(self.inner()?.multi_get(&keys)?))?;
        Ok(found.iter().map(|value| value.as_ref().map(|value| bytes(py, value))).collect())
    }

    #[pyo3(signature = (key, value, *, sync=None, ttl=None))]
    fn put(
        &self,
        py: Python<'_>,
        key: Buffer,
        value: Buffer,
        sync: Option<bool>,
        ttl: Option<f64>,
    ) -> PyResult<()> {
        let (options, ttl) = (write_options(sync), ttl.map(time_to_live).transpose()?);
        wait(py, || {
            let keyspace = self.inner()?;
            match ttl {
                None => keyspace.put_with(&key, &value, options)?,
                Some(ttl) => keyspace.put_with_ttl_with(&key, &value, ttl, options)?,
            }
            Ok(())
        })
    }

    fn __setitem__(&self, py: Python<'_>, key: Buffer, value: Buffer) -> PyResult<()> {
        wait(py, || Ok(self.inner()?.put(&key, &value)?))
    }

    #[pyo3(signature = (key, *, sync=None))]
    fn delete(&self, py: Python<'_>, key: Buffer, sync: Option<bool>) -> PyResult<()> {
        wait(py, || Ok(self.inner()?.delete_with(&key, write_options(sync))?))
    }

    fn __delitem__(&self, py: Python<'_>, key: Buffer) -> PyResult<()> {
        self.take(py, &key)?.map(|_| ()).ok_or_else(|| Keyspace::missing(&key))
    }

    fn __contains__(&self, py: Python<'_>, key: Buffer) -> PyResult<bool> {
        wait(py, || Ok(self.inner()?.contains_key(&key)?))
    }

    /// Counts the keys one by one.
    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        wait(py, || {
            let mut cursor = self.inner()?.cursor(runstone::ReadOptions::default().keys_only())?;
            let mut count = 0;
            cursor.seek_to_first()?;
            while cursor.valid() {
                count += 1;
                cursor.next()?;
            }
            Ok(count)
        })
    }

    fn __bool__(&self, py: Python<'_>) -> PyResult<bool> {
        wait(py, || Ok(!self.inner()?.is_empty()?))
    }

    fn __iter__(&self, py: Python<'_>) -> PyResult<Walk> {
        let range = Range { start: None, stop: None, prefix: None, snapshot: None };
        self.walk(py, range, Shows::Keys, false)
    }

    #[pyo3(signature = (start=None, stop=None, *, prefix=None, reverse=false, snapshot=None))]
    fn keys(
        &self,
        py: Python<'_>,
        start: Option<Buffer>,
        stop: Option<Buffer>,
        prefix: Option<Buffer>,
        reverse: bool,
        snapshot: Option<&Snapshot>,
    ) -> PyResult<Walk> {
        let snapshot = snapshot.map(|at| at.get(py)).transpose()?;
        self.walk(py, Range { start, stop, prefix, snapshot }, Shows::Keys, reverse)
    }

    #[pyo3(signature = (start=None, stop=None, *, prefix=None, reverse=false, snapshot=None))]
    fn values(
        &self,
        py: Python<'_>,
        start: Option<Buffer>,
        stop: Option<Buffer>,
        prefix: Option<Buffer>,
        reverse: bool,
        snapshot: Option<&Snapshot>,
    ) -> PyResult<Walk> {
        let snapshot = snapshot.map(|at| at.get(py)).transpose()?;
        self.walk(py, Range { start, stop, prefix, snapshot }, Shows::Values, reverse)
    }

    #[pyo3(signature = (start=None, stop=None, *, prefix=None, reverse=false, snapshot=None))]
    fn items(
        &self,
        py: Python<'_>,
        start: Option<Buffer>,
        stop: Option<Buffer>,
        prefix: Option<Buffer>,
        reverse: bool,
        snapshot: Option<&Snapshot>,
    ) -> PyResult<Walk> {
        let snapshot = snapshot.map(|at| at.get(py)).transpose()?;
        self.walk(py, Range { start, stop, prefix, snapshot }, Shows::Items, reverse)
    }

    #[pyo3(signature = (start=None, stop=None, *, prefix=None, snapshot=None, fill_cache=true))]
    fn cursor(
        &self,
        py: Python<'_>,
        start: Option<Buffer>,
        stop: Option<Buffer>,
        prefix: Option<Buffer>,
        snapshot: Option<&Snapshot>,
        fill_cache: bool,
    ) -> PyResult<Cursor> {
        let snapshot = snapshot.map(|at| at.get(py)).transpose()?;
        let range = Range { start, stop, prefix, snapshot };
        let cursor =
            wait(py, || Ok(self.inner()?.cursor(range.options()?.fill_cache(fill_cache))?))?;
        Ok(Cursor::new(cursor.into(), self.held.family()))
    }

    #[pyo3(signature = (key, *default))]
    fn pop<'py>(
        &self,
        py: Python<'py>,
        key: Buffer,
        default: &Bound<'py, PyTuple>,
    ) -> PyResult<Bound<'py, PyAny>> {
        match self.take(py, &key)? {
            Some(value) => Ok(bytes(py, &value).into_any()),
            None => default.get_item(0).map_err(|_| Keyspace::missing(&key)),
        }
    }

    fn popitem<'py>(
        &self,
        py: Python<'py>,
    ) -> PyResult<(Bound<'py, PyBytes>, Bound<'py, PyBytes>)> {
        loop {
            let first = wait(py, || Ok(self.inner()?.first_key_value()?))?;
            let Some((key, _)) = first else {
                return Err(PyKeyError::new_err("the keyspace is empty"));
            };
            let found = wait(py, || Ok(self.inner()?.fetch_update(&key, |_| None)?))?;
            // Otherwise somebody else took it.
            if let Some(value) = found {
                return Ok((PyBytes::new(py, &key), bytes(py, &value)));
            }
        }
    }

    fn setdefault<'py>(
        &self,
        py: Python<'py>,
        key: Buffer,
        default: Buffer,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let found = wait(py, || Ok(self.inner()?.put_if_absent(&key, &default)?))?;
        Ok(found.map_or_else(|| PyBytes::new(py, &default), |value| bytes(py, &value)))
    }

    /// Puts all entries of a mapping or of pairs, together.
    fn update(&self, py: Python<'_>, entries: &Bound<'_, PyAny>) -> PyResult<()> {
        let pairs: Vec<(Buffer, Buffer)> = match entries.cast::<PyDict>() {
            Ok(dict) => dict.items().extract()?,
            Err(_) if entries.hasattr("keys")? => entries
                .call_method0("keys")?
                .try_iter()?
                .map(|key| {
                    let key = key?;
                    Ok((key.extract()?, entries.get_item(&key)?.extract()?))
                })
                .collect::<PyResult<_>>()?,
            Err(_) => entries.try_iter()?.map(|pair| pair?.extract()).collect::<PyResult<_>>()?,
        };
        wait(py, || {
            let (keyspace, store) = (self.inner()?, self.held.family().store()?);
            let mut batch = runstone::Batch::new();
            for (key, value) in &pairs {
                batch.put(&keyspace, key, value)?;
            }
            Ok(store.write(&batch, WriteOptions::default())?)
        })
    }

    fn clear(&self, py: Python<'_>) -> PyResult<()> {
        wait(py, || Ok(self.inner()?.clear()?))
    }

    #[pyo3(signature = (start=None, stop=None, *, prefix=None, sync=None))]
    fn delete_range(
        &self,
        py: Python<'_>,
        start: Option<Buffer>,
        stop: Option<Buffer>,
        prefix: Option<Buffer>,
        sync: Option<bool>,
    ) -> PyResult<()> {
        wait(py, || {
            let (start, stop) = bounds(start, stop, prefix)?;
            Ok(self.inner()?.delete_range_with::<Vec<u8>>((start, stop), write_options(sync))?)
        })
    }

    #[pyo3(signature = (key, operand, *, sync=None))]
    fn merge(
        &self,
        py: Python<'_>,
        key: Buffer,
        operand: Buffer,
        sync: Option<bool>,
    ) -> PyResult<()> {
        wait(py, || Ok(self.inner()?.merge_with(&key, &operand, write_options(sync))?))
    }

    #[pyo3(signature = (key, expected, new))]
    fn compare_and_swap(
        &self,
        py: Python<'_>,
        key: Buffer,
        expected: Option<Buffer>,
        new: Option<Buffer>,
    ) -> PyResult<bool> {
        wait(py, || {
            Ok(self.inner()?.compare_and_swap(&key, expected.as_deref(), new.as_deref())?.is_ok())
        })
    }

    #[pyo3(signature = (start=None, stop=None))]
    fn estimate(
        &self,
        py: Python<'_>,
        start: Option<Buffer>,
        stop: Option<Buffer>,
    ) -> PyResult<(u64, u64)> {
        wait(py, || {
            let estimate = self.inner()?.estimate::<Vec<u8>>(bounds(start, stop, None)?)?;
            Ok((estimate.entries, estimate.bytes))
        })
    }

    #[pyo3(signature = (start=None, stop=None))]
    fn compact(&self, py: Python<'_>, start: Option<Buffer>, stop: Option<Buffer>) -> PyResult<()> {
        wait(py, || match (&start, &stop) {
            (None, None) => Ok(self.inner()?.compact()?),
            _ => Ok(self.inner()?.compact_range::<Vec<u8>>(bounds(start, stop, None)?)?),
        })
    }
}

impl Keyspace {
    /// Removes a key, and gives its value.
    fn take(&self, py: Python<'_>, key: &Buffer) -> PyResult<Option<Value>> {
        wait(py, || Ok(self.inner()?.fetch_update(key, |_| None)?))
    }
}

/// Where a range begins and ends.
pub type Bounds = (End<Vec<u8>>, End<Vec<u8>>);

/// The bounds of a range or of a prefix.
pub fn bounds(
    start: Option<Buffer>,
    stop: Option<Buffer>,
    prefix: Option<Buffer>,
) -> Result<Bounds> {
    let Some(prefix) = prefix else {
        let start = start.map_or(End::Unbounded, |key| End::Included(key.to_vec()));
        return Ok((start, stop.map_or(End::Unbounded, |key| End::Excluded(key.to_vec()))));
    };
    if start.is_some() || stop.is_some() {
        let what = "give a prefix, or start and stop, not both";
        return Err(runstone_boundary::Failure::invalid(what));
    }
    let stop = prefix_successor(&prefix).map_or(End::Unbounded, End::Excluded);
    Ok((End::Included(prefix.to_vec()), stop))
}
