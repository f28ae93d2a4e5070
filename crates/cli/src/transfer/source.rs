//! Reads records from files: one reader per format, each with a position to resume from.

use std::fs;
use std::path::{Path, PathBuf};

use runstone::MAX_VALUE_BYTES;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::csv::{Fed, Parser};
use super::directory::{FileEntry, Skipped, Tree};
use super::jsonl::{Fields, KeyKind};
use super::lines::{LineReader, MOST_RECORD_BYTES, Place, trim_end};
use super::{BYTE_ORDER_MARK, EXPIRES, Format, Malformed, Record, jsonl, parse_expiry, tsv};
use crate::encoding::{from_hex, shown, to_hex};
use crate::failure::{Failure, Result};
use crate::layout::plural;
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
    /// File: checksum of the part that was read. Directory: checksum of the files that were read,
    /// see [`FileEntry::sum`]. Database: its fingerprint.
    #[serde(default)]
    pub sum: u64,
    /// Jsonl: how keys were written.
    #[serde(default)]
    pub keys: Keys,
    /// Database: the column family of the key.
    #[serde(default)]
    pub part: usize,
}

/// The kinds of keys that occurred. JSON distinguishes `1` and `"1"`, and a store does not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Keys {
    literals: bool,
    like_literals: bool,
}

impl Keys {
    /// Notes the kind of a key. If both kinds occur, the second one is refused, because two keys
    /// would become one.
    fn note(&mut self, kind: KeyKind) -> std::result::Result<(), String> {
        let other = match kind {
            KeyKind::Text => return Ok(()),
            KeyKind::Literal if self.like_literals => "a text such as \"1\"",
            KeyKind::LikeLiteral if self.literals => "a number or another value such as 1",
            KeyKind::Literal => {
                self.literals = true;
                return Ok(());
            }
            KeyKind::LikeLiteral => {
                self.like_literals = true;
                return Ok(());
            }
        };
        Err(format!("keys before were {other}, and a store does not tell 1 from \"1\""))
    }
}

/// A part of a source that has a keyspace of its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Part {
    /// Its column family.
    pub family: String,
    pub keyspace: String,
}

/// A record, or the reason why there is none at this place.
pub type Item = std::result::Result<Record, Malformed>;

/// Something that yields records.
pub trait Source {
    /// The next one; `None` at the end.
    fn next(&mut self) -> Result<Option<Item>>;

    /// File and line of the last item; line 0 where there are no lines.
    fn place(&self) -> (String, u64);

    /// The position after the last item.
    fn position(&self) -> Position;

    /// Continues after a position. `false` if the bytes before it have changed; then the source
    /// cannot be used.
    fn resume(&mut self, position: &Position) -> Result<bool>;

    /// All bytes that will be read; 0 if that is not known.
    fn total_bytes(&self) -> u64;

    /// The skipped files.
    fn skipped(&self) -> Skipped {
        Skipped::default()
    }

    /// How many of the records contained escapes, which were undone.
    fn escaped(&self) -> u64 {
        0
    }

    /// Its parts; none if all records go to one keyspace.
    fn parts(&self) -> Vec<Part> {
        Vec::new()
    }

    /// Seeks the beginning of a part.
    fn turn_to(&mut self, _part: usize) {}
}

/// Opens a source. A directory is read without the files below `store`, whose links are resolved.
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
                Ok(value) => return Ok(Some(Ok(Record::new(file.key.clone(), value)))),
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

/// CSV: which columns are used.
#[derive(Clone, Copy, Debug, Default)]
struct Columns {
    key: usize,
    /// Without it the whole record is the value.
    value: Option<usize>,
    expires: Option<usize>,
}

struct FileSource {
    path: PathBuf,
    lines: LineReader,
    /// Where the last record begins.
    line: u64,
    format: Format,
    fields: Fields,
    header: Vec<Vec<u8>>,
    columns: Columns,
    keys: Keys,
    buffer: Vec<u8>,
    /// TSV: records with a backslash.
    escaped: u64,
    total_bytes: u64,
    /// CSV: a record over several lines that is longer than this is malformed.
    most_record_bytes: u64,
}

