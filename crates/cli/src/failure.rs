//! Why a command failed: what, where, what to do, and the exit code. Not the engine's error, from
//! which it is made.

use std::fmt::Display;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use clap::error::ErrorKind;
use runstone::Error;
use runstone::storage::Full;
use rustix::io::Errno;
use serde_json::json;

use crate::layout;

/// The result of a command or a part of it.
pub type Result<T> = std::result::Result<T, Failure>;

/// How the process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    Ok = 0,
    Different = 1,
    Damaged = 2,
    Usage = 3,
    CannotOpen = 4,
    Io = 5,
    Interrupted = 130,
}

/// Every exit code with its meaning, for help.
pub const EXIT_CODES: &[(Exit, &str)] = &[
    (Exit::Ok, "done"),
    (
        Exit::Different,
        "the key is absent, a value differs, an export refused entries, an import stored nothing \
         or its source changed, or --strict met a malformed record",
    ),
    (
        Exit::Damaged,
        "a file of the store, or of a database that is imported, is damaged, or a value cannot be \
         made or read; an export wrote what can be read to TARGET.partial, or with --skip-failed \
         to TARGET if only values are missing; a repair lists what may be wrong",
    ),
    (Exit::Usage, "the command line or an option is wrong"),
    (
        Exit::CannotOpen,
        "the store, or a database to import, cannot be opened: not a store, in use, a newer format",
    ),
    (Exit::Io, "reading or writing failed, or no space is left"),
    (Exit::Interrupted, "a signal such as Ctrl-C ended the command"),
];

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit as u8)
    }
}

/// An error for people.
#[derive(Clone, Debug)]
pub struct Failure {
    pub what: String,
    pub place: Option<String>,
    pub hint: Option<String>,
    pub exit: Exit,
    /// Standard output was closed: end without a message.
    pub is_quiet: bool,
}

impl Failure {
    /// A failure without a place or hint yet.
    pub fn new(exit: Exit, what: impl Display) -> Failure {
        Failure { what: what.to_string(), place: None, hint: None, exit, is_quiet: false }
    }

    /// A wrong argument.
    pub fn usage(what: impl Display, hint: impl Display) -> Failure {
        Failure::new(Exit::Usage, what).hint(hint)
    }

    /// A refusal of clap, with clap's tip if there is one.
    pub fn command_line(error: &clap::Error, hint: &str) -> Failure {
        // In this case clap prints only its help.
        if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
            return Failure::usage("no command is named", hint);
        }
        let text = error.to_string();
        let first = text.lines().take_while(|line| !line.is_empty()).map(str::trim);
        let what = first.collect::<Vec<_>>().join(" ");
        let tip = text.lines().find_map(|line| line.trim().strip_prefix("tip: "));
        Failure::usage(what.trim_start_matches("error: "), tip.unwrap_or(hint))
    }

    /// A file outside of the store that cannot be read or written.
    pub fn file(path: &Path, action: &str, error: &io::Error) -> Failure {
        let full = Full::at(error, path);
        let why = match error.kind() {
            _ if full == Some(Full::Inodes) => Full::Inodes.to_string(),
            io::ErrorKind::NotFound => "there is no such file or directory".to_string(),
            io::ErrorKind::AlreadyExists => "it exists".to_string(),
            _ => error.to_string(),
        };
        let hint = full.map(Full::hint).or_else(|| path_hint(error));
        let hint = hint.unwrap_or_else(|| match error.kind() {
            io::ErrorKind::NotFound => "check the path",
            io::ErrorKind::PermissionDenied => "check the owner and mode",
            io::ErrorKind::AlreadyExists => "choose another name, or pass --force",
            io::ErrorKind::OutOfMemory => "free some memory, or unpack it by another program",
            io::ErrorKind::IsADirectory => "name a file",
            io::ErrorKind::ReadOnlyFilesystem => "write to another place",
            io::ErrorKind::InvalidData => {
                "the file is cut short or damaged: get it again, or unpack what can be by its own \
                 program and use that"
            }
            _ => "check the device",
        });
        Failure::new(Exit::Io, format!("cannot {action}: {why}")).at(path.display()).hint(hint)
    }

    /// Adds the place.
    pub fn at(mut self, place: impl Display) -> Failure {
        self.place = Some(place.to_string());
        self
    }

    /// Adds what to do.
    pub fn hint(mut self, hint: impl Display) -> Failure {
        self.hint = Some(hint.to_string());
        self
    }

    /// The failure for standard output that cannot be written.
    pub fn stdout(error: &io::Error) -> Failure {
        let mut failure =
            Failure::new(Exit::Io, format!("cannot print: {error}")).at("standard output");
        let advice = Full::of(error).map_or("check where it leads", Full::hint);
        failure.hint = Some(format!("{advice}, or print to another place"));
        if error.kind() == io::ErrorKind::BrokenPipe {
            failure.is_quiet = true;
            failure.exit = Exit::Ok;
        }
        failure
    }

    /// Prints the failure to standard error.
    pub fn report(&self, is_json: bool) -> Exit {
        if self.is_quiet {
            return self.exit;
        }
        let mut stderr = io::stderr().lock();
        // Nobody is left to hear of an error here.
        let _ = match is_json {
            true => writeln!(stderr, "{}", self.to_json()),
            false => write!(stderr, "{}", layout::fold(&self.to_text(), layout::stderr_columns())),
        };
        self.exit
    }

    /// The lines for people.
    pub fn to_text(&self) -> String {
        let mut text = format!("error: {}\n", self.what);
        if let Some(place) = &self.place {
            text.push_str(&format!("  where: {place}\n"));
        }
        if let Some(hint) = &self.hint {
            text.push_str(&format!("  hint: {hint}\n"));
        }
        text
    }

    /// The object for machines: three texts, always.
    pub fn to_json(&self) -> serde_json::Value {
        let (place, hint) = match self.exit {
            Exit::Usage => ("the command line", "see `runstone help`"),
            _ => ("the store", "see `runstone help exit-codes`"),
        };
        json!({
            "error": self.what,
            "where": self.place.as_deref().unwrap_or(place),
            "hint": self.hint.as_deref().unwrap_or(hint),
        })
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        let mut failure = Failure::new(exit_of(&error), &error).hint(error.hint());
        failure.place = error.place();
        match &error {
            Error::Storage(cause) => match path_hint(&cause.source) {
                Some(hint) => failure.hint(hint),
                None => failure,
            },
            _ => failure,
        }
    }
}

