//! `compact`: compacts every keyspace into a single run.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use runstone::{DEFAULT_KEYSPACE, Store};
use serde_json::json;

use crate::failure::{Exit, Result};
use crate::kvssd;
use crate::opening;
use crate::output::{Output, duration, note, rounded, size};

/// Rewrite everything into its smallest form
#[derive(clap::Args)]
pub struct Args {
    /// The store.
    store: PathBuf,
}

impl Args {
    pub fn run(self, output: &Output) -> Result<Exit> {
        if let Some(device) = opening::kvssd(&self.store, DEFAULT_KEYSPACE, false)? {
            return kvssd::compact(&device, output);
        }
        let store = opening::to_change(&self.store)?;
        let before = bytes_without_log(&store);
        let spinner = output.count_bar("compact", 0);
        spinner.enable_steady_tick(Duration::from_millis(200));
        let started = Instant::now();
        let outcome = store.compact();
        spinner.finish_and_clear();
        outcome?;
        let took = started.elapsed();
        let after = bytes_without_log(&store);
        store.close()?;
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

/// What the store takes when it is closed: it leaves no log.
fn bytes_without_log(store: &Store) -> u64 {
    store.disk_bytes().saturating_sub(store.metrics().wal_bytes)
}
