//! The parent's order to a child, and the child's result: one line of JSON each.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

pub const KEY_BYTES: usize = 16;

/// Stores that separate values do so from this size on.
pub const SEPARATE_AT_BYTES: u32 = 512;

/// The terms, equal for all stores.
#[derive(Clone, Debug, Serialize, Deserialize, clap::Args)]
pub struct Setup {
    /// Keys loaded.
    #[arg(long, default_value_t = 5_000_000)]
    pub num: u64,
    /// Bytes of a value, which compresses to half.
    #[arg(long = "value-size", default_value_t = 100)]
    pub value_bytes: usize,
    /// Gets of keys that exist, and as many of keys that do not.
    #[arg(long, default_value_t = 1_000_000)]
    pub reads: u64,
    /// Scans of --scan-length entries.
    #[arg(long, default_value_t = 100_000)]
    pub scans: u64,
    /// Entries of a scan.
    #[arg(long, default_value_t = 100)]
    pub scan_length: u64,
    /// Block cache, in MiB.
    #[arg(long = "cache-mib", default_value = "512", value_parser = mebibytes)]
    pub cache_bytes: u64,
    /// Memtable, in MiB.
    #[arg(long = "memtable-mib", default_value = "64", value_parser = mebibytes)]
    pub memtable_bytes: u64,
    /// Threads that flush and compact.
    #[arg(long = "background", default_value_t = 2)]
    pub background_threads: usize,
    /// Threads that load.
    #[arg(long, default_value_t = 1)]
    pub writers: u64,
    /// Flush this many runs while loading, then time the compaction of all into one; 0 flushes when
    /// memtables are full. For stores that compact nothing before that: runstone-universal,
    /// rocksdb-universal.
    #[arg(long, default_value_t = 0)]
    pub runs: u64,
    /// Zipfian updates at the end.
    #[arg(long, default_value_t = 0)]
    pub updates: u64,
    /// Then a queue: this many times put a key after all others, get the first and delete it.
    #[arg(long, default_value_t = 0)]
    pub pops: u64,
    /// Then these benchmarks of `runstone bench` on a store of its own, with --num keys and --reads
    /// operations each: ycsb-all, hotfill, hotscan, shortscan, pop and others.
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    pub benchmarks: Vec<String>,
    /// Then a store with this many keyspaces (column families); --num puts go to a tenth of them in
    /// turn.
    #[arg(long, default_value_t = 0)]
    pub keyspaces: usize,
    /// Then this many additions to 1,000 counters in each way that a store has: puts alone, its
    /// merge operator, a get and a put, and transactions of these, optimistic and pessimistic.
    #[arg(long, default_value_t = 0)]
    pub increments: u64,
    /// Then a store with --num keys, half of which are deleted with one call, and this many range
    /// deletes that overlap; for stores with a record for range deletes.
    #[arg(long, default_value_t = 0)]
    pub range_deletes: u64,
    /// Let compactions finish between the load and the reads.
    #[arg(long)]
    pub settle: bool,
    /// Close the store, reopen it in another process, and time that.
    #[arg(long = "open")]
    pub reopen: bool,
    /// Sizes of the scenarios: at 0.1 they take a tenth of the time and the disk.
    #[arg(long, default_value_t = 1.0)]
    pub scale: f64,
    /// Compaction policy of Runstone.
    #[arg(long = "policy")]
    pub runstone_policy: Option<String>,
    /// Keyspace options of Runstone.
    #[arg(skip)]
    pub runstone_toml: Option<String>,
}

fn mebibytes(text: &str) -> Result<u64, std::num::ParseIntError> {
    text.parse().map(|count: u64| count << 20)
}

impl Measured {
    /// Bytes compacted per second of processor time; 0 if nothing was compacted.
    pub fn compacted_per_cpu_second(&self) -> f64 {
        match self.compaction_cpu_seconds > 0.0 {
            true => self.compacted_bytes as f64 / self.compaction_cpu_seconds,
            false => 0.0,
        }
    }
}

impl Setup {
    /// Cache and memtable: the whole memory budget of Runstone.
    pub fn budget_bytes(&self) -> u64 {
        self.cache_bytes + self.memtable_bytes
    }
}

