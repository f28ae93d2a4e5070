//! The metrics of a store as text for Prometheus. `promtool check metrics` accepts it without a
//! warning, whatever the names of the keyspaces are. A test checks this.
//!
//! ```text
//! # HELP runstone_gets_total Gets.
//! # TYPE runstone_gets_total counter
//! runstone_gets_total 12
//! ```
//!
//! Units are bytes and seconds. Counters begin at 0 when the store is opened and never fall; the
//! counters of a keyspace end with the keyspace. Figures per keyspace have names of their own,
//! because otherwise a sum over all series of one name would count everything twice.

use std::fmt::{Display, Formatter, Result, Write as _};

use crate::metrics::{COUNTERS, KeyspaceMetrics, MetricsSnapshot, Percentiles};

impl MetricsSnapshot {
    /// The Prometheus exposition format.
    pub fn to_prometheus(&self) -> String {
        let mut text = Text::default();
        for ((name, help), value) in COUNTERS.iter().zip(self.counters.to_vec()) {
            match name.strip_suffix("_ns") {
                // The help of these counters says how many nanoseconds something took. Here it says
                // seconds, as the name does.
                Some(name) => {
                    let help = help.trim().replacen("Nanoseconds", "Seconds", 1);
                    let name = format!("{name}_seconds_total");
                    text.metric(&name, &help, "counter", Seconds(value));
                }
                None => text.metric(&format!("{name}_total"), help, "counter", value),
            }
        }
        self.gauges(&mut text);
        self.storage(&mut text);
        self.keyspaces(&mut text);
        text.summary("commit", "Latency of commits, of one in 64.", &self.commit);
        text.summary("get", "Latency of gets, of one in 64.", &self.get);
        text.summary("stall", "Waits of writers for back-pressure.", &self.stall);
        text.summary("sync", "Latency of syncs of the log.", &self.sync);
        text.0
    }

    fn gauges(&self, text: &mut Text) {
        let memory = &self.memory;
        for (name, help, value) in [
            ("memory_budget_bytes", "Memory budget.", memory.budget_bytes),
            ("memtable_bytes", "Reserved by memtables and log.", memory.memtable_bytes),
            ("held_bytes", "Flushed memtables that readers hold.", memory.held_bytes),
            ("mapped_bytes", "Mapped for blocks and values.", memory.mapped_bytes),
            (
                "pinned_bytes",
                "Pinned index, filters, range deletes, value jobs.",
                memory.pinned_bytes,
            ),
            ("cache_bytes", "Blocks, partitions and values in the cache.", memory.cache_bytes),
            ("table_bytes", "Live tables.", self.table_bytes),
            ("table_file_bytes", "Table files, live or not.", self.table_file_bytes),
            ("peak_table_file_bytes", "Most of these.", self.peak_table_file_bytes),
            ("table_entries", "Entries in live tables.", self.table_entries),
            ("filter_bytes", "Filters of live tables.", self.filter_bits.div_ceil(8)),
            ("wal_bytes", "Log segments in use.", self.wal_bytes),
            (
                "commit_lock_peak_entries",
                "Most entries looked at under one hold of the commit lock.",
                self.commit_lock_peak_entries,
            ),
            (
                "commit_lock_peak_bytes",
                "Most bytes copied under one hold of the commit lock.",
                self.commit_lock_peak_bytes,
            ),
            ("followers", "Followers that hold a lease.", self.followers),
            ("follower_held_bytes", "Kept for followers alone.", self.follower_held_bytes),
            ("kept_log_bytes", "Log kept for readers of its history.", self.kept_log_bytes),
            ("follower_leases_revoked", "Leases revoked.", self.follower_leases_revoked),
            ("compaction_debt_bytes", "Bytes still to be compacted.", self.compaction_debt_bytes),
        ] {
            text.metric(name, help, "gauge", value);
        }
        let pressure = self.pressure.level.get();
        text.metric("pressure_ratio", "Back-pressure: at 1 writers wait.", "gauge", pressure);
    }

