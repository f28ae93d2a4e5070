//! Databases of LevelDB and RocksDB as sources. The crate `runstone-foreign` reads their files;
//! here the entries become records, with positions to resume from.

use std::ffi::OsStr;
use std::fs::{DirEntry, File};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use runstone_foreign::{Cause, Database, Dialect, Entries, Error};

use super::Record;
use super::source::{Item, Part, Position, Source};
use crate::encoding::{from_hex, to_hex};
use crate::failure::{Exit, Failure, Result};
use crate::nesting::names_manifest;

/// A source that is a database: `leveldb:DIR` or `rocksdb:DIR`. A path that looks like one is
/// written as `./leveldb:DIR`.
pub fn parse(source: &Path) -> Option<(Dialect, PathBuf)> {
    let bytes = source.as_os_str().as_bytes();
    [Dialect::LevelDb, Dialect::RocksDb].into_iter().find_map(|dialect| {
        let path = bytes.strip_prefix(dialect.scheme().as_bytes())?.strip_prefix(b":")?;
        Some((dialect, PathBuf::from(OsStr::from_bytes(path))))
    })
}

/// Refuses to import the files of a database as records, unless the user says so by `--format dir`.
pub fn refuse_directory(source: &Path) -> Result<()> {
    // In databases of LevelDB and RocksDB, and in stores, CURRENT names the file to read first.
    let mut current = [0; 128];
    let read = File::open(source.join("CURRENT")).and_then(|mut file| file.read(&mut current));
    let Ok(len) = read else { return Ok(()) };
    let (what, how) = if current.starts_with(b"MANIFEST-") {
        let scheme = dialect_of(source).scheme();
        (
            "the directory is a database of LevelDB or RocksDB",
            format!("import its entries: runstone import STORE {scheme}:{}", source.display()),
        )
    } else if names_manifest(&current[..len]) {
        (
            "the directory is a store of Runstone",
            format!(
                "export its entries, or `runstone checkpoint {} TARGET` to copy it",
                source.display()
            ),
        )
    } else {
        return Ok(());
    };
    let hint = format!("{how}; --format dir stores its files as they are");
    Err(Failure::usage(what, hint).at(source.display()))
}

/// RocksDB has files of options, which LevelDB does not have.
fn dialect_of(source: &Path) -> Dialect {
    let is_of_rocks = |entry: std::io::Result<DirEntry>| {
        let name = entry.map(|entry| entry.file_name()).unwrap_or_default();
        let name = name.as_encoded_bytes();
        name.starts_with(b"OPTIONS-") || name.ends_with(b".sst") || name == b"IDENTITY"
    };
    match source.read_dir().is_ok_and(|mut entries| entries.any(is_of_rocks)) {
        true => Dialect::RocksDb,
        false => Dialect::LevelDb,
    }
}

/// Which families are imported, and to which keyspace.
pub struct Choice<'a> {
    /// The one column family that the user wants.
    pub family: Option<&'a str>,
    /// The keyspace that was named.
    pub keyspace: Option<&'a str>,
}

/// Opens a database.
pub fn open(dialect: Dialect, path: &Path, choice: &Choice<'_>) -> Result<Box<dyn Source>> {
    if path.as_os_str().is_empty() {
        let what = format!("{}: names no directory", dialect.scheme());
        return Err(Failure::usage(what, format!("write {}:DIR", dialect.scheme())));
    }
    let database = Database::open(path, dialect).map_err(failed)?;
    let parts = parts(&database, choice).map_err(|failure| failure.at(path.display()))?;
    let total_bytes = database.total_bytes();
    let mut source = DatabaseSource {
        database,
        path: path.into(),
        parts,
        entries: None,
        position: Position::default(),
        before_bytes: 0,
        total_bytes,
    };
    source.turn_to(0);
    Ok(Box::new(source))
}

