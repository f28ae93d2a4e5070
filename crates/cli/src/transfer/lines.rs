//! Lines of a file with their number and offset, so that reading can stop and go on later.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use crate::failure::{Failure, Result};

/// A longer line is an error, and a longer record is malformed: a missing line end or quote must
/// not take all memory.
pub const MOST_RECORD_BYTES: u64 = 1 << 30;

/// Reads a file line by line.
pub struct LineReader {
    input: BufReader<File>,
    path: PathBuf,
    /// Of the next line.
    pub offset_bytes: u64,
    /// Lines read so far.
    pub line: u64,
}

impl LineReader {
    /// Opens a file.
    pub fn open(path: &Path) -> Result<LineReader> {
        let file = File::open(path).map_err(|error| Failure::file(path, "open", &error))?;
        let input = BufReader::with_capacity(256 << 10, file);
        Ok(LineReader { input, path: path.to_path_buf(), offset_bytes: 0, line: 0 })
    }

    /// Goes to a place where a line begins.
    pub fn seek(&mut self, offset_bytes: u64, line: u64) -> Result<()> {
        let sought = self.input.seek(SeekFrom::Start(offset_bytes));
        sought.map_err(|error| Failure::file(&self.path, "seek", &error))?;
        (self.offset_bytes, self.line) = (offset_bytes, line);
        Ok(())
    }

    /// Appends the next line with its end to `buffer`; `false` at the end of the file.
    pub fn next(&mut self, buffer: &mut Vec<u8>) -> Result<bool> {
        let read = self.input.by_ref().take(MOST_RECORD_BYTES).read_until(b'\n', buffer);
        let bytes = read.map_err(|error| Failure::file(&self.path, "read", &error))? as u64;
        if bytes == MOST_RECORD_BYTES {
            let what = format!("line {} is longer than 1G", self.line + 1);
            return Err(Failure::usage(what, "is this the right file and --format?")
                .at(self.path.display()));
        }
        self.offset_bytes += bytes;
        self.line += u64::from(bytes > 0);
        Ok(bytes > 0)
    }
}

/// The line without its end.
pub fn trim_end(line: &[u8]) -> &[u8] {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    line.strip_suffix(b"\r").unwrap_or(line)
}
