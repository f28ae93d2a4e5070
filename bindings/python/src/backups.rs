//! Backups of a store, and the archive of changes between them.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use runstone::{Damage, Moment};
use runstone_boundary::alone::Alone;
use runstone_boundary::backups::{damage_message, newest};
use runstone_boundary::{Code, Failure};

use crate::errors::{closed, outcome, wait};
use crate::held::{Own, Shared};
use crate::store::Store;

/// How long a wait lasts before Python checks for signals and other threads can use the archiver.
pub const SLICE: Duration = Duration::from_millis(100);

/// A directory of backups.
#[pyclass(frozen, module = "runstone")]
pub struct Backups {
    held: Own<Shared<runstone::Backups>>,
    path: PathBuf,
}

/// A backup.
#[pyclass(frozen, eq, get_all, skip_from_py_object, module = "runstone")]
#[derive(Clone, PartialEq)]
pub struct Backup {
    number: u64,
    /// When it was made, in seconds since 1970.
    time: f64,
    last_number: u64,
    tables: u64,
    value_segments: u64,
    bytes: u64,
    added_bytes: u64,
}

/// A part of an archive without a gap.
#[pyclass(frozen, eq, get_all, skip_from_py_object, module = "runstone")]
#[derive(Clone, PartialEq)]
pub struct Archive {
    /// It has every change after this sequence number.
    after_number: u64,
    end: Position,
    begin_time: Option<f64>,
    end_time: Option<f64>,
    bytes: u64,
}

/// The result of a restore to a moment.
#[pyclass(frozen, eq, get_all, skip_from_py_object, module = "runstone")]
#[derive(Clone, PartialEq)]
pub struct Restored {
    backup: u64,
    changes: u64,
    last_number: u64,
}

/// A place in the history of a store.
#[pyclass(frozen, eq, hash, skip_from_py_object, module = "runstone")]
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Position(pub runstone::Position);

/// Appends committed changes to an archive.
#[pyclass(frozen, module = "runstone")]
pub struct Archiver(Own<Alone<Option<runstone::Archiver>>>);

/// The result of a round of archiving.
#[pyclass(frozen, eq, get_all, skip_from_py_object, module = "runstone")]
#[derive(Clone, PartialEq)]
pub struct Archiving {
    changes: u64,
    bytes: u64,
    backup: Option<Backup>,
    lacks: Option<(u64, u64)>,
    is_drained: bool,
}

pub fn seconds(ms: u64) -> f64 {
    ms as f64 / 1000.0
}

impl From<runstone::BackupInfo> for Backup {
    fn from(info: runstone::BackupInfo) -> Backup {
        Backup {
            number: info.number,
            time: seconds(info.time_ms),
            last_number: info.last_seq,
            tables: info.tables,
            value_segments: info.value_segments,
            bytes: info.bytes,
            added_bytes: info.added_bytes,
        }
    }
}

#[pymethods]
impl Backup {
    fn __repr__(&self) -> String {
        let Backup { number, time, last_number, bytes, added_bytes, .. } = self;
        format!(
            "<runstone.Backup {number} time={time} last_number={last_number} bytes={bytes} \
             added_bytes={added_bytes}>"
        )
    }
}

#[pymethods]
impl Archive {
    fn __repr__(&self) -> String {
        let (end, bytes) = (self.end.0, self.bytes);
        format!("<runstone.Archive {} to {end} bytes={bytes}>", self.after_number)
    }
}

#[pymethods]
impl Restored {
    fn __repr__(&self) -> String {
        let Restored { backup, changes, last_number } = self;
        format!("<runstone.Restored backup={backup} changes={changes} last_number={last_number}>")
    }
}

#[pymethods]
impl Archiving {
    fn __repr__(&self) -> String {
        let Archiving { changes, bytes, is_drained, .. } = self;
        let more = if *is_drained { "" } else { " and there is more" };
        let backup = self
            .backup
            .as_ref()
            .map_or(String::new(), |one| format!(" began with {}", one.__repr__()));
        format!("<runstone.Archiving changes={changes} bytes={bytes}{backup}{more}>")
    }
}

