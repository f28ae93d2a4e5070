//! Ingests: the entries of files that [`crate::SortedWriter`] made become part of a keyspace, all
//! at once.
//!
//! 1. Each file is opened. Footer, properties and index are checked, and it must be a file of
//!    sorted entries. Files whose ranges overlap are refused.
//! 2. Their entries are passed, in key order, to a bulk load (`jobs/load.rs`). Each block is read
//!    once and its checksum is checked; each key must be larger than the key before it. The load
//!    writes tables as the keyspace would: with its block size, compression, filters and the cuts
//!    of its policy.
//! 3. The load is installed like any other: with one sequence number and one edit, at the deepest
//!    level above which nothing overlaps it.
//!
//! An error before step 3 leaves the keyspace as it was, and the files are never changed.
//!
//! Rejected: linking the files into the store. The maker of a file could write to it later, and its
//! checksums contain a uid that differs from those of the store's own tables. Also, the maker of a
//! file does not know where the policy of a keyspace cuts tables.

use std::path::Path;
use std::sync::Arc;

use runstone_storage::{Access as Open, PosixStorage, Storage};

use crate::cache::Cache;
use crate::error::{Error, Result};
use crate::jobs::load::Load;
use crate::keys::expiry::EXPIRY_BYTES;
use crate::keys::{Kind, kind_of};
use crate::store::keyspace::Keyspace;
use crate::store::sorted::directory_and_name;
use crate::table::iterator::{Access, TableIter};
use crate::table::reader::TableReader;

/// A cache for a few partitions of a file that is read from one end to the other.
const CACHE_BYTES: u64 = 8 << 20;

/// A file to ingest. The file is open only while it is checked and while it is read, so any number
/// of files needs only one open file at a time.
struct Source<'a> {
    /// The name of the file in errors.
    shown: String,
    open: Box<dyn Fn() -> Result<TableReader> + 'a>,
    first_key: Vec<u8>,
    last_key: Vec<u8>,
}

impl Keyspace {
    /// Stores the entries of files that a [`crate::SortedWriter`] made. All of them become visible
    /// and durable together when this returns. After an error or a crash before that, none of them
    /// is stored. Returns the number of entries, including deletes. The files are only read, and
    /// are not needed afterwards. O(bytes of the files).
    ///
    /// Entries with an expiry of their own expire at that instant. Other values expire by the
    /// keyspace's `ttl_seconds`, counted from now.
    ///
    /// Their keys may exist in the keyspace already, and other threads may write meanwhile, as
    /// during a [`Keyspace::bulk_load`].
    ///
    /// # Errors
    /// If a file cannot be read, is damaged, has a newer format, or is not a file of sorted
    /// entries, or if two files overlap. The message names the file. Otherwise those of
    /// [`Keyspace::bulk_load`].
    pub fn ingest<P: AsRef<Path>>(&self, files: &[P]) -> Result<u64> {
        let cache = Arc::new(Cache::new(CACHE_BYTES));
        let look = |path: &P| {
            let (path, cache) = (path.as_ref().to_path_buf(), Arc::clone(&cache));
            let shown = path.display().to_string();
            let open = move || {
                let (directory, name) = directory_and_name(&path)?;
                let storage = PosixStorage::open(directory, Open::ReadOnly)?;
                TableReader::inspect_file(&storage, name, 0, Arc::clone(&cache))
            };
            Source::look(shown, Box::new(open))
        };
        self.ingest_all(files.iter().map(look).collect::<Result<_>>()?)
    }

    /// Stores the entries of files on a storage, as [`Keyspace::ingest`] does.
    ///
    /// # Errors
    /// Those of [`Keyspace::ingest`].
    pub fn ingest_from(&self, storage: &dyn Storage, names: &[&str]) -> Result<u64> {
        let cache = Arc::new(Cache::new(CACHE_BYTES));
        let look = |name: &&str| {
            let (shown, name, cache) = (name.to_string(), name.to_string(), Arc::clone(&cache));
            let open = move || TableReader::inspect_file(storage, &name, 0, Arc::clone(&cache));
            Source::look(shown, Box::new(open))
        };
        self.ingest_all(names.iter().map(look).collect::<Result<_>>()?)
    }

