//! Shows which keys a memtable may contain. Without a filter, a get that finds its key in a table
//! would have to search every memtable first. Each search is a chain of cache misses through a
//! growing tree.
//!
//! It is a Bloom filter with one word per key: a key has four bits in a word of 64 bits. One atomic
//! operation sets them before the entry is inserted. So a reader that may see an entry finds its
//! bits, because the visible sequence number is published later and read earlier. With 16 bits per
//! key, less than 1% of absent keys pass. The filters of tables are in `format/filter.rs`; they are
//! built once, when the number of keys is known.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use crate::sync::{Mutex, rank};

use crate::cache::{Cache, Reservation};
use crate::memory::prefetch::prefetch;

/// A filter takes this fraction of its memtable's limit: 16 bits for each entry of 128 bytes.
const BYTES_PER_FILTER_BYTE: usize = 64;
/// No filter is larger than this, however large its memtable is.
const MOST_BYTES: usize = 8 << 20;
const WORD_BYTES: usize = size_of::<u64>();
/// The number of filters kept for future memtables.
const MOST_FREE: usize = 2;

/// The bits of the keys.
#[derive(Debug, Default)]
struct KeyFilter {
    words: Box<[AtomicU64]>,
    _reservation: Option<Reservation>,
}

impl KeyFilter {
    /// The index of a key's word, from the upper half of the hash.
    #[inline]
    fn at(&self, hash: u64) -> usize {
        (((hash >> 32) * self.words.len() as u64) >> 32) as usize
    }

    /// The word of a key, and the bits of the key in it.
    #[inline]
    fn place(&self, hash: u64) -> (&AtomicU64, u64) {
        let bit = |shift: u32| 1u64 << ((hash >> shift) & 63);
        (&self.words[self.at(hash)], bit(0) | bit(6) | bit(12) | bit(18))
    }
}

/// Filters for the next memtables. The background makes them, because the first use of a megabyte
/// of memory may take milliseconds, and writers must not wait that long.
#[derive(Debug)]
pub(super) struct FilterPool {
    free: Mutex<rank::FreeFilters, Vec<KeyFilter>>,
    /// The number of words of a filter that should be made; 0 if none is wanted.
    wanted_words: AtomicUsize,
    cache: Option<Arc<Cache>>,
}

impl FilterPool {
    /// Reserves the memory of filters from `cache`.
    pub(super) fn new(cache: Option<Arc<Cache>>) -> Arc<FilterPool> {
        let (free, wanted_words) = (Mutex::default(), AtomicUsize::new(0));
        Arc::new(FilterPool { free, wanted_words, cache })
    }

    /// An empty filter for a memtable of this size, if one is ready. Requests another if no such
    /// filter is left.
    pub(super) fn take(self: &Arc<Self>, limit_bytes: usize) -> Option<PooledFilter> {
        let bytes = (limit_bytes / BYTES_PER_FILTER_BYTE).clamp(WORD_BYTES, MOST_BYTES);
        let count = bytes / WORD_BYTES;
        let (filter, is_last) = {
            let mut free = self.free.lock();
            let fits = |filter: &KeyFilter| filter.words.len() == count;
            let filter = free.iter().position(fits).map(|at| free.swap_remove(at));
            (filter, !free.iter().any(fits))
        };
        if is_last {
            self.wanted_words.store(count, Relaxed);
        }
        filter.map(|filter| PooledFilter { filter, pool: Arc::clone(self) })
    }

    /// Whether [`FilterPool::prepare`] has something to do.
    pub(super) fn wants_one(&self) -> bool {
        self.wanted_words.load(Relaxed) > 0
    }

    /// Makes the filter that is wanted.
    pub(super) fn prepare(&self) {
        let count = self.wanted_words.swap(0, Relaxed);
        if count > 0 {
            let bytes = (count * WORD_BYTES) as u64;
            let reservation = self.cache.as_ref().map(|cache| cache.reserve(bytes));
            let words = (0..count).map(|_| AtomicU64::new(0)).collect();
            self.keep(KeyFilter { words, _reservation: reservation });
        }
    }

    /// Frees all kept filters.
    pub(super) fn trim(&self) {
        let free = std::mem::take(&mut *self.free.lock());
        drop(free);
    }

    fn give(&self, mut filter: KeyFilter) {
        filter.words.iter_mut().for_each(|word| *word.get_mut() = 0);
        self.keep(filter);
    }

    /// Keeps a filter, and drops the oldest if there are too many.
    fn keep(&self, filter: KeyFilter) {
        let mut free = self.free.lock();
        free.push(filter);
        let surplus = (free.len() > MOST_FREE).then(|| free.remove(0));
        drop(free);
        drop(surplus);
    }
}

/// A filter that returns to its pool, where it is emptied.
#[derive(Debug)]
pub(super) struct PooledFilter {
    filter: KeyFilter,
    pool: Arc<FilterPool>,
}

impl PooledFilter {
    /// Prefetches the word that [`PooledFilter::add`] changes.
    #[inline]
    pub(super) fn prefetch(&self, hash: u64) {
        prefetch(&self.filter.words, self.filter.at(hash));
    }

    /// Adds a key by its hash.
    #[inline]
    pub(super) fn add(&self, hash: u64) {
        let (word, bits) = self.filter.place(hash);
        // If a key is written again, its bits are already set, and a load costs less than an atomic
        // write.
        if word.load(Relaxed) & bits != bits {
            word.fetch_or(bits, Relaxed);
        }
    }

    /// Whether the key may have been added.
    #[inline]
    pub(super) fn may_contain(&self, hash: u64) -> bool {
        let (word, bits) = self.filter.place(hash);
        word.load(Relaxed) & bits == bits
    }
}

impl Drop for PooledFilter {
    fn drop(&mut self) {
        self.pool.give(std::mem::take(&mut self.filter));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::filter::hash;

    #[test]
    fn what_was_added_is_found_and_little_else() {
        let pool = FilterPool::new(None);
        assert!(pool.take(4096 * 128).is_none() && pool.wants_one());
        pool.prepare();
        for _ in 0..2 {
            // A filter for 4,096 entries of 128 bytes. In the second round, the filter has been
            // used before.
            let filter = pool.take(4096 * 128).expect("one is there");
            let key = |number: u64| hash(&number.to_be_bytes());
            assert!((0..5_000).all(|number| !filter.may_contain(key(number))), "empty");
            (0..4096).for_each(|number| filter.add(key(number)));
            assert!((0..4096).all(|number| filter.may_contain(key(number))));
            let others = (4096..104_096).filter(|number| filter.may_contain(key(*number))).count();
            assert!((100..1_000).contains(&others), "{others} of 100,000 pass");
        }
        assert_eq!(pool.free.lock().len(), 1, "it was the same");
        assert!(pool.take(1).is_none(), "a memtable of another size");
        pool.prepare();
        let small = pool.take(1).expect("of one word");
        small.add(5);
        assert!(small.may_contain(5));
    }

    #[test]
    fn threads_lose_none_of_each_others_bits() {
        let pool = FilterPool::new(None);
        assert!(pool.take(64 << 10).is_none());
        pool.prepare();
        let filter = pool.take(64 << 10).expect("it was wanted");
        let hashes =
            |thread: u64| (0..2_000).map(move |i: u64| hash(&(thread << 32 | i).to_be_bytes()));
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let filter = &filter;
                scope.spawn(move || hashes(thread).for_each(|hash| filter.add(hash)));
            }
        });
        assert!((0..4).flat_map(hashes).all(|hash| filter.may_contain(hash)));
    }
}
