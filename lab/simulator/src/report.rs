//! The reports of the simulator, and the measurement of a shape for reads. Nothing is decided here.

use std::sync::Arc;

use serde::{Serialize, Serializer};

use super::spread::number;
use runstone_policy::shape::overlapping::sublevels;
use runstone_policy::shape::{Level, Shape, Table};

/// A level at the end of the simulation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SimLevel {
    /// Level number.
    pub level: u32,
    /// Bytes of its tables.
    pub bytes: u64,
    /// Number of tables.
    pub table_count: u64,
    /// Number of runs; 0 where tables may overlap.
    pub run_count: u64,
    /// Capacity; `u64::MAX` if unbounded, which is null in JSON.
    #[serde(serialize_with = "bound")]
    pub capacity_bytes: u64,
    /// Whether tables may overlap.
    pub overlapping: bool,
    /// Tables of the level that cover a key, averaged over the key space, in thousandths.
    #[serde(rename = "tables_probed_per_get", serialize_with = "thousandths")]
    pub tables_probed_per_get_permille: u64,
}

/// The tree when the data had a certain size.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SimPoint {
    /// Bytes that the user had written.
    pub user_bytes: u64,
    /// (flushed + loaded + compacted) / user so far, in thousandths.
    #[serde(rename = "write_amplification", serialize_with = "thousandths")]
    pub write_amplification_permille: u64,
    /// As in the report, but the mean since the previous point.
    #[serde(rename = "tables_probed_per_get", serialize_with = "thousandths")]
    pub tables_probed_per_get_permille: u64,
    /// As in the report, but the mean since the previous point.
    #[serde(rename = "runs_sought_per_scan", serialize_with = "thousandths")]
    pub runs_sought_per_scan_permille: u64,
    /// Non-empty levels.
    pub level_count: u64,
}

/// Everything that happened since the simulator was made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SimReport {
    /// Bytes that the user wrote.
    pub user_bytes: u64,
    /// Bytes that flushes wrote (duplicates within a flush are gone).
    pub flushed_bytes: u64,
    /// Bytes that bulk loads wrote.
    pub loaded_bytes: u64,
    /// Bytes that compactions read.
    pub compaction_read_bytes: u64,
    /// Bytes that compactions wrote.
    pub compacted_bytes: u64,
    /// Bytes of tables that changed level without being written.
    pub moved_bytes: u64,
    /// Bytes that the largest compaction of each plan read: compactions of one plan share no key,
    /// and can run side by side.
    pub critical_read_bytes: u64,
    /// Bytes of tables that were dropped without being read, because all of their entries had
    /// expired.
    pub dropped_bytes: u64,
    /// (flushed + loaded + compacted) / user, in thousandths.
    #[serde(rename = "write_amplification", serialize_with = "thousandths")]
    pub write_amplification_permille: u64,
    /// Entries stored / distinct keys written that have not expired, in thousandths.
    #[serde(rename = "space_amplification", serialize_with = "thousandths")]
    pub space_amplification_permille: u64,
    /// Tables that cover a key, averaged over the key space, in thousandths: what a get of an
    /// absent key probes without filters.
    #[serde(rename = "tables_probed_per_get", serialize_with = "thousandths")]
    pub tables_probed_per_get_permille: u64,
    /// Runs that a short scan positions, averaged over the key space, in thousandths: those that do
    /// not end before its first key. An overlapping level counts as many runs as its tables can be
    /// arranged in.
    #[serde(rename = "runs_sought_per_scan", serialize_with = "thousandths")]
    pub runs_sought_per_scan_permille: u64,
    /// The largest number of level-0 runs at any time.
    pub max_l0_run_count: u64,
    /// Bytes that the largest job read: while it runs, everything above it waits.
    pub largest_job_bytes: u64,
    /// The policy's reason for that job.
    pub largest_job_why: String,
    /// Plans carried out.
    pub plan_count: u64,
    /// Non-empty levels, shallow first.
    pub levels: Vec<SimLevel>,
    /// The tree at each doubling of the flushes, and at the end.
    pub curve: Vec<SimPoint>,
}

/// The results of a phase of gets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SimGets {
    /// Gets done.
    pub get_count: u64,
    /// Mean over the phase of tables probed per get, in thousandths.
    #[serde(rename = "tables_probed_per_get", serialize_with = "thousandths")]
    pub tables_probed_per_get_permille: u64,
    /// The same when the phase began.
    #[serde(rename = "first_tables_probed_per_get", serialize_with = "thousandths")]
    pub first_tables_probed_per_get_permille: u64,
    /// The same when it ended.
    #[serde(rename = "last_tables_probed_per_get", serialize_with = "thousandths")]
    pub last_tables_probed_per_get_permille: u64,
    /// Bytes that compactions read during the phase.
    pub compaction_read_bytes: u64,
    /// Bytes that compactions wrote during the phase.
    pub compacted_bytes: u64,
    /// Plans carried out during the phase.
    pub plan_count: u64,
}

fn bound<S: Serializer>(bytes: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    Some(*bytes).filter(|bytes| *bytes < u64::MAX).serialize(serializer)
}

/// A number in thousandths as a decimal.
pub(super) fn thousandths<S: Serializer>(number: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(*number as f64 / 1000.0)
}

/// Keys that the table's bounds cover.
pub(super) fn width_of(table: &Table) -> u128 {
    u128::from(number(&table.max_key) - number(&table.min_key)) + 1
}

/// The sum, over the keys of `key_space`, of the tables that cover the key.
pub(super) fn covered_keys<'a>(tables: impl IntoIterator<Item = &'a Arc<Table>>) -> u128 {
    tables.into_iter().map(|table| width_of(table)).sum()
}

/// `keys / key_space` in thousandths.
pub(super) fn permille_of(keys: u128, key_space: u64) -> u64 {
    u64::try_from(keys * 1000 / u128::from(key_space.max(1))).unwrap_or(u64::MAX)
}

/// The sum, over the keys of the key space, of the runs that a scan from the key positions.
pub(super) fn sought_keys(shape: &Shape) -> u128 {
    let until = |end: u64| u128::from(end) + 1;
    let end_of = |table: &Table| number(&table.max_key);
    let of_level = |level: &Level| -> u128 {
        match level {
            Level::Runs(runs) => {
                let ends = runs.iter().filter_map(|run| run.tables.last());
                ends.map(|table| until(end_of(table))).sum()
            }
            Level::Overlapping(tables) => {
                let rows = sublevels(tables.iter().map(|table| &**table));
                let ends = rows.iter().filter_map(|row| row.last());
                ends.map(|at| until(end_of(&tables[*at as usize]))).sum()
            }
        }
    };
    shape.levels.iter().map(of_level).sum()
}
