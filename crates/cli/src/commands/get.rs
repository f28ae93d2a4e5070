//! `get`: prints one value.

use std::path::PathBuf;

use crate::entries::get::Get;
use crate::failure::{Exit, Result};
use crate::opening::Location;
use crate::output::Output;

/// Print a value; exit code 1 if the key is absent
#[derive(clap::Args)]
pub struct Args {
    /// The store.
    store: PathBuf,
    #[command(flatten)]
    get: Get,
}

impl Args {
    pub fn run(self, output: &Output) -> Result<Exit> {
        let opened = Location::of(&self.store)?.to_read(self.get.keyspace.name())?;
        self.get.run(&*opened, output).map_err(|failure| match failure.exit {
            Exit::Different => failure.at(self.store.display()),
            _ => failure,
        })
    }
}
