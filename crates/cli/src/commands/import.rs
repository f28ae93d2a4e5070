//! `import`: writes the records of a directory or file into a store, as bulk loads as long as their
//! keys ascend, then in batches. A killed import resumes when it is run again: after the last load
//! that ended, or the last batch.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use indicatif::ProgressBar;
use runstone::{DEFAULT_KEYSPACE, Durability, Expiry};
use runstone_foreign::Dialect;
use serde_json::json;

use crate::arguments::{KeyspaceArgument, MakeArguments};
use crate::counters::Counter;
use crate::failure::{Exit, Failure, Result};
use crate::interrupt::{self, SIGHUP, SIGINT, SIGTERM};
use crate::keyspaces::{self, Wish};
use crate::layout::plural;
use crate::opened::{Limits, Target};
use crate::opening::{self, Location};
use crate::output::{Output, amount, duration, note, rounded};
use crate::range::expires_ms;
use crate::transfer::ahead::Ahead;
use crate::transfer::foreign::{self, Choice};
use crate::transfer::jsonl::Fields;
use crate::transfer::progress::Progress;
use crate::transfer::sorted::{RUN_BYTES, Sorted};
use crate::transfer::source::{self, Part, Source};
use crate::transfer::{Format, Malformed, Record, format_of, input};

/// At most this many malformed records are named one by one.
const MOST_TOLD: u64 = 100;

/// A source is bulk-loaded if its first records ascend: this many records, or records of this many
/// bytes. A smaller load would not be worth it.
const SORTED_RECORDS: usize = 1000;
const SORTED_BYTES: u64 = 4 << 20;

/// Bytes of a bulk load. An import that is killed loses a load that has not ended, so a long source
/// is loaded in pieces.
const PIECE_BYTES: u64 = 256 << 20;

/// Records between two updates of the progress bar.
const BAR_RECORDS: u64 = 1000;

/// Write the records of a directory, jsonl, csv or tsv file or pipe into a store, or those of a
/// LevelDB or RocksDB database
///
/// An import that ends early, by Ctrl-C or in any other way, resumes where it was when the same
/// command is run again, if the part that it read has not changed since. An import from a pipe
/// cannot resume, because the bytes that it read are gone.
#[derive(clap::Args)]
pub struct Args {
    /// The store; made if there is none.
    store: PathBuf,
    /// A directory (path -> content), a file or a pipe; `-` is standard input. Input that is
    /// compressed by gzip or zstd is unpacked. A line of a file and a record of a CSV file have at
    /// most 1G; larger values, up to 4G, come as files of a directory. `leveldb:DIR` and
    /// `rocksdb:DIR` are databases that no other process has open; they are only read. Each column
    /// family of RocksDB goes to the keyspace of its name.
    source: PathBuf,
    /// How the source is written; without it, the name decides.
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// jsonl, csv: the field that is the key; in jsonl `a.b` is field b of object a. Without
    /// --value, the whole record becomes the value.
    #[arg(long, value_name = "FIELD")]
    key: Option<String>,
    /// jsonl, csv: the field that is the value.
    #[arg(long, value_name = "FIELD", requires = "key")]
    value: Option<String>,
    /// Stop at the first malformed record.
    #[arg(long)]
    strict: bool,
    /// Forget the progress of an earlier import of this source, and begin again.
    #[arg(long)]
    restart: bool,
    /// Write in atomic batches of N records. Without it, records whose keys ascend are loaded
    /// straight into tables, about 256M at once, and others come in batches of 1000.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    batch: Option<u64>,
    /// Sort the records first, so that all of them are loaded straight into tables; of several
    /// records with a key the last one counts. Records that do not fit in 256M of memory are sorted
    /// in files in the directory for temporary files. An import that ends early begins again.
    #[arg(long, conflicts_with = "batch")]
    sort: bool,
    /// Wait for each batch until it survives a power loss.
    #[arg(long)]
    sync: bool,
    /// Store entries without their expiry. Without this flag, `expires_ms` of the source says when
    /// an entry expires. An expired entry is stored too, but its key has no value.
    #[arg(long)]
    drop_expiry: bool,
    /// rocksdb: only this column family.
    #[arg(long, value_name = "NAME")]
    family: Option<String>,
    #[command(flatten)]
    keyspace: KeyspaceArgument,
    #[command(flatten)]
    make: MakeArguments,
}

