//! Every workload on the store itself, in memory, with buffers so small that it flushes and
//! compacts.

use std::sync::Arc;

use super::common;
use runstone::storage::MemoryStorage;
use runstone::{Background, KeyspaceOptions, Options, Store};
use runstone_workloads::{BenchSpec, NoProgress, run};

fn store() -> Store {
    let keyspace = KeyspaceOptions::default().write_buffer_bytes(64 << 10);
    let options = Options::default()
        .memory_budget_bytes(16 << 20)
        .background(Background::Threads(2))
        .keyspace(keyspace);
    Store::open_on(Arc::new(MemoryStorage::new()), options).expect("opens in memory")
}

#[test]
fn every_workload_does_what_was_asked() {
    for threads in [1, 3] {
        let spec = BenchSpec { num: 1000, scan_length: 10, threads, ..BenchSpec::default() };
        common::check_all(&store(), &spec);
    }
}

#[test]
fn costs_are_reported() {
    let store = store();
    let spec = BenchSpec { num: 20_000, ..BenchSpec::default() };
    let report = run(&store, &["filluniquerandom"], &spec, &NoProgress).expect("no errors");
    let user_bytes = 20_000 * 116;
    assert_eq!(report.metrics.user_bytes_written, user_bytes);
    assert_eq!(report.metrics.live_bytes, Some(user_bytes));
    assert!(report.metrics.write_amplification > 1.0, "the log alone is one");
    assert!(report.metrics.space_amplification.expect("counted") > 0.0);
    assert!(report.benchmarks[0].bytes_written >= user_bytes);
    store.flush().expect("flushes");
}
