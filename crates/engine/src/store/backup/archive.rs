//! Archives: every change of a store is added to the directory of its backups, so that a restore
//! can reach any moment after a backup.
//!
//! 1. An archive begins with a backup. From there on the changes of the store are appended
//!    (`archived`), and are durable when [`Archiver::advance`] returns.
//! 2. The archive continues where it ended, as long as the log of the store reaches back that far.
//!    A lease keeps the log while the archiver runs, and `keep_log_bytes` while it does not.
//! 3. If the log does not reach back that far, the archive begins again with a backup, and reports
//!    which sequence numbers are missing.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use runstone_random::Random;
use runstone_storage::fork::Process;
use runstone_storage::{Category, LockMode, Storage, StorageLock};

use super::archived::{self, Archived, archive_name, note_of};
use super::create::now_ms;
use super::{BackupInfo, Backups};
use crate::error::{Error, Result};
use crate::keys::SeqNo;
use crate::log::{LogHeader, LogKind, LogWriter};
use crate::store::changes::{Change, Changes, ChangesFrom, Position, ROUND_BYTES};
use crate::store::follow::cut;
use crate::tree::history::History;
use crate::wal::note::Note;

/// A new file begins when the present one has this many bytes.
const FILE_BYTES: u64 = 64 << 20;
/// The lock of the process that appends to the archive.
pub(super) const ARCHIVE_LOCK: &str = "ARCHIVE";

/// Appends the committed changes of a store to the archive in the directory of its backups.
///
/// ```
/// # fn main() -> runstone::Result<()> {
/// # let dir = tempfile::tempdir().expect("a directory");
/// use std::time::Duration;
/// use runstone::{Backups, Moment, Options, Store};
///
/// let store = Store::open(dir.path().join("store"), Options::default())?;
/// // Usually in another process, all the time.
/// let backups = Backups::open(dir.path().join("backups"))?;
/// let mut archiver = backups.archive(dir.path().join("store"))?;
/// store.put("key", "good")?;
/// archiver.advance(Duration::ZERO)?;
/// let good = archiver.position();
/// store.put("key", "bad")?;
/// archiver.advance(Duration::ZERO)?;
///
/// backups.restore_to(Moment::Number(good.seq()), dir.path().join("restored"))?;
/// let restored = Store::open(dir.path().join("restored"), Options::default())?;
/// assert_eq!(restored.get("key")?.as_deref(), Some(&b"good"[..]));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Archiver {
    backups: Backups,
    store: Arc<dyn Storage>,
    leases: Arc<dyn Storage>,
    changes: Changes,
    writer: Option<LogWriter>,
    position: Position,
    /// The position up to which the archive is durable, and the file that ends there, if this
    /// archiver began one.
    whole: Position,
    whole_file: Option<(u64, u64)>,
    /// The history with which the file of `writer` began.
    begun_history: u64,
    /// Whether a round failed: changes that the reader returned since `whole` must be read again.
    is_cut_short: bool,
    /// Whether changes have been appended since the last note of the time.
    lacks_time: bool,
    /// A backup with which the archive began, if it has not been reported yet.
    based: Option<Based>,
    /// The time of the backup with which the archive began, until that time is durable in the
    /// archive.
    begun_ms: Option<u64>,
    /// The process that made the archiver: the file belongs to the process that holds the lock.
    process: Process,
    _lock: Box<dyn StorageLock>,
}

/// A backup with which an archive began, at first or again.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Based {
    /// The backup.
    pub backup: BackupInfo,
    /// The archive has no changes between these two sequence numbers: its own last one, and that of
    /// the backup. `None` if it has just begun.
    pub lacks: Option<(SeqNo, SeqNo)>,
}

/// The result of a round of archiving.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Archiving {
    /// Changes that were appended.
    pub changes: u64,
    /// Bytes that were appended.
    pub bytes: u64,
    /// Whether the round reached the end of the changes.
    pub is_drained: bool,
    /// The backup with which the archive began, if it began in this round.
    pub based: Option<Based>,
}

impl Backups {
    /// Continues the archive of a store, or begins it with a backup. The store may be open in this
    /// process or in another one, or closed.
    ///
    /// # Errors
    /// If another process archives into the directory; those of [`Backups::create`].
    pub fn archive(&self, store: impl AsRef<Path>) -> Result<Archiver> {
        let (storage, leases) = cut::open(store.as_ref())?;
        Archiver::begin(self, storage, leases)
    }

    /// Does the same as [`Backups::archive`] with a store on a storage.
    ///
    /// # Errors
    /// Those of [`Backups::archive`].
    pub fn archive_on(&self, store: Arc<dyn Storage>) -> Result<Archiver> {
        Archiver::begin(self, Arc::clone(&store), store)
    }
}

