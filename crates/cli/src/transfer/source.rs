//! Reads records from files: one reader per format, each with a position to go on from.

use std::fs;
use std::path::{Path, PathBuf};

use runstone::MAX_VALUE_BYTES;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::csv::{Fed, Parser};
use super::directory::{FileEntry, Skipped, Tree};
use super::jsonl::Fields;
use super::lines::{LineReader, MOST_RECORD_BYTES, trim_end};
use super::{BYTE_ORDER_MARK, Format, Malformed, Record, input, jsonl, tsv};
use crate::encoding::{from_hex, shown, to_hex};
use crate::failure::{Failure, Result};
use crate::output::amount;

/// How far a source was read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Position {
    /// Bytes read: of the file, or of the files of a directory.
    pub offset_bytes: u64,
    /// Lines read.
    pub line: u64,
    /// Directory, database: the last key, in hexadecimal.
    pub last_key: Option<String>,
    /// Directory: sum of the files up to there, see [`FileEntry::sum`]. Database: its fingerprint.
    #[serde(default)]
    pub sum: u64,
    /// Database: which of its column families it is in.
    #[serde(default)]
    pub part: usize,
}

/// A part of a source that has a keyspace of its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Part {
    /// The column family that it is.
    pub family: String,
    pub keyspace: String,
}

/// A record, or why there is none at this place.
pub type Item = std::result::Result<Record, Malformed>;

/// Something that yields records.
pub trait Source {
    /// The next one; `None` at the end.
    fn next(&mut self) -> Result<Option<Item>>;

    /// File and line of the last item; line 0 where there are no lines.
    fn place(&self) -> (String, u64);

    /// The position behind the last item.
    fn position(&self) -> Position;

    /// Goes on behind a position. `false`, and back at the start, if what lies before it has
    /// changed.
    fn resume(&mut self, position: &Position) -> Result<bool>;

    /// All bytes that will be read; 0 if that is not known.
    fn total_bytes(&self) -> u64;

    /// What was passed over.
    fn skipped(&self) -> Skipped {
        Skipped::default()
    }

    /// Its parts; none if all records go to one keyspace.
    fn parts(&self) -> Vec<Part> {
        Vec::new()
    }

    /// Goes to the begin of a part.
    fn turn_to(&mut self, _part: usize) {}
}

/// Opens a source. What is at `store`, paths without links, is no part of a directory.
pub fn open(
    path: &Path,
    format: Format,
    fields: &Fields,
    store: &[PathBuf],
) -> Result<Box<dyn Source>> {
    if path.canonicalize().is_ok_and(|found| store.contains(&found)) {
        let hint = "name another store to import into, or `runstone export` this one first";
        return Err(Failure::usage("the source is the store itself", hint).at(path.display()));
    }
    if format == Format::Dir {
        let tree = Tree::walk(path, store)?;
        let total_bytes = tree.bytes();
        let position = Position::default();
        return Ok(Box::new(DirectorySource { tree, next: 0, position, total_bytes }));
    }
    Ok(Box::new(FileSource::open(path, format, fields)?))
}

struct DirectorySource {
    tree: Tree,
    next: usize,
    position: Position,
    total_bytes: u64,
}

impl Source for DirectorySource {
    fn next(&mut self) -> Result<Option<Item>> {
        while let Some(file) = self.tree.files.get(self.next) {
            self.next += 1;
            let path = self.tree.path(&file.key);
            self.position.offset_bytes += file.bytes;
            self.position.last_key = Some(to_hex(&file.key));
            self.position.sum = file.sum(self.position.sum);
            if file.bytes > MAX_VALUE_BYTES {
                let what =
                    format!("the value has {} bytes; the most is {MAX_VALUE_BYTES}", file.bytes);
                let file = path.display().to_string();
                return Ok(Some(Err(Malformed { file, line: 0, what })));
            }
            match fs::read(&path) {
                Ok(value) => return Ok(Some(Ok(Record { key: file.key.clone(), value }))),
                Err(error) => self.tree.skipped.unreadable(&path, &error),
            }
        }
        Ok(None)
    }

    fn place(&self) -> (String, u64) {
        let last = self.next.checked_sub(1).and_then(|last| self.tree.files.get(last));
        let path = last.map_or(self.tree.root.clone(), |file| self.tree.path(&file.key));
        (path.display().to_string(), 0)
    }

    fn position(&self) -> Position {
        self.position.clone()
    }

