//! `merge`: changes a value with an operand.

use std::path::PathBuf;

use serde_json::json;

use crate::arguments::MakeArguments;
use crate::entries::merge::Merge;
use crate::failure::{Exit, Result};
use crate::opening::{self, Location, little};
use crate::output::Output;

/// Change a value with an operand of the keyspace's merge operator (option merge_operator)
#[derive(clap::Args)]
pub struct Args {
    /// The store.
    store: PathBuf,
    #[command(flatten)]
    merge: Merge,
    /// Make the store or the keyspace, if there is none, with the options of this TOML file. They
    /// name a merge_operator; `runstone help options`.
    #[arg(long, value_name = "FILE.toml")]
    options: Option<PathBuf>,
}

impl Args {
    pub fn run(self, output: &Output) -> Result<Exit> {
        let (location, name) = (Location::of(&self.store)?, self.merge.keyspace.name());
        let opened = match &self.options {
            None => location.to_change(name, little())?,
            Some(path) => {
                self.merge.check(&opening::options_in(path)?)?;
                let options = self.options.clone();
                let make = MakeArguments { options, is_little: true, ..Default::default() };
                location.to_make(&make, name, None)?
            }
        };
        self.merge.run(opened.entries())?;
        opened.close()?;
        location.tell_made(output);
        if output.is_json {
            output.json(&json!({ "operands": 1, "made": location.was_made() }))?;
        }
        Ok(Exit::Ok)
    }
}
