//! `stats`: the sizes and counters of the store.

use std::path::PathBuf;

use runstone::Store;
use serde_json::json;

use crate::arguments::Part;
use crate::failure::{Exit, Failure, Result};
use crate::interrupt::{self, SIGINT, SIGTERM};
use crate::live::{self, Rates};
use crate::opened::Figures;
use crate::opening::Location;
use crate::output::{Output, note};
use crate::range::Range;

/// After this many lines the names of the columns are printed again.
const LINES_PER_HEADER: u64 = 20;

/// Print sizes and counters
#[derive(clap::Args)]
pub struct Args {
    /// The store.
    store: PathBuf,
    /// Print in the exposition format of Prometheus. Counters begin at zero when a store is opened:
    /// those printed here belong to the process that has it open, or else to this command.
    #[arg(long, conflicts_with_all = ["json", "prefix", "from", "to", "keyspace"])]
    prometheus: bool,
    /// Print a line every second about the work of the process that has the store open, until that
    /// process closes the store or Ctrl-C.
    #[arg(long, conflicts_with_all = ["prometheus", "prefix", "from", "to", "keyspace"])]
    follow: bool,
    /// End after this many lines.
    #[arg(long, value_name = "N", requires = "follow")]
    lines: Option<u64>,
    #[command(flatten)]
    part: Part,
}

impl Args {
    pub fn run(self, output: &Output) -> Result<Exit> {
        if self.follow {
            return self.follow(output);
        }
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

    /// Prints how fast counters grow in the process that has the store open.
    fn follow(&self, output: &Output) -> Result<Exit> {
        interrupt::watch(&[SIGINT, SIGTERM]);
        let location = Location::of(&self.store)?;
        if !location.is_directory() {
            let what = "--follow is for stores in directories";
            return Err(Failure::usage(what, "no other process can have this one open"));
        }
        let path = self.store.display();
        let watch = Store::watch(&self.store).map_err(|error| location.explain(error, false))?;
        let Some(mut last) = live::next(&watch, None)? else {
            return Err(match watch.process() {
                Some(process) => Failure::new(Exit::CannotOpen, silent(process)).at(path).hint(
                    "a store whose program runs its jobs by hand, or opened it for reading, or has \
                     a single thread that is busy, tells nothing",
                ),
                None => Failure::new(Exit::CannotOpen, "no process writes to the store")
                    .at(path)
                    .hint("`runstone stats STORE` prints what it holds"),
            });
        };
        let mut printed = 0;
        while self.lines.is_none_or(|lines| printed < lines) {
            let Some(now) = live::next(&watch, Some(&last))? else {
                let Some(process) = watch.process() else { break };
                self.tell(output, &silent(process));
                continue;
            };
            let Some(rates) = Rates::between(&last, now.clone()) else {
                self.tell(output, &format!("process {} has opened the store", now.process));
                last = now;
                continue;
            };
            if output.is_json {
                output.json(&rates.json())?;
            } else {
                if printed % LINES_PER_HEADER == 0 {
                    output.line(Rates::header())?;
                }
                output.line(rates.row())?;
            }
            output.flush()?;
            printed += 1;
            last = rates.into_now();
        }
        if self.lines.is_none_or(|lines| printed < lines) {
            self.tell(output, &format!("process {} has closed the store", last.process));
        }
        Ok(Exit::Ok)
    }

    /// Reports something that is not an error. Under `--json` it goes to standard output, because
    /// standard error then contains nothing but errors.
    fn tell(&self, output: &Output, what: &str) {
        if output.is_json {
            // If this line cannot be printed, printing the next one fails and reports it.
            let _ = output.json(&json!({ "told": what })).and_then(|()| output.flush());
        } else {
            note(what);
        }
    }
}

fn silent(process: u32) -> String {
    format!("process {process} has the store open, and does not tell what it does")
}
