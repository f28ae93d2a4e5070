//! `compact`: compacts each keyspace, or one, into a single run; or compacts a range of keys.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use runstone::Options;
use serde_json::json;

use crate::arguments::Part;
use crate::failure::{Exit, Result};
use crate::opening::Location;
use crate::output::{Output, duration, note, rounded, size};
use crate::range::Range;

/// Rewrite the store, one keyspace, or a range of keys, into its smallest form
#[derive(clap::Args)]
pub struct Args {
    /// The store.
    store: PathBuf,
    #[command(flatten)]
    part: Part,
}

impl Args {
    pub fn run(self, output: &Output) -> Result<Exit> {
        let (keyspace, range) = (&self.part.keyspace, Range::within(&self.part)?);
        let opened = Location::of(&self.store)?.to_change(keyspace.name(), Options::default())?;
        let before = opened.used_bytes();
        let spinner = output.spinner("compact");
        spinner.enable_steady_tick(Duration::from_millis(200));
        let started = Instant::now();
        let outcome = opened.compact(keyspace.keyspace.as_deref(), &range);
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
