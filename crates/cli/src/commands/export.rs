//! `export`: writes the entries of a keyspace into a directory or file.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::arguments::Selection;
use crate::failure::{Exit, Failure, Result};
use crate::failures::Failures;
use crate::interrupt::{self, SIGHUP, SIGINT, SIGTERM};
use crate::layout::plural;
use crate::opened::Opened;
use crate::opening::{self, Location};
use crate::output::{Output, amount, duration, note, rounded};
use crate::range::{Failed, Found, Missing, Range};
use crate::transfer::progress::KEYSPACE;
use crate::transfer::sink::{self, Refused, Sink, Style};
use crate::transfer::{Format, format_of};

/// At most this many entries that the format cannot represent are named one by one.
const MOST_TOLD: u64 = 100;

/// Write entries into a directory, jsonl, csv or tsv file
///
/// One keyspace is written, without its options: `runstone import` gives the entries the keyspace
/// and the options that its arguments name.
#[derive(clap::Args)]
pub struct Args {
    /// The store.
    store: PathBuf,
    /// A directory (key -> path) or a file; `-` is standard output. A file that ends in .gz or .zst
    /// is compressed. If the store is damaged, TARGET.partial holds the readable entries (a
    /// directory keeps its name), and the missing keys are reported; if that name is taken, it is
    /// TARGET.partial-PID. An export that is killed (-9) leaves a file of such a name too, with the
    /// entries written so far.
    target: PathBuf,
    /// How the target is written; without it, the name decides.
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// For csv, if values are JSON objects: a column for each of these fields, such as
    /// name,address.city, besides the key.
    #[arg(long, value_name = "FIELDS", value_delimiter = ',')]
    columns: Vec<String>,
    /// Leave out when entries expire. Without it, `expires_ms` says when, in milliseconds since
    /// 1970: a field of jsonl, a column of csv, after the value in tsv. A directory refuses such
    /// entries.
    #[arg(long)]
    drop_expiry: bool,
    /// Leave out entries whose value cannot be made or read: its merge operator fails or is not
    /// registered, or it is separated and damaged. They are reported, and the exit code is 2.
    #[arg(long)]
    skip_failed: bool,
    /// Replace an existing target.
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
        let opened = Location::of(&self.store)?.to_read(self.selection.part.keyspace.name())?;
        let store = opening::places(&self.store);
        let style = Style { format, columns: &self.columns, drop_expiry: self.drop_expiry };
        let mut sink = sink::open(&self.target, style, self.force, store, output)?;
        let started = Instant::now();
        let mut tally = Tally::new(Failures::new(self.selection.part.encoding, output.is_json));
        let written = self.write(&*opened, &range, &mut *sink, &mut tally, output);
        written.map_err(|failure| match (failure.exit, format) {
            (Exit::Interrupted, Format::Dir) => failure
                .at(self.target.display())
                .hint("the directory holds a part; --force replaces it when you export again"),
            (Exit::Interrupted, _) if !is_stdout => {
                failure.at(self.target.display()).hint("nothing was written; export again")
            }
            _ => failure,
        })?;
        let partial = match tally.missing.first() {
            None => sink.finish().map(|()| None)?,
            // A file without an entry would save nothing.
            Some(_) if tally.records == 0 => None,
            Some(_) => sink.finish_partial()?,
        };
        tally.empty_columns = sink.empty_columns();
        self.report(&tally, &self.others(&*opened), started.elapsed(), output)?;
        if !tally.missing.is_empty() {
            return Err(self.damage(&tally, partial));
        }
        if let Some(failure) = tally.failures.failure("left out") {
            return Err(failure.at(self.target.display()));
        }
        match tally.refusals.total() {
            0 => Ok(Exit::Ok),
            _ => Err(tally.refusals.failure(&self.columns).at(self.target.display())),
        }
    }

    /// The failure if not all keys could be read. It names the place of the readable ones.
    fn damage(&self, tally: &Tally, partial: Option<PathBuf>) -> Failure {
        let ranges = plural(tally.missing.len() as u64, "range");
        let what = format!("{ranges} of keys could not be read: {}", tally.missing[0].what);
        let verify = format!("`runstone verify {}` names all damage", self.store.display());
        let hint = match tally.records {
            0 => format!("nothing was written; {verify}"),
            _ => format!("what can be read is there; {verify}"),
        };
        let place = partial.unwrap_or(self.target.clone());
        Failure::new(Exit::Damaged, what).at(place.display()).hint(hint)
    }

    fn write(
        &self,
        opened: &dyn Opened,
        range: &Range,
        sink: &mut dyn Sink,
        tally: &mut Tally,
        output: &Output,
    ) -> Result<()> {
        // The number of keys in a range is not known.
        let total = opened.estimate().filter(|_| range.is_everything());
        let bar = output.count_bar("export", total);
        let Tally { records, bytes, refusals, failures, missing, .. } = tally;
        let mut damaged = Vec::new();
        let mut visit = |found: Found<'_>| {
            bar.inc(1);
            let entry = match found {
                Ok(entry) => entry,
                Err(failed) if self.skip_failed => {
                    bar.suspend(|| failures.add(&failed));
                    return Ok(());
                }
                Err(failed) if failed.is_damage() => {
                    damaged.push(missing_of(&failed));
                    return Ok(());
                }
                Err(failed) => return Err(self.failed(failed)),
            };
            match sink.put(entry)? {
                Ok(()) => {
                    *records += 1;
                    *bytes += (entry.key.len() + entry.value.len()) as u64;
                }
                Err(refused) => {
                    let what = refusals.count(refused);
                    if refusals.total() <= MOST_TOLD && !output.is_json {
                        let key = self.selection.part.encoding.show(entry.key);
                        bar.suspend(|| note(format!("key {key}: {what}")));
                    }
                }
            }
            Ok(())
        };
        opened.entries().walk_past_damage(range, &mut visit, missing)?;
        missing.append(&mut damaged);
        missing.sort_by(|one, other| one.from.cmp(&other.from));
        bar.finish_and_clear();
        Ok(())
    }

    /// The error for a failed key in an export without `--skip-failed`.
    fn failed(&self, failed: Failed<'_>) -> Failure {
        let failure = Failure::from(failed);
        let hint = failure.hint.clone().unwrap_or_default();
        let place = failure.place.clone().unwrap_or(self.store.display().to_string());
        failure
            .at(place)
            .hint(format!("--skip-failed leaves such entries out, and tells them; {hint}"))
    }

    /// The keyspaces that are left out; none if the user named a keyspace, and so knows that there
    /// are others.
    fn others(&self, opened: &dyn Opened) -> Vec<String> {
        if self.selection.part.keyspace.keyspace.is_some() {
            return Vec::new();
        }
        let mut others = opened.keyspaces();
        others.retain(|name| name != self.selection.part.keyspace.name() && name != KEYSPACE);
        others.sort();
        others
    }

    fn report(
        &self,
        tally: &Tally,
        others: &[String],
        took: Duration,
        output: &Output,
    ) -> Result<()> {
        let encoding = self.selection.part.encoding;
        let show = |key: &Option<Vec<u8>>| key.as_ref().map(|key| encoding.show(key));
        let missing = tally.missing.iter().take(MOST_TOLD as usize);
        if output.is_json {
            let missing = missing.map(|missing| {
                let (from, before) = (show(&missing.from), show(&missing.before));
                json!({ "from": from, "before": before, "what": missing.what })
            });
            let (failed, failed_entries) = tally.failures.to_json();
            return output.json(&json!({
                "records": tally.records,
                "bytes": tally.bytes,
                "refused": tally.refusals.total(),
                "failed": failed,
                "failed_entries": failed_entries,
                "missing": missing.collect::<Vec<_>>(),
                "other_keyspaces": others,
                "empty_columns": tally.empty_columns,
                "seconds": rounded(took.as_secs_f64()),
            }));
        }
        for missing in missing {
            let from = show(&missing.from).unwrap_or("the first".into());
            let to = show(&missing.before).map_or("the last".into(), |key| format!("before {key}"));
            note(format!("missing: keys from {from} to {to}: {}", missing.what));
        }
        let records = plural(tally.records, "record");
        note(format!("{records}, {}, {}", amount(tally.bytes), duration(took)));
        if !tally.empty_columns.is_empty() && tally.records > 0 {
            let names = tally.empty_columns.join(", ");
            note(format!("no value has a field for these columns, which are empty: {names}"));
        }
        if !others.is_empty() {
            note(format!("not of other keyspaces, see --keyspace: {}", others.join(", ")));
        }
        Ok(())
    }
}

