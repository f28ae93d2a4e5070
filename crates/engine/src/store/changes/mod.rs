//! The committed changes of a store, in order, for archives, mirrors and indexes that follow it.
//!
//! 1. The log is read as it grows, in the process that writes to it or in another one. A lease
//!    keeps its segments, and the values to which it points (`lease`).
//! 2. A position is a sequence number with its history ([`crate::tree::history`]). After a power
//!    loss the same number may belong to another write.
//! 3. A change that is returned is durable, unless the caller requests unsynced changes too: the
//!    reader itself syncs the segments that it has read. So no crash undoes a change that others
//!    have applied already.
//! 4. Values that a collection moved are left out, and so are writes that an open logged again.
//! 5. A load has no writes in the log. Its entries are read from the tables that it made, which the
//!    lease keeps too.
//! 6. If the log does not reach back to a caller's position, the caller can get the state instead
//!    (`state`). A new consumer begins with the whole state, because the log of a store does not
//!    reach back to its first write.

pub(crate) mod apply;
mod load;
mod position;
mod reader;
mod state;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use runstone_storage::Storage;

pub use load::Load;
pub use position::Position;
pub use state::Gap;

use super::Store;
use super::follow::{Follower, cut};
use crate::error::{Error, Result};
use crate::keys::{KeyspaceId, SeqNo};
use crate::options::store::Options;
use crate::tree::history::History;
use crate::wal::batch::Batch;
pub use crate::wal::note::NotedKeyspace;
use reader::HistoryReader;
use state::StateReader;

/// How often a waiting reader looks for further changes.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// A call that applies changes returns after about this many bytes, because a busy writer always
/// adds more.
pub(crate) const ROUND_BYTES: u64 = 16 << 20;
/// The largest memory budget of a reader of the state, in addition to that of the store.
const STATE_BUDGET_BYTES: u64 = 64 << 20;

/// Where changes begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ChangesFrom {
    /// The state of all keys, and then every change after it: for a consumer that has nothing yet.
    /// The state is returned as described at [`Change::Gap`], with a gap after 0, and it has no
    /// deletes. Until it ends, the position is [`Position::START`]: a consumer that is interrupted
    /// there gets the whole state again.
    Everything,
    /// The oldest change that the log has. Without `keep_log_bytes` that is the first one after the
    /// last flush: earlier writes are in none of the changes.
    Oldest,
    /// The first change after now.
    Now,
    /// Everything after this position.
    After(Position),
}

impl ChangesFrom {
    fn is_everything(self) -> bool {
        matches!(self, ChangesFrom::Everything | ChangesFrom::After(Position::START))
    }
}

impl From<Position> for ChangesFrom {
    fn from(position: Position) -> ChangesFrom {
        ChangesFrom::After(position)
    }
}

/// What to do if the log does not reach back to a position.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum OnGap {
    /// Fail with [`crate::Error::HistoryGone`], which names the first position that the log still
    /// has.
    Fail,
    /// Return the state of the keys that were written since, as described at [`Change::Gap`], and
    /// then the changes. The options are those of [`Store::follow`]: they name merge operators.
    State(Box<Options>),
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
    /// All keyspaces. It comes after a crash, which may have happened between the change of a
    /// keyspace and its record; inside a gap, before its state; and if the log begins after the
    /// position.
    Keyspaces(Vec<NotedKeyspace>),
    /// A load into a keyspace.
    Loaded(Load),
    /// The time of day, by the clock of the writer, in milliseconds since 1970. All changes before
    /// it had been committed by then. The clock may go back.
    Time(u64),
    /// The log does not have the next changes: [`Change::State`] follows until the position is past
    /// the gap. Values that were overwritten in between are left out. Operands are returned as the
    /// value that they make, and the keyspaces are those that the store has now. Deletes of single
    /// keys are returned as long as tables contain them. A compaction drops a delete together with
    /// the entries that it hid, so the consumer may never learn that a key was deleted. A later
    /// operand would then apply to the value that the consumer still has. If [`Gap::after`] is 0,
    /// the state is that of all keys: a consumer that first discards its data misses nothing.
    Gap(Gap),
    /// The values of keys as of the end of the gap. Range deletes come first, and then a put or a
    /// delete for each key.
    State(Batch),
    /// The gap has ended.
    GapEnd,
}

impl Change {
    /// The approximate size of the change in bytes; 0 if it has neither writes nor a load.
    pub(crate) fn bytes(&self) -> u64 {
        match self {
            Change::Writes(batch) | Change::State(batch) => batch.encoded().len() as u64,
            Change::Loaded(load) => load.bytes(),
            _ => 0,
        }
    }
}

