//! What was committed to a store, in order.

use std::time::{Duration, Instant};
use std::vec;

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use runstone::ChangesFrom;
use runstone_boundary::alone::Alone;
use runstone_boundary::changes::{
    ChangeKind, ChangeReader, OneChange, OneWrite, WriteKind, WriteReader,
};
use runstone_boundary::{Failure, Result};

use crate::backups::{Position, SLICE, place_of, seconds};
use crate::errors::{closed, outcome, wait};
use crate::held::Own;

/// Reads what is committed to a store.
#[pyclass(frozen, module = "runstone")]
pub struct Changes(Own<Alone<Option<ChangeReader>>>);

/// Something that was committed.
#[pyclass(frozen, module = "runstone")]
pub struct Change(Own<OneChange>);

/// The writes of a change, one after another.
#[pyclass(frozen, module = "runstone")]
pub struct Writes(Own<Alone<Reading>>);

pub struct Reading {
    reader: WriteReader,
    page: vec::IntoIter<OneWrite>,
}

/// A write of a change.
#[pyclass(frozen, get_all, module = "runstone")]
pub struct Write {
    kind: &'static str,
    keyspace: String,
    key: Py<PyBytes>,
    /// The value or operand.
    value: Option<Py<PyBytes>>,
    /// Of a range, the key before which it ends.
    stop: Option<Py<PyBytes>>,
    /// In seconds since 1970.
    expires: Option<f64>,
}

/// A position, or its text.
fn position_of(after: &Bound<'_, PyAny>) -> PyResult<runstone::Position> {
    if let Ok(position) = after.cast::<Position>() {
        return Ok(position.get().0);
    }
    let text: String = after.extract().map_err(|_| {
        PyTypeError::new_err("after is a Position, or its text, such as \"7@0123456789abcdef\"")
    })?;
    outcome(text.parse().map_err(Failure::from))
}

impl Changes {
    fn with<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut ChangeReader) -> Result<T> + Send,
    ) -> PyResult<T> {
        wait(py, || {
            let mut reader = self.0.get()?.wait()?;
            work(reader.as_mut().ok_or_else(|| closed("reader of changes"))?)
        })
    }
}

#[pymethods]
impl Changes {
    #[new]
    #[pyo3(signature = (store, *, after=None, now=false, unsynced=false))]
    fn new(
        py: Python<'_>,
        store: &Bound<'_, PyAny>,
        after: Option<Bound<'_, PyAny>>,
        now: bool,
        unsynced: bool,
    ) -> PyResult<Changes> {
        let store = place_of(store)?;
        let from = match after {
            Some(_) if now => {
                return outcome(Err(Failure::invalid("give after or now, not both")));
            }
            Some(position) => ChangesFrom::After(position_of(&position)?),
            None if now => ChangesFrom::Now,
            None => ChangesFrom::Oldest,
        };
        let reader = wait(py, || Ok(ChangeReader::open(store, from, unsynced)?))?;
        Ok(Changes(Own::new(Alone::new(Some(reader)))))
    }

    /// The next change, after at most so many seconds.
    #[pyo3(signature = (wait=0.0))]
    fn next(&self, py: Python<'_>, wait: f64) -> PyResult<Option<Change>> {
        let most = Duration::try_from_secs_f64(wait).map_err(|_| {
            PyValueError::new_err(format!("wait is a number of seconds from 0 up, not {wait}"))
        })?;
        let began = Instant::now();
        loop {
            let left = most.saturating_sub(began.elapsed());
            let next = self.with(py, |reader| Ok(reader.next(left.min(SLICE))?))?;
            if next.is_some() || left <= SLICE {
                return Ok(next.map(|change| Change(Own::new(change))));
            }
            py.check_signals()?;
        }
    }

    fn __iter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Change>> {
        self.next(py, 0.0)
    }

    #[getter]
    fn position(&self, py: Python<'_>) -> PyResult<Position> {
        self.with(py, |reader| Ok(Position(reader.position())))
    }

    /// A second call does nothing, and neither does one in a fork.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        if self.0.is_foreign() {
            return Ok(());
        }
        wait(py, || {
            *self.0.get()?.wait()? = None;
            Ok(())
        })
    }

    fn __enter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyAny>) -> PyResult<()> {
        self.close(py)
    }
}

#[pymethods]
impl Change {
    #[getter]
    fn position(&self) -> PyResult<Position> {
        Ok(Position(outcome(self.0.get())?.position))
    }

    #[getter]
    fn kind(&self) -> PyResult<&'static str> {
        Ok(match outcome(self.0.get())?.kind {
            ChangeKind::Writes => "writes",
            ChangeKind::Loaded => "loaded",
            ChangeKind::Keyspace => "keyspace",
            ChangeKind::Dropped => "dropped",
            ChangeKind::Keyspaces => "keyspaces",
            ChangeKind::Time => "time",
        })
    }

    /// Names, with the options as TOML if they were made or changed.
    #[getter]
    fn keyspaces(&self) -> PyResult<Vec<(String, Option<String>)>> {
        Ok(outcome(self.0.get())?.keyspaces.clone())
    }

    #[getter]
    fn time(&self) -> PyResult<Option<f64>> {
        Ok(outcome(self.0.get())?.time_ms.map(seconds))
    }

    /// Its writes, in order.
    fn __iter__(&self, py: Python<'_>) -> PyResult<Writes> {
        let reader = wait(py, || self.0.get()?.writes())?;
        let reading = Reading { reader, page: Vec::new().into_iter() };
        Ok(Writes(Own::new(Alone::new(reading))))
    }

    fn __repr__(&self) -> PyResult<String> {
        let (position, kind) = (outcome(self.0.get())?.position, self.kind()?);
        Ok(format!("<runstone.Change {kind} {position}>"))
    }
}

#[pymethods]
impl Writes {
    fn __iter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Write>> {
        let mut held = outcome(self.0.get().and_then(Alone::lock))?;
        let reading = &mut *held;
        let one = match reading.page.next() {
            Some(one) => one,
            None => {
                let more = wait(py, || reading.reader.read())?;
                reading.page = more.unwrap_or_default().into_iter();
                match reading.page.next() {
                    Some(one) => one,
                    None => return Ok(None),
                }
            }
        };
        let bytes = |bytes: &[u8]| PyBytes::new(py, bytes).unbind();
        let second = one.value.as_deref().map(bytes);
        let (value, stop) = match one.kind {
            WriteKind::DeleteRange => (None, second),
            _ => (second, None),
        };
        Ok(Some(Write {
            kind: match one.kind {
                WriteKind::Put => "put",
                WriteKind::Delete => "delete",
                WriteKind::Merge => "merge",
                WriteKind::DeleteRange => "delete-range",
            },
            keyspace: one.keyspace.to_string(),
            key: bytes(&one.key),
            value,
            stop,
            expires: one.expires_ms.map(seconds),
        }))
    }
}

#[pymethods]
impl Write {
    fn __repr__(&self, py: Python<'_>) -> String {
        let key = self.key.as_bytes(py).escape_ascii();
        format!("<runstone.Write {} {}: b\"{key}\">", self.kind, self.keyspace)
    }
}
