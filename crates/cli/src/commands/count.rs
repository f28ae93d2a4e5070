//! `count`: reads the keys and counts them, because the store keeps no count.

use std::path::PathBuf;

use crate::entries::count::Count;
use crate::failure::{Exit, Result};
use crate::interrupt::{self, SIGINT};
use crate::opening::Location;
use crate::output::Output;

/// Count keys
#[derive(clap::Args)]
pub struct Args {
    /// The store.
    store: PathBuf,
    #[command(flatten)]
    count: Count,
}

impl Args {
    pub fn run(self, output: &Output) -> Result<Exit> {
        interrupt::watch(&[SIGINT]);
        let name = self.count.selection.part.keyspace.name();
        let opened = Location::of(&self.store)?.to_read(name)?;
        self.count.run(opened.entries(), output)?;
        Ok(Exit::Ok)
    }
}
