//! What the parent asks of a child and what it gets back, one line of JSON each way.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Size of every key.
pub const KEY_BYTES: usize = 16;

/// Stores that keep values apart do so from this size on.
pub const SEPARATE_AT_BYTES: u32 = 512;

/// The terms, equal for all stores.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Setup {
    /// Keys loaded.
    pub num: u64,
    /// Size of a value.
    pub value_bytes: usize,
    /// Gets that hit, and as many that miss.
    pub reads: u64,
    /// Scans.
    pub scans: u64,
    /// Entries of a scan.
    pub scan_length: u64,
    /// Block cache.
    pub cache_bytes: u64,
    /// Memtable.
    pub memtable_bytes: u64,
    /// Threads that flush and compact.
    pub background_threads: usize,
    /// Threads that load.
    pub writers: u64,
    /// Runs that the load leaves, each flushed; 0 flushes when memtables are full. With runs, the
    /// stores named for it compact nothing until they are compacted as a whole, which is timed.
    pub runs: u64,
    /// Zipfian updates after everything else.
    pub updates: u64,
    /// Keys taken from the front of a queue, after that.
    pub pops: u64,
    /// Whether compactions may finish before the reads.
    pub settle: bool,
    /// Whether the store is reopened in another process.
    pub reopen: bool,
    /// Compaction policy of Runstone.
    pub runstone_policy: Option<String>,
    /// Keyspace options of Runstone.
    pub runstone_toml: Option<String>,
}

impl Measured {
    /// Bytes compacted by a second of processor time; 0 if nothing was compacted.
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Task {
    /// Load and read.
    Measure,
    /// Open what is there and get one key.
    Open,
}

/// The order to a child.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Plan {
    /// Which store.
    pub engine: String,
    /// What to do.
    pub task: Task,
    /// Directory of the store.
    pub path: PathBuf,
    /// The terms.
    pub setup: Setup,
}

/// What [`Task::Measure`] yields.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Measured {
    /// Name and version of the store.
    pub engine: String,
    /// Puts of all writers.
    pub loads_per_second: f64,
    /// Median put.
    pub put_p50_us: f64,
    /// 999 of 1000 puts were faster.
    pub put_p999_us: f64,
    /// The slowest put.
    pub put_worst_ms: f64,
    /// The longest put around which the host of a virtual machine took no processor time away.
    pub put_own_worst_ms: f64,
    /// Waiting for compactions after the load; 0 unless asked for.
    pub settle_seconds: f64,
    /// Gets that hit.
    pub hits_per_second: f64,
    /// Gets that miss.
    pub misses_per_second: f64,
    /// Scans of the length asked.
    pub scans_per_second: f64,
    /// The most memory that was resident in the process.
    pub peak_bytes: u64,
    /// Blocks that the directory takes once the store is closed.
    pub disk_bytes: u64,
    /// Blocks that it took before, with the store still open.
    pub disk_open_bytes: u64,
    /// Bytes written by all phases, log included.
    pub written_bytes: u64,
    /// Bytes passed to `write`, whatever the store counts: a check on its own counter.
    pub write_call_bytes: u64,
    /// Table bytes that the compaction of all runs read.
    pub compacted_bytes: u64,
    /// How long it took.
    pub compaction_seconds: f64,
    /// Processor time of the process meanwhile.
    pub compaction_cpu_seconds: f64,
    /// Zipfian updates, compacts that they cause until they are over included.
    pub updates_per_second: f64,
    /// Processor time of the process meanwhile, for each update.
    pub update_cpu_us: f64,
    /// The most blocks that the directory took meanwhile.
    pub update_disk_bytes: u64,
    /// Puts behind a queue, looks at its first key and deletes of it.
    pub pops_per_second: f64,
    /// Opening and recovering in another process, if asked for.
    pub open: Option<Opened>,
}

/// What [`Task::Open`] yields.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Opened {
    /// From the call to open until a handle is there.
    pub open_ms: f64,
    /// The first get after that.
    pub first_get_us: f64,
}

/// The medians of a store, field by field.
#[derive(Debug, Serialize)]
pub struct Median {
    /// As given on the command line.
    pub name: String,
    /// Medians.
    pub measured: Measured,
}
