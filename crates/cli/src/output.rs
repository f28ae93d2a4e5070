//! Standard output, files beside it, numbers for people, and progress bars. Messages on standard
//! error are a [`crate::failure::Failure`].

use std::cell::RefCell;
use std::fmt::{self, Display};
use std::fs::OpenOptions;
use std::io::{self, BufWriter, IsTerminal, Stdout, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use serde_json::json;

use crate::failure::{Failure, Result};
use crate::layout;
use crate::nesting;

/// Standard output.
pub struct Output {
    pub is_json: bool,
    stdout: RefCell<BufWriter<Stdout>>,
}

impl Output {
    pub fn new(is_json: bool) -> Output {
        IS_JSON.store(is_json, Ordering::Relaxed);
        Output { is_json, stdout: RefCell::new(BufWriter::new(io::stdout())) }
    }

    /// Prints bytes as they are.
    pub fn bytes(&self, bytes: &[u8]) -> Result<()> {
        self.stdout.borrow_mut().write_all(bytes).map_err(|error| Failure::stdout(&error))
    }

    /// Prints text and ends the line.
    pub fn line(&self, text: impl Display) -> Result<()> {
        self.bytes(format!("{text}\n").as_bytes())
    }

    /// Prints the text, or the object with `--json`.
    pub fn figures(&self, text: &str, json: &serde_json::Value) -> Result<()> {
        match self.is_json {
            true => self.json(json),
            false => self.text(text),
        }
    }

    /// Prints sentences. On a terminal, lines are wrapped at its width.
    pub fn text(&self, text: &str) -> Result<()> {
        match io::stdout().is_terminal() {
            true => self.bytes(layout::fold(text, layout::terminal_columns()).as_bytes()),
            false => self.bytes(text.as_bytes()),
        }
    }

    /// Prints one JSON object.
    pub fn json(&self, value: &serde_json::Value) -> Result<()> {
        self.line(value)
    }

    /// Flushes what was printed so far.
    pub fn flush(&self) -> Result<()> {
        self.stdout.borrow_mut().flush().map_err(|error| Failure::stdout(&error))
    }

    /// Writes a file in addition to the output; replaces an existing file only if `force` is set.
    /// Reports the file on standard error, but not under `--json`.
    pub fn write_file(&self, path: &Path, text: &str, force: bool) -> Result<()> {
        nesting::refuse_inside(path)?;
        let mut options = OpenOptions::new();
        options.write(true).truncate(force).create(force).create_new(!force);
        let written = options.open(path).and_then(|mut file| file.write_all(text.as_bytes()));
        written.map_err(|error| Failure::file(path, "write", &error))?;
        if !self.is_json {
            note(format!("wrote {}", path.display()));
        }
        Ok(())
    }

    /// A progress bar over operations, or their count alone where no total is known; hidden without
    /// a terminal and under `--json`.
    pub fn count_bar(&self, name: &str, total: Option<u64>) -> ProgressBar {
        self.bar(name, total, |count| count.to_string())
    }

    /// A progress bar over `total` bytes.
    pub fn bytes_bar(&self, name: &str, total: u64) -> ProgressBar {
        self.bar(name, Some(total), size)
    }

    /// Shows the elapsed time of a step without other progress.
    pub fn spinner(&self, name: &str) -> ProgressBar {
        let bar = self.count_bar(name, None);
        let style = ProgressStyle::with_template("{msg} {elapsed}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
        bar
    }

    fn bar(&self, name: &str, total: Option<u64>, show: fn(u64) -> String) -> ProgressBar {
        let target = match self.is_json || !io::stderr().is_terminal() {
            true => ProgressDrawTarget::hidden(),
            false => ProgressDrawTarget::stderr(),
        };
        let bar = ProgressBar::with_draw_target(Some(total.unwrap_or(0)), target);
        bar.set_style(bar_style(total.is_some(), show));
        bar.set_message(name.to_string());
        bar
    }
}

/// A line of a progress bar; it fills the terminal and no more.
pub fn bar_style(has_total: bool, show: fn(u64) -> String) -> ProgressStyle {
    let template = match has_total {
        true => "{msg:14} [{wide_bar}] {done} {rate} eta {eta}",
        false => "{msg:14} {done} {rate}",
    };
    let style = ProgressStyle::with_template(template);
    let done = move |state: &ProgressState, text: &mut dyn fmt::Write| {
        let _ = match state.len() {
            Some(len) if has_total => write!(text, "{}/{}", show(state.pos()), show(len)),
            _ => write!(text, "{}", show(state.pos())),
        };
    };
    let rate = move |state: &ProgressState, text: &mut dyn fmt::Write| {
        let _ = write!(text, "{}/s", show(state.per_sec() as u64));
    };
    let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
    style.with_key("done", done).with_key("rate", rate).progress_chars("=> ")
}

/// Whether programs read standard error; set once, before anything is reported.
static IS_JSON: AtomicBool = AtomicBool::new(false);

/// Reports something on standard error. Under `--json` the report is an object: the
/// engine may report something while it opens a store. A closed standard error does not stop a
/// command.
pub fn note(text: impl Display) {
    let _ = match IS_JSON.load(Ordering::Relaxed) {
        true => writeln!(io::stderr(), "{}", json!({ "note": text.to_string() })),
        false => {
            let text = format!("{text}\n");
            write!(io::stderr(), "{}", layout::fold(&text, layout::stderr_columns()))
        }
    };
}

/// Asks a person at a terminal; only `y` and `yes` agree.
pub fn ask(question: &str) -> bool {
    let mut answer = String::new();
    let asked = write!(io::stderr(), "{question} [y/N] ").and_then(|()| io::stderr().flush());
    let answered = asked.and_then(|()| io::stdin().read_line(&mut answer));
    answered.is_ok() && ["y", "yes"].contains(&answer.trim().to_lowercase().as_str())
}

/// Lays out a table as [`layout::columns`] does, within the width of the terminal if there is one.
pub fn columns(header: &[&str], rows: &[Vec<String>]) -> String {
    let width = if io::stdout().is_terminal() { layout::terminal_columns() } else { usize::MAX };
    layout::columns(header, rows, width)
}

/// Formats a size as the engine does: `12.3K`.
pub fn size(bytes: u64) -> String {
    runstone_policy::text::format_bytes(bytes)
}

/// Formats a size for a sentence, where `5` alone would not be a size.
pub fn amount(bytes: u64) -> String {
    if bytes < 1024 { layout::plural(bytes, "byte") } else { size(bytes) }
}

/// The current minute: `2026-11-27 17:30 UTC`.
pub fn minute_text() -> String {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    minute_of(since.as_secs())
}

/// The minute of this many seconds since 1970.
pub fn minute_of(seconds: u64) -> String {
    let (days, minutes) = (seconds / 86_400, seconds % 86_400 / 60);
    // Years begin in March here, so that a leap day is the last day of its year. They count from
    // the year 0, and 400 years have 146,097 days.
    let since_march = days + 719_468;
    let (era, day) = (since_march / 146_097, since_march % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (year, month) = match month {
        0..10 => (year, month + 3),
        _ => (year + 1, month - 9),
    };
    let (hour, minute) = (minutes / 60, minutes % 60);
    format!("{:04}-{month:02}-{day:02} {hour:02}:{minute:02} UTC", era * 400 + year)
}

/// The seconds since 1970 of a time in UTC: `2026-11-27`, `2026-11-27 17:30`,
/// `2026-11-27T17:30:05Z`. `None` if the text is not such a time, or the time is before 1970.
pub fn seconds_of(text: &str) -> Option<u64> {
    let text = text.trim_end_matches("UTC").trim_end().trim_end_matches('Z');
    let (date, time) = text.split_once([' ', 'T']).unwrap_or((text, "00:00"));
    let fields = |text: &str, by: char| -> Option<Vec<u64>> {
        let number = |field: &str| {
            let is_plain = field.bytes().all(|byte| byte.is_ascii_digit());
            field.parse().ok().filter(|_| is_plain)
        };
        text.split(by).map(number).collect()
    };
    let (&[year, month, day], time) = (&fields(date, '-')?[..], fields(time, ':')?) else {
        return None;
    };
    let (hour, minute, second) = match time[..] {
        [hour, minute] => (hour, minute, 0),
        [hour, minute, second] => (hour, minute, second),
        _ => return None,
    };
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days = match month {
        2 => 28 + u64::from(is_leap),
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return None,
    };
    let is_time = hour < 24 && minute < 60 && second < 60;
    if !(1970..10_000).contains(&year) || !(1..=days).contains(&day) || !is_time {
        return None;
    }
    // Years begin in March, as in [`minute_of`].
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 1;
    Some((days - 719_468) * 86_400 + hour * 3600 + minute * 60 + second)
}

/// `812 ns`, `45.1 us`, `3.2 ms`, `1.50 s`.
pub fn nanos(ns: u64) -> String {
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{:.1} us", ns as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} ms", ns as f64 / 1e6),
        _ => format!("{:.2} s", ns as f64 / 1e9),
    }
}

/// Formats a duration in the same way.
pub fn duration(took: Duration) -> String {
    nanos(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX))
}

