//! Backups of stores in a directory of their own.
//!
//! ```text
//! BACKUPS         which store the backups are of
//! NNNNNN.table    a table, shared by all backups that need it
//! NNNNNN.pack     what a backup added: log, and segments of values
//! NNNNNN.backup   one backup: what it consists of, and the state of the store
//! NNNNNN.archive  what was committed since, change by change ([`archive`])
//! ```
//!
//! 1. A backup takes a cut of the store's files (`follow/cut.rs`): no flush, and no lock that a
//!    writer could wait for.
//! 2. It copies the tables that the directory lacks, each under another name first, so that a name
//!    that ends in `.table` always belongs to a whole and durable file.
//! 3. It writes a pack: the log, and the segments of values that no earlier pack has.
//! 4. The file that describes it is written last, and renamed: a backup exists if and only if that
//!    file exists. A crash leaves earlier backups as they were, and the next backup uses the files
//!    that the crash left.
//!
//! A change of the directory first makes the file `BACKUPS.part`, and removes it at the end. If the
//! file is still there, a change was interrupted, and the next change looks for files that no
//! backup needs. So a backup reads only the descriptions of earlier backups whose files it may use,
//! however many backups there are. If that search finds a damaged description, `BACKUPS.part`
//! stays: nobody knows which files that backup needs.
//!
//! A table is the same as that of an earlier backup if their numbers and footers are equal, because
//! the footer has a hash of the whole table. If they differ, or on request, the copy is read. If
//! the copy is damaged, the table is copied again. A segment of values is the same as an earlier
//! one if its description and its last bytes are equal, because segments grow and slots are reused.
//! Segments of a backup of another history are compared as a whole.

pub(crate) mod archive;
mod archived;
mod create;
pub(crate) mod deep;
mod format;
mod overlay;
mod prune;
mod restore;
pub(crate) mod restore_to;

use std::path::Path;
use std::sync::Arc;

use runstone_storage::{Access, Category, FileInfo, LockMode, PosixStorage, Storage, StorageLock};

use crate::error::{Error, Result};
use crate::keys::SeqNo;
use crate::log::number_in;
use crate::options::store::{LEAST_RATE_BYTES, Options};
use crate::pace::io_rate::IoRate;
use crate::store::changes::Position;
use crate::store::verify::Damage;
use format::Description;

/// The file that says to which store the backups in a directory belong.
const MARKER: &str = "BACKUPS";

fn backup_name(number: u64) -> String {
    format!("{number:06}.backup")
}

fn pack_name(number: u64) -> String {
    format!("{number:06}.pack")
}

/// A directory of backups of one store.
///
/// ```
/// # fn main() -> runstone::Result<()> {
/// # let dir = tempfile::tempdir().expect("a directory");
/// use runstone::{Backups, Options, Store};
///
/// let store = Store::open(dir.path().join("store"), Options::default())?;
/// store.put("key", "old")?;
/// // Usually in another process, every night.
/// let backups = Backups::open(dir.path().join("backups"))?;
/// let made = backups.create(dir.path().join("store"))?;
/// store.put("key", "new")?;
/// backups.create(dir.path().join("store"))?;
///
/// backups.restore(made.number, dir.path().join("restored"))?;
/// let restored = Store::open(dir.path().join("restored"), Options::default())?;
/// assert_eq!(restored.get("key")?.as_deref(), Some(&b"old"[..]));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Backups {
    storage: Arc<dyn Storage>,
    /// The limit on bytes copied and read in a second.
    rate: Arc<IoRate>,
    checks_copies: bool,
    /// The options with which stores of backups are opened.
    store: Options,
}

/// A backup.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BackupInfo {
    /// Its number. Later backups have larger numbers.
    pub number: u64,
    /// When it was made, in milliseconds since 1970, by the clock of the machine.
    pub time_ms: u64,
    /// The sequence number of the last write in it.
    pub last_seq: SeqNo,
    /// The number of its tables.
    pub tables: u64,
    /// The number of its segments of values.
    pub value_segments: u64,
    /// Bytes that a restore writes.
    pub bytes: u64,
    /// Bytes that it added to the directory when it was made.
    pub added_bytes: u64,
    /// Tables that it copied again because their earlier copies were missing or damaged; 0 in a
    /// list. See [`Backups::check_copies`].
    pub copied_again: u64,
}

