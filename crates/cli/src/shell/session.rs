//! An open store and the commands of the shell on it.

use std::collections::BTreeMap;
use std::ffi::OsString;

use clap::{CommandFactory, Parser};
use runstone::{Keyspace, Snapshot, Store};

use super::words;
use crate::arguments::{Encoding, RangeArguments};
use crate::failure::{Failure, Result};
use crate::files::stats;
use crate::opening;
use crate::output::{Output, duration, terminal_columns};
use crate::picture::{Picture, terminal};
use crate::range::Range;

/// What can be typed.
#[derive(Parser)]
#[command(
    multicall = true,
    disable_help_subcommand = true,
    disable_help_flag = true,
    override_usage = "COMMAND [ARGUMENTS]"
)]
pub enum Line {
    /// Store a value
    Put {
        #[arg(allow_negative_numbers = true)]
        key: OsString,
        #[arg(allow_negative_numbers = true)]
        value: OsString,
    },
    /// Print a value
    Get {
        #[arg(allow_negative_numbers = true)]
        key: OsString,
    },
    /// Remove a key
    Delete {
        #[arg(allow_negative_numbers = true)]
        key: OsString,
    },
    /// Print keys and values in order
    Scan {
        #[command(flatten)]
        range: RangeArguments,
        /// Leave out the values.
        #[arg(long)]
        keys_only: bool,
    },
    /// Count keys
    Count {
        #[command(flatten)]
        range: RangeArguments,
    },
    /// Draw the tree
    Shape,
    /// Print sizes and counters
    Stats,
    /// Write memtables to tables
    Flush,
    /// Compact everything into a single run
    Compact,
    /// List keyspaces, or change to one, making it if it is new
    Keyspace { name: Option<String> },
    /// Take a snapshot under a name
    Snapshot { name: String },
    /// Read at a snapshot from now on; without a name, read what is there now
    At { name: Option<String> },
    /// List the snapshots
    Snapshots,
    /// Forget a snapshot
    Release { name: String },
    /// Write the bytes of the log to the disk
    Sync,
    /// List the commands
    Help,
    /// Leave
    #[command(alias = "quit")]
    Exit,
}

/// A shell at work.
pub struct Session<'a> {
    pub store: Store,
    pub keyspace: Keyspace,
    pub encoding: Encoding,
    pub output: &'a Output,
    snapshots: BTreeMap<String, Snapshot>,
    at: Option<String>,
}

/// Names of the commands, for completion.
pub fn command_names() -> Vec<String> {
    Line::command().get_subcommands().map(|command| command.get_name().to_string()).collect()
}

