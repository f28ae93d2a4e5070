//! `count`: counts keys by reading them; the store keeps no count.

use std::ffi::OsString;
use std::path::PathBuf;

use serde_json::json;

use crate::arguments::{Encoding, KeyspaceArgument};
use crate::failure::{Exit, Result};
use crate::opening::Location;
use crate::output::Output;
use crate::range::Range;

/// Count keys
#[derive(clap::Args)]
pub struct Args {
    /// The store.
    store: PathBuf,
    /// Only keys that begin with this.
    #[arg(long, value_name = "P")]
    prefix: Option<OsString>,
    #[command(flatten)]
    keyspace: KeyspaceArgument,
    #[command(flatten)]
    encoding: Encoding,
}

impl Args {
    pub fn run(self, output: &Output) -> Result<Exit> {
        let prefix = self.encoding.read(&self.prefix.unwrap_or_default())?;
        let entries = Location::of(&self.store)?.to_read(&self.keyspace.keyspace)?;
        let (mut key_bytes, mut value_bytes) = (0, 0);
        let count = entries.walk(&Range::of_prefix(&prefix), &mut |key, value| {
            key_bytes += key.len() as u64;
            value_bytes += value.len() as u64;
            Ok(())
        })?;
        match output.is_json {
            true => output.json(&json!({
                "count": count, "key_bytes": key_bytes, "value_bytes": value_bytes,
            }))?,
            false => output.line(count)?,
        }
        Ok(Exit::Ok)
    }
}