/// An opened source.
struct Chosen {
    source: Box<dyn Source>,
    /// The path from which it can be read again; `None` for a source that is read only once.
    again: Option<PathBuf>,
    /// The options that distinguish this import from others of the same path.
    how: String,
}

impl Args {
    pub fn run(self, output: &Output) -> Result<Exit> {
        interrupt::watch(&[SIGINT, SIGTERM, SIGHUP]);
        keyspaces::refuse_reserved(self.keyspace.name())?;
        let Chosen { mut source, again, how } = match foreign::parse(&self.source) {
            Some((dialect, path)) => self.database(dialect, &path)?,
            None => self.file()?,
        };
        let parts = source.parts();
        parts.iter().try_for_each(|part| keyspaces::refuse_reserved(&part.keyspace))?;
        let name = parts.first().map_or(self.keyspace.name(), |part| &part.keyspace);
        let durability = if self.sync { Durability::Sync } else { Durability::Buffered };
        let location = Location::of(&self.store)?;
        let opened = location.to_make(&self.make, name, None)?;
        location.tell_made(output);
        let is_again = again.is_some();
        let mut target = opened.into_target(again.as_deref(), &how, durability)?;
        let wish = opening::wish(&self.make, None)?;
        // A name that no keyspace may have is refused before anything is written.
        parts.iter().skip(1).try_for_each(|part| target.turn_to(&part.keyspace, &wish))?;
        let mut progress = Progress { position: source.position(), ..Progress::default() };
        // An import that stored nothing left no position to resume from, and the source may have
        // been corrected since.
        if !self.restart
            && let Some(left) = target.left()?.filter(|left| left.records > 0)
        {
            match source.resume(&left.position)? {
                true => progress = left,
                false => return Err(self.changed(&left)),
            }
        }
        let bar = output.bytes_bar("import", source.total_bytes());
        if self.sort {
            source = Box::new(Sorted::new(source, RUN_BYTES, bar.clone()));
        }
        bar.set_position(progress.position.offset_bytes);
        bar.reset_eta();
        let mut import = Import {
            resumed: progress.clone(),
            committed: progress.clone(),
            progress,
            target: &mut *target,
            now_ms: expires_ms(Expiry::At(SystemTime::now())).unwrap_or_default(),
            loaded: 0,
            batch_records: self.batch.unwrap_or(1000),
            strict: self.strict,
            bar,
            told: Vec::new(),
            is_json: output.is_json,
            parts: &parts,
            wish: &wish,
            loads: self.batch.is_none(),
            how_to_go_on: self.how_to_go_on(is_again),
        };
        let started = Instant::now();
        let mut ahead = Ahead::new(&mut *source);
        let outcome = import.all(&mut ahead).map_err(|failure| import.going_on(failure));
        let took = started.elapsed();
        let mut report = import.finish(&*source, took, &outcome);
        report["made"] = location.was_made().into();
        let closed = target.close(outcome.is_ok());
        report["complete"] = (outcome.is_ok() && closed.is_ok()).into();
        match output.is_json {
            true => output.json(&report)?,
            false if outcome.as_ref().is_err_and(|failure| failure.exit == Exit::Interrupted) => {}
            false => note(text_of(&report, took, self.keyspace.name(), &parts)),
        }
        // If both failed, the first error is the cause.
        outcome.and(closed).map(|()| Exit::Ok)
    }