impl<'a> Session<'a> {
    pub fn new(
        store: Store,
        keyspace: Keyspace,
        encoding: Encoding,
        output: &'a Output,
    ) -> Session<'a> {
        Session { store, keyspace, encoding, output, snapshots: BTreeMap::new(), at: None }
    }

    /// Names of the snapshots, for completion.
    pub fn snapshot_names(&self) -> Vec<String> {
        self.snapshots.keys().cloned().collect()
    }

    /// What stands before the line.
    pub fn prompt(&self) -> String {
        let at = self.at.as_ref().map_or(String::new(), |at| format!("@{at}"));
        format!("{}{at}> ", self.keyspace.name())
    }

    /// Runs a line; `false` ends the shell. An empty line and a `#` line do nothing.
    pub fn run(&mut self, line: &str) -> Result<bool> {
        if line.trim().is_empty() || line.trim_start().starts_with('#') {
            return Ok(true);
        }
        let words = words::split(line)
            .map_err(|what| Failure::usage(what, "write \\' or \\\" for a quote itself"))?;
        let line = Line::try_parse_from(words)
            .map_err(|error| Failure::command_line(&error, "type help"))?;
        let goes_on = !matches!(line, Line::Exit);
        self.execute(line)?;
        self.output.flush()?;
        Ok(goes_on)
    }

    fn execute(&mut self, line: Line) -> Result<()> {
        match line {
            Line::Put { key, value } => {
                Ok(self.keyspace.put(self.encoding.read(&key)?, self.encoding.read(&value)?)?)
            }
            Line::Delete { key } => Ok(self.keyspace.delete(self.encoding.read(&key)?)?),
            Line::Get { key } => self.get(&key),
            Line::Scan { range, keys_only } => {
                let range = self.range(&range)?;
                range
                    .walk(&self.keyspace, &mut |key, value| match keys_only {
                        true => self.output.line(self.encoding.show(key)),
                        false => {
                            let (key, value) = (self.encoding.show(key), self.encoding.show(value));
                            self.output.line(format!("{key}\t{value}"))
                        }
                    })
                    .map(drop)
            }
            Line::Count { range } => {
                let count = self.range(&range)?.walk(&self.keyspace, &mut |_, _| Ok(()))?;
                self.output.line(count)
            }
            Line::Shape => {
                let picture = Picture::of(&self.keyspace)?;
                self.output.bytes(terminal::draw(&picture, terminal_columns()).as_bytes())
            }
            Line::Stats => self.output.bytes(stats::to_text(&self.store)?.as_bytes()),
            Line::Flush => self.timed(Store::flush),
            Line::Compact => self.timed(Store::compact),
            Line::Sync => self.timed(Store::sync),
            Line::Keyspace { name } => self.change_keyspace(name),
            Line::Snapshot { .. } | Line::At { .. } | Line::Snapshots | Line::Release { .. } => {
                self.snapshot(line)
            }
            Line::Help => self.output.line(Line::command().render_help()),
            Line::Exit => Ok(()),
        }
    }

    fn get(&self, key: &OsString) -> Result<()> {
        let key = self.encoding.read(key)?;
        let found = match self.at.as_ref().and_then(|at| self.snapshots.get(at)) {
            Some(snapshot) => self.keyspace.get_at(&key, snapshot)?,
            None => self.keyspace.get(&key)?,
        };
        match found {
            Some(value) => self.output.line(self.encoding.show(&value)),
            None => self.output.line(format!("key {} is absent", self.encoding.show(&key))),
        }
    }

    fn range(&self, arguments: &RangeArguments) -> Result<Range> {
        let mut range = Range::read(arguments, self.encoding)?;
        range.snapshot = self.at.as_ref().and_then(|at| self.snapshots.get(at)).cloned();
        Ok(range)
    }

    fn timed(&self, action: impl Fn(&Store) -> runstone::Result<()>) -> Result<()> {
        let started = std::time::Instant::now();
        action(&self.store)?;
        self.output.line(duration(started.elapsed()))
    }

    fn change_keyspace(&mut self, name: Option<String>) -> Result<()> {
        let Some(name) = name else {
            return self.output.line(self.store.keyspaces().join("\n"));
        };
        opening::refuse_reserved(&name)?;
        self.keyspace = match self.store.keyspaces().contains(&name) {
            true => opening::keyspace(&self.store, &name)?,
            false => self.store.open_keyspace(&name, None)?,
        };
        Ok(())
    }

    fn snapshot(&mut self, line: Line) -> Result<()> {
        let unknown = |name: &str| {
            Failure::usage(format!("there is no snapshot {name:?}"), "`snapshots` lists them")
        };
        match line {
            Line::Snapshot { name } => {
                self.snapshots.insert(name, self.store.snapshot());
            }
            Line::At { name: None } => self.at = None,
            Line::At { name: Some(name) } => {
                self.snapshots.get(&name).ok_or_else(|| unknown(&name))?;
                self.at = Some(name);
            }
            Line::Release { name } => {
                self.snapshots.remove(&name).ok_or_else(|| unknown(&name))?;
                self.at = self.at.take().filter(|at| *at != name);
            }
            _ => {
                for name in self.snapshots.keys() {
                    self.output.line(name)?;
                }
            }
        }
        Ok(())
    }

    /// Forgets snapshots and closes the store.
    pub fn close(self) -> Result<()> {
        let Session { store, keyspace, snapshots, .. } = self;
        drop((keyspace, snapshots));
        Ok(store.close()?)
    }
}
