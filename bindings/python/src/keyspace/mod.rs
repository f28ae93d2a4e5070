//! A keyspace, which is a mutable mapping from bytes to bytes.

pub mod views;

use std::ops::Bound as End;
use std::sync::Arc;
use std::time::Duration;

use pyo3::exceptions::{PyKeyError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBool, PyBytes, PyDict, PyTuple, PyType};
use runstone::{Durability, ReadOptions, Value, WriteOptions, prefix_successor};
use runstone_boundary::Result;
use runstone_boundary::stores::Moment;

use crate::bytes::{Buffer, View};
use crate::errors::wait;
use crate::held::{Family, Held, InUse, Shared};
use crate::snapshot::Snapshot;
use crate::walk::{Cursor, Range, Shows, Walk};
use views::{
    EntriesView, Given, Items, Keys, Values, count, default_of, equals_keyspace, equals_mapping,
};

/// A keyspace of a store.
#[pyclass(frozen, subclass, mapping, module = "runstone")]
pub struct Keyspace {
    name: String,
    held: Held<Shared<runstone::Keyspace>>,
}

/// The options of a write.
pub fn write_options(sync: Option<bool>) -> WriteOptions {
    let durability = |sync| if sync { Durability::Sync } else { Durability::Buffered };
    WriteOptions::default().durability(sync.map(durability))
}

/// A time to live in seconds.
fn time_to_live(seconds: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(seconds).map_err(|_| {
        PyValueError::new_err(format!("ttl is a number of seconds from 0 up, not {seconds}"))
    })
}

fn bytes<'py>(py: Python<'py>, value: &Value) -> Bound<'py, PyBytes> {
    PyBytes::new(py, value)
}

/// A key and its value.
type Pair<'py> = (Bound<'py, PyBytes>, Bound<'py, PyBytes>);

fn pair<'py>(py: Python<'py>, (key, value): &(Vec<u8>, Value)) -> Pair<'py> {
    (PyBytes::new(py, key), bytes(py, value))
}

impl Keyspace {
    pub fn new(keyspace: runstone::Keyspace, family: &Arc<Family>) -> Keyspace {
        Keyspace {
            name: keyspace.name().to_string(),
            held: Held::new(Shared::new(keyspace), family),
        }
    }

    pub fn inner(&self) -> Result<InUse<runstone::Keyspace>> {
        self.held.get()?.get()
    }

    /// The store of the keyspace.
    pub fn family(&self) -> &Arc<Family> {
        self.held.family()
    }

    /// The value of a key, at a snapshot or now.
    pub fn look_up(
        &self,
        py: Python<'_>,
        key: &[u8],
        snapshot: Option<Moment>,
    ) -> PyResult<Option<Value>> {
        wait(py, || {
            let own = self.inner()?;
            Ok(match &snapshot {
                None => own.get(key)?,
                Some(at) => at.keyspace(&own)?.get_at(key, &at.snapshot)?,
            })
        })
    }

    /// A cursor, at a snapshot or now.
    pub fn cursor_at(
        &self,
        options: ReadOptions,
        snapshot: Option<&Moment>,
    ) -> Result<runstone::Cursor> {
        let own = self.inner()?;
        Ok(match snapshot {
            None => own.cursor(options)?,
            Some(at) => at.keyspace(&own)?.cursor(options.at(&at.snapshot))?,
        })
    }

    /// Whether both are the same keyspace of the same store.
    fn is_same(&self, other: &Keyspace) -> bool {
        let ids = (self.inner().map(|own| own.id()), other.inner().map(|other| other.id()));
        Arc::ptr_eq(self.family(), other.family())
            && matches!(ids, (Ok(own), Ok(other)) if own == other)
    }

    fn missing(key: &Buffer) -> PyErr {
        PyKeyError::new_err(key.to_vec())
    }

    fn all_keys(&self, py: Python<'_>, is_reverse: bool) -> PyResult<Walk> {
        let options = ReadOptions::default().keys_only();
        let cursor = wait(py, || Ok(self.inner()?.cursor(options)?))?;
        Ok(Walk::new(cursor.into(), Shows::Keys, is_reverse, self.held.family()))
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
        let snapshot = snapshot.map(|at| at.get(py)).transpose()?;
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
        let snapshot = snapshot.map(|at| at.get(py)).transpose()?;
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
            Ok(keyspace.put_with(&key, &value, ttl.map_or(options, |ttl| options.ttl(ttl)))?)
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
        let options = ReadOptions::default().keys_only();
        count(py, wait(py, || Ok(self.inner()?.cursor(options)?))?)
    }