/// A part of an archive without a gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ArchiveInfo {
    /// The part has every change after this sequence number.
    pub from_seq: SeqNo,
    /// Its end.
    pub through: Position,
    /// The first time that it records, in milliseconds since 1970.
    pub from_ms: Option<u64>,
    /// The last time that it records.
    pub through_ms: Option<u64>,
    /// Bytes of its files.
    pub bytes: u64,
}

impl Backups {
    /// Opens a directory of backups. A new or empty directory becomes one.
    ///
    /// # Errors
    /// [`Error::ForeignFiles`] if it contains anything else, such as a store; or a storage error.
    pub fn open(path: impl AsRef<Path>) -> Result<Backups> {
        let storage = PosixStorage::open(path.as_ref(), Access::CreateIfMissing)?;
        Backups::open_on(Arc::new(storage))
    }

    /// Does the same for a directory that must already exist.
    ///
    /// # Errors
    /// If it does not exist, or contains no backups.
    pub fn open_existing(path: impl AsRef<Path>) -> Result<Backups> {
        let storage = PosixStorage::open(path.as_ref(), Access::MustExist)?;
        let backups = Backups::open_on(Arc::new(storage))?;
        if backups.uid()?.is_none() {
            return Err(Error::invalid(
                format!("{} holds no backups", path.as_ref().display()),
                "check the path; `runstone backup create STORE DIR` makes the first",
            ));
        }
        Ok(backups)
    }

    /// Does the same as [`Backups::open`] on a storage.
    ///
    /// # Errors
    /// Those of [`Backups::open`].
    pub fn open_on(storage: Arc<dyn Storage>) -> Result<Backups> {
        let rate = Arc::new(IoRate::new(None));
        let backups = Backups { storage, rate, checks_copies: false, store: Options::default() };
        let foreign = backups.storage.list()?.into_iter().find(|file| !is_own(&file.name));
        match foreign.filter(|_| backups.uid().is_ok_and(|uid| uid.is_none())) {
            Some(foreign) => {
                Err(Error::ForeignFiles { path: backups.storage.location(), example: foreign.name })
            }
            None => Ok(backups),
        }
    }

    /// Limits the bytes that are copied and read in a second from now on, by backups, archives,
    /// checks and restores together. If a backup or archive is slower than the changes of the
    /// store, it keeps the store from removing files, up to `follower_keep_bytes` and
    /// `follower_keep_seconds`.
    ///
    /// # Errors
    /// If the rate is below 16 KiB.
    pub fn rate(self, bytes_per_second: u64) -> Result<Backups> {
        if bytes_per_second < LEAST_RATE_BYTES {
            let what = format!("a backup of {bytes_per_second} bytes a second would not end");
            return Err(Error::invalid(what, format!("use {LEAST_RATE_BYTES} or more")));
        }
        self.rate.set(Some(bytes_per_second));
        Ok(self)
    }

    /// Sets whether [`Backups::create`] reads the whole of each earlier copy that the new backup
    /// needs, and copies a table again if its copy is damaged. This repairs the tables of earlier
    /// backups, as long as the store still has these tables. By default, it compares only the ends
    /// of the copies, which finds missing and truncated copies.
    #[must_use]
    pub fn check_copies(self, checks_copies: bool) -> Backups {
        Backups { checks_copies, ..self }
    }

    /// Sets the options with which [`Backups::restore_to`], [`Backups::verify_deep`] and
    /// [`Backups::verify_archive_deep`] open a store: what programs register, such as prefix
    /// extractors and merge operators, and the memory budget.
    #[must_use]
    pub fn store(self, store: Options) -> Backups {
        Backups { store, ..self }
    }

    /// All backups whose description is whole, the oldest first; see [`Backups::damaged`].
    ///
    /// # Errors
    /// A storage error.
    pub fn list(&self) -> Result<Vec<BackupInfo>> {
        let mut all = Vec::new();
        self.each(self.numbers()?, |one| {
            all.push(one.info());
            Ok(true)
        })?;
        Ok(all)
    }

