//! `put`: stores one value. Not for many: `import` writes those in batches.

use std::path::PathBuf;

use serde_json::json;

use crate::arguments::MakeArguments;
use crate::counters::Counter;
use crate::entries::put::Put;
use crate::failure::{Exit, Result};
use crate::opening::{self, Location};
use crate::output::Output;
use crate::transfer::Record;

/// Store a value; makes the store if there is none
///
/// A store is made only where its parent directory exists, and outside other stores; the fact that
/// it was made is reported on standard error.
#[derive(clap::Args)]
pub struct Args {
    /// The store.
    store: PathBuf,
    #[command(flatten)]
    put: Put,
    #[command(flatten)]
    make: MakeArguments,
}

impl Args {
    pub fn run(self, output: &Output) -> Result<Exit> {
        let entry = self.put.entry(true)?;
        let make = MakeArguments { is_little: true, ..self.make };
        // A value that the options refuse is reported before a store is made with them.
        let given = opening::given_options(&make)?;
        let counter = given.and_then(|options| Counter::of(&options.merge_operator));
        self.put.check_counter(counter, &entry.value)?;
        let location = Location::of(&self.store)?;
        let opened = location.to_make(&make, self.put.keyspace.name(), None)?;
        self.put.write(opened.entries(), &entry)?;
        opened.close()?;
        location.tell_made(output);
        if output.is_json {
            let Record { key, value, .. } = entry;
            output.json(&json!({
                "key_bytes": key.len(), "value_bytes": value.len(), "made": location.was_made(),
            }))?;
        }
        Ok(Exit::Ok)
    }
}
