//! Repairs: a new store from the readable contents of a damaged one.

use std::path::PathBuf;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use runstone::{DoubtReason, RepairBasis, RepairOptions};
use runstone_boundary::options::of_store;

use crate::errors::{outcome, wait};
use crate::programs::mergers;

/// The result of a repair.
#[pyclass(frozen, get_all, module = "runstone")]
pub struct RepairReport {
    healthy: bool,
    basis: &'static str,
    keyspaces: Vec<String>,
    tables: u64,
    carried_tables: u64,
    log_records: u64,
    entries: u64,
    bytes: u64,
    last_number: u64,
    lost: Vec<(String, String)>,
    doubts: Vec<Py<Doubt>>,
    notes: Vec<String>,
}

/// Keys that may be wrong.
#[pyclass(frozen, get_all, module = "runstone")]
pub struct Doubt {
    keyspace: Option<String>,
    first: Py<PyBytes>,
    last: Option<Py<PyBytes>>,
    numbers: Option<(u64, u64)>,
    reason: &'static str,
    message: String,
}

#[pymethods]
impl RepairReport {
    fn __repr__(&self) -> String {
        let RepairReport { entries, lost, doubts, .. } = self;
        match self.healthy {
            true => "<runstone.RepairReport healthy>".to_string(),
            false => format!(
                "<runstone.RepairReport entries={entries} lost={} doubts={}>",
                lost.len(),
                doubts.len()
            ),
        }
    }
}

#[pymethods]
impl Doubt {
    /// Whether the doubt includes a key.
    fn covers(&self, py: Python<'_>, keyspace: &str, key: crate::bytes::Buffer) -> bool {
        let (first, key): (&[u8], &[u8]) = (self.first.as_bytes(py), &key);
        self.keyspace.as_deref().is_none_or(|own| own == keyspace)
            && first <= key
            && self.last.as_ref().is_none_or(|last| key <= last.as_bytes(py))
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        let text = |key: &Py<PyBytes>| format!("b\"{}\"", key.as_bytes(py).escape_ascii());
        let last = self.last.as_ref().map_or_else(|| "the end".to_string(), text);
        let keyspace = self.keyspace.as_deref().unwrap_or("all keyspaces");
        format!("<runstone.Doubt {keyspace}: {} to {last}: {}>", text(&self.first), self.reason)
    }
}

/// `options` is TOML.
#[pyfunction]
pub fn repair(
    py: Python<'_>,
    source: PathBuf,
    target: PathBuf,
    options: &str,
    merge_operators: &Bound<'_, PyDict>,
    lost_log: bool,
) -> PyResult<RepairReport> {
    let mut store = outcome(of_store(options))?;
    store.merge_operators = mergers(merge_operators, &mut Vec::new())?;
    let options = RepairOptions::default().store(store).lost_log(lost_log);
    let report = wait(py, || Ok(runstone::Store::repair(source, target, options)?))?;
    let doubts = report.doubts.into_iter().map(|doubt| {
        Py::new(
            py,
            Doubt {
                keyspace: doubt.keyspace,
                first: PyBytes::new(py, &doubt.from).unbind(),
                last: doubt.to.map(|to| PyBytes::new(py, &to).unbind()),
                numbers: doubt.numbers,
                reason: reason(doubt.reason),
                message: doubt.what,
            },
        )
    });
    Ok(RepairReport {
        healthy: report.is_healthy,
        basis: basis(report.basis),
        keyspaces: report.keyspaces,
        tables: report.tables,
        carried_tables: report.carried_tables,
        log_records: report.log_records,
        entries: report.entries,
        bytes: report.bytes,
        last_number: report.last_seq,
        lost: report.lost.into_iter().map(|lost| (lost.file, lost.what)).collect(),
        doubts: doubts.collect::<PyResult<_>>()?,
        notes: report.notes,
    })
}

fn basis(basis: RepairBasis) -> &'static str {
    match basis {
        RepairBasis::Manifest => "manifest",
        RepairBasis::PartOfManifest => "part-of-manifest",
        _ => "tables",
    }
}

fn reason(reason: DoubtReason) -> &'static str {
    match reason {
        DoubtReason::MayBeOld => "may-be-old",
        DoubtReason::MayBeBack => "may-be-back",
        DoubtReason::ValueLost => "value-lost",
        DoubtReason::OperandsMayRepeat => "operands-may-repeat",
        _ => "from-lost-log",
    }
}
