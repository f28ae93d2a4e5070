//! `merge`: changes a value by an operand.

use std::path::PathBuf;

use serde_json::json;

use crate::entries::merge::Merge;
use crate::failure::{Exit, Result};
use crate::opening::{Location, little};
use crate::output::Output;

/// Change a value by an operand of the keyspace's merge operator (option merge_operator)
#[derive(clap::Args)]
pub struct Args {
    /// The store.
    store: PathBuf,
    #[command(flatten)]
    merge: Merge,
}

impl Args {
    pub fn run(self, output: &Output) -> Result<Exit> {
        let opened = Location::of(&self.store)?.to_change(self.merge.keyspace.name(), little())?;
        self.merge.run(&*opened)?;
        opened.close()?;
        if output.is_json {
            output.json(&json!({ "operands": 1 }))?;
        }
        Ok(Exit::Ok)
    }
}