#[pymethods]
impl Position {
    /// Makes a position from its text, or from its two parts.
    #[new]
    #[pyo3(signature = (text))]
    fn new(text: &str) -> PyResult<Position> {
        outcome(text.parse().map(Position).map_err(Failure::from))
    }

    #[getter]
    fn number(&self) -> u64 {
        self.0.seq()
    }

    #[getter]
    fn history(&self) -> u64 {
        self.0.history()
    }

    fn __str__(&self) -> String {
        self.0.to_string()
    }

    fn __repr__(&self) -> String {
        format!("runstone.Position('{}')", self.0)
    }
}

/// The directory of a store, given as a path or as the open store.
pub fn place_of(store: &Bound<'_, PyAny>) -> PyResult<PathBuf> {
    match store.cast::<Store>() {
        Ok(open) => Ok(open.get().place()),
        Err(_) => store.extract().map_err(|_| {
            let given = store.repr().map_or_else(|_| String::new(), |text| text.to_string());
            PyTypeError::new_err(format!("store is a path or a Store, not {given}"))
        }),
    }
}

/// A time in seconds since 1970, or a datetime, in milliseconds.
fn moment_of(time: &Bound<'_, PyAny>) -> PyResult<u64> {
    let seconds: f64 = match time.extract() {
        Ok(seconds) => seconds,
        Err(_) => {
            let told = time.call_method0("timestamp").and_then(|told| told.extract());
            told.map_err(|_| {
                PyTypeError::new_err("time is a datetime, or a number of seconds since 1970")
            })?
        }
    };
    let ms = (seconds * 1000.0).round();
    match ms >= 0.0 && ms < u64::MAX as f64 {
        true => Ok(ms as u64),
        false => Err(PyValueError::new_err(format!("time is {seconds} seconds since 1970"))),
    }
}

fn told(damage: &[Damage]) -> runstone_boundary::Result<()> {
    match damage.first() {
        None => Ok(()),
        Some(first) => Err(Failure::new(Code::Corruption, damage_message(damage.len(), first))),
    }
}

impl Backups {
    fn with<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&runstone::Backups) -> runstone_boundary::Result<T> + Send,
    ) -> PyResult<T> {
        wait(py, || match self.held.get()?.get() {
            Ok(backups) => work(&backups),
            Err(_) => Err(closed("directory of backups")),
        })
    }
}

#[pymethods]
impl Backups {
    #[new]
    #[pyo3(signature = (path, *, create=true))]
    fn new(py: Python<'_>, path: PathBuf, create: bool) -> PyResult<Backups> {
        let opened = wait(py, || {
            Ok(match create {
                true => runstone::Backups::open(&path)?,
                false => runstone::Backups::open_existing(&path)?,
            })
        })?;
        Ok(Backups { held: Own::new(Shared::new(opened)), path })
    }

    #[getter]
    fn path(&self) -> PathBuf {
        self.path.clone()
    }

    fn create(&self, py: Python<'_>, store: &Bound<'_, PyAny>) -> PyResult<Backup> {
        let store = place_of(store)?;
        self.with(py, |backups| Ok(backups.create(store)?.into()))
    }

    fn list(&self, py: Python<'_>) -> PyResult<Vec<Backup>> {
        self.with(py, |backups| Ok(backups.list()?.into_iter().map(Backup::from).collect()))
    }

    fn damaged(&self, py: Python<'_>) -> PyResult<Vec<(u64, String)>> {
        self.with(py, |backups| Ok(backups.damaged()?))
    }

    fn archives(&self, py: Python<'_>) -> PyResult<Vec<Archive>> {
        let archive = |info: runstone::ArchiveInfo| Archive {
            after_number: info.from_seq,
            end: Position(info.through),
            begin_time: info.from_ms.map(seconds),
            end_time: info.through_ms.map(seconds),
            bytes: info.bytes,
        };
        self.with(py, |backups| Ok(backups.archives()?.into_iter().map(archive).collect()))
    }