    fn __bool__(&self, py: Python<'_>) -> PyResult<bool> {
        wait(py, || Ok(!self.inner()?.is_empty()?))
    }

    fn __iter__(&self, py: Python<'_>) -> PyResult<Walk> {
        self.all_keys(py, false)
    }

    fn __reversed__(&self, py: Python<'_>) -> PyResult<Walk> {
        self.all_keys(py, true)
    }

    /// Whether another mapping has the same entries.
    fn __eq__<'py>(
        this: &Bound<'py, Self>,
        other: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = this.py();
        let is_same = match other.cast::<Keyspace>() {
            Ok(other) => {
                this.get().is_same(other.get()) || { equals_keyspace(py, this.get(), other.get())? }
            }
            Err(_) if is_mapping(other)? => equals_mapping(this.get(), other)?,
            Err(_) => return Ok(py.NotImplemented().into_bound(py)),
        };
        Ok(PyBool::new(py, is_same).to_owned().into_any())
    }

    #[pyo3(signature = (start=None, stop=None, *, prefix=None, reverse=false, snapshot=None))]
    fn keys<'py>(
        this: &Bound<'py, Self>,
        start: Option<Buffer>,
        stop: Option<Buffer>,
        prefix: Option<Buffer>,
        reverse: bool,
        snapshot: Option<Bound<'py, Snapshot>>,
    ) -> PyResult<Bound<'py, Keys>> {
        let given = Given { start, stop, prefix, is_reverse: reverse, snapshot };
        let view = EntriesView::new(this, Shows::Keys, given)?;
        Bound::new(this.py(), PyClassInitializer::from(view).add_subclass(Keys))
    }

    #[pyo3(signature = (start=None, stop=None, *, prefix=None, reverse=false, snapshot=None))]
    fn values<'py>(
        this: &Bound<'py, Self>,
        start: Option<Buffer>,
        stop: Option<Buffer>,
        prefix: Option<Buffer>,
        reverse: bool,
        snapshot: Option<Bound<'py, Snapshot>>,
    ) -> PyResult<Bound<'py, Values>> {
        let given = Given { start, stop, prefix, is_reverse: reverse, snapshot };
        let view = EntriesView::new(this, Shows::Values, given)?;
        Bound::new(this.py(), PyClassInitializer::from(view).add_subclass(Values))
    }

    #[pyo3(signature = (start=None, stop=None, *, prefix=None, reverse=false, snapshot=None))]
    fn items<'py>(
        this: &Bound<'py, Self>,
        start: Option<Buffer>,
        stop: Option<Buffer>,
        prefix: Option<Buffer>,
        reverse: bool,
        snapshot: Option<Bound<'py, Snapshot>>,
    ) -> PyResult<Bound<'py, Items>> {
        let given = Given { start, stop, prefix, is_reverse: reverse, snapshot };
        let view = EntriesView::new(this, Shows::Items, given)?;
        Bound::new(this.py(), PyClassInitializer::from(view).add_subclass(Items))
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
        let range = Range { start, stop, prefix };
        let cursor = wait(py, || {
            self.cursor_at(range.options()?.fill_cache(fill_cache), snapshot.as_ref())
        })?;
        Ok(Cursor::new(cursor.into(), self.held.family()))
    }

    #[pyo3(signature = (key, *given, **named))]
    fn pop<'py>(
        &self,
        py: Python<'py>,
        key: Buffer,
        given: &Bound<'py, PyTuple>,
        named: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let default = default_of(given, named)?;
        match self.take(py, &key)? {
            Some(value) => Ok(bytes(py, &value).into_any()),
            None => default.ok_or_else(|| Keyspace::missing(&key)),
        }
    }

    fn popitem<'py>(&self, py: Python<'py>) -> PyResult<Pair<'py>> {
        let first = self.pop_first(py, None)?;
        first.ok_or_else(|| PyKeyError::new_err("the keyspace is empty"))
    }

    #[pyo3(signature = (*, sync=None))]
    fn pop_first<'py>(&self, py: Python<'py>, sync: Option<bool>) -> PyResult<Option<Pair<'py>>> {
        let taken = wait(py, || Ok(self.inner()?.pop_first_with(write_options(sync))?))?;
        Ok(taken.map(|entry| pair(py, &entry)))
    }

    #[pyo3(signature = (*, sync=None))]
    fn pop_last<'py>(&self, py: Python<'py>, sync: Option<bool>) -> PyResult<Option<Pair<'py>>> {
        let taken = wait(py, || Ok(self.inner()?.pop_last_with(write_options(sync))?))?;
        Ok(taken.map(|entry| pair(py, &entry)))
    }

    #[pyo3(signature = (start=None, stop=None, *, most, prefix=None, sync=None))]
    fn drain<'py>(
        &self,
        py: Python<'py>,
        start: Option<Buffer>,
        stop: Option<Buffer>,
        most: usize,
        prefix: Option<Buffer>,
        sync: Option<bool>,
    ) -> PyResult<Vec<Pair<'py>>> {
        let taken = wait(py, || {
            let range = bounds(start, stop, prefix)?;
            Ok(self.inner()?.drain_with(range, most, write_options(sync))?)
        })?;
        Ok(taken.iter().map(|entry| pair(py, entry)).collect())
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
    #[pyo3(signature = (entries=None))]
    fn update(&self, py: Python<'_>, entries: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        let Some(entries) = entries else { return Ok(()) };
        let pairs = pairs(entries).map_err(|error| {
            let is_type = error.is_instance_of::<PyTypeError>(py);
            let what = format!("entries must be a mapping or pairs of bytes: {}", error.value(py));
            if is_type { PyTypeError::new_err(what) } else { error }
        })?;
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
            Ok(self.inner()?.delete_range_with((start, stop), write_options(sync))?)
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

    #[pyo3(signature = (key, expected, new, *, sync=None, ttl=None))]
    fn compare_and_swap(
        &self,
        py: Python<'_>,
        key: Buffer,
        expected: Option<Buffer>,
        new: Option<Buffer>,
        sync: Option<bool>,
        ttl: Option<f64>,
    ) -> PyResult<bool> {
        let (options, ttl) = (write_options(sync), ttl.map(time_to_live).transpose()?);
        let options = ttl.map_or(options, |ttl| options.ttl(ttl));
        wait(py, || {
            let (expected, new) = (expected.as_deref(), new.as_deref());
            Ok(self.inner()?.compare_and_swap_with(&key, expected, new, options)?.is_ok())
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
            let estimate = self.inner()?.estimate(bounds(start, stop, None)?)?;
            Ok((estimate.entries, estimate.bytes))
        })
    }

    #[pyo3(signature = (start=None, stop=None))]
    fn compact(&self, py: Python<'_>, start: Option<Buffer>, stop: Option<Buffer>) -> PyResult<()> {
        wait(py, || match (&start, &stop) {
            (None, None) => Ok(self.inner()?.compact()?),
            _ => Ok(self.inner()?.compact_range(bounds(start, stop, None)?)?),
        })
    }
}

/// The entries of a mapping, or pairs.
fn pairs(entries: &Bound<'_, PyAny>) -> PyResult<Vec<(Buffer, Buffer)>> {
    match entries.cast::<PyDict>() {
        Ok(dict) => dict.items().extract(),
        Err(_) if entries.hasattr("keys")? => entries
            .call_method0("keys")?
            .try_iter()?
            .map(|key| {
                let key = key?;
                Ok((key.extract()?, entries.get_item(&key)?.extract()?))
            })
            .collect(),
        Err(_) => entries.try_iter()?.map(|pair| pair?.extract()).collect(),
    }
}

fn is_mapping(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    if object.is_instance_of::<PyDict>() {
        return Ok(true);
    }
    static MAPPING: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    object.is_instance(MAPPING.import(object.py(), "collections.abc", "Mapping")?)
}

impl Keyspace {
    /// Removes a key, and returns its value.
    fn take(&self, py: Python<'_>, key: &Buffer) -> PyResult<Option<Value>> {
        wait(py, || Ok(self.inner()?.fetch_update(key, |_| None)?))
    }
}

/// The begin and the end of a range.
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
