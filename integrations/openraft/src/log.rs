//! The log of a node, and its vote. Whatever the node promises to others is synced before it is
//! acknowledged; other writes become durable later, in their order.
//!
//! A purge may come before the machine has the purged entries: openraft 0.9 gives a snapshot to the
//! machine's task, and at once purges the log up to the end of the snapshot. After a power loss at
//! that moment, the node would have neither the entries nor the snapshot. So such a purge is
//! *held*: readers no longer see the entries, and the disk keeps them until the machine has them.
//! An append waits as well, if it would leave a hole after the kept entries. Rejected: purging in
//! the batch that switches machines, since appends would have to wait all the same.

use std::fmt::Debug;
use std::io;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use openraft::storage::{LogFlushed, RaftLogStorage};
use openraft::{
    ErrorSubject, ErrorVerb, LogId, LogState, NodeId, OptionalSend, RaftLogId, RaftLogReader,
    RaftTypeConfig, StorageError, Vote,
};
use parking_lot::Mutex;
use runstone::{Batch, WriteOptions};
use tokio::sync::watch;

use crate::base::{Base, Progress, key, seeded};
use crate::codec::{decode, encode};
use crate::error::{Error, blocking, during};

/// A batch from this size on is written where a call may block: it can exceed a segment of the
/// store's log, and the call itself then syncs it.
const LARGE_BYTES: usize = 256 << 10;

/// The size at which a part of the log for another node ends.
const PART_BYTES: usize = 4 << 20;

/// The log of a node and its vote. [`crate::open`] makes it; pass it to `openraft::Raft::new`.
#[derive(Debug)]
pub struct LogStore<C: RaftTypeConfig> {
    reader: LogReader<C>,
    progress: watch::Receiver<Progress>,
}

/// Reads the log, for other nodes.
#[derive(Clone, Debug)]
pub struct LogReader<C: RaftTypeConfig> {
    base: Arc<Base>,
    held: Arc<Mutex<Option<LogId<C::NodeId>>>>,
}

impl<C: RaftTypeConfig> LogReader<C> {
    fn held(&self) -> Option<LogId<C::NodeId>> {
        self.held.lock().clone()
    }

    /// Reads entries until they are `most_bytes` long, but at least one.
    async fn read(
        &self,
        range: impl RangeBounds<u64>,
        most_bytes: usize,
    ) -> Result<Vec<C::Entry>, StorageError<C::NodeId>> {
        let purged = self.held().map_or(0, |held| held.index + 1);
        let start = match range.start_bound() {
            Bound::Included(start) => *start,
            Bound::Excluded(before) => before.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let start = start.max(purged);
        let end = range.end_bound().cloned();
        if matches!(end, Bound::Excluded(end) if end <= start)
            || matches!(end, Bound::Included(end) if end < start)
        {
            return Ok(Vec::new());
        }
        let base = Arc::clone(&self.base);
        let read = move || {
            let (mut entries, mut bytes) = (Vec::new(), 0);
            let keys = (Bound::Included(start.to_be_bytes()), end.map(u64::to_be_bytes));
            for item in base.log.range(keys)? {
                let (key, value) = item?;
                entries.push(entry::<C>(&key, &value)?);
                bytes += value.len();
                if bytes >= most_bytes {
                    break;
                }
            }
            Ok(entries)
        };
        blocking(read).await.map_err(during(ErrorSubject::Logs, ErrorVerb::Read))
    }
}

impl<C: RaftTypeConfig> LogStore<C> {
    pub(crate) fn new(base: Arc<Base>, progress: watch::Receiver<Progress>) -> LogStore<C> {
        LogStore { reader: LogReader { base, held: Arc::default() }, progress }
    }

    fn base(&self) -> &Base {
        &self.reader.base
    }

    /// Ends a held purge if the machine has the purged entries. Otherwise waits until it has them,
    /// unless an append after the kept entries leaves no hole.
    async fn release(&mut self) -> Result<(), Error> {
        let Some(held) = self.reader.held() else { return Ok(()) };
        let is_over = |progress: &Progress| progress.applied > held.index || progress.has_failed;
        if self.progress.borrow().applied <= held.index {
            if self.has(&held).await? {
                return Ok(());
            }
            let progress = self.progress.wait_for(is_over).await;
            if progress.map_or(true, |progress| progress.has_failed) {
                return Err(Error::MachineStopped);
            }
        }
        self.purge_now(held).await
    }

