//! The line editor: history in the user's home, completion of commands, keys and names.

use std::path::PathBuf;

use runstone::Keyspace;
use rustyline::completion::Completer;
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::DefaultHistory;
use rustyline::validate::Validator;
use rustyline::{Context, Editor, Helper};

use super::session::{Session, command_names, option_names};
use crate::encoding::{shown, unescape};
use crate::failure::{Exit, Failure, Result};
use crate::interrupt::{self, SIGINT};
use crate::output::note;

const HISTORY_FILE: &str = ".runstone_history";
/// A list of more keys than this would not help.
const MOST_KEYS: usize = 50;

struct Completion {
    commands: Vec<String>,
    keyspaces: Vec<String>,
    snapshots: Vec<String>,
    keyspace: Keyspace,
}

impl Completer for Completion {
    type Candidate = String;

    fn complete(
        &self,
        line: &str,
        position: usize,
        _: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<String>)> {
        let typed = line.get(..position).unwrap_or(line);
        let start = typed.rfind(' ').map_or(0, |blank| blank + 1);
        let word = &typed[start..];
        let mut before = typed[..start].split_whitespace();
        let (command, last) = (before.next(), before.last());
        if let Some(command) = command.filter(|_| word.starts_with("--")) {
            let options = option_names(command).into_iter();
            return Ok((start, options.filter(|option| option.starts_with(word)).collect()));
        }
        let names = match (command, last) {
            (None | Some("help"), _) => &self.commands,
            (Some("keyspace" | "drop"), _) | (_, Some("--keyspace")) => &self.keyspaces,
            (Some("at" | "release"), _) => &self.snapshots,
            _ => return Ok((start, self.keys(word))),
        };
        let fitting = names.iter().filter(|name| name.starts_with(word));
        Ok((start, fitting.cloned().collect()))
    }
}

impl Completion {
    /// Keys that can be typed as they are. An error here must not disturb the user.
    fn keys(&self, word: &str) -> Vec<String> {
        let Ok(prefix) = unescape(word.as_bytes()) else { return Vec::new() };
        let Ok(scan) = self.keyspace.prefix(&prefix) else { return Vec::new() };
        let keys = scan.map_while(|entry| entry.ok()).take(MOST_KEYS);
        let needs_quotes = |c: char| c.is_whitespace() || "'\"".contains(c);
        keys.map(|(key, _)| shown(&key)).filter(|key| !key.contains(needs_quotes)).collect()
    }
}

impl Helper for Completion {}
impl Hinter for Completion {
    type Hint = String;
}
impl Highlighter for Completion {}
impl Validator for Completion {}

/// Runs lines one by one; `false` ends the shell. Ctrl-C ends the running command, and discards
/// lines that were pasted after it.
fn run_lines(session: &mut Session<'_>, lines: &str) -> Result<bool> {
    for line in lines.lines() {
        interrupt::clear();
        match session.run(line) {
            Ok(true) => {}
            Ok(false) => return Ok(false),
            Err(failure) if failure.is_quiet => return Err(failure),
            Err(failure) => {
                session.output.flush()?;
                note(failure.to_text().trim_end());
                if failure.exit == Exit::Interrupted {
                    break;
                }
            }
        }
    }
    Ok(true)
}

/// Reads and runs lines until the end.
pub fn run(session: &mut Session<'_>) -> Result<()> {
    interrupt::watch(&[SIGINT]);
    let failed = |error: ReadlineError| {
        Failure::usage(format!("the terminal does not work: {error}"), "pipe the commands in")
    };
    let mut editor: Editor<Completion, DefaultHistory> = Editor::new().map_err(failed)?;
    let history = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(HISTORY_FILE));
    if let Some(path) = &history {
        // At first there is no history.
        let _ = editor.load_history(path);
    }
    let outcome = loop {
        editor.set_helper(Some(Completion {
            commands: command_names(),
            keyspaces: session.store.keyspaces(),
            snapshots: session.snapshot_names(),
            keyspace: session.keyspace.clone(),
        }));
        match editor.readline(&session.prompt()) {
            // A terminal may return several pasted lines as one.
            Ok(lines) => {
                for line in lines.lines() {
                    // A full history is not an error of the line.
                    let _ = editor.add_history_entry(line);
                }
                match run_lines(session, &lines) {
                    Ok(true) => {}
                    Ok(false) => break Ok(()),
                    Err(failure) => break Err(failure),
                }
            }
            Err(ReadlineError::Interrupted) => {}
            Err(ReadlineError::Eof) => break Ok(()),
            Err(error) => break Err(failed(error)),
        }
    };
    if let Some(path) = &history {
        // No history is kept if the home cannot be written.
        let _ = editor.save_history(path);
    }
    outcome
}

#[cfg(test)]
mod tests {
    use runstone::{Options, Store};
    use rustyline::history::MemHistory;

    use super::*;

    #[test]
    fn words_are_completed_by_what_they_name() {
        let storage = std::sync::Arc::new(runstone::storage::MemoryStorage::new());
        let store = Store::open_on(storage, Options::default()).expect("opens");
        store.put("other key", "").expect("puts");
        store.put("other", "").expect("puts");
        let completion = Completion {
            commands: command_names(),
            keyspaces: vec!["default".into(), "others".into()],
            snapshots: vec!["morning".into()],
            keyspace: store.default_keyspace().clone(),
        };
        let history = MemHistory::new();
        let complete = |line: &str| {
            let found = completion.complete(line, line.len(), &Context::new(&history));
            found.expect("completes")
        };
        let names = |names: &[&str]| names.iter().map(|name| name.to_string()).collect::<Vec<_>>();
        assert_eq!(complete("ke"), (0, names(&["keyspace"])));
        assert_eq!(complete("get o"), (4, names(&["other"])));
        assert_eq!(complete("keyspace o"), (9, names(&["others"])));
        assert_eq!(complete("get k --keyspace o"), (17, names(&["others"])));
        store.put("\\odd\0", "").expect("puts");
        assert_eq!(complete("get \\\\o"), (4, names(&["\\\\odd\\x00"])));
        assert_eq!(complete("scan --re"), (5, names(&["--reverse"])));
        assert_eq!(complete("get k --keys"), (6, names(&["--keyspace"])));
        assert_eq!(complete("help ke"), (5, names(&["keyspace"])));
        assert_eq!(complete("at "), (3, names(&["morning"])));
        assert_eq!(complete("release x"), (8, vec![]));
    }
}
