//! Every workload on a store made of a BTreeMap: exact counts, determinism, the shape of the JSON.

mod common;
mod engine;

use common::MapStore;
use runstone_workloads::generators::KeyFormat;
use runstone_workloads::{BenchReport, BenchSpec, NoProgress, Progress, WORKLOADS, run};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

fn small() -> BenchSpec {
    BenchSpec { num: 1000, scan_length: 10, ..BenchSpec::default() }
}

fn run_on_map(names: &[&str], spec: &BenchSpec) -> BenchReport {
    run(&MapStore::default(), names, spec, &NoProgress).expect("no errors")
}

#[test]
fn every_workload_does_what_was_asked() {
    for threads in [1, 3] {
        for key_format in [KeyFormat::Decimal, KeyFormat::Hashed] {
            let spec = BenchSpec { threads, key_format, ..small() };
            common::check_all(&MapStore::default(), &spec);
        }
    }
}

#[test]
fn batches_count_their_entries() {
    let spec = BenchSpec { batch_size: 7, threads: 2, ..small() };
    let names = ["filluniquerandom", "multireadrandom", "deleterandom"];
    let report = run_on_map(&names, &spec);
    assert!(report.benchmarks.iter().all(|benchmark| benchmark.operations == 1000));
    assert_eq!(report.benchmarks[1].found, 1000);
}

#[test]
fn a_seed_decides_what_is_found() {
    let found = |seed: u64| -> Vec<u64> {
        let names = ["fillrandom", "readrandom", "deleterandom", "readrandom", "seekrandom"];
        let report = run_on_map(&names, &BenchSpec { seed, ..small() });
        report.benchmarks.iter().map(|benchmark| benchmark.found).collect()
    };
    assert_eq!(found(1), found(1));
    assert_ne!(found(1), found(2));
    assert!((550..720).contains(&found(1)[1]), "63% of the keys are there: {:?}", found(1));
}

#[test]
fn a_duration_ends_random_benchmarks_only() {
    let duration = Some(Duration::from_millis(30));
    let spec = BenchSpec { duration, reads: Some(1), ..small() };
    let report = run_on_map(&["fillseq", "readrandom"], &spec);
    assert_eq!(report.benchmarks[0].operations, 1000);
    assert!(report.benchmarks[1].operations > 1);
    assert!(report.benchmarks[1].seconds >= 0.03);
}

/// Once, the number of operations, which does not matter if a duration ends the run, overflowed.
/// With a large number that did not overflow, nearly all drawn records were absent, and the run
/// never ended.
#[test]
fn a_duration_ends_whatever_the_number_of_operations() {
    for reads in [u64::MAX, u64::MAX / 10] {
        let duration = Some(Duration::from_millis(30));
        let spec = BenchSpec { duration, reads: Some(reads), threads: 2, ..small() };
        let report = run_on_map(&["ycsb-load", "ycsb-e"], &spec);
        assert!(report.benchmarks[1].seconds >= 0.03);
    }
}

#[test]
fn scans_can_be_cut_short() {
    let spec = BenchSpec { reads: Some(100), ..small() };
    let report = run_on_map(&["fillseq", "readseq", "readreverse"], &spec);
    assert_eq!(report.benchmarks[1].operations, 100);
    assert_eq!(report.benchmarks[2].operations, 100);
}

#[test]
fn progress_adds_up() {
    #[derive(Default)]
    struct Sum {
        total: AtomicU64,
        done: AtomicU64,
        ends: AtomicU64,
    }
    impl Progress for Sum {
        fn start(&self, _name: &str, total: u64) {
            self.total.fetch_add(total, Ordering::Relaxed);
        }
        fn advance(&self, operations: u64) {
            self.done.fetch_add(operations, Ordering::Relaxed);
        }
        fn finish(&self) {
            self.ends.fetch_add(1, Ordering::Relaxed);
        }
    }
    let (sum, spec) = (Sum::default(), BenchSpec { threads: 2, num: 5000, ..small() });
    run(&MapStore::default(), &["fillseq", "readseq", "ycsb-load"], &spec, &sum).expect("runs");
    assert_eq!(sum.total.into_inner(), 15_000);
    assert_eq!(sum.done.into_inner(), 15_000);
    assert_eq!(sum.ends.into_inner(), 3);
}

#[test]
fn unknown_names_are_refused_with_the_known_ones() {
    let error = run(&MapStore::default(), &["fillsec"], &small(), &NoProgress).expect_err("no");
    assert!(error.to_string().contains("fillsec"));
    assert!(error.hint().contains("fillseq") && error.hint().contains("ycsb-f"));
}

#[test]
fn all_of_ycsb_runs_on_one_store() {
    let report = run_on_map(&["ycsb-all"], &small());
    let names: Vec<&str> = report.benchmarks.iter().map(|run| run.name.as_str()).collect();
    assert_eq!(names[..2], ["ycsb-load", "ycsb-a"]);
    assert_eq!(names.last(), Some(&"ycsb-f"));
    assert!(report.benchmarks.iter().all(|run| run.operations == 1000));
}

#[test]
fn json_has_the_documented_keys() {
    let spec = BenchSpec { histogram: true, ..small() };
    let report = run_on_map(&["fillseq", "stats"], &spec);
    let json = serde_json::to_value(&report).expect("serialises");
    let keys = |value: &serde_json::Value| -> Vec<String> {
        value.as_object().expect("an object").keys().cloned().collect()
    };
    assert_eq!(keys(&json), ["benchmarks", "engine", "metrics"]);
    let benchmark = [
        "bytes_read",
        "bytes_written",
        "found",
        "lookups",
        "max_us",
        "mb_per_second",
        "micros_per_op",
        "name",
        "note",
        "operations",
        "ops_per_second",
        "p50_us",
        "p999_us",
        "p99_us",
        "seconds",
        "text",
    ];
    assert_eq!(keys(&json["benchmarks"][0]), benchmark);
    let metrics = [
        "bytes_read",
        "bytes_written",
        "disk_bytes",
        "live_bytes",
        "memory_bytes",
        "peak_resident_bytes",
        "resident_bytes",
        "space_amplification",
        "user_bytes_written",
        "write_amplification",
    ];
    assert_eq!(keys(&json["metrics"]), metrics);
    assert!(json["benchmarks"][0]["text"].as_str().expect("text").contains("Percentiles"));
    assert_eq!(json["metrics"]["live_bytes"], 116_000);
    let back: BenchReport = serde_json::from_value(json).expect("reads back");
    assert_eq!(back.benchmarks.len(), 2);
}

#[test]
fn names_are_unique() {
    let mut names: Vec<&str> = WORKLOADS.iter().map(|workload| workload.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), WORKLOADS.len());
}
