//! One memory budget over memtables, pinned index and filters, and the block cache.
//!
//! The cache gets the memory that the others leave. A memtable's memory is reserved when the
//! memtable is made. Partitions of tables are pinned outside the cache while they take at most half
//! of the budget, so that a probe costs no look-up. Further partitions compete in the cache like
//! blocks. Separated values compete there too, each as one record. The map of the cache is
//! `quick_cache` (S3-FIFO, sharded, scan-resistant).
//!
//! Several stores of the process may share one budget. Each then has its own [`Cache`] on the same
//! [`Budget`].

mod doorkeeper;

use std::hash::{BuildHasherDefault, Hash, Hasher};
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};

use crate::sync::{Mutex, rank, subtract};
use crossbeam_utils::CachePadded;
use quick_cache::Weighter;
use runstone_storage::fork::Process;

use self::doorkeeper::Doorkeeper;
use crate::format::block::Block;
use crate::format::index::Partition;
use crate::format::record::Footer;
use crate::memory::slabs::{Buffer, Slabs, Tag};
use crate::metrics::MemoryUse;

/// Bytes before a shared object: its two reference counts.
const COUNTS_BYTES: usize = 16;
/// This fraction of the cache's share is set aside for slab slots that are briefly free, and for
/// buffers of compactions.
const FREE_FRACTION: u64 = 32;
/// When an insertion finds that slabs take more than the share of the cache, it empties at most
/// this many sparse slabs.
const MOST_EMPTIED: u64 = 4;
/// The cache keeps at least this fraction of the budget, whatever memtables take.
const CACHE_FLOOR_FRACTION: u64 = 16;
/// The cache has about one shard for this many bytes of the budget. The number of shards is a power
/// of two within these bounds, and smaller if a shard would hold less than 32 blocks. By default it
/// would depend on the number of cores. Here it does not, so that the same reads have the same hits
/// on every machine. The contention of many cores for the shards was not measured.
const SHARD_BYTES: u64 = 4 << 20;
const LEAST_SHARDS: u64 = 8;
const MOST_SHARDS: u64 = 256;
/// A separated value is cached if it takes at most this fraction of its shard.
const VALUE_FRACTION: u64 = 16;
/// The doorkeeper remembers as many reads as it takes to fill this fraction of the budget with
/// values. So if all values are read equally often, few of them replace each other.
const LATELY_FRACTION: u64 = 4;
/// The doorkeeper has one word for this many bytes of the budget: at most 0.4% of the budget. These
/// words do not count against it.
const MARK_BYTES: u64 = 2048;
/// Blocks that were just written enter the cache while the cache takes less than this part of the
/// budget. The rest is for memtables: the memory of freed blocks is scattered, and an allocator
/// cannot use it for memtables.
const ROOM_NUMERATOR: u64 = 5;
const ROOM_DENOMINATOR: u64 = 8;
/// Once memtables and log take this fraction of the budget, writers check their growth.
const WATCHED_FRACTION: u64 = 4;
/// An object's use is reported to the cache again once objects amounting to this fraction (a
/// quarter) of the cache's capacity have been added. Measured with zipfian gets (theta 0.99) of 5
/// million keys, with three fifths of the data in memory: if every use is reported, 9.7% of the
/// gets read a block; with a quarter, 9.9% do, and with the whole capacity, 12.3%.
const TURN_FRACTION: u64 = 4;
/// A smaller change of the capacity is not worth taking every shard's lock.
const ADJUST_STEP_BYTES: u64 = 1 << 20;

/// Identifies an object by the file's uid and the place in the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct CacheKey {
    /// The uid of a table file or value file, or of one group of a value file.
    pub uid: u64,
    /// Offset of the block or partition, generation of the segment, or place in the stream of the
    /// group.
    pub offset: u64,
}

impl CacheKey {
    /// The tag of its bytes in a slab.
    fn tag(self) -> Tag {
        [self.uid, self.offset]
    }
}

/// A cached object.
#[derive(Clone, Debug)]
pub enum Cached {
    /// A data block.
    Block(Arc<Block>),
    /// The index and filter of some neighbouring blocks.
    Partition(Arc<Partition>),
    /// The places of the records in a collected segment of a value file.
    Footer(Arc<Footer>),
    /// A record of a value file.
    Value(Arc<Buffer>),
}

