//! Merge operators, compaction filters and listeners in Python. The store also calls them from its
//! own threads.
//!
//! An exception of such a function concerns the store: a merge fails, or an entry stays. But a
//! `KeyboardInterrupt` or a `SystemExit` is meant for the whole program, since Python raises a
//! `KeyboardInterrupt` in any function that the main thread happens to run. So the call during
//! which the function ran raises it again, in place of its result.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::sync::{Arc, Mutex};

use pyo3::exceptions::{PyException, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};
use runstone::{CompactionFilter, EventListener, FilterDecision, MergeOperator};
use runstone_boundary::events::{Field, Told};

thread_local! {
    static IS_INSIDE: Cell<bool> = const { Cell::new(false) };
    /// The number of Python calls that the thread is running.
    static CALLS: Cell<u32> = const { Cell::new(0) };
    /// Whether `RAISED` contains an exception.
    static HAS_RAISED: Cell<bool> = const { Cell::new(false) };
    /// The exception for the whole program that a function raised.
    static RAISED: RefCell<Option<PyErr>> = const { RefCell::new(None) };
}

/// Runs the work of a Python call, and counts the call while it runs. The work must not panic.
#[inline]
pub fn in_call<T>(work: impl FnOnce() -> T) -> T {
    CALLS.set(CALLS.get() + 1);
    let outcome = work();
    CALLS.set(CALLS.get() - 1);
    outcome
}

/// Returns the exception for the whole program that a function raised during a call of the thread.
#[inline]
pub fn raised() -> Option<PyErr> {
    if HAS_RAISED.replace(false) { RAISED.take() } else { None }
}

/// Keeps an exception for the whole program until the current call of the thread ends. Returns
/// other exceptions, and those for which no call waits.
fn keep_raised(py: Python<'_>, error: PyErr) -> Option<PyErr> {
    if CALLS.get() == 0 || error.is_instance_of::<PyException>(py) {
        return Some(error);
    }
    HAS_RAISED.set(true);
    RAISED.set(Some(error));
    None
}

/// Whether the thread runs a merge operator, a filter or a listener.
pub fn is_inside() -> bool {
    IS_INSIDE.get()
}

/// Runs a merge operator or a filter.
fn inside<T>(work: impl FnOnce(Python<'_>) -> T) -> T {
    Python::attach(|py| {
        let before = IS_INSIDE.replace(true);
        let made = work(py);
        IS_INSIDE.set(before);
        made
    })
}

/// A Python function with a name.
pub struct Program {
    name: String,
    function: Arc<Py<PyAny>>,
}

impl Program {
    pub fn new(name: String, function: Arc<Py<PyAny>>) -> Program {
        Program { name, function }
    }
}

impl fmt::Debug for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} in Python", self.name)
    }
}

/// Python functions that stores and their objects share.
pub type Functions = Vec<Arc<Py<PyAny>>>;

/// A Python function that the store and its object share: one reference, which Python's collector
/// finds through the object.
pub fn kept(function: Bound<'_, PyAny>, all: &mut Functions) -> Arc<Py<PyAny>> {
    let function = Arc::new(function.unbind());
    all.push(Arc::clone(&function));
    function
}

/// The merge operators of a dict from names to functions.
pub fn mergers(
    given: &Bound<'_, PyDict>,
    all: &mut Functions,
) -> PyResult<Vec<Arc<dyn MergeOperator>>> {
    let merger = |(name, function): (Bound<'_, PyAny>, _)| {
        let program = Program::new(name.extract()?, kept(function, all));
        Ok(Arc::new(Merger(program)) as Arc<dyn MergeOperator>)
    };
    given.iter().map(merger).collect()
}

/// The compaction filters of such a dict.
pub fn filters(
    given: &Bound<'_, PyDict>,
    all: &mut Functions,
) -> PyResult<Vec<Arc<dyn CompactionFilter>>> {
    let filter = |(name, function): (Bound<'_, PyAny>, _)| {
        let program = Program::new(name.extract()?, kept(function, all));
        Ok(Arc::new(Filter(program)) as Arc<dyn CompactionFilter>)
    };
    given.iter().map(filter).collect()
}

/// `merge(key, base, operands)`, which returns the value.
#[derive(Debug)]
pub struct Merger(pub Program);

impl MergeOperator for Merger {
    fn name(&self) -> &str {
        &self.0.name
    }

    fn full_merge(
        &self,
        key: &[u8],
        base: Option<&[u8]>,
        operands: &[&[u8]],
    ) -> Result<Vec<u8>, String> {
        inside(|py| {
            self.ask(py, key, base, operands).map_err(|error| {
                let what = error.to_string();
                keep_raised(py, error);
                what
            })
        })
    }
}

