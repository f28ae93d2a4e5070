//! The store, which is its default keyspace and more.

use std::ffi::CString;
use std::path::PathBuf;
use std::sync::{Arc, Weak};

use pyo3::exceptions::{PyRuntimeWarning, PyTypeError};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use runstone::EventListener;
use runstone_boundary::options::{check_sharing, of_keyspace, of_store};
use runstone_boundary::properties::property;
use runstone_boundary::stores::{Moment, OpenStore};
use runstone_boundary::{Code, Failure};

use crate::batch::WriteBatch;
use crate::errors::{outcome, wait};
use crate::held::Family;
use crate::keyspace::Keyspace;
use crate::live::LiveState;
use crate::programs::{Listener, LostLog, filters, kept, mergers};
use crate::resources::Resources;
use crate::snapshot::Snapshot;
use crate::transaction::Transaction;

/// An open store.
#[pyclass(frozen, weakref, extends = Keyspace, module = "runstone")]
pub struct Store {
    family: Arc<Family>,
    /// The path as the caller gave it.
    path: PathBuf,
    /// The absolute path, which stays valid if the process changes its directory.
    place: PathBuf,
    /// Shows whether the object still exists.
    object: Arc<()>,
}

/// Opens, makes or follows a store. `options` is TOML. Without a listener, a lost end of the log
/// causes a warning.
#[pyfunction]
#[allow(clippy::too_many_arguments)]
pub fn open<'py>(
    py: Python<'py>,
    path: PathBuf,
    follows: bool,
    options: &str,
    merge_operators: &Bound<'py, PyDict>,
    compaction_filters: &Bound<'py, PyDict>,
    on_event: Option<Bound<'py, PyAny>>,
    resources: Option<&Resources>,
) -> PyResult<Bound<'py, Store>> {
    let resources = resources.map(|shared| shared.get(py)).transpose()?;
    if resources.is_some() {
        outcome(check_sharing(options))?;
    }
    let mut options = outcome(of_store(options))?;
    let mut functions = Vec::new();
    options.merge_operators = mergers(merge_operators, &mut functions)?;
    options.compaction_filters = filters(compaction_filters, &mut functions)?;
    let lost = Arc::new(LostLog::default());
    options.listener = Some(match on_event {
        Some(function) if !function.is_callable() => {
            return Err(PyTypeError::new_err("on_event is not callable"));
        }
        Some(function) => Arc::new(Listener(kept(function, &mut functions))),
        None => Arc::clone(&lost) as Arc<dyn EventListener>,
    });
    let place = std::path::absolute(&path)?;
    // Below a directory that may not be searched, only the original path works.
    let place = if place.try_exists().is_err() { path.clone() } else { place };
    let store = wait(py, || {
        Ok(match resources {
            Some(shared) if follows => OpenStore::follow_sharing(&shared, &path, options)?,
            Some(shared) => OpenStore::open_sharing(&shared, &path, options)?,
            None if follows => OpenStore::follow(&path, options)?,
            None => OpenStore::open(&path, options)?,
        })
    })?;
    if let Some(message) = lost.take() {
        // If warnings are errors, the open raises the exception.
        let warned = warn(py, &format!("{}: {message}", path.display()));
        warned.or_else(|error| {
            wait(py, || Ok(runstone::Store::clone(&store).close()?)).and(Err(error))
        })?;
    }
    let default = store.default_keyspace().clone();
    let family = Family::new(store, functions);
    let keyspace = Keyspace::new(default, &family);
    let store = Store { family, path, place, object: Arc::default() };
    Bound::new(py, PyClassInitializer::from(keyspace).add_subclass(store))
}

/// Options of a keyspace as TOML: a text is TOML already, and a dict is converted.
pub fn text_of(options: Bound<'_, PyAny>) -> PyResult<String> {
    if let Ok(text) = options.extract() {
        return Ok(text);
    }
    options.py().import("runstone")?.getattr("to_toml")?.call1((options,))?.extract()
}

/// A reference to a store that does not keep it open.
#[pyclass(frozen, module = "runstone._runstone")]
pub struct Opening {
    family: Weak<Family>,
    object: Weak<()>,
}

#[pymethods]
impl Opening {
    fn is_open(&self) -> bool {
        self.family.strong_count() > 0
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        wait(py, || self.family.upgrade().map_or(Ok(()), |family| family.close()))
    }

    /// Closes the store if nothing but its object keeps it open. If the object was freed normally,
    /// it no longer exists when its weak references report its end.
    fn close_if_alone(&self, py: Python<'_>) -> PyResult<()> {
        if self.object.strong_count() == 0 {
            return Ok(());
        }
        wait(py, || match self.family.upgrade() {
            Some(family) if Arc::strong_count(&family) == OF_THE_STORE + 1 => family.close(),
            _ => Ok(()),
        })
    }
}

/// Warns the caller of `runstone.open`.
fn warn(py: Python<'_>, message: &str) -> PyResult<()> {
    let message = CString::new(message)?;
    PyErr::warn(py, &py.get_type::<PyRuntimeWarning>(), &message, 2)
}

