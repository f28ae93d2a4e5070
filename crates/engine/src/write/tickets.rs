//! Whose turn it is: batches become visible in the order of their numbers, and one sync of the log
//! serves all writers that came before it. Not here: what is written and how it is synced.

use super::sync::atomic::{AtomicU64, Ordering::*};
use super::sync::{Condvar, Mutex, lock, pause, wait};
use crate::key::SeqNo;

/// Waits for the writers before this one (each only has memory to write), then makes the batch
/// visible. Release: who sees the number sees what its writer, and all before it, inserted.
pub fn publish(visible_seq: &AtomicU64, first_seq: SeqNo, last_seq: SeqNo) {
    let mut spins = 0u32;
    while visible_seq.load(Acquire) != first_seq - 1 && !seeded!(PublishedOutOfOrder) {
        spins += 1;
        pause(spins >= 128);
    }
    visible_seq.store(last_seq, Release);
}

/// Waits until `seq` is visible; its writer has only memory to write.
pub fn wait_visible(visible_seq: &AtomicU64, seq: SeqNo) {
    while visible_seq.load(Acquire) < seq {
        pause(true);
    }
}

/// Progress of log syncs.
#[derive(Debug)]
struct SyncState<E> {
    running: bool,
    /// The first failure; nothing is acknowledged after it (P7).
    failed: Option<E>,
}

/// Log syncs in groups.
#[derive(Debug)]
pub struct Syncer<E> {
    state: Mutex<SyncState<E>>,
    done: Condvar,
}

impl<E> Default for Syncer<E> {
    fn default() -> Self {
        let state = SyncState { running: false, failed: None };
        Syncer { state: Mutex::new(state), done: Condvar::default() }
    }
}

impl<E: Clone> Syncer<E> {
    /// Returns when `is_durable`, which a `sync` of this caller or another brings about; one runs
    /// at a time. After one that failed, the error of that one.
    pub fn until(
        &self,
        is_durable: impl Fn() -> bool,
        sync: impl Fn() -> Result<(), E>,
    ) -> Result<(), E> {
        let mut state = lock(&self.state);
        loop {
            if let Some(error) = &state.failed {
                return Err(error.clone());
            }
            if is_durable() {
                return Ok(());
            }
            if state.running {
                state = wait(&self.done, state);
                if seeded!(SyncNotChecked) {
                    return Ok(());
                }
                continue;
            }
            state.running = true;
            drop(state);
            let outcome = sync();
            state = lock(&self.state);
            state.running = false;
            if !seeded!(FailedSyncForgotten) {
                state.failed = outcome.err();
            }
            self.done.notify_all();
        }
    }
}
