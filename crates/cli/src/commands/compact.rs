//! `compact`: compacts every keyspace into a single run.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use runstone::{DEFAULT_KEYSPACE, Options};
use serde_json::json;

use crate::failure::{Exit, Result};
use crate::opening::Location;
use crate::output::{Output, duration, note, rounded, size};

/// Rewrite everything into its smallest form
#[derive(clap::Args)]
pub struct Args {
    /// The store.
    store: PathBuf,
}

impl Args {
    pub fn run(self, output: &Output) -> Result<Exit> {
        let opened = Location::of(&self.store)?.to_change(DEFAULT_KEYSPACE, Options::default())?;
        let before = opened.used_bytes();
        let spinner = output.count_bar("compact", 0);
        spinner.enable_steady_tick(Duration::from_millis(200));
        let started = Instant::now();
        let outcome = opened.kv().compact();
        spinner.finish_and_clear();
        outcome?;
        let took = started.elapsed();
        let after = opened.used_bytes();
        opened.close()?;
        match output.is_json {
            true => output.json(&json!({
                "before_bytes": before, "after_bytes": after,
                "seconds": rounded(took.as_secs_f64()),
            }))?,
            false => note(format!("{} -> {}, {}", size(before), size(after), duration(took))),
        }
        Ok(Exit::Ok)
    }
}
