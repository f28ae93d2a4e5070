//! The bytes of a source: a file or a pipe, compressed or not. Not its lines (`lines.rs`).
//!
//! Compressed bytes are recognized by their first bytes, with which no line of a format begins. A
//! plain file can be read from any place. A pipe or compressed bytes cannot: their bytes are kept
//! from the beginning of the last record on, and reading can go back only that far.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use super::packing;

const BUFFER_BYTES: usize = 256 << 10;

/// Whether a source is standard input.
pub fn is_stdin(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// Whether a source is a regular file, which an import can read again.
pub fn is_file(path: &Path) -> bool {
    !is_stdin(path) && path.is_file()
}

/// See the module docs.
pub enum Input {
    File(BufReader<File>),
    Stream(Stream),
}

/// Bytes that can be read only once.
pub struct Stream {
    input: Box<dyn BufRead>,
    /// Whole lines from the beginning of the last record on, and where they begin.
    kept: Vec<u8>,
    kept_from: u64,
    /// The place in `kept` from which is read next; the end of `kept` if the input is read next.
    at: usize,
}

impl Input {
    /// Opens a source.
    pub fn open(path: &Path) -> io::Result<Input> {
        if is_file(path) {
            let mut file = BufReader::with_capacity(BUFFER_BYTES, File::open(path)?);
            return Ok(match packing::begins(file.fill_buf()?) {
                None => Input::File(file),
                Some(packing) => Input::Stream(Stream::new(packing.decode(file)?)),
            });
        }
        let reader: Box<dyn Read> = match is_stdin(path) {
            true => Box::new(io::stdin()),
            false => Box::new(File::open(path)?),
        };
        let mut reader = BufReader::with_capacity(BUFFER_BYTES, reader);
        // This waits until the first bytes are there.
        Ok(Input::Stream(Stream::new(match packing::begins(reader.fill_buf()?) {
            None => Box::new(reader),
            Some(packing) => packing.decode(reader)?,
        })))
    }

    /// Whether it is an uncompressed file, whose length is the length of its lines.
    pub fn is_plain_file(&self) -> bool {
        matches!(self, Input::File(_))
    }

    /// Appends the next line to `buffer`, but no more than this many bytes. Returns how many.
    pub fn read_line(&mut self, most: u64, buffer: &mut Vec<u8>) -> io::Result<u64> {
        match self {
            Input::File(file) => Ok(file.take(most).read_until(b'\n', buffer)? as u64),
            Input::Stream(stream) => stream.read_line(most, buffer),
        }
    }

    /// Frees the kept bytes of a stream: nobody will seek back beyond the beginning of the next
    /// line.
    pub fn mark(&mut self) {
        if let Input::Stream(stream) = self {
            stream.kept.drain(..stream.at);
            stream.kept_from += stream.at as u64;
            stream.at = 0;
        }
    }

    /// Goes back to a place where a line begins.
    pub fn seek(&mut self, offset_bytes: u64) -> io::Result<()> {
        match self {
            Input::File(file) => file.seek(SeekFrom::Start(offset_bytes)).map(drop),
            Input::Stream(stream) => stream.seek(offset_bytes),
        }
    }
}

impl Stream {
    fn new(input: Box<dyn BufRead>) -> Stream {
        Stream { input, kept: Vec::new(), kept_from: 0, at: 0 }
    }

    fn read_line(&mut self, most: u64, buffer: &mut Vec<u8>) -> io::Result<u64> {
        let before = buffer.len();
        if self.at < self.kept.len() {
            let mut kept = &self.kept[self.at..];
            kept.read_until(b'\n', buffer)?;
        } else {
            (&mut self.input).take(most).read_until(b'\n', buffer)?;
            self.kept.extend_from_slice(&buffer[before..]);
        }
        let bytes = buffer.len() - before;
        self.at += bytes;
        Ok(bytes as u64)
    }

    /// Goes back, at most to the beginning of the kept bytes.
    fn seek(&mut self, offset_bytes: u64) -> io::Result<()> {
        let at = offset_bytes.checked_sub(self.kept_from).map(|at| at as usize);
        self.at = at
            .filter(|at| *at <= self.kept.len())
            .ok_or_else(|| io::Error::other("a stream was to be read again"))?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_goes_back_to_the_last_record() {
        let mut stream = Input::Stream(Stream::new(Box::new(&b"one\ntwo\nthree\nfour"[..])));
        let line = |stream: &mut Input| {
            let mut buffer = Vec::new();
            stream.read_line(100, &mut buffer).expect("reads");
            String::from_utf8(buffer).expect("text")
        };
        assert_eq!(line(&mut stream), "one\n");
        stream.mark();
        assert_eq!((line(&mut stream), line(&mut stream)), ("two\n".into(), "three\n".into()));
        stream.seek(4).expect("the last record");
        assert_eq!(line(&mut stream), "two\n");
        stream.mark();
        assert!(stream.seek(4).is_err(), "forgotten");
        assert_eq!((line(&mut stream), line(&mut stream)), ("three\n".into(), "four".into()));
        assert!(stream.seek(100).is_err(), "there is no such place");
    }
}