impl Merger {
    fn ask(
        &self,
        py: Python<'_>,
        key: &[u8],
        base: Option<&[u8]>,
        operands: &[&[u8]],
    ) -> PyResult<Vec<u8>> {
        let base = base.map(|base| PyBytes::new(py, base));
        let operands = operands.iter().map(|operand| PyBytes::new(py, operand));
        let operands = PyList::new(py, operands.collect::<Vec<_>>())?;
        let made = self.0.function.call1(py, (PyBytes::new(py, key), base, operands))?;
        Ok(made.bind(py).cast::<PyBytes>()?.as_bytes().to_vec())
    }
}

/// `filter(level, key, value)`, which returns `True` to keep an entry, `False` to remove it, or
/// other bytes. If it raises, the entry stays.
#[derive(Debug)]
pub struct Filter(pub Program);

impl CompactionFilter for Filter {
    fn name(&self) -> &str {
        &self.0.name
    }

    fn decide(&self, level: u32, key: &[u8], value: &[u8]) -> FilterDecision {
        inside(|py| {
            self.ask(py, level, key, value).unwrap_or_else(|error| {
                if let Some(error) = keep_raised(py, error) {
                    error.write_unraisable(py, None);
                }
                FilterDecision::Keep
            })
        })
    }
}

impl Filter {
    fn ask(
        &self,
        py: Python<'_>,
        level: u32,
        key: &[u8],
        value: &[u8],
    ) -> PyResult<FilterDecision> {
        let (key, value) = (PyBytes::new(py, key), PyBytes::new(py, value));
        let made = self.0.function.call1(py, (level, key, value))?;
        let made = made.bind(py);
        if let Ok(bytes) = made.cast::<PyBytes>() {
            return Ok(FilterDecision::Change(bytes.as_bytes().to_vec()));
        }
        match made.extract::<bool>() {
            Ok(true) => Ok(FilterDecision::Keep),
            Ok(false) => Ok(FilterDecision::Remove),
            Err(_) => Err(PyTypeError::new_err("a filter gives a bool or bytes")),
        }
    }
}

/// An event of a store.
#[pyclass(frozen, module = "runstone")]
pub struct Event {
    #[pyo3(get)]
    kind: &'static str,
    #[pyo3(get)]
    warning: bool,
    #[pyo3(get)]
    message: String,
    #[pyo3(get)]
    fields: Py<PyDict>,
}

#[pymethods]
impl Event {
    fn __repr__(&self) -> String {
        format!("<runstone.Event {}: {}>", self.kind, self.message)
    }
}

impl Event {
    fn new(py: Python<'_>, told: Told) -> PyResult<Event> {
        let fields = PyDict::new(py);
        for (name, field) in told.fields {
            match field {
                Field::Number(number) => fields.set_item(name, number)?,
                Field::Text(text) => fields.set_item(name, text)?,
                Field::Texts(texts) => fields.set_item(name, texts)?,
            }
        }
        let Told { kind, is_warning: warning, message, .. } = told;
        Ok(Event { kind, warning, message, fields: fields.unbind() })
    }
}

/// `on_event(event)`. Its exceptions go to `sys.unraisablehook`.
pub struct Listener(pub Arc<Py<PyAny>>);

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a listener in Python")
    }
}

impl EventListener for Listener {
    fn on_event(&self, event: &runstone::Event) {
        let Some(told) = Told::of(event) else { return };
        // When Python has ended, no listener can be called.
        Python::try_attach(|py| {
            let before = IS_INSIDE.replace(true);
            let outcome = Event::new(py, told).and_then(|event| self.0.call1(py, (event,)));
            if let Some(error) = outcome.err().and_then(|error| keep_raised(py, error)) {
                error.write_unraisable(py, Some(self.0.bind(py)));
            }
            IS_INSIDE.set(before);
        });
    }
}

/// Keeps the message about a lost end of the log, for a warning at the call that opened the store.
#[derive(Debug, Default)]
pub struct LostLog(Mutex<Option<String>>);

impl LostLog {
    pub fn take(&self) -> Option<String> {
        self.0.lock().ok().and_then(|mut message| message.take())
    }
}

impl EventListener for LostLog {
    fn on_event(&self, event: &runstone::Event) {
        if let (runstone::Event::LogEndLost { .. }, Ok(mut kept)) = (event, self.0.lock()) {
            *kept = Told::of(event).map(|told| told.message);
        }
    }
}
