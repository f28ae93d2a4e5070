//! Commits that can be awaited: a write that is visible at once, and a future that is ready when
//! the write is durable.
//!
//! 1. The batch is numbered, logged, inserted and published like any other (`commit`).
//! 2. The store notes up to which number a sync is wanted (`awaited`). With threads, this notifies
//!    the thread that syncs (`syncing`). Without threads, the sync is a job that is due.
//! 3. One sync serves all commits that were published before it began, and those of blocking
//!    writers (`log`). It wakes the futures that were polled.
//!
//! A future that is dropped, or never polled, changes nothing: the write and its sync do not depend
//! on it. [`Commit::wait`] syncs by itself, as a blocking writer does.

use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::*;
use std::task::{Context, Poll};

use crate::catalog::keyspace::KeyspaceCore;
use crate::error::{Error, Result};
use crate::keys::SeqNo;
use crate::options::store::Durability;
use crate::schedule::Relief;
use crate::wal::batch::Batch;
use crate::write::commit::Committer;

/// A write that is visible, and a future that is ready once the write is as durable as was
/// requested. [`crate::Store::write_later`], [`crate::Keyspace::put_later`] and
/// [`crate::Keyspace::delete_later`] return it. It needs no runtime: any executor may poll it, from
/// any thread, or a thread may block in [`Commit::wait`].
///
/// It is ready at once if the write needs only to be buffered. Otherwise one sync of the log serves
/// all commits that were made before it. With background threads the store starts one more thread
/// at the first such commit, and this thread syncs. With [`crate::Background::Manual`] nobody syncs
/// until a thread waits, writes with [`crate::Durability::Sync`], or calls [`crate::Store::sync`]
/// or [`crate::Store::run_one_job`].
///
/// Dropping it changes nothing: the write is made, and a store with threads syncs it.
///
/// # Errors
/// [`Error::Stopped`] if the sync failed, as for a blocking write: nobody knows whether the write
/// survives a power loss, and the store accepts no more writes (P7). [`Error::Closed`] if the store
/// was closed in a way that left the write unsynced; a usual close makes it durable.
/// [`Error::OtherProcess`] in a fork of the process that made the commit.
#[must_use = "it says when the write is durable, or that it is not"]
pub struct Commit {
    /// `None` if there is nothing to wait for.
    pending: Option<Pending>,
}

struct Pending {
    committer: Arc<Committer>,
    /// The last sequence number of the batch.
    seq: SeqNo,
    /// Its place in the queue, once it has been polled.
    ticket: Option<u64>,
}

impl Commit {
    /// Blocks until the write is durable. The thread takes part in the next sync as a blocking
    /// writer does, so it depends on no other thread.
    ///
    /// ```
    /// # fn main() -> runstone::Result<()> {
    /// # let dir = tempfile::tempdir().expect("a directory");
    /// # let store = runstone::Store::open(dir.path(), runstone::Options::default())?;
    /// let orders = store.default_keyspace();
    /// let first = orders.put_later("order/1", "bread")?;
    /// let second = orders.put_later("order/2", "milk")?;
    /// assert!(orders.get("order/2")?.is_some(), "visible before it is durable");
    /// second.wait()?;
    /// // The same sync, at the latest, made the earlier one durable.
    /// first.wait()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// See [`Commit`]; and [`Error::InsideCallback`] in a callback of the same store.
    pub fn wait(self) -> Result<()> {
        let Some(Pending { committer, seq, .. }) = &self.pending else { return Ok(()) };
        committer.env.check_caller()?;
        match committer.awaited.outcome(|| committer.is_durable(*seq)) {
            Some(outcome) => outcome,
            None => committer.sync_write(*seq),
        }
    }
}

impl Future for Commit {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        let Some(Pending { committer, seq, ticket }) = &mut self.pending else {
            return Poll::Ready(Ok(()));
        };
        // Checked before any lock is taken: in a fork a lock may be held for ever.
        if let Err(refused) = committer.env.check_process() {
            return Poll::Ready(Err(refused));
        }
        let is_durable = || committer.is_durable(*seq);
        let outcome = committer.awaited.poll((*seq, ticket), context.waker(), is_durable);
        outcome.map_or(Poll::Pending, Poll::Ready)
    }
}

