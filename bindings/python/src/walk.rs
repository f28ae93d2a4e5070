//! Iterators, and cursors that move both ways.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};
use runstone::ReadOptions;
use runstone_boundary::alone::Alone;
use runstone_boundary::cursors::AnyCursor;
use runstone_boundary::transactions::Move;
use runstone_boundary::{Code, Failure, Result};

use crate::bytes::Buffer;
use crate::errors::{closed, outcome, wait};
use crate::held::{Family, Held, LetGo};
use crate::page::{FIRST_ENTRIES, MOST_BYTES, Page, more};

/// The part of an entry that an iterator shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shows {
    Keys,
    Values,
    Items,
    Nothing,
}

impl Shows {
    /// Adds the shown parts of an entry to a page.
    #[inline]
    pub fn keep(self, page: &mut Page, key: &[u8], value: &[u8]) {
        match self {
            Shows::Keys => page.push(key, &[]),
            Shows::Values => page.push(&[], value),
            Shows::Items => page.push(key, value),
            Shows::Nothing => page.push(&[], &[]),
        }
    }

    /// An entry of a page as Python objects.
    #[inline]
    pub fn show<'py>(self, py: Python<'py>, (key, value): (&[u8], &[u8])) -> Shown<'py> {
        match self {
            Shows::Keys => Shown::One(PyBytes::new(py, key).into_any()),
            Shows::Values => Shown::One(PyBytes::new(py, value).into_any()),
            Shows::Items => Shown::Pair([PyBytes::new(py, key), PyBytes::new(py, value)]),
            Shows::Nothing => Shown::One(py.None().into_bound(py)),
        }
    }
}

/// An entry that is not a tuple yet. A thread that holds the lock of an iterator makes only this:
/// making a tuple may start Python's collector, and a `__del__` that closes the store waits for
/// that lock. Making bytes does not start the collector.
pub enum Shown<'py> {
    One(Bound<'py, PyAny>),
    Pair([Bound<'py, PyBytes>; 2]),
}

impl<'py> Shown<'py> {
    /// The object. The caller holds no lock.
    #[inline]
    pub fn object(self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        match self {
            Shown::One(one) => Ok(one),
            Shown::Pair(pair) => Ok(PyTuple::new(py, pair)?.into_any()),
        }
    }
}

/// A range of keys.
pub struct Range {
    pub start: Option<Buffer>,
    pub stop: Option<Buffer>,
    pub prefix: Option<Buffer>,
}

impl Range {
    /// The options of a cursor.
    pub fn options(&self) -> Result<ReadOptions> {
        let (start, stop) = (self.start.as_deref(), self.stop.as_deref());
        let options = match &self.prefix {
            None => ReadOptions::default().with_bounds(start, stop),
            Some(prefix) if start.is_none() && stop.is_none() => {
                ReadOptions::default().with_prefix(prefix)
            }
            Some(_) => {
                let what = "give a prefix, or start and stop, not both";
                return Err(Failure::new(Code::InvalidArgument, what));
            }
        };
        Ok(options)
    }
}

struct Steps {
    /// `None` once it is closed.
    place: Option<AnyCursor>,
    page: Page,
    /// The number of entries of the next page.
    size: usize,
    /// The move to the next page; `None` at the end.
    onward: Option<Move<'static>>,
    /// The error after the page, which is raised instead of reading the next page.
    failure: Option<Failure>,
}

impl Steps {
    fn close(&mut self) {
        self.place = None;
        self.page.clear();
    }

    /// Reads a page after the move `to`. That may wait, so other threads may run during the read.
    /// The Python objects are made from the page later.
    fn fill(&mut self, to: Option<Move<'_>>, step: Move<'static>, shows: Shows) -> Result<()> {
        let place = self.place.as_mut().ok_or_else(|| closed("iterator"))?;
        self.page.clear();
        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }
        let Some(mut to) = to else { return Ok(()) };
        self.onward = Some(step);
        while self.page.len() < self.size && self.page.bytes() < MOST_BYTES {
            match place.go(to) {
                Err(failure) if self.page.is_empty() => return Err(failure),
                Err(failure) => {
                    self.failure = Some(failure);
                    break;
                }
                Ok(()) => {}
            }
            let Some((key, value)) = place.entry() else {
                self.onward = None;
                break;
            };
            shows.keep(&mut self.page, key, value);
            to = step;
        }
        self.size = more(self.size);
        Ok(())
    }
}

impl LetGo for Alone<Steps> {
    fn let_go(&self) {
        // The wait fails only in a fork.
        if let Ok(mut steps) = self.wait() {
            steps.close();
        }
    }
}

/// An iterator over keys, values or both.
#[pyclass(frozen, module = "runstone")]
pub struct Walk {
    steps: Held<Alone<Steps>>,
    shows: Shows,
    step: Move<'static>,
}

impl Walk {
    pub fn new(place: AnyCursor, shows: Shows, is_reverse: bool, family: &Arc<Family>) -> Walk {
        let (start, step) = match is_reverse {
            true => (Move::Last, Move::Previous),
            false => (Move::First, Move::Next),
        };
        let (place, page) = (Some(place), Page::default());
        let steps = Steps { place, page, size: FIRST_ENTRIES, onward: Some(start), failure: None };
        Walk { steps: Held::new(Alone::new(steps), family), shows, step }
    }

    /// The next entry.
    #[inline]
    pub fn step<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let held = outcome(self.steps.get())?;
        let mut steps = outcome(held.lock())?;
        if steps.page.is_spent() {
            let steps = &mut *steps;
            wait(py, move || steps.fill(steps.onward, self.step, self.shows))?;
        }
        let shown = steps.page.next().map(|entry| self.shows.show(py, entry));
        drop(steps);
        shown.map(|shown| shown.object(py)).transpose()
    }
}

