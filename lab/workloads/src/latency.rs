//! A histogram of how long operations took. It takes nanoseconds, reports microseconds, and keeps
//! three digits.

use std::fmt::Write;
use std::time::Duration;

use hdrhistogram::Histogram;

/// Longer operations are counted as this long: an hour.
const MOST_NANOS: u64 = 3_600_000_000_000;

/// Latencies of one thread, or of several together.
#[derive(Clone, Debug)]
pub struct Latency {
    nanos: Histogram<u64>,
}

impl Default for Latency {
    fn default() -> Self {
        let nanos = Histogram::new_with_bounds(1, MOST_NANOS, 3).expect("the bounds are sound");
        Latency { nanos }
    }
}

impl Latency {
    /// Counts one operation.
    pub fn record(&mut self, took: Duration) {
        self.nanos.saturating_record(took.as_nanos().min(u128::from(MOST_NANOS)) as u64);
    }

    /// Adds all of `other`.
    pub fn add(&mut self, other: &Latency) {
        self.nanos.add(&other.nanos).expect("all histograms have the same bounds");
    }

    /// How many were counted.
    pub fn count(&self) -> u64 {
        self.nanos.len()
    }

    /// The latency that a fraction `quantile` of operations does not exceed; 0 when empty.
    pub fn quantile_us(&self, quantile: f64) -> f64 {
        self.nanos.value_at_quantile(quantile) as f64 / 1e3
    }

    /// The longest; 0 when empty.
    pub fn max_us(&self) -> f64 {
        self.nanos.max() as f64 / 1e3
    }

    /// The histogram as text, in the manner of db_bench.
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        let us = |nanos: f64| nanos / 1e3;
        // Writing into a string does not fail.
        let _ = writeln!(
            text,
            "Microseconds per operation:\nCount: {} Average: {:.4}  StdDev: {:.2}\n\
             Min: {:.2}  Median: {:.4}  Max: {:.2}",
            self.count(),
            us(self.nanos.mean()),
            us(self.nanos.stdev()),
            us(self.nanos.min() as f64),
            self.quantile_us(0.5),
            self.max_us(),
        );
        let _ = writeln!(
            text,
            "Percentiles: P50: {:.2} P75: {:.2} P99: {:.2} P99.9: {:.2} P99.99: {:.2}",
            self.quantile_us(0.5),
            self.quantile_us(0.75),
            self.quantile_us(0.99),
            self.quantile_us(0.999),
            self.quantile_us(0.9999),
        );
        text.push_str("------------------------------------------------------\n");
        self.write_buckets(&mut text);
        text
    }

    fn write_buckets(&self, text: &mut String) {
        let (total, mut seen, mut left) = (self.count().max(1) as f64, 0, 0);
        for bucket in self.nanos.iter_log(128, 2.0) {
            let (count, right) = (bucket.count_since_last_iteration(), bucket.value_iterated_to());
            seen += count;
            if count > 0 {
                let percent = 100.0 * count as f64 / total;
                let _ = writeln!(
                    text,
                    "[ {:10.3}, {:10.3} ) {count:10} {percent:7.3}% {:7.3}% {}",
                    left as f64 / 1e3,
                    (right + 1) as f64 / 1e3,
                    100.0 * seen as f64 / total,
                    "#".repeat((percent / 5.0).round() as usize),
                );
            }
            left = right + 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_and_merging() {
        let (mut one, mut other) = (Latency::default(), Latency::default());
        (1..=900).for_each(|us| one.record(Duration::from_micros(us)));
        (901..=1000).for_each(|us| other.record(Duration::from_micros(us)));
        one.add(&other);
        assert_eq!(one.count(), 1000);
        assert!((one.quantile_us(0.5) - 500.0).abs() < 1.0);
        assert!((one.max_us() - 1000.0).abs() < 1.0);
        let text = one.to_text();
        assert!(text.contains("Count: 1000") && text.contains("P99.9"), "{text}");
        assert!(Latency::default().to_text().contains("Count: 0"));
    }
}