#[derive(Clone, Debug)]
struct Weight;

impl Weighter<CacheKey, Cached> for Weight {
    fn weight(&self, _key: &CacheKey, value: &Cached) -> u64 {
        let bytes = match value {
            Cached::Block(block) => block.size_bytes(),
            Cached::Partition(partition) => partition.size_bytes(),
            Cached::Footer(footer) => footer.size_bytes(),
            Cached::Value(record) => record.taken_bytes() + size_of::<Buffer>(),
        };
        (bytes + COUNTS_BYTES) as u64
    }
}

/// Mixes the two words of a key. Uids are random already.
#[derive(Default)]
struct KeyHasher(u64);

impl Hasher for KeyHasher {
    fn finish(&self) -> u64 {
        let folded = u128::from(self.0) * 0x9e37_79b9_7f4a_7c15;
        (folded >> 64) as u64 ^ folded as u64
    }
    fn write(&mut self, bytes: &[u8]) {
        self.0 = self.0.rotate_left(23) ^ xxhash_rust::xxh3::xxh3_64(bytes);
    }
    fn write_u64(&mut self, word: u64) {
        self.0 = (self.0 ^ word).wrapping_mul(0xff51_afd7_ed55_8ccd).rotate_left(31);
    }
}

type Map = quick_cache::sync::Cache<CacheKey, Cached, Weight, BuildHasherDefault<KeyHasher>>;

/// A store's access to the cache under a budget. All keyspaces of the store share it.
#[derive(Debug)]
pub struct Cache {
    budget: Arc<Budget>,
    /// Distinguishes the objects of this store from those of other stores under the same budget.
    /// Uids cannot do that: a copy of a store has the same uids, although its files with the same
    /// file numbers may differ.
    salt: u64,
}

impl Cache {
    /// The memory budget that the cache is a part of, in bytes.
    pub fn budget_bytes(&self) -> u64 {
        self.budget.bytes()
    }

    /// A cache with its own budget.
    pub fn new(budget_bytes: u64) -> Cache {
        Cache { budget: Budget::new(budget_bytes), salt: 0 }
    }

    /// A cache under a budget that other caches may share. `number` is unique among them.
    pub fn sharing(budget: &Arc<Budget>, number: u64) -> Cache {
        let salt = xxhash_rust::xxh3::xxh3_64(&number.to_le_bytes());
        Cache { budget: Arc::clone(budget), salt }
    }

    #[inline]
    fn own(&self, key: CacheKey) -> CacheKey {
        CacheKey { uid: key.uid ^ self.salt, ..key }
    }

    /// Looks up an object.
    #[inline]
    pub fn get(&self, key: CacheKey) -> Option<Cached> {
        self.budget.map.get(&self.own(key))
    }

    /// Adds an object. Other objects are evicted to make room.
    pub fn insert(&self, key: CacheKey, value: Cached) {
        self.budget.insert(self.own(key), value);
    }

    /// Memory for an object that the cache will hold under this key. Its content is undefined, but
    /// initialised.
    pub fn take(&self, len: usize, key: CacheKey) -> Option<Buffer> {
        self.budget.slabs.take(len, self.own(key).tag())
    }

    /// Adds a record of a value file if it was read recently. A record that would evict many others
    /// is not added.
    pub fn admit_value(&self, key: CacheKey, record: &[u8]) {
        self.budget.admit_value(self.own(key), record);
    }

    /// Adds a block that was just written, if there is unused room. Readers of fresh data then find
    /// the block in memory, and it evicts no block that was read. Room that memtables briefly free
    /// does not count. Blocks there would be evicted when memtables grow again, and until then
    /// would be scattered over pages that stay resident. Measured with a budget of 202 MiB: 286 MiB
    /// resident if such room counts, 235 MiB if it does not.
    pub fn insert_if_room(&self, key: CacheKey, raw: &[u8]) {
        self.budget.insert_if_room(self.own(key), raw);
    }

