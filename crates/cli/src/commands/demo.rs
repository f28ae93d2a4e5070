//! `demo`: stores a real directory tree, works on it, measures, and compares every value with its
//! file. The phases are in `demo/`.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use runstone::policy::Policy;
use runstone::{DEFAULT_KEYSPACE, KeyspaceOptions, Options};
use runstone_random::Random;

use crate::arguments::{MakeArguments, parse_size};
use crate::demo::input::{Input, default_directory};
use crate::demo::phases::{Check, Run};
use crate::demo::report::Report;
use crate::failure::{Exit, Failure, Result};
use crate::layout::{plural, terminal_columns};
use crate::opened::{Limits, Opened};
use crate::opening::{self, Location};
use crate::output::{Output, size};
use crate::scratch::Scratch;

/// Store a real directory tree, work on it, measure, and compare every value with its file
#[derive(clap::Args)]
pub struct Args {
    /// What to store; without it, the sources that cargo fetched.
    directory: Option<PathBuf>,
    /// Where the store is made and kept; without it, a directory for temporary files.
    #[arg(long, value_name = "STORE")]
    store: Option<PathBuf>,
    /// Store no more than this.
    #[arg(long, value_name = "SIZE", default_value = "1G", value_parser = parse_size)]
    max_bytes: u64,
    /// End reads and scans of directories early, so that the whole run takes about this long.
    #[arg(long, value_name = "SECONDS", default_value_t = 100)]
    seconds_limit: u64,
    /// Seed of everything random.
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
        let has_engine_options = self.make.has_engine_options();
        let device = location.device_to_make(DEFAULT_KEYSPACE, has_engine_options)?;
        let without = opening::places(scratch.as_ref().map_or(&store, Scratch::path));
        let limits = device.as_ref().map_or(Limits::FILES, |device| device.limits());
        let input = Input::read(&directory, &without, self.max_bytes, limits)?;
        if !output.is_json {
            output.text(&introduction(&input, &directory, self.max_bytes))?;
            output.flush()?;
        }
        let mut run = Run {
            input,
            output,
            random: Random::new(self.seed),
            most_per_phase: Duration::from_secs(self.seconds_limit.max(1)) / 5,
            check: Check::default(),
            phases: Vec::new(),
        };
        let opened = self.open_empty(&location, device, run.input.tree.bytes())?;
        run.all_phases(opened.kv())?;
        let picture = opened.drawing()?.to_text(terminal_columns());
        let costs = opened.costs(run.live_bytes())?;
        let start = Instant::now();
        opened.close()?;
        let close = start.elapsed();
        let start = Instant::now();
        let opened = location.to_change(DEFAULT_KEYSPACE, self.options())?;
        let reopen = start.elapsed();
        run.verify(opened.kv())?;
        opened.close()?;
        let report = Report {
            source: directory.display().to_string(),
            store: store.display().to_string(),
            is_scratch: scratch.is_some(),
            picture,
            costs,
            close,
            reopen,
            total: started.elapsed(),
        };
        match output.is_json {
            true => output.json(&report.to_json(&run))?,
            false => output.text(&report.to_text(&run))?,
        }
        Ok(if run.check.differences == 0 { Exit::Ok } else { Exit::Different })
    }

    /// Opens the device, or a store of files for this many bytes. Fails if it has an entry.
    fn open_empty(
        &self,
        location: &Location,
        device: Option<Box<dyn Opened>>,
        bytes: u64,
    ) -> Result<Box<dyn Opened>> {
        let holds_data = match &device {
            Some(device) => device.holds_data()?,
            None => location.holds_data()?,
        };
        if holds_data {
            let hint = "name a new one: the demonstration would mix its keys with those";
            return Err(Failure::usage("the store holds data", hint));
        }
        match device {
            Some(device) => Ok(device),
            None => location.to_make(&self.make, DEFAULT_KEYSPACE, Some(scaled_options(bytes))),
        }
    }

    /// The options with which the store is opened again.
    fn options(&self) -> Options {
        let default = Options::default();
        let memory_budget_bytes = self.make.memory_budget.unwrap_or(default.memory_budget_bytes);
        default.memory_budget_bytes(memory_budget_bytes)
    }
}

/// The default options, with buffers, levels and tables small enough that a tree of `bytes` bytes
/// has several levels.
fn scaled_options(bytes: u64) -> KeyspaceOptions {
    let buffer = (bytes / 24).next_power_of_two().clamp(256 << 10, 64 << 20);
    let policy = Policy::fragmented_leveling().base_bytes(buffer * 2).table_bytes(buffer / 2);
    KeyspaceOptions::default().policy(policy).write_buffer_bytes(buffer)
}

fn introduction(input: &Input, directory: &Path, max_bytes: u64) -> String {
    let tree = &input.tree;
    let mut text = format!(
        "{}, {} from {} (skipped: {} special, {} unreadable)",
        plural(tree.files.len() as u64, "file"),
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
    text.push('\n');
    text
}