impl Source for FileSource {
    fn next(&mut self) -> Result<Option<Item>> {
        loop {
            self.buffer.clear();
            self.lines.mark();
            let start = self.lines.at;
            if !self.lines.next(&mut self.buffer)? {
                return Ok(None);
            }
            if start.offset_bytes == 0 {
                self.strip_mark()?;
            }
            if trim_end(&self.buffer).is_empty() {
                continue;
            }
            self.line = start.line + 1;
            let parsed = match self.format {
                Format::Jsonl => jsonl::parse(&self.buffer, &self.fields)
                    .and_then(|parsed| self.keys.note(parsed.key).map(|()| parsed.record)),
                Format::Csv => {
                    let record = self.csv_record(start)?;
                    record.and_then(|fields| self.pick(fields))
                }
                _ => {
                    self.escaped += u64::from(self.buffer.contains(&b'\\'));
                    tsv::parse(trim_end(&self.buffer), !self.fields.drop_expiry)
                }
            };
            let (file, line) = self.place();
            return Ok(Some(parsed.map_err(|what| Malformed { file, line, what })));
        }
    }

    fn place(&self) -> (String, u64) {
        (self.path.display().to_string(), self.line)
    }

    fn position(&self) -> Position {
        let Place { offset_bytes, line, sum } = self.lines.at;
        Position { offset_bytes, line, sum, keys: self.keys, ..Position::default() }
    }

    fn resume(&mut self, position: &Position) -> Result<bool> {
        self.keys = position.keys;
        let Position { offset_bytes, line, sum, .. } = *position;
        self.lines.read_up_to(Place { offset_bytes, line, sum })
    }

    fn escaped(&self) -> u64 {
        self.escaped
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
        let lines = LineReader::open(path)?;
        // The length of a pipe is not known, nor the length of compressed bytes once they are
        // unpacked.
        let metadata = lines.is_plain_file().then(|| fs::metadata(path)).transpose();
        let metadata = metadata.map_err(|error| Failure::file(path, "read", &error))?;
        let mut source = FileSource {
            path: path.to_path_buf(),
            lines,
            line: 0,
            format,
            fields: fields.clone(),
            header: Vec::new(),
            columns: Columns::default(),
            keys: Keys::default(),
            buffer: Vec::new(),
            total_bytes: metadata.map_or(0, |metadata| metadata.len()),
            escaped: 0,
            most_record_bytes: MOST_RECORD_BYTES,
        };
        match format {
            Format::Csv => source.read_header()?,
            Format::Jsonl => source.check_first_line()?,
            _ => {}
        }
        Ok(source)
    }

    /// For jsonl, reads the first line and returns to it. A first line without the fields is an
    /// error: otherwise every line would be reported as malformed, one by one.
    fn check_first_line(&mut self) -> Result<()> {
        let start = self.lines.at;
        self.lines.mark();
        self.lines.next(&mut self.buffer)?;
        self.strip_mark()?;
        let refusal = jsonl::refusal(&self.buffer, &self.fields);
        self.lines.seek(start)?;
        match refusal {
            Some((what, hint)) => {
                Err(Failure::usage(what, hint).at(format!("{}:1", self.path.display())))
            }
            None => Ok(()),
        }
    }

    /// The record that begins with the line in the buffer. If a quote in the record stays open
    /// beyond the size of the largest record, or a later line of the record is malformed, only the
    /// first line is lost, and reading continues after it.
    fn csv_record(&mut self, start: Place) -> Result<std::result::Result<Vec<Vec<u8>>, String>> {
        let behind_first = self.lines.at;
        let mut parser = Parser::default();
        let what = loop {
            match parser.feed(&self.buffer) {
                Fed::Record(fields) => return Ok(Ok(fields)),
                Fed::Malformed(what) if self.lines.at == behind_first => return Ok(Err(what)),
                Fed::Malformed(what) => {
                    break format!(
                        "its quote goes on to line {}, which has {what}",
                        self.lines.at.line
                    );
                }
                Fed::More => {}
            }
            self.buffer.clear();
            if self.lines.at.offset_bytes - start.offset_bytes > self.most_record_bytes {
                break format!("a quote is not closed within {}", amount(self.most_record_bytes));
            }
            if !self.lines.next(&mut self.buffer)? {
                break "a quote is not closed".into();
            }
        };
        self.lines.seek(behind_first)?;
        Ok(Err(what))
    }