    /// Whether the log on the disk has this very entry.
    async fn has(&self, log_id: &LogId<C::NodeId>) -> Result<bool, Error> {
        let (base, log_id) = (Arc::clone(&self.reader.base), log_id.clone());
        let look = move || {
            let key = log_id.index.to_be_bytes();
            let found = base.log.get(key)?.map(|value| entry::<C>(&key, &value)).transpose()?;
            Ok(found.is_some_and(|entry| *entry.get_log_id() == log_id))
        };
        blocking(look).await
    }

    async fn purge_now(&self, log_id: LogId<C::NodeId>) -> Result<(), Error> {
        let base = Arc::clone(&self.reader.base);
        blocking(move || Self::write_purge(&base, &log_id)).await?;
        *self.reader.held.lock() = None;
        Ok(())
    }

    /// Writes, and waits until the write survives a power loss.
    async fn write_synced(&self, batch: &Batch) -> Result<(), Error> {
        Ok(self.base().store.write_later(batch, WriteOptions::sync())?.await?)
    }

    async fn try_append(
        &mut self,
        entries: impl IntoIterator<Item = C::Entry>,
        callback: LogFlushed<C>,
    ) -> Result<(), Error> {
        let (mut batch, mut bytes) = (Batch::new(), 0);
        let base = Arc::clone(&self.reader.base);
        for entry in entries {
            let value = encode("an entry of the log", &entry)?;
            bytes += value.len();
            batch.put(&base.log, entry.get_log_id().index.to_be_bytes(), value)?;
        }
        self.release().await?;
        let is_early = seeded!(base.settings, FlushedEarly);
        let write = move || Ok(base.store.write_later(&batch, WriteOptions::sync())?);
        let commit = if bytes < LARGE_BYTES { write()? } else { blocking(write).await? };
        if is_early {
            callback.log_io_completed(Ok(()));
            return Ok(());
        }
        // The entries can be read now. This task reports to openraft when they are durable. In the
        // meantime openraft appends more: one sync serves all entries that were written before it.
        tokio::spawn(async move {
            callback.log_io_completed(commit.await.map_err(io::Error::other));
        });
        Ok(())
    }

    fn state(base: &Base, held: Option<LogId<C::NodeId>>) -> Result<LogState<C>, Error> {
        let last_purged_log_id = held.max(base.read(key::PURGED)?);
        let last = base.log.last_key_value()?;
        let last = last.map(|(key, value)| entry::<C>(&key, &value)).transpose()?;
        let last = last.map(|last| last.get_log_id().clone());
        let behind = |last: &LogId<C::NodeId>| last.index >= next_index(&last_purged_log_id);
        let last_log_id = last.filter(behind).or(last_purged_log_id.clone());
        Ok(LogState { last_purged_log_id, last_log_id })
    }

    /// Deletes the range from the last purge up to this one. Adjacent ranges cost less than ranges
    /// that all begin at zero and overlap.
    fn write_purge(base: &Base, log_id: &LogId<C::NodeId>) -> Result<(), Error> {
        let purged: Option<LogId<C::NodeId>> = base.read(key::PURGED)?;
        let start = next_index(&purged);
        let mut batch = Batch::new();
        if start <= log_id.index {
            batch.delete_range(&base.log, start.to_be_bytes()..=log_id.index.to_be_bytes())?;
        }
        base.put(&mut batch, key::PURGED, log_id)?;
        // The purged entries are in the machine, and the write to the machine is older than this
        // one. So no power loss keeps the purge and loses the machine's write.
        base.store.write(&batch, WriteOptions::buffered())?;
        Ok(())
    }
}

fn next_index<N: NodeId>(last: &Option<LogId<N>>) -> u64 {
    last.as_ref().map_or(0, |last| last.index + 1)
}

/// Decodes the entry in a key and a value of the log.
fn entry<C: RaftTypeConfig>(key: &[u8], value: &[u8]) -> Result<C::Entry, Error> {
    let what = || format!("the entry of the log at key {}", key.escape_ascii());
    let entry: C::Entry = decode(what, value)?;
    match entry.get_log_id().index.to_be_bytes() == *key {
        true => Ok(entry),
        false => Err(Error::Layout { what: format!("another entry than its own: {}", what()) }),
    }
}

impl<C: RaftTypeConfig> RaftLogReader<C> for LogReader<C> {
    async fn try_get_log_entries<R: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: R,
    ) -> Result<Vec<C::Entry>, StorageError<C::NodeId>> {
        self.read(range, usize::MAX).await
    }

