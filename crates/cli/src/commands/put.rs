//! `put`: stores one value. Not for many: `import` writes those in batches.

use std::ffi::OsString;
use std::io::Read;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use runstone::kv::KvStore;
use runstone::{Durability, MAX_VALUE_BYTES, WriteOptions};
use serde_json::json;

use crate::arguments::{KeyFormat, KeyspaceArgument, MakeArguments};
use crate::failure::{Exit, Failure, Result};
use crate::opening;
use crate::output::Output;

/// Store a value; makes the store if there is none
#[derive(clap::Args)]
pub struct Args {
    /// The store.
    store: PathBuf,
    /// The key.
    #[arg(allow_negative_numbers = true)]
    key: OsString,
    /// The value; `-` reads it from standard input.
    #[arg(required_unless_present = "file", allow_negative_numbers = true)]
    value: Option<OsString>,
    /// Takes the value from a file.
    #[arg(long, value_name = "F", conflicts_with = "value")]
    file: Option<PathBuf>,
    /// Waits until the value survives a power loss.
    #[arg(long)]
    sync: bool,
    #[command(flatten)]
    keyspace: KeyspaceArgument,
    #[command(flatten)]
    format: KeyFormat,
    #[command(flatten)]
    make: MakeArguments,
}

impl Args {
    pub fn run(self, output: &Output) -> Result<Exit> {
        let key = self.format.read(&self.key)?;
        let value = value(self.value, self.file.as_deref())?;
        let name = &self.keyspace.keyspace;
        if let Some(device) = opening::kvssd_to_make(&self.store, &self.make, name)? {
            let durability = if self.sync { Durability::Sync } else { Durability::Buffered };
            device.put(&key, &value, durability)?;
        } else {
            let make = MakeArguments { is_little: true, ..self.make };
            let (store, keyspace) = opening::to_make(&self.store, &make, name)?;
            let options = if self.sync { WriteOptions::sync() } else { WriteOptions::default() };
            keyspace.put_with(&key, &value, options)?;
            store.close()?;
        }
        if output.is_json {
            output.json(&json!({ "key_bytes": key.len(), "value_bytes": value.len() }))?;
        }
        Ok(Exit::Ok)
    }
}

fn value(given: Option<OsString>, file: Option<&Path>) -> Result<Vec<u8>> {
    if let Some(path) = file {
        let len = std::fs::metadata(path).map_or(0, |found| found.len());
        if len > MAX_VALUE_BYTES {
            let what = format!("the value has {len} bytes; the most is {MAX_VALUE_BYTES}");
            let hint = "store it in parts under several keys";
            return Err(Failure::usage(what, hint).at(path.display()));
        }
        return std::fs::read(path).map_err(|error| Failure::file(path, "read the value", &error));
    }
    let given = given.unwrap_or_default();
    if given != "-" {
        return Ok(given.into_vec());
    }
    let mut value = Vec::new();
    let read = std::io::stdin().lock().read_to_end(&mut value);
    read.map_err(|error| Failure::file(Path::new("-"), "read standard input", &error))?;
    Ok(value)
}
