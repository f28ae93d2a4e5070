//! `stats`: what the store holds and measures.

use std::path::PathBuf;

use crate::arguments::Part;
use crate::failure::{Exit, Result};
use crate::opened::Figures;
use crate::opening::Location;
use crate::output::Output;
use crate::range::Range;

/// Print sizes and counters
#[derive(clap::Args)]
pub struct Args {
    /// The store.
    store: PathBuf,
    /// Print in the exposition format of Prometheus. Counters begin at zero when a store is opened:
    /// those printed here are of this command, and an application prints its own.
    #[arg(long, conflicts_with_all = ["json", "prefix", "from", "to", "keyspace"])]
    prometheus: bool,
    #[command(flatten)]
    part: Part,
}

impl Args {
    pub fn run(self, output: &Output) -> Result<Exit> {
        let part = &self.part;
        let range = Range::within(part)?;
        let location = Location::of(&self.store)?;
        let opened = location.to_read(part.keyspace.name())?;
        if self.prometheus {
            output.bytes(opened.prometheus()?.as_bytes())?;
            return Ok(Exit::Ok);
        }
        let Figures { mut text, mut json } =
            opened.stats(part.keyspace.keyspace.as_deref(), &range)?;
        if let Some(flash) = location.flash(opened.kv().metrics()?.user_bytes_written) {
            text.push_str(&format!("\n{}", flash.text));
            json["flash"] = flash.json;
        }
        output.figures(&text, &json)?;
        Ok(Exit::Ok)
    }
}