    /// The backups that cannot be restored because their description is damaged, and what is wrong
    /// with it. While there is such a backup, no file is removed as unneeded.
    ///
    /// # Errors
    /// A storage error.
    pub fn damaged(&self) -> Result<Vec<(u64, String)>> {
        self.each(self.numbers()?, |_| Ok(true))
    }

    /// The parts of the archive without a gap, the oldest first. O(its bytes).
    ///
    /// # Errors
    /// [`Error::Corruption`] if a part is damaged; or a storage error.
    pub fn archives(&self) -> Result<Vec<ArchiveInfo>> {
        Ok(archived::chains(&*self.storage)?.iter().map(archived::Chain::info).collect())
    }

    /// Reads the archive and checks it. Returns the damage. A power loss may have left the end of a
    /// file incomplete; this is not damage.
    ///
    /// # Errors
    /// A storage error.
    pub fn verify_archives(&self) -> Result<Vec<Damage>> {
        archived::verify(&*self.storage)
    }

    fn lock(&self) -> Result<Box<dyn StorageLock>> {
        let lock = self.storage.lock(LOCK, LockMode::Exclusive)?;
        lock.ok_or_else(|| Error::InUse {
            path: self.storage.location(),
            process: self.storage.lock_holder(LOCK),
        })
    }

    /// The uid of the store that the backups are of; `None` in a new directory.
    fn uid(&self) -> Result<Option<u64>> {
        let file = match self.storage.open(MARKER, Category::Other) {
            Err(error) if error.is_not_found() => return Ok(None),
            file => file?,
        };
        let bytes = file.read_vec(0, usize::try_from(file.len()?.min(64)).unwrap_or(64))?;
        let uid = format::take_marker(&bytes);
        uid.map(Some).ok_or_else(|| Error::corruption(MARKER, 0, "it does not verify"))
    }

    /// The numbers of all backups, whole or damaged, ascending.
    fn numbers(&self) -> Result<Vec<u64>> {
        Ok(numbers(&self.storage.list()?, "backup"))
    }

    /// Passes the undamaged descriptions of these backups to `see`, one after another, until it
    /// returns `false`. Returns the damaged descriptions found on the way. A description names all
    /// tables of a store, and there may be 10,000 backups, so memory holds one description at a
    /// time.
    fn each(
        &self,
        numbers: impl IntoIterator<Item = u64>,
        mut see: impl FnMut(Description) -> Result<bool>,
    ) -> Result<Vec<(u64, String)>> {
        let mut damaged = Vec::new();
        for number in numbers {
            match self.find_description(number) {
                Ok(Some(one)) => {
                    if !see(one)? {
                        break;
                    }
                }
                // The backup was pruned after the directory was listed.
                Ok(None) => {}
                Err(Error::Corruption { what, .. }) => damaged.push((number, what)),
                Err(error) => return Err(error),
            }
        }
        Ok(damaged)
    }

    fn description(&self, number: u64) -> Result<Description> {
        self.find_description(number)?.ok_or_else(|| {
            Error::invalid(
                format!("there is no backup {number}"),
                "list the backups to see which there are",
            )
        })
    }

    /// The description of a backup; `None` if there is no such backup.
    fn find_description(&self, number: u64) -> Result<Option<Description>> {
        let name = backup_name(number);
        let file = match self.storage.open(&name, Category::Other) {
            Err(error) if error.is_not_found() => return Ok(None),
            file => file?,
        };
        let bytes = file.read_vec(0, usize::try_from(file.len()?).unwrap_or(usize::MAX))?;
        let described = Description::decode(number, &bytes);
        described.map(Some).map_err(|what| Error::corruption(name, 0, what))
    }
}

/// The numbers in the names of files of one kind, ascending.
fn numbers(files: &[FileInfo], kind: &str) -> Vec<u64> {
    let numbers = files.iter().filter_map(|file| number_in(&file.name, kind));
    let mut numbers: Vec<u64> = numbers.collect();
    numbers.sort_unstable();
    numbers
}

/// The lock of the process that changes the directory.
const LOCK: &str = "LOCK";

fn is_own(name: &str) -> bool {
    let plain = name.strip_suffix(".part").unwrap_or(name);
    let numbered =
        ["table", "pack", "backup", "archive"].iter().any(|kind| number_in(plain, kind).is_some());
    name == LOCK || name == archive::ARCHIVE_LOCK || plain == MARKER || numbered
}
