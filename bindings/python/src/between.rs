//! Iterators like plyvel's: they are between two entries, and return the one on either side.
//!
//! 1. Entries are read ahead by the page, in the direction of the step that needed one.
//! 2. A step in this direction returns the page's next entry. A step in the other direction returns
//!    the last returned entry.
//! 3. When the page is used up, a step reads the next one.
//! 4. A step against the direction of a page of which no entry was returned yet turns: it moves to
//!    the place in front of the page's first entry, and reads a page in the other direction from
//!    there.
//!
//! An empty page leaves the previous one in place, so that rule 2 still works.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use runstone::{ReadOptions, prefix_successor};
use runstone_boundary::alone::Alone;
use runstone_boundary::{Failure, Result};

use crate::bytes::Buffer;
use crate::errors::{IteratorInvalidError, closed, outcome, wait};
use crate::held::Held;
use crate::keyspace::Keyspace;
use crate::page::{FIRST_ENTRIES, MOST_BYTES, Page, more};
use crate::snapshot::Snapshot;
use crate::walk::Shows;

/// A place between two entries.
#[derive(Clone, Debug)]
enum Place {
    Start,
    Stop,
    /// Before a key, whether it exists or not.
    Before(Vec<u8>),
    Behind(Vec<u8>),
}

struct Steps {
    cursor: runstone::Cursor,
    page: Page,
    /// The key of the page's first entry.
    first: Vec<u8>,
    is_upward: bool,
    /// The position while the page is empty.
    place: Place,
    /// Entries of the next page, and of the first page from a new place.
    size: usize,
    first_size: usize,
    /// The error after the page, which is raised instead of reading the next page.
    failure: Option<Failure>,
    shows: Shows,
    /// Bytes of the key that are not shown: the prefix of a prefixed database.
    hidden: usize,
}

impl Steps {
    fn new(
        cursor: runstone::Cursor,
        place: Place,
        first_size: usize,
        shows: Shows,
        hidden: usize,
    ) -> Steps {
        let (page, first, size) = (Page::default(), Vec::new(), first_size);
        let is_upward = !matches!(place, Place::Stop);
        let failure = None;
        Steps { cursor, page, first, is_upward, place, size, first_size, failure, shows, hidden }
    }

    /// Whether the page contains the entry of the next step.
    #[inline]
    fn has(&self, is_upward: bool) -> bool {
        match is_upward == self.is_upward {
            true => !self.page.is_spent(),
            false => !self.page.is_fresh(),
        }
    }

    /// The entry of the next step, if the page has it.
    #[inline]
    fn step(&mut self, is_upward: bool) -> Option<(&[u8], &[u8])> {
        match is_upward == self.is_upward {
            true => self.page.next(),
            false => self.page.back(),
        }
    }

    /// Moves to another place.
    fn stand(&mut self, place: Place) {
        self.page.clear();
        (self.place, self.size, self.failure) = (place, self.first_size, None);
    }

    /// Reads the entry of the next step, if there is one.
    fn read(&mut self, is_upward: bool) -> Result<()> {
        if is_upward != self.is_upward && !self.page.is_empty() {
            let first = std::mem::take(&mut self.first);
            self.stand(if self.is_upward { Place::Before(first) } else { Place::Behind(first) });
        }
        self.is_upward = is_upward;
        if self.page.is_empty() {
            self.go()?;
        } else {
            if let Some(failure) = self.failure.take() {
                return Err(failure);
            }
            if self.cursor.valid() {
                self.onward()?;
            }
        }
        if self.cursor.valid() {
            self.fill();
        }
        Ok(())
    }

    /// Moves the cursor to the next entry after the place.
    fn go(&mut self) -> Result<()> {
        let (cursor, is_upward) = (&mut self.cursor, self.is_upward);
        match (&self.place, is_upward) {
            (Place::Start, true) => cursor.seek_to_first()?,
            (Place::Stop, false) => cursor.seek_to_last()?,
            (Place::Start, false) => {
                cursor.seek_to_first()?;
                if cursor.valid() {
                    cursor.prev()?;
                }
            }
            (Place::Stop, true) => {
                cursor.seek_to_last()?;
                if cursor.valid() {
                    cursor.next()?;
                }
            }
            (Place::Before(key) | Place::Behind(key), _) => {
                let is_behind = matches!(self.place, Place::Behind(_));
                match is_upward {
                    true => cursor.seek(key)?,
                    false => cursor.seek_for_prev(key)?,
                }
                // The key itself is on the other side.
                if is_upward == is_behind && cursor.valid() && cursor.key() == &key[..] {
                    self.onward()?;
                }
            }
        }
        Ok(())
    }

    fn onward(&mut self) -> Result<()> {
        Ok(if self.is_upward { self.cursor.next() } else { self.cursor.prev() }?)
    }

    /// Reads a page from the cursor's entry on.
    fn fill(&mut self) {
        self.page.clear();
        self.first.clear();
        self.first.extend_from_slice(self.cursor.key());
        loop {
            let key = &self.cursor.key()[self.hidden..];
            self.shows.keep(&mut self.page, key, self.cursor.value());
            if self.page.len() >= self.size || self.page.bytes() >= MOST_BYTES {
                break;
            }
            if let Err(failure) = self.onward() {
                self.failure = Some(failure);
                break;
            }
            if !self.cursor.valid() {
                break;
            }
        }
        self.size = more(self.size);
    }
}

