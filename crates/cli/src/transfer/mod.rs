//! Moves records between stores and files (directories, JSON lines, CSV and TSV), and imports
//! databases of LevelDB and RocksDB. Not here: the store's own formats, which are the engine's.

pub mod ahead;
pub mod csv;
pub mod directory;
pub mod foreign;
pub mod input;
pub mod jsonl;
pub mod lines;
pub mod packing;
pub mod progress;
pub mod sink;
pub mod sorted;
pub mod source;
pub mod tsv;

use std::path::{Path, PathBuf};

use clap::ValueEnum;

use crate::failure::{Failure, Result};

/// Some programs begin a text with this mark, which is not part of the first record.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// How records are written in files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// A directory tree: relative path -> content.
    Dir,
    /// One JSON object per line.
    Jsonl,
    /// RFC 4180, with a header line.
    Csv,
    /// `key TAB value` per line, as `scan` prints them; a backslash begins an escape.
    Tsv,
}

/// The name of the field or column that says when an entry expires, in milliseconds since 1970. In
/// a line of tsv it is written in front of the number, because a third column may be anything.
pub const EXPIRES: &str = "expires_ms";

/// A key and its value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    pub key: Vec<u8>,
    pub value: Vec<u8>,
    /// When it expires, in milliseconds since 1970. It may have expired already.
    pub expires_ms: Option<u64>,
}

impl Record {
    /// A record that does not expire.
    pub fn new(key: Vec<u8>, value: Vec<u8>) -> Record {
        Record { key, value, expires_ms: None }
    }
}

/// Reads the instant at which an entry expires. An empty text means never.
fn parse_expiry(text: &[u8]) -> std::result::Result<Option<u64>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    let number = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
    let shown = crate::encoding::shown(text);
    number.map(Some).ok_or_else(|| {
        format!("{EXPIRES} is {shown}, not milliseconds since 1970; --drop-expiry passes it over")
    })
}

/// What is wrong with a record, and the line on which it begins; 0 if there are no lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Malformed {
    pub file: String,
    pub line: u64,
    pub what: String,
}

impl std::fmt::Display for Malformed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.file, self.what),
            line => write!(f, "{}:{line}: {}", self.file, self.what),
        }
    }
}

/// The format that was given, or that the path implies.
pub fn format_of(given: Option<Format>, path: &Path) -> Result<Format> {
    if given == Some(Format::Dir) && path.as_os_str() == "-" {
        let hint = "pass --format jsonl, csv or tsv; a directory of this name is ./-";
        return Err(Failure::usage("`-` is a pipe, and no directory", hint).at(path.display()));
    }
    if let Some(format) = given {
        return Ok(format);
    }
    if path.is_dir() || path.as_os_str().as_encoded_bytes().ends_with(b"/") {
        return Ok(Format::Dir);
    }
    let whole = without_partial(path);
    let inner = packing::named(&whole).map_or(whole.clone(), |_| whole.with_extension(""));
    let extension = inner.extension().map(|extension| extension.to_ascii_lowercase());
    match extension.as_ref().and_then(|extension| extension.to_str()) {
        Some("jsonl" | "ndjson") => Ok(Format::Jsonl),
        Some("csv") => Ok(Format::Csv),
        Some("tsv") => Ok(Format::Tsv),
        Some("json") => {
            let what = "a .json file holds one JSON value; jsonl is one object on each line";
            let hint = "pass --format jsonl if its lines are objects, or name it .jsonl; \
                        `jq -c '.[]' FILE` makes such lines of an array";
            Err(Failure::usage(what, hint).at(path.display()))
        }
        _ if path.as_os_str() == "-" => {
            let what = "`-` has no name that tells the format";
            let hint = "pass --format jsonl, csv or tsv";
            Err(Failure::usage(what, hint).at(path.display()))
        }
        _ => {
            let hint = "pass --format dir, jsonl, csv or tsv; a directory may also end with /";
            let what = "the format cannot be told from the name";
            Err(Failure::usage(what, hint).at(path.display()))
        }
    }
}

/// The name that an exported file would have if all of the store had been readable: see `sink.rs`.
fn without_partial(path: &Path) -> PathBuf {
    let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
    let number = extension.strip_prefix("partial-").unwrap_or("0");
    let is_partial = extension == "partial" || extension.starts_with("partial-");
    match is_partial && number.bytes().all(|byte| byte.is_ascii_digit()) {
        true => path.with_extension(""),
        false => path.to_path_buf(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_told_by_names() {
        let told = |name: &str| format_of(None, Path::new(name)).ok();
        assert_eq!(told("x.csv.partial"), Some(Format::Csv));
        assert_eq!(told("x.jsonl.gz.partial-12"), Some(Format::Jsonl));
        assert_eq!(told("x.tsv.zst"), Some(Format::Tsv));
        assert_eq!(told("x.csv.partial-of"), None);
        assert_eq!(told("x.partial"), None);
    }
}