    fn ingest_all(&self, mut sources: Vec<Source<'_>>) -> Result<u64> {
        self.inner.check_open()?;
        sources.sort_by(|one, two| one.first_key.cmp(&two.first_key));
        for pair in sources.windows(2) {
            if pair[1].first_key <= pair[0].last_key {
                let (one, two) = (&pair[0].shown, &pair[1].shown);
                let key = pair[1].first_key.escape_ascii();
                return Err(Error::invalid(
                    format!("{one} and {two} overlap at key \"{key}\", and neither is newer"),
                    "ingest them one after the other, the newer one last",
                ));
            }
        }
        let mut load = self.store.runner.begin_load(&self.inner)?;
        for source in &sources {
            source.add_to(&mut load)?;
        }
        load.finish(&self.store.checkpointing)
    }
}

impl<'a> Source<'a> {
    fn look(shown: String, open: Box<dyn Fn() -> Result<TableReader> + 'a>) -> Result<Source<'a>> {
        let reader = open().map_err(|error| named(&shown, error))?;
        let usable = [Kind::Put, Kind::Delete, Kind::ExpiringPut];
        let usable = usable.iter().fold(0, |all, kind| all | 1 << *kind as u8);
        let properties = reader.properties();
        if properties.is_numbered_later && properties.kinds & !usable == 0 {
            let (first_key, last_key) = (properties.min_key.clone(), properties.max_key.clone());
            return Ok(Source { shown, open, first_key, last_key });
        }
        Err(Error::invalid(
            format!("{shown} is a table of a store, not a file of sorted entries"),
            "read its store, and write what is wanted with a SortedWriter",
        ))
    }

    /// The load refuses a key that does not ascend, so a file that was replaced meanwhile is
    /// noticed.
    fn add_to(&self, load: &mut Load<'_>) -> Result<()> {
        let reader = Arc::new((self.open)().map_err(|error| named(&self.shown, error))?);
        let mut iter = TableIter::new(Arc::clone(&reader), Access::Sequential);
        let mut entries = 0;
        iter.seek_to_first().map_err(|error| named(&self.shown, error))?;
        while let Some(cursor) = iter.cursor().filter(|cursor| cursor.valid()) {
            let added = match Kind::from_u8(kind_of(cursor.trailer())) {
                Some(Kind::ExpiringPut) if cursor.value().len() < EXPIRY_BYTES => {
                    Err(reader.corrupt(0, "an entry that expires has no instant"))
                }
                Some(kind @ (Kind::Put | Kind::Delete | Kind::ExpiringPut)) => {
                    load.add(kind, cursor.key(), cursor.value())
                }
                _ => Err(reader.corrupt(0, "an entry is neither a put nor a delete")),
            };
            added.and_then(|()| iter.next()).map_err(|error| named(&self.shown, error))?;
            entries += 1;
        }
        if entries == reader.properties().entries {
            return Ok(());
        }
        Err(named(&self.shown, reader.corrupt(0, "it does not hold all of its entries")))
    }
}

/// Adds the name of the file to an error. A damaged file outside the store is reported as a wrong
/// argument, because the store is sound.
fn named(shown: &str, error: Error) -> Error {
    match error {
        Error::Corruption { offset, what, .. } => Error::invalid(
            format!("{shown} cannot be ingested: at byte {offset}, {what}"),
            "make the file again with a SortedWriter; nothing was stored",
        ),
        Error::NewerFormat { found, supported, .. } => {
            Error::NewerFormat { file: shown.to_string(), found, supported }
        }
        Error::InvalidArgument { what, hint } => {
            Error::InvalidArgument { what: format!("{shown}: {what}"), hint }
        }
        error => error,
    }
}
