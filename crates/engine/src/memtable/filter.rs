//! Which keys a memtable may hold: a get that finds its key in a table would else search every
//! memtable first, a chain of cache misses through a tree that grows while others write.
//!
//! A Bloom filter of one word a key: four bits of a word of 64, set by one atomic operation before
//! the entry is inserted, so that whoever may see an entry finds its bits (the visible number is
//! published after, and read before). With 16 bits a key 0.6% of other keys pass. Not here: the
//! filters of tables, which are built once and by the number of their keys.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;

use crate::cache::{Cache, Reservation};
use crate::prefetch::prefetch;

/// A filter takes this part of what its memtable may: 16 bits for each entry of 128 bytes.
const BYTES_PER_FILTER_BYTE: usize = 64;
/// Larger memtables get no larger filter: clearing it is up to a writer.
const MOST_BYTES: usize = 8 << 20;
const WORD_BYTES: usize = size_of::<u64>();
/// So many filters are kept for coming memtables.
const MOST_FREE: usize = 2;

/// A filter; see the module docs.
#[derive(Debug)]
struct KeyFilter {
    words: Box<[AtomicU64]>,
    _reservation: Option<Reservation>,
}

impl KeyFilter {
    /// Which word is a key's: the upper half of the hash says.
    #[inline]
    fn at(&self, hash: u64) -> usize {
        (((hash >> 32) * self.words.len() as u64) >> 32) as usize
    }

    /// The word of a key, and its bits there.
    #[inline]
    fn place(&self, hash: u64) -> (&AtomicU64, u64) {
        let bit = |shift: u32| 1u64 << ((hash >> shift) & 63);
        (&self.words[self.at(hash)], bit(0) | bit(6) | bit(12) | bit(18))
    }
}

/// Makes filters, and keeps some for the next memtables: their memory is there already.
#[derive(Debug)]
pub(super) struct FilterPool {
    free: Mutex<Vec<KeyFilter>>,
    cache: Option<Arc<Cache>>,
}

impl FilterPool {
    /// Reserves the memory of filters from `cache`.
    pub(super) fn new(cache: Option<Arc<Cache>>) -> Arc<FilterPool> {
        Arc::new(FilterPool { free: Mutex::default(), cache })
    }

    /// An empty filter for a memtable of that size.
    pub(super) fn take(self: &Arc<Self>, limit_bytes: usize) -> PooledFilter {
        let bytes = (limit_bytes / BYTES_PER_FILTER_BYTE).clamp(WORD_BYTES, MOST_BYTES);
        let count = bytes / WORD_BYTES;
        let kept = {
            let mut free = self.free.lock();
            let at = free.iter().position(|filter| filter.words.len() == count);
            at.map(|at| free.swap_remove(at))
        };
        let filter = kept.unwrap_or_else(|| KeyFilter {
            words: (0..count).map(|_| AtomicU64::new(0)).collect(),
            _reservation: self.cache.as_ref().map(|cache| cache.reserve(bytes as u64)),
        });
        PooledFilter { filter: Some(filter), pool: Arc::clone(self) }
    }

    /// Gives all memory back.
    pub(super) fn trim(&self) {
        let free = std::mem::take(&mut *self.free.lock());
        drop(free);
    }

    fn give(&self, mut filter: KeyFilter) {
        filter.words.iter_mut().for_each(|word| *word.get_mut() = 0);
        let mut free = self.free.lock();
        if free.len() < MOST_FREE {
            free.push(filter);
        }
    }
}

/// A filter that goes back to its pool, emptied.
#[derive(Debug)]
pub(super) struct PooledFilter {
    /// There until dropped.
    filter: Option<KeyFilter>,
    pool: Arc<FilterPool>,
}

impl PooledFilter {
    /// Asks for the word that [`PooledFilter::add`] changes.
    #[inline]
    pub(super) fn prefetch(&self, hash: u64) {
        if let Some(filter) = &self.filter {
            prefetch(&filter.words, filter.at(hash));
        }
    }

    /// Adds a key by its hash.
    #[inline]
    pub(super) fn add(&self, hash: u64) {
        let Some(filter) = &self.filter else { return };
        let (word, bits) = filter.place(hash);
        // Most bits of a filter that is nearly full are set: looking costs less than writing.
        if word.load(Relaxed) & bits != bits {
            word.fetch_or(bits, Relaxed);
        }
    }

    /// Whether the key may have been added.
    #[inline]
    pub(super) fn may_contain(&self, hash: u64) -> bool {
        self.filter.as_ref().is_none_or(|filter| {
            let (word, bits) = filter.place(hash);
            word.load(Relaxed) & bits == bits
        })
    }
}

impl Drop for PooledFilter {
    fn drop(&mut self) {
        if let Some(filter) = self.filter.take() {
            self.pool.give(filter);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::filter::hash;

    #[test]
    fn what_was_added_is_found_and_little_else() {
        let pool = FilterPool::new(None);
        for _ in 0..2 {
            // Of 4,096 entries of 128 bytes; the second time a filter that was used before.
            let filter = pool.take(4096 * 128);
            let key = |number: u64| hash(&number.to_be_bytes());
            assert!((0..5_000).all(|number| !filter.may_contain(key(number))), "empty");
            (0..4096).for_each(|number| filter.add(key(number)));
            assert!((0..4096).all(|number| filter.may_contain(key(number))));
            let others = (4096..104_096).filter(|number| filter.may_contain(key(*number))).count();
            assert!((100..1_000).contains(&others), "{others} of 100,000 pass");
        }
        assert_eq!(pool.free.lock().len(), 1, "it was the same");
        let small = pool.take(1);
        small.add(5);
        assert!(small.may_contain(5));
    }

    #[test]
    fn threads_lose_none_of_each_others_bits() {
        let filter = FilterPool::new(None).take(64 << 10);
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