    fn resume(&mut self, position: &Position) -> Result<bool> {
        let last = position.last_key.as_deref().and_then(|last| from_hex(last.as_bytes()).ok());
        let is_before = |file: &FileEntry| last.as_ref().is_some_and(|last| file.key <= *last);
        let next = self.tree.files.partition_point(is_before);
        let sum = self.tree.files[..next].iter().fold(0, |sum, file| file.sum(sum));
        if sum != position.sum {
            return Ok(false);
        }
        (self.next, self.position) = (next, position.clone());
        Ok(true)
    }

    fn total_bytes(&self) -> u64 {
        self.total_bytes
    }

    fn skipped(&self) -> Skipped {
        self.tree.skipped.clone()
    }
}

struct FileSource {
    path: PathBuf,
    lines: LineReader,
    /// Where the last record begins.
    line: u64,
    format: Format,
    fields: Fields,
    header: Vec<Vec<u8>>,
    /// CSV: the columns of key and value; without the latter the whole record is the value.
    columns: (usize, Option<usize>),
    buffer: Vec<u8>,
    total_bytes: u64,
    /// CSV: a record over several lines that is longer than this is malformed.
    most_record_bytes: u64,
}

impl Source for FileSource {
    fn next(&mut self) -> Result<Option<Item>> {
        loop {
            self.buffer.clear();
            self.lines.mark();
            let (offset_bytes, line) = (self.lines.offset_bytes, self.lines.line);
            if !self.lines.next(&mut self.buffer)? {
                return Ok(None);
            }
            if offset_bytes == 0 && self.buffer.starts_with(BYTE_ORDER_MARK) {
                self.buffer.drain(..BYTE_ORDER_MARK.len());
            }
            if trim_end(&self.buffer).is_empty() {
                continue;
            }
            self.line = line + 1;
            let parsed = match self.format {
                Format::Jsonl => jsonl::parse(&self.buffer, &self.fields),
                Format::Csv => {
                    let record = self.csv_record(offset_bytes, line)?;
                    record.and_then(|fields| self.pick(fields))
                }
                _ => tsv::parse(trim_end(&self.buffer)),
            };
            let (file, line) = self.place();
            return Ok(Some(parsed.map_err(|what| Malformed { file, line, what })));
        }
    }

    fn place(&self) -> (String, u64) {
        (self.path.display().to_string(), self.line)
    }

    fn position(&self) -> Position {
        let (offset_bytes, line) = (self.lines.offset_bytes, self.lines.line);
        Position { offset_bytes, line, ..Position::default() }
    }

    fn resume(&mut self, position: &Position) -> Result<bool> {
        self.lines.seek(position.offset_bytes, position.line)?;
        Ok(true)
    }

    fn total_bytes(&self) -> u64 {
        self.total_bytes
    }
}

impl FileSource {
    fn open(path: &Path, format: Format, fields: &Fields) -> Result<FileSource> {
        if path.is_dir() {
            return Err(
                Failure::usage("the source is a directory", "pass --format dir").at(path.display())
            );
        }
        // How much a pipe will bring is not known, nor what compressed bytes will come to.
        let is_plain = input::is_file(path) && !input::is_compressed(path);
        let metadata = is_plain.then(|| fs::metadata(path)).transpose();
        let metadata = metadata.map_err(|error| Failure::file(path, "read", &error))?;
        let mut source = FileSource {
            path: path.to_path_buf(),
            lines: LineReader::open(path)?,
            line: 0,
            format,
            fields: fields.clone(),
            header: Vec::new(),
            columns: (0, None),
            buffer: Vec::new(),
            total_bytes: metadata.map_or(0, |metadata| metadata.len()),
            most_record_bytes: MOST_RECORD_BYTES,
        };
        if format == Format::Csv {
            source.read_header()?;
        }
        Ok(source)
    }

    /// The record that begins with the line in the buffer. If a quote in it stays open beyond the
    /// largest record, or a later line of it is malformed, only the first line is lost, and reading
    /// goes on behind it.
    fn csv_record(
        &mut self,
        offset_bytes: u64,
        line: u64,
    ) -> Result<std::result::Result<Vec<Vec<u8>>, String>> {
        let first_bytes = self.buffer.len() as u64;
        let mut parser = Parser::default();
        let what = loop {
            match parser.feed(&self.buffer) {
                Fed::Record(fields) => return Ok(Ok(fields)),
                Fed::Malformed(what) if self.lines.line == line + 1 => return Ok(Err(what)),
                Fed::Malformed(what) => {
                    break format!(
                        "its quote goes on to line {}, which has {what}",
                        self.lines.line
                    );
                }
                Fed::More => {}
            }
            self.buffer.clear();
            if self.lines.offset_bytes - offset_bytes > self.most_record_bytes {
                break format!("a quote is not closed within {}", amount(self.most_record_bytes));
            }
            if !self.lines.next(&mut self.buffer)? {
                break "a quote is not closed".into();
            }
        };
        self.lines.seek(offset_bytes + first_bytes, line + 1)?;
        Ok(Err(what))
    }

