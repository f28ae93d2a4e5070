//! Transactions.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use runstone::{Isolation, TransactionMode, TransactionOptions, Value};
use runstone_boundary::cursors::AnyCursor;
use runstone_boundary::transactions::{PagedCursor, SharedTransaction};
use runstone_boundary::{Code, Result};

use crate::bytes::Buffer;
use crate::errors::wait;
use crate::held::{Family, Held, Shared};
use crate::keyspace::{Keyspace, bounds, write_options};
use crate::walk::{Range, Shows, Walk};

/// Reads and writes that happen together or not at all. As a context manager it commits at the end
/// of the block, and rolls back if the block raises.
#[pyclass(frozen, module = "runstone")]
pub struct Transaction {
    /// The transaction, and the keyspace for calls without one.
    held: Held<Shared<(SharedTransaction, runstone::Keyspace)>>,
    sync: Option<bool>,
}

impl Transaction {
    pub fn begin(
        family: &Arc<Family>,
        [serializable, pessimistic]: [bool; 2],
        sync: Option<bool>,
    ) -> Result<Transaction> {
        let mut options = TransactionOptions::default();
        if serializable {
            options.isolation = Isolation::Serializable;
        }
        if pessimistic {
            options.mode = TransactionMode::Pessimistic;
        }
        let store = family.store()?;
        let begun = SharedTransaction::begin(&store, options)?;
        let held = Shared::new((begun, store.default_keyspace().clone()));
        let held = Held::new(held, family);
        Ok(Transaction { held, sync })
    }

    /// Runs `work` with the transaction and this keyspace, or the default keyspace.
    fn with<T: Send>(
        &self,
        py: Python<'_>,
        keyspace: Option<&Keyspace>,
        work: impl FnOnce(&SharedTransaction, &runstone::Keyspace) -> Result<T> + Send,
    ) -> PyResult<T> {
        wait(py, || {
            let held = self.held.get()?.get()?;
            match keyspace {
                None => work(&held.0, &held.1),
                Some(keyspace) => work(&held.0, &*keyspace.inner()?),
            }
        })
    }

    fn walk(
        &self,
        py: Python<'_>,
        range: Range,
        keyspace: Option<&Keyspace>,
        shows: Shows,
        reverse: bool,
    ) -> PyResult<Walk> {
        let cursor = self.with(py, keyspace, |inner, keyspace| {
            PagedCursor::new(inner.clone(), keyspace.clone(), range.options()?)
        })?;
        Ok(Walk::new(AnyCursor::Transaction(cursor), shows, reverse, self.held.family()))
    }
}

fn shown<'py>(
    py: Python<'py>,
    value: Option<Value>,
    default: Option<Bound<'py, PyAny>>,
) -> Option<Bound<'py, PyAny>> {
    value.map(|value| PyBytes::new(py, &value).into_any()).or(default)
}

