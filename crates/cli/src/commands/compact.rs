//! `compact`: compacts a keyspace, or all of them, each into a single run.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use runstone::Options;
use serde_json::json;

use crate::arguments::KeyspaceArgument;
use crate::failure::{Exit, Result};
use crate::opening::Location;
use crate::output::{Output, duration, note, rounded, size};

/// Rewrite the store, or one keyspace, into its smallest form
#[derive(clap::Args)]
pub struct Args {
    /// The store.
    store: PathBuf,
    #[command(flatten)]
    keyspace: KeyspaceArgument,
}

impl Args {
    pub fn run(self, output: &Output) -> Result<Exit> {
        let opened =
            Location::of(&self.store)?.to_change(self.keyspace.name(), Options::default())?;
        let before = opened.used_bytes();
        let spinner = output.spinner("compact");
        spinner.enable_steady_tick(Duration::from_millis(200));
        let started = Instant::now();
        let outcome = opened.compact(self.keyspace.keyspace.as_deref());
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