    fn storage(&self, text: &mut Text) {
        let name = "storage_bytes_total";
        text.head(name, "Bytes through the storage, by category of files.", "counter");
        for io in &self.io {
            for (direction, value) in [("written", io.written_bytes), ("read", io.read_bytes)] {
                text.sample(name, &[("category", &io.category), ("direction", direction)], value);
            }
        }
        let name = "storage_operations_total";
        text.head(name, "Calls of the storage, by category of files.", "counter");
        for io in &self.io {
            for (operation, value) in [("write", io.writes), ("read", io.reads), ("sync", io.syncs)]
            {
                text.sample(name, &[("category", &io.category), ("operation", operation)], value);
            }
        }
    }

    fn keyspaces(&self, text: &mut Text) {
        type Of = fn(&KeyspaceMetrics) -> u64;
        let metrics: [(&str, &str, &str, Of); 13] = [
            ("tables", "Live tables.", "gauge", |of| of.tables),
            ("runs", "Runs of tables.", "gauge", |of| of.runs),
            ("level_0_runs", "Runs of level 0.", "gauge", |of| of.level_0_runs),
            ("table_bytes", "Bytes of live tables.", "gauge", |of| of.table_bytes),
            ("table_entries", "Entries in live tables.", "gauge", |of| of.table_entries),
            ("memtable_bytes", "Entries that are not flushed.", "gauge", |of| of.memtable_bytes),
            ("value_file_bytes", "Bytes of value files.", "gauge", |of| of.value_file_bytes),
            ("compaction_debt_bytes", "Bytes still to be compacted.", "gauge", |of| {
                of.compaction_debt_bytes
            }),
            ("flushes_total", "Flushes.", "counter", |of| of.flushes),
            ("flush_bytes_written_total", "Table bytes written by flushes.", "counter", |of| {
                of.flush_bytes_written
            }),
            ("compactions_total", "Compactions.", "counter", |of| of.compactions),
            ("compaction_bytes_read_total", "Table bytes compactions read.", "counter", |of| {
                of.compaction_bytes_read
            }),
            ("compaction_bytes_written_total", "Table bytes compactions wrote.", "counter", |of| {
                of.compaction_bytes_written
            }),
        ];
        for (name, help, kind, value) in metrics {
            let name = format!("keyspace_{name}");
            text.head(&name, &format!("{help} Of one keyspace."), kind);
            for of in &self.keyspaces {
                text.sample(&name, &[("keyspace", &of.name)], value(of));
            }
        }
    }
}

/// The text so far.
#[derive(Default)]
struct Text(String);

impl Text {
    fn metric(&mut self, name: &str, help: &str, kind: &str, value: impl Display) {
        self.head(name, help, kind);
        self.sample(name, &[], value);
    }

    /// Writing to a string cannot fail, here and below.
    fn head(&mut self, name: &str, help: &str, kind: &str) {
        let help = help.trim().replace('\\', "\\\\").replace('\n', "\\n");
        let _ = writeln!(self.0, "# HELP runstone_{name} {help}");
        let _ = writeln!(self.0, "# TYPE runstone_{name} {kind}");
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        let label = |(name, value): &(&str, &str)| {
            let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            format!("{name}=\"{value}\"")
        };
        let labels: Vec<String> = labels.iter().map(label).collect();
        let _ = match labels.is_empty() {
            true => writeln!(self.0, "runstone_{name} {value}"),
            false => writeln!(self.0, "runstone_{name}{{{}}} {value}", labels.join(",")),
        };
    }

    /// If nothing was measured, the quantiles are NaN.
    fn summary(&mut self, name: &str, help: &str, of: &Percentiles) {
        let name = format!("{name}_seconds");
        self.head(&name, help, "summary");
        for (quantile, ns) in [("0.5", of.p50_ns), ("0.99", of.p99_ns), ("0.999", of.p999_ns)] {
            match of.count {
                0 => self.sample(&name, &[("quantile", quantile)], "NaN"),
                _ => self.sample(&name, &[("quantile", quantile)], Seconds(ns)),
            }
        }
        self.sample(&format!("{name}_sum"), &[], Seconds(of.sum_ns));
        self.sample(&format!("{name}_count"), &[], of.count);
    }
}

/// Nanoseconds, shown as seconds without rounding.
struct Seconds(u64);

impl Display for Seconds {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        write!(f, "{}.{:09}", self.0 / 1_000_000_000, self.0 % 1_000_000_000)
    }
}
