//! `changes`: the committed changes of a store, in order.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use runstone::{
    Batch, Change, Changed, Changes, ChangesFrom, Kind, NotedKeyspace, OnGap, Operation,
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
/// A line for each write. It begins with a position: `--from` takes a position, and continues after
/// it. A position is printed once its write is durable. Ctrl-C ends the command.
///
/// The log of a store begins at its last flush. `keep_log_bytes`, an option of the application's
/// open, lets it reach further back.
#[derive(clap::Args)]
pub struct Args {
    /// The store.
    store: PathBuf,
    /// Begin after this position; without it, with the oldest change that the log has.
    #[arg(long, value_name = "POSITION", conflicts_with = "now")]
    from: Option<String>,
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
            None if self.now => ChangesFrom::Now,
            None => ChangesFrom::Oldest,
        };
        let mut changes = match from {
            ChangesFrom::After(position) if self.state => {
                let on_gap = OnGap::State(Box::default());
                Changes::resume(&self.store, position, on_gap)?
            }
            from => Changes::open(&self.store, from)?,
        };
        let mut printer = Printer { names: BTreeMap::new(), encoding: self.encoding, output };
        changes.keyspaces().iter().for_each(|one| printer.know(one));
        loop {
            match changes.next()? {
                Some(changed) => printer.print(&changed)?,
                None if !self.follow => return Ok(Exit::Ok),
                None => {
                    // Nobody knows how long the wait is, so a reader of the pipe has everything.
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
    encoding: Encoding,
    output: &'a Output,
}

impl Printer<'_> {
    fn know(&mut self, keyspace: &NotedKeyspace) {
        self.names.insert(keyspace.id, keyspace.name.clone());
    }

    fn name(&self, id: u32) -> String {
        self.names.get(&id).cloned().unwrap_or_else(|| format!("#{id}"))
    }

    fn print(&mut self, changed: &Changed) -> Result<()> {
        let position = changed.position.to_string();
        match &changed.change {
            Change::Writes(batch) => self.writes(&position, batch, false),
            Change::State(batch) => self.writes(&position, batch, true),
            Change::Gap(gap) => {
                self.event(&position, "gap", &format!("{} to {}", gap.after, gap.through))
            }
            Change::GapEnd => self.event(&position, "gap-end", ""),
            Change::Loaded(load) => {
                let mut outcome = Ok(());
                load.read(|batch| {
                    if outcome.is_ok() {
                        outcome = self.writes(&position, batch, false);
                    }
                    Ok(())
                })?;
                outcome
            }
            Change::Keyspace(keyspace) => {
                self.know(keyspace);
                self.event(&position, "keyspace", &keyspace.name)
            }
            Change::Dropped(id) => self.event(&position, "dropped", &self.name(*id)),
            Change::Keyspaces(all) => {
                all.iter().for_each(|one| self.know(one));
                let names: Vec<&str> = all.iter().map(|one| one.name.as_str()).collect();
                self.event(&position, "keyspaces", &names.join(","))
            }
            Change::Time(ms) => self.event(&position, "time", &ms.to_string()),
            // A kind that a later release adds.
            _ => Ok(()),
        }
    }

    fn event(&self, position: &str, kind: &str, what: &str) -> Result<()> {
        match self.output.is_json {
            true => {
                let object = json!({ "position": position, "kind": kind, "what": what });
                self.output.line(object.to_string())
            }
            false => self.output.line(format!("{position}\t{kind}\t{what}")),
        }
    }

    fn writes(&self, position: &str, batch: &Batch, is_state: bool) -> Result<()> {
        batch.operations().try_for_each(|one| self.write(position, &one, is_state))
    }

    fn write(&self, position: &str, one: &Operation<'_>, is_state: bool) -> Result<()> {
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
            let line = format!("{position}\t{mark}{kind}\t{keyspace}\t{key}\t{value}");
            return self.output.line(line);
        }
        let mut object = json!({ "position": position, "kind": kind, "keyspace": keyspace });
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
        self.output.line(object.to_string())
    }
}
