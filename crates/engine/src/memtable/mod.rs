//! The memtable: recent writes of one keyspace in memory, in order, until they are flushed.
//!
//! `wal` and `write/log.rs` make writes durable, and `write/commit.rs` gives them their sequence
//! numbers.

pub mod arena;
pub mod btree;
mod filter;
mod latch;
#[cfg(test)]
pub mod model;
mod range_deletes;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod weak;

use std::sync::atomic::{AtomicU64, Ordering::*};
use std::sync::{Arc, OnceLock};

use crate::sync::{Mutex, rank};
use crossbeam_utils::CachePadded;
use runstone_policy::policy::idle::LEAST_TOMBSTONES;
use runstone_policy::shape::expiry::{Expiries, ExpiryCounts};
use runstone_policy::shape::range_delete::RangeDelete;

use crate::format::filter::hash;
use crate::keys::expiry::expiry_of;
use crate::keys::{Kind, SeqNo, pack, seek_trailer, seq_of};
use crate::memtable::arena::{Arena, ChunkPool};
pub use crate::memtable::btree::PinnedRecord;
use crate::memtable::btree::tally::Tally;
use crate::memtable::btree::{Position, Prepared, Record, RecordRef, Tree};
use crate::memtable::filter::PooledFilter;
use crate::memtable::range_deletes::OwnRangeDeletes;
use crate::ranges::RangeDeletes;
use crate::sync::cores as sync;

/// Keys per node. 64 heads fill eight cache lines, and a binary search touches three of them.
const NODE_KEYS: usize = 64;

/// The first sequence number of a batch that has no numbers yet. It is above all that a store gives
/// out, so that nobody sees the entries of the batch.
pub const UNNUMBERED: SeqNo = 1 << 55;

/// Recent writes of one keyspace.
#[derive(Debug)]
pub struct Memtable {
    tree: Tree,
    /// A filter over all its keys, if the memtable will be large: see [`Memtable::filtered`].
    filter: Option<PooledFilter>,
    /// The range deletes among its entries; not set if there are none. Boxed, because most
    /// memtables have none.
    range_deletes: OnceLock<Box<OwnRangeDeletes>>,
    /// The entries that expire, see [`Memtable::count_expiries`].
    expiries: Mutex<rank::Expiries, CountedExpiries>,
    /// Changes with every write, so it must not share a cache line with the tree's root.
    announced: CachePadded<Announced>,
}

/// The counts of entries that expire, taken when the memtable contained nothing newer than `seq`.
#[derive(Debug, Default)]
struct CountedExpiries {
    seq: SeqNo,
    expiries: Expiries,
}

/// What is known about the entries that the memtable will contain once its writers are done.
/// Changes only under the commit lock.
#[derive(Debug)]
struct Announced {
    /// Smallest sequence number inside; `u64::MAX` when empty.
    min_seq: AtomicU64,
    max_seq: AtomicU64,
    /// The number of entries; `deletes` is how many of them are deletes. A batch over several
    /// keyspaces counts as a whole for each of them.
    entries: AtomicU64,
    deletes: AtomicU64,
    /// First WAL segment that contains an entry of this memtable; `u64::MAX` when empty.
    first_segment: AtomicU64,
    /// Bytes of values that the entries point to and that no edit of their value file records yet.
    apart_bytes: AtomicU64,
    /// The memtable is full once its memory, or the bytes of such values, reach this limit.
    limit_bytes: u64,
}

impl Memtable {
    /// An empty memtable that is full at `limit_bytes`.
    pub fn new(pool: &Arc<ChunkPool>, limit_bytes: usize) -> Memtable {
        Memtable {
            tree: Tree::new(Arena::new(Arc::clone(pool), limit_bytes)),
            filter: None,
            range_deletes: OnceLock::new(),
            expiries: Mutex::default(),
            announced: CachePadded::new(Announced {
                min_seq: AtomicU64::new(u64::MAX),
                max_seq: AtomicU64::new(0),
                entries: AtomicU64::new(0),
                deletes: AtomicU64::new(0),
                first_segment: AtomicU64::new(u64::MAX),
                apart_bytes: AtomicU64::new(0),
                limit_bytes: limit_bytes as u64,
            }),
        }
    }

    /// As `new`, with a filter, if one is ready: a get of an absent key then costs one cache miss.
    /// The filter takes 1/64 of the limit from the start, so it is for memtables that will be
    /// filled.
    pub fn filtered(pool: &Arc<ChunkPool>, limit_bytes: usize) -> Memtable {
        let filter = pool.take_filter(limit_bytes);
        Memtable { filter, ..Memtable::new(pool, limit_bytes) }
    }

