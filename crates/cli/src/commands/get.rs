//! `get`: prints one value.

use std::ffi::OsString;
use std::path::PathBuf;

use runstone::Value;
use runstone::kv::KvStore;

use crate::arguments::{KeyFormat, KeyspaceArgument};
use crate::failure::{Exit, Failure, Result};
use crate::opening;
use crate::output::{Output, note};
use crate::transfer::jsonl;

/// Print a value; exit code 1 if the key is absent
#[derive(clap::Args)]
pub struct Args {
    /// The store.
    store: PathBuf,
    /// The key.
    #[arg(allow_negative_numbers = true)]
    key: OsString,
    /// The bytes as they are, without a line feed behind them.
    #[arg(long)]
    raw: bool,
    #[command(flatten)]
    keyspace: KeyspaceArgument,
    #[command(flatten)]
    format: KeyFormat,
}

impl Args {
    pub fn run(self, output: &Output) -> Result<Exit> {
        let key = self.format.read(&self.key)?;
        let Some(value) = self.find(&key)? else {
            let what = format!("key {} is absent", self.format.show(&key));
            if output.is_json {
                let hint = "`runstone scan --prefix` lists what is there";
                return Err(Failure::new(Exit::Different, what)
                    .at(self.store.display())
                    .hint(hint));
            }
            note(what);
            return Ok(Exit::Different);
        };
        if output.is_json {
            output.json(&jsonl::object(&key, Some(&value)))?;
        } else if self.raw {
            output.bytes(&value)?;
        } else {
            output.bytes(&printable(&value))?;
        }
        Ok(Exit::Ok)
    }
}

impl Args {
    fn find(&self, key: &[u8]) -> Result<Option<Value>> {
        if let Some(device) = opening::kvssd(&self.store, &self.keyspace.keyspace, false)? {
            return Ok(device.get(key)?);
        }
        let store = opening::to_read(&self.store)?;
        let keyspace = opening::keyspace(&store, &self.keyspace.keyspace)?;
        Ok(keyspace.get(key)?)
    }
}

/// Text as it is, with a line feed at its end; anything else escaped on one line.
pub fn printable(value: &[u8]) -> Vec<u8> {
    let is_text = std::str::from_utf8(value)
        .is_ok_and(|text| !text.chars().any(|c| c.is_control() && c != '\n' && c != '\t'));
    let mut shown = match is_text {
        true => value.to_vec(),
        false => value.escape_ascii().collect(),
    };
    if shown.last() != Some(&b'\n') {
        shown.push(b'\n');
    }
    shown
}
