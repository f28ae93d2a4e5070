//! Writes files of sorted entries outside any store, for [`crate::Keyspace::ingest`]. Such a file
//! is a table (`table/builder.rs`) with a uid of its own, whose entries have no sequence numbers
//! yet.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use runstone_policy::shape::Shape;
use runstone_random::Random;
use runstone_storage::fork::Process;
use runstone_storage::{Category, PosixStorage, Storage};

use crate::callbacks::clock::{SystemClock, Watch};
use crate::error::{Error, Result};
use crate::keys::expiry::Expiry;
use crate::keys::{Kind, pack};
use crate::options::store::KeyspaceOptions;
use crate::table::builder::{TableBuilder, TableLayout};
use crate::wal::batch::check_sizes;

/// Makes a file of sorted entries that [`crate::Keyspace::ingest`] adds to any keyspace, in this or
/// any later release. No store is needed: files can be made on other machines, and many at once.
///
/// ```
/// # fn main() -> runstone::Result<()> {
/// # let dir = tempfile::tempdir().expect("a directory");
/// # let path = dir.path().join("fruits.sorted");
/// use runstone::{KeyspaceOptions, Options, SortedWriter, Store};
///
/// let mut writer = SortedWriter::create(&path, &KeyspaceOptions::default())?;
/// writer.put("apple", "red")?;
/// writer.delete("banana")?;
/// let file = writer.finish()?;
/// assert_eq!(file.entries, 2);
///
/// let store = Store::open(dir.path().join("store"), Options::default())?;
/// store.put("banana", "yellow")?;
/// assert_eq!(store.default_keyspace().ingest(&[&path])?, 2);
/// assert_eq!(store.get("apple")?.as_deref(), Some(&b"red"[..]));
/// assert!(store.get("banana")?.is_none());
/// # Ok(())
/// # }
/// ```
///
/// A file is complete once [`SortedWriter::finish`] has returned. A writer that is dropped earlier
/// removes its file.
#[derive(Debug)]
pub struct SortedWriter {
    storage: Arc<dyn Storage>,
    name: String,
    /// `None` once the file is finished.
    table: Option<TableBuilder>,
    last_key: Vec<u8>,
    entries: u64,
    /// The buffer for a value with its instant of expiry.
    expiring: Vec<u8>,
    /// The process that made the file.
    process: Process,
}

/// A complete file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SortedFile {
    /// The number of its entries, puts and deletes.
    pub entries: u64,
    /// Its length in bytes.
    pub bytes: u64,
}

impl SortedWriter {
    /// Makes a new file. It uses the options for the size, compression and layout of blocks and for
    /// the filter, as for the deepest level.
    ///
    /// # Errors
    /// If the file exists, the directory does not, or an option is out of range.
    pub fn create(path: impl AsRef<Path>, options: &KeyspaceOptions) -> Result<SortedWriter> {
        let (directory, name) = directory_and_name(path.as_ref())?;
        let storage = PosixStorage::open(directory, runstone_storage::Access::MustExist)?;
        SortedWriter::create_on(Arc::new(storage), name, options)
    }

    /// Makes a new file on a storage.
    ///
    /// # Errors
    /// Those of [`SortedWriter::create`].
    pub fn create_on(
        storage: Arc<dyn Storage>,
        name: &str,
        options: &KeyspaceOptions,
    ) -> Result<SortedWriter> {
        options.check()?;
        let mut layout = TableLayout::of_level(options, &Shape::default(), Shape::MAX_LEVELS - 1);
        layout.is_numbered_later = true;
        let file = storage.create(name, Category::Table).map_err(|error| match error.kind() {
            std::io::ErrorKind::AlreadyExists => Error::invalid(
                format!("{} exists", error.path),
                "choose another name, or remove the file if nobody needs it",
            ),
            _ => error.into(),
        })?;
        let table = Some(TableBuilder::outside(file, Random::from_entropy().draw(), layout));
        let name = name.to_string();
        let (last_key, expiring) = (Vec::new(), Vec::new());
        let process = Process::current();
        Ok(SortedWriter { storage, name, table, last_key, entries: 0, expiring, process })
    }

    /// Adds a value. Its key must be larger than all earlier keys, by their bytes. In a keyspace
    /// with `ttl_seconds` the value expires that long after its ingest.
    ///
    /// # Errors
    /// If the key does not ascend (the message names both keys), or a key or value is too long:
    /// then the entry is not added, and the writer can continue. If the disk is full.
    pub fn put(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.add(Kind::Put, key.as_ref(), value.as_ref())
    }