    /// Tells the user what to do after an interruption.
    fn how_to_go_on(&self, is_again: bool) -> &'static str {
        match (self.sort, is_again) {
            (true, _) => "begin again: what was sorted is gone",
            (_, true) => "run the same command again to go on there; --restart begins anew",
            _ => "what a pipe brought is gone: begin again, from a file to go on",
        }
    }

    /// The failure if the source has changed. Resuming would mix two sources, and beginning again
    /// would keep the records of the first one.
    fn changed(&self, left: &Progress) -> Failure {
        let stored = plural(left.records, "record");
        let what = format!(
            "the source has changed since an import of it was cut short, which stored {stored}"
        );
        let hint = "--restart imports it as it is now over those; or import it into a new store";
        Failure::new(Exit::Different, what).at(self.source.display()).hint(hint)
    }

    /// A directory, file or pipe.
    fn file(&self) -> Result<Chosen> {
        if self.family.is_some() {
            return Err(Failure::usage("--family is for rocksdb:", "leave it out"));
        }
        let is_again = (input::is_file(&self.source) || self.source.is_dir()) && !self.sort;
        if !input::is_stdin(&self.source) && self.source.symlink_metadata().is_err() {
            let error = std::io::ErrorKind::NotFound.into();
            return Err(Failure::file(&self.source, "open the source", &error));
        }
        let format = format_of(self.format, &self.source)?;
        if self.format.is_none() {
            foreign::refuse_directory(&self.source)?;
        }
        let (key, value, drop_expiry) = (self.key.clone(), self.value.clone(), self.drop_expiry);
        let fields = Fields { key, value, drop_expiry };
        if fields.key.is_some() && !matches!(format, Format::Jsonl | Format::Csv) {
            let what = "--key and --value are for jsonl and csv";
            return Err(Failure::usage(what, "leave them out"));
        }
        let source = source::open(&self.source, format, &fields, &opening::places(&self.store))?;
        let name = self.keyspace.name();
        let how = json!([name, format!("{format:?}"), self.key, self.value, self.drop_expiry]);
        let how = how.to_string();
        Ok(Chosen { source, again: is_again.then(|| self.source.clone()), how })
    }

    /// A database of LevelDB or RocksDB.
    fn database(&self, dialect: Dialect, path: &Path) -> Result<Chosen> {
        let others = [
            ("--format", self.format.is_some()),
            ("--key", self.key.is_some()),
            ("--sort", self.sort),
            ("--drop-expiry", self.drop_expiry),
            ("--family", self.family.is_some() && dialect == Dialect::LevelDb),
        ];
        if let Some((name, _)) = others.iter().find(|(_, is_given)| *is_given) {
            let what = format!("{name} is not for {}:", dialect.scheme());
            return Err(Failure::usage(what, "leave it out"));
        }
        let (family, keyspace) = (self.family.as_deref(), self.keyspace.keyspace.as_deref());
        let source = foreign::open(dialect, path, &Choice { family, keyspace })?;
        let how = json!([keyspace, dialect.scheme(), family]).to_string();
        Ok(Chosen { source, again: Some(path.to_path_buf()), how })
    }
}

struct Import<'a> {
    resumed: Progress,
    progress: Progress,
    /// The part of the source that is in the store.
    committed: Progress,
    target: &'a mut dyn Target,
    /// When the import began, in milliseconds since 1970.
    now_ms: u64,
    /// Records written by bulk loads.
    loaded: u64,
    batch_records: u64,
    /// Whether the first malformed record ends the import.
    strict: bool,
    bar: ProgressBar,
    told: Vec<Malformed>,
    is_json: bool,
    /// Parts of the source that go to keyspaces of their own.
    parts: &'a [Part],
    /// The options of those keyspaces.
    wish: &'a Wish,
    /// Whether records whose keys ascend are loaded.
    loads: bool,
    /// Tells the user what to do after an interruption.
    how_to_go_on: &'static str,
}

