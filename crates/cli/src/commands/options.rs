//! `options`: the options of a keyspace, as the TOML that `--options` takes.

use std::path::PathBuf;

use runstone::KeyspaceOptions;
use serde_json::json;

use crate::arguments::KeyspaceArgument;
use crate::failure::{Exit, Result};
use crate::keyspaces;
use crate::opening::{self, Location};
use crate::output::Output;

/// Print the options of a store as TOML, for `reshape --options` and `--options` of a new store
///
/// `runstone help options` explains each option, and `runstone set` changes single options.
#[derive(clap::Args)]
pub struct Args {
    /// The store.
    store: PathBuf,
    #[command(flatten)]
    keyspace: KeyspaceArgument,
}

impl Args {
    pub fn run(self, output: &Output) -> Result<Exit> {
        let name = self.keyspace.name();
        let location = Location::of(&self.store)?;
        // A device that is a store reports here that its options are in its URL.
        location.device_to_make(name, true)?;
        let store = location.open(opening::reading())?;
        let options = KeyspaceOptions::clone(&keyspaces::find(&store, name)?.options());
        match output.is_json {
            true => output.json(&json!({ "keyspace": name, "options": options }))?,
            false => output.bytes(options.to_toml().as_bytes())?,
        }
        Ok(Exit::Ok)
    }
}
