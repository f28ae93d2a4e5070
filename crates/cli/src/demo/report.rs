//! The measurements of a demonstration, for people and for machines.

use std::time::Duration;

use runstone::metrics::Percentiles;
use serde_json::{Value, json};

use super::phases::{Check, Phase, Run};
use crate::opened::Figures;
use crate::output::{columns, duration, nanos, rounded, size};

/// All measurements.
pub struct Report {
    pub source: String,
    pub store: String,
    pub is_scratch: bool,
    pub picture: String,
    pub costs: Figures,
    pub close: Duration,
    pub reopen: Duration,
    pub total: Duration,
}

impl Report {
    /// The object for machines.
    pub fn to_json(&self, run: &Run<'_>) -> Value {
        let check = &run.check;
        let mut report = json!({
            "source": self.source,
            "store": self.store,
            "files": run.input.tree.files.len(),
            "source_bytes": run.input.tree.bytes(),
            "skipped": run.input.tree.skipped,
            "cut_files": run.input.cut.0,
            "cut_bytes": run.input.cut.1,
            "phases": run.phases.iter().map(phase_json).collect::<Vec<_>>(),
            "close_ms": rounded(self.close.as_secs_f64() * 1e3),
            "reopen_ms": rounded(self.reopen.as_secs_f64() * 1e3),
            "seconds": rounded(self.total.as_secs_f64()),
            "verified": check.differences == 0,
            "values_equal": check.values_equal,
            "absences_right": check.absences_right,
            "changed_meanwhile": check.changed_meanwhile,
            "differences": check.differences,
            "difference_examples": check.told,
        });
        if let (Value::Object(report), Value::Object(costs)) = (&mut report, &self.costs.json) {
            report.extend(costs.clone());
        }
        report
    }

    /// The report for people.
    pub fn to_text(&self, run: &Run<'_>) -> String {
        let fate = if self.is_scratch { "removed at the end" } else { "kept" };
        let mut text = format!("store: {} ({fate})\n\n", self.store);
        text.push_str(&self.picture);
        text.push('\n');
        text.push_str(&phase_table(&run.phases));
        text.push('\n');
        text.push_str(&self.costs.text);
        text.push_str(&format!(
            "close {}, reopen {}; everything {}\n\n{}",
            duration(self.close),
            duration(self.reopen),
            duration(self.total),
            verdict(&run.check)
        ));
        text
    }
}

fn phase_json(phase: &Phase) -> Value {
    let in_store = phase.in_store.as_secs_f64();
    let Percentiles { p50_ns, p99_ns, p999_ns, max_ns, count, .. } = phase.latency;
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
