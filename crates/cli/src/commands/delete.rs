//! `delete`: removes keys.

use std::ffi::OsString;
use std::path::PathBuf;

use runstone::kv::{KvStore, KvWrite};
use runstone::{Batch, Durability, WriteOptions};
use serde_json::json;

use crate::arguments::{KeyFormat, KeyspaceArgument};
use crate::failure::{Exit, Result};
use crate::opening;
use crate::output::Output;

/// Remove keys, all or none; absent ones are no error
#[derive(clap::Args)]
pub struct Args {
    /// The store.
    store: PathBuf,
    /// The keys.
    #[arg(required = true, allow_negative_numbers = true)]
    keys: Vec<OsString>,
    /// Waits until the deletes survive a power loss.
    #[arg(long)]
    sync: bool,
    #[command(flatten)]
    keyspace: KeyspaceArgument,
    #[command(flatten)]
    format: KeyFormat,
}

impl Args {
    pub fn run(self, output: &Output) -> Result<Exit> {
        let keys: Vec<Vec<u8>> =
            self.keys.iter().map(|key| self.format.read(key)).collect::<Result<_>>()?;
        match opening::kvssd(&self.store, &self.keyspace.keyspace, false)? {
            Some(device) => {
                let durability = if self.sync { Durability::Sync } else { Durability::Buffered };
                let writes: Vec<KvWrite<'_>> =
                    keys.iter().map(|key| KvWrite::Delete { key }).collect();
                device.write(&writes, durability)?;
            }
            None => self.delete(&keys)?,
        }
        if output.is_json {
            output.json(&json!({ "deletes": keys.len() }))?;
        }
        Ok(Exit::Ok)
    }

    fn delete(&self, keys: &[Vec<u8>]) -> Result<()> {
        opening::refuse_reserved(&self.keyspace.keyspace)?;
        let store = opening::to_change_little(&self.store)?;
        let keyspace = opening::keyspace(&store, &self.keyspace.keyspace)?;
        let mut batch = Batch::new();
        keys.iter().try_for_each(|key| batch.delete(&keyspace, key))?;
        let options = if self.sync { WriteOptions::sync() } else { WriteOptions::default() };
        store.write(&batch, options)?;
        Ok(store.close()?)
    }
}