/// `part / whole`; 0 if the whole is 0.
pub fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// Three decimals are enough in JSON.
pub fn rounded(number: f64) -> f64 {
    (number * 1000.0).round() / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_come_back_from_text() {
        for seconds in [0, 951_782_400, 1_795_800_600, 4_107_542_400, 253_402_300_740] {
            assert_eq!(seconds_of(&minute_of(seconds)), Some(seconds));
        }
        assert_eq!(seconds_of("2026-11-27T17:30:05Z"), Some(1_795_800_605));
        assert_eq!(seconds_of("1970-01-02"), Some(86_400));
        for bad in ["", "now", "2026-02-29", "2026-13-01", "2026-1-1 24:00", "1969-12-31", "1-1"] {
            assert_eq!(seconds_of(bad), None, "{bad}");
        }
    }

    #[test]
    fn minutes_have_dates() {
        let cases = [
            (0, "1970-01-01 00:00 UTC"),
            (951_782_399, "2000-02-28 23:59 UTC"),
            (951_782_400, "2000-02-29 00:00 UTC"),
            (1_795_800_659, "2026-11-27 17:30 UTC"),
            (4_107_542_400, "2100-03-01 00:00 UTC"),
        ];
        for (seconds, text) in cases {
            assert_eq!(minute_of(seconds), text);
        }
    }
}
