//! Prints entries in key order, one per line, or as one JSON object that is printed while entries
//! are read. Lines do not say when an entry expires, because programs read everything after the tab
//! as the value. On a terminal a counter is its number; a pipe gets its bytes, which an import
//! reads. A key whose value cannot be made or read is reported on standard error, and the others
//! are shown.

use std::io::{IsTerminal, stdout};

use crate::arguments::Selection;
use crate::failure::Result;
use crate::failures::Failures;
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
    /// Prints the entries. Fails at the end if keys were skipped because their value could not be
    /// made or read.
    pub fn run(&self, entries: &dyn Entries, output: &Output) -> Result<()> {
        let range = Range { keys_only: self.keys_only, ..Range::of(&self.selection)? };
        let encoding = self.selection.part.encoding;
        let mut failures = Failures::new(encoding, output.is_json);
        let counter = entries.counter().filter(|_| stdout().is_terminal() && !encoding.hex);
        let show = |value: &[u8]| {
            let number = counter.and_then(|counter| counter.number(value));
            number.unwrap_or_else(|| encoding.show(value))
        };
        match output.is_json {
            true => self.print_json(&range, entries, &mut failures, output)?,
            false => {
                entries.walk(&range, &mut |found| match found {
                    Ok(Entry { key, .. }) if self.keys_only => output.line(encoding.show(key)),
                    Ok(Entry { key, value, .. }) => {
                        output.line(format!("{}\t{}", encoding.show(key), show(value)))
                    }
                    Err(failed) => {
                        failures.add(&failed);
                        Ok(())
                    }
                })?;
            }
        }
        failures.failure("not shown").map_or(Ok(()), Err)
    }

    fn print_json(
        &self,
        range: &Range,
        entries: &dyn Entries,
        failures: &mut Failures,
        output: &Output,
    ) -> Result<()> {
        output.bytes(b"{\"entries\":[")?;
        let (mut separator, mut count) = ("", 0);
        entries.walk(range, &mut |found| {
            let Entry { key, value, expires_ms } = match found {
                Ok(entry) => entry,
                Err(failed) => {
                    failures.add(&failed);
                    return Ok(());
                }
            };
            count += 1;
            let value = (!self.keys_only).then_some(value);
            let object = self.selection.part.encoding.object(key, value, expires_ms);
            output.bytes(format!("{}{object}", std::mem::replace(&mut separator, ",")).as_bytes())
        })?;
        let (failed, first) = failures.to_json();
        output.line(format!("],\"count\":{count},\"failed\":{failed},\"failed_entries\":{first}}}"))
    }
}
