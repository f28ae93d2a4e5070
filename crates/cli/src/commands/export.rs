//! `export`: writes the entries of a keyspace into a directory or file.

use std::path::PathBuf;
use std::time::Instant;

use serde_json::json;

use crate::arguments::Selection;
use crate::failure::{Exit, Failure, Result};
use crate::interrupt::{self, SIGHUP, SIGINT, SIGTERM};
use crate::layout::plural;
use crate::opening::{self, Location};
use crate::output::{Output, amount, duration, note, rounded};
use crate::range::Range;
use crate::transfer::{Format, format_of, sink};

/// At most this many entries that the format cannot hold are named one by one.
const MOST_TOLD: u64 = 100;

/// Write entries into a directory, jsonl, csv or tsv file
#[derive(clap::Args)]
pub struct Args {
    /// The store.
    store: PathBuf,
    /// A directory (key -> path) or a file; `-` is standard output. Only an export that is killed
    /// (-9) leaves a file TARGET.partial-PID, which nothing reads: remove it.
    target: PathBuf,
    /// How the target is written; without it, its name tells.
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// For csv, of values that are JSON objects: a column for each of these fields, such as
    /// name,address.city, beside the key.
    #[arg(long, value_name = "FIELDS", value_delimiter = ',')]
    columns: Vec<String>,
    /// Replace what exists.
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    selection: Selection,
}

impl Args {
    pub fn run(self, output: &Output) -> Result<Exit> {
        interrupt::watch(&[SIGINT, SIGTERM, SIGHUP]);
        let format = format_of(self.format, &self.target)?;
        if !self.columns.is_empty() && format != Format::Csv {
            return Err(Failure::usage("--columns is for csv", "add --format csv"));
        }
        let is_stdout = self.target.as_os_str() == "-";
        if is_stdout && output.is_json {
            let what = "--json and the export both take standard output";
            return Err(Failure::usage(what, "export into a file"));
        }
        let range = Range::of(&self.selection)?;
        let entries = Location::of(&self.store)?.to_read(self.selection.part.keyspace.name())?;
        let store = opening::places(&self.store);
        let mut sink = sink::open(&self.target, format, self.force, store, &self.columns, output)?;
        // Nobody counted the keys of a range.
        let total = entries.estimate().filter(|_| range.is_everything());
        let bar = output.count_bar("export", total);
        let started = Instant::now();
        let (mut records, mut bytes, mut refused) = (0, 0, 0);
        let walked = entries.walk(&range, &mut |key, value| {
            bar.inc(1);
            match sink.put(key, value)? {
                Ok(()) => {
                    records += 1;
                    bytes += (key.len() + value.len()) as u64;
                }
                Err(what) => {
                    refused += 1;
                    if refused <= MOST_TOLD && !output.is_json {
                        bar.suspend(|| {
                            note(format!("key {}: {what}", self.selection.part.encoding.show(key)))
                        });
                    }
                }
            }
            Ok(())
        });
        walked.map_err(|failure| match (failure.exit, format) {
            (Exit::Interrupted, Format::Dir) => failure
                .at(self.target.display())
                .hint("the directory holds a part; --force replaces it when you export again"),
            (Exit::Interrupted, _) if !is_stdout => {
                failure.at(self.target.display()).hint("nothing was written; export again")
            }
            _ => failure,
        })?;
        sink.finish()?;
        bar.finish_and_clear();
        let took = started.elapsed();
        match output.is_json {
            true => output.json(&json!({
                "records": records, "bytes": bytes, "refused": refused,
                "seconds": rounded(took.as_secs_f64()),
            }))?,
            false => {
                let records = plural(records, "record");
                note(format!("{records}, {}, {}", amount(bytes), duration(took)));
            }
        }
        match refused {
            0 => Ok(Exit::Ok),
            _ => Err(self.refusal(refused)),
        }
    }

    /// Says how many entries the format could not hold.
    fn refusal(&self, refused: u64) -> Failure {
        let what = match (refused, self.columns.is_empty()) {
            (1, true) => "1 entry has a key that cannot be a file".to_string(),
            (_, true) => format!("{refused} entries have keys that cannot be files"),
            (1, false) => "1 entry has a value that is no JSON object".to_string(),
            (_, false) => format!("{refused} entries have values that are no JSON objects"),
        };
        Failure::new(Exit::Different, what)
            .at(self.target.display())
            .hint("export them with --format jsonl")
    }
}
