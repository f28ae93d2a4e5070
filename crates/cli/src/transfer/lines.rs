//! Lines of a file with their number and offset, so that reading can stop and resume later.

use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::input::Input;
use crate::failure::{Failure, Result};
use crate::interrupt;

/// A longer line is an error, and a longer record is malformed: a missing line end or quote must
/// not use up all memory.
pub const MOST_RECORD_BYTES: u64 = 1 << 30;

/// Lines between two checks for an interruption.
const LOOK_LINES: u64 = 1000;

/// Where a line begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    pub offset_bytes: u64,
    /// Lines before it.
    pub line: u64,
    /// A checksum over everything before it. Other builds compute the same sum.
    pub sum: u64,
}

/// Reads a file line by line.
pub struct LineReader {
    input: Input,
    path: PathBuf,
    /// The position of the next line.
    pub at: Place,
}

impl LineReader {
    /// Opens a file or a pipe.
    pub fn open(path: &Path) -> Result<LineReader> {
        let input = Input::open(path).map_err(|error| Failure::file(path, "open", &error))?;
        Ok(LineReader { input, path: path.to_path_buf(), at: Place::default() })
    }

    /// Goes back to a place that is not before the last mark.
    pub fn seek(&mut self, place: Place) -> Result<()> {
        let sought = self.input.seek(place.offset_bytes);
        sought.map_err(|error| Failure::file(&self.path, "seek", &error))?;
        self.at = place;
        Ok(())
    }

    /// Reads up to a place of an earlier run; `false` if the bytes before it have changed.
    pub fn read_up_to(&mut self, place: Place) -> Result<bool> {
        let mut buffer = Vec::new();
        while self.at.offset_bytes < place.offset_bytes {
            if self.at.line.is_multiple_of(LOOK_LINES) {
                interrupt::check()?;
            }
            buffer.clear();
            self.mark();
            if !self.next(&mut buffer)? {
                break;
            }
        }
        Ok(self.at == place)
    }

    /// Whether the reader reads an uncompressed file, whose length is the length of its lines.
    pub fn is_plain_file(&self) -> bool {
        self.input.is_plain_file()
    }

    /// Notes that the next line begins a record: nobody will seek back beyond its beginning.
    pub fn mark(&mut self) {
        self.input.mark();
    }

    /// Appends the next line with its end to `buffer`; `false` at the end of the file.
    pub fn next(&mut self, buffer: &mut Vec<u8>) -> Result<bool> {
        let read = self.input.read_line(MOST_RECORD_BYTES, buffer);
        let bytes = read.map_err(|error| Failure::file(&self.path, "read", &error))?;
        if bytes == MOST_RECORD_BYTES {
            let what = format!("line {} is longer than 1G", self.at.line + 1);
            return Err(Failure::usage(what, "is this the right file and --format?")
                .at(self.path.display()));
        }
        if bytes > 0 {
            let line = &buffer[buffer.len() - bytes as usize..];
            self.at.sum = xxh3_64_with_seed(line, self.at.sum);
            self.at.offset_bytes += bytes;
            self.at.line += 1;
        }
        Ok(bytes > 0)
    }
}

/// The line without its end.
pub fn trim_end(line: &[u8]) -> &[u8] {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    line.strip_suffix(b"\r").unwrap_or(line)
}
