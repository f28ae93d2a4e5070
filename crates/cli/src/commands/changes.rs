//! `changes`: the committed changes of a store, in order.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use runstone::{
    Batch, Change, Changed, Changes, ChangesFrom, Kind, Load, NotedKeyspace, OnGap, Operation,
    Position,
};
use serde_json::{Value, json};

use crate::arguments::Encoding;
use crate::failure::{Exit, Failure, Result};
use crate::interrupt::{self, SIGINT, SIGTERM};
use crate::opening::Location;
use crate::output::Output;

/// How long the command waits before it checks whether it was interrupted.
const WAIT: Duration = Duration::from_millis(200);

/// Print the changes of a store in order, even while an application writes to it
///
/// A line for each write, once the write is durable. It begins with a position. `--from` takes the
/// position of the last line that you have processed, and loses no write: each line of a batch or
/// of a load has the position before it, and only its last line has the position after it. So a
/// batch that you have processed in part is printed again as a whole. Ctrl-C ends the command.
///
/// The log of a store begins at its last flush. So a consumer without data begins with
/// --everything. `keep_log_bytes`, an option of the application's open, lets the log reach further
/// back.
#[derive(clap::Args)]
pub struct Args {
    /// The store.
    store: PathBuf,
    /// Begin after this position; without it, with the oldest change that the log has.
    #[arg(long, value_name = "POSITION", conflicts_with_all = ["now", "everything"])]
    from: Option<String>,
    /// Begin with the present values of all keys, and continue with the changes after them. Their
    /// lines have the position 0@0000000000000000, from which everything is printed again.
    #[arg(long, conflicts_with = "now")]
    everything: bool,
    /// If the log does not reach back to that position, print the present values of the keys
    /// written since, and continue from there. Deletes that compactions have dropped are missing.
    #[arg(long, requires = "from")]
    state: bool,
    /// Begin with the first change after now.
    #[arg(long)]
    now: bool,
    /// Wait for further changes.
    #[arg(long)]
    follow: bool,
    #[command(flatten)]
    encoding: Encoding,
}

impl Args {
    pub fn run(self, output: &Output) -> Result<Exit> {
        if !Location::of(&self.store)?.is_directory() {
            let what = "changes are read from stores in directories";
            let hint = "`runstone export` reads the entries of any store";
            return Err(Failure::usage(what, hint).at(self.store.display()));
        }
        interrupt::watch(&[SIGINT, SIGTERM]);
        let from = match &self.from {
            Some(position) => ChangesFrom::After(position.parse()?),
            None if self.everything => ChangesFrom::Everything,
            None if self.now => ChangesFrom::Now,
            None => ChangesFrom::Oldest,
        };
        let mut changes = match self.state {
            true => Changes::resume(&self.store, from, OnGap::State(Box::default()))?,
            false => Changes::open(&self.store, from)?,
        };
        let (names, position) = (BTreeMap::new(), changes.position());
        let mut printer = Printer { names, position, encoding: self.encoding, output };
        changes.keyspaces().iter().for_each(|one| printer.know(one));
        loop {
            match changes.next()? {
                Some(changed) => printer.print(&changed)?,
                None if !self.follow => return Ok(Exit::Ok),
                None => {
                    // The wait may be long, so the reader of a pipe gets everything first.
                    output.flush()?;
                    if let Some(changed) = changes.wait(WAIT)? {
                        printer.print(&changed)?;
                    }
                }
            }
            interrupt::check()?;
        }
    }
}

struct Printer<'a> {
    /// Names of keyspaces by their ids.
    names: BTreeMap<u32, String>,
    /// The position after everything that was printed.
    position: Position,
    encoding: Encoding,
    output: &'a Output,
}

/// A line without its position.
enum Line {
    Text(String),
    Json(Value),
}

/// Prints the writes of a change. All lines but the last have the position before the change: a
/// reader that continues after one of these lines gets the whole change again, and loses none of
/// its writes.
struct Writes<'a> {
    printer: &'a Printer<'a>,
    before: Position,
    /// The line to which the next write adds another one.
    last: Option<Line>,
}

