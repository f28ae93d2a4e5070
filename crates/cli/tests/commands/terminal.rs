//! The command in a terminal, as people use it: `script` gives it a terminal of 70 columns, or
//! of as many as a test asks for.

use std::io::{Read, Write};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use crate::Place;

/// A test that waits for this long waits for ever.
const NEVER: Duration = Duration::from_secs(120);

/// A terminal with the command in it.
pub struct Terminal {
    child: Child,
    keyboard: Option<ChildStdin>,
    screen: Receiver<Vec<u8>>,
    /// All that was on the screen so far.
    seen: String,
    /// The length of the part that the waits so far have covered.
    behind: usize,
}

impl Terminal {
    pub fn open(place: &Place, arguments: &str) -> Terminal {
        Terminal::of_columns(place, 70, arguments)
    }

    fn of_columns(place: &Place, columns: usize, arguments: &str) -> Terminal {
        let runstone = env!("CARGO_BIN_EXE_runstone");
        let line = format!("stty cols {columns} rows 24; exec '{runstone}' {arguments}");
        let mut script = std::process::Command::new("script");
        script.args(["-q", "-e", "-f", "-c", &line, "/dev/null"]);
        script.current_dir(place.path(".")).env("HOME", place.path(".")).env("TERM", "xterm");
        script.env("TMPDIR", place.path(".")).env("SHELL", "/bin/sh").env_remove("COLUMNS");
        let pipes = script.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut child = pipes.spawn().expect("script, of Debian's bsdutils, is there");
        let keyboard = child.stdin.take();
        let mut output = child.stdout.take().expect("a pipe");
        let (send, screen) = channel();
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = output.read(&mut bytes) {
                let _ = send.send(bytes[..count].to_vec());
            }
        });
        Terminal { child, keyboard, screen, seen: String::new(), behind: 0 }
    }

    fn type_in(&mut self, text: &str) {
        let keyboard = self.keyboard.as_mut().expect("the command reads");
        keyboard.write_all(text.as_bytes()).and_then(|()| keyboard.flush()).expect("it is typed");
    }

    /// Waits until the text appears after the texts of earlier waits.
    fn wait_for(&mut self, text: &str) {
        self.wait_until(text, |seen| seen.find(text).map(|at| at + text.len()));
    }

    /// Waits until a bar shows that something is done.
    fn wait_for_progress(&mut self) {
        self.wait_until("progress", |seen| {
            let mut dones = seen.match_indices("] ");
            let is_done = |at: usize| seen[at..].starts_with(|c: char| matches!(c, '1'..='9'));
            dones.find_map(|(at, bracket)| is_done(at + bracket.len()).then_some(at))
        });
    }

    /// Waits until `end_of` finds something after the texts of earlier waits.
    fn wait_until(&mut self, what: &str, end_of: impl Fn(&str) -> Option<usize>) {
        loop {
            if let Some(end) = end_of(&self.seen[self.behind..]) {
                self.behind += end;
                return;
            }
            match self.screen.recv_timeout(NEVER) {
                Ok(bytes) => self.seen.push_str(&String::from_utf8_lossy(&bytes)),
                Err(_) => panic!("{what:?} never appeared in {:?}", self.seen),
            }
        }
    }

    /// Waits for the end. Returns the exit code, and all that was printed.
    pub fn end(mut self) -> (i32, String) {
        while let Ok(bytes) = self.screen.recv_timeout(NEVER) {
            self.seen.push_str(&String::from_utf8_lossy(&bytes));
        }
        drop(self.keyboard.take());
        let status = self.child.wait().expect("it ends");
        (status.code().unwrap_or(-1), self.seen)
    }
}

/// Stores so many entries that no scan of them ends before a key is pressed.
fn many(place: &Place) {
    let line = |i: u32| format!("key{i:06}\t{}\n", "value ".repeat(20));
    place.write("x.tsv", (0..200_000).map(line).collect::<String>());
    place.ok(&["import", "s", "x.tsv"]);
}

