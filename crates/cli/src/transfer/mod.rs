//! Records between stores and files: directories, JSON lines, CSV and TSV; and from databases of
//! other stores. Not the store's own formats; those are the engine's.

pub mod ahead;
pub mod csv;
pub mod directory;
pub mod foreign;
pub mod input;
pub mod jsonl;
pub mod lines;
pub mod progress;
pub mod sink;
pub mod sorted;
pub mod source;
pub mod tsv;

use std::path::Path;

use clap::ValueEnum;

use crate::failure::{Failure, Result};

/// Some programs begin a text with it; it is no part of the first record.
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
    /// `key TAB value` per line, as `scan` prints them.
    Tsv,
}

/// A key and its value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    pub key: Vec<u8>,
    pub value: Vec<u8>,
}

/// What is wrong with a record, and the line it begins on; 0 where there are no lines.
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

/// The format that was given, or that the path tells.
pub fn format_of(given: Option<Format>, path: &Path) -> Result<Format> {
    if let Some(format) = given {
        return Ok(format);
    }
    if path.is_dir() || path.as_os_str().as_encoded_bytes().ends_with(b"/") {
        return Ok(Format::Dir);
    }
    let inner = if input::is_compressed(path) { path.with_extension("") } else { path.into() };
    let extension = inner.extension().map(|extension| extension.to_ascii_lowercase());
    match extension.as_ref().and_then(|extension| extension.to_str()) {
        Some("jsonl" | "ndjson") => Ok(Format::Jsonl),
        Some("csv") => Ok(Format::Csv),
        Some("tsv") => Ok(Format::Tsv),
        _ => {
            let hint = "pass --format dir, jsonl, csv or tsv; a directory may also end with /";
            let what = "the format cannot be told from the name";
            Err(Failure::usage(what, hint).at(path.display()))
        }
    }
}