    async fn limited_get_log_entries(
        &mut self,
        start: u64,
        end: u64,
    ) -> Result<Vec<C::Entry>, StorageError<C::NodeId>> {
        self.read(start..end, PART_BYTES).await
    }
}

impl<C: RaftTypeConfig> RaftLogReader<C> for LogStore<C> {
    async fn try_get_log_entries<R: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: R,
    ) -> Result<Vec<C::Entry>, StorageError<C::NodeId>> {
        self.reader.try_get_log_entries(range).await
    }

    async fn limited_get_log_entries(
        &mut self,
        start: u64,
        end: u64,
    ) -> Result<Vec<C::Entry>, StorageError<C::NodeId>> {
        self.reader.limited_get_log_entries(start, end).await
    }
}

impl<C: RaftTypeConfig> RaftLogStorage<C> for LogStore<C> {
    type LogReader = LogReader<C>;

    async fn get_log_state(&mut self) -> Result<LogState<C>, StorageError<C::NodeId>> {
        let (base, held) = (Arc::clone(&self.reader.base), self.reader.held());
        let read = blocking(move || Self::state(&base, held)).await;
        read.map_err(during(ErrorSubject::Logs, ErrorVerb::Read))
    }

    async fn get_log_reader(&mut self) -> LogReader<C> {
        self.reader.clone()
    }

    async fn save_vote(&mut self, vote: &Vote<C::NodeId>) -> Result<(), StorageError<C::NodeId>> {
        let mut batch = Batch::new();
        let saved = async {
            self.base().put(&mut batch, key::VOTE, vote)?;
            if seeded!(self.base().settings, VoteUnsynced) {
                return Ok(self.base().store.write(&batch, WriteOptions::buffered())?);
            }
            self.write_synced(&batch).await
        };
        saved.await.map_err(during(ErrorSubject::Vote, ErrorVerb::Write))
    }

    async fn read_vote(&mut self) -> Result<Option<Vote<C::NodeId>>, StorageError<C::NodeId>> {
        self.base().read(key::VOTE).map_err(during(ErrorSubject::Vote, ErrorVerb::Read))
    }

    /// The write is not synced: after a power loss the saved id is that of an earlier moment, and
    /// openraft learns the rest from the leader.
    async fn save_committed(
        &mut self,
        committed: Option<LogId<C::NodeId>>,
    ) -> Result<(), StorageError<C::NodeId>> {
        let save = || {
            let mut batch = Batch::new();
            self.base().put(&mut batch, key::COMMITTED, &committed)?;
            Ok(self.base().store.write(&batch, WriteOptions::buffered())?)
        };
        save().map_err(during(ErrorSubject::Store, ErrorVerb::Write))
    }

    async fn read_committed(
        &mut self,
    ) -> Result<Option<LogId<C::NodeId>>, StorageError<C::NodeId>> {
        let read = self.base().read::<Option<LogId<C::NodeId>>>(key::COMMITTED);
        read.map(Option::flatten).map_err(during(ErrorSubject::Store, ErrorVerb::Read))
    }

    async fn append<I>(
        &mut self,
        entries: I,
        callback: LogFlushed<C>,
    ) -> Result<(), StorageError<C::NodeId>>
    where
        I: IntoIterator<Item = C::Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let appended = self.try_append(entries, callback).await;
        appended.map_err(during(ErrorSubject::Logs, ErrorVerb::Write))
    }

    /// The write is synced, although it would probably be safe unsynced: truncations are rare, so a
    /// proof is not worth the trouble.
    async fn truncate(&mut self, log_id: LogId<C::NodeId>) -> Result<(), StorageError<C::NodeId>> {
        let mut batch = Batch::new();
        let truncated = async {
            batch.delete_range(&self.base().log, log_id.index.to_be_bytes()..)?;
            self.write_synced(&batch).await
        };
        truncated.await.map_err(during(ErrorSubject::Logs, ErrorVerb::Delete))
    }

    /// The call does not wait: a held purge ends with a later append or purge, or at the next
    /// start.
    async fn purge(&mut self, log_id: LogId<C::NodeId>) -> Result<(), StorageError<C::NodeId>> {
        let is_there = self.progress.borrow().applied > log_id.index;
        if !is_there && !seeded!(self.base().settings, PurgedEarly) {
            *self.reader.held.lock() = Some(log_id);
            return Ok(());
        }
        self.purge_now(log_id).await.map_err(during(ErrorSubject::Logs, ErrorVerb::Delete))
    }
}
