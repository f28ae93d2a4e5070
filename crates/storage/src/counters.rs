//! Byte and operation counters, per category. Relaxed atomics: they are statistics, not order.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::Category;

/// Counters of one category. All grow for ever; rates are differences of snapshots. A cache line of
/// their own: those of the log change with every write.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct CategoryCounters {
    /// Bytes handed to `write_at`.
    pub written_bytes: AtomicU64,
    /// Bytes filled by `read_at`.
    pub read_bytes: AtomicU64,
    /// Calls of `write_at`.
    pub writes: AtomicU64,
    /// Calls of `read_at`.
    pub reads: AtomicU64,
    /// Calls of `sync`.
    pub syncs: AtomicU64,
}

/// Counters of a storage.
#[derive(Debug, Default)]
pub struct Counters {
    categories: [CategoryCounters; Category::ALL.len()],
}

/// The counters of one category at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct CountersSnapshot {
    pub written_bytes: u64,
    pub read_bytes: u64,
    pub writes: u64,
    pub reads: u64,
    pub syncs: u64,
}

impl Counters {
    /// The live counters of a category.
    pub fn of(&self, category: Category) -> &CategoryCounters {
        &self.categories[category as usize]
    }

    /// A copy of the counters of a category.
    pub fn snapshot(&self, category: Category) -> CountersSnapshot {
        let live = self.of(category);
        CountersSnapshot {
            written_bytes: live.written_bytes.load(Relaxed),
            read_bytes: live.read_bytes.load(Relaxed),
            writes: live.writes.load(Relaxed),
            reads: live.reads.load(Relaxed),
            syncs: live.syncs.load(Relaxed),
        }
    }

    /// Counts one write.
    pub fn wrote(&self, category: Category, len_bytes: usize) {
        let live = self.of(category);
        live.written_bytes.fetch_add(len_bytes as u64, Relaxed);
        live.writes.fetch_add(1, Relaxed);
    }

    /// Counts one read.
    pub fn read(&self, category: Category, len_bytes: usize) {
        let live = self.of(category);
        live.read_bytes.fetch_add(len_bytes as u64, Relaxed);
        live.reads.fetch_add(1, Relaxed);
    }

    /// Counts one sync.
    pub fn synced(&self, category: Category) {
        self.of(category).syncs.fetch_add(1, Relaxed);
    }
}
