//! `scan`: prints entries in key order, one per line, or as one JSON object while it reads.

use std::path::PathBuf;

use crate::arguments::{Encoding, KeyspaceArgument, RangeArguments};
use crate::failure::{Exit, Result};
use crate::opened::Opened;
use crate::opening::Location;
use crate::output::Output;
use crate::range::Range;

/// Print keys and values in order
#[derive(clap::Args)]
pub struct Args {
    /// The store.
    store: PathBuf,
    #[command(flatten)]
    range: RangeArguments,
    /// Leave out the values.
    #[arg(long)]
    keys_only: bool,
    #[command(flatten)]
    keyspace: KeyspaceArgument,
    #[command(flatten)]
    encoding: Encoding,
}

impl Args {
    pub fn run(self, output: &Output) -> Result<Exit> {
        let range = Range::read(&self.range, self.encoding)?;
        let entries = Location::of(&self.store)?.to_read(&self.keyspace.keyspace)?;
        if output.is_json {
            return self.print_json(&range, &*entries, output);
        }
        entries.walk(&range, &mut |key, value| match self.keys_only {
            true => output.line(self.encoding.show(key)),
            false => {
                let (key, value) = (self.encoding.show(key), self.encoding.show(value));
                output.line(format!("{key}\t{value}"))
            }
        })?;
        Ok(Exit::Ok)
    }

    fn print_json(&self, range: &Range, entries: &dyn Opened, output: &Output) -> Result<Exit> {
        output.bytes(b"{\"entries\":[")?;
        let mut separator = "";
        let count = entries.walk(range, &mut |key, value| {
            let value = (!self.keys_only).then_some(value);
            let object = self.encoding.object(key, value);
            output.bytes(format!("{}{object}", std::mem::replace(&mut separator, ",")).as_bytes())
        })?;
        output.line(format!("],\"count\":{count}}}"))?;
        Ok(Exit::Ok)
    }
}
