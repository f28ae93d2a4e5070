//! `shell`: commands on an open store, from the keyboard or from a pipe.

use std::io::{BufRead, IsTerminal, stdin};
use std::path::{Path, PathBuf};

use crate::arguments::{Encoding, KeyspaceArgument, MakeArguments};
use crate::failure::{Exit, Failure, Result};
use crate::keyspaces;
use crate::opening::{self, Location};
use crate::option_docs::summary;
use crate::output::Output;
use crate::shell::editor;
use crate::shell::session::Session;
use crate::transfer::lines::trim_end;

/// Type commands on an open store; also reads them from a pipe
#[derive(clap::Args)]
pub struct Args {
    /// The store; made if there is none.
    store: PathBuf,
    #[arg(long, conflicts_with_all = ["preset", "options", "policy", "memory_budget"],
          help = summary("read_only"))]
    read_only: bool,
    #[command(flatten)]
    keyspace: KeyspaceArgument,
    #[command(flatten)]
    encoding: Encoding,
    #[command(flatten)]
    make: MakeArguments,
}

impl Args {
    pub fn run(self, output: &Output) -> Result<Exit> {
        if output.is_json {
            return Err(Failure::usage("the shell has no --json", "use single commands"));
        }
        let name = self.keyspace.name();
        let location = Location::of(&self.store)?;
        let (store, keyspace) = match self.read_only {
            true => {
                let store = location.open(opening::reading())?;
                let keyspace = keyspaces::find(&store, name)?;
                (store, keyspace)
            }
            false => location.make(&self.make, name, None)?,
        };
        location.tell_made(output);
        let session = Session::new(store, keyspace, self.encoding, output);
        let mut session = session.beside(location.beside());
        let outcome = match stdin().is_terminal() {
            true => editor::run(&mut session).map(|()| Exit::Ok),
            false => read_pipe(&mut session),
        };
        session.close()?;
        outcome
    }
}

/// Runs every line; the exit code is that of the first line that failed.
fn read_pipe(session: &mut Session<'_>) -> Result<Exit> {
    let mut exit = Exit::Ok;
    let mut input = stdin().lock();
    let mut line = Vec::new();
    for number in 1_u64.. {
        line.clear();
        let read = input.read_until(b'\n', &mut line);
        if read.map_err(|error| Failure::file(Path::new("standard input"), "read", &error))? == 0 {
            break;
        }
        let outcome = match std::str::from_utf8(trim_end(&line)) {
            Ok(line) => session.run(line),
            Err(_) => Err(Failure::usage("the line is no UTF-8", "write other bytes as \\xNN")),
        };
        match outcome {
            Ok(true) => {}
            Ok(false) => break,
            Err(failure) if failure.is_quiet => return Err(failure),
            Err(failure) => {
                let failed = failure.at(format!("line {number}")).report(false);
                if exit == Exit::Ok {
                    exit = failed;
                }
            }
        }
    }
    Ok(exit)
}