    /// Announces the entries of a batch before they are inserted. The batch has `batch_len` writes,
    /// of which `deletes` are deletes, and is logged in WAL segment `segment`. Called under the
    /// commit lock, so a memtable that was replaced gets no further batch. Returns whether these
    /// entries are the memtable's first.
    #[must_use]
    pub fn announce(&self, first_seq: SeqNo, batch_len: u64, deletes: u64, segment: u64) -> bool {
        // Only this function writes these fields, one caller at a time, so no atomic
        // read-modify-write is needed.
        let announced = &*self.announced;
        let newest_seq = announced.max_seq.load(Relaxed);
        assert!(newest_seq < first_seq, "a memtable is told of a batch after a later one");
        let is_first = self.is_empty();
        if is_first {
            announced.first_segment.store(segment, Relaxed);
            announced.min_seq.store(first_seq, Relaxed);
        }
        announced.max_seq.store(first_seq + batch_len - 1, Relaxed);
        let add =
            |counter: &AtomicU64, count| counter.store(counter.load(Relaxed) + count, Relaxed);
        add(&announced.entries, batch_len);
        add(&announced.deletes, deletes);
        is_first
    }

    /// Notes values that entries point to. Collections learn of the space of these values only at a
    /// flush, so the values count towards the size of the memtable.
    pub fn note_apart(&self, bytes: u64) {
        self.announced.apart_bytes.fetch_add(bytes, Relaxed);
    }

    /// Inserts an entry of a batch that has no sequence number yet, see [`Memtable::number`].
    /// `index` is the entry's place in the batch.
    pub fn insert_unnumbered(&self, index: u64, kind: Kind, key: &[u8], value: &[u8]) {
        self.tree.insert(key, pack(UNNUMBERED + index, kind), value);
    }

    /// All entries, for [`Memtable::number`].
    pub fn records(&self) -> Vec<RecordRef> {
        self.tree.records()
    }

    /// Numbers the entries of a batch that begins with `first_seq`. Readers may read meanwhile, as
    /// long as the batch is not visible.
    pub fn number(&self, records: &[RecordRef], first_seq: SeqNo) {
        self.tree.number(records, UNNUMBERED - first_seq);
    }

    /// Inserts one entry. Readers learn of a range delete by [`Memtable::note_range_deletes`].
    #[inline]
    pub fn insert(&self, key: &[u8], trailer: u64, value: &[u8]) {
        debug_assert!(
            seq_of(trailer) <= self.announced.max_seq.load(Relaxed),
            "a version is inserted before its batch is announced"
        );
        if let Some(filter) = &self.filter {
            filter.add(hash(key));
        }
        self.tree.insert(key, trailer, value);
    }

    /// Makes range deletes, which are among the entries too, known to readers. No later range
    /// delete has a sequence number up to `settled`. O(log n) each, amortised.
    pub fn note_range_deletes(&self, ranges: Vec<Arc<RangeDelete>>, settled: SeqNo) {
        if ranges.is_empty() {
            return;
        }
        let bytes = self.range_deletes.get_or_init(Box::default).add(ranges, settled);
        self.tree.count_beside(bytes);
    }

    /// The range deletes, if there are any.
    #[inline]
    pub fn range_deletes(&self) -> Option<Arc<RangeDeletes>> {
        self.range_deletes.get().map(|own| own.set())
    }

    /// Whether a range delete that a reader at `seq` sees hides an entry with this sequence number.
    /// O(1) without newer range deletes, otherwise O(log n).
    #[inline(always)]
    pub fn hides(&self, key: &[u8], entry: SeqNo, seq: SeqNo) -> bool {
        self.range_deletes.get().is_some_and(|own| own.hide(key, entry, seq))
    }

