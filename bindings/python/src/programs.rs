//! Merge operators, compaction filters and listeners in Python. The store calls them from its own
//! threads too.

use std::cell::Cell;
use std::fmt;
use std::sync::{Arc, Mutex};

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};
use runstone::{CompactionFilter, EventListener, FilterDecision, MergeOperator};
use runstone_boundary::events::{Field, Told};

thread_local! {
    static IS_INSIDE: Cell<bool> = const { Cell::new(false) };
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

/// A function of Python under a name.
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

/// Functions of Python that stores and their objects share.
pub type Functions = Vec<Arc<Py<PyAny>>>;

/// A function of Python that the store and its object share: one reference, which Python's
/// collector sees through the object.
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
        inside(|py| -> PyResult<Vec<u8>> {
            let base = base.map(|base| PyBytes::new(py, base));
            let operands = operands.iter().map(|operand| PyBytes::new(py, operand));
            let operands = PyList::new(py, operands.collect::<Vec<_>>())?;
            let made = self.0.function.call1(py, (PyBytes::new(py, key), base, operands))?;
            Ok(made.bind(py).cast::<PyBytes>()?.as_bytes().to_vec())
        })
        .map_err(|error| error.to_string())
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
                error.write_unraisable(py, None);
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

/// An event in a store.
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
        // When Python has ended, nobody can be told.
        Python::try_attach(|py| {
            let before = IS_INSIDE.replace(true);
            let outcome = Event::new(py, told).and_then(|event| self.0.call1(py, (event,)));
            if let Err(error) = outcome {
                error.write_unraisable(py, Some(self.0.bind(py)));
            }
            IS_INSIDE.set(before);
        });
    }
}

/// Keeps the message of a lost end of the log, for a warning where the store was opened.
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