#[pymethods]
impl Walk {
    fn __iter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.step(py)
    }

    /// Continues at the first key not less than this one; if reversed, at the last not greater.
    pub fn seek(&self, py: Python<'_>, key: Buffer) -> PyResult<()> {
        wait(py, || {
            let held = self.steps.get()?;
            let mut steps = held.lock()?;
            (steps.size, steps.failure) = (FIRST_ENTRIES, None);
            let to = match self.step {
                Move::Previous => Move::SeekForPrevious(&key),
                _ => Move::Seek(&key),
            };
            steps.fill(Some(to), self.step, self.shows)
        })
    }

    pub fn close(&self, py: Python<'_>) -> PyResult<()> {
        if self.steps.is_foreign() {
            return Ok(());
        }
        wait(py, || {
            let held = self.steps.get()?;
            let mut steps = held.lock()?;
            steps.close();
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

/// A position in a keyspace that moves both ways.
#[pyclass(frozen, module = "runstone")]
pub struct Cursor(Held<Alone<Option<AnyCursor>>>);

impl Cursor {
    pub fn new(place: AnyCursor, family: &Arc<Family>) -> Cursor {
        Cursor(Held::new(Alone::new(Some(place)), family))
    }

    fn go(&self, py: Python<'_>, to: Move<'_>) -> PyResult<bool> {
        wait(py, || {
            let held = self.0.get()?;
            let mut place = held.lock()?;
            let place = place.as_mut().ok_or_else(|| closed("cursor"))?;
            place.go(to)?;
            Ok(place.entry().is_some())
        })
    }

    fn show<T>(&self, part: impl FnOnce(&[u8], &[u8]) -> T) -> PyResult<Option<T>> {
        let held = outcome(self.0.get())?;
        // Never waits: the holder of the lock may wait for the interpreter.
        let place = outcome(held.lock())?;
        let place = outcome(place.as_ref().ok_or_else(|| closed("cursor")))?;
        Ok(place.entry().map(|(key, value)| part(key, value)))
    }
}

#[pymethods]
impl Cursor {
    fn first(&self, py: Python<'_>) -> PyResult<bool> {
        self.go(py, Move::First)
    }

    fn last(&self, py: Python<'_>) -> PyResult<bool> {
        self.go(py, Move::Last)
    }

    fn next(&self, py: Python<'_>) -> PyResult<bool> {
        self.go(py, Move::Next)
    }

    fn previous(&self, py: Python<'_>) -> PyResult<bool> {
        self.go(py, Move::Previous)
    }

    fn seek(&self, py: Python<'_>, key: Buffer) -> PyResult<bool> {
        self.go(py, Move::Seek(&key))
    }

    fn seek_for_previous(&self, py: Python<'_>, key: Buffer) -> PyResult<bool> {
        self.go(py, Move::SeekForPrevious(&key))
    }

    #[getter]
    fn valid(&self) -> PyResult<bool> {
        Ok(self.show(|_, _| ())?.is_some())
    }

    #[getter]
    fn key<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        self.show(|key, _| PyBytes::new(py, key))
    }

    #[getter]
    fn value<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        self.show(|_, value| PyBytes::new(py, value))
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        if self.0.is_foreign() {
            return Ok(());
        }
        wait(py, || {
            *self.0.get()?.lock()? = None;
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
