//! Counters and histograms of a running store. `prometheus.rs` writes them as text.
//!
//! Counters of hot paths are striped over cache lines by thread, so that counting never makes two
//! readers share a line. Histograms have 16 buckets per power of two: at most 6% error, no locks.

pub(crate) mod heat;
mod prometheus;

use std::borrow::Cow;
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use crossbeam_utils::CachePadded;
use runstone_policy::units::Thousandths;
use runstone_random::mix64;
use serde::{Deserialize, Serialize};

use crate::sync::threads::thread_number;

use self::heat::Heat;
pub use self::heat::{Hot, KeyspaceHeat};

const STRIPES: usize = 16;
/// One call in this many is measured.
const SAMPLED_ONE_IN: u32 = 64;

macro_rules! counters {
    ($($(#[doc = $doc:literal])+ $name:ident),+ $(,)?) => {
        /// How the budget is used now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct MemoryUse {
    /// The whole budget.
    pub budget_bytes: u64,
    /// Bytes that memtables and log segments reserve.
    pub memtable_bytes: u64,
    /// The largest value of `memtable_bytes` since writers last paused for a while, or since the
    /// open.
    pub memtable_peak_bytes: u64,
    /// Index and filter partitions held outside of the cache, range deletes, and what collections
    /// and flushes of separated values hold while they run.
    pub pinned_bytes: u64,
    /// Flushed memtables that live on because values, cursors or views of users borrow from them.
    /// The cache shrinks for them.
    pub held_bytes: u64,
    /// Blocks, partitions and values in the cache.
    pub cache_bytes: u64,
    /// Memory that is mapped for blocks and values, in the cache or held by readers.
    pub mapped_bytes: u64,
}

/// What is counted.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(usize)]
        #[allow(non_camel_case_types)]
        pub enum Counter { $($(#[doc = $doc])+ $name),+ }

        pub(super) const COUNTERS: &[(&str, &str)] =
            &[$((stringify!($name), concat!($($doc),+))),+];

        /// All counters at one moment.
        #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(default)]
        #[non_exhaustive]
        pub struct CounterValues { $($(#[doc = $doc])+ pub $name: u64),+ }

        impl CounterValues {
            fn from_array(values: &[u64]) -> CounterValues {
                let mut values = values.iter().copied();
                CounterValues { $($name: values.next().unwrap_or(0)),+ }
            }

            pub(super) fn to_vec(&self) -> Vec<u64> {
                vec![$(self.$name),+]
            }

            /// What was counted since an earlier snapshot.
            pub fn since(&self, earlier: &CounterValues) -> CounterValues {
                CounterValues { $($name: self.$name.saturating_sub(earlier.$name)),+ }
            }
        }
    };
}

counters! {
    /// Gets.
    gets,
    /// Gets that found a value.
    get_hits,
    /// Writes (operations of batches).
    writes,
    /// Bytes of records that flushes and compactions appended to value files.
    value_bytes_written,
    /// Groups of value files collected, or chunks of logs.
    value_collections,
    /// Bytes read by collections.
    value_gc_bytes_read,
    /// Bytes written by collections.
    value_gc_bytes_written,
    /// The part of those that are records moved to a cold stream.
    value_cold_bytes_written,
    /// Pointers to values that collections wrote into the tree.
    value_pointers_written,
    /// How often a value file grew beyond its share, because nothing could be freed.
    value_grown,
    /// Reads of separated values.
    values_read,
    /// Commits (batches).
    commits,
    /// Key and value bytes written by users.
    user_bytes_written,
    /// Seeks of iterators.
    seeks,
    /// Entries returned by iterators.
    iterated,
    /// Hidden entries that iterators passed: deleted, overwritten or too new.
    hidden_passed,
    /// Runs of tables that seeks of iterators were positioned in.
    runs_sought,
    /// Gets that found the key (or that it was deleted) in a memtable.
    hits_memtable,
    /// Gets that found the key in level 0.
    hits_level_0,
    /// Gets that found the key in level 1.
    hits_level_1,
    /// Gets that found the key in level 2.
    hits_level_2,
    /// Gets that found the key in level 3.
    hits_level_3,
    /// Gets that found the key in level 4 or deeper.
    hits_deeper,
    /// Tables consulted by gets.
    tables_probed,
    /// Tables consulted by gets after a hit, because an overlapping table might have held a newer
    /// version: what a get that may stop at the first hit would save.
    tables_probed_after_hit,
    /// Filters that saved a block read.
    filter_negatives,
    /// Blocks read in vain after a filter passed the key.
    filter_false_positives,
    /// Data blocks searched by gets, and by gets and iterators for operands.
    blocks_searched,
    /// Data blocks that gets and scans read from files.
    blocks_read,
    /// Flushes.
    flushes,
    /// Table bytes written by flushes.
    flush_bytes_written,
    /// Bulk loads.
    bulk_loads,
    /// Table bytes written by bulk loads.
    bulk_bytes_written,
    /// Compactions.
    compactions,
    /// Table bytes read by compactions.
    compaction_bytes_read,
    /// Table bytes written by compactions.
    compaction_bytes_written,
    /// Data blocks that compactions copied unchanged, because no other input overlapped them.
    blocks_copied,
    /// Bytes of copied blocks; they also count as read and as written.
    block_bytes_copied,
    /// Table bytes that changed level without being rewritten.
    bytes_moved,
    /// Slices that compactions were split into.
    compaction_slices,
    /// Table bytes that sliced compactions read.
    sliced_bytes,
    /// Table bytes that the busiest thread of each sliced compaction read: the critical path.
    slice_critical_bytes,
    /// Parts of compactions that were installed by an edit of their own.
    compaction_parts,
    /// Entries dropped by compactions: shadowed versions and spent tombstones.
    entries_dropped,
    /// Entries that flushes and compactions found expired.
    entries_expired,
    /// Operands that flushes and compactions folded into values or into fewer operands.
    operands_folded,
    /// Operands that flushes and compactions left unfolded because a key had too many to hold.
    operands_passed,
    /// Operands that gets and iterators applied because no flush or compaction had folded them.
    operands_read,
    /// Values that gets wrote back because they had applied many operands.
    folded_values_written,
    /// Entries that compaction filters removed.
    entries_removed_by_filters,
    /// Entries that compaction filters changed.
    entries_changed_by_filters,
    /// Transactions that were committed.
    transactions_committed,
    /// Commits that were refused because another write came between.
    transaction_conflicts,
    /// Locks that a transaction waited for in vain.
    lock_timeouts,
    /// Locks that were refused because transactions would have waited for each other for ever.
    deadlocks,
    /// Syncs of the log.
    wal_syncs,
    /// Scrubs that read everything.
    scrubs,
    /// Bytes of entries and records that scrubs read.
    scrub_bytes,
    /// Damage that scrubs found.
    scrub_errors,
    /// Bytes of the log that were kept for readers of its history, and removed on a full disk.
    kept_log_bytes_given_up,
    /// Valid records of the log that the open did not use, because something before them was lost.
    log_records_lost,
    /// Nanoseconds that writers were slowed down.
    delayed_ns,
    /// Nanoseconds that writers were stopped.
    stopped_ns,
    /// Nanoseconds that threads of compactions paused for synced writes.
    paused_ns,
}

/// Striped counters and histograms of one store.
#[derive(Debug)]
pub struct Metrics {
    stripes: Vec<CachePadded<[AtomicU64; COUNTERS.len()]>>,
    /// Commit latency, one in 64.
    pub(crate) commit_ns: Histogram,
    /// Get latency, one in 64.
    pub(crate) get_ns: Histogram,
    /// Every wait of a writer for back-pressure.
    pub(crate) stall_ns: Histogram,
    /// Every log sync.
    pub(crate) sync_ns: Histogram,
    /// Keys that are read, one in 64.
    pub(crate) heat: Heat,
    /// Latencies since somebody last took them.
    pub(crate) lately: Lately,
}

/// Latencies of measured gets and commits, and of synced writes. They are recorded while somebody
/// wants them.
#[derive(Debug, Default)]
pub(crate) struct Lately {
    is_wanted: AtomicBool,
    sampled_ns: Histogram,
    synced_ns: Histogram,
    /// How many times the latencies were requested in vain.
    looks: AtomicU64,
    /// The count of gets and commits at the last look.
    calls: AtomicU64,
}

impl Lately {
    /// Fewer measurements than this say nothing about the slowest hundredth.
    const LEAST: u64 = 20;
    /// After this many looks, the measurements so far must suffice.
    const MOST_LOOKS: u64 = 10;

    fn record(&self, took: Duration) {
        if self.is_wanted.load(Relaxed) {
            self.sampled_ns.record(took);
        }
    }

    /// Notes a synced write.
    pub(crate) fn record_synced(&self, took: Duration) {
        if self.is_wanted.load(Relaxed) {
            self.synced_ns.record(took);
        }
    }

    /// The higher p99 of the two histograms since they were last taken, unless too few calls were
    /// measured.
    fn take(&self) -> Option<Duration> {
        self.is_wanted.store(true, Relaxed);
        let both = [&self.sampled_ns, &self.synced_ns];
        let is_late = self.looks.fetch_add(1, Relaxed) + 1 >= Lately::MOST_LOOKS;
        let least = if is_late { 1 } else { Lately::LEAST };
        if both.iter().all(|one| one.percentiles().count < least) {
            return None;
        }
        self.looks.store(0, Relaxed);
        let p99 = both.iter().filter_map(|one| {
            let taken = one.take();
            (taken.count >= least).then(|| Duration::from_nanos(taken.p99_ns))
        });
        p99.max()
    }

    /// Stops recording, because nobody wants the latencies any more.
    pub(crate) fn rest(&self) {
        self.is_wanted.store(false, Relaxed);
    }
}

#[inline]
fn stripe() -> usize {
    thread_number() % STRIPES
}

/// Whether this call is the one in 64 that is measured. A measurement takes two clock reads of 25
/// ns. The interval between two measured calls is 1 to 127 calls, drawn at random. With a fixed
/// interval, all measurements of a program that alternates puts and gets would be puts, or all
/// would be gets. If a program reads 64 keys in a cycle, all measurements would be of one key.
#[inline]
pub(crate) fn sampled() -> bool {
    thread_local! {
        static LEFT: Cell<u32> = const { Cell::new(SAMPLED_ONE_IN) };
    }
    LEFT.with(|left| {
        let rest = left.get() - 1;
        left.set(rest);
        rest == 0 && {
            left.set(calls_between());
            true
        }
    })
}

/// Always at least 1.
#[cold]
fn calls_between() -> u32 {
    thread_local! {
        static DRAWN: Cell<u64> = const { Cell::new(0) };
    }
    let drawn = DRAWN.with(|drawn| drawn.replace(drawn.get() + 1));
    let mixed = mix64(drawn ^ (thread_number() as u64) << 32);
    1 + (mixed % u64::from(2 * SAMPLED_ONE_IN - 1)) as u32
}

impl Default for Metrics {
    fn default() -> Self {
        let zeros = || CachePadded::new(std::array::from_fn(|_| AtomicU64::new(0)));
        Metrics {
            stripes: (0..STRIPES).map(|_| zeros()).collect(),
            commit_ns: Histogram::default(),
            get_ns: Histogram::default(),
            stall_ns: Histogram::default(),
            sync_ns: Histogram::default(),
            heat: Heat::default(),
            lately: Lately::default(),
        }
    }
}

impl Metrics {
    /// Adds to a counter.
    #[inline]
    pub fn add(&self, counter: Counter, amount: u64) {
        self.stripes[stripe()][counter as usize].fetch_add(amount, Relaxed);
    }

    /// Adds to several counters of this thread's stripe.
    #[inline]
    pub(crate) fn add_all(&self, amounts: &[(Counter, u64)]) {
        let mine = &self.stripes[stripe()];
        for (counter, amount) in amounts {
            if *amount > 0 {
                mine[*counter as usize].fetch_add(*amount, Relaxed);
            }
        }
    }

    /// Notes a get that was measured.
    pub(crate) fn record_get(&self, took: Duration) {
        self.get_ns.record(took);
        self.lately.record(took);
    }

    /// Notes a commit that was measured.
    pub(crate) fn record_commit(&self, took: Duration) {
        self.commit_ns.record(took);
        self.lately.record(took);
    }

    /// The recent latency, and whether anybody read or wrote since the last call.
    pub(crate) fn take_lately(&self) -> (Option<Duration>, bool) {
        let counters = self.counters();
        let calls = counters.gets + counters.commits;
        (self.lately.take(), self.lately.calls.swap(calls, Relaxed) != calls)
    }

    /// All counters, summed over the stripes.
    pub fn counters(&self) -> CounterValues {
        let sum = |i: usize| self.stripes.iter().map(|stripe| stripe[i].load(Relaxed)).sum();
        let sums: Vec<u64> = (0..COUNTERS.len()).map(sum).collect();
        CounterValues::from_array(&sums)
    }
}

const SUB_BUCKET_BITS: u32 = 4;
const BUCKETS: usize = 64 << SUB_BUCKET_BITS;

/// A histogram of nanoseconds.
#[derive(Debug)]
pub struct Histogram {
    buckets: Vec<AtomicU64>,
    sum: AtomicU64,
    max: AtomicU64,
}

impl Default for Histogram {
    fn default() -> Self {
        Histogram {
            buckets: (0..BUCKETS).map(|_| AtomicU64::new(0)).collect(),
            sum: AtomicU64::new(0),
            max: AtomicU64::new(0),
        }
    }
}

/// Count, sum and percentiles of a histogram.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[allow(missing_docs)]
#[non_exhaustive]
pub struct Percentiles {
    pub count: u64,
    pub sum_ns: u64,
    pub p50_ns: u64,
    pub p99_ns: u64,
    pub p999_ns: u64,
    pub max_ns: u64,
}

impl Histogram {
    /// Adds one measurement.
    pub fn record(&self, took: Duration) {
        let ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.buckets[bucket(ns)].fetch_add(1, Relaxed);
        self.sum.fetch_add(ns, Relaxed);
        self.max.fetch_max(ns, Relaxed);
    }

    /// Takes the percentiles, and clears the histogram. A concurrent measurement may be lost.
    fn take(&self) -> Percentiles {
        let taken = self.percentiles();
        self.buckets.iter().for_each(|bucket| bucket.store(0, Relaxed));
        self.sum.store(0, Relaxed);
        self.max.store(0, Relaxed);
        taken
    }

    /// Percentiles of all measurements so far.
    pub fn percentiles(&self) -> Percentiles {
        let counts: Vec<u64> = self.buckets.iter().map(|bucket| bucket.load(Relaxed)).collect();
        let count: u64 = counts.iter().sum();
        if count == 0 {
            return Percentiles::default();
        }
        let max_ns = self.max.load(Relaxed);
        let at = |permille: u64| {
            let wanted = (u128::from(count) * u128::from(permille)).div_ceil(1000) as u64;
            let mut seen = 0;
            for (i, bucket_count) in counts.iter().enumerate() {
                seen += bucket_count;
                if seen >= wanted && seen > 0 {
                    return upper_bound(i).min(max_ns);
                }
            }
            max_ns
        };
        let sum_ns = self.sum.load(Relaxed);
        Percentiles { count, sum_ns, p50_ns: at(500), p99_ns: at(990), p999_ns: at(999), max_ns }
    }
}

fn bucket(ns: u64) -> usize {
    let sub = 1 << SUB_BUCKET_BITS;
    if ns < sub {
        return ns as usize;
    }
    let power = 63 - ns.leading_zeros();
    let within = (ns >> (power - SUB_BUCKET_BITS)) & (sub - 1);
    (((power - SUB_BUCKET_BITS + 1) as u64 * sub + within) as usize).min(BUCKETS - 1)
}

fn upper_bound(bucket: usize) -> u64 {
    let sub = 1usize << SUB_BUCKET_BITS;
    if bucket < sub {
        return bucket as u64;
    }
    let power = (bucket / sub - 1) as u32;
    ((sub + bucket % sub + 1) as u64).checked_shl(power).map_or(u64::MAX, |bound| bound - 1)
}

/// The limit that slows writers down most.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct PressureState {
    /// 0 without pressure, 1 when writers wait.
    pub level: Thousandths,
    /// The name of the limit.
    pub cause: Cow<'static, str>,
    /// How long this cause has held.
    pub since_ms: u64,
}

/// Everything that the store measures about itself, as of one moment.
///
/// It can be read back from its JSON. Figures that were not measured by the release that wrote the
/// JSON are zero.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct MetricsSnapshot {
    /// Counters.
    pub counters: CounterValues,
    /// Use of the memory budget.
    pub memory: MemoryUse,
    /// Bytes through the storage, by category name.
    pub io: Vec<IoCounters>,
    /// Bytes of live tables.
    pub table_bytes: u64,
    /// Bytes of all finished table files. This includes tables that a running compaction has
    /// written, and tables that have left the tree and still have readers.
    pub table_file_bytes: u64,
    /// The largest value of `table_file_bytes` since the store was opened.
    pub peak_table_file_bytes: u64,
    /// Entries in live tables.
    pub table_entries: u64,
    /// Memory of live filters, in bits.
    pub filter_bits: u64,
    /// Bytes of log segments in use.
    pub wal_bytes: u64,
    /// The most entries that were read while the commit lock was held once, since the open.
    pub commit_lock_peak_entries: u64,
    /// The most bytes that were copied while the commit lock was held once, since the open.
    pub commit_lock_peak_bytes: u64,
    /// Followers in other processes that hold a lease.
    pub followers: u64,
    /// Bytes of files, and of places in value files, that are kept only for followers.
    pub follower_held_bytes: u64,
    /// Bytes of the log that are kept only for readers of its history.
    pub kept_log_bytes: u64,
    /// Leases that were revoked since the open, because they held too much.
    pub follower_leases_revoked: u64,
    /// (table + WAL + manifest bytes written) / user bytes written, to three digits.
    pub write_amplification: f64,
    /// Whether writers are held back, and by what.
    pub pressure: PressureState,
    /// Bytes that flushes and compactions may now write per second, because of the rate that was
    /// set or of `target_p99`; `None` for no limit.
    pub background_io_limit_bytes: Option<u64>,
    /// Estimated bytes still to be compacted.
    pub compaction_debt_bytes: u64,
    /// Figures for each keyspace, in order of creation.
    pub keyspaces: Vec<KeyspaceMetrics>,
    /// Commit latency (one in 64).
    pub commit: Percentiles,
    /// Get latency (one in 64).
    pub get: Percentiles,
    /// Waits of writers.
    pub stall: Percentiles,
    /// Log syncs.
    pub sync: Percentiles,
}

/// What one keyspace holds, and what flushes and compactions did to it since the store was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[allow(missing_docs)]
#[non_exhaustive]
pub struct KeyspaceMetrics {
    pub name: String,
    pub tables: u64,
    pub runs: u64,
    pub level_0_runs: u64,
    pub table_bytes: u64,
    pub table_entries: u64,
    pub memtable_bytes: u64,
    pub value_file_bytes: u64,
    pub compaction_debt_bytes: u64,
    pub flushes: u64,
    pub flush_bytes_written: u64,
    pub compactions: u64,
    pub compaction_bytes_read: u64,
    pub compaction_bytes_written: u64,
}

/// What flushes and compactions did to one keyspace. Counted once per job, so no stripes are
/// needed.
#[derive(Debug, Default)]
pub(crate) struct Work {
    flushes: AtomicU64,
    flush_bytes_written: AtomicU64,
    compactions: AtomicU64,
    compaction_bytes_read: AtomicU64,
    compaction_bytes_written: AtomicU64,
}

impl Work {
    pub(crate) fn count_flush(&self, bytes: u64) {
        self.flushes.fetch_add(1, Relaxed);
        self.flush_bytes_written.fetch_add(bytes, Relaxed);
    }

    pub(crate) fn count_compaction(&self, read_bytes: u64, written_bytes: u64) {
        self.compactions.fetch_add(1, Relaxed);
        self.compaction_bytes_read.fetch_add(read_bytes, Relaxed);
        self.compaction_bytes_written.fetch_add(written_bytes, Relaxed);
    }

    /// Adds these counts to the metrics of what the keyspace holds.
    pub(crate) fn add_to(&self, metrics: KeyspaceMetrics) -> KeyspaceMetrics {
        KeyspaceMetrics {
            flushes: self.flushes.load(Relaxed),
            flush_bytes_written: self.flush_bytes_written.load(Relaxed),
            compactions: self.compactions.load(Relaxed),
            compaction_bytes_read: self.compaction_bytes_read.load(Relaxed),
            compaction_bytes_written: self.compaction_bytes_written.load(Relaxed),
            ..metrics
        }
    }
}

/// I/O of one category of files.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[allow(missing_docs)]
#[non_exhaustive]
pub struct IoCounters {
    pub category: Cow<'static, str>,
    pub written_bytes: u64,
    pub read_bytes: u64,
    pub writes: u64,
    pub reads: u64,
    pub syncs: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_bound_their_values_within_a_sixteenth() {
        for shift in 0..63 {
            for value in [1u64 << shift, (1 << shift) + (1 << shift) / 3, (2 << shift) - 1] {
                let bound = upper_bound(bucket(value));
                assert!(bound >= value && bound <= value + value / 16 + 1, "{value} {bound}");
            }
        }
        let histogram = Histogram::default();
        for us in 1..=1000 {
            histogram.record(Duration::from_micros(us));
        }
        let p = histogram.percentiles();
        assert!((500_000..540_000).contains(&p.p50_ns), "{p:?}");
        assert!((990_000..=1_000_000).contains(&p.p99_ns), "{p:?}");
        assert_eq!((p.count, p.max_ns, p.sum_ns), (1000, 1_000_000, 500_500_000));
    }

    /// Once, the calls at multiples of 64 were measured, so calls with odd numbers never were.
    #[test]
    fn no_rhythm_of_calls_escapes_the_samples() {
        for period in [2, 3, 64, 128] {
            let mut hits = vec![0; period];
            (0..period * 64_000).for_each(|call| hits[call % period] += u32::from(sampled()));
            let (least, most) = (hits.iter().min(), hits.iter().max());
            assert!(hits.iter().all(|hits| (850..1150).contains(hits)), "{least:?} {most:?}");
        }
    }

    #[test]
    fn latencies_of_late_are_told_once_there_are_enough() {
        let lately = Lately::default();
        lately.record(Duration::from_secs(9));
        assert_eq!(lately.take(), None, "nobody wanted that one");
        (0..19).for_each(|_| lately.record(Duration::from_millis(1)));
        assert_eq!(lately.take(), None);
        lately.record(Duration::from_millis(2));
        let p99 = lately.take().expect("twenty");
        assert!(p99.as_millis() == 2 || p99.as_micros() > 1900, "{p99:?}");
        lately.record_synced(Duration::from_millis(30));
        assert!((0..9).all(|_| lately.take().is_none()), "too few, for a while");
        assert!(lately.take() >= Some(Duration::from_millis(30)), "then it must do");
        assert_eq!(lately.take(), None);
    }

    #[test]
    fn counters_sum_over_threads() {
        let metrics = Metrics::default();
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| (0..100).for_each(|_| metrics.add(Counter::gets, 1)));
            }
        });
        assert_eq!(metrics.counters().gets, 800);
        assert_eq!(metrics.counters().writes, 0);
    }
}