impl Import<'_> {
    /// Writes every record, beginning with the part in which the source now is.
    fn all(&mut self, source: &mut Ahead<'_>) -> Result<()> {
        for at in self.progress.position.part.. {
            if let Some(part) = self.parts.get(at) {
                // A device has only the keyspace for which it was opened.
                if self.parts.len() > 1 {
                    self.target.turn_to(&part.keyspace, self.wish)?;
                }
            }
            if self.loads {
                self.load(source)?;
            }
            self.copy(source)?;
            if at + 1 >= self.parts.len() {
                break;
            }
            source.turn_to(at + 1);
            self.progress.position = source.position();
            self.commit()?;
        }
        self.target.commit(None)?;
        self.committed = self.progress.clone();
        self.check_stored()
    }

    /// Loads records as long as their keys ascend, if the first ones do. The rest is written in
    /// batches.
    fn load(&mut self, source: &mut Ahead<'_>) -> Result<()> {
        while self.target.can_load() && source.ascends(SORTED_RECORDS, SORTED_BYTES)? {
            let mut piece = Piece {
                source,
                progress: self.progress.clone(),
                malformed: Vec::new(),
                strict: self.strict,
                last: None,
                bytes: 0,
                counter: self.target.counter(),
                bar: &self.bar,
            };
            self.target.load(&mut piece)?;
            let Piece { progress, malformed, bytes, .. } = piece;
            self.loaded += progress.records - self.progress.records;
            self.progress = progress;
            malformed.into_iter().for_each(|malformed| self.tell(malformed));
            self.commit()?;
            if bytes < PIECE_BYTES {
                break;
            }
        }
        Ok(())
    }

    fn copy(&mut self, source: &mut dyn Source) -> Result<()> {
        loop {
            self.check_interrupted()?;
            let before = source.position();
            match source.next()? {
                Some(Ok(record)) => {
                    let has_expired = record.expires_ms.is_some_and(|at| at <= self.now_ms);
                    if let Err(error) = self.target.put(record) {
                        let (file, line) = source.place();
                        let what = error.to_string();
                        self.malformed(Malformed { file, line, what }, &before)?;
                    } else {
                        self.progress.records += 1;
                        self.progress.expired += u64::from(has_expired);
                    }
                }
                Some(Err(malformed)) => self.malformed(malformed, &before)?,
                None => break,
            }
            self.progress.position = source.position();
            if self.target.is_full(self.batch_records) {
                self.commit()?;
            }
        }
        Ok(())
    }

    fn check_interrupted(&mut self) -> Result<()> {
        let Err(interrupted) = interrupt::check() else { return Ok(()) };
        self.commit()?;
        let records = plural(self.committed.records, "record");
        let what = format!("interrupted: {records} of the source are in the store");
        Err(Failure { what, ..interrupted.hint(self.how_to_go_on) })
    }

    /// Adds to a disk failure a hint on how to resume the import once the disk works again.
    fn going_on(&self, failure: Failure) -> Failure {
        if failure.exit != Exit::Io || self.committed.records == 0 {
            return failure;
        }
        let hint = failure.hint.clone().unwrap_or_default();
        failure.hint(format!("{hint}; {}", self.how_to_go_on))
    }

    /// Fails if the import stored nothing: it was given the wrong source, or the wrong options for
    /// it.
    fn check_stored(&self) -> Result<()> {
        if self.committed.records > 0 {
            return Ok(());
        }
        let (what, hint) = match (self.progress.malformed, self.told.first()) {
            (0, _) | (_, None) => (
                "the source holds no records, and nothing was stored".to_string(),
                match self.parts {
                    [] => "is it the right source, and the right --format?".to_string(),
                    _ => "is it the right directory, with all of its files?".to_string(),
                },
            ),
            (count, Some(first)) => (
                format!("{} and no others: nothing was stored", plural(count, "malformed record")),
                format!("see what is wrong with the first, and --format, --key, --value: {first}"),
            ),
        };
        Err(Failure::new(Exit::Different, what).hint(hint))
    }

    fn commit(&mut self) -> Result<()> {
        self.target.commit(Some(&self.progress))?;
        self.committed = self.progress.clone();
        self.bar.set_position(self.progress.position.offset_bytes);
        Ok(())
    }

    /// Counts a malformed record and names it. A strict import stops there and keeps the records
    /// before it.
    fn malformed(&mut self, malformed: Malformed, before: &source::Position) -> Result<()> {
        if self.strict {
            self.progress.position = before.clone();
            self.commit()?;
            let place = malformed.to_string();
            let (place, _) = place.split_at(place.len() - malformed.what.len() - 2);
            let hint = "correct it and import again, or leave out --strict";
            return Err(Failure::new(Exit::Different, &malformed.what).at(place).hint(hint));
        }
        self.progress.malformed += 1;
        self.tell(malformed);
        Ok(())
    }

    fn tell(&mut self, malformed: Malformed) {
        if (self.told.len() as u64) < MOST_TOLD {
            if !self.is_json {
                self.bar.suspend(|| note(&malformed));
            }
            self.told.push(malformed);
        }
    }

    fn finish(
        &self,
        source: &dyn Source,
        took: Duration,
        outcome: &Result<()>,
    ) -> serde_json::Value {
        let skipped = source.skipped();
        if !self.is_json {
            skipped.unreadable_files.iter().for_each(|file| note(format!("cannot read {file}")));
        }
        self.bar.finish_and_clear();
        let told: Vec<_> = self
            .told
            .iter()
            .map(|told| json!({ "file": told.file, "line": told.line, "what": told.what }))
            .collect();
        json!({
            "records": self.committed.records,
            "loaded_records": self.loaded,
            "resumed_records": self.resumed.records,
            "resumed_line": self.resumed.position.line,
            "expired": self.committed.expired,
            "malformed": self.progress.malformed,
            "malformed_records": told,
            "escaped": source.escaped(),
            "skipped": skipped,
            "families": self.parts,
            "complete": outcome.is_ok(),
            "source_bytes": self.committed.position.offset_bytes,
            "seconds": rounded(took.as_secs_f64()),
        })
    }
}