/// Once, only the first of several pasted lines ran: the others were read ahead and forgotten.
#[test]
fn every_line_that_is_pasted_runs() {
    let place = Place::new();
    let mut terminal = Terminal::open(&place, "shell s");
    terminal.wait_for("default> ");
    terminal.type_in("put a 1\rput b 2\rput c 3\rcount\r");
    terminal.wait_for("\n3\r\n");
    // Once, with bracketed paste all lines became one command.
    terminal.type_in("\x1b[200~put d 4\nput 'e f' 5\ncount\x1b[201~");
    terminal.type_in("\r");
    terminal.wait_for("\n5\r\n");
    terminal.wait_for("default> ");
    terminal.type_in("exit\r");
    assert_eq!(terminal.end().0, 0);
    assert_eq!(place.ok(&["scan", "s"]), "a\t1\nb\t2\nc\t3\nd\t4\ne f\t5\n");
}

/// Once, Ctrl-C during a scan ended the shell.
#[test]
fn ctrl_c_ends_a_scan_and_not_the_shell() {
    let place = Place::new();
    many(&place);
    let mut terminal = Terminal::open(&place, "shell s");
    terminal.wait_for("default> ");
    terminal.type_in("scan\r");
    terminal.wait_for("key000050");
    terminal.type_in("\x03");
    terminal.wait_for("error: interrupted");
    terminal.wait_for("default> ");
    terminal.type_in("get nothing\r");
    terminal.wait_for("key nothing is absent");
    terminal.type_in("exit\r");
    let (code, seen) = terminal.end();
    assert_eq!(code, 0);
    assert!(!seen.contains("key199999"), "the scan was ended");
}

/// Once, Ctrl-C left a file `out.csv.partial-PID` behind.
#[test]
fn ctrl_c_ends_a_command_and_leaves_nothing_behind() {
    let place = Place::new();
    many(&place);
    let mut terminal = Terminal::open(&place, "scan s");
    terminal.wait_for("key000050");
    terminal.type_in("\x03");
    let (code, seen) = terminal.end();
    assert!(code == 130 && seen.contains("error: interrupted"), "{code}");
    let mut terminal = Terminal::open(&place, "export s out.csv");
    terminal.wait_for("export");
    terminal.type_in("\x03");
    let (code, seen) = terminal.end();
    assert!(code == 130 && seen.contains("nothing was written"), "{code}: {seen}");
    let names = crate::files_below(&place.path(".")).into_keys();
    let left: Vec<_> = names.filter(|name| name.to_string_lossy().contains("out.csv")).collect();
    assert!(left.is_empty(), "{left:?}");
}

/// Once, an import that was ended did not say that it can be resumed.
#[test]
fn an_import_that_is_ended_goes_on() {
    let place = Place::new();
    let line = |i: u32| format!("key{i:06}\tvalue\n");
    place.write("x.tsv", (0..1_000_000).map(line).collect::<String>());
    let mut terminal = Terminal::open(&place, "import s x.tsv");
    // An import that is ended before its first record begins again.
    terminal.wait_for_progress();
    terminal.type_in("\x03");
    let (code, seen) = terminal.end();
    assert!(code == 130 && seen.contains("run the same command again"), "{code}: {seen}");
    let report = place.json(&["import", "s", "x.tsv"]);
    assert_eq!(report["records"], 1_000_000);
    assert!(report["resumed_records"].as_u64().is_some_and(|resumed| resumed > 0), "{report}");
    assert_eq!(place.ok(&["count", "s"]), "1000000\n");
}

/// Lines without their colours. Each state of a progress bar is a line of its own.
pub fn lines(seen: &str) -> Vec<String> {
    let mut text = String::new();
    let mut rest = seen.chars();
    while let Some(c) = rest.next() {
        match c {
            '\x1b' => drop(rest.by_ref().find(|c| c.is_ascii_alphabetic())),
            _ => text.push(c),
        }
    }
    let lines = text.split('\n').map(|line| line.trim_end_matches('\r'));
    lines.flat_map(|line| line.split('\r')).map(|line| line.trim_end().to_string()).collect()
}

