//! Runs benchmarks by name, one after another, with the store's own costs before and after. The
//! form of their numbers is in [`crate::report`].

use runstone_kv::{Direction, KvStore};
use runstone_kv::{Error, Result};

use crate::bench::{Bench, Progress};
use crate::report::{BenchReport, BenchmarkReport, MetricsReport};
use crate::spec::BenchSpec;
use crate::workloads::{WORKLOADS, Workload};

/// The name for all benchmarks of YCSB.
pub const YCSB_ALL: &str = "ycsb-all";

/// Runs the benchmarks of `names` in order on `store`, which keeps what they wrote. Unlike in
/// db_bench, a filling benchmark begins with an empty store only if the given store is empty.
pub fn run(
    store: &dyn KvStore,
    names: &[&str],
    spec: &BenchSpec,
    progress: &dyn Progress,
) -> Result<BenchReport> {
    spec.check()?;
    let workloads = names.iter().map(|name| find(name)).collect::<Result<Vec<_>>>()?;
    let mut benchmarks = Vec::new();
    for workload in workloads.into_iter().flatten() {
        let before = store.metrics()?;
        let bench = Bench { store, spec, name: workload.name, progress };
        let outcome = (workload.run)(&bench);
        progress.finish();
        let after = store.metrics()?;
        benchmarks.push(BenchmarkReport::new(workload.name, &outcome?, &before, &after, spec));
    }
    let metrics = store.metrics()?;
    let live_bytes = match spec.measure_space {
        true => Some(live_bytes(store)?),
        false => None,
    };
    let metrics = MetricsReport::new(&metrics, live_bytes);
    Ok(BenchReport { engine: store.name(), benchmarks, metrics })
}

/// The benchmarks of a name: one, or all of YCSB.
pub fn find(name: &str) -> Result<Vec<&'static Workload>> {
    let is_asked = |workload: &&Workload| match name {
        YCSB_ALL => workload.name.starts_with("ycsb-"),
        _ => workload.name == name,
    };
    let found: Vec<&Workload> = WORKLOADS.iter().filter(is_asked).collect();
    if found.is_empty() {
        let names: Vec<&str> = WORKLOADS.iter().map(|workload| workload.name).collect();
        let choice = format!("choose among: {}, {YCSB_ALL}", names.join(", "));
        return Err(Error::invalid(format!("no benchmark is named {name:?}"), choice));
    }
    Ok(found)
}

/// Key and value bytes that a scan of everything sees.
fn live_bytes(store: &dyn KvStore) -> Result<u64> {
    let mut bytes = 0;
    store.scan(None, Direction::Forward, &mut |key, value| {
        bytes += (key.len() + value.len()) as u64;
        true
    })?;
    Ok(bytes)
}
