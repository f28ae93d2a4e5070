//! Whose turn it is: batches become visible in the order of their numbers, and one sync of the log
//! serves all writers that came before it. Not here: what is written and how it is synced.

use crossbeam_utils::CachePadded;

use super::sync::atomic::{AtomicU64, Ordering::*};
use super::sync::{Condvar, Mutex, lock, pause, wait};
use crate::base::key::SeqNo;

/// No batch: its mark is being written.
const BUSY: SeqNo = SeqNo::MAX;

/// Which writes readers may see: all up to a number.
///
/// A batch that is inserted before its turn marks that, so that whoever has the turn before
/// publishes it as well. If each waited to publish its own, two writers that share a core would
/// need a switch of threads for every write: the one that runs waits for the one that does not,
/// which publishes, takes the next number but one, and waits in turn.
///
/// Up to `MARKS` batches can be marked; of more, some wait until a mark is free.
#[derive(Debug)]
pub struct Publisher<const MARKS: usize = 64> {
    visible: CachePadded<AtomicU64>,
    /// Not a cache line each: a writer alone looks at the next one with each write.
    marks: [Mark; MARKS],
}

/// A batch that is inserted, at the place that its first number gives.
#[derive(Debug)]
struct Mark {
    first_seq: AtomicU64,
    last_seq: AtomicU64,
}

impl<const MARKS: usize> Publisher<MARKS> {
    /// All writes up to `visible` may be seen.
    pub fn new(visible: SeqNo) -> Self {
        let unused = || Mark { first_seq: AtomicU64::new(0), last_seq: AtomicU64::new(0) };
        Publisher {
            visible: CachePadded::new(AtomicU64::new(visible)),
            marks: std::array::from_fn(|_| unused()),
        }
    }

    /// The largest number that readers may see.
    #[inline]
    pub fn visible(&self) -> SeqNo {
        self.visible.load(Acquire)
    }

    /// For recovery: nobody writes yet.
    pub fn set_visible(&self, seq: SeqNo) {
        self.visible.store(seq, Release);
    }

    /// Makes an inserted batch visible, after all that have smaller numbers. Returns when it is.
    /// Release: who sees the number sees what its writer, and all before it, inserted.
    pub fn publish(&self, first_seq: SeqNo, last_seq: SeqNo) {
        let is_next = |visible| visible == first_seq - 1 || seeded!(PublishedOutOfOrder);
        let (mut is_marked, mut spins) = (false, 0u32);
        loop {
            let visible = self.visible.load(Acquire);
            if visible >= last_seq {
                return;
            }
            if is_next(visible) {
                // Whoever published the batch before may have looked for the mark too early.
                if is_marked {
                    return self.publish_marked(visible);
                }
                // Without a mark nobody else can.
                self.visible.store(last_seq, Release);
                return self.publish_marked(last_seq);
            }
            is_marked = is_marked || self.mark(first_seq, last_seq);
            spins += 1;
            pause(spins >= 128);
        }
    }

    /// Waits until `seq` is visible; its writer has only memory to write.
    pub fn wait_visible(&self, seq: SeqNo) {
        while self.visible.load(Acquire) < seq {
            pause(true);
        }
    }

    fn mark_of(&self, first_seq: SeqNo) -> &Mark {
        &self.marks[first_seq as usize % MARKS]
    }

    /// Leaves a mark, unless that of another batch which is not visible yet is in its place.
    fn mark(&self, first_seq: SeqNo, last_seq: SeqNo) -> bool {
        let mark = self.mark_of(first_seq);
        let old = mark.first_seq.load(Relaxed);
        let is_used = old > self.visible.load(Relaxed) && !seeded!(MarkOverwritten);
        if is_used || mark.first_seq.compare_exchange(old, BUSY, Acquire, Relaxed).is_err() {
            return false;
        }
        // Release: whoever reads this knows, as this writer does, that the old batch is visible.
        mark.last_seq.store(last_seq, Release);
        // Release: who publishes the batch passes on what its writer inserted.
        mark.first_seq.store(first_seq, Release);
        true
    }

    /// Publishes the batches behind `last_seq`, which is visible, as far as they are marked.
    ///
    /// A mark stays until its batch is visible. So if the number read here is already that of a
    /// later batch, the exchange fails.
    fn publish_marked(&self, mut last_seq: SeqNo) {
        loop {
            let mark = self.mark_of(last_seq + 1);
            if mark.first_seq.load(Acquire) != last_seq + 1 {
                return;
            }
            let next_seq = mark.last_seq.load(Acquire);
            if self.visible.compare_exchange(last_seq, next_seq, AcqRel, Relaxed).is_err() {
                return;
            }
            last_seq = next_seq;
        }
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
