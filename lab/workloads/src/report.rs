//! The numbers of a run, for machines (serde) and for people (the lines of db_bench).

use runstone_kv::KvMetrics;
use runstone_storage::process;
use serde::{Deserialize, Serialize};

use crate::bench::Tally;
use crate::spec::BenchSpec;

/// A run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BenchReport {
    /// Name of the store.
    pub engine: String,
    /// The benchmarks, in the order in which they ran.
    pub benchmarks: Vec<BenchmarkReport>,
    /// Costs at the end.
    pub metrics: MetricsReport,
}

/// One benchmark.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BenchmarkReport {
    /// Its name.
    pub name: String,
    /// Operations done by all threads.
    pub operations: u64,
    /// Keys looked up.
    pub lookups: u64,
    /// Keys found.
    pub found: u64,
    /// Time from start to end.
    pub seconds: f64,
    /// Operations per second of all threads together.
    pub ops_per_second: f64,
    /// Microseconds per operation of one thread, from start to end, including the loop around the
    /// store.
    pub micros_per_op: f64,
    /// Key and value bytes written or read, in units of 1048576, per second.
    pub mb_per_second: f64,
    /// Median latency of a call.
    pub p50_us: f64,
    /// 99 of 100 calls were faster.
    pub p99_us: f64,
    /// 999 of 1000 calls were faster.
    pub p999_us: f64,
    /// The slowest call.
    pub max_us: f64,
    /// Bytes that the store wrote during the benchmark, including background work.
    pub bytes_written: u64,
    /// Bytes that the store read during the benchmark.
    pub bytes_read: u64,
    /// A remark besides the numbers; often empty.
    pub note: String,
    /// The latency histogram, if asked for, or the text of `stats`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
}

/// The costs of the store.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MetricsReport {
    /// Bytes written over bytes that users wrote, since the store was opened; 0 without writes.
    pub write_amplification: f64,
    /// Bytes on disk over live key and value bytes; `None` if those were not counted.
    pub space_amplification: Option<f64>,
    /// Resident memory of the process.
    pub resident_bytes: u64,
    /// The most memory that was resident.
    pub peak_resident_bytes: u64,
    /// Key and value bytes that users wrote.
    pub user_bytes_written: u64,
    /// Bytes written, log included.
    pub bytes_written: u64,
    /// Bytes read.
    pub bytes_read: u64,
    /// Bytes on disk, log included.
    pub disk_bytes: u64,
    /// Memory that the store accounts for.
    pub memory_bytes: u64,
    /// Key and value bytes that a scan of everything saw.
    pub live_bytes: Option<u64>,
}

impl BenchmarkReport {
    /// Combines the counts of the workload and the store's work during it.
    pub fn new(
        name: &str,
        tally: &Tally,
        before: &KvMetrics,
        after: &KvMetrics,
        spec: &BenchSpec,
    ) -> BenchmarkReport {
        let histogram = || spec.histogram.then(|| tally.latency.to_text());
        let seconds = tally.elapsed.as_secs_f64();
        BenchmarkReport {
            name: name.to_string(),
            operations: tally.operations,
            lookups: tally.lookups,
            found: tally.found,
            seconds,
            ops_per_second: ratio(tally.operations as f64, seconds),
            micros_per_op: ratio(tally.busy.as_secs_f64() * 1e6, tally.operations as f64),
            mb_per_second: ratio(tally.user_bytes as f64 / f64::from(1 << 20), seconds),
            p50_us: tally.latency.quantile_us(0.5),
            p99_us: tally.latency.quantile_us(0.99),
            p999_us: tally.latency.quantile_us(0.999),
            max_us: tally.latency.max_us(),
            bytes_written: after.bytes_written.saturating_sub(before.bytes_written),
            bytes_read: after.bytes_read.saturating_sub(before.bytes_read),
            note: tally.note.clone(),
            text: tally.text.clone().or_else(histogram),
        }
    }

    /// The line that db_bench prints.
    pub fn line(&self) -> String {
        let mut line = format!(
            "{:<12} : {:11.3} micros/op {:.0} ops/sec {:.3} seconds {} operations;",
            self.name, self.micros_per_op, self.ops_per_second, self.seconds, self.operations
        );
        if self.mb_per_second > 0.0 {
            line.push_str(&format!(" {:6.1} MB/s", self.mb_per_second));
        }
        if self.lookups > 0 {
            line.push_str(&format!(" ({} of {} found)", self.found, self.lookups));
        }
        if !self.note.is_empty() {
            line.push_str(&format!(" ({})", self.note));
        }
        line
    }

    /// The line, with the histogram or text below it if there is one.
    pub fn to_text(&self) -> String {
        let text = self.text.as_ref().map(|text| format!("{}\n", text.trim_end()));
        format!("{}\n{}", self.line(), text.unwrap_or_default())
    }
}

impl MetricsReport {
    /// The costs from the store's counters, the process and the counted live bytes.
    pub fn new(metrics: &KvMetrics, live_bytes: Option<u64>) -> MetricsReport {
        let live = live_bytes.filter(|bytes| *bytes > 0);
        MetricsReport {
            write_amplification: ratio(
                metrics.bytes_written as f64,
                metrics.user_bytes_written as f64,
            ),
            space_amplification: live.map(|live| ratio(metrics.disk_bytes as f64, live as f64)),
            resident_bytes: process::resident_bytes(),
            peak_resident_bytes: process::peak_resident_bytes(),
            user_bytes_written: metrics.user_bytes_written,
            bytes_written: metrics.bytes_written,
            bytes_read: metrics.bytes_read,
            disk_bytes: metrics.disk_bytes,
            memory_bytes: metrics.memory_bytes,
            live_bytes,
        }
    }

    /// The costs in one line.
    pub fn line(&self) -> String {
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        let space = self.space_amplification.map_or("-".to_string(), |space| format!("{space:.2}"));
        format!(
            "write amplification {:.2}, space amplification {space}, {:.1} MiB on disk, \
             {:.1} MiB resident (peak {:.1}), {:.1} MiB written, {:.1} MiB read",
            self.write_amplification,
            mib(self.disk_bytes),
            mib(self.resident_bytes),
            mib(self.peak_resident_bytes),
            mib(self.bytes_written),
            mib(self.bytes_read),
        )
    }
}

fn ratio(of: f64, to: f64) -> f64 {
    if to > 0.0 { of / to } else { 0.0 }
}

/// The middle number; for an even count, the mean of the middle two; 0 without numbers.
pub fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_unstable_by(f64::total_cmp);
    let half = numbers.len() / 2;
    match numbers.len() {
        0 => 0.0,
        count if count % 2 == 1 => numbers[half],
        _ => (numbers[half - 1] + numbers[half]) / 2.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn medians_of_odd_and_even_counts() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), 2.5);
        assert_eq!(median(Vec::new()), 0.0);
    }

    #[test]
    fn the_line_is_that_of_db_bench() {
        let elapsed = Duration::from_millis(3124);
        let tally = Tally {
            operations: 1_000_000,
            user_bytes: 116_000_000,
            elapsed,
            busy: elapsed,
            ..Tally::default()
        };
        let (nothing, spec) = (KvMetrics::default(), BenchSpec::default());
        let report = BenchmarkReport::new("fillrandom", &tally, &nothing, &nothing, &spec);
        assert_eq!(
            report.line(),
            "fillrandom   :       3.124 micros/op 320102 ops/sec 3.124 seconds \
             1000000 operations;   35.4 MB/s"
        );
    }
}
