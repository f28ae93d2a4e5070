//! The results of `keys`, `values` and `items` of a keyspace: views, like those of a dict, over a
//! range.
//!
//! A view shows the keyspace as it is when the view is used: `len`, `in`, and each `iter` begin
//! again. After a step, a seek or `with` on the view itself, the view is an iterator, and `iter`
//! continues it. The operations of sets are those of `collections.abc.Set`, which Python adds.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyTuple};
use runstone::{Cursor, ReadOptions, prefix_successor};
use runstone_boundary::Result;
use runstone_boundary::stores::Moment;

use super::Keyspace;
use crate::bytes::Buffer;
use crate::errors::{closed, outcome, wait};
use crate::snapshot::Snapshot;
use crate::walk::{Shows, Walk};

/// A view of the entries of a range.
#[pyclass(frozen, subclass, module = "runstone")]
pub struct EntriesView {
    keyspace: Py<Keyspace>,
    start: Option<Vec<u8>>,
    stop: Option<Vec<u8>>,
    snapshot: Option<Py<Snapshot>>,
    shows: Shows,
    is_reverse: bool,
    /// The iterator that the view itself has become.
    own: PyOnceLock<Py<Walk>>,
    is_closed: AtomicBool,
}

/// A view of keys.
#[pyclass(frozen, extends = EntriesView, module = "runstone")]
pub struct Keys;

/// A view of values.
#[pyclass(frozen, extends = EntriesView, module = "runstone")]
pub struct Values;

/// A view of keys with their values.
#[pyclass(frozen, extends = EntriesView, module = "runstone")]
pub struct Items;

/// The arguments of a range.
pub struct Given<'py> {
    pub start: Option<Buffer>,
    pub stop: Option<Buffer>,
    pub prefix: Option<Buffer>,
    pub is_reverse: bool,
    pub snapshot: Option<Bound<'py, Snapshot>>,
}

impl EntriesView {
    /// A view, if its arguments are valid.
    pub fn new(keyspace: &Bound<'_, Keyspace>, shows: Shows, given: Given<'_>) -> PyResult<Self> {
        let py = keyspace.py();
        let (mut start, mut stop) = (given.start, given.stop.map(|stop| stop.to_vec()));
        if let Some(prefix) = given.prefix {
            if start.is_some() || stop.is_some() {
                let what = "give a prefix, or start and stop, not both";
                outcome(Err(runstone_boundary::Failure::invalid(what)))?;
            }
            stop = prefix_successor(&prefix);
            start = Some(prefix);
        }
        let view = EntriesView {
            keyspace: keyspace.clone().unbind(),
            start: start.map(|start| start.to_vec()),
            stop,
            snapshot: given.snapshot.map(Bound::unbind),
            shows,
            is_reverse: given.is_reverse,
            own: PyOnceLock::new(),
            is_closed: AtomicBool::new(false),
        };
        match (&view.start, &view.stop) {
            // The store reports the error.
            (Some(start), Some(stop)) if stop < start => drop(view.cursor(py)?),
            _ => {
                outcome(keyspace.get().inner())?;
                if let Some(snapshot) = &view.snapshot {
                    snapshot.get().get(py)?;
                }
            }
        }
        Ok(view)
    }

    fn options(&self) -> ReadOptions {
        let options = ReadOptions::default();
        let options = options.with_bounds(self.start.as_deref(), self.stop.as_deref());
        if self.shows == Shows::Keys { options.keys_only() } else { options }
    }

    fn moment(&self, py: Python<'_>) -> PyResult<Option<Moment>> {
        self.snapshot.as_ref().map(|at| at.get().get(py)).transpose()
    }

    fn cursor(&self, py: Python<'_>) -> PyResult<Cursor> {
        let (options, moment) = (self.options(), self.moment(py)?);
        wait(py, || self.keyspace.get().cursor_at(options, moment.as_ref()))
    }

    fn walk(&self, py: Python<'_>, is_reverse: bool) -> PyResult<Walk> {
        let family = self.keyspace.get().family();
        Ok(Walk::new(self.cursor(py)?.into(), self.shows, is_reverse, family))
    }

    /// The view as an iterator.
    fn own(&self, py: Python<'_>) -> PyResult<&Py<Walk>> {
        if self.is_closed.load(Relaxed) {
            outcome(Err(closed("iterator")))?;
        }
        self.own.get_or_try_init(py, || Py::new(py, self.walk(py, self.is_reverse)?))
    }

    fn get(&self, py: Python<'_>, key: &[u8]) -> PyResult<Option<runstone::Value>> {
        let is_inside = self.start.as_deref().is_none_or(|start| key >= start)
            && self.stop.as_deref().is_none_or(|stop| key < stop);
        if !is_inside {
            return Ok(None);
        }
        let snapshot = self.moment(py)?;
        self.keyspace.get().look_up(py, key, snapshot)
    }
}

#[pymethods]
impl EntriesView {
    fn __iter__(&self, py: Python<'_>) -> PyResult<Py<Walk>> {
        match self.own.get(py) {
            Some(_) => Ok(self.own(py)?.clone_ref(py)),
            None if self.is_closed.load(Relaxed) => Ok(self.own(py)?.clone_ref(py)),
            None => Py::new(py, self.walk(py, self.is_reverse)?),
        }
    }

    fn __reversed__(&self, py: Python<'_>) -> PyResult<Walk> {
        self.walk(py, !self.is_reverse)
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.own(py)?.get().step(py)
    }

