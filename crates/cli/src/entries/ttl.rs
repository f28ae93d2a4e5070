//! Shows when the value of a key expires.

use std::ffi::OsString;
use std::time::{Duration, SystemTime};

use runstone::Expiry;
use serde_json::json;

use crate::arguments::{Encoding, KeyspaceArgument};
use crate::failure::{Exit, Failure, Result};
use crate::opened::Entries;
use crate::output::{Output, note};

/// Arguments of `ttl`.
#[derive(clap::Args)]
pub struct Ttl {
    /// The key.
    #[arg(allow_negative_numbers = true)]
    key: OsString,
    #[command(flatten)]
    pub keyspace: KeyspaceArgument,
    #[command(flatten)]
    pub encoding: Encoding,
}

impl Ttl {
    /// Prints the seconds that are left, or `never`.
    pub fn run(&self, entries: &dyn Entries, output: &Output) -> Result<Exit> {
        let key = self.encoding.read(&self.key)?;
        let Some(expiry) = entries.expiry(&key)? else {
            let what = format!("key {} is absent", self.encoding.show(&key));
            if output.is_json {
                return Err(Failure::new(Exit::Different, what));
            }
            note(what);
            return Ok(Exit::Different);
        };
        let left = match expiry {
            Expiry::Never => None,
            Expiry::At(at) => Some(at.duration_since(SystemTime::now()).unwrap_or_default()),
        };
        let seconds = left.map(|left| left.as_secs_f64());
        match (output.is_json, seconds) {
            (true, seconds) => output.json(&json!({ "ttl_seconds": seconds }))?,
            (false, Some(seconds)) => output.line(format!("{seconds:.3}"))?,
            (false, None) => output.line("never")?,
        }
        Ok(Exit::Ok)
    }
}

/// How a time to live is written.
const HOW: &str = "write a whole number with ms, s, m, h or d, such as 90s, 15m or 7d";

/// Reads a time to live: seconds, or a number with `ms`, `s`, `m`, `h` or `d`.
pub fn parse(text: &str) -> std::result::Result<Duration, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let millis = match &text[digits.len()..] {
        "ms" => 1,
        "" | "s" => 1000,
        "m" => 60 * 1000,
        "h" => 3600 * 1000,
        "d" => 24 * 3600 * 1000,
        _ => return Err(HOW.into()),
    };
    let number: u64 = digits.parse().map_err(|_| HOW)?;
    let millis = number.checked_mul(millis).ok_or("it ends beyond the clock")?;
    Ok(Duration::from_millis(millis))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_to_live_have_units() {
        let seconds = |text| parse(text).map(|ttl| ttl.as_secs());
        assert_eq!(seconds("90"), Ok(90));
        assert_eq!(seconds("15m"), Ok(900));
        assert_eq!(seconds("2h"), Ok(7200));
        assert_eq!(seconds("7d"), Ok(604_800));
        assert_eq!(parse("5ms"), Ok(Duration::from_millis(5)));
        for bad in ["", "m", "-1", "1w", "1.5h", "99999999999999999d"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