/// plyvel's iterator.
#[pyclass(frozen, weakref, module = "runstone.plyvel")]
pub struct Iterator {
    /// `None` once it is closed.
    steps: Held<Alone<Option<Steps>>>,
    prefix: Vec<u8>,
    is_reverse: bool,
}

/// The bounds of an iterator, from plyvel's arguments. A prefixed database shows the keys that
/// begin with `inside`, and leaves that prefix out.
fn options(
    inside: &[u8],
    [start, stop, prefix]: [Option<Buffer>; 3],
    [include_start, include_stop]: [bool; 2],
) -> PyResult<ReadOptions> {
    let whole = |key: &[u8]| [inside, key].concat();
    let (low, high) = match prefix {
        Some(_) if start.is_some() || stop.is_some() => {
            let what = "'prefix' cannot be used together with 'start' or 'stop'";
            return Err(PyTypeError::new_err(what));
        }
        Some(prefix) => (whole(&prefix), prefix_successor(&whole(&prefix))),
        None => {
            let mut low = whole(start.as_deref().unwrap_or_default());
            if start.is_some() && !include_start {
                low.push(0);
            }
            let high = stop.map(|stop| {
                let mut high = whole(&stop);
                if include_stop {
                    high.push(0);
                }
                high
            });
            (low, high.or_else(|| prefix_successor(inside)))
        }
    };
    // For LevelDB, a range that ends before it starts is empty.
    let high = high.map(|high| high.max(low.clone()));
    Ok(ReadOptions::default().with_bounds(Some(&low), high.as_deref()))
}

/// An iterator over a database, or the part of it with a prefix.
#[pyfunction]
#[pyo3(signature = (
    keyspace, inside, snapshot, *, reverse=Some(false), start=None, stop=None,
    include_start=Some(true), include_stop=Some(false), prefix=None, include_key=Some(true),
    include_value=Some(true), verify_checksums=Some(false), fill_cache=Some(true)
))]
#[allow(clippy::too_many_arguments)]
pub fn iterator(
    py: Python<'_>,
    keyspace: &Keyspace,
    inside: Buffer,
    snapshot: Option<&Snapshot>,
    reverse: Option<bool>,
    start: Option<Buffer>,
    stop: Option<Buffer>,
    include_start: Option<bool>,
    include_stop: Option<bool>,
    prefix: Option<Buffer>,
    include_key: Option<bool>,
    include_value: Option<bool>,
    verify_checksums: Option<bool>,
    fill_cache: Option<bool>,
) -> PyResult<Iterator> {
    // All reads are checked anyway.
    let _ = verify_checksums;
    let yes = |flag: Option<bool>| flag.unwrap_or(false);
    let included = [yes(include_start), yes(include_stop)];
    let mut options = options(&inside, [start, stop, prefix], included)?;
    let shows = match (yes(include_key), yes(include_value)) {
        (true, true) => Shows::Items,
        (true, false) => Shows::Keys,
        (false, true) => Shows::Values,
        (false, false) => Shows::Nothing,
    };
    if !yes(include_value) {
        options = options.keys_only();
    }
    let cursor = cursor(py, keyspace, snapshot, options, yes(fill_cache))?;
    let is_reverse = yes(reverse);
    let place = if is_reverse { Place::Stop } else { Place::Start };
    let steps = Steps::new(cursor, place, FIRST_ENTRIES, shows, inside.len());
    let steps = Held::new(Alone::new(Some(steps)), keyspace.family());
    Ok(Iterator { steps, prefix: inside.to_vec(), is_reverse })
}

fn cursor(
    py: Python<'_>,
    keyspace: &Keyspace,
    snapshot: Option<&Snapshot>,
    options: ReadOptions,
    fill_cache: bool,
) -> PyResult<runstone::Cursor> {
    let snapshot = snapshot.map(|at| at.get(py)).transpose()?;
    wait(py, || keyspace.cursor_at(options.fill_cache(fill_cache), snapshot.as_ref()))
}

impl Iterator {
    fn step<'py>(&self, py: Python<'py>, is_upward: bool) -> PyResult<Option<Bound<'py, PyAny>>> {
        let held = outcome(self.steps.get())?;
        let mut locked = outcome(held.lock())?;
        let steps = outcome(locked.as_mut().ok_or_else(|| closed("iterator")))?;
        if !steps.has(is_upward) {
            wait(py, || steps.read(is_upward))?;
        }
        let shows = steps.shows;
        let shown = steps.step(is_upward).map(|entry| shows.show(py, entry));
        drop(locked);
        shown.map(|shown| shown.object(py)).transpose()
    }

    fn stand(&self, py: Python<'_>, place: Place) -> PyResult<()> {
        wait(py, || {
            let held = self.steps.get()?;
            let mut steps = held.lock()?;
            steps.as_mut().ok_or_else(|| closed("iterator"))?.stand(place);
            Ok(())
        })
    }
}