impl Writes<'_> {
    fn add(&mut self, batch: &Batch, is_state: bool) -> Result<()> {
        batch.operations().try_for_each(|one| {
            match self.last.replace(self.printer.write(&one, is_state)) {
                Some(line) => self.printer.line(self.before, line),
                None => Ok(()),
            }
        })
    }

    fn end(self, after: Position) -> Result<()> {
        self.last.map_or(Ok(()), |line| self.printer.line(after, line))
    }
}

impl Printer<'_> {
    fn know(&mut self, keyspace: &NotedKeyspace) {
        self.names.insert(keyspace.id, keyspace.name.clone());
    }

    fn name(&self, id: u32) -> String {
        self.names.get(&id).cloned().unwrap_or_else(|| format!("#{id}"))
    }

    fn print(&mut self, changed: &Changed) -> Result<()> {
        let after = changed.position;
        let before = std::mem::replace(&mut self.position, after);
        let (kind, what) = match &changed.change {
            Change::Writes(batch) => return self.batch((before, after), batch, false),
            Change::State(batch) => return self.batch((before, after), batch, true),
            Change::Loaded(load) => return self.load((before, after), load),
            Change::Gap(gap) => ("gap", format!("{} to {}", gap.after, gap.through)),
            Change::GapEnd => ("gap-end", String::new()),
            Change::Keyspace(keyspace) => {
                self.know(keyspace);
                ("keyspace", keyspace.name.clone())
            }
            Change::Dropped(id) => ("dropped", self.name(*id)),
            Change::Keyspaces(all) => {
                all.iter().for_each(|one| self.know(one));
                let names: Vec<&str> = all.iter().map(|one| one.name.as_str()).collect();
                ("keyspaces", names.join(","))
            }
            Change::Time(ms) => ("time", ms.to_string()),
            // A kind that a later release may add to the log.
            _ => return Ok(()),
        };
        let line = match self.output.is_json {
            true => Line::Json(json!({ "kind": kind, "what": what })),
            false => Line::Text(format!("{kind}\t{what}")),
        };
        self.line(after, line)
    }

    fn batch(&self, of: (Position, Position), batch: &Batch, is_state: bool) -> Result<()> {
        let mut writes = Writes { printer: self, before: of.0, last: None };
        writes.add(batch, is_state)?;
        writes.end(of.1)
    }

    fn load(&self, of: (Position, Position), load: &Load) -> Result<()> {
        let mut writes = Writes { printer: self, before: of.0, last: None };
        let mut outcome = Ok(());
        load.read(|batch| {
            if outcome.is_ok() {
                outcome = writes.add(batch, false);
            }
            Ok(())
        })?;
        outcome.and_then(|()| writes.end(of.1))
    }

    fn line(&self, position: Position, line: Line) -> Result<()> {
        match line {
            Line::Text(text) => self.output.line(format!("{position}\t{text}")),
            Line::Json(mut object) => {
                object["position"] = position.to_string().into();
                self.output.json(&object)
            }
        }
    }

    fn write(&self, one: &Operation<'_>, is_state: bool) -> Line {
        let kind = match one.kind {
            Kind::Delete => "delete",
            Kind::Merge => "merge",
            Kind::RangeDelete => "delete-range",
            _ => "put",
        };
        let value = (one.kind != Kind::Delete).then(|| one.plain_value());
        let keyspace = self.name(one.keyspace);
        if !self.output.is_json {
            let value = value.map_or_else(String::new, |value| self.encoding.show(value));
            let key = self.encoding.show(one.key);
            let mark = if is_state { "state-" } else { "" };
            return Line::Text(format!("{mark}{kind}\t{keyspace}\t{key}\t{value}"));
        }
        let mut object = json!({ "kind": kind, "keyspace": keyspace });
        if is_state {
            object["state"] = json!(true);
        }
        if one.is_folded {
            object["folded"] = json!(true);
        }
        if let (Value::Object(own), Value::Object(entry)) =
            (&mut object, self.encoding.object(one.key, value, one.expires_ms()))
        {
            own.extend(entry);
        }
        Line::Json(object)
    }
}
