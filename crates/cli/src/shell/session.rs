//! An open store and the commands of the shell on it.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};
use runstone::{Keyspace, Snapshot, Store};

use super::words;
use crate::arguments::{Encoding, KeyspaceArgument, Part};
use crate::dropping::Dropping;
use crate::entries::count::Count;
use crate::entries::delete::Delete;
use crate::entries::get::Get;
use crate::entries::merge::Merge;
use crate::entries::put::Put;
use crate::entries::scan::Scan;
use crate::entries::ttl::Ttl;
use crate::failure::{Failure, Result};
use crate::files::{KeyspaceEntries, compact, stats};
use crate::keyspaces;
use crate::layout::terminal_columns;
use crate::other_names::without_vain_advice;
use crate::output::{Output, duration};
use crate::picture::{Picture, terminal};
use crate::range::Range;

/// The commands that can be typed.
#[derive(Parser)]
#[command(multicall = true, disable_help_subcommand = true, override_usage = "COMMAND [ARGUMENTS]")]
pub enum Line {
    /// Store a value
    Put(Put),
    /// Print a value
    Get(Get),
    /// Change a value with an operand
    Merge(Merge),
    /// Print the seconds until a key expires, or `never`
    Ttl(Ttl),
    /// Remove keys atomically, or a range of keys
    Delete(Delete),
    /// Print keys and values in order
    Scan(Scan),
    /// Count keys
    Count(Count),
    /// Draw the tree
    Shape(KeyspaceArgument),
    /// Print sizes and counters
    Stats(Part),
    /// Write memtables to tables
    Flush,
    /// Compact everything, or one keyspace, into a single run
    Compact(Part),
    /// List keyspaces, or change to one
    Keyspace {
        name: Option<String>,
        /// Make it if it does not exist.
        #[arg(long, requires = "name")]
        make: bool,
    },
    /// Remove a keyspace with all that is in it
    Drop(Dropping),
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
    /// List the commands, or explain one
    Help { command: Option<String> },
    /// Leave
    #[command(alias = "quit")]
    Exit,
}

/// An open store, and the state of the shell on it.
pub struct Session<'a> {
    pub store: Store,
    pub keyspace: Keyspace,
    pub encoding: Encoding,
    pub output: &'a Output,
    snapshots: BTreeMap<String, Snapshot>,
    at: Option<String>,
    /// The directory, if another process has the store open.
    beside: Option<PathBuf>,
}

/// Names of the commands, for completion.
pub fn command_names() -> Vec<String> {
    Line::command().get_subcommands().map(|command| command.get_name().to_string()).collect()
}

/// The options of a command as they are typed, for completion.
pub fn option_names(command: &str) -> Vec<String> {
    let mut line = Line::command();
    // This adds the options of clap itself, such as --help.
    line.build();
    let Some(command) = line.find_subcommand(command) else { return Vec::new() };
    command.get_arguments().filter_map(|one| Some(format!("--{}", one.get_long()?))).collect()
}

