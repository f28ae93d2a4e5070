//! Byte and operation counters, per category. The atomics are relaxed: they are statistics and
//! order nothing.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use crate::Category;

/// The number of stripes. Threads whose numbers differ modulo this constant use different stripes.
const STRIPES: usize = 8;

/// Counters of one category and stripe, in a cache line of their own, because the log's counters
/// change with every write, under the lock that all writers need.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Stripe {
    written_bytes: AtomicU64,
    read_bytes: AtomicU64,
    writes: AtomicU64,
    reads: AtomicU64,
    syncs: AtomicU64,
    write_backs: AtomicU64,
}

/// Counters of a storage, striped by thread.
#[derive(Debug, Default)]
pub struct Counters {
    categories: [[Stripe; STRIPES]; Category::ALL.len()],
}

/// The counters of one category at one moment: bytes passed to `write_at` and filled by `read_at`,
/// and the calls of these two, of `sync` and of `write_back`. The counters only grow, so compute a
/// rate from the difference of two snapshots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
#[non_exhaustive]
pub struct CountersSnapshot {
    pub written_bytes: u64,
    pub read_bytes: u64,
    pub writes: u64,
    pub reads: u64,
    pub syncs: u64,
    pub write_backs: u64,
}

impl Counters {
    /// The counters of a category, summed over the stripes.
    pub fn snapshot(&self, category: Category) -> CountersSnapshot {
        let stripes = &self.categories[category as usize];
        let sum = |of: fn(&Stripe) -> &AtomicU64| -> u64 {
            stripes.iter().map(|stripe| of(stripe).load(Relaxed)).sum()
        };
        CountersSnapshot {
            written_bytes: sum(|stripe| &stripe.written_bytes),
            read_bytes: sum(|stripe| &stripe.read_bytes),
            writes: sum(|stripe| &stripe.writes),
            reads: sum(|stripe| &stripe.reads),
            syncs: sum(|stripe| &stripe.syncs),
            write_backs: sum(|stripe| &stripe.write_backs),
        }
    }

    /// Counts one write.
    pub fn wrote(&self, category: Category, len_bytes: usize) {
        let mine = self.mine(category);
        mine.written_bytes.fetch_add(len_bytes as u64, Relaxed);
        mine.writes.fetch_add(1, Relaxed);
    }

    /// Counts one read.
    pub fn read(&self, category: Category, len_bytes: usize) {
        let mine = self.mine(category);
        mine.read_bytes.fetch_add(len_bytes as u64, Relaxed);
        mine.reads.fetch_add(1, Relaxed);
    }

    /// Counts one sync.
    pub fn synced(&self, category: Category) {
        self.mine(category).syncs.fetch_add(1, Relaxed);
    }

    /// Counts one write-back.
    pub fn wrote_back(&self, category: Category) {
        self.mine(category).write_backs.fetch_add(1, Relaxed);
    }

    /// The stripe of the calling thread.
    fn mine(&self, category: Category) -> &Stripe {
        static THREADS: AtomicUsize = AtomicUsize::new(0);
        thread_local! {
            static STRIPE: Cell<Option<usize>> = const { Cell::new(None) };
        }
        let stripe = STRIPE.get().unwrap_or_else(|| {
            let next = THREADS.fetch_add(1, Relaxed) % STRIPES;
            STRIPE.set(Some(next));
            next
        });
        &self.categories[category as usize][stripe]
    }
}
