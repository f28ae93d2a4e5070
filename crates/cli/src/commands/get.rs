//! `get`: prints one value.

use std::path::PathBuf;

use crate::entries::get::Get;
use crate::failure::{Exit, Result};
use crate::opening::Location;
use crate::output::Output;

/// Print a value; exit code 1 if the key is absent
///
/// On a terminal the value is escaped (`runstone help encoding`), a counter is printed as a number,
/// and a line feed ends it. A pipe or file gets the bytes of the value and nothing else, not even a
/// line feed, so that `put --file` and `put STORE KEY -` take back what `get` wrote. With --text, a
/// pipe or file gets what a terminal would get.
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
        self.get.run(opened.entries(), output, false).map_err(|failure| match failure.exit {
            Exit::Different => failure.at(self.store.display()),
            _ => failure,
        })
    }
}