    /// Removes an object.
    pub fn remove(&self, key: CacheKey) {
        self.budget.map.remove(&self.own(key));
    }

    /// Reserves memory for a memtable or a mapped log segment; the cache shrinks by it.
    pub fn reserve(&self, bytes: u64) -> Reservation {
        self.budget.reserve(bytes)
    }

    /// Reserves memory for a pinned partition, if the pinned share of the budget allows it.
    pub fn try_pin(&self, bytes: u64) -> Option<Reservation> {
        self.budget.try_pin(bytes)
    }

    /// Reserves memory for as long as its owner lives; the cache shrinks by it.
    pub fn pin(&self, bytes: u64) -> Reservation {
        self.budget.pin(bytes)
    }
}

impl Deref for Cache {
    type Target = Budget;

    #[inline]
    fn deref(&self) -> &Budget {
        &self.budget
    }
}

/// The budget, and the cached objects under it.
#[derive(Debug)]
pub struct Budget {
    budget_bytes: Arc<AtomicU64>,
    slabs: Arc<Slabs>,
    process: Process,
    map: Map,
    /// The number of the turn; a turn ends when objects amounting to a fraction (`TURN_FRACTION`)
    /// of the capacity have been added. Never 0.
    turn: AtomicU32,
    /// Bytes added in this turn.
    turn_bytes: CachePadded<AtomicU64>,
    doorkeeper: Doorkeeper,
    memtable_bytes: AtomicU64,
    /// The largest value of `memtable_bytes` since writers last paused.
    memtable_peak_bytes: AtomicU64,
    pinned_bytes: AtomicU64,
    /// Memory of flushed memtables that readers hold.
    held_bytes: AtomicU64,
    /// Set when a memtable takes memory while memtables take a large part of the budget.
    memtables_grew: AtomicBool,
    /// The capacity that was last set for the map.
    capacity_bytes: Mutex<rank::CacheCapacity, u64>,
    /// The part of the budget that memtables and partitions leave. Slabs may take it.
    share_bytes: AtomicU64,
    /// Memory of the map without its objects, at the beginning of the turn.
    map_bytes: AtomicU64,
    /// The free bytes of slabs when no further slab could be emptied; 0 if some slab can be
    /// emptied.
    tried_at_bytes: AtomicU64,
}

impl Budget {
    /// An unused budget.
    pub fn new(budget_bytes: u64) -> Arc<Budget> {
        let capacity_bytes = budget_bytes - budget_bytes / FREE_FRACTION;
        let options = quick_cache::OptionsBuilder::new()
            .estimated_items_capacity((budget_bytes / 4096).clamp(64, 1 << 24) as usize)
            .weight_capacity(capacity_bytes)
            .shards((budget_bytes / SHARD_BYTES).clamp(LEAST_SHARDS, MOST_SHARDS) as usize)
            .build()
            .expect("both capacities are set");
        let lifecycle = quick_cache::sync::DefaultLifecycle::default();
        let map = Map::with_options(options, Weight, BuildHasherDefault::default(), lifecycle);
        let map_bytes = map.memory_used().total() as u64;
        Arc::new(Budget {
            budget_bytes: Arc::new(AtomicU64::new(budget_bytes)),
            slabs: Slabs::new(budget_bytes),
            process: Process::current(),
            map,
            turn: AtomicU32::new(1),
            turn_bytes: CachePadded::default(),
            doorkeeper: Doorkeeper::new((budget_bytes / MARK_BYTES).clamp(64, 1 << 22) as usize),
            memtable_bytes: AtomicU64::new(0),
            memtable_peak_bytes: AtomicU64::new(0),
            pinned_bytes: AtomicU64::new(0),
            held_bytes: AtomicU64::new(0),
            memtables_grew: AtomicBool::new(false),
            capacity_bytes: Mutex::new(capacity_bytes),
            share_bytes: AtomicU64::new(budget_bytes),
            map_bytes: AtomicU64::new(map_bytes),
            tried_at_bytes: AtomicU64::new(0),
        })
    }

    /// The whole budget, in bytes.
    #[inline]
    pub fn bytes(&self) -> u64 {
        self.budget_bytes.load(Relaxed)
    }