    fn seek(&self, py: Python<'_>, key: Buffer) -> PyResult<()> {
        self.own(py)?.get().seek(py, key)
    }

    /// Counts the entries one by one.
    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        let (options, moment) = (self.options().keys_only(), self.moment(py)?);
        count(py, wait(py, || self.keyspace.get().cursor_at(options, moment.as_ref()))?)
    }

    fn __bool__(&self, py: Python<'_>) -> PyResult<bool> {
        let mut cursor = self.cursor(py)?;
        wait(py, || {
            cursor.seek_to_first()?;
            Ok(cursor.valid())
        })
    }

    fn __contains__(&self, py: Python<'_>, sought: &Bound<'_, PyAny>) -> PyResult<bool> {
        match self.shows {
            Shows::Items => {
                let Ok(pair) = sought.cast::<PyTuple>() else { return Ok(false) };
                let Ok((key, value)) = pair.extract::<(Buffer, Bound<'_, PyAny>)>() else {
                    return Ok(false);
                };
                let Some(found) = self.get(py, &key)? else { return Ok(false) };
                PyBytes::new(py, &found).as_any().eq(value)
            }
            Shows::Values => {
                let walk = self.walk(py, false)?;
                while let Some(value) = walk.step(py)? {
                    py.check_signals()?;
                    if value.eq(sought)? {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
            _ => Ok(self.get(py, &sought.extract::<Buffer>()?)?.is_some()),
        }
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        let kind = match self.shows {
            Shows::Values => "values",
            Shows::Items => "items",
            _ => "keys",
        };
        let bound = |key: &Option<Vec<u8>>| match key {
            None => "None".to_string(),
            Some(key) => PyBytes::new(py, key).to_string(),
        };
        let (start, stop) = (bound(&self.start), bound(&self.stop));
        format!("<runstone {kind} from {start} to {stop}>")
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.is_closed.store(true, Relaxed);
        self.own.get(py).map_or(Ok(()), |walk| walk.get().close(py))
    }

    fn __enter__<'py>(this: Bound<'py, Self>) -> PyResult<Bound<'py, Self>> {
        this.get().own(this.py())?;
        Ok(this)
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyAny>) -> PyResult<()> {
        self.close(py)
    }
}

/// How many entries are read before Python checks for signals: a `KeyboardInterrupt` waits for at
/// most that many.
const SLICE_ENTRIES: usize = 16 << 10;

/// The number of entries that a cursor shows.
pub fn count(py: Python<'_>, mut cursor: Cursor) -> PyResult<usize> {
    wait(py, || Ok(cursor.seek_to_first()?))?;
    let mut count = 0;
    while cursor.valid() {
        wait(py, || {
            let end = count + SLICE_ENTRIES;
            while cursor.valid() && count < end {
                count += 1;
                cursor.next()?;
            }
            Ok(())
        })?;
        py.check_signals()?;
    }
    Ok(count)
}

/// Whether a keyspace has the entries of a mapping. The comparison stops at the first entry that
/// differs or that only the keyspace has, so comparing with a small mapping is cheap, however large
/// the keyspace is.
pub fn equals_mapping(keyspace: &Keyspace, other: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = other.py();
    let mut left = other.len()?;
    let cursor = wait(py, || Ok(keyspace.inner()?.cursor(ReadOptions::default())?))?;
    let walk = Walk::new(cursor.into(), Shows::Items, false, keyspace.family());
    while let Some(entry) = walk.step(py)? {
        py.check_signals()?;
        let (key, value): (Bound<'_, PyAny>, Bound<'_, PyAny>) = entry.extract()?;
        if left == 0 || !other.contains(&key)? || !other.get_item(&key)?.eq(&value)? {
            return Ok(false);
        }
        left -= 1;
    }
    Ok(left == 0)
}

/// Whether two keyspaces have the same entries. The comparison stops at the first that differs.
pub fn equals_keyspace(py: Python<'_>, one: &Keyspace, other: &Keyspace) -> PyResult<bool> {
    let first = |keyspace: &Keyspace| -> Result<Cursor> {
        let mut cursor = keyspace.inner()?.cursor(ReadOptions::default())?;
        cursor.seek_to_first()?;
        Ok(cursor)
    };
    let (mut one, mut other) = wait(py, || Ok((first(one)?, first(other)?)))?;
    while one.valid() && other.valid() {
        let is_same = wait(py, || {
            for _ in 0..SLICE_ENTRIES {
                if !one.valid() || !other.valid() {
                    break;
                }
                if one.key() != other.key() || one.value() != other.value() {
                    return Ok(false);
                }
                one.next()?;
                other.next()?;
            }
            Ok(true)
        })?;
        if !is_same {
            return Ok(false);
        }
        py.check_signals()?;
    }
    Ok(!one.valid() && !other.valid())
}

/// The default of `pop`, which may be given by name; `None` if there is none.
pub fn default_of<'py>(
    given: &Bound<'py, PyTuple>,
    named: Option<&Bound<'py, pyo3::types::PyDict>>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let named_default = match named {
        None => None,
        Some(named) => named.get_item("default")?,
    };
    let others = named.map_or(0, |named| named.len()) - usize::from(named_default.is_some());
    if others > 0 || given.len() + usize::from(named_default.is_some()) > 1 {
        return Err(PyTypeError::new_err("pop takes a key and one more argument, 'default'"));
    }
    Ok(named_default.or(given.get_item(0).ok()))
}
