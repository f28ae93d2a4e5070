//! Workloads under the names of db_bench and YCSB, run against any [`runstone_kv::KvStore`], and
//! their report. This is not a program: the command line draws the progress and opens the store.

pub mod bench;
pub mod generators;
pub mod latency;
pub mod report;
pub mod runner;
pub mod spec;
pub mod workloads;

pub use bench::{NoProgress, Progress};
pub use latency::Latency;
pub use report::{BenchReport, BenchmarkReport, MetricsReport, median};
pub use runner::run;
pub use spec::BenchSpec;
pub use workloads::{WORKLOADS, Workload};