    /// The whole budget, in bytes, for code that has no cache.
    pub fn shared_bytes(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.budget_bytes)
    }

    /// Changes the budget. A smaller one evicts cached objects at once; memtables and partitions
    /// stay until they are dropped. The number of shards and the size of slabs were chosen for the
    /// first budget, and do not change.
    pub fn set(&self, budget_bytes: u64) {
        self.budget_bytes.store(budget_bytes, Relaxed);
        self.adjust();
        self.tried_at_bytes.store(0, Relaxed);
        loop {
            let before = self.slabs.mapped_bytes();
            self.empty_sparse(MOST_EMPTIED);
            self.slabs.trim();
            if self.slabs.mapped_bytes() >= before {
                return;
            }
        }
    }

    /// The size at which a memtable is full. A second memtable fills while the first is flushed, so
    /// the size is limited such that both fit in the budget, whatever size the keyspace requests.
    pub fn memtable_bytes(&self, write_buffer_bytes: u64) -> u64 {
        write_buffer_bytes.min(self.bytes() / 2)
    }

    fn insert(&self, key: CacheKey, value: Cached) {
        let bytes = Weight.weight(&key, &value);
        self.map.insert(key, value);
        self.empty_sparse(MOST_EMPTIED);
        let whole = self.map.capacity() / TURN_FRACTION;
        let before = self.turn_bytes.fetch_add(bytes, Relaxed);
        if before < whole && before + bytes >= whole {
            self.turn_bytes.store(0, Relaxed);
            let next = self.turn.load(Relaxed).wrapping_add(1).max(1);
            self.turn.store(next, Relaxed);
            self.map_bytes.store(self.map.memory_used().total() as u64, Relaxed);
            self.adjust();
        }
    }

    /// Empties sparse slabs while slabs take more than the cache's share. This happens when the
    /// sizes of cached objects have changed, so that slots of the earlier sizes are of no use, or
    /// when the share has become smaller. Empties at most `most` slabs in one call.
    fn empty_sparse(&self, most: u64) {
        for _ in 0..most {
            let mapped = self.slabs.mapped_bytes();
            let share = self.share_bytes.load(Relaxed);
            // Readers may hold the memory that is mapped beyond the share. Then no slab can be
            // emptied.
            let free = self.slabs.free_bytes();
            let tried_at = self.tried_at_bytes.load(Relaxed);
            if free < tried_at {
                self.tried_at_bytes.store(free, Relaxed);
            }
            let has_tried = free < tried_at + self.slabs.slab_bytes();
            if mapped <= share || free <= mapped / FREE_FRACTION || has_tried {
                return;
            }
            let sparse = self.slabs.sparse();
            self.tried_at_bytes.store(if sparse.is_empty() { free } else { 0 }, Relaxed);
            for [uid, offset] in sparse {
                self.map.remove(&CacheKey { uid, offset });
            }
        }
    }

    /// Whether an object's use should be reported to the cache through [`Cache::get`], so that
    /// other objects are evicted before this one. `told` is the turn in which a use was last
    /// reported, or 0 for never.
    ///
    /// Once in a turn is enough: the cache remembers little more than whether an object was used
    /// since the cache last looked at it, and it looks at few objects twice in a turn.
    #[inline]
    pub fn is_due(&self, told: &AtomicU32) -> bool {
        told.load(Relaxed) != self.turn.load(Relaxed)
    }

    /// Notes that a use was reported in this turn.
    pub fn note_told(&self, told: &AtomicU32) {
        told.store(self.turn.load(Relaxed), Relaxed);
    }

    fn admit_value(&self, key: CacheKey, record: &[u8]) {
        let bytes = self.slabs.taken_bytes(record.len()) as u64;
        if bytes > self.map.shard_capacity() / VALUE_FRACTION {
            return;
        }
        let mut hasher = KeyHasher::default();
        key.hash(&mut hasher);
        let reads = self.bytes() / LATELY_FRACTION / bytes;
        if self.doorkeeper.knows(hasher.finish(), reads as usize)
            && let Some(copy) = self.slabs.copy(record, key.tag())
        {
            self.insert(key, Cached::Value(Arc::new(copy)));
        }
    }

    fn insert_if_room(&self, key: CacheKey, raw: &[u8]) {
        let wanted = self.slabs.taken_bytes(raw.len()) as u64;
        let room = self.bytes() / ROOM_DENOMINATOR * ROOM_NUMERATOR;
        let others = self.memtable_peak_bytes.load(Relaxed) + self.pinned_bytes.load(Relaxed);
        if self.map.weight() + wanted > room.min(self.capacity_beside(others)) {
            return;
        }
        let Some(copy) = self.slabs.copy(raw, key.tag()) else { return };
        if let Ok(block) = Block::parse(copy) {
            self.insert(key, Cached::Block(Arc::new(block)));
        }
    }

    fn reserve(self: &Arc<Self>, bytes: u64) -> Reservation {
        let now = self.memtable_bytes.fetch_add(bytes, Relaxed) + bytes;
        self.memtable_peak_bytes.fetch_max(now, Relaxed);
        self.note_memtables_grew();
        self.adjust();
        Reservation { budget: Arc::clone(self), bytes, pinned: false }
    }

    /// Notes that a memtable took memory, whether the memory is reserved now or was reserved
    /// before.
    pub fn note_memtables_grew(&self) {
        if self.memtable_bytes.load(Relaxed) > self.bytes() / WATCHED_FRACTION {
            self.memtables_grew.store(true, Relaxed);
        }
    }

    /// Whether memtables took memory since the last call while they take a large part of the
    /// budget. If so, it is time to check them.
    #[inline]
    pub fn take_memtables_grew(&self) -> bool {
        self.memtables_grew.load(Relaxed) && self.memtables_grew.swap(false, Relaxed)
    }

    fn try_pin(self: &Arc<Self>, bytes: u64) -> Option<Reservation> {
        let limit = self.bytes() / 2;
        let taken = self.pinned_bytes.fetch_add(bytes, Relaxed) + bytes;
        if taken > limit {
            subtract(&self.pinned_bytes, bytes);
            return None;
        }
        self.adjust();
        Some(Reservation { budget: Arc::clone(self), bytes, pinned: true })
    }

    fn pin(self: &Arc<Self>, bytes: u64) -> Reservation {
        self.pinned_bytes.fetch_add(bytes, Relaxed);
        self.adjust();
        Reservation { budget: Arc::clone(self), bytes, pinned: true }
    }

    /// Counts the reservations of a flushed memtable as held by readers from now on.
    pub fn hold(&self, bytes: u64) {
        self.held_bytes.fetch_add(bytes, Relaxed);
        subtract(&self.memtable_bytes, bytes);
        self.adjust();
    }

    /// Counts memory as reserved again, after its last reader has released it.
    pub fn take_back(&self, bytes: u64) {
        if bytes > 0 {
            self.memtable_bytes.fetch_add(bytes, Relaxed);
            subtract(&self.held_bytes, bytes);
            self.adjust();
        }
    }

    /// Sets the map's capacity to the memory that memtables and partitions leave.
    fn adjust(&self) {
        let others = self.memtable_bytes.load(Relaxed)
            + self.pinned_bytes.load(Relaxed)
            + self.held_bytes.load(Relaxed);
        let wanted = self.capacity_beside(others);
        let mut capacity = self.capacity_bytes.lock();
        if wanted.abs_diff(*capacity) >= ADJUST_STEP_BYTES.min(self.bytes() / 64) {
            let is_less = wanted < *capacity;
            *capacity = wanted;
            self.share_bytes.store(self.share_beside(others), Relaxed);
            self.map.set_capacity(wanted);
            drop(capacity);
            if is_less {
                self.empty_sparse(self.slabs.mapped_bytes() / self.slabs.slab_bytes());
            }
        }
    }

    /// The capacity of the map while memtables and partitions take `others` bytes.
    fn capacity_beside(&self, others: u64) -> u64 {
        let left = self.share_beside(others);
        left - left / FREE_FRACTION
    }

    /// The part of the budget that `others` bytes of memtables and partitions leave, without the
    /// memory of the map itself.
    fn share_beside(&self, others: u64) -> u64 {
        let floor = self.bytes() / CACHE_FLOOR_FRACTION;
        let others = others + self.map_bytes.load(Relaxed);
        self.bytes().saturating_sub(others).max(floor)
    }

    /// Removes all objects, because no reader is left.
    pub fn clear(&self) {
        self.map.clear();
    }

    /// Called when writers pause: unmaps empty slabs, and begins a new peak, because the old one
    /// says nothing about the next memtables.
    pub fn rest(&self) {
        self.slabs.trim();
        self.memtable_peak_bytes.store(self.memtable_bytes.load(Relaxed), Relaxed);
    }

    /// Current use. A forked process does not read the map, because its locks may be held for ever
    /// there.
    pub fn usage(&self) -> MemoryUse {
        let is_own = self.process.is_current();
        MemoryUse {
            budget_bytes: self.bytes(),
            memtable_bytes: self.memtable_bytes.load(Relaxed),
            memtable_peak_bytes: self.memtable_peak_bytes.load(Relaxed),
            pinned_bytes: self.pinned_bytes.load(Relaxed),
            held_bytes: self.held_bytes.load(Relaxed),
            cache_bytes: if is_own { self.map.weight() } else { 0 },
            mapped_bytes: self.slabs.mapped_bytes(),
        }
    }
}