    /// Adds a value that expires `ttl` after now, by the clock of the system. Neither the time of
    /// the ingest nor the keyspace's `ttl_seconds` changes the instant.
    ///
    /// # Errors
    /// Those of [`SortedWriter::put`], and those of [`crate::Keyspace::put_with_ttl`].
    pub fn put_with_ttl(
        &mut self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        ttl: Duration,
    ) -> Result<()> {
        let at_ms = Watch::new(Arc::new(SystemClock)).after(ttl)?;
        self.add_expiring(key.as_ref(), value.as_ref(), at_ms)
    }

    /// Adds a value with an expiry such as [`crate::Keyspace::expiry`] returns. With
    /// [`Expiry::Never`] this is an ordinary put, which expires by the keyspace's `ttl_seconds`, if
    /// it has any. If the instant has passed when the file is ingested, the entry hides the earlier
    /// value of the key, as a delete does.
    ///
    /// # Errors
    /// Those of [`SortedWriter::put`], or if the instant is beyond the range of the clock.
    pub fn put_with_expiry(
        &mut self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        expiry: Expiry,
    ) -> Result<()> {
        match expiry.at_ms()? {
            None => self.put(key, value),
            Some(at_ms) => self.add_expiring(key.as_ref(), value.as_ref(), at_ms),
        }
    }

    /// Adds the deletion of a key, which hides the value that the keyspace has when the file is
    /// ingested.
    ///
    /// # Errors
    /// Those of [`SortedWriter::put`].
    pub fn delete(&mut self, key: impl AsRef<[u8]>) -> Result<()> {
        self.add(Kind::Delete, key.as_ref(), &[])
    }

    /// Completes the file and makes it and its name durable.
    ///
    /// # Errors
    /// If no entry was added. After an error the file is removed.
    pub fn finish(mut self) -> Result<SortedFile> {
        self.check_process()?;
        if self.entries == 0 {
            return Err(Error::invalid(
                format!("{} would have no entries", self.name),
                "add at least one, or make no file",
            ));
        }
        let Some(table) = self.table.take() else { unreachable!("only this takes it") };
        let written = table.finish().and_then(|table| {
            self.storage.sync_dir()?;
            Ok(SortedFile { entries: table.entries, bytes: table.bytes })
        });
        written.inspect_err(|_| self.remove())
    }

    fn add_expiring(&mut self, key: &[u8], value: &[u8], at_ms: u64) -> Result<()> {
        let mut expiring = std::mem::take(&mut self.expiring);
        expiring.clear();
        expiring.extend_from_slice(value);
        expiring.extend_from_slice(&at_ms.to_le_bytes());
        let added = self.add(Kind::ExpiringPut, key, &expiring);
        self.expiring = expiring;
        added
    }

    fn add(&mut self, kind: Kind, key: &[u8], value: &[u8]) -> Result<()> {
        self.check_process()?;
        check_sizes(key.len(), value.len())?;
        if self.entries > 0 && *key <= *self.last_key && !seeded!(SortedFilesUnsorted) {
            let (key, last) = (key.escape_ascii(), self.last_key.escape_ascii());
            return Err(Error::invalid(
                format!("key \"{key}\" does not come behind \"{last}\", the one before"),
                "add keys in ascending order of their bytes, each once",
            ));
        }
        let Some(table) = &mut self.table else { unreachable!("it is taken at the end") };
        table.add(key, pack(0, kind), value)?;
        self.last_key.clear();
        self.last_key.extend_from_slice(key);
        self.entries += 1;
        Ok(())
    }

    /// A fork has a copy of the writer, but the file belongs to the process that made it.
    fn check_process(&self) -> Result<()> {
        if self.process.is_current() { Ok(()) } else { Err(Error::OtherProcess) }
    }

    fn remove(&self) {
        // Part of the file may remain, but without a footer nobody mistakes it for a file of sorted
        // entries.
        let _ = self.storage.remove(&self.name);
    }
}

impl Drop for SortedWriter {
    fn drop(&mut self) {
        let is_unfinished = self.table.take().is_some();
        if is_unfinished && self.process.is_current() {
            self.remove();
        }
    }
}

/// The parts of a path that a storage needs.
pub(super) fn directory_and_name(path: &Path) -> Result<(&Path, &str)> {
    let name = path.file_name().and_then(|name| name.to_str()).ok_or_else(|| {
        let what = format!("{} is no name of a file in UTF-8", path.display());
        Error::invalid(what, "give the path of a file")
    })?;
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    Ok((parent.unwrap_or(Path::new(".")), name))
}
