//! A whole database: its manifest, the contents of its logs, and its entries.

use std::collections::BTreeMap;
use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::batch::{self, Memory};
use crate::directory::Directory;
use crate::error::{Cause, Error, Fault, Result};
use crate::file::SourceFile;
use crate::keys::{Dialect, MOST_SEQ, parts};
use crate::log::LogReader;
use crate::manifest;
use crate::merge::{Merge, Pair, Sorted, Source, Unopened};
use crate::tombstones::{Tombstone, Tombstones};
use crate::version::{self, DEFAULT_FAMILY, Version};

/// The only key order that an import supports.
const BYTEWISE: &str = "leveldb.BytewiseComparator";

/// An open database. Other processes cannot open it for writing meanwhile.
#[derive(Debug)]
pub struct Database {
    dialect: Dialect,
    families: Vec<Family>,
    total_bytes: u64,
    fingerprint: u64,
    /// Held until the database is dropped.
    _lock: Option<File>,
}

#[derive(Debug)]
struct Family {
    name: String,
    levels: BTreeMap<u32, Vec<Placed>>,
    /// The entries from the logs.
    entries: Arc<Sorted>,
    tombstones: Vec<Tombstone>,
    /// The path that errors about log entries name.
    place: PathBuf,
}

/// A table with its bounds.
#[derive(Debug)]
struct Placed {
    table: version::Table,
    unopened: Unopened,
}

/// The keys of a family, each with its newest value.
pub struct Entries {
    merge: Merge,
    is_done: bool,
}

impl Database {
    /// Opens a database: reads its manifest and its logs, and finds its tables.
    pub fn open(path: &Path, dialect: Dialect) -> Result<Database> {
        let directory = Directory::read(path, dialect)?;
        let manifest = directory.manifest()?;
        let lock = directory.lock()?;
        // The directory is read again, since the owner may have changed it before the lock was
        // taken.
        let directory = Directory::read(path, dialect)?;
        let manifest = if lock.is_some() { directory.manifest()? } else { manifest };
        let (version, manifest_bytes) = read_manifest(&manifest, dialect)?;
        directory.check_dialect(version.is_of_rocksdb)?;
        check_comparators(&version, &manifest)?;
        let (mut memories, logs) = read_logs(&directory, &version, dialect)?;
        let mut hasher = DefaultHasher::new();
        (manifest.file_name(), manifest_bytes, &logs).hash(&mut hasher);
        let mut total_bytes = logs.values().sum();
        let mut families = Vec::new();
        for (number, family) in &version.families {
            let mut levels: BTreeMap<u32, Vec<Placed>> = BTreeMap::new();
            for (level, tables) in &family.levels {
                for table in tables.values() {
                    let placed = Placed::find(&directory, table)?;
                    total_bytes += table.bytes;
                    levels.entry(*level).or_default().push(placed);
                }
            }
            levels.values_mut().for_each(|tables| sort(tables));
            let Memory { entries, tombstones } = memories.remove(number).unwrap_or_default();
            let entries = Arc::new(entries.into_iter().collect());
            let (name, place) = (family.name.clone(), path.into());
            families.push(Family { name, levels, entries, tombstones, place });
        }
        families.sort_by_key(|family| family.name != DEFAULT_FAMILY);
        let fingerprint = hasher.finish();
        Ok(Database { dialect, families, total_bytes, fingerprint, _lock: lock })
    }

    /// Names of its column families, `default` first. LevelDB has only `default`.
    pub fn families(&self) -> impl ExactSizeIterator<Item = &str> {
        self.families.iter().map(|family| &family.name[..])
    }

    /// Bytes of tables and logs.
    pub fn total_bytes(&self) -> u64 {
        self.total_bytes
    }

    /// A fingerprint that changes with every write to the database.
    pub fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    /// The entries of a family after a key, or from the first on.
    ///
    /// # Panics
    ///
    /// If there are not that many families.
    pub fn entries(&self, family: usize, after: Option<&[u8]>) -> Result<Entries> {
        let Family { levels, entries, place, .. } = &self.families[family];
        let mut tombstones = self.families[family].tombstones.clone();
        let mut sources = vec![Source::memory(entries.clone(), place.clone(), after)];
        for (level, tables) in levels {
            if self.dialect == Dialect::RocksDb {
                for placed in tables {
                    tombstones.append(&mut placed.tombstones(self.dialect)?);
                }
            }
            let is_needed = |placed: &&Placed| {
                let largest = user(&placed.table.largest);
                after.is_none_or(|after| largest > after)
            };
            let needed = tables.iter().filter(is_needed).map(|placed| placed.unopened.clone());
            match level {
                0 => sources
                    .extend(needed.map(|table| Source::level(self.dialect, [table], owned(after)))),
                _ => sources.push(Source::level(self.dialect, needed, owned(after))),
            }
        }
        Ok(Entries { merge: Merge::new(sources, Tombstones::new(tombstones))?, is_done: false })
    }
}

impl Entries {
    /// Bytes of tables that were read so far.
    pub fn read_bytes(&self) -> u64 {
        self.merge.read_bytes()
    }
}

impl Iterator for Entries {
    type Item = Result<Pair>;

    /// The iterator ends after an error.
    fn next(&mut self) -> Option<Result<Pair>> {
        if self.is_done {
            return None;
        }
        let next = self.merge.next().transpose();
        self.is_done = !matches!(next, Some(Ok(_)));
        next
    }
}