/// Memory that is taken from the budget until this value is dropped.
#[derive(Debug)]
pub struct Reservation {
    budget: Arc<Budget>,
    bytes: u64,
    pinned: bool,
}

impl Reservation {
    /// Takes over the memory of another reservation of the same kind.
    pub fn merge(&mut self, mut other: Reservation) {
        assert_eq!(self.pinned, other.pinned, "reservations of one kind");
        self.bytes += std::mem::take(&mut other.bytes);
    }

    /// Gives back a part of the memory.
    pub fn shrink(&mut self, bytes: u64) {
        assert!(bytes <= self.bytes, "a part of the reservation");
        let rest = Reservation { budget: Arc::clone(&self.budget), bytes, pinned: self.pinned };
        self.bytes -= bytes;
        drop(rest);
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let counter =
            if self.pinned { &self.budget.pinned_bytes } else { &self.budget.memtable_bytes };
        subtract(counter, self.bytes);
        self.budget.adjust();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::block::BlockBuilder;

    fn block(bytes: usize) -> Cached {
        let mut builder = BlockBuilder::new(4, false);
        builder.add(b"key", 256, &vec![7; bytes]);
        let mut raw = Vec::new();
        builder.finish(&mut raw);
        Cached::Block(Arc::new(Block::parse(raw).expect("own block")))
    }

    /// A block that is used all the time stays cached while a hundred times the capacity is added,
    /// although its use is reported once in a turn. A block whose use is never reported is evicted.
    #[test]
    fn what_is_used_stays_though_the_cache_hears_of_it_once_in_a_turn() {
        let cache = Cache::new(8 << 20);
        let (used, unused) = (CacheKey { uid: 1, offset: 0 }, CacheKey { uid: 1, offset: 1 });
        let (told, mut heard) = (AtomicU32::new(0), 0);
        cache.insert(used, block(4000));
        cache.insert(unused, block(4000));
        for offset in 0..200_000 {
            // Each block is used once, so that none is evicted as part of a scan.
            cache.insert(CacheKey { uid: 2, offset }, block(4000));
            let _ = cache.get(CacheKey { uid: 2, offset });
            if cache.is_due(&told) {
                assert!(cache.get(used).is_some(), "after {offset}");
                cache.note_told(&told);
                heard += 1;
            }
        }
        assert!(cache.get(unused).is_none());
        assert!((300..600).contains(&heard), "{heard} times, of 200,000 uses");
    }

    /// Guards against a bug: when memtables briefly freed room, blocks filled it, and the blocks
    /// were evicted when the memtables grew.
    #[test]
    fn what_was_just_written_leaves_the_room_that_memtables_take_again() {
        let Cached::Block(block) = block(4000) else { unreachable!("a block") };
        let cache = Arc::new(Cache::new(64 << 20));
        let fill = |uid: u64| {
            (0..20_000)
                .for_each(|offset| cache.insert_if_room(CacheKey { uid, offset }, block.raw()));
            cache.usage().cache_bytes >> 20
        };
        drop(cache.reserve(40 << 20));
        assert!((22..=23).contains(&fill(1)), "most of the other 24");
        cache.rest();
        assert!((39..=40).contains(&fill(2)), "five eighths of all");
    }

    #[test]
    fn reservations_shrink_the_cache_and_the_total_stays_below_the_budget() {
        let cache = Arc::new(Cache::new(64 << 20));
        for offset in 0..20_000 {
            cache.insert(CacheKey { uid: 1, offset }, block(4000));
        }
        assert!(cache.usage().cache_bytes > 48 << 20);
        let memtable = cache.reserve(32 << 20);
        let pinned = cache.try_pin(8 << 20).expect("below half");
        let usage = cache.usage();
        assert!(usage.cache_bytes + usage.memtable_bytes + usage.pinned_bytes <= 64 << 20);
        assert!(cache.try_pin(40 << 20).is_none(), "pinned at most half");
        drop((memtable, pinned));
        assert_eq!(cache.usage().memtable_bytes + cache.usage().pinned_bytes, 0);
    }

    #[test]
    fn a_budget_can_shrink_and_grow() {
        let cache = Arc::new(Cache::new(64 << 20));
        let fill = |uid| {
            let all = 0..20_000;
            all.for_each(|offset| cache.insert(CacheKey { uid, offset }, block(4000)));
            cache.usage().cache_bytes >> 20
        };
        assert!((56..=64).contains(&fill(1)));
        cache.set(16 << 20);
        let usage = cache.usage();
        assert!(usage.budget_bytes == 16 << 20 && usage.cache_bytes <= 16 << 20, "{usage:?}");
        assert!((12..=16).contains(&fill(2)));
        let memtable = cache.reserve(8 << 20);
        assert!(cache.usage().cache_bytes <= 8 << 20);
        cache.set(64 << 20);
        assert!((48..=56).contains(&fill(3)));
        drop(memtable);
    }

    /// A copy of a store has the store's uid, and different files with the same file numbers.
    #[test]
    fn stores_under_one_budget_do_not_see_what_others_cached() {
        let budget = Budget::new(8 << 20);
        let (one, other) = (Cache::sharing(&budget, 1), Cache::sharing(&budget, 2));
        let key = CacheKey { uid: 7, offset: 0 };
        one.insert(key, block(100));
        assert!(one.get(key).is_some() && other.get(key).is_none());
        other.remove(key);
        assert!(one.get(key).is_some());
        let taken = one.reserve(2 << 20);
        assert_eq!(other.usage().memtable_bytes, 2 << 20);
        drop(taken);
        assert_eq!(other.usage().memtable_bytes, 0);
    }

    /// Chunks of a released memtable go back to the pool, where they stay reserved. Guards against
    /// a bug: the cache used their room while only readers held the memtable, and then kept it.
    #[test]
    fn what_readers_gave_back_is_no_room_for_the_cache() {
        let cache = Cache::new(64 << 20);
        let _in_the_pool = cache.reserve(32 << 20);
        let before = *cache.capacity_bytes.lock();
        cache.hold(32 << 20);
        cache.take_back(32 << 20);
        assert_eq!(*cache.capacity_bytes.lock(), before);
    }

    #[test]
    fn what_readers_hold_is_no_room_for_the_cache_either() {
        let cache = Arc::new(Cache::new(64 << 20));
        let memtable = cache.reserve(32 << 20);
        let fill = |uid| {
            let all = 0..20_000;
            all.for_each(|offset| cache.insert(CacheKey { uid, offset }, block(4000)));
            let usage = cache.usage();
            usage.mapped_bytes.max(usage.cache_bytes)
        };
        assert!(fill(1) <= 32 << 20);
        cache.hold(32 << 20);
        assert!(fill(2) <= 32 << 20, "readers hold the other half");
        let _next = cache.reserve(16 << 20);
        assert!(cache.usage().mapped_bytes <= 16 << 20, "emptied at once");
        cache.take_back(32 << 20);
        drop(memtable);
        assert!(fill(3) > 40 << 20);
    }
}
