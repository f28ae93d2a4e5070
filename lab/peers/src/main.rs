//! `peers`: Runstone beside RocksDB and fjall, with equal durability, memory, filters and
//! compression, interleaved in one run; medians and ratios. Not part of the workspace: RocksDB
//! takes a quarter of an hour to build. See README.md for what each number means.

mod child;
mod counters;
mod data;
mod goals;
mod model;
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
    #[command(flatten)]
    setup: Setup,
    /// Cache of a quarter of the keys and values instead of --cache-mib.
    #[arg(long)]
    cache_quarter: bool,
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
        let mut setup = self.setup.clone();
        if self.cache_quarter {
            setup.cache_bytes = setup.num * (plan::KEY_BYTES + setup.value_bytes) as u64 / 4;
        }
        setup.background_threads = setup.background_threads.max(1);
        setup.writers = setup.writers.max(1);
        let runstone_toml = self.runstone_options.as_ref().map(std::fs::read_to_string);
        setup.runstone_toml = runstone_toml.transpose()?;
        Ok(setup)
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
