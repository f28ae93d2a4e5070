//! What a demonstration measured, for people and for machines.

use std::time::Duration;

use runstone::metrics::Percentiles;
use runstone::{Keyspace, MetricsSnapshot};
use runstone_bench::process;
use serde_json::{Value, json};

use super::phases::{Check, FULL_SCAN, Phase, Run};
use crate::failure::Result;
use crate::output::{columns, duration, nanos, ratio, rounded, size};
use crate::picture::{Picture, terminal};

/// What the store cost, taken before it is closed.
pub struct Costs {
    pub metrics: MetricsSnapshot,
    pub disk_bytes: u64,
    pub picture: Picture,
    /// Key and value bytes that a reader sees.
    pub live_bytes: u64,
}

/// Everything.
pub struct Report {
    pub source: String,
    pub store: String,
    pub is_scratch: bool,
    pub costs: Costs,
    pub close: Duration,
    pub reopen: Duration,
    pub total: Duration,
}

impl Costs {
    /// Takes the costs; the full scan among `phases` tells the live bytes.
    pub fn of(keyspace: &Keyspace, metrics: MetricsSnapshot, phases: &[Phase]) -> Result<Costs> {
        let scan = phases.iter().find(|phase| phase.name == FULL_SCAN);
        Ok(Costs {
            metrics,
            disk_bytes: keyspace.store_disk_bytes(),
            picture: Picture::of(keyspace)?,
            live_bytes: scan.map_or(0, |phase| phase.bytes),
        })
    }

    fn written(&self, category: &str) -> u64 {
        let found = self.metrics.io.iter().find(|io| io.category == category);
        found.map_or(0, |io| io.written_bytes)
    }

    fn read(&self) -> u64 {
        self.metrics.io.iter().map(|io| io.read_bytes).sum()
    }

    fn write_amplification(&self) -> f64 {
        self.metrics.write_amplification_permille as f64 / 1000.0
    }

    fn space_amplification(&self) -> f64 {
        ratio(self.disk_bytes, self.live_bytes)
    }
}

impl Report {
    /// The object for machines.
    pub fn to_json(&self, run: &Run<'_>) -> Value {
        let (costs, check) = (&self.costs, &run.check);
        let counters = &costs.metrics.counters;
        let live = run.input.tree.files.len();
        json!({
            "source": self.source,
            "store": self.store,
            "files": live,
            "source_bytes": run.input.tree.bytes(),
            "skipped": run.input.tree.skipped,
            "cut_files": run.input.cut.0,
            "cut_bytes": run.input.cut.1,
            "phases": run.phases.iter().map(phase_json).collect::<Vec<_>>(),
            "write_amplification": rounded(costs.write_amplification()),
            "space_amplification": rounded(costs.space_amplification()),
            "tables_per_get": rounded(ratio(counters.tables_probed, counters.gets)),
            "blocks_per_get": rounded(ratio(counters.blocks_searched, counters.gets)),
            "blocks_read_per_get": rounded(ratio(counters.blocks_read, counters.gets)),
            "bytes": {
                "user": counters.user_bytes_written,
                "wal": costs.written("wal"),
                "flush": counters.flush_bytes_written,
                "merge": counters.merge_bytes_written,
                "moved": counters.bytes_moved,
                "manifest": costs.written("manifest"),
                "read": costs.read(),
                "live_tables": costs.metrics.table_bytes,
                "live_user": costs.live_bytes,
                "disk": costs.disk_bytes,
            },
            "memory": {
                "store": costs.metrics.memory,
                "resident_bytes": process::resident_bytes(),
                "peak_resident_bytes": process::peak_resident_bytes(),
            },
            "close_ms": rounded(self.close.as_secs_f64() * 1e3),
            "reopen_ms": rounded(self.reopen.as_secs_f64() * 1e3),
            "seconds": rounded(self.total.as_secs_f64()),
            "verified": check.differences == 0,
            "values_equal": check.values_equal,
            "absences_right": check.absences_right,
            "changed_meanwhile": check.changed_meanwhile,
            "differences": check.differences,
            "difference_examples": check.told,
            "shape": costs.picture.to_json(),
        })
    }

    /// The report for people.
    pub fn to_text(&self, run: &Run<'_>, terminal_columns: usize) -> String {
        let fate = if self.is_scratch { "removed at the end" } else { "kept" };
        let mut text = format!("store: {} ({fate})\n\n", self.store);
        text.push_str(&terminal::draw(&self.costs.picture, terminal_columns));
        text.push('\n');
        text.push_str(&phase_table(&run.phases));
        text.push('\n');
        text.push_str(&self.cost_lines());
        text.push_str(&format!(
            "close {}, reopen {}; everything {}\n\n{}",
            duration(self.close),
            duration(self.reopen),
            duration(self.total),
            verdict(&run.check)
        ));
        text
    }