/// Removes the files of a store.
#[pyfunction]
pub fn destroy(py: Python<'_>, path: PathBuf) -> PyResult<()> {
    wait(py, || Ok(runstone::Store::destroy(path)?))
}

/// How many references to the shared state the object of a store has: as a store and as a keyspace.
const OF_THE_STORE: usize = 2;

impl Store {
    /// The path of the store.
    pub fn place(&self) -> PathBuf {
        self.place.clone()
    }
}

#[pymethods]
impl Store {
    /// Shows Python's collector the functions that the store calls, so that it finds cycles of a
    /// program and its store. It does not do so while other objects keep the store open, because
    /// the collector does not know that these need the functions. Before the collector clears
    /// anything, the store is closed through its weak references.
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        if Arc::strong_count(&self.family) > OF_THE_STORE {
            return Ok(());
        }
        self.family.functions().iter().try_for_each(|function| visit.call(&**function))
    }

    #[getter]
    fn path(&self) -> PathBuf {
        self.path.clone()
    }

    #[pyo3(signature = (name, options=None, *, create=true))]
    fn keyspace(
        &self,
        py: Python<'_>,
        name: &str,
        options: Option<Bound<'_, PyAny>>,
        create: bool,
    ) -> PyResult<Keyspace> {
        let options = options.map(text_of).transpose()?;
        wait(py, || {
            let options = options.as_deref().map(of_keyspace).transpose()?;
            OpenStore::clone(&*self.family.store()?).at_one_moment(|| {
                let store = self.family.store()?;
                let existing = if create { None } else { Some(store.keyspace(name)?) };
                let keyspace = match existing {
                    Some(keyspace) if options.is_none() => keyspace,
                    _ => store.open_keyspace(name, options)?,
                };
                Ok(Keyspace::new(keyspace, &self.family))
            })
        })
    }

    fn _opening(&self) -> Opening {
        Opening { family: Arc::downgrade(&self.family), object: Arc::downgrade(&self.object) }
    }

    fn drop_keyspace(&self, py: Python<'_>, name: &str) -> PyResult<()> {
        wait(py, || Ok(self.family.store()?.drop_keyspace(name)?))
    }

    fn keyspaces(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        wait(py, || Ok(self.family.store()?.keyspaces()))
    }

    #[pyo3(signature = (*, sync=None))]
    fn write_batch(&self, sync: Option<bool>) -> PyResult<WriteBatch> {
        outcome(self.family.store())?;
        Ok(WriteBatch::new(&self.family, sync))
    }

    #[pyo3(signature = (*, serializable=false, pessimistic=false, sync=None))]
    fn transaction(
        &self,
        py: Python<'_>,
        serializable: bool,
        pessimistic: bool,
        sync: Option<bool>,
    ) -> PyResult<Transaction> {
        wait(py, || Transaction::begin(&self.family, [serializable, pessimistic], sync))
    }

    fn snapshot(&self, py: Python<'_>) -> PyResult<Snapshot> {
        wait(py, || Ok(Snapshot::new(Moment::of(&*self.family.store()?), &self.family)))
    }

    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        wait(py, || Ok(self.family.store()?.sync()?))
    }

    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        wait(py, || Ok(self.family.store()?.flush()?))
    }

    fn wait_idle(&self, py: Python<'_>) -> PyResult<()> {
        wait(py, || Ok(self.family.store()?.wait_idle()?))
    }

    fn refresh(&self, py: Python<'_>) -> PyResult<bool> {
        wait(py, || self.family.refresh())
    }

    /// The largest possible age of the view, in seconds.
    #[getter]
    fn age(&self, py: Python<'_>) -> PyResult<f64> {
        wait(py, || Ok(self.family.store()?.age()?.as_secs_f64()))
    }

    /// The last report of the process that writes to the store.
    fn live(&self, py: Python<'_>) -> PyResult<Option<LiveState>> {
        wait(py, || Ok(self.family.store()?.live()?.map(LiveState::from)))
    }

    #[pyo3(signature = (path, *, copy = false))]
    fn checkpoint(&self, py: Python<'_>, path: PathBuf, copy: bool) -> PyResult<()> {
        wait(py, || {
            let store = self.family.store()?;
            Ok(if copy { store.checkpoint_copied(path) } else { store.checkpoint(path) }?)
        })
    }

    /// A property of LevelDB.
    fn _property(&self, py: Python<'_>, name: &str) -> PyResult<Option<String>> {
        wait(py, || Ok(property(&*self.family.store()?, name)))
    }

    /// Reads and checks everything. Damage raises an exception.
    fn verify(&self, py: Python<'_>) -> PyResult<u64> {
        wait(py, || {
            let report = self.family.store()?.verify()?;
            match report.damage.first() {
                None => Ok(report.bytes),
                Some(damage) => Err(Failure::new(
                    Code::Corruption,
                    format!("{} is damaged: {}", damage.file, damage.what),
                )),
            }
        })
    }

    /// The counters as a text for Prometheus.
    fn metrics(&self, py: Python<'_>) -> PyResult<String> {
        wait(py, || Ok(self.family.store()?.metrics().to_prometheus()))
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        wait(py, || self.family.close())
    }

    fn __enter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyAny>) -> PyResult<()> {
        self.close(py)
    }
}
