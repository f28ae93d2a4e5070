//! What was committed to a store, in order, for others to follow: archives, mirrors, indexes.
//!
//! 1. The log is read as it grows, beside the process that writes to it or in it, under a lease
//!    that keeps its segments and the values that it points to (`lease`).
//! 2. A position is a sequence number with its history ([`crate::tree::history`]). After a power
//!    loss the same number may stand for another write.
//! 3. What is handed out is durable, unless the caller asks for more: the reader syncs the segments
//!    that it has read itself, so no crash takes back what others have applied already.
//! 4. What a collection moved is left out, and so is what an open logged again.
//! 5. A load has no writes in the log. Its entries are read from the tables that it made, which the
//!    lease keeps too.

pub(crate) mod apply;
mod load;
mod position;
mod reader;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use runstone_storage::Storage;

pub use load::Load;
pub use position::Position;

use super::Store;
use super::follow::cut;
use crate::error::Result;
use crate::keys::{KeyspaceId, SeqNo};
use crate::tree::history::History;
use crate::wal::batch::Batch;
pub use crate::wal::note::NotedKeyspace;
use reader::HistoryReader;

/// How often a reader that waits looks for more.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Where changes begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ChangesFrom {
    /// The oldest change that the log has.
    Oldest,
    /// What is committed from now on.
    Now,
    /// Everything after this position.
    After(Position),
}

/// Something that was committed.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Change {
    /// Writes that became visible together, in order. They name keyspaces by the ids of the store
    /// that they come from. Instants of expiry are absolute.
    Writes(Batch),
    /// A keyspace was made, or its options changed.
    Keyspace(NotedKeyspace),
    /// A keyspace was dropped.
    Dropped(KeyspaceId),
    /// All keyspaces, after a crash: it may have come between a change of one and its record.
    Keyspaces(Vec<NotedKeyspace>),
    /// A load into a keyspace.
    Loaded(Load),
    /// The time of day, by the clock of the writer, in milliseconds since 1970. All changes before
    /// it had been committed by then. The clock may go back.
    Time(u64),
}

/// A change, and where it is.
#[derive(Clone, Debug)]
pub struct Changed {
    /// The position after it. Whoever begins there gets no write twice; what takes no number comes
    /// again, and has the same result when it is applied again.
    pub position: Position,
    /// What was committed.
    pub change: Change,
}

/// Reads what is committed to a store, in order.
///
/// ```
/// # fn main() -> runstone::Result<()> {
/// # let dir = tempfile::tempdir().expect("a directory");
/// use runstone::{Change, Changes, ChangesFrom, Options, Store};
///
/// let store = Store::open(dir.path(), Options::default())?;
/// store.put("before", "")?;
/// let mut changes = Changes::open(dir.path(), ChangesFrom::Now)?;
/// store.put("key", "value")?;
/// let mut keys = Vec::new();
/// while let Some(changed) = changes.next()? {
///     if let Change::Writes(batch) = changed.change {
///         keys.extend(batch.operations().map(|one| one.key.to_vec()));
///     }
/// }
/// assert_eq!(keys, [b"key"]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Changes {
    reader: HistoryReader,
    position: Position,
}

impl Store {
    /// Reads what is committed to this store, in order.
    ///
    /// # Errors
    /// Those of [`Changes::open`].
    pub fn changes(&self, from: ChangesFrom) -> Result<Changes> {
        Changes::open_on(Arc::clone(&self.inner.env.storage), from)
    }
}

impl Changes {
    /// Reads what is committed to the store in a directory, whether or not a process writes to it.
    ///
    /// # Errors
    /// [`crate::Error::HistoryForked`] if the store has lost the end that the position is in;
    /// [`crate::Error::HistoryGone`] if the log is not kept that long (`keep_log_bytes`); those of
    /// [`Store::follow`].
    pub fn open(path: impl AsRef<Path>, from: ChangesFrom) -> Result<Changes> {
        let (storage, leases) = cut::open(path.as_ref())?;
        Changes::begin(storage, &leases, from)
    }

    /// Does the same as [`Changes::open`] on a storage.
    ///
    /// # Errors
    /// Those of [`Changes::open`].
    pub fn open_on(storage: Arc<dyn Storage>, from: ChangesFrom) -> Result<Changes> {
        Changes::begin(Arc::clone(&storage), &storage, from)
    }

    pub(crate) fn begin(
        storage: Arc<dyn Storage>,
        leases: &Arc<dyn Storage>,
        from: ChangesFrom,
    ) -> Result<Changes> {
        let reader = HistoryReader::begin(storage, leases, from)?;
        let position = reader.position();
        Ok(Changes { reader, position })
    }

    /// Also hands out what is not durable yet. After a power loss the store may not have it: then
    /// the reader fails with [`crate::Error::HistoryForked`].
    pub fn unsynced(mut self, unsynced: bool) -> Changes {
        self.reader.syncs = !unsynced;
        self
    }

    /// The next change; `None` if there is no more for now. O(its size); a sync now and then.
    ///
    /// # Errors
    /// [`crate::Error::LeaseRevoked`], [`crate::Error::HistoryForked`],
    /// [`crate::Error::HistoryGone`], [`crate::Error::Corruption`], or a storage error. What was
    /// handed out stays valid.
    // An iterator ends where this only has nothing for now.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Result<Option<Changed>> {
        let next = self.reader.next()?;
        if let Some(changed) = &next {
            self.position = changed.position;
        }
        Ok(next)
    }

    /// Does the same, and waits for a change for at most so long.
    ///
    /// # Errors
    /// Those of [`Changes::next`].
    pub fn wait(&mut self, most: Duration) -> Result<Option<Changed>> {
        let began = Instant::now();
        loop {
            let next = self.next()?;
            let left = most.saturating_sub(began.elapsed());
            if next.is_some() || left.is_zero() {
                return Ok(next);
            }
            std::thread::sleep(left.min(LOOK_EVERY));
        }
    }

    /// The position after the last change that was handed out.
    pub fn position(&self) -> Position {
        self.position
    }

    /// The position up to which the log was read. Between this and [`Changes::position`] is nothing
    /// that is handed out, once `next` returned nothing.
    pub fn read_position(&self) -> Position {
        self.reader.position()
    }

    /// Passes over everything up to a number, which must be the end of a change.
    pub(crate) fn pass_through(&mut self, seq: SeqNo) -> Result<()> {
        self.reader.pass_through(seq)?;
        self.position = self.reader.position();
        Ok(())
    }

    /// The history of what was read.
    pub(crate) fn history(&self) -> &History {
        self.reader.history()
    }

    /// The random id of the store.
    pub(crate) fn store_uid(&self) -> u64 {
        self.reader.store_uid()
    }

    /// The keyspaces that the store has now.
    pub fn keyspaces(&self) -> Vec<NotedKeyspace> {
        self.reader.keyspaces()
    }
}
