//! Stores one value. Not for many: `import` writes those in batches.

use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use runstone::{Durability, MAX_VALUE_BYTES};
use runstone_kv::KvWrite;

use crate::arguments::{Encoding, KeyspaceArgument};
use crate::counters::{Counter, is_number};
use crate::entries::ttl;
use crate::failure::{Failure, Result};
use crate::opened::Entries;
use crate::transfer::Record;

/// Arguments of `put`.
#[derive(clap::Args)]
pub struct Put {
    /// The key.
    #[arg(allow_negative_numbers = true)]
    key: OsString,
    /// The value; on the command line `-` reads it from standard input, as it is.
    #[arg(required_unless_present = "file", allow_negative_numbers = true)]
    value: Option<OsString>,
    /// Take the value from a file, as it is.
    #[arg(long, value_name = "F", conflicts_with = "value")]
    file: Option<PathBuf>,
    /// Let it expire after this time, such as 90s, 15m, 24h or 7d; a bare number means seconds.
    #[arg(long, value_name = "TIME", value_parser = ttl::parse, allow_negative_numbers = true)]
    ttl: Option<Duration>,
    /// Wait until the value survives a power loss.
    #[arg(long)]
    sync: bool,
    #[command(flatten)]
    pub keyspace: KeyspaceArgument,
    #[command(flatten)]
    pub encoding: Encoding,
}

impl Put {
    /// Key and value. In the shell, which reads its commands from standard input, `-` is a value.
    pub fn entry(&self, has_stdin: bool) -> Result<Record> {
        let key = self.encoding.read(&self.key)?;
        let value = match (&self.value, &self.file) {
            (_, Some(path)) => read_file(path)?,
            (Some(value), None) if value == "-" && has_stdin => {
                let stdin = std::io::stdin().lock();
                read_value(Path::new("standard input"), stdin, 0, MAX_VALUE_BYTES)?
            }
            (value, None) => self.encoding.read(value.as_deref().unwrap_or_default())?,
        };
        Ok(Record::new(key, value))
    }

    pub fn write(&self, entries: &dyn Entries, entry: &Record) -> Result<()> {
        let durability = if self.sync { Durability::Sync } else { Durability::Buffered };
        self.check_counter(entries.counter(), &entry.value)?;
        match self.ttl {
            Some(ttl) => entries.put_with_ttl(entry, ttl, durability),
            None => {
                entries.write(&[KvWrite::Put { key: &entry.key, value: &entry.value }], durability)
            }
        }
    }
}

impl Put {
    /// Refuses a value to which no operand could be added, and a decimal number: as text, the
    /// number is not a counter or, if it has eight digits, a different counter.
    pub fn check_counter(&self, counter: Option<Counter>, value: &[u8]) -> Result<()> {
        let Some(counter) = counter else { return Ok(()) };
        let typed = self.value.as_deref().filter(|_| !self.encoding.hex).unwrap_or_default();
        let typed = typed.to_string_lossy();
        let outcome = match is_number(&typed) {
            true => Err(format!("the keyspace adds numbers, and {typed} would be put as a text")),
            false => counter.check(value),
        };
        outcome.map_err(|what| Failure::usage(what, Counter::hint(&typed)))
    }
}

fn read_file(path: &Path) -> Result<Vec<u8>> {
    let file = File::open(path);
    let found = file.and_then(|file| Ok((file.metadata()?.len(), file)));
    let (len, file) = found.map_err(|error| Failure::file(path, "read the value", &error))?;
    read_value(path, file, len, MAX_VALUE_BYTES)
}

/// Reads a value of this length, or of unknown length if `len` is 0. Reading stops beyond the
/// largest value, because a device may never end.
fn read_value(path: &Path, from: impl Read, len: u64, most: u64) -> Result<Vec<u8>> {
    let too_long = |len: String| {
        let what = format!("the value has {len} bytes; the most is {most}");
        Failure::usage(what, "store it in parts under several keys").at(path.display())
    };
    if len > most {
        return Err(too_long(len.to_string()));
    }
    let mut value = Vec::new();
    let read = from.take(most + 1).read_to_end(&mut value);
    read.map_err(|error| Failure::file(path, "read the value", &error))?;
    match value.len() as u64 > most {
        true => Err(too_long(format!("more than {most}"))),
        false => Ok(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Once, `put --file /dev/zero` read until there was no memory left.
    #[test]
    fn values_end_at_the_largest() {
        let read = |from: &[u8], len| read_value(Path::new("x"), from, len, 3);
        assert_eq!(read(b"abc", 3).ok(), Some(b"abc".to_vec()));
        let failed = read(b"abcd", 0).expect_err("it is too long");
        assert_eq!(failed.what, "the value has more than 3 bytes; the most is 3");
        assert!(read_value(Path::new("x"), std::io::repeat(0), 0, 3).is_err());
    }
}