    fn read_header(&mut self) -> Result<()> {
        let place = format!("{}:1", self.path.display());
        if !self.lines.next(&mut self.buffer)? {
            let hint = "the first line names the fields, such as key,value";
            return Err(Failure::usage("the file is empty", hint).at(&place));
        }
        self.strip_mark()?;
        let record = self.csv_record(Place::default())?;
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
                let how = match known.iter().any(|known| known.contains('\t')) {
                    true => "pass --format tsv if tabs part its fields, else --key and --value",
                    false => "pass --key and --value",
                };
                let hint = format!("it has: {}; {how}", known.join(", "));
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
        let is_own =
            value.is_some() && self.fields.value.as_deref().is_none_or(|name| name == "value");
        let has_expiry = known.iter().any(|known| known == EXPIRES);
        let expires = match is_own && has_expiry && !self.fields.drop_expiry {
            true => Some(column(EXPIRES)?),
            false => None,
        };
        self.columns = Columns { key, value, expires };
        Ok(())
    }

    /// Removes the byte order mark of UTF-8. A text of UTF-16 would be read as other bytes.
    fn strip_mark(&mut self) -> Result<()> {
        if self.buffer.starts_with(BYTE_ORDER_MARK) {
            self.buffer.drain(..BYTE_ORDER_MARK.len());
        }
        match self.buffer.starts_with(b"\xff\xfe") || self.buffer.starts_with(b"\xfe\xff") {
            true => Err(Failure::usage("the file is text in UTF-16", "convert it to UTF-8 first")
                .at(self.path.display())),
            false => Ok(()),
        }
    }

    fn pick(&self, mut fields: Vec<Vec<u8>>) -> std::result::Result<Record, String> {
        let (wanted, found) = (self.header.len(), fields.len());
        if wanted != found {
            let found = plural(found as u64, "field");
            return Err(format!("{found} where the header has {wanted}"));
        }
        let Columns { key, value, expires } = self.columns;
        let value = match value {
            Some(value) => fields[value].clone(),
            None => self.whole_row(&fields)?,
        };
        let expires_ms = expires.map_or(Ok(None), |expires| parse_expiry(&fields[expires]))?;
        Ok(Record { key: std::mem::take(&mut fields[key]), value, expires_ms })
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

    /// Once, a quote that is never closed brought the rest of the file into memory.
    #[test]
    fn a_quote_that_stays_open_for_long_is_none() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("x.csv");
        let lines: String = (0..100).map(|i| format!("k{i:02},v\n")).collect();
        fs::write(&path, format!("key,value\na,\"1\n2\"\n\"open,3\n{lines}")).expect("a file");
        let mut source =
            FileSource::open(&path, Format::Csv, &Fields::default()).expect("a header");
        source.most_record_bytes = 100;
        let mut next = || source.next().expect("readable").map(|item| (item, source.lines.at.line));
        let record = |key: &str, value: &str| Record::new(key.into(), value.into());
        assert_eq!(next(), Some((Ok(record("a", "1\n2")), 3)));
        let (item, line) = next().expect("the line of the quote");
        let told = item.expect_err("it is not closed");
        assert_eq!((told.line, &*told.what), (4, "a quote is not closed within 100 bytes"));
        assert_eq!(line, 4, "reading goes on behind it");
        assert_eq!(next(), Some((Ok(record("k00", "v")), 5)));
        assert_eq!(std::iter::from_fn(next).count(), 99);
    }
}
