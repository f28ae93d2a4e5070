//! Prints one value.

use std::ffi::OsString;

use crate::arguments::{Encoding, KeyspaceArgument};
use crate::failure::{Exit, Failure, Result};
use crate::opened::Entries;
use crate::output::{Output, note};
use crate::range::expires_ms;

/// Arguments of `get`.
#[derive(clap::Args)]
pub struct Get {
    /// The key.
    #[arg(allow_negative_numbers = true)]
    key: OsString,
    /// Print the bytes as they are, without a line feed at the end.
    #[arg(long)]
    raw: bool,
    #[command(flatten)]
    pub keyspace: KeyspaceArgument,
    #[command(flatten)]
    pub encoding: Encoding,
}

impl Get {
    pub fn run(&self, entries: &dyn Entries, output: &Output) -> Result<Exit> {
        let key = self.encoding.read(&self.key)?;
        let Some(value) = entries.get(&key)? else {
            let what = format!("key {} is absent", self.encoding.show(&key));
            if output.is_json {
                let hint = "`runstone scan --prefix` lists what is there";
                return Err(Failure::new(Exit::Different, what).hint(hint));
            }
            note(what);
            return Ok(Exit::Different);
        };
        if output.is_json {
            let expires_ms = entries.expiry(&key)?.and_then(expires_ms);
            output.json(&self.encoding.object(&key, Some(&value), expires_ms))?;
        } else if self.raw {
            output.bytes(&value)?;
        } else {
            output.line(self.encoding.show(&value))?;
        }
        Ok(Exit::Ok)
    }
}
