//! `scan`: prints entries in key order, one per line, or as one JSON object, printed as entries are
//! read.

use std::path::PathBuf;

use crate::entries::scan::Scan;
use crate::failure::{Exit, Result};
use crate::interrupt::{self, SIGINT};
use crate::opening::Location;
use crate::output::Output;

/// Print keys and values in order
#[derive(clap::Args)]
pub struct Args {
    /// The store.
    store: PathBuf,
    #[command(flatten)]
    scan: Scan,
}

impl Args {
    pub fn run(self, output: &Output) -> Result<Exit> {
        interrupt::watch(&[SIGINT]);
        let name = self.scan.selection.part.keyspace.name();
        let opened = Location::of(&self.store)?.to_read(name)?;
        self.scan.run(opened.entries(), output)?;
        Ok(Exit::Ok)
    }
}