    fn read_header(&mut self) -> Result<()> {
        let place = format!("{}:1", self.path.display());
        if !self.lines.next(&mut self.buffer)? {
            let hint = "the first line names the fields, such as key,value";
            return Err(Failure::usage("the file is empty", hint).at(&place));
        }
        if self.buffer.starts_with(BYTE_ORDER_MARK) {
            self.buffer.drain(..BYTE_ORDER_MARK.len());
        }
        let record = self.csv_record(0, 0)?;
        self.header = record.map_err(|what| {
            Failure::usage(format!("the header is malformed: {what}"), "see RFC 4180").at(&place)
        })?;
        let known: Vec<String> =
            self.header.iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect();
        let column = |name: &str| {
            if known.iter().filter(|known| *known == name).count() > 1 {
                let what = format!("the header has more than one field {name:?}");
                return Err(Failure::usage(what, "rename one of them").at(&place));
            }
            known.iter().position(|known| known == name).ok_or_else(|| {
                let what = format!("the header has no field {name:?}");
                let hint = format!("it has: {}; pass --key and --value", known.join(", "));
                Failure::usage(what, hint).at(&place)
            })
        };
        let key = column(self.fields.key.as_deref().unwrap_or("key"))?;
        let value = match (&self.fields.key, &self.fields.value) {
            (Some(_), None) => {
                // The whole record becomes the value, so every column must be there once.
                known.iter().try_for_each(|name| column(name).map(drop))?;
                None
            }
            (_, name) => Some(column(name.as_deref().unwrap_or("value"))?),
        };
        self.columns = (key, value);
        Ok(())
    }

    fn pick(&self, mut fields: Vec<Vec<u8>>) -> std::result::Result<Record, String> {
        let (wanted, found) = (self.header.len(), fields.len());
        if wanted != found {
            return Err(format!("{found} fields where the header has {wanted}"));
        }
        let (key, value) = self.columns;
        let value = match value {
            Some(value) => fields[value].clone(),
            None => self.whole_row(&fields)?,
        };
        Ok(Record { key: std::mem::take(&mut fields[key]), value })
    }

    fn whole_row(&self, fields: &[Vec<u8>]) -> std::result::Result<Vec<u8>, String> {
        let mut row = Map::new();
        for (name, field) in self.header.iter().zip(fields) {
            let text = (std::str::from_utf8(name), std::str::from_utf8(field));
            let (Ok(name), Ok(field)) = text else {
                let name = shown(name);
                return Err(format!("field {name} is no UTF-8; choose a field with --value"));
            };
            row.insert(name.to_string(), field.into());
        }
        Ok(Value::Object(row).to_string().into_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A quote that is never closed had the rest of the file in memory.
    #[test]
    fn a_quote_that_stays_open_for_long_is_none() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("x.csv");
        let lines: String = (0..100).map(|i| format!("k{i:02},v\n")).collect();
        fs::write(&path, format!("key,value\na,\"1\n2\"\n\"open,3\n{lines}")).expect("a file");
        let mut source =
            FileSource::open(&path, Format::Csv, &Fields::default()).expect("a header");
        source.most_record_bytes = 100;
        let mut next = || source.next().expect("readable").map(|item| (item, source.lines.line));
        let record = |key: &str, value: &str| Record { key: key.into(), value: value.into() };
        assert_eq!(next(), Some((Ok(record("a", "1\n2")), 3)));
        let (item, line) = next().expect("the line of the quote");
        let told = item.expect_err("it is not closed");
        assert_eq!((told.line, &*told.what), (4, "a quote is not closed within 100 bytes"));
        assert_eq!(line, 4, "reading goes on behind it");
        assert_eq!(next(), Some((Ok(record("k00", "v")), 5)));
        assert_eq!(std::iter::from_fn(next).count(), 99);
    }
}
