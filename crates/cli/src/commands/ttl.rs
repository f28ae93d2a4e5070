//! `ttl`: shows when the value of a key expires.

use std::path::PathBuf;

use crate::entries::ttl::Ttl;
use crate::failure::{Exit, Result};
use crate::opening::Location;
use crate::output::Output;

/// Print the seconds until a key expires, or `never`; exit code 1 if it is absent
#[derive(clap::Args)]
pub struct Args {
    /// The store.
    store: PathBuf,
    #[command(flatten)]
    ttl: Ttl,
}

impl Args {
    pub fn run(self, output: &Output) -> Result<Exit> {
        let opened = Location::of(&self.store)?.to_read(self.ttl.keyspace.name())?;
        self.ttl.run(opened.entries(), output)
    }
}
