//! The built command as users run it: one process per call, output and exit code compared.

mod beside;
mod comes_back;
mod counters;
mod damage;
mod databases;
mod devices;
mod errors;
mod first_steps;
mod full;
mod handbook;
mod hints;
mod history;
mod keys;
mod live;
mod lost_log;
mod models;
mod places;
mod points;
mod repair;
mod reports;
mod resumed;
mod salvage;
mod settings;
mod sources;
mod terminal;
mod transfer;
mod unreadable;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// A directory for one test.
struct Place {
    directory: tempfile::TempDir,
}

/// What a call printed.
struct Ran {
    stdout: String,
    stderr: String,
    bytes: Vec<u8>,
    code: i32,
}

impl Place {
    fn new() -> Place {
        Place { directory: tempfile::tempdir().expect("temporary directory") }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Copies the files of an open store to `name`, where they look as after a crash. Jobs run only
    /// when a write needs them, so no file is renamed or removed while it is copied.
    fn crash(&self, name: &str, options: runstone::Options, write: impl FnOnce(&runstone::Store)) {
        let open = tempfile::tempdir().expect("temporary directory");
        let options = options.background(runstone::Background::Manual);
        let store = runstone::Store::open(open.path(), options).expect("a store");
        write(&store);
        for (file, bytes) in files_below(open.path()) {
            self.write(&format!("{name}/{}", file.display()), bytes);
        }
    }

    fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("directory");
        std::fs::write(&path, content).expect("file");
        path
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_runstone"));
        command.args(arguments).current_dir(self.directory.path());
        command.env("HOME", self.directory.path()).env("TMPDIR", self.directory.path());
        command
    }

    /// Runs the command in the directory. It must not panic.
    fn run(&self, arguments: &[&str]) -> Ran {
        ran(self.command(arguments).stdin(Stdio::null()).output().expect("the command starts"))
    }

    /// Does the same with this standard input.
    fn pipe(&self, arguments: &[&str], input: impl AsRef<[u8]>) -> Ran {
        let mut command = self.command(arguments);
        let pipes = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = pipes.spawn().expect("the command starts");
        let mut stdin = child.stdin.take().expect("a pipe");
        // A command that refuses its arguments ends without reading, which breaks the pipe.
        if let Err(err) = stdin.write_all(input.as_ref()) {
            assert_eq!(err.kind(), std::io::ErrorKind::BrokenPipe, "the command reads: {err}");
        }
        drop(stdin);
        ran(child.wait_with_output().expect("the command ends"))
    }

    /// Runs the command and expects success. Returns the standard output.
    fn ok(&self, arguments: &[&str]) -> String {
        let ran = self.run(arguments);
        assert_eq!(ran.code, 0, "{arguments:?}: {}", ran.stderr);
        ran.stdout
    }

    /// Runs the command with `--json` and expects success. Returns the object.
    fn json(&self, arguments: &[&str]) -> serde_json::Value {
        let text = self.ok(&[arguments, &["--json"]].concat());
        serde_json::from_str(&text).expect("one JSON object")
    }
}

fn ran(output: Output) -> Ran {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let ran = Ran {
        stdout: text(&output.stdout),
        stderr: text(&output.stderr),
        bytes: output.stdout,
        code: output.status.code().unwrap_or(-1),
    };
    assert!(!ran.stderr.contains("panicked"), "{}", ran.stderr);
    ran
}

/// Every file below a directory with its content, by relative path.
fn files_below(root: &Path) -> std::collections::BTreeMap<PathBuf, Vec<u8>> {
    let mut files = std::collections::BTreeMap::new();
    let mut pending = vec![root.to_path_buf()];
    while let Some(directory) = pending.pop() {
        for entry in std::fs::read_dir(directory).expect("a directory") {
            let path = entry.expect("an entry").path();
            match path.is_dir() {
                true => pending.push(path),
                false => {
                    let name = path.strip_prefix(root).expect("below").to_path_buf();
                    files.insert(name, std::fs::read(path).expect("a file"));
                }
            }
        }
    }
    files
}