/// The records of one load. The load ends at a key that does not ascend, at a record that expires
/// or that no store accepts, at a malformed record of a strict import, when the load is large, or
/// when the user interrupts it. The record that ended the load is still to be read.
struct Piece<'a, 's> {
    source: &'a mut Ahead<'s>,
    /// The position of the record that was returned last.
    progress: Progress,
    /// The first few malformed records that the load has skipped.
    malformed: Vec<Malformed>,
    strict: bool,
    last: Option<Vec<u8>>,
    bytes: u64,
    /// The type of the values, if they are counters.
    counter: Option<Counter>,
    bar: &'a ProgressBar,
}

impl Piece<'_, '_> {
    fn follows(&self, record: &Record) -> bool {
        let limits = Limits::FILES;
        record.expires_ms.is_none()
            && self.last.as_ref().is_none_or(|last| record.key > *last)
            && record.key.len() as u64 <= limits.key_bytes
            && record.value.len() as u64 <= limits.value_bytes
            && self.counter.is_none_or(|counter| counter.check(&record.value).is_ok())
    }

    fn try_next(&mut self) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        while self.bytes < PIECE_BYTES && interrupt::check().is_ok() {
            let before = self.source.position();
            match self.source.next()? {
                None => break,
                Some(Ok(record)) if self.follows(&record) => {
                    self.progress.records += 1;
                    self.progress.position = self.source.position();
                    if self.progress.records.is_multiple_of(BAR_RECORDS) {
                        self.bar.set_position(self.progress.position.offset_bytes);
                    }
                    self.bytes += (record.key.len() + record.value.len()) as u64;
                    let last = self.last.get_or_insert_default();
                    last.clone_from(&record.key);
                    return Ok(Some((record.key, record.value)));
                }
                Some(Err(malformed)) if !self.strict => {
                    self.progress.malformed += 1;
                    self.progress.position = self.source.position();
                    if (self.malformed.len() as u64) < MOST_TOLD {
                        self.malformed.push(malformed);
                    }
                }
                Some(other) => {
                    self.source.put_back(other, before);
                    break;
                }
            }
        }
        Ok(None)
    }
}

impl Iterator for Piece<'_, '_> {
    type Item = Result<(Vec<u8>, Vec<u8>)>;

    fn next(&mut self) -> Option<Self::Item> {
        self.try_next().transpose()
    }
}

fn text_of(report: &serde_json::Value, took: Duration, keyspace: &str, parts: &[Part]) -> String {
    let number = |name: &str| report[name].as_u64().unwrap_or(0);
    let mut text = format!(
        "{}, {} of source, {}",
        plural(number("records"), "record"),
        amount(number("source_bytes")),
        duration(took)
    );
    if parts.len() > 1 {
        text.push_str(&format!(", into {} keyspaces", parts.len()));
    } else if keyspace != DEFAULT_KEYSPACE {
        text.push_str(&format!(", into keyspace {keyspace}"));
    }
    if number("resumed_records") > 0 {
        let from = number("resumed_records");
        text.push_str(&format!("; {from} of them were there from an import that was cut short"));
    }
    if number("expired") > 0 {
        let expired = plural(number("expired"), "record");
        text.push_str(&format!("; {expired} had expired, and such keys have no value"));
    }
    if number("malformed") > 0 {
        text.push_str(&format!("; {} left out", plural(number("malformed"), "malformed record")));
    }
    if number("escaped") > 0 {
        let escaped = plural(number("escaped"), "record");
        text.push_str(&format!("; escapes of {escaped} were undone (`runstone help encoding`)"));
    }
    let skipped = &report["skipped"];
    let (special, unreadable) = (&skipped["special"], &skipped["unreadable"]);
    if special.as_u64().unwrap_or(0) + unreadable.as_u64().unwrap_or(0) > 0 {
        text.push_str(&format!("; skipped {special} special and {unreadable} unreadable files"));
    }
    text
}