#[pymethods]
impl Iterator {
    fn __iter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.step(py, !self.is_reverse)
    }

    fn next<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.step(py, !self.is_reverse)?.ok_or_else(stop)
    }

    fn prev<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.step(py, self.is_reverse)?.ok_or_else(stop)
    }

    fn seek_to_start(&self, py: Python<'_>) -> PyResult<()> {
        self.stand(py, Place::Start)
    }

    fn seek_to_stop(&self, py: Python<'_>) -> PyResult<()> {
        self.stand(py, Place::Stop)
    }

    /// The next step upwards returns the first key that is not less than `target`.
    fn seek(&self, py: Python<'_>, target: Buffer) -> PyResult<()> {
        self.stand(py, Place::Before([&self.prefix, &*target].concat()))
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        if self.steps.is_foreign() {
            return Ok(());
        }
        wait(py, || {
            *self.steps.get()?.lock()? = None;
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

fn stop() -> PyErr {
    pyo3::exceptions::PyStopIteration::new_err(())
}

/// LevelDB's own iterator, which is on an entry or on none: the entry that the page would return
/// next, in the direction of the page. Its first page is one entry, because many programs read only
/// one entry after a seek.
#[pyclass(frozen, weakref, module = "runstone.plyvel")]
pub struct RawIterator {
    /// `None` once it is closed.
    steps: Held<Alone<Option<Steps>>>,
    prefix: Vec<u8>,
}

/// LevelDB's own iterator over a database, or the part of it with a prefix.
#[pyfunction]
#[pyo3(signature = (
    keyspace, inside, snapshot, *, verify_checksums=Some(false), fill_cache=Some(true)
))]
pub fn raw_iterator(
    py: Python<'_>,
    keyspace: &Keyspace,
    inside: Buffer,
    snapshot: Option<&Snapshot>,
    verify_checksums: Option<bool>,
    fill_cache: Option<bool>,
) -> PyResult<RawIterator> {
    let _ = verify_checksums;
    let options = options(&inside, [None, None, None], [true, false])?;
    let cursor = cursor(py, keyspace, snapshot, options, fill_cache.unwrap_or(false))?;
    let steps = Steps::new(cursor, Place::Start, 1, Shows::Items, inside.len());
    let steps = Held::new(Alone::new(Some(steps)), keyspace.family());
    Ok(RawIterator { steps, prefix: inside.to_vec() })
}

impl RawIterator {
    fn with<T>(&self, work: impl FnOnce(&mut Steps) -> PyResult<T>) -> PyResult<T> {
        let held = outcome(self.steps.get())?;
        let mut steps = outcome(held.lock())?;
        work(outcome(steps.as_mut().ok_or_else(|| closed("iterator")))?)
    }

    fn go_to(&self, py: Python<'_>, place: Place, is_upward: bool) -> PyResult<()> {
        self.with(|steps| {
            steps.stand(place);
            wait(py, || steps.read(is_upward))
        })
    }

    fn step(&self, py: Python<'_>, is_upward: bool) -> PyResult<()> {
        self.with(|steps| {
            if steps.page.look().is_none() {
                return Err(invalid());
            }
            let is_there = match is_upward == steps.is_upward {
                true => {
                    steps.page.next();
                    !steps.page.is_spent()
                }
                false => steps.page.back().is_some(),
            };
            if is_there { Ok(()) } else { wait(py, || steps.read(is_upward)) }
        })
    }

    fn entry<T>(&self, show: impl FnOnce(&[u8], &[u8]) -> T) -> PyResult<T> {
        self.with(|steps| {
            let (key, value) = steps.page.look().ok_or_else(invalid)?;
            Ok(show(key, value))
        })
    }
}

fn invalid() -> PyErr {
    IteratorInvalidError::new_err("the iterator is on no entry")
}

#[pymethods]
impl RawIterator {
    fn valid(&self) -> PyResult<bool> {
        self.with(|steps| Ok(steps.page.look().is_some()))
    }

    fn seek_to_first(&self, py: Python<'_>) -> PyResult<()> {
        self.go_to(py, Place::Start, true)
    }

    fn seek_to_last(&self, py: Python<'_>) -> PyResult<()> {
        self.go_to(py, Place::Stop, false)
    }

    fn seek(&self, py: Python<'_>, target: Buffer) -> PyResult<()> {
        self.go_to(py, Place::Before([&self.prefix, &*target].concat()), true)
    }

    fn next(&self, py: Python<'_>) -> PyResult<()> {
        self.step(py, true)
    }

    fn prev(&self, py: Python<'_>) -> PyResult<()> {
        self.step(py, false)
    }

    fn key<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        self.entry(|key, _| PyBytes::new(py, key))
    }

    fn value<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        self.entry(|_, value| PyBytes::new(py, value))
    }

    fn item<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyBytes>, Bound<'py, PyBytes>)> {
        self.entry(|key, value| (PyBytes::new(py, key), PyBytes::new(py, value)))
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        if self.steps.is_foreign() {
            return Ok(());
        }
        wait(py, || {
            *self.steps.get()?.lock()? = None;
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