impl Placed {
    fn find(directory: &Directory, table: &version::Table) -> Result<Placed> {
        let path = directory.table(table.number, table.path)?;
        if table.has_blobs {
            let what = "its values lie in blob files, which are not read here";
            let hint = "turn enable_blob_files off, compact with blob garbage collection, then \
                        import";
            return Err(Fault::unsupported(what, hint).at(path, None));
        }
        let found = std::fs::metadata(path).map_err(|error| Error::io(path, &error))?.len();
        if found != table.bytes {
            let what = format!("it has {found} bytes, and {} in the manifest", table.bytes);
            return Err(Fault::damaged(what).at(path, Some(found.min(table.bytes))));
        }
        let largest_seq = table.largest_seq.filter(|seq| *seq < MOST_SEQ);
        let unopened = Unopened { path: path.into(), bytes: table.bytes, largest_seq };
        Ok(Placed { table: table.clone(), unopened })
    }

    /// The range deletes of the table, cut at its bounds. Beyond the bounds, entries of deeper
    /// levels may be newer, and may have lost the sequence numbers that would prove this.
    fn tombstones(&self, dialect: Dialect) -> Result<Vec<Tombstone>> {
        let table = self.unopened.open(dialect)?;
        if let Some(name) = table.comparator()
            && name != BYTEWISE
        {
            return Err(other_order(name).at(table.path(), None));
        }
        let mut found = table.tombstones()?;
        let smallest = user(&self.table.smallest);
        let mut end = user(&self.table.largest).to_vec();
        // A bound with this sequence number marks the end of a range delete, and is not part of the
        // range.
        if parts(&self.table.largest).is_none_or(|parts| parts.seq != MOST_SEQ) {
            end.push(0);
        }
        for tombstone in &mut found {
            if tombstone.start.as_slice() < smallest {
                tombstone.start = smallest.to_vec();
            }
            if tombstone.end > end {
                tombstone.end.clone_from(&end);
            }
        }
        Ok(found)
    }
}

fn owned(key: Option<&[u8]>) -> Option<Vec<u8>> {
    key.map(<[u8]>::to_vec)
}

fn user(key: &[u8]) -> &[u8] {
    parts(key).map_or(key, |parts| parts.user)
}

/// Sorts the tables of a level by key.
fn sort(tables: &mut [Placed]) {
    tables.sort_by(|one, two| user(&one.table.smallest).cmp(user(&two.table.smallest)));
}

fn read_manifest(path: &Path, dialect: Dialect) -> Result<(Version, u64)> {
    let file = match SourceFile::open(path) {
        Err(error) if error.cause == Cause::Damaged => {
            let what = "CURRENT names this manifest, and it is missing";
            return Err(Error { what: what.into(), ..error });
        }
        opened => opened?,
    };
    let bytes = file.bytes;
    let mut reader = LogReader::new(file, dialect, 0)?;
    let mut version = Version::new();
    while let Some(record) = reader.next()? {
        let applied = manifest::edit(&record.bytes, dialect).and_then(|edit| version.apply(edit));
        applied.map_err(|fault| reader.file().fault(record.offset, fault))?;
    }
    Ok((version, bytes))
}

fn other_order(name: &str) -> Fault {
    let what = format!("its keys are in the order of {name}, not of their bytes");
    Fault::unsupported(what, "write its entries to a file in a program of yours, and import that")
}

fn check_comparators(version: &Version, manifest: &Path) -> Result<()> {
    for family in version.families.values() {
        match family.comparator.as_deref() {
            Some(BYTEWISE) => {}
            Some(name) => return Err(other_order(name).at(manifest, None)),
            None => {
                let what = "it names no order of keys: it is not whole";
                return Err(Fault::damaged(what).at(manifest, None));
            }
        }
    }
    Ok(())
}

type Logs = (BTreeMap<u32, Memory>, BTreeMap<u64, u64>);

/// The entries of each family in the logs in use, and the bytes of these logs by number.
fn read_logs(directory: &Directory, version: &Version, dialect: Dialect) -> Result<Logs> {
    let mut memories: BTreeMap<u32, Memory> = BTreeMap::new();
    memories.extend(version.families.keys().map(|family| (*family, Memory::default())));
    let mut bytes = BTreeMap::new();
    let oldest = version.families.values().map(|family| family.log_number).min().unwrap_or(0);
    let oldest = oldest.max(version.oldest_log);
    // The log that was cut short and, if it had an entry, the sequence number that the next entry
    // must have.
    let mut torn: Option<(PathBuf, Option<u64>)> = None;
    for (number, path) in &directory.logs {
        let is_previous = *number != 0 && *number == version.previous_log;
        if *number < oldest && !is_previous {
            continue;
        }
        let is_wanted = |family: &u32| {
            let found = version.families.get(family);
            found.is_some_and(|found| is_previous || *number >= found.log_number)
        };
        let mut wanted: BTreeMap<u32, &mut Memory> = BTreeMap::new();
        for (family, memory) in &mut memories {
            if is_wanted(family) {
                wanted.insert(*family, memory);
            }
        }
        let mut reader = LogReader::new(SourceFile::open(path)?, dialect, *number)?;
        bytes.insert(*number, reader.file().bytes);
        let mut next = torn.as_ref().and_then(|(_, next)| *next);
        while let Some(record) = reader.next()? {
            let numbers = batch::add(&record.bytes, dialect, &mut wanted);
            let numbers = numbers.map_err(|fault| reader.file().fault(record.offset, fault))?;
            if let Some((path, Some(next))) = torn.take()
                && next != numbers.first
            {
                let what = format!(
                    "the log is cut short, and the next one begins at entry {} instead of {next}",
                    numbers.first
                );
                return Err(Fault::damaged(what).at(&path, None));
            }
            next = Some(numbers.next);
        }
        if reader.is_torn() {
            torn = Some((path.clone(), next));
        }
    }
    Ok((memories, bytes))
}