/// Once, at 70 columns, lines were wrapped by the terminal, bars took two lines, and rates had four
/// decimals; at 60, lines of help and the usage of `simulate` broke inside words.
#[test]
fn everything_fits_a_terminal_of_60_or_80_columns() {
    [60, 80].into_iter().for_each(everything_fits);
}

fn everything_fits(columns: usize) {
    let place = Place::new();
    let line = |i: u32| format!("key{i:06}\tvalue number {i}\n");
    place.write("x.tsv", (0..50_000).map(line).collect::<String>());
    for (arguments, word) in [
        ("import s x.tsv", "50000 records, "),
        ("export s x.csv", "50000 records, "),
        ("export s y.csv --prefix key0001", "100 records, "),
        ("stats s", "not flushed"),
        ("shape s", "1 run, wanted "),
        ("verify s", "1 table, 50000 entries, "),
        ("compact s", "->"),
        ("get s nothing --keyspace usres", "the store has: default"),
        ("put s k v --policy levelling", "did you mean leveling?"),
        ("policies", "lazy-leveling"),
        ("presets", "small-space"),
        ("help", "STORE is a directory"),
        ("help encoding", "\\xNN"),
        ("help options", "separate_at"),
        ("help exit-codes", "130"),
        ("help import", "resumes where it was"),
        ("help devices", "its for ever"),
        ("help simulate", "--size <SIZE>"),
        ("simulate --help", "--size <SIZE>"),
        ("help checkpoint", "--copy"),
        ("help set", "OPTION=VALUE"),
        ("options s", "universal_amp_percent"),
        ("set s polcy=leveling", "did you mean policy?"),
        ("checkpoint s copy", "hard links"),
        ("scan s --limit many", "invalid digit found in string"),
        ("put s/below k v", "choose a place outside of"),
        ("put no/where/s k v", "mkdir -p"),
        ("import s x.json", "no such file"),
        ("dump s CURRENT", ".manifest"),
        ("paper", "ptierdb"),
        ("bench", "ycsb-a"),
        ("bench fillrandom,readrandom --num 20000", "micros/op"),
        ("simulate --policy all --size 20G", "garnering"),
        ("demo . --seconds-limit 1", "verified: "),
    ] {
        let (_, seen) = Terminal::of_columns(&place, columns, arguments).end();
        let lines = lines(&seen);
        for line in &lines {
            assert!(line.chars().count() <= columns, "{arguments}: {line}");
            let rate = line.split("/s").next().filter(|_| line.contains("[="));
            let rate = rate.and_then(|rate| rate.split(' ').next_back()).unwrap_or("");
            let decimals = rate.split_once('.').map_or(0, |(_, decimals)| decimals.len());
            assert!(decimals <= 2 && !line.contains("/0 "), "{arguments}: {line}");
        }
        let all = lines.join(" ");
        let all = all.split(' ').filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ");
        assert!(all.contains(word), "{arguments}: {all}");
    }
}

#[test]
fn dropping_a_keyspace_asks_first() {
    let place = Place::new();
    place.ok(&["put", "s", "k", "v", "--keyspace", "users"]);
    for (answer, code) in [("n", 1), ("", 1), ("yes", 0)] {
        let mut terminal = Terminal::open(&place, "drop s users");
        terminal.wait_for("drop keyspace users, ");
        terminal.wait_for("[y/N] ");
        terminal.type_in(&format!("{answer}\r"));
        assert_eq!(terminal.end().0, code, "{answer}");
        let names = place.pipe(&["shell", "s"], "keyspace").stdout;
        assert_eq!(names.contains("users"), code == 1, "{answer}");
    }
}