/// A damaged value leaves a gap of one key.
fn missing_of(failed: &Failed<'_>) -> Missing {
    let before = [failed.key, &[0]].concat();
    Missing { from: Some(failed.key.to_vec()), before: Some(before), what: failed.what() }
}

/// Counts of the entries that were written, and of those that were not.
struct Tally {
    records: u64,
    bytes: u64,
    refusals: Refusals,
    /// Keys whose value could not be made or read, which were left out.
    failures: Failures,
    /// Keys that damage hides.
    missing: Vec<Missing>,
    /// The names in --columns that are not fields of any value.
    empty_columns: Vec<String>,
}

impl Tally {
    fn new(failures: Failures) -> Tally {
        let refusals = Refusals::default();
        let (missing, empty_columns) = (Vec::new(), Vec::new());
        Tally { records: 0, bytes: 0, refusals, failures, missing, empty_columns }
    }
}

/// How many entries the format could not represent.
#[derive(Default)]
struct Refusals {
    keys: u64,
    values: u64,
    expiries: u64,
    /// Files that the export would have written into the store.
    in_store: u64,
}

impl Refusals {
    /// Counts a refused entry. Returns the reason.
    fn count(&mut self, refused: Refused) -> String {
        match refused {
            Refused::Key(what) => {
                self.keys += 1;
                what
            }
            Refused::Value(what) => {
                self.values += 1;
                what
            }
            Refused::InStore => {
                self.in_store += 1;
                "its file would lie in the store".to_string()
            }
            Refused::Expiry => {
                self.expiries += 1;
                "it expires, and a file does not".to_string()
            }
        }
    }

    fn total(&self) -> u64 {
        self.keys + self.values + self.expiries + self.in_store
    }

    fn failure(&self, columns: &[String]) -> Failure {
        let told = [
            (self.keys, "has a key that cannot be a file", "have keys that cannot be files"),
            (
                self.values,
                "has a value that is no JSON object",
                "have values that are no JSON objects",
            ),
            (self.expiries, "expires", "expire"),
            (self.in_store, "has a key in the store", "have keys in the store"),
        ];
        let told = told.into_iter().filter(|(count, ..)| *count > 0).map(|(count, one, many)| {
            format!("{} {}", plural(count, "entry"), if count == 1 { one } else { many })
        });
        let mut ways = vec!["export them into a new file NAME.jsonl"];
        if !columns.is_empty() {
            ways = vec!["leave out --columns", "use a new file NAME.jsonl without --columns"];
        }
        if self.in_store > 0 {
            ways.insert(0, "name a directory outside of the store");
        }
        if self.expiries > 0 {
            ways.push("add --drop-expiry");
        }
        Failure::new(Exit::Different, told.collect::<Vec<_>>().join("; ")).hint(ways.join(", or "))
    }
}
