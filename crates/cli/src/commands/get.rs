//! `get`: prints one value.

use std::ffi::OsString;
use std::path::PathBuf;

use crate::arguments::{Encoding, KeyspaceArgument};
use crate::failure::{Exit, Failure, Result};
use crate::opening::Location;
use crate::output::{Output, note};

/// Print a value; exit code 1 if the key is absent
#[derive(clap::Args)]
pub struct Args {
    /// The store.
    store: PathBuf,
    /// The key.
    #[arg(allow_negative_numbers = true)]
    key: OsString,
    /// Print the bytes as they are, without a line feed at the end.
    #[arg(long)]
    raw: bool,
    #[command(flatten)]
    keyspace: KeyspaceArgument,
    #[command(flatten)]
    encoding: Encoding,
}

impl Args {
    pub fn run(self, output: &Output) -> Result<Exit> {
        let key = self.encoding.read(&self.key)?;
        let opened = Location::of(&self.store)?.to_read(&self.keyspace.keyspace)?;
        let Some(value) = opened.get(&key)? else {
            let what = format!("key {} is absent", self.encoding.show(&key));
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
            output.json(&self.encoding.object(&key, Some(&value)))?;
        } else if self.raw {
            output.bytes(&value)?;
        } else {
            output.line(self.encoding.show(&value))?;
        }
        Ok(Exit::Ok)
    }
}
