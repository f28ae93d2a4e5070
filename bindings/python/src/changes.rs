//! The committed changes of a store, in order.

use std::time::{Duration, Instant};
use std::vec;

use parking_lot::MutexGuard;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use runstone::{ChangesFrom, Options};
use runstone_boundary::alone::Alone;
use runstone_boundary::changes::{
    ChangeKind, ChangeReader, OneChange, OneWrite, Reading, WriteKind, WriteReader,
};
use runstone_boundary::options::of_store;
use runstone_boundary::{Failure, Result};

use crate::backups::{Position, SLICE, place_of, seconds};
use crate::errors::{closed, outcome, wait};
use crate::held::Own;
use crate::programs::{is_inside, mergers};
use crate::store::text_of;

/// Reads the committed changes of a store.
#[pyclass(frozen, module = "runstone")]
pub struct Changes(Own<Alone<Option<ChangeReader>>>);

/// A committed change.
#[pyclass(frozen, module = "runstone")]
pub struct Change(Own<OneChange>);

/// The writes of a change, one after another.
#[pyclass(frozen, module = "runstone")]
pub struct Writes(Own<Alone<Paged>>);

pub struct Paged {
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
    /// For a range, the key before which it ends.
    stop: Option<Py<PyBytes>>,
    /// In seconds since 1970.
    expires: Option<f64>,
    /// Whether a get stored this value, which it had made of many operands.
    folded: bool,
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

/// The options for the state after a gap, if the caller requests it.
fn state_of(
    py: Python<'_>,
    on_gap: &str,
    merge_operators: Option<Bound<'_, PyAny>>,
    options: Option<Bound<'_, PyDict>>,
) -> PyResult<Option<Options>> {
    let refused = match on_gap {
        "state" => {
            let text = options.map(|given| text_of(given.into_any())).transpose()?;
            let mut options = outcome(of_store(&text.unwrap_or_default()))?;
            if let Some(given) = merge_operators {
                let functions = py.import("runstone")?.getattr("_functions")?;
                let given = functions.call1(("merge_operators", given))?;
                options.merge_operators = mergers(given.cast::<PyDict>()?, &mut Vec::new())?;
            }
            return Ok(Some(options));
        }
        "fail" if merge_operators.is_none() && options.is_none() => return Ok(None),
        "fail" => {
            let names = options.map(|given| given.keys().to_string());
            let names = names.unwrap_or_else(|| "merge_operators".to_string());
            format!("{names}: options are for the state behind a gap: give on_gap=\"state\"")
        }
        other => format!("on_gap is \"fail\" or \"state\", not {other:?}"),
    };
    outcome(Err(Failure::invalid(refused)))
}

impl Changes {
    fn with<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut ChangeReader) -> Result<T> + Send,
    ) -> PyResult<T> {
        wait(py, || work(self.reader()?.as_mut().ok_or_else(|| closed("reader of changes"))?))
    }

    /// The reader, once no other thread is using it. A merge operator that the reader runs for the
    /// state would wait for itself, so it does not wait.
    fn reader(&self) -> Result<MutexGuard<'_, Option<ChangeReader>>> {
        let held = self.0.get()?;
        if is_inside() { held.lock() } else { held.wait() }
    }
}

#[pymethods]
impl Changes {
    #[new]
    #[pyo3(signature = (
        store, *, after=None, now=false, everything=false, unsynced=false, on_gap="fail",
        merge_operators=None, **options
    ))]
    #[allow(clippy::too_many_arguments)]
    fn new(
        py: Python<'_>,
        store: &Bound<'_, PyAny>,
        after: Option<Bound<'_, PyAny>>,
        now: bool,
        everything: bool,
        unsynced: bool,
        on_gap: &str,
        merge_operators: Option<Bound<'_, PyAny>>,
        options: Option<Bound<'_, PyDict>>,
    ) -> PyResult<Changes> {
        let store = place_of(store)?;
        let state = state_of(py, on_gap, merge_operators, options)?;
        let from = match after {
            Some(_) if now => {
                return outcome(Err(Failure::invalid("give after or now, not both")));
            }
            _ if everything && (now || after.is_some()) => {
                return outcome(Err(Failure::invalid("give everything alone, not after or now")));
            }
            Some(position) => ChangesFrom::After(position_of(&position)?),
            None if everything => ChangesFrom::Everything,
            None if now => ChangesFrom::Now,
            None => ChangesFrom::Oldest,
        };
        let reading = Reading { from, state, unsynced };
        let reader = wait(py, || ChangeReader::open(store, reading))?;
        Ok(Changes(Own::new(Alone::new(Some(reader)))))
    }

    /// The next change, after at most this many seconds.
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

    /// Neither a second call nor a call in a fork does anything.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        if self.0.is_foreign() {
            return Ok(());
        }
        wait(py, || {
            *self.reader()? = None;
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
            ChangeKind::Gap => "gap",
            ChangeKind::State => "state",
            ChangeKind::GapEnd => "gap-end",
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

    /// For a gap: state follows for keys written after the first number, as of the second.
    #[getter]
    fn gap(&self) -> PyResult<Option<(u64, u64)>> {
        Ok(outcome(self.0.get())?.gap)
    }

    /// Its writes, in order.
    fn __iter__(&self, py: Python<'_>) -> PyResult<Writes> {
        let reader = wait(py, || self.0.get()?.writes())?;
        let paged = Paged { reader, page: Vec::new().into_iter() };
        Ok(Writes(Own::new(Alone::new(paged))))
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
            folded: one.is_folded,
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