impl Drop for Commit {
    fn drop(&mut self) {
        if let Some(Pending { committer, seq, ticket: Some(ticket) }) = &self.pending
            && committer.env.check_process().is_ok()
        {
            committer.awaited.forget(*seq, *ticket);
        }
    }
}

impl fmt::Debug for Commit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seq = self.pending.as_ref().map(|pending| pending.seq);
        f.debug_struct("Commit").field("waits_for_seq", &seq).finish_non_exhaustive()
    }
}

impl Committer {
    /// Commits a batch as [`Committer::commit`] does, and returns when it is visible.
    pub(crate) fn commit_later(
        self: &Arc<Self>,
        batch: &Batch,
        keyspaces: &[Arc<KeyspaceCore>],
        durability: Durability,
        relief: &dyn Relief,
    ) -> Result<Commit> {
        self.check_durability(durability)?;
        if durability == Durability::Buffered {
            self.commit(batch, keyspaces, durability, relief)?;
            return Ok(Commit { pending: None });
        }
        self.env.check_caller()?;
        // The thread is started before the write. Otherwise a write that nobody can sync would be
        // made, and reported as failed.
        self.syncing.as_ref().map_or(Ok(()), |syncing| syncing.start())?;
        let seq = match batch.is_empty() {
            true => {
                self.env.check_writable()?;
                self.visibility.publisher.visible()
            }
            false => {
                self.admit(batch, relief)?;
                let last_seq = match self.env.has_early.load(Relaxed) {
                    true => self.commit_early(batch, keyspaces, durability, None)?,
                    false => self.commit_logged(batch, keyspaces)?,
                };
                self.end_commit(batch, last_seq, Durability::Buffered)?;
                last_seq
            }
        };
        if self.awaited.want(seq)
            && let Some(syncing) = &self.syncing
        {
            syncing.note(self);
        }
        Ok(Commit { pending: Some(Pending { committer: Arc::clone(self), seq, ticket: None }) })
    }

    /// Whether a sync for awaited commits is due. Without threads it is a job.
    pub(crate) fn wants_sync(&self) -> bool {
        self.awaited.is_noted()
    }

    /// Syncs for all commits that are awaited, and wakes them.
    pub(crate) fn sync_awaited(&self) -> Result<()> {
        let wanted_seq = self.awaited.begin();
        if self.awaited.has_ended() {
            return Ok(());
        }
        let synced = catch_unwind(AssertUnwindSafe(|| self.sync_write(wanted_seq)));
        let panicked = || Error::invalid("a sync for commits panicked", "report the panic");
        let synced = synced.unwrap_or_else(|_| Err(panicked()));
        self.tell_awaited(&synced);
        synced
    }

    /// Wakes awaited commits after a sync by a caller, if no thread does.
    pub(crate) fn synced_by_hand(&self, synced: &Result<()>) {
        if self.syncing.is_none() {
            self.tell_awaited(synced);
        }
    }

    fn tell_awaited(&self, synced: &Result<()>) {
        match synced {
            Ok(()) => self.awaited.wake_through(self.catalog.durable_seq.load(Acquire)),
            Err(error) => self.awaited.end(error.clone()),
        }
    }

    /// Ends the waiting commits of a store that was closed with this outcome. With `is_flushed`,
    /// all their writes are in tables.
    pub(crate) fn end_awaited(&self, outcome: &Result<()>, is_flushed: bool) {
        if is_flushed && outcome.is_ok() && !self.env.is_stopped() {
            // The store is closed, so no later sequence number is assigned.
            let last_seq = self.state.lock().next_seq - 1;
            self.catalog.durable_seq.fetch_max(last_seq, AcqRel);
        }
        self.awaited.wake_through(self.catalog.durable_seq.load(Acquire));
        let cause = outcome.clone().and_then(|()| self.env.check_healthy());
        self.awaited.end(cause.err().unwrap_or(Error::Closed));
    }

    fn is_durable(&self, seq: SeqNo) -> bool {
        self.catalog.durable_seq.load(Acquire) >= seq || seeded!(AwaitedBeforeSync)
    }
}