    #[pyo3(signature = (number=None))]
    fn verify(&self, py: Python<'_>, number: Option<u64>) -> PyResult<()> {
        self.with(py, |backups| {
            let number = number.map_or_else(|| newest(backups), Ok)?;
            told(&backups.verify(number)?)
        })
    }

    fn verify_archives(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, |backups| told(&backups.verify_archives()?))
    }

    #[pyo3(signature = (path, number=None))]
    fn restore(&self, py: Python<'_>, path: PathBuf, number: Option<u64>) -> PyResult<()> {
        self.with(py, |backups| {
            let number = number.map_or_else(|| newest(backups), Ok)?;
            Ok(backups.restore(number, path)?)
        })
    }

    #[pyo3(signature = (path, *, time=None, number=None, position=None))]
    fn restore_to(
        &self,
        py: Python<'_>,
        path: PathBuf,
        time: Option<Bound<'_, PyAny>>,
        number: Option<u64>,
        position: Option<&Position>,
    ) -> PyResult<Restored> {
        let moment = match (time, number, position) {
            (None, None, None) => Moment::End,
            (None, Some(number), None) => Moment::Number(number),
            (None, None, Some(position)) => Moment::Position(position.0),
            (Some(time), None, None) => Moment::Time(moment_of(&time)?),
            _ => {
                let what = "give one of a time, a number and a position";
                return outcome(Err(Failure::invalid(what)));
            }
        };
        let made = self.with(py, |backups| Ok(backups.restore_to(moment, path)?))?;
        Ok(Restored { backup: made.backup, changes: made.changes, last_number: made.last_seq })
    }

    fn prune(&self, py: Python<'_>, keep: usize) -> PyResult<u64> {
        self.with(py, |backups| Ok(backups.prune(keep)?))
    }

    fn archive(&self, py: Python<'_>, store: &Bound<'_, PyAny>) -> PyResult<Archiver> {
        let store = place_of(store)?;
        let begun = self.with(py, |backups| Ok(backups.archive(store)?))?;
        Ok(Archiver(Own::new(Alone::new(Some(begun)))))
    }

    /// Ends the use of the directory. A second call does nothing.
    fn close(&self) {
        if let Ok(held) = self.held.get() {
            held.end();
        }
    }

    fn __enter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, _exception: &Bound<'_, PyAny>) {
        self.close();
    }
}

impl Archiver {
    fn with<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut runstone::Archiver) -> runstone::Result<T> + Send,
    ) -> PyResult<T> {
        wait(py, || {
            let mut archiver = self.0.get()?.wait()?;
            Ok(work(archiver.as_mut().ok_or_else(|| closed("archiver"))?)?)
        })
    }
}

#[pymethods]
impl Archiver {
    #[pyo3(signature = (wait=0.0))]
    fn advance(&self, py: Python<'_>, wait: f64) -> PyResult<Archiving> {
        let most = Duration::try_from_secs_f64(wait).map_err(|_| {
            PyValueError::new_err(format!("wait is a number of seconds from 0 up, not {wait}"))
        })?;
        let began = Instant::now();
        loop {
            let left = most.saturating_sub(began.elapsed());
            let round = self.with(py, |archiver| archiver.advance(left.min(SLICE)))?;
            if round.changes > 0 || round.based.is_some() || left <= SLICE {
                let lacks = round.based.as_ref().and_then(|based| based.lacks);
                return Ok(Archiving {
                    changes: round.changes,
                    bytes: round.bytes,
                    is_drained: round.is_drained,
                    backup: round.based.map(|based| based.backup.into()),
                    lacks,
                });
            }
            py.check_signals()?;
        }
    }

    #[getter]
    fn position(&self, py: Python<'_>) -> PyResult<Position> {
        self.with(py, |archiver| Ok(Position(archiver.position())))
    }

    /// Neither a second call nor a call in a fork does anything.
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
