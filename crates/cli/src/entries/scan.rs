//! Prints entries in key order, one per line, or as one JSON object while it reads. Lines do not
//! tell when an entry expires: programs take what is behind the tab as the value.

use crate::arguments::Selection;
use crate::failure::Result;
use crate::opened::Entries;
use crate::output::Output;
use crate::range::{Entry, Range};

/// Arguments of `scan`.
#[derive(clap::Args)]
pub struct Scan {
    #[command(flatten)]
    pub selection: Selection,
    /// Leave out the values.
    #[arg(long)]
    keys_only: bool,
}

impl Scan {
    pub fn run(&self, entries: &dyn Entries, output: &Output) -> Result<()> {
        let range = Range::of(&self.selection)?;
        let encoding = self.selection.part.encoding;
        if output.is_json {
            return self.print_json(&range, entries, output);
        }
        entries.walk(&range, &mut |Entry { key, value, .. }| match self.keys_only {
            true => output.line(encoding.show(key)),
            false => output.line(format!("{}\t{}", encoding.show(key), encoding.show(value))),
        })?;
        Ok(())
    }

    fn print_json(&self, range: &Range, entries: &dyn Entries, output: &Output) -> Result<()> {
        output.bytes(b"{\"entries\":[")?;
        let mut separator = "";
        let count = entries.walk(range, &mut |Entry { key, value, expires_ms }| {
            let value = (!self.keys_only).then_some(value);
            let object = self.selection.part.encoding.object(key, value, expires_ms);
            output.bytes(format!("{}{object}", std::mem::replace(&mut separator, ",")).as_bytes())
        })?;
        output.line(format!("],\"count\":{count}}}"))
    }
}