impl Archiver {
    fn begin(
        backups: &Backups,
        store: Arc<dyn Storage>,
        leases: Arc<dyn Storage>,
    ) -> Result<Archiver> {
        let storage = &backups.storage;
        let lock = storage.lock(ARCHIVE_LOCK, LockMode::Exclusive)?;
        let lock = lock.ok_or_else(|| Error::InUse {
            path: storage.location(),
            process: storage.lock_holder(ARCHIVE_LOCK),
        })?;
        archived::make_whole(&**storage)?;
        let (changes, based) = match archived::end(&**storage)? {
            Some(end) => {
                let from = ChangesFrom::After(end);
                match Changes::begin(Arc::clone(&store), &leases, from) {
                    Ok(changes) => {
                        backups.check_own(changes.store_uid())?;
                        (changes, None)
                    }
                    Err(error) if ends_history(&error) => {
                        let lacked = Some(end.seq());
                        let (changes, based) = base(backups, &store, &leases, lacked)?;
                        (changes, Some(based))
                    }
                    Err(error) => return Err(error),
                }
            }
            None => {
                let (changes, based) = base(backups, &store, &leases, None)?;
                (changes, Some(based))
            }
        };
        let position = changes.position();
        let backups = backups.clone();
        let mut archiver = Archiver {
            backups,
            store,
            leases,
            changes,
            writer: None,
            position,
            whole: position,
            whole_file: None,
            begun_history: 0,
            is_cut_short: false,
            lacks_time: false,
            based: None,
            begun_ms: None,
            process: Process::current(),
            _lock: lock,
        };
        if let Some(based) = based {
            archiver.begin_at(based)?;
        }
        Ok(archiver)
    }

    /// Begins the archive after a backup. If the disk has no room for its first file, a later round
    /// writes the file, or the next archiver begins with another backup.
    fn begin_at(&mut self, based: Based) -> Result<()> {
        self.position = self.changes.position();
        (self.whole, self.whole_file, self.is_cut_short) = (self.position, None, false);
        (self.begun_ms, self.based) = (Some(based.backup.time_ms), Some(based));
        self.note_begun()
    }

    /// Begins a file after a backup. Even without a change, the file shows that the archive has
    /// this moment.
    fn note_begun(&mut self) -> Result<()> {
        if let Some(ms) = self.begun_ms {
            self.put(&Archived::Note(self.position, Note::Time(ms)))?;
            self.sync()?;
            self.begun_ms = None;
        }
        Ok(())
    }

    /// Appends the changes that were committed since the last round, and waits at most this long
    /// for a change. They are durable when this returns. It returns after about 16 MiB even if
    /// there are more changes, because a busy writer always adds more. O(changes).
    ///
    /// # Errors
    /// Those of [`Changes::next`] and [`Backups::create`]; a full disk. The archive stays whole,
    /// and the next call continues. [`Error::InUse`] if the archive needs a new first backup while
    /// another process makes a backup or prunes. [`Error::OtherProcess`] in a fork.
    pub fn advance(&mut self, most: Duration) -> Result<Archiving> {
        if !self.process.is_current() {
            return Err(Error::OtherProcess);
        }
        let mut outcome = self.append_changes(most);
        if outcome.as_ref().is_err_and(ends_history) {
            self.cut_short();
            // A revoked lease says nothing about the log, which may still have the next change.
            outcome = match self.append_changes(Duration::ZERO) {
                Err(error) if ends_history(&error) => self.begin_again(),
                outcome => outcome,
            };
        }
        if outcome.is_err() {
            self.cut_short();
        }
        outcome
    }

    /// Notes that changes written since the last sync do not count.
    fn cut_short(&mut self) {
        (self.writer, self.is_cut_short) = (None, true);
        self.position = self.whole;
    }

    /// Begins again with a backup.
    fn begin_again(&mut self) -> Result<Archiving> {
        // A backup that has not been reported yet, or after which the archive has not continued
        // yet, is skipped: the archive still lacks what it lacked then.
        let earlier = self.based.as_ref().and_then(|based| based.lacks).map(|(from, _)| from);
        let lacked = earlier.or(self.begun_ms.is_none().then(|| self.whole.seq()));
        let (changes, based) = base(&self.backups, &self.store, &self.leases, lacked)?;
        (self.writer, self.changes) = (None, changes);
        self.begin_at(based)?;
        Ok(Archiving { based: self.based.take(), ..Archiving::default() })
    }

    /// Goes back to the last change that is durable in the archive. After a failed sync the kernel
    /// may show bytes that the disk does not have, so the file is cut there.
    fn go_back(&mut self) -> Result<()> {
        if let Some((number, bytes)) = self.whole_file {
            archived::cut(&*self.backups.storage, number, bytes)?;
        }
        archived::make_whole(&*self.backups.storage)?;
        // Cleared at once: if the rest fails, the file may no longer exist when this is tried
        // again.
        self.whole_file = None;
        let store = Arc::clone(&self.store);
        self.changes = Changes::begin(store, &self.leases, ChangesFrom::After(self.whole))?;
        self.is_cut_short = false;
        Ok(())
    }

