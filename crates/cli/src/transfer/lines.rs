//! Lines of a file with their number and offset, so that reading can stop and go on later.

use std::path::{Path, PathBuf};

use super::input::Input;
use crate::failure::{Failure, Result};

/// A longer line is an error, and a longer record is malformed: a missing line end or quote must
/// not take all memory.
pub const MOST_RECORD_BYTES: u64 = 1 << 30;

/// Reads a file line by line.
pub struct LineReader {
    input: Input,
    path: PathBuf,
    /// Of the next line.
    pub offset_bytes: u64,
    /// Lines read so far.
    pub line: u64,
}

impl LineReader {
    /// Opens a file or a pipe.
    pub fn open(path: &Path) -> Result<LineReader> {
        let input = Input::open(path).map_err(|error| Failure::file(path, "open", &error))?;
        Ok(LineReader { input, path: path.to_path_buf(), offset_bytes: 0, line: 0 })
    }

    /// Goes to a place where a line begins. In a stream that is not before the last mark.
    pub fn seek(&mut self, offset_bytes: u64, line: u64) -> Result<()> {
        let sought = self.input.seek(offset_bytes);
        sought.map_err(|error| Failure::file(&self.path, "seek", &error))?;
        (self.offset_bytes, self.line) = (offset_bytes, line);
        Ok(())
    }

    /// The next line begins a record: nobody goes back to before it.
    pub fn mark(&mut self) {
        self.input.mark();
    }

    /// Appends the next line with its end to `buffer`; `false` at the end of the file.
    pub fn next(&mut self, buffer: &mut Vec<u8>) -> Result<bool> {
        let read = self.input.read_line(MOST_RECORD_BYTES, buffer);
        let bytes = read.map_err(|error| Failure::file(&self.path, "read", &error))?;
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