    /// Does the part of an insert that needs no trailer, see [`Tree::prepare`].
    #[inline]
    pub fn prepare(&self, key: &[u8], value: &[u8]) -> Prepared<'_> {
        let Some(filter) = &self.filter else { return self.tree.prepare(key, value) };
        // The filter is changed last: its atomic operation waits for all earlier stores, and the
        // lock that is taken next would wait for them anyway.
        let hash = hash(key);
        filter.prefetch(hash);
        let prepared = self.tree.prepare(key, value);
        filter.add(hash);
        prepared
    }

    /// The newest entry of `key` visible at `seq`. O(log n); with a filter O(1) for most absent
    /// keys.
    #[inline]
    pub fn get(&self, key: &[u8], seq: SeqNo) -> Option<&Record> {
        if self.filter.as_ref().is_some_and(|filter| !filter.may_contain(hash(key))) {
            return None;
        }
        let found = self.tree.lower_bound(key, seek_trailer(seq))?;
        (found.key() == key).then_some(found)
    }

    /// Estimates how much is between two keys, see [`Tree::tally`].
    pub fn tally(&self, from: &[u8], to: Option<&[u8]>) -> Tally {
        self.tree.tally(from, to)
    }

    /// The ordered map of the memtable.
    pub(crate) fn tree(&self) -> &Tree {
        &self.tree
    }

    /// Keeps one of its records after the memtable is dropped, and only the pages of that record.
    pub fn pin(&self, record: &Record) -> PinnedRecord {
        self.tree.pin(record)
    }

    /// Whether nothing was announced.
    pub fn is_empty(&self) -> bool {
        self.announced.first_segment.load(Relaxed) == u64::MAX
    }

    /// How many entries it contains, see [`Memtable::announce`].
    pub fn entries(&self) -> u64 {
        self.announced.entries.load(Relaxed)
    }

    /// How many of its entries are deletes.
    pub fn deletes(&self) -> u64 {
        self.announced.deletes.load(Relaxed)
    }

    /// How many of its entries have certainly expired; `None` if expiring entries are not counted.
    pub fn expired(&self, now_ms: u64) -> Option<u64> {
        let counted = self.expiries.lock();
        (counted.seq >= self.max_seq()).then(|| counted.expiries.surely_expired(now_ms))
    }

    /// Whether so many of its entries are deletes, or have expired, that a flush would speed up
    /// scans. Of the expired entries, only those that were counted are known.
    pub fn is_littered(&self, now_ms: u64) -> bool {
        let expired = self.expiries.lock().expiries.surely_expired(now_ms);
        let hidden = self.deletes() + expired;
        hidden >= LEAST_TOMBSTONES && hidden * 4 >= self.entries()
    }

    /// Whether the memtable has enough entries to matter, and some were not counted.
    pub fn awaits_count(&self) -> bool {
        self.entries() >= LEAST_TOMBSTONES && self.expiries.lock().seq < self.max_seq()
    }

    /// Counts the entries that expire, in a walk over the whole memtable. It is called when nobody
    /// writes to the store: counting at each write would cost more than the walk.
    pub fn count_expiries(memtable: &Arc<Memtable>) {
        let seq = memtable.max_seq();
        let mut counts = ExpiryCounts::default();
        let mut iter = MemtableIter::new(Arc::clone(memtable));
        iter.seek_to_first();
        while let Some(record) = iter.record() {
            if let Some(at_ms) = expiry_of(record.trailer(), record.value()) {
                counts.add(at_ms);
            }
            iter.next();
        }
        *memtable.expiries.lock() = CountedExpiries { seq, expiries: counts.finish() };
    }

    /// Whether it is time to replace the memtable.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.tree.is_full()
            || self.announced.apart_bytes.load(Relaxed) >= self.announced.limit_bytes
    }

    /// Memory taken.
    pub fn allocated_bytes(&self) -> usize {
        self.tree.allocated_bytes()
    }

    /// Leaves a flushed memtable to its readers, see [`Arena::leave`].
    pub fn leave(&self) {
        self.tree.leave();
    }

    /// Memory taken from the budget, without the filter.
    pub fn reserved_bytes(&self) -> usize {
        self.tree.reserved_bytes()
    }

    /// First WAL segment that is needed to recover this memtable, if it contains anything.
    pub fn first_segment(&self) -> Option<u64> {
        Some(self.announced.first_segment.load(Relaxed)).filter(|segment| *segment != u64::MAX)
    }

    /// Smallest sequence number announced; `u64::MAX` when empty.
    pub fn first_seq(&self) -> SeqNo {
        self.announced.min_seq.load(Relaxed)
    }

    /// Largest sequence number announced.
    pub fn max_seq(&self) -> SeqNo {
        self.announced.max_seq.load(Relaxed)
    }
}

/// An iterator over a memtable, in internal-key order.
#[derive(Debug)]
pub struct MemtableIter {
    memtable: Arc<Memtable>,
    position: Position,
}

impl MemtableIter {
    /// An iterator that is at no entry; seek before use.
    pub fn new(memtable: Arc<Memtable>) -> Self {
        MemtableIter { memtable, position: Position::default() }
    }

    /// The current record.
    #[inline]
    pub fn record(&self) -> Option<&Record> {
        self.position.record(&self.memtable.tree)
    }

    /// Leaves the current entry, so that the iterator is at no entry.
    pub fn leave(&mut self) {
        self.position = Position::default();
    }

    /// Moves to the first entry at or after the internal key.
    pub fn seek(&mut self, key: &[u8], trailer: u64) {
        self.position.seek(&self.memtable.tree, key, trailer);
    }

    /// Moves to the first entry.
    pub fn seek_to_first(&mut self) {
        self.position.seek_to_first(&self.memtable.tree);
    }

    /// Moves to the last entry.
    pub fn seek_to_last(&mut self) {
        self.position.seek_to_last(&self.memtable.tree);
    }

    /// Moves to the next entry.
    #[inline]
    pub fn next(&mut self) {
        self.position.next(&self.memtable.tree);
    }

    /// Moves to the previous entry.
    pub fn prev(&mut self) {
        self.position.prev(&self.memtable.tree);
    }
}
