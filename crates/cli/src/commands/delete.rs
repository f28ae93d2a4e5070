//! `delete`: removes keys.

use std::ffi::OsString;
use std::path::PathBuf;

use runstone::Durability;
use runstone::kv::KvWrite;
use serde_json::json;

use crate::arguments::{Encoding, KeyspaceArgument};
use crate::failure::{Exit, Result};
use crate::opening::{Location, little};
use crate::output::Output;

/// Remove keys, all or none; absent ones are no error
#[derive(clap::Args)]
pub struct Args {
    /// The store.
    store: PathBuf,
    /// The keys.
    #[arg(required = true, allow_negative_numbers = true)]
    keys: Vec<OsString>,
    /// Wait until the deletes survive a power loss.
    #[arg(long)]
    sync: bool,
    #[command(flatten)]
    keyspace: KeyspaceArgument,
    #[command(flatten)]
    encoding: Encoding,
}

impl Args {
    pub fn run(self, output: &Output) -> Result<Exit> {
        let keys: Vec<Vec<u8>> =
            self.keys.iter().map(|key| self.encoding.read(key)).collect::<Result<_>>()?;
        let writes: Vec<KvWrite<'_>> = keys.iter().map(|key| KvWrite::Delete { key }).collect();
        let durability = if self.sync { Durability::Sync } else { Durability::Buffered };
        let opened = Location::of(&self.store)?.to_change(&self.keyspace.keyspace, little())?;
        opened.write(&writes, durability)?;
        opened.close()?;
        if output.is_json {
            output.json(&json!({ "deletes": keys.len() }))?;
        }
        Ok(Exit::Ok)
    }
}