/// A change with its position.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Changed {
    /// The position after it. A reader that begins there gets no write twice. A change without a
    /// sequence number may be returned again; applying it again has the same result.
    pub position: Position,
    /// The change.
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
    /// The state that is returned before the changes of the log.
    state: Option<StateReader>,
    /// How to continue if the log does not reach back far enough.
    bridge: Option<Bridge>,
}

/// What is needed to return state if the log does not reach back to a position.
#[derive(Debug)]
struct Bridge {
    storage: Arc<dyn Storage>,
    leases: Arc<dyn Storage>,
    options: Box<Options>,
}

impl Bridge {
    /// Continues after a position with the state, and then with the log.
    fn begin(self, before: Position) -> Result<Changes> {
        let (storage, leases) = (Arc::clone(&self.storage), &self.leases);
        // The changes begin before the view is taken, so that the log after the view is kept.
        let mut changes = Changes::begin(storage, leases, ChangesFrom::Now)?;
        let options = Options::clone(&self.options);
        let follower = Follower::begin(Arc::clone(&self.storage), leases, options)?;
        let through = follower.store().inner.visibility.now();
        // This also syncs the log, because whatever is returned must be durable.
        changes.pass_through(through)?;
        let after = changes.common_with(before)?.unwrap_or(0);
        let state = Some(StateReader::new(follower, Gap { after, through }, before)?);
        Ok(Changes { position: before, state, bridge: Some(self), ..changes })
    }
}

impl Store {
    /// Reads the committed changes of this store, in order. With [`ChangesFrom::Everything`], the
    /// state is read with the store's own merge operators.
    ///
    /// # Errors
    /// Those of [`Changes::open`].
    pub fn changes(&self, from: ChangesFrom) -> Result<Changes> {
        self.inner.env.check_process()?;
        let storage = Arc::clone(&self.inner.env.storage);
        let own = &self.inner.env.options;
        let options = Options {
            merge_operators: own.merge_operators.clone(),
            prefix_extractors: own.prefix_extractors.clone(),
            clock: Arc::clone(&own.clock),
            memory_budget_bytes: own.memory_budget_bytes.min(STATE_BUDGET_BYTES),
            ..Options::default()
        };
        Changes::open_with(Arc::clone(&storage), &storage, from, options)
    }
}

impl Changes {
    /// Reads what is committed to the store in a directory, whether or not a process writes to it.
    /// [`ChangesFrom::Everything`] reads the state with default options: [`Changes::resume`]
    /// accepts other options, with merge operators.
    ///
    /// # Errors
    /// [`crate::Error::HistoryForked`] if the store has lost the end of the history that the
    /// position is in; [`crate::Error::HistoryGone`] if the log is not kept that long
    /// (`keep_log_bytes`); those of [`Store::follow`].
    pub fn open(path: impl AsRef<Path>, from: ChangesFrom) -> Result<Changes> {
        let (storage, leases) = cut::open(path.as_ref())?;
        Changes::open_with(storage, &leases, from, Options::default())
    }

    /// Does the same as [`Changes::open`] on a storage.
    ///
    /// # Errors
    /// Those of [`Changes::open`].
    pub fn open_on(storage: Arc<dyn Storage>, from: ChangesFrom) -> Result<Changes> {
        let leases = Arc::clone(&storage);
        Changes::open_with(storage, &leases, from, Options::default())
    }

    /// Begins with the state of all keys, if that is requested. A later gap is an error.
    fn open_with(
        storage: Arc<dyn Storage>,
        leases: &Arc<dyn Storage>,
        from: ChangesFrom,
        options: Options,
    ) -> Result<Changes> {
        if !from.is_everything() {
            return Changes::begin(storage, leases, from);
        }
        let bridge = Bridge { storage, leases: Arc::clone(leases), options: Box::new(options) };
        Ok(Changes { bridge: None, ..bridge.begin(Position::START)? })
    }

    /// Reads only the log.
    pub(crate) fn begin(
        storage: Arc<dyn Storage>,
        leases: &Arc<dyn Storage>,
        from: ChangesFrom,
    ) -> Result<Changes> {
        let reader = HistoryReader::begin(storage, leases, from)?;
        let position = reader.position();
        Ok(Changes { reader, position, state: None, bridge: None })
    }

