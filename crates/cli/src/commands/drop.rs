//! `drop`: removes a keyspace.

use std::path::PathBuf;

use serde_json::json;

use crate::dropping::Dropping;
use crate::failure::{Exit, Result};
use crate::opening;
use crate::output::Output;

/// Remove a keyspace with all that is in it
#[derive(clap::Args)]
pub struct Args {
    /// The store.
    store: PathBuf,
    #[command(flatten)]
    dropping: Dropping,
}

impl Args {
    pub fn run(self, output: &Output) -> Result<Exit> {
        let store = opening::to_change(&self.store)?;
        self.dropping.run(&store)?;
        store.close()?;
        if output.is_json {
            output.json(&json!({ "dropped": self.dropping.name }))?;
        }
        Ok(Exit::Ok)
    }
}