impl<'a> Session<'a> {
    pub fn new(
        store: Store,
        keyspace: Keyspace,
        encoding: Encoding,
        output: &'a Output,
    ) -> Session<'a> {
        let (snapshots, at, beside) = (BTreeMap::new(), None, None);
        Session { store, keyspace, encoding, output, snapshots, at, beside }
    }

    /// Sets the directory of the store, if another process has it open.
    pub fn beside(self, beside: Option<PathBuf>) -> Session<'a> {
        Session { beside, ..self }
    }

    /// Names of the snapshots, for completion.
    pub fn snapshot_names(&self) -> Vec<String> {
        self.snapshots.keys().cloned().collect()
    }

    /// The prompt.
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
        let line = match Line::try_parse_from(words) {
            Ok(line) => line,
            Err(error) if error.kind() == ErrorKind::DisplayHelp => {
                self.output.bytes(error.to_string().as_bytes())?;
                self.output.flush()?;
                return Ok(true);
            }
            Err(error) => {
                let error = without_vain_advice(error);
                return Err(Failure::command_line(&error, "type help"));
            }
        };
        let goes_on = !matches!(line, Line::Exit);
        self.execute(line)?;
        self.output.flush()?;
        Ok(goes_on)
    }

    fn execute(&mut self, line: Line) -> Result<()> {
        match line {
            Line::Put(mut put) => {
                put.encoding.hex |= self.encoding.hex;
                let entry = put.entry(false)?;
                self.with(&put.keyspace, |entries| put.write(entries, &entry))
            }
            Line::Get(mut get) => {
                get.encoding.hex |= self.encoding.hex;
                self.with(&get.keyspace, |entries| get.run(entries, self.output, true).map(drop))
            }
            Line::Ttl(mut ttl) => {
                ttl.encoding.hex |= self.encoding.hex;
                self.with(&ttl.keyspace, |entries| ttl.run(entries, self.output).map(drop))
            }
            Line::Merge(mut merge) => {
                merge.encoding.hex |= self.encoding.hex;
                self.with(&merge.keyspace, |entries| merge.run(entries))
            }
            Line::Delete(mut delete) => {
                let part = self.part(&mut delete.selection.part);
                self.with(&part, |entries| delete.run(entries).map(|deleted| deleted.tell()))
            }
            Line::Scan(mut scan) => {
                let part = self.part(&mut scan.selection.part);
                self.with(&part, |entries| scan.run(entries, self.output))
            }
            Line::Count(mut count) => {
                let part = self.part(&mut count.selection.part);
                self.with(&part, |entries| count.run(entries, self.output))
            }
            Line::Shape(keyspace) => {
                let picture = Picture::of(&self.named(&keyspace)?)?;
                self.output.bytes(terminal::draw(&picture, terminal_columns()).as_bytes())
            }
            Line::Stats(mut part) => {
                let keyspace = self.part(&mut part).keyspace;
                let range = Range::within(&part)?;
                let figures = stats::figures(
                    &self.store,
                    self.beside.as_deref(),
                    keyspace.as_deref(),
                    &range,
                )?;
                self.output.text(&figures.text)
            }
            Line::Compact(mut part) => {
                let keyspace = self.part(&mut part).keyspace;
                let range = Range::within(&part)?;
                self.timed(|store| compact(store, keyspace.as_deref(), &range))
            }
            Line::Drop(dropping) => self.drop_keyspace(&dropping),
            Line::Flush => self.timed(|store| Ok(store.flush()?)),
            Line::Sync => self.timed(|store| Ok(store.sync()?)),
            Line::Keyspace { name, make } => self.change_keyspace(name, make),
            Line::Snapshot { .. } | Line::At { .. } | Line::Snapshots | Line::Release { .. } => {
                self.snapshot(line)
            }
            Line::Help { command } => self.help(command.as_deref()),
            Line::Exit => Ok(()),
        }
    }

    /// Applies the shell's own encoding to the part. Returns the keyspace that the part names.
    fn part(&self, part: &mut Part) -> KeyspaceArgument {
        part.encoding.hex |= self.encoding.hex;
        part.keyspace.clone()
    }

    /// The named keyspace, or the current one.
    fn named(&self, keyspace: &KeyspaceArgument) -> Result<Keyspace> {
        match &keyspace.keyspace {
            Some(name) => keyspaces::find(&self.store, name),
            None => Ok(self.keyspace.clone()),
        }
    }

    /// Does something with the entries of a keyspace, at the current snapshot if there is one.
    fn with<T>(
        &self,
        keyspace: &KeyspaceArgument,
        action: impl FnOnce(&KeyspaceEntries) -> Result<T>,
    ) -> Result<T> {
        let (store, keyspace) = (self.store.clone(), self.named(keyspace)?);
        let snapshot = self.at.as_ref().and_then(|at| self.snapshots.get(at)).cloned();
        action(&KeyspaceEntries { keyspace, store, snapshot })
    }

    fn timed(&self, action: impl Fn(&Store) -> Result<()>) -> Result<()> {
        let started = std::time::Instant::now();
        action(&self.store)?;
        self.output.line(duration(started.elapsed()))
    }

    fn change_keyspace(&mut self, name: Option<String>, make: bool) -> Result<()> {
        let Some(name) = name else {
            return self.output.line(self.store.keyspaces().join("\n"));
        };
        keyspaces::refuse_reserved(&name)?;
        self.keyspace = match make && !self.store.keyspaces().contains(&name) {
            true => self.store.open_keyspace(&name, None)?,
            false => keyspaces::find(&self.store, &name).map_err(|failure| {
                let known = failure.hint.clone().unwrap_or_default();
                failure.hint(format!("{known}; `keyspace NAME --make` makes one"))
            })?,
        };
        Ok(())
    }

    fn help(&self, command: Option<&str>) -> Result<()> {
        let mut line = Line::command();
        line.build();
        let help = match command {
            None => line.render_help(),
            Some(name) => match line.find_subcommand_mut(name) {
                Some(command) => command.render_long_help(),
                None => {
                    let what = format!("there is no command {name:?}");
                    return Err(Failure::usage(what, "`help` lists the commands"));
                }
            },
        };
        // The name of the program, which clap puts before the command, is empty here.
        let help = help.to_string().replace("Usage:  ", "Usage: ");
        self.output.line(help.trim_end())
    }

    /// Drops a keyspace. If it was the current one, the default one takes its place.
    fn drop_keyspace(&mut self, dropping: &Dropping) -> Result<()> {
        dropping.run(&self.store)?;
        if self.keyspace.name() == dropping.name {
            self.keyspace = self.store.default_keyspace().clone();
        }
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

    /// Releases the snapshots and closes the store.
    pub fn close(self) -> Result<()> {
        let Session { store, keyspace, snapshots, .. } = self;
        drop((keyspace, snapshots));
        Ok(store.close()?)
    }
}
