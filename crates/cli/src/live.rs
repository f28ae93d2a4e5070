//! Prints the counters of a store that another process has open, and how fast they grow. No table
//! or log contains the counters: the process reports them while another process watches it.

use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use runstone::metrics::CounterValues;
use runstone::{LiveState, MetricsSnapshot, Store, Watch};
use serde_json::{Value, json};

use crate::failure::Result;
use crate::interrupt;
use crate::output::{ratio, rounded, size};

/// The writer reports once a second, and notices a request within half a second. A writer that is
/// busy with a flush takes longer.
const PATIENCE: Duration = Duration::from_secs(3);
/// How often the command looks for a new report.
const LOOK: Duration = Duration::from_millis(50);

/// Waits for a report of the process that has the store open; `None` if it does not
/// report.
pub fn told(path: &Path) -> Result<Option<LiveState>> {
    next(&Store::watch(path)?, None)
}

/// The next report of the writer. `None` if it has closed the store, or reports nothing for
/// seconds.
pub fn next(watch: &Watch, last: Option<&LiveState>) -> Result<Option<LiveState>> {
    let began = Instant::now();
    let mark = |state: &LiveState| (state.process, state.number, state.written_ms);
    let known = last.map(mark);
    while began.elapsed() < PATIENCE + last.map_or(Duration::ZERO, |last| last.every) {
        let state = watch.live()?;
        if state.is_none() && last.is_some() && watch.process().is_none() {
            // The writer removed its report.
            return Ok(None);
        }
        let state = state.filter(LiveState::is_current);
        if let Some(state) = state.filter(|state| Some(mark(state)) != known) {
            return Ok(Some(state));
        }
        interrupt::check()?;
        sleep(LOOK);
    }
    Ok(None)
}

/// The changes between two moments.
pub struct Rates {
    now: LiveState,
    seconds: f64,
    counted: CounterValues,
}

/// The columns of [`Rates::row`], with their widths.
const COLUMNS: [(&str, usize); 9] = [
    ("writes/s", 10),
    ("gets/s", 10),
    ("flush B/s", 10),
    ("compact B/s", 12),
    ("held back", 10),
    ("L0 runs", 8),
    ("memory", 8),
    ("held", 8),
    ("to compact", 11),
];

impl Rates {
    /// Computes the rates between two reports; `None` if different processes made them, or if `now`
    /// is not later.
    pub fn between(last: &LiveState, now: LiveState) -> Option<Rates> {
        let passed_ms = now.written_ms.saturating_sub(last.written_ms);
        if now.process != last.process || now.number <= last.number || passed_ms == 0 {
            return None;
        }
        let counted = now.metrics.counters.since(&last.metrics.counters);
        Some(Rates { now, seconds: passed_ms as f64 / 1e3, counted })
    }

    /// The state at the later moment.
    pub fn into_now(self) -> LiveState {
        self.now
    }

    /// A line above the rows.
    pub fn header() -> String {
        let cell = |(name, width): &(&str, usize)| format!("{name:>width$}");
        COLUMNS.iter().map(cell).collect()
    }

    /// A line of a table.
    pub fn row(&self) -> String {
        let metrics = &self.now.metrics;
        let held_back = (self.held_back() * 100.0).round();
        let cells = [
            format!("{:.0}", self.per_second(self.counted.writes)),
            format!("{:.0}", self.per_second(self.counted.gets)),
            size(self.per_second(self.counted.flush_bytes_written) as u64),
            size(self.per_second(self.counted.compaction_bytes_written) as u64),
            format!("{held_back}%"),
            level_0_runs(metrics).to_string(),
            size(memory_bytes(metrics)),
            size(metrics.follower_held_bytes + metrics.memory.held_bytes),
            size(metrics.compaction_debt_bytes),
        ];
        let cell = |(text, (_, width)): (&String, &(&str, usize))| format!("{text:>width$}");
        let row: String = cells.iter().zip(&COLUMNS).map(cell).collect();
        match metrics.pressure.level.parts() {
            0 => row,
            _ => format!("{row}  {}", metrics.pressure.cause),
        }
    }

    /// Returns the row as JSON, for programs.
    pub fn json(&self) -> Value {
        let (metrics, counted) = (&self.now.metrics, &self.counted);
        json!({
            "process": self.now.process,
            "time_ms": self.now.written_ms,
            "seconds": self.seconds,
            "writes_per_second": rounded(self.per_second(counted.writes)),
            "gets_per_second": rounded(self.per_second(counted.gets)),
            "user_bytes_per_second": rounded(self.per_second(counted.user_bytes_written)),
            "flush_bytes_per_second": rounded(self.per_second(counted.flush_bytes_written)),
            "compaction_bytes_per_second":
                rounded(self.per_second(counted.compaction_bytes_written)),
            "delayed_ns": counted.delayed_ns,
            "stopped_ns": counted.stopped_ns,
            "pressure": metrics.pressure,
            "level_0_runs": level_0_runs(metrics),
            "memory_bytes": memory_bytes(metrics),
            "reader_held_bytes": metrics.memory.held_bytes,
            "follower_held_bytes": metrics.follower_held_bytes,
            "compaction_debt_bytes": metrics.compaction_debt_bytes,
        })
    }

    fn per_second(&self, count: u64) -> f64 {
        count as f64 / self.seconds
    }

    /// How many writers were slowed down or stopped, on average.
    fn held_back(&self) -> f64 {
        ratio(self.counted.delayed_ns + self.counted.stopped_ns, (self.seconds * 1e9) as u64)
    }
}

/// The keyspace with the most level-0 runs.
fn level_0_runs(metrics: &MetricsSnapshot) -> u64 {
    metrics.keyspaces.iter().map(|keyspace| keyspace.level_0_runs).max().unwrap_or(0)
}

/// The used part of the memory budget.
fn memory_bytes(metrics: &MetricsSnapshot) -> u64 {
    let memory = &metrics.memory;
    memory.memtable_bytes + memory.pinned_bytes + memory.cache_bytes
}