    fn append_changes(&mut self, most: Duration) -> Result<Archiving> {
        if self.is_cut_short {
            self.go_back()?;
        }
        self.note_begun()?;
        let (mut done, mut asked_ms) = (Archiving::default(), now_ms());
        let mut next = self.changes.wait(most)?;
        while let Some(changed) = next {
            let bytes = self.append(changed.position, changed.change)?;
            self.backups.pace(bytes as usize);
            done.bytes += bytes;
            done.changes += 1;
            (self.position, self.lacks_time) = (changed.position, true);
            if done.bytes >= ROUND_BYTES {
                self.sync()?;
                done.based = self.based.take();
                return Ok(done);
            }
            asked_ms = now_ms();
            next = self.changes.next()?;
        }
        done.is_drained = true;
        if self.lacks_time {
            // Everything up to here had been committed by this time, and later changes had not.
            done.bytes += self.put(&Archived::Note(self.position, Note::Time(asked_ms)))?;
            self.sync()?;
            self.lacks_time = false;
        }
        done.based = self.based.take();
        Ok(done)
    }

    /// Appends a change. Returns its size in bytes.
    fn append(&mut self, position: Position, change: Change) -> Result<u64> {
        if let Some(note) = note_of(position, &change) {
            return self.put(&Archived::Note(position, note));
        }
        match change {
            Change::Writes(batch) => self.put(&Archived::Writes(position, batch)),
            Change::Loaded(load) => {
                let mut bytes = self.put(&Archived::Load(position, load.keyspace()))?;
                load.read(|batch| {
                    bytes += self.put(&Archived::Entries(batch.clone()))?;
                    Ok(())
                })?;
                Ok(bytes + self.put(&Archived::LoadEnd)?)
            }
            _ => Ok(0),
        }
    }

    fn put(&mut self, record: &Archived) -> Result<u64> {
        let is_inside = matches!(record, Archived::Entries(_) | Archived::LoadEnd);
        let is_full = self.writer.as_ref().is_some_and(|one| one.position() >= FILE_BYTES);
        // The history in each file says which sequence numbers it shares with earlier histories.
        let is_other = self.begun_history != self.changes.history().id;
        if (is_full || is_other) && self.writer.is_some() && !is_inside {
            self.sync()?;
            self.writer = None;
        }
        let writer = match &mut self.writer {
            Some(writer) => writer,
            None => {
                let history = self.changes.history();
                self.begun_history = history.id;
                let number =
                    archived::archives(&*self.backups.storage)?.last().map_or(1, |n| n + 1);
                // Until the file is durable, it is removed on an error.
                self.whole_file = Some((number, 0));
                let begun = begin_file(&self.backups, number, history, self.position)?;
                self.whole_file = Some((number, begun.position()));
                self.writer.insert(begun)
            }
        };
        let before = writer.position();
        let (head, rest) = record.encode();
        writer.append_in_pieces(&[&head, rest])?;
        Ok(writer.position() - before)
    }

    fn sync(&mut self) -> Result<()> {
        if let (Some(writer), Some((_, bytes))) = (&self.writer, &mut self.whole_file) {
            writer.file().sync()?;
            (self.whole, *bytes) = (self.position, writer.position());
        }
        Ok(())
    }

    /// The position up to which the archive has all changes.
    pub fn position(&self) -> Position {
        self.position
    }
}

/// Whether a reader of changes has to begin again with the state of the store.
fn ends_history(error: &Error) -> bool {
    matches!(
        error,
        Error::HistoryForked { .. } | Error::HistoryGone { .. } | Error::LeaseRevoked { .. }
    )
}

/// Makes the backup with which an archive begins.
fn base(
    backups: &Backups,
    store: &Arc<dyn Storage>,
    leases: &Arc<dyn Storage>,
    lacked: Option<SeqNo>,
) -> Result<(Changes, Based)> {
    let mut changes = Changes::begin(Arc::clone(store), leases, ChangesFrom::Now)?;
    let backup = backups.create_from(Arc::clone(store), leases)?;
    changes.pass_through(backup.last_seq)?;
    let lacks = lacked.map(|seq| (seq, backup.last_seq));
    Ok((changes, Based { backup, lacks }))
}

/// Begins a file of the archive.
fn begin_file(
    backups: &Backups,
    number: u64,
    history: &History,
    position: Position,
) -> Result<LogWriter> {
    let storage = &backups.storage;
    let file = storage.create(&archive_name(number), Category::Other)?;
    let header = LogHeader { number, id: Random::from_entropy().draw(), manifest: 0 };
    let mut writer = LogWriter::create(file, LogKind::Archive, header)?;
    writer.append(&[&Archived::Begin(history.clone(), position.seq()).encode().0])?;
    writer.file().sync()?;
    storage.sync_dir()?;
    Ok(writer)
}