/// What a child does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Task {
    /// Load and read.
    Measure,
    /// Open the existing store and get one key.
    Open,
    /// A part of one of [`crate::scenarios::SCENARIOS`].
    Scenario { name: String, part: usize },
}

/// The order to a child.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Plan {
    pub engine: String,
    pub task: Task,
    pub path: PathBuf,
    pub setup: Setup,
}

/// The result of [`Task::Measure`].
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Measured {
    /// Name and version of the store.
    pub engine: String,
    /// Puts of all writers.
    pub loads_per_second: f64,
    pub put_p50_us: f64,
    /// 999 of 1000 puts were faster.
    pub put_p999_us: f64,
    pub put_worst_ms: f64,
    /// The longest put during which the host of a virtual machine took no processor time away.
    pub put_own_worst_ms: f64,
    /// Waiting for compactions after the load; 0 unless requested.
    pub settle_seconds: f64,
    pub hits_per_second: f64,
    pub misses_per_second: f64,
    /// Scans of the requested length.
    pub scans_per_second: f64,
    /// The most memory that was resident in the process.
    pub peak_bytes: u64,
    /// Blocks that the directory takes once the store is closed.
    pub disk_bytes: u64,
    /// Blocks that the directory took before, with the store still open.
    pub disk_open_bytes: u64,
    /// Bytes written by all phases, log included.
    pub written_bytes: u64,
    /// Bytes passed to `write`, whatever the store counts: a check on its own counter.
    pub write_call_bytes: u64,
    /// Table bytes that the compaction of all runs read.
    pub compacted_bytes: u64,
    /// How long this compaction took.
    pub compaction_seconds: f64,
    /// Processor time of the process during this compaction.
    pub compaction_cpu_seconds: f64,
    /// Zipfian updates, over the time until the compactions that they cause are done.
    pub updates_per_second: f64,
    /// Processor time of the process during the updates, for each update.
    pub update_cpu_us: f64,
    /// The most blocks that the directory took during the updates.
    pub update_disk_bytes: u64,
    /// Keys taken from the queue: a put at its end, a look at its first key, a delete of that key.
    pub pops_per_second: f64,
    /// Operations per second of the requested benchmarks, by name.
    pub benchmarks: BTreeMap<String, f64>,
    /// Puts in turn into a tenth of the keyspaces, if requested.
    pub keyspace_puts_per_second: f64,
    /// Ways to count, if requested.
    pub counted: Counted,
    /// Range deletes, if requested.
    pub range_deleted: RangeDeleted,
    /// Opening and recovering in another process, if requested.
    pub open: Option<Opened>,
}

/// Additions per second to 1,000 counters; 0 if the store cannot count that way.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Counted {
    /// Puts of the same keys and sizes, without a sum.
    pub puts_per_second: f64,
    /// By the merge operator.
    pub merges_per_second: f64,
    /// A get and a put, unprotected.
    pub gets_and_puts_per_second: f64,
    /// Transactions of one get and one put, checked at the commit.
    pub optimistic_per_second: f64,
    /// Transactions of one get and one put, with locks.
    pub pessimistic_per_second: f64,
}

/// Range deletes; all 0 if the store has none.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct RangeDeleted {
    /// The call that deletes half of the keys.
    pub half_us: f64,
    /// The scan across the deleted keys to the first remaining key.
    pub step_us: f64,
    /// Gets of keys that were put again after that scan.
    pub gets_before_per_second: f64,
    /// Calls that overlap, over the same half.
    pub deletes_per_second: f64,
    /// Gets of the same keys, put again after these calls.
    pub gets_under_per_second: f64,
    /// The same gets, right after a flush.
    pub gets_flushed_per_second: f64,
}

/// The result of [`Task::Open`].
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Opened {
    /// From the call to open until it returns a handle.
    pub open_ms: f64,
    /// The first get after that.
    pub first_get_us: f64,
}

/// The medians of a store, field by field.
#[derive(Debug, Serialize)]
pub struct Median {
    /// The store's name on the command line.
    pub name: String,
    pub measured: Measured,
}

/// The setup of a command line, for tests.
#[cfg(test)]
#[derive(clap::Parser)]
pub struct Flags {
    #[command(flatten)]
    pub setup: Setup,
}