    /// Continues after a position, or begins elsewhere. `on_gap` says what to do if the log does
    /// not reach back to the position, now or later. [`ChangesFrom::Everything`] uses the options
    /// of [`OnGap::State`] for the state with which it begins.
    ///
    /// # Errors
    /// Those of [`Changes::open`] and of [`Store::follow`]. A position after a fork is refused in
    /// any case, because the consumer has writes that the store has lost.
    pub fn resume(
        path: impl AsRef<Path>,
        from: impl Into<ChangesFrom>,
        on_gap: OnGap,
    ) -> Result<Changes> {
        let (storage, leases) = cut::open(path.as_ref())?;
        Changes::resume_with(storage, &leases, from.into(), on_gap)
    }

    /// Does the same as [`Changes::resume`] on a storage.
    ///
    /// # Errors
    /// Those of [`Changes::resume`].
    pub fn resume_on(
        storage: Arc<dyn Storage>,
        from: impl Into<ChangesFrom>,
        on_gap: OnGap,
    ) -> Result<Changes> {
        Changes::resume_with(Arc::clone(&storage), &storage, from.into(), on_gap)
    }

    fn resume_with(
        storage: Arc<dyn Storage>,
        leases: &Arc<dyn Storage>,
        from: ChangesFrom,
        on_gap: OnGap,
    ) -> Result<Changes> {
        let OnGap::State(options) = on_gap else {
            return Changes::open_with(storage, leases, from, Options::default());
        };
        let bridge = Bridge { storage: Arc::clone(&storage), leases: Arc::clone(leases), options };
        if from.is_everything() {
            return bridge.begin(Position::START);
        }
        match (Changes::begin(storage, leases, from), from) {
            (Err(Error::HistoryGone { .. }), ChangesFrom::After(after)) => bridge.begin(after),
            (begun, _) => Ok(Changes { bridge: Some(bridge), ..begun? }),
        }
    }

    /// The next change of the log, or the beginning of the state if the log does not have it.
    fn next_logged(&mut self) -> Result<Option<Changed>> {
        match (self.reader.next(), self.bridge.take()) {
            (Err(Error::HistoryGone { .. }), Some(bridge)) => {
                let syncs = self.reader.syncs;
                *self = bridge.begin(self.position)?.unsynced(!syncs);
                self.next_state()
            }
            (next, bridge) => {
                self.bridge = bridge;
                next
            }
        }
    }

    /// The next part of the state that is returned before the changes of the log.
    fn next_state(&mut self) -> Result<Option<Changed>> {
        let Some(state) = &mut self.state else { return Ok(None) };
        let before = state.before();
        Ok(Some(match state.next()? {
            Some(change) => Changed { position: before, change },
            None => {
                self.state = None;
                Changed { position: self.reader.position(), change: Change::GapEnd }
            }
        }))
    }

    /// Also returns changes that are not durable yet. After a power loss the store may not have
    /// them: then the reader fails with [`crate::Error::HistoryForked`].
    pub fn unsynced(mut self, unsynced: bool) -> Changes {
        self.reader.syncs = !unsynced;
        self
    }

    /// The next change; `None` if there is no more for now. O(its size), and a sync now and then.
    ///
    /// # Errors
    /// [`crate::Error::LeaseRevoked`], [`crate::Error::HistoryForked`],
    /// [`crate::Error::HistoryGone`], [`crate::Error::Corruption`], or a storage error. Changes
    /// that were returned stay valid.
    // This is not an iterator: an iterator would end, while this method only has nothing for now.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Result<Option<Changed>> {
        let next = match self.next_state()? {
            None => self.next_logged()?,
            state => state,
        };
        if let Some(changed) = &next {
            self.position = changed.position;
        }
        Ok(next)
    }

    /// Does the same, and waits at most this long for a change.
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

    /// The position after the last change that was returned.
    pub fn position(&self) -> Position {
        self.position
    }

    /// The position up to which the log was read. Once `next` has returned nothing, there is no
    /// change between this and [`Changes::position`].
    pub fn read_position(&self) -> Position {
        self.reader.position()
    }

    /// Skips everything up to a sequence number, which must be the end of a change.
    pub(crate) fn pass_through(&mut self, seq: SeqNo) -> Result<()> {
        self.reader.pass_through(seq)?;
        self.position = self.reader.position();
        Ok(())
    }

    /// The sequence number of a position in the history of the changes read so far; `None` if its
    /// history is not known.
    fn common_with(&self, position: Position) -> Result<Option<SeqNo>> {
        match self.history().last_common(position.history()) {
            Some(common) if position.seq() > common => Err(self.reader.forked(common)),
            common => Ok(common.map(|_| position.seq())),
        }
    }

    /// The history of the changes read so far.
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
