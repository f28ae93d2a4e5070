//! `demo`: stores a real directory tree, works on it, measures, and compares every value with its
//! file. The phases are in `demo/`.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use runstone::policy::options::PolicyOptions;
use runstone::{DEFAULT_KEYSPACE, KeyspaceOptions, Options};
use runstone_device::KvSsdStore;
use runstone_workloads::generators::Rng;

use crate::arguments::{MakeArguments, parse_size};
use crate::demo::costs::FileCosts;
use crate::demo::input::{Input, Limits, default_directory};
use crate::demo::phases::{Check, Run};
use crate::demo::report::Report;
use crate::failure::{Exit, Failure, Result};
use crate::kvssd::DeviceCosts;
use crate::opening::{self, Location};
use crate::output::{Output, size, terminal_columns};
use crate::scratch::Scratch;

/// Store a real directory tree, work on it, measure, and compare every value with its file
#[derive(clap::Args)]
pub struct Args {
    /// What to store; the sources that cargo fetched if not given.
    directory: Option<PathBuf>,
    /// Where the store is made and kept; a directory for temporary files if not given.
    #[arg(long, value_name = "STORE")]
    store: Option<PathBuf>,
    /// Stores no more than this.
    #[arg(long, value_name = "SIZE", default_value = "1G", value_parser = parse_size)]
    max_bytes: u64,
    /// Ends reads and scans of directories early, so that all takes about this long.
    #[arg(long, value_name = "SECONDS", default_value_t = 100)]
    seconds_limit: u64,
    /// Of everything random.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    make: MakeArguments,
}

impl Args {
    pub fn run(self, output: &Output) -> Result<Exit> {
        let started = Instant::now();
        let directory = self.directory.clone().unwrap_or_else(default_directory);
        let scratch = match &self.store {
            Some(_) => None,
            None => Some(Scratch::make("demo")?),
        };
        let store = match (&scratch, &self.store) {
            (None, Some(store)) => store.clone(),
            (scratch, _) => scratch.as_ref().map(|s| s.path().join("store")).unwrap_or_default(),
        };
        let location = Location::of(&store)?;
        let device = opening::kvssd_to_make(&store, &self.make, DEFAULT_KEYSPACE)?;
        let without = opening::places(scratch.as_ref().map_or(&store, Scratch::path));
        let limits = Limits::of(device.as_ref());
        let input = Input::read(&directory, &without, self.max_bytes, limits)?;
        if !output.is_json {
            output.line(introduction(&input, &directory, self.max_bytes))?;
            output.flush()?;
        }
        let mut run = Run {
            input,
            output,
            rng: Rng::new(self.seed),
            most_per_phase: Duration::from_secs(self.seconds_limit.max(1)) / 5,
            check: Check::default(),
            phases: Vec::new(),
        };
        let mut report = match device {
            Some(device) => work_on_device(&mut run, &location, device)?,
            None => self.work(&mut run, &location)?,
        };
        report.source = directory.display().to_string();
        report.store = store.display().to_string();
        report.is_scratch = scratch.is_some();
        report.total = started.elapsed();
        match output.is_json {
            true => output.json(&report.to_json(&run))?,
            false => output.bytes(report.to_text(&run, terminal_columns()).as_bytes())?,
        }
        Ok(if run.check.differences == 0 { Exit::Ok } else { Exit::Different })
    }

    fn work(&self, run: &mut Run<'_>, location: &Location) -> Result<Report> {
        if location.holds_data()? {
            return Err(holds_data());
        }
        let base = scaled_options(run.input.tree.bytes());
        let (store, keyspace) = location.make(&self.make, DEFAULT_KEYSPACE, Some(base))?;
        run.all_phases(&store)?;
        let costs = FileCosts::of(&store, &keyspace, &run.phases)?;
        drop(keyspace);
        let start = Instant::now();
        store.close()?;
        let close = start.elapsed();
        let start = Instant::now();
        let mut options = Options { create_if_missing: false, ..Options::default() };
        options.memory_budget_bytes =
            self.make.memory_budget.unwrap_or(options.memory_budget_bytes);
        let store = location.open(options)?;
        let reopen = start.elapsed();
        run.verify(&store)?;
        store.close()?;
        Ok(Report::new(Box::new(costs), close, reopen))
    }
}

/// The same on a KVSSD: it has its own options, and figures of its own.
fn work_on_device(run: &mut Run<'_>, location: &Location, device: KvSsdStore) -> Result<Report> {
    if device.device().tree().last_seq() > 0 {
        return Err(holds_data());
    }
    run.all_phases(&device)?;
    let costs = DeviceCosts::of(&device, &run.phases);
    let start = Instant::now();
    drop(device);
    let close = start.elapsed();
    let start = Instant::now();
    let device = location.kvssd(false)?.ok_or_else(vanished)?;
    let reopen = start.elapsed();
    run.verify(&device)?;
    Ok(Report::new(Box::new(costs), close, reopen))
}

fn vanished() -> Failure {
    Failure::new(Exit::CannotOpen, "the device is gone")
}

fn holds_data() -> Failure {
    let hint = "name a new one: the demonstration would mix its keys with those";
    Failure::usage("the store holds data", hint)
}

/// The default options with buffers, levels and tables made small enough for a tree of `bytes` to
/// have levels at all.
fn scaled_options(bytes: u64) -> KeyspaceOptions {
    let buffer = (bytes / 24).next_power_of_two().clamp(256 << 10, 64 << 20);
    KeyspaceOptions {
        write_buffer_bytes: buffer,
        shape: PolicyOptions {
            base_bytes: buffer * 2,
            table_bytes: buffer / 2,
            ..PolicyOptions::default()
        },
        ..KeyspaceOptions::default()
    }
}

fn introduction(input: &Input, directory: &Path, max_bytes: u64) -> String {
    let tree = &input.tree;
    let mut text = format!(
        "{} files, {} from {} (skipped: {} special, {} unreadable)",
        tree.files.len(),
        size(tree.bytes()),
        directory.display(),
        tree.skipped.special,
        tree.skipped.unreadable
    );
    let (files, bytes) = input.cut;
    if files > 0 {
        text.push_str(&format!(
            "\n{files} more files with {} are left out: --max-bytes is {}",
            size(bytes),
            size(max_bytes)
        ));
    }
    text
}
