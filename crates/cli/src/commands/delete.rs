//! `delete`: removes keys, or a range of them.

use std::path::PathBuf;

use crate::entries::delete::Delete;
use crate::failure::{Exit, Result};
use crate::interrupt::{self, SIGINT};
use crate::opening::{Location, little};
use crate::output::Output;

/// Remove keys, all or none, or a range of keys; absent ones are not an error
#[derive(clap::Args)]
pub struct Args {
    /// The store.
    store: PathBuf,
    #[command(flatten)]
    delete: Delete,
}

impl Args {
    pub fn run(self, output: &Output) -> Result<Exit> {
        self.delete.check()?;
        interrupt::watch(&[SIGINT]);
        let name = self.delete.selection.part.keyspace.name();
        let opened = Location::of(&self.store)?.to_change(name, little())?;
        let deleted = self.delete.run(opened.entries())?;
        opened.close()?;
        match output.is_json {
            true => output.json(&deleted.to_json())?,
            false => deleted.tell(),
        }
        Ok(Exit::Ok)
    }
}