#[pymethods]
impl Transaction {
    #[pyo3(signature = (key, default=None, *, keyspace=None))]
    fn get<'py>(
        &self,
        py: Python<'py>,
        key: Buffer,
        default: Option<Bound<'py, PyAny>>,
        keyspace: Option<&Keyspace>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let found = self.with(py, keyspace, |inner, keyspace| {
            inner.read(|inner| Ok(inner.get(keyspace, &key)?))
        })?;
        Ok(shown(py, found, default))
    }

    #[pyo3(signature = (key, default=None, *, keyspace=None))]
    fn get_for_update<'py>(
        &self,
        py: Python<'py>,
        key: Buffer,
        default: Option<Bound<'py, PyAny>>,
        keyspace: Option<&Keyspace>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let found = self.with(py, keyspace, |inner, keyspace| {
            inner.write(|inner| inner.get_for_update(keyspace, &key))
        })?;
        Ok(shown(py, found, default))
    }

    #[pyo3(signature = (key, value, *, keyspace=None))]
    fn put(
        &self,
        py: Python<'_>,
        key: Buffer,
        value: Buffer,
        keyspace: Option<&Keyspace>,
    ) -> PyResult<()> {
        self.with(py, keyspace, |inner, keyspace| {
            inner.write(|inner| inner.put(keyspace, &key, &value))
        })
    }

    fn __setitem__(&self, py: Python<'_>, key: Buffer, value: Buffer) -> PyResult<()> {
        self.put(py, key, value, None)
    }

    #[pyo3(signature = (key, *, keyspace=None))]
    fn delete(&self, py: Python<'_>, key: Buffer, keyspace: Option<&Keyspace>) -> PyResult<()> {
        self.with(py, keyspace, |inner, keyspace| inner.write(|inner| inner.delete(keyspace, &key)))
    }

    fn __delitem__(&self, py: Python<'_>, key: Buffer) -> PyResult<()> {
        self.delete(py, key, None)
    }

    #[pyo3(signature = (key, operand, *, keyspace=None))]
    fn merge(
        &self,
        py: Python<'_>,
        key: Buffer,
        operand: Buffer,
        keyspace: Option<&Keyspace>,
    ) -> PyResult<()> {
        self.with(py, keyspace, |inner, keyspace| {
            inner.write(|inner| inner.merge(keyspace, &key, &operand))
        })
    }

    #[pyo3(signature = (start=None, stop=None, *, prefix=None, keyspace=None))]
    fn delete_range(
        &self,
        py: Python<'_>,
        start: Option<Buffer>,
        stop: Option<Buffer>,
        prefix: Option<Buffer>,
        keyspace: Option<&Keyspace>,
    ) -> PyResult<()> {
        self.with(py, keyspace, |inner, keyspace| {
            let range = bounds(start, stop, prefix)?;
            inner.write(|inner| inner.delete_range(keyspace, range))
        })
    }

    #[pyo3(signature = (start=None, stop=None, *, prefix=None, reverse=false, keyspace=None))]
    fn keys(
        &self,
        py: Python<'_>,
        start: Option<Buffer>,
        stop: Option<Buffer>,
        prefix: Option<Buffer>,
        reverse: bool,
        keyspace: Option<&Keyspace>,
    ) -> PyResult<Walk> {
        let range = Range { start, stop, prefix };
        self.walk(py, range, keyspace, Shows::Keys, reverse)
    }

    #[pyo3(signature = (start=None, stop=None, *, prefix=None, reverse=false, keyspace=None))]
    fn items(
        &self,
        py: Python<'_>,
        start: Option<Buffer>,
        stop: Option<Buffer>,
        prefix: Option<Buffer>,
        reverse: bool,
        keyspace: Option<&Keyspace>,
    ) -> PyResult<Walk> {
        let range = Range { start, stop, prefix };
        self.walk(py, range, keyspace, Shows::Items, reverse)
    }

    fn set_savepoint(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, None, |inner, _| {
            inner.write(|inner| {
                inner.set_savepoint();
                Ok(())
            })
        })
    }

    fn rollback_to_savepoint(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, None, |inner, _| inner.write(runstone::Transaction::rollback_to_savepoint))
    }

    fn commit(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, None, |inner, _| inner.commit(write_options(self.sync)))
    }

    fn rollback(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, None, |inner, _| inner.rollback())
    }

    fn __enter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    fn __exit__(
        &self,
        py: Python<'_>,
        kind: &Bound<'_, PyAny>,
        _value: &Bound<'_, PyAny>,
        _trace: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        // The block may have ended the transaction itself. If it closed the store, a commit reports
        // that, and an exception of the block continues.
        let held = self.held.get().and_then(Shared::get);
        let has_ended = match &held {
            Ok(held) => held.0.read(|_| Ok(())).is_err_and(|failure| failure.code == Code::Closed),
            Err(failure) => failure.code == Code::Closed && !kind.is_none(),
        };
        if has_ended {
            return Ok(());
        }
        if kind.is_none() { self.commit(py) } else { self.rollback(py) }
    }
}