/// The families that the user wants, each with its number in the database.
fn parts(database: &Database, choice: &Choice<'_>) -> Result<Vec<(usize, Part)>> {
    let names: Vec<String> = database.families().map(str::to_string).collect();
    let is_wanted = |name: &String| choice.family.is_none_or(|family| family == name);
    let wanted: Vec<(usize, &String)> =
        names.iter().enumerate().filter(|(_, name)| is_wanted(name)).collect();
    let listed = || names.join(", ");
    if let (Some(family), true) = (choice.family, wanted.is_empty()) {
        let what = format!("the database has no column family {family}");
        return Err(Failure::usage(what, format!("it has: {}", listed())));
    }
    if choice.keyspace.is_some() && wanted.len() > 1 {
        let what = "the database has several column families, and one keyspace is named";
        let hint = format!("leave out --keyspace, or name one by --family: {}", listed());
        return Err(Failure::usage(what, hint));
    }
    let part = |(number, name): (usize, &String)| {
        let keyspace = choice.keyspace.unwrap_or(name).to_string();
        (number, Part { family: name.clone(), keyspace })
    };
    Ok(wanted.into_iter().map(part).collect())
}

struct DatabaseSource {
    database: Database,
    path: PathBuf,
    /// The parts, each with the number of its family.
    parts: Vec<(usize, Part)>,
    /// The entries of the part at the position, once they are read.
    entries: Option<Entries>,
    position: Position,
    /// Bytes that were read before these entries were opened.
    before_bytes: u64,
    total_bytes: u64,
}

impl Source for DatabaseSource {
    fn next(&mut self) -> Result<Option<Item>> {
        let entries = match &mut self.entries {
            Some(entries) => entries,
            none => {
                let (family, _) = self.parts[self.position.part];
                let after = self.position.last_key.as_deref();
                let after = after.and_then(|after| from_hex(after.as_bytes()).ok());
                none.insert(self.database.entries(family, after.as_deref()).map_err(failed)?)
            }
        };
        let next = entries.next();
        self.position.offset_bytes = self.before_bytes + entries.read_bytes();
        let Some(pair) = next else { return Ok(None) };
        let (key, value) = pair.map_err(failed)?;
        self.position.last_key = Some(to_hex(&key));
        Ok(Some(Ok(Record::new(key, value))))
    }

    fn place(&self) -> (String, u64) {
        (self.path.display().to_string(), 0)
    }

    fn position(&self) -> Position {
        self.position.clone()
    }

    /// `false` if the database was written to since: the imported part may have
    /// changed.
    fn resume(&mut self, position: &Position) -> Result<bool> {
        if position.sum != self.database.fingerprint() || position.part >= self.parts.len() {
            return Ok(false);
        }
        self.entries = None;
        self.position = position.clone();
        self.before_bytes = position.offset_bytes;
        Ok(true)
    }

    fn total_bytes(&self) -> u64 {
        self.total_bytes
    }

    fn parts(&self) -> Vec<Part> {
        self.parts.iter().map(|(_, part)| part.clone()).collect()
    }

    fn turn_to(&mut self, part: usize) {
        self.entries = None;
        self.before_bytes = self.position.offset_bytes;
        let (offset_bytes, sum) = (self.before_bytes, self.database.fingerprint());
        self.position = Position { offset_bytes, sum, part, ..Position::default() };
    }
}

fn failed(error: Error) -> Failure {
    let exit = match error.cause {
        Cause::NotFound => Exit::Usage,
        Cause::InUse | Cause::Unsupported => Exit::CannotOpen,
        Cause::Damaged => Exit::Damaged,
        Cause::Io => Exit::Io,
    };
    Failure::new(exit, &error.what).at(error.place()).hint(&error.hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schemes() {
        let parsed = |text: &str| parse(Path::new(text));
        assert_eq!(parsed("leveldb:a/b"), Some((Dialect::LevelDb, "a/b".into())));
        assert_eq!(parsed("rocksdb:"), Some((Dialect::RocksDb, "".into())));
        for path in ["./leveldb:a", "leveldb", "leveldb/a", "-", "LEVELDB:a"] {
            assert_eq!(parsed(path), None, "{path}");
        }
    }
}