    fn cost_lines(&self) -> String {
        let costs = &self.costs;
        let (counters, memory) = (&costs.metrics.counters, &costs.metrics.memory);
        format!(
            "amplification: write {:.2} (written {} for {} from the user), \
             space {:.2} (on disk {} for {} live)\n\
             per get: {:.2} tables asked, {:.2} blocks searched, {:.3} read from files; \
             read from files {} in all\n\
             written: log {}, flushes {}, merges {} (and moved {}), manifest {}; live tables {}\n\
             memory: cache {}, index and filters {}, buffers {} of a budget of {}; \
             process {} (peak {})\n",
            costs.write_amplification(),
            size(costs.metrics.io.iter().map(|io| io.written_bytes).sum()),
            size(counters.user_bytes_written),
            costs.space_amplification(),
            size(costs.disk_bytes),
            size(costs.live_bytes),
            ratio(counters.tables_probed, counters.gets),
            ratio(counters.blocks_searched, counters.gets),
            ratio(counters.blocks_read, counters.gets),
            size(costs.read()),
            size(costs.written("wal")),
            size(counters.flush_bytes_written),
            size(counters.merge_bytes_written),
            size(counters.bytes_moved),
            size(costs.written("manifest")),
            size(costs.metrics.table_bytes),
            size(memory.cache_bytes),
            size(memory.pinned_bytes),
            size(memory.memtable_bytes),
            size(memory.budget_bytes),
            size(process::resident_bytes()),
            size(process::peak_resident_bytes()),
        )
    }
}

fn phase_json(phase: &Phase) -> Value {
    let in_store = phase.in_store.as_secs_f64();
    let Percentiles { p50_ns, p99_ns, p999_ns, max_ns, count } = phase.latency;
    json!({
        "name": phase.name,
        "operations": phase.operations,
        "bytes": phase.bytes,
        "seconds": rounded(phase.took.as_secs_f64()),
        "store_seconds": rounded(in_store),
        "ops_per_second": rounded(per_second(phase.operations, phase.in_store)),
        "bytes_per_second": rounded(per_second(phase.bytes, phase.in_store)),
        "latency": (count > 0).then(|| json!({
            "p50_ns": p50_ns, "p99_ns": p99_ns, "p999_ns": p999_ns, "max_ns": max_ns,
        })),
    })
}

fn per_second(amount: u64, took: Duration) -> f64 {
    if took.is_zero() { 0.0 } else { amount as f64 / took.as_secs_f64() }
}

fn phase_table(phases: &[Phase]) -> String {
    let rows: Vec<Vec<String>> = phases
        .iter()
        .map(|phase| {
            let latency = |ns: u64| match phase.latency.count {
                0 => "-".to_string(),
                _ => nanos(ns),
            };
            let rate = per_second(phase.operations, phase.in_store);
            let bytes_rate = per_second(phase.bytes, phase.in_store) as u64;
            vec![
                phase.name.to_string(),
                phase.operations.to_string(),
                size(phase.bytes),
                duration(phase.took),
                duration(phase.in_store),
                if phase.operations > 1 { format!("{rate:.0}") } else { "-".into() },
                if phase.bytes > 0 { size(bytes_rate) } else { "-".into() },
                latency(phase.latency.p50_ns),
                latency(phase.latency.p99_ns),
                latency(phase.latency.p999_ns),
                latency(phase.latency.max_ns),
            ]
        })
        .collect();
    let header = [
        "phase", "ops", "bytes", "took", "in store", "ops/s", "bytes/s", "p50", "p99", "p99.9",
        "max",
    ];
    columns(&header, &rows)
}

fn verdict(check: &Check) -> String {
    let mut text = match check.differences {
        0 => format!(
            "verified: {} values equal their files, {} deleted keys are absent\n",
            check.values_equal, check.absences_right
        ),
        differences => format!("DIFFERENT: {differences} times\n"),
    };
    for told in &check.told {
        text.push_str(&format!("  {told}\n"));
    }
    if check.changed_meanwhile > 0 {
        let changed = check.changed_meanwhile;
        text.push_str(&format!("{changed} files changed meanwhile and were not compared\n"));
    }
    text
}
