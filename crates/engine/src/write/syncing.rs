//! The thread that syncs for awaited commits, of one store or of all stores that share resources.
//! The first such commit starts it, so a program without awaited commits has no such thread.
//!
//! It is separate from the threads that run jobs: a flush takes a second, and no commit would
//! become ready in that time. Nor is there one thread per store, because a thousand stores may
//! share resources. While the thread syncs, the next commits gather, so they share a sync without
//! further measures.

use std::collections::VecDeque;
use std::fmt;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::thread::JoinHandle;

use crate::error::{Error, Result};
use crate::sync::{Condvar, Mutex, rank};
use crate::write::commit::Committer;

/// The stores that want a sync, and the thread that syncs them in turn.
#[derive(Default)]
pub(crate) struct Syncing {
    /// Whether the thread exists.
    has_thread: AtomicBool,
    state: Mutex<rank::Syncing, State>,
    /// Signalled when a store is queued, when a sync ends, and at the end.
    change: Condvar,
}

#[derive(Default)]
struct State {
    /// First come, first served. A store is queued once for each sync.
    noted: VecDeque<Arc<Committer>>,
    /// Identifies the open store that is being synced.
    busy: Option<u64>,
    thread: Option<JoinHandle<()>>,
    is_ended: bool,
}

impl State {
    fn has(&self, opening: u64) -> bool {
        self.busy == Some(opening) || self.noted.iter().any(|one| one.env.opening == opening)
    }

    fn is_here(&self) -> bool {
        let here = std::thread::current().id();
        self.thread.as_ref().is_some_and(|thread| thread.thread().id() == here)
    }
}

impl Syncing {
    /// Starts the thread, if there is none.
    pub(super) fn start(self: &Arc<Self>) -> Result<()> {
        if self.has_thread.load(Acquire) {
            return Ok(());
        }
        let mut state = self.state.lock();
        if state.is_ended {
            return Err(Error::Closed);
        }
        if state.thread.is_none() {
            let syncing = Arc::clone(self);
            let thread = std::thread::Builder::new().name("runstone-sync".into());
            let thread = thread.spawn(move || syncing.work()).map_err(|error| {
                Error::invalid(
                    format!("cannot start the thread that syncs: {error}"),
                    "raise the limit of threads, or write with Durability::Sync",
                )
            })?;
            state.thread = Some(thread);
            self.has_thread.store(true, Release);
        }
        Ok(())
    }

    /// Makes the thread sync a store.
    pub(super) fn note(&self, committer: &Arc<Committer>) {
        self.state.lock().noted.push_back(Arc::clone(committer));
        self.change.notify_all();
    }

    /// Returns once the thread has nothing more to do for a store that closes. If the thread itself
    /// calls this, because it wakes a program's tasks, this drops the notes of the store and
    /// returns at once.
    pub(crate) fn finish(&self, opening: u64) {
        let mut state = self.state.lock();
        if state.is_here() {
            let (own, others) =
                mem::take(&mut state.noted).into_iter().partition(|one| one.env.opening == opening);
            state.noted = others;
            drop(state);
            // This may be the last reference to a store, and dropping a store takes locks.
            return drop::<VecDeque<_>>(own);
        }
        while state.has(opening) {
            self.change.wait(&mut state);
        }
    }

    /// Ends the thread, and waits for it, unless it is the caller.
    pub(crate) fn end(&self) {
        let mut state = self.state.lock();
        state.is_ended = true;
        let is_here = state.is_here();
        let thread = state.thread.take();
        drop(state);
        self.change.notify_all();
        if let Some(thread) = thread.filter(|_| !is_here) {
            drop(thread.join());
        }
    }

    /// Ends the thread without waiting for it, because it may be waiting for the caller.
    pub(crate) fn abandon(&self) {
        let mut state = self.state.lock();
        state.is_ended = true;
        state.thread = None;
        drop(state);
        self.change.notify_all();
    }

    fn work(&self) {
        while let Some(committer) = self.next() {
            // The commits get the error.
            let _ = committer.sync_awaited();
            drop(committer);
            self.state.lock().busy = None;
            self.change.notify_all();
        }
    }

    /// Waits for the next store and returns it; `None` at the end.
    fn next(&self) -> Option<Arc<Committer>> {
        let mut state = self.state.lock();
        loop {
            if let Some(committer) = state.noted.pop_front() {
                state.busy = Some(committer.env.opening);
                return Some(committer);
            }
            if state.is_ended {
                return None;
            }
            self.change.wait(&mut state);
        }
    }
}

impl fmt::Debug for Syncing {
    // Committers refer to this type, so it refers to no committer.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Syncing").finish_non_exhaustive()
    }
}
