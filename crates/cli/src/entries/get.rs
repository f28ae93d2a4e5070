//! Prints one value: for people on a line, as they would type it; for programs only its bytes.

use std::ffi::OsString;
use std::io::{IsTerminal, stdout};

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
    /// Print the bytes of the value and nothing else, as into a pipe or file.
    #[arg(long)]
    raw: bool,
    /// Print it as on a terminal: escaped, a counter as its number, with a line feed at the end.
    #[arg(long, conflicts_with = "raw")]
    text: bool,
    #[command(flatten)]
    pub keyspace: KeyspaceArgument,
    #[command(flatten)]
    pub encoding: Encoding,
}

impl Get {
    /// `is_line` says that other output follows on the same pipe, such as the output of the next
    /// command of a shell. Then the value ends with a line feed on a pipe too.
    pub fn run(&self, entries: &dyn Entries, output: &Output, is_line: bool) -> Result<Exit> {
        let key = self.encoding.read(&self.key)?;
        let Some(value) = entries.get(&key)? else {
            let what = format!("key {} is absent", self.encoding.show(&key));
            if output.is_json {
                let hint = "`runstone scan STORE --prefix P` lists keys that are there";
                return Err(Failure::new(Exit::Different, what).hint(hint));
            }
            note(what);
            return Ok(Exit::Different);
        };
        if output.is_json {
            let expires_ms = entries.expiry(&key)?.and_then(expires_ms);
            output.json(&self.encoding.object(&key, Some(&value), expires_ms))?;
            return Ok(Exit::Ok);
        }
        let is_terminal = stdout().is_terminal();
        // `--hex` asks for digits, which are text.
        let is_text = self.text || self.encoding.hex || is_line || is_terminal;
        if self.raw || !is_text {
            output.bytes(&value)?;
        } else {
            let is_read_by_people = self.text || is_terminal;
            let counter = entries.counter().filter(|_| is_read_by_people && !self.encoding.hex);
            let number = counter.and_then(|counter| counter.number(&value));
            output.line(number.unwrap_or_else(|| self.encoding.show(&value)))?;
        }
        Ok(Exit::Ok)
    }
}
