//! The files of a database by name, its lock, and signs that a directory is a store of another
//! kind.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, fcntl_lock};
use rustix::io::Errno;

use crate::error::{Cause, Error, Fault, Result};
use crate::keys::Dialect;

/// More bytes than a `CURRENT` file ever has.
const MOST_CURRENT_BYTES: u64 = 4096;

/// The names in a directory, sorted by kind.
#[derive(Debug)]
pub struct Directory {
    pub path: PathBuf,
    dialect: Dialect,
    /// By number.
    pub logs: BTreeMap<u64, PathBuf>,
    tables: BTreeMap<u64, PathBuf>,
    has_ldb: bool,
    /// Whether there is an `IDENTITY` or `OPTIONS-N` file, which LevelDB does not write.
    has_options: bool,
    has_runstone: bool,
    has_current: bool,
}

impl Directory {
    pub fn read(path: &Path, dialect: Dialect) -> Result<Directory> {
        let name = dialect.name();
        let failed = |error: std::io::Error| match error.kind() {
            ErrorKind::NotFound => {
                Error::new(Cause::NotFound, path, "there is no such directory", "check the path")
            }
            ErrorKind::NotADirectory => {
                let what = format!("this is a file, and a {name} database is a directory");
                Error::new(Cause::NotFound, path, what, "name the directory that holds CURRENT")
            }
            _ => Error::io(path, &error),
        };
        let mut found = Directory {
            path: path.into(),
            dialect,
            logs: BTreeMap::new(),
            tables: BTreeMap::new(),
            has_ldb: false,
            has_options: false,
            has_runstone: false,
            has_current: false,
        };
        for entry in fs::read_dir(path).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name();
            found.add(&name.to_string_lossy());
        }
        Ok(found)
    }

    fn add(&mut self, name: &str) {
        self.has_current |= name == "CURRENT";
        self.has_options |= name == "IDENTITY" || name.starts_with("OPTIONS-");
        let Some((stem, extension)) = name.rsplit_once('.') else { return };
        let Ok(number) = stem.parse::<u64>() else { return };
        let path = self.path.join(name);
        match extension {
            "log" => drop(self.logs.insert(number, path)),
            "ldb" => {
                self.has_ldb = true;
                self.tables.insert(number, path);
            }
            // LevelDB tries the newer file name first.
            "sst" => drop(self.tables.entry(number).or_insert(path)),
            "manifest" | "wal" | "table" => self.has_runstone = true,
            _ => {}
        }
    }

    /// The manifest that `CURRENT` names.
    pub fn manifest(&self) -> Result<PathBuf> {
        let current = self.path.join("CURRENT");
        let name = self.dialect.name();
        if !self.has_current {
            let what = format!("there is no CURRENT: this is no {name} directory");
            let hint = match self.tables.is_empty() {
                true => "name the directory that holds CURRENT, MANIFEST-NUMBER and the tables",
                false => "the directory is not whole: copy all of its files",
            };
            return Err(Error::new(Cause::NotFound, &self.path, what, hint));
        }
        let mut text = String::new();
        let read = File::open(&current)
            .and_then(|file| file.take(MOST_CURRENT_BYTES).read_to_string(&mut text));
        if let Err(error) = read
            && error.kind() != ErrorKind::InvalidData
        {
            return Err(Error::io(&current, &error));
        }
        let named = text.strip_suffix('\n').unwrap_or("");
        let number = named.strip_prefix("MANIFEST-").and_then(|number| number.parse::<u64>().ok());
        if number.is_some() {
            return Ok(self.path.join(named));
        }
        if self.has_runstone {
            let what = format!("this is a Runstone store, not a {name} directory");
            let hint = "`runstone export` writes its records, `runstone checkpoint` copies it";
            return Err(Error::new(Cause::NotFound, &self.path, what, hint));
        }
        let hint = "restore it from a copy; an encrypted database must be copied out first";
        let what = "it names no manifest: it is damaged, or encrypted";
        Err(Error::new(Cause::Damaged, &current, what, hint))
    }

    /// The path of a table. An error names the path if the file is missing.
    pub fn table(&self, number: u64, path: u8) -> Result<&Path> {
        if let Some(found) = self.tables.get(&number) {
            return Ok(found);
        }
        let extension = match self.dialect {
            Dialect::LevelDb => "ldb",
            Dialect::RocksDb => "sst",
        };
        let missing = self.path.join(format!("{number:06}.{extension}"));
        let what = "the manifest names this table, and it is missing";
        let hint = match path {
            0 => "restore it from a copy",
            _ => "it lies in another directory of db_paths: copy it into this one",
        };
        Err(Error::new(Cause::Damaged, &missing, what, hint))
    }

    /// Refuses a directory of the other kind. `is_of_rocksdb`: whether its manifest is one of
    /// RocksDB.
    pub fn check_dialect(&self, is_of_rocksdb: bool) -> Result<()> {
        let is_rocksdb = is_of_rocksdb || self.has_options;
        match self.dialect {
            Dialect::LevelDb if is_rocksdb => {
                Err(crate::manifest::of_rocksdb().at(&self.path, None))
            }
            Dialect::RocksDb if !is_rocksdb => {
                let hint = "write leveldb: before its directory";
                let fault = Fault::unsupported("this is a LevelDB database", hint);
                Err(fault.at(&self.path, None))
            }
            _ => Ok(()),
        }
    }

    /// Locks out other processes for as long as the returned file is open. Fails if another process
    /// has the database open. A directory without a `LOCK` file, or one that cannot be locked, is
    /// read without a lock.
    pub fn lock(&self) -> Result<Option<File>> {
        let path = self.path.join("LOCK");
        let Ok(file) = File::open(&path) else { return Ok(None) };
        match fcntl_lock(&file, FlockOperation::NonBlockingLockShared) {
            Ok(()) => Ok(Some(file)),
            Err(Errno::AGAIN | Errno::ACCESS) => {
                let what = format!("another process has this {} open", self.dialect.name());
                let hint = "end it, or import a copy or checkpoint of the database";
                Err(Error::new(Cause::InUse, &self.path, what, hint))
            }
            Err(_) => Ok(None),
        }
    }
}
