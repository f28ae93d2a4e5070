//! `peers` compares Runstone with other stores, with equal durability, memory, filters and
//! compression where they have these. The runs are interleaved, and it prints medians and ratios.
//! The crate is not part of the workspace, because only comparisons need its dependencies. See
//! README.md for what each number means.

mod allocator;
mod child;
mod counters;
mod data;
mod disk;
mod extras;
mod goals;
mod model;
mod parent;
mod peers;
mod plan;
mod scenarios;
mod table;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use serde::Serialize;

use allocator::Runner;
use plan::{Plan, Setup};

/// What can go wrong: a store, the file system, a child.
type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Compares key-value stores under equal terms, interleaved, each round in a fresh process.
#[derive(Debug, Parser)]
#[command(version, name = "peers")]
struct Arguments {
    /// Stores to compare, in the order of each round. `@glibc` after one runs it with the allocator
    /// of the C library, `@jemalloc` with jemalloc.
    #[arg(long, value_delimiter = ',', default_value = "runstone,rocksdb,fjall")]
    engines: Vec<String>,
    /// Allocator of the stores that name none: mimalloc, jemalloc or glibc.
    #[arg(long, default_value = "mimalloc")]
    allocator: String,
    /// Run these scenarios in place of load and reads: names, or `all`; `list` lists them.
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    scenarios: Vec<String>,
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

/// Runs the program, whatever its allocator is.
pub fn main() -> ExitCode {
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
    if arguments.scenarios == ["list"] {
        print!("{}", scenarios::list());
        return Ok(());
    }
    let runner = |label: &String| Runner::new(label, &arguments.allocator);
    let runners = arguments.engines.iter().map(runner).collect::<Result<Vec<Runner>>>()?;
    let setup = arguments.setup()?;
    let base = arguments.dir.clone().unwrap_or_else(std::env::temp_dir);
    let rounds = arguments.rounds.max(1);
    if !arguments.scenarios.is_empty() {
        let scenarios = scenarios::find(&arguments.scenarios)?;
        let compared = scenarios::parent::compare(&scenarios, &runners, rounds, &setup, &base)?;
        return show(arguments.json, &compared, scenarios::parent::render);
    }
    let comparison = parent::compare(&runners, rounds, &setup, &base)?;
    show(arguments.json, &comparison, table::render)
}

fn show<T: Serialize>(as_json: bool, what: &T, render: impl Fn(&T) -> String) -> Result<()> {
    match as_json {
        true => println!("{}", serde_json::to_string_pretty(what)?),
        false => print!("{}", render(what)),
    }
    Ok(())
}