impl From<runstone_kv::Error> for Failure {
    fn from(error: runstone_kv::Error) -> Failure {
        match error {
            runstone_kv::Error::Store(error) => error.into(),
            other => Failure::new(Exit::Io, &other).hint(other.hint()),
        }
    }
}

/// The hint if the cause is the path or the limit of open files, and not the device.
fn path_hint(error: &io::Error) -> Option<&'static str> {
    let errno = Errno::from_io_error(error);
    match error.kind() {
        _ if errno == Some(Errno::MFILE) || errno == Some(Errno::NFILE) => {
            Some("raise the limit of open files (`ulimit -n`), and run it again")
        }
        _ if errno == Some(Errno::LOOP) => Some("check the path: its links lead in a circle"),
        io::ErrorKind::InvalidFilename => Some("choose a shorter name"),
        io::ErrorKind::NotADirectory => {
            Some("check the path: a file is where a directory should be")
        }
        _ => None,
    }
}

fn exit_of(error: &Error) -> Exit {
    match error {
        Error::Corruption { .. } => Exit::Damaged,
        Error::InvalidArgument { .. } | Error::ReadOnly | Error::UnknownKeyspace { .. } => {
            Exit::Usage
        }
        Error::NotAStore { .. }
        | Error::ForeignFiles { .. }
        | Error::OtherDatabase { .. }
        | Error::NewerFormat { .. }
        | Error::InUse { .. } => Exit::CannotOpen,
        Error::Stopped { cause } => exit_of(cause),
        _ if is_missing_file(error) => Exit::Damaged,
        _ => Exit::Io,
    }
}

/// Whether a file is missing that a store needs.
fn is_missing_file(error: &Error) -> bool {
    let Error::Storage(cause) = error else { return false };
    let extension = Path::new(&cause.path).extension().and_then(|extension| extension.to_str());
    cause.is_not_found() && matches!(extension, Some("table" | "values" | "manifest" | "wal"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_say_what_where_and_what_to_do() {
        let failure = Failure::from(Error::InUse { path: "here".into(), process: None });
        assert_eq!(failure.exit, Exit::CannotOpen);
        let text = failure.to_text();
        assert!(text.starts_with("error: here is in use") && text.contains("\n  hint: "), "{text}");
        assert_eq!(failure.to_json()["where"], "here");
    }

    #[test]
    fn codes_are_listed_in_order() {
        let codes: Vec<usize> = EXIT_CODES.iter().map(|(exit, _)| *exit as usize).collect();
        assert_eq!(codes, [0, 1, 2, 3, 4, 5, 130]);
    }
}
