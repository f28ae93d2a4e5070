//! Publishes batches in the order of their sequence numbers, and lets one sync of the log serve all
//! writers that wrote before the sync. Other modules decide what is written, and how it is synced.

use crossbeam_utils::CachePadded;

use super::sync::atomic::{AtomicU64, Ordering::*};
use super::sync::{Condvar, Mutex, lock, pause, rest, wait};
use crate::keys::SeqNo;

/// No batch: a writer is changing the mark.
const BUSY: SeqNo = SeqNo::MAX;
/// A waiting writer checks `SPINS` times without a pause. Then it yields between checks. After
/// `YIELDS` checks, about 50 us, it sleeps between them.
const SPINS: u32 = 128;
const YIELDS: u32 = SPINS + 64;

/// The writes that readers may see: all writes up to a sequence number.
///
/// A batch that is inserted before its turn leaves a mark, and the writer of the previous batch
/// publishes both. If each writer waited to publish its own batch, two writers that share a core
/// would need a thread switch for every write: the running writer would wait for the other one,
/// which would publish, get its next sequence number, and wait in turn.
///
/// Up to `MARKS` batches can be marked; further batches wait until a mark is free.
#[derive(Debug)]
pub struct Publisher<const MARKS: usize = 64> {
    visible: CachePadded<AtomicU64>,
    /// The marks are not padded, so they share cache lines: with each write, a lone writer reads
    /// the next mark.
    marks: [Mark; MARKS],
}

/// An inserted batch. Its first sequence number determines its place among the marks.
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

    /// The largest sequence number that readers may see.
    #[inline]
    pub fn visible(&self) -> SeqNo {
        self.visible.load(Acquire)
    }

    /// Used by recovery, when nobody writes yet.
    pub fn set_visible(&self, seq: SeqNo) {
        self.visible.store(seq, Release);
    }

    /// Makes an inserted batch visible, after all batches with smaller sequence numbers, and
    /// returns when it is visible. Release: a reader that sees the sequence number sees everything
    /// that its writer and earlier writers inserted.
    pub fn publish(&self, first_seq: SeqNo, last_seq: SeqNo) {
        assert!(first_seq <= last_seq, "an empty batch has nothing to publish");
        let is_next = |visible| visible == first_seq - 1 || seeded!(PublishedOutOfOrder);
        let (mut is_marked, mut spins) = (false, 0u32);
        loop {
            let visible = self.visible.load(Acquire);
            if visible >= last_seq {
                return;
            }
            if is_next(visible) {
                // The writer of the previous batch may have read the mark too early.
                if is_marked {
                    return self.publish_marked(visible);
                }
                // Without a mark no other writer can publish this batch.
                let is_turn = visible == first_seq - 1;
                invariant!(is_turn, "a batch is published before an earlier one");
                self.visible.store(last_seq, Release);
                return self.publish_marked(last_seq);
            }
            is_marked = is_marked || self.mark(first_seq, last_seq);
            wait_longer(&mut spins);
        }
    }

    /// Waits until `seq` is visible. The wait is short, because the writer of `seq` only has to
    /// write to memory.
    pub fn wait_visible(&self, seq: SeqNo) {
        let mut spins = SPINS;
        while self.visible.load(Acquire) < seq {
            wait_longer(&mut spins);
        }
    }

    fn mark_of(&self, first_seq: SeqNo) -> &Mark {
        &self.marks[first_seq as usize % MARKS]
    }

    /// Leaves a mark, unless its place holds the mark of another batch that is not visible yet.
    fn mark(&self, first_seq: SeqNo, last_seq: SeqNo) -> bool {
        let mark = self.mark_of(first_seq);
        let old = mark.first_seq.load(Relaxed);
        let is_used = old > self.visible.load(Relaxed) && !seeded!(MarkOverwritten);
        if is_used || mark.first_seq.compare_exchange(old, BUSY, Acquire, Relaxed).is_err() {
            return false;
        }
        let is_free = old <= self.visible.load(Relaxed);
        invariant!(is_free, "the mark of a batch that waits is replaced");
        // Release: a thread that reads this knows, as this writer does, that the old batch is
        // visible.
        mark.last_seq.store(last_seq, Release);
        // Release: the thread that publishes the batch also makes visible what the writer of the
        // batch inserted.
        mark.first_seq.store(first_seq, Release);
        true
    }

    /// Publishes the batches after `last_seq`, which is visible, up to the first batch that is not
    /// marked.
    ///
    /// A mark stays until its batch is visible. So if the mark that is read here already belongs to
    /// a later batch, the exchange fails.
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

/// Waits a little. The longer the wait has lasted, the more it yields the processor to other
/// threads. The usual wait is for a writer that only has to write to memory. For a large batch, the
/// wait takes milliseconds.
fn wait_longer(spins: &mut u32) {
    *spins = spins.saturating_add(1);
    match *spins {
        0..SPINS => pause(false),
        SPINS..YIELDS => pause(true),
        _ => rest(),
    }
}

/// Progress of log syncs.
#[derive(Debug)]
struct SyncState<E> {
    running: bool,
    /// The first failure; nothing is acknowledged after it (P7).
    failed: Option<E>,
}

/// Log syncs in groups: one sync serves all writers that wrote before the sync.
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
    /// Returns once `is_durable` returns true, after a `sync` by this caller or another one. Only
    /// one sync runs at a time. After a sync has failed, every call returns its error.
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
                break;
            }
            if state.running {
                state = wait(&self.done, state);
                if seeded!(SyncNotChecked) {
                    break;
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
        invariant!(is_durable(), "a write is acknowledged before a sync covered it");
        Ok(())
    }
}
