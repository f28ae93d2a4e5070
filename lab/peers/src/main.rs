//! `peers`: Runstone beside RocksDB and fjall, with equal durability, memory, filters and
//! compression, interleaved in one run; medians and ratios. Not part of the workspace: RocksDB
//! takes a quarter of an hour to build. See README.md for what each number means.

mod child;
mod goals;
mod parent;
mod peers;
mod plan;
mod table;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

use plan::{Plan, Setup};

/// RocksDB, being C++, keeps the allocator of the C library.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// What can go wrong: a store, the file system, a child.
type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Compares key-value stores under equal terms, interleaved, each round in a fresh process.
#[derive(Debug, Parser)]
#[command(version, name = "peers")]
struct Arguments {
    /// Stores to compare, in the order of each round.
    #[arg(long, value_delimiter = ',', default_value = "runstone,rocksdb,fjall")]
    engines: Vec<String>,
    /// Rounds; every store runs once in each, and medians are quoted.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Keys loaded.
    #[arg(long, default_value_t = 5_000_000)]
    num: u64,
    /// Bytes of a value, which compresses to half.
    #[arg(long, default_value_t = 100)]
    value_size: usize,
    /// Gets of keys that are there, and as many of keys that are not.
    #[arg(long, default_value_t = 1_000_000)]
    reads: u64,
    /// Scans of --scan-length entries.
    #[arg(long, default_value_t = 100_000)]
    scans: u64,
    /// Entries of a scan.
    #[arg(long, default_value_t = 100)]
    scan_length: u64,
    /// Block cache.
    #[arg(long, default_value_t = 512)]
    cache_mib: u64,
    /// Cache of a quarter of the keys and values instead of --cache-mib.
    #[arg(long)]
    cache_quarter: bool,
    /// Memtable.
    #[arg(long, default_value_t = 64)]
    memtable_mib: u64,
    /// Threads that flush and compact.
    #[arg(long, default_value_t = 2)]
    background: usize,
    /// Threads that load.
    #[arg(long, default_value_t = 1)]
    writers: u64,
    /// Flush so many runs while loading, then time their compact into one. For stores that
    /// compaction nothing before: runstone-universal, rocksdb-universal.
    #[arg(long, default_value_t = 0)]
    runs: u64,
    /// Zipfian updates at the end.
    #[arg(long, default_value_t = 0)]
    updates: u64,
    /// Then a queue: put a key behind all others, take the first, delete it, so many times.
    #[arg(long, default_value_t = 0)]
    pops: u64,
    /// Let compactions finish between the load and the reads.
    #[arg(long)]
    settle: bool,
    /// Close the store, reopen it in another process, and time that.
    #[arg(long)]
    open: bool,
    /// Compaction policy of Runstone.
    #[arg(long)]
    policy: Option<String>,
    /// Keyspace options of Runstone, a TOML file.
    #[arg(long, value_name = "FILE")]
    runstone_options: Option<PathBuf>,
    /// Where the stores are made and removed; the temporary directory of the system if not given.
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Print everything measured as JSON.
    #[arg(long)]
    json: bool,
    /// What a child process is to do; the parent passes it.
    #[arg(long, hide = true)]
    child: Option<String>,
}

impl Arguments {
    fn setup(&self) -> Result<Setup> {
        let data_bytes = self.num * (plan::KEY_BYTES + self.value_size) as u64;
        let cache_bytes = match self.cache_quarter {
            true => data_bytes / 4,
            false => self.cache_mib << 20,
        };
        let runstone_toml = self.runstone_options.as_ref().map(std::fs::read_to_string);
        Ok(Setup {
            num: self.num,
            value_bytes: self.value_size,
            reads: self.reads,
            scans: self.scans,
            scan_length: self.scan_length,
            cache_bytes,
            memtable_bytes: self.memtable_mib << 20,
            background_threads: self.background.max(1),
            writers: self.writers.max(1),
            runs: self.runs,
            updates: self.updates,
            pops: self.pops,
            settle: self.settle,
            reopen: self.open,
            runstone_policy: self.policy.clone(),
            runstone_toml: runstone_toml.transpose()?,
        })
    }
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("peers: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    let arguments = Arguments::parse();
    if let Some(plan) = &arguments.child {
        let plan: Plan = serde_json::from_str(plan)?;
        println!("{}", child::run(&plan)?);
        return Ok(());
    }
    for engine in &arguments.engines {
        peers::find(engine)?;
    }
    let setup = arguments.setup()?;
    let base = arguments.dir.clone().unwrap_or_else(std::env::temp_dir);
    let comparison = parent::compare(&arguments.engines, arguments.rounds.max(1), &setup, &base)?;
    match arguments.json {
        true => println!("{}", serde_json::to_string_pretty(&comparison)?),
        false => print!("{}", table::render(&comparison)),
    }
    Ok(())
}
