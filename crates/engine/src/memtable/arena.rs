//! A bump allocator that the writers of one memtable share; it is freed as a whole. Large chunks
//! are mapped at multiples of 2 MiB. Chunks made in the background have huge pages, so that a
//! search of a large memtable misses the cache but not also the TLB. Large chunks are kept for the
//! next memtable. Every chunk counts against the memory budget while it exists.
//!
//! Obligations that keep the unsafe code here sound:
//! 1. A pointer that was handed out stays valid until the tree is dropped: no chunk is freed or
//!    reused earlier. After that, `retire` keeps only the memory under the pins.
//! 2. Two allocations never overlap: `used` of a chunk only grows, by `fetch_add`; a slab is such
//!    an allocation, and is divided under its lock.
//! 3. Chunk memory is uninitialised; the allocating caller writes before anyone reads.
#![allow(unsafe_code)]

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering::*};
use std::sync::{Arc, OnceLock};

use crate::sync::{Mutex, rank, subtract};
use crossbeam_utils::CachePadded;
use runstone_storage::fork::Process;
use rustix::mm::{Advice, madvise};

use crate::cache::{Cache, Reservation};
use crate::memory::region::{PAGE_BYTES, Region};
use crate::memtable::filter::{FilterPool, PooledFilter};
use crate::sync::threads::{Bell, thread_number};

/// Size of a pooled chunk.
pub const CHUNK_BYTES: usize = 2 << 20;
/// The number of chunks kept ready, with or without writers. When fewer are left, the background
/// makes more, so a larger stock would not help when writes resume.
const READY_CHUNKS: usize = 2;
/// Size of an arena's first chunk. Each later chunk doubles the arena's memory, so that thousands
/// of keyspaces take little more memory than their entries need. An arena that has grown takes full
/// chunks.
const FIRST_CHUNK_BYTES: usize = 4 << 10;
/// Even an arena with a small limit takes chunks of at least this size once it has grown.
const LEAST_FULL_CHUNK_BYTES: usize = 64 << 10;
/// While all memtables together take less than this fraction of the budget, a memtable that has
/// grown takes full chunks. Beyond this fraction, only a memtable that is as large as a chunk does.
const ROOM_FRACTION: u64 = 4;
/// An arena with a small limit takes chunks of this fraction of the limit.
const CHUNKS_PER_LIMIT: usize = 8;
/// An allocation above this fraction of a chunk gets a chunk of its own, so that it wastes no space
/// in the current chunk.
const LARGE_PART: usize = 8;
const ALIGN: usize = 64;
/// Chunks of this size and more are mapped.
const LEAST_MAPPED_BYTES: usize = 256 << 10;
/// How many bytes a writer other than the first takes from a chunk at a time, and how many such
/// writers have their own slab.
const SLAB_BYTES: usize = 4 << 10;
const SLABS: usize = 8;
/// Allocations larger than this come from the chunk itself, so that less of a slab is wasted.
const SLAB_PART_BYTES: usize = SLAB_BYTES / 4;

#[derive(Debug)]
struct Chunk {
    base: *mut u8,
    capacity: usize,
    /// The mapped memory of the chunk; `None` if the memory is from the allocator.
    region: Option<Region>,
    used: AtomicUsize,
    /// How many of its bytes are still backed by memory and counted: all bytes, until only pins are
    /// left.
    resident: usize,
    /// Whether the background has backed the chunk with large pages.
    is_populated: bool,
    reservation: Option<Reservation>,
}

// SAFETY: the chunk owns its memory; `used` is atomic and hands out disjoint ranges (obligation 2).
unsafe impl Send for Chunk {}
// SAFETY: as above.
unsafe impl Sync for Chunk {}

impl Chunk {
    fn allocate(capacity: usize, reservation: Option<Reservation>) -> Chunk {
        let layout = Chunk::layout(capacity);
        let align = if capacity >= CHUNK_BYTES { CHUNK_BYTES } else { PAGE_BYTES };
        let is_large = capacity >= LEAST_MAPPED_BYTES;
        let region = is_large.then(|| Region::map_aligned(capacity, align)).flatten();
        let base = match &region {
            Some(region) => region.base().as_ptr(),
            // SAFETY: the layout's size is not zero.
            None => unsafe { alloc(layout) },
        };
        if base.is_null() {
            handle_alloc_error(layout);
        }
        let used = AtomicUsize::new(0);
        let (resident, is_populated) = (capacity, false);
        Chunk { base, capacity, region, used, resident, is_populated, reservation }
    }

    /// Releases the pages to the kernel; their content is lost.
    fn release_pages(&mut self) {
        self.advise(Advice::LinuxDontNeed);
    }

    fn advise(&mut self, advice: Advice) {
        self.advise_part(0..self.capacity & !(PAGE_BYTES - 1), advice);
    }

    /// Gives the system advice about the whole pages between two offsets. The pages are those of
    /// the system, which are larger than [`PAGE_BYTES`] on some processors.
    fn advise_part(&mut self, part: Range<usize>, advice: Advice) {
        let part = whole_pages(part, rustix::param::page_size());
        if self.region.is_some() && !part.is_empty() && !cfg!(miri) {
            assert!(part.end <= self.capacity, "a part of the chunk");
            // SAFETY: whole pages of a region that nobody but pins uses (`&mut self`), and the part
            // has no pins. So the pages may be removed, or replaced by others. A refusal costs
            // speed and memory only.
            let _ = unsafe { madvise(self.base.add(part.start).cast(), part.len(), advice) };
        }
    }

    /// Releases all pages but the `kept` ones, which are given by address, in ascending order. The
    /// system must not join the remaining pages into large pages again. Memory from the allocator
    /// stays whole.
    fn release_but(&mut self, kept: impl Iterator<Item = Range<usize>>) {
        if self.region.is_none() {
            return;
        }
        self.advise(Advice::LinuxNoHugepage);
        let (mut at, mut resident) = (0, 0);
        for kept in kept {
            let start = (kept.start - self.base.addr()).max(at);
            let end = (kept.end - self.base.addr()).min(self.capacity).max(start);
            self.advise_part(at..start, Advice::LinuxDontNeed);
            (at, resident) = (end, resident + end - start);
        }
        self.advise_part(at..self.capacity & !(PAGE_BYTES - 1), Advice::LinuxDontNeed);
        self.resident = resident;
    }

    /// Backs the chunk with memory, in large pages if there are any; its content is lost. It takes
    /// milliseconds if the kernel must find and clear the memory first, so writers do not call it.
    fn populate(&mut self) {
        self.release_pages();
        self.advise(Advice::LinuxHugepage);
        self.is_populated = true;
        // Touches the pages instead of giving advice: a populating `madvise` holds the lock of the
        // whole address space, and writers would wait for that lock.
        for at in (0..self.capacity).step_by(PAGE_BYTES) {
            // SAFETY: inside the allocation; any bit pattern will do.
            unsafe { self.base.add(at).write_volatile(0) };
        }
    }

    fn layout(capacity: usize) -> Layout {
        match Layout::from_size_align(capacity, ALIGN) {
            Ok(layout) => layout,
            Err(_) => unreachable!("chunk capacities are far below isize::MAX"),
        }
    }
}

/// The whole pages in a part of a mapping. The system rounds up the length that it releases, so
/// bytes beyond the end of a part would be lost if the part ended inside a page.
fn whole_pages(part: Range<usize>, page_bytes: usize) -> Range<usize> {
    let start = part.start.next_multiple_of(page_bytes);
    start..(part.end / page_bytes * page_bytes).max(start)
}

impl Drop for Chunk {
    fn drop(&mut self) {
        if self.region.is_none() {
            // SAFETY: allocated in `allocate` with the same layout, dropped once.
            unsafe { dealloc(self.base, Chunk::layout(self.capacity)) }
        }
    }
}

/// Makes chunks, and keeps some for the next memtable. Memory that the kernel must find and clear
/// first costs a writer milliseconds at a time.
#[derive(Debug)]
pub struct ChunkPool {
    // Boxed because chunks are boxed in an arena, where `current` points at the chunk.
    #[allow(clippy::vec_box)]
    free: Mutex<rank::FreeChunks, Vec<Box<Chunk>>>,
    /// Used chunks with small pages, which a writer had to allocate itself. The background gives
    /// them large pages.
    #[allow(clippy::vec_box)]
    stale: Mutex<rank::StaleChunks, Vec<Box<Chunk>>>,
    limit: AtomicUsize,
    /// Set when few chunks are left, some are stale or a filter is wanted. The background then
    /// prepares them.
    short: AtomicBool,
    bell: Arc<Bell>,
    filters: Arc<FilterPool>,
    /// Bytes of the chunks of all arenas now. `taken_bytes` counts all chunks that arenas ever
    /// took.
    in_use_bytes: AtomicU64,
    taken_bytes: AtomicU64,
    cache: Option<Arc<Cache>>,
}

impl ChunkPool {
    /// A pool that keeps at most `limit_bytes`. All chunks are reserved from `cache`. The pool
    /// rings the bell when it runs short.
    pub fn new(limit_bytes: usize, cache: Option<Arc<Cache>>, bell: Arc<Bell>) -> Arc<ChunkPool> {
        let limit = AtomicUsize::new(limit_bytes / CHUNK_BYTES);
        let (free, stale, short) = (Mutex::default(), Mutex::default(), AtomicBool::new(false));
        let filters = FilterPool::new(cache.clone());
        let (in_use_bytes, taken_bytes) = (AtomicU64::new(0), AtomicU64::new(0));
        Arc::new(ChunkPool {
            free,
            stale,
            limit,
            short,
            bell,
            filters,
            in_use_bytes,
            taken_bytes,
            cache,
        })
    }

    /// How many chunks are kept.
    fn limit(&self) -> usize {
        self.limit.load(Relaxed)
    }

    /// Changes how many bytes of chunks are kept.
    pub fn set_limit(&self, limit_bytes: usize) {
        let limit = limit_bytes / CHUNK_BYTES;
        self.limit.store(limit, Relaxed);
        self.keep(limit);
    }

    /// Whether memtables may take this much more at once. Without room, a memtable only doubles: if
    /// several small memtables each took a full chunk at the same moment, they would exceed their
    /// part of the budget before writers are stopped.
    fn has_room(&self, bytes: usize) -> bool {
        let in_use_bytes = self.in_use_bytes() + bytes as u64;
        self.cache.as_ref().is_none_or(|cache| in_use_bytes <= cache.budget_bytes() / ROOM_FRACTION)
    }

    /// Bytes of the chunks of all memtables, including those that only readers still hold.
    pub fn in_use_bytes(&self) -> u64 {
        self.in_use_bytes.load(Relaxed)
    }

    /// Bytes of all chunks that memtables ever took.
    pub fn taken_bytes(&self) -> u64 {
        self.taken_bytes.load(Relaxed)
    }

    fn count(&self, bytes: usize) {
        self.in_use_bytes.fetch_add(bytes as u64, Relaxed);
        self.taken_bytes.fetch_add(bytes as u64, Relaxed);
    }

    /// A filter for a memtable that takes its chunks from this pool, if one is ready.
    pub(super) fn take_filter(&self, limit_bytes: usize) -> Option<PooledFilter> {
        let filter = self.filters.take(limit_bytes);
        if self.filters.wants_one() {
            self.short.store(true, Relaxed);
            self.bell.ring();
        }
        filter
    }

    fn take(&self) -> Box<Chunk> {
        let (pooled, left) = {
            let mut free = self.free.lock();
            (free.pop(), free.len())
        };
        if left < READY_CHUNKS.min(self.limit()) {
            self.short.store(true, Relaxed);
            self.bell.ring();
        }
        if let (Some(_), Some(cache)) = (&pooled, &self.cache) {
            // The chunk was reserved when it was made.
            cache.note_memtables_grew();
        }
        pooled.unwrap_or_else(|| self.allocate(CHUNK_BYTES))
    }

    /// Whether the background should prepare a chunk or filter; if `urgent`, only when no chunk is
    /// left.
    pub fn wants_spare(&self, urgent: bool) -> bool {
        self.short.load(Relaxed) && (!urgent || self.free.lock().is_empty())
    }

    /// Makes a filter if one is wanted, and a chunk with all its pages present.
    pub fn prepare_spare(&self) {
        self.filters.prepare();
        if self.wants_chunk() {
            let stale = self.stale.lock().pop();
            let mut chunk = stale.unwrap_or_else(|| self.allocate(CHUNK_BYTES));
            chunk.populate();
            let mut free = self.free.lock();
            if free.len() < self.limit() {
                free.push(chunk);
            }
        }
        self.short.store(self.wants_chunk() || self.filters.wants_one(), Relaxed);
    }

    fn wants_chunk(&self) -> bool {
        self.free.lock().len() < READY_CHUNKS.min(self.limit()) || !self.stale.lock().is_empty()
    }

    /// Frees all but a few chunks, because nobody has written for a while.
    pub fn trim(&self) {
        self.keep(READY_CHUNKS);
    }

    /// Frees all chunks, because nobody writes any more.
    pub fn empty(&self) {
        self.keep(0);
    }

    fn keep(&self, most: usize) {
        let surplus = {
            let mut free = self.free.lock();
            let kept = most.min(free.len());
            (free.split_off(kept), std::mem::take(&mut *self.stale.lock()))
        };
        drop(surplus);
        self.filters.trim();
    }

    fn allocate(&self, capacity: usize) -> Box<Chunk> {
        let reservation = self.cache.as_ref().map(|cache| cache.reserve(capacity as u64));
        Box::new(Chunk::allocate(capacity, reservation))
    }

    fn give(&self, mut chunk: Box<Chunk>) {
        if chunk.capacity != CHUNK_BYTES || chunk.resident != CHUNK_BYTES {
            return;
        }
        *chunk.used.get_mut() = 0;
        let mut free = self.free.lock();
        let mut stale = self.stale.lock();
        if free.len() + stale.len() >= self.limit() {
            return;
        }
        if chunk.is_populated {
            free.push(chunk);
        } else {
            stale.push(chunk);
            self.short.store(true, Relaxed);
            self.bell.ring();
        }
    }
}

/// A piece of a chunk for one writer.
#[derive(Debug)]
struct Slab {
    next: *mut u8,
    left: usize,
}

impl Default for Slab {
    /// No memory.
    fn default() -> Slab {
        Slab { next: std::ptr::null_mut(), left: 0 }
    }
}

// SAFETY: the memory behind `next` belongs to the arena and to nobody else (obligation 2).
unsafe impl Send for Slab {}

/// Memory that an arena counts although it did not allocate it.
#[derive(Debug, Default)]
struct Beside {
    bytes: usize,
    reservation: Option<Reservation>,
}

/// A slab on cache lines of its own.
type SharedSlab = CachePadded<Mutex<rank::ArenaSlab, Slab>>;

/// The allocator of one memtable.
///
/// The first writer takes memory from the current chunk, with one `fetch_add` each. Other writers
/// would contend with it for that counter, and for the cache lines that two neighbouring records
/// share, so they take slabs.
#[derive(Debug)]
pub struct Arena {
    current: AtomicPtr<Chunk>,
    // `current` points at a chunk, so chunks must not move when the vector grows.
    #[allow(clippy::vec_box)]
    chunks: Mutex<rank::Chunks, Vec<Box<Chunk>>>,
    /// Bytes of all chunks but the current one.
    closed_bytes: AtomicUsize,
    limit_bytes: usize,
    /// Size of its chunks once it has grown.
    chunk_bytes: usize,
    /// Whether the limit was reached. A separate flag, because the chunk's counter belongs to the
    /// first writer.
    full: AtomicBool,
    /// Number of the first writer; 0 before there is one.
    first_writer: AtomicUsize,
    /// The size of the arena after the flush, while only readers hold it.
    held_bytes: AtomicUsize,
    /// Memory elsewhere that belongs to the entries.
    beside: Mutex<rank::ChunksBeside, Beside>,
    /// Made for the second writer: an idle memtable has none.
    slabs: OnceLock<Box<[SharedSlab; SLABS]>>,
    /// The pages under pins, given by their first address and the address after them, and how many
    /// pins each range has.
    pins: Mutex<rank::Pins, BTreeMap<(usize, usize), usize>>,
    /// Whether only pins are left. Written under the lock of the pins.
    is_retired: AtomicBool,
    /// The process that made the arena. A forked process has copies of the pins, and of their lock
    /// in its state at the fork. Perhaps nobody there ever releases that lock, so a forked process
    /// gives no pages back.
    process: Process,
    pool: Arc<ChunkPool>,
}

/// Keeps the pages of a piece of an arena, and no others, after the arena's tree is dropped.
#[derive(Debug)]
pub struct Pin {
    arena: Arc<Arena>,
    pages: (usize, usize),
}

impl Pin {
    /// Pins `len` bytes at `at`, which the arena handed out. The tree in the arena, or another pin
    /// on the same bytes, must still exist.
    pub fn new(arena: &Arc<Arena>, at: usize, len: usize) -> Pin {
        let pages = (at & !(PAGE_BYTES - 1), (at + len).next_multiple_of(PAGE_BYTES));
        if arena.process.is_current() {
            *arena.pins.lock().entry(pages).or_default() += 1;
        }
        Pin { arena: Arc::clone(arena), pages }
    }
}

impl Clone for Pin {
    fn clone(&self) -> Pin {
        Pin::new(&self.arena, self.pages.0, self.pages.1 - self.pages.0)
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        if !self.arena.process.is_current() {
            // Dropping the arena would also wait for locks.
            std::mem::forget(Arc::clone(&self.arena));
            return;
        }
        let mut pins = self.arena.pins.lock();
        if let Some(count) = pins.get_mut(&self.pages) {
            *count -= 1;
            if *count == 0 {
                pins.remove(&self.pages);
                if self.arena.is_retired.load(Relaxed) {
                    self.arena.leave_to(&pins, self.pages);
                }
            }
        }
    }
}

impl Arena {
    /// An empty arena that is full at `limit_bytes`; the first allocation takes a chunk.
    pub fn new(pool: Arc<ChunkPool>, limit_bytes: usize) -> Arena {
        Arena {
            current: AtomicPtr::new(std::ptr::null_mut()),
            chunks: Mutex::default(),
            closed_bytes: AtomicUsize::new(0),
            limit_bytes,
            chunk_bytes: (limit_bytes / CHUNKS_PER_LIMIT)
                .clamp(LEAST_FULL_CHUNK_BYTES, CHUNK_BYTES),
            full: AtomicBool::new(false),
            first_writer: AtomicUsize::new(0),
            held_bytes: AtomicUsize::new(0),
            beside: Mutex::default(),
            slabs: OnceLock::new(),
            pins: Mutex::default(),
            is_retired: AtomicBool::new(false),
            process: Process::current(),
            pool,
        }
    }

    /// Memory in use: the used part of the current chunk, and all other chunks as a whole.
    pub fn allocated_bytes(&self) -> usize {
        // SAFETY: `current` is null or points into a box that `chunks` keeps until drop.
        let current = unsafe { self.current.load(Acquire).as_ref() };
        let used = current.map_or(0, |chunk| chunk.used.load(Relaxed).min(chunk.capacity));
        self.closed_bytes.load(Relaxed) + used
    }

    /// Memory taken from the budget. The current chunk counts as a whole.
    pub fn reserved_bytes(&self) -> usize {
        // SAFETY: as in `allocated_bytes`.
        let current = unsafe { self.current.load(Acquire).as_ref() };
        self.closed_bytes.load(Relaxed) + current.map_or(0, |chunk| chunk.capacity)
    }

    /// Counts memory elsewhere as if it had been allocated here.
    pub fn count_beside(&self, bytes: usize) {
        if bytes == 0 {
            return;
        }
        let mut beside = self.beside.lock();
        let more = self.pool.cache.as_ref().map(|cache| cache.reserve(bytes as u64));
        match (&mut beside.reservation, more) {
            (Some(reservation), Some(more)) => reservation.merge(more),
            (reservation, more) => *reservation = more,
        }
        beside.bytes += bytes;
        self.pool.count(bytes);
        self.closed_bytes.fetch_add(bytes, Relaxed);
        self.note_taken(0);
    }

    /// Leaves the arena to its readers: from now on it counts as held by them. Called once, when
    /// nothing is allocated any more.
    pub fn leave(&self) {
        if let Some(cache) = &self.pool.cache {
            let bytes = self.reserved_bytes();
            self.held_bytes.store(bytes, Relaxed);
            cache.hold(bytes as u64);
        }
    }

    /// Leaves the arena to its pins. Called once, when nobody knows the tree any more. Without pins
    /// the arena is freed as a whole with its owner.
    pub fn retire(&self) {
        let pins = self.pins.lock();
        if pins.is_empty() {
            return;
        }
        self.current.store(std::ptr::null_mut(), Relaxed);
        self.count_none_beside();
        self.is_retired.store(true, Relaxed);
        self.leave_to(&pins, (0, usize::MAX));
    }

    /// Gives back the memory that is not under these pins, in the chunks that overlap a range of
    /// addresses.
    fn leave_to(&self, pins: &BTreeMap<(usize, usize), usize>, range: (usize, usize)) {
        if pins.is_empty() {
            return;
        }
        let (mut chunks, mut left) = (self.chunks.lock(), Vec::new());
        for mut chunk in chunks.drain(..) {
            let end = chunk.base.addr() + chunk.capacity;
            if end <= range.0 || range.1 <= chunk.base.addr() {
                left.push(chunk);
                continue;
            }
            let inside = pins.range((chunk.base.addr() & !(PAGE_BYTES - 1), 0)..(end, 0));
            let mut inside = inside.map(|(pages, _)| pages.0..pages.1).peekable();
            if inside.peek().is_none() {
                self.count_gone(chunk.resident);
                self.pool.give(chunk);
                continue;
            }
            let before = chunk.resident;
            chunk.release_but(inside);
            let released = before - chunk.resident;
            self.count_gone(released);
            if let Some(reservation) = &mut chunk.reservation {
                reservation.shrink(released as u64);
            }
            left.push(chunk);
        }
        *chunks = left;
    }

    /// Counts bytes as no longer held by readers, before their reservation is released.
    fn count_gone(&self, bytes: usize) {
        subtract(&self.pool.in_use_bytes, bytes as u64);
        let held = self.held_bytes.load(Relaxed);
        let gone = held.min(bytes);
        self.held_bytes.store(held - gone, Relaxed);
        if let Some(cache) = &self.pool.cache {
            cache.take_back(gone as u64);
        }
    }

    fn count_none_beside(&self) {
        let beside = std::mem::take(&mut *self.beside.lock());
        self.count_gone(beside.bytes);
    }

    /// Whether the limit was reached.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.full.load(Relaxed)
    }

    /// Uninitialised memory of `len` bytes at an address that is a multiple of `align`
    /// (a power of two up to 64). Valid for as long as the arena.
    pub fn alloc(&self, len: usize, align: usize) -> *mut u8 {
        debug_assert!(
            align.is_power_of_two() && align <= ALIGN,
            "a chunk cannot give memory of this alignment"
        );
        // All sizes are multiples of 8, so 8-aligned requests never need padding.
        let len = len.next_multiple_of(8);
        let padded = if align <= 8 { len } else { len + align - 8 };
        if padded > self.chunk_bytes / LARGE_PART {
            return self.alloc_large(padded);
        }
        let writer = thread_number();
        if padded <= SLAB_PART_BYTES && !self.is_first_writer(writer) {
            let slabs = self.slabs.get_or_init(Box::default);
            let mut slab = slabs[writer % SLABS].lock();
            if slab.left < padded {
                *slab = Slab { next: self.alloc_in_chunk(SLAB_BYTES), left: SLAB_BYTES };
            }
            let at = slab.next;
            // SAFETY: padded <= left.
            slab.next = unsafe { at.add(padded) };
            slab.left -= padded;
            return align_up(at, align);
        }
        align_up(self.alloc_in_chunk(padded), align)
    }

    #[inline]
    fn is_first_writer(&self, writer: usize) -> bool {
        match self.first_writer.load(Relaxed) {
            0 => match self.first_writer.compare_exchange(0, writer, Relaxed, Relaxed) {
                Ok(_) => true,
                Err(first) => first == writer,
            },
            first => first == writer,
        }
    }

    /// Allocates `len` bytes, a multiple of 8, at an 8-aligned address.
    fn alloc_in_chunk(&self, len: usize) -> *mut u8 {
        loop {
            let chunk_ptr = self.current.load(Acquire);
            // SAFETY: `current` is null or points into a box that `chunks` keeps until drop.
            if let Some(chunk) = unsafe { chunk_ptr.as_ref() } {
                let at = chunk.used.fetch_add(len, Relaxed);
                self.note_taken(at + len);
                if at + len <= chunk.capacity {
                    // SAFETY: at + len <= capacity.
                    return unsafe { chunk.base.add(at) };
                }
            }
            self.grow(chunk_ptr, len);
        }
    }

    /// Notes that `in_chunk` bytes of the current chunk are taken.
    #[inline]
    fn note_taken(&self, in_chunk: usize) {
        let taken = self.closed_bytes.load(Relaxed) + in_chunk;
        if taken >= self.limit_bytes && !self.full.load(Relaxed) {
            self.full.store(true, Relaxed);
        }
    }

    /// Replaces a chunk that has no room for `len` more bytes.
    fn grow(&self, full: *mut Chunk, len: usize) {
        let mut chunks = self.chunks.lock();
        if self.current.load(Relaxed) != full {
            return;
        }
        // SAFETY: as in `alloc_in_chunk`.
        let closed = unsafe { full.as_ref() }.map_or(0, |full| full.capacity);
        let taken = self.closed_bytes.load(Relaxed) + closed;
        let is_grown = taken >= self.chunk_bytes
            || taken >= self.chunk_bytes / LARGE_PART && self.pool.has_room(self.chunk_bytes);
        let doubled = taken.max(FIRST_CHUNK_BYTES).max(2 * len).next_power_of_two();
        let mut chunk = match if is_grown { self.chunk_bytes } else { doubled } {
            CHUNK_BYTES => self.pool.take(),
            smaller => self.pool.allocate(smaller),
        };
        self.pool.count(chunk.capacity);
        self.current.store(&raw mut *chunk, Release);
        // Only after `current` has changed: otherwise the full chunk could be counted twice, as
        // closed and as the current one.
        self.closed_bytes.fetch_add(closed, Relaxed);
        chunks.push(chunk);
    }

    fn alloc_large(&self, len: usize) -> *mut u8 {
        let chunk = self.pool.allocate(len);
        let base = chunk.base;
        self.pool.count(chunk.capacity);
        self.closed_bytes.fetch_add(len, Relaxed);
        self.note_taken(0);
        self.chunks.lock().push(chunk);
        base
    }
}

/// The first address from `at` on that is a multiple of `align`.
fn align_up(at: *mut u8, align: usize) -> *mut u8 {
    at.wrapping_add(at.align_offset(align))
}

impl Drop for Arena {
    fn drop(&mut self) {
        if let Some(cache) = &self.pool.cache {
            cache.take_back(*self.held_bytes.get_mut() as u64);
        }
        subtract(&self.pool.in_use_bytes, self.beside.get_mut().bytes as u64);
        for chunk in self.chunks.get_mut().drain(..) {
            subtract(&self.pool.in_use_bytes, chunk.resident as u64);
            self.pool.give(chunk);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Once, a size that did not fit in any chunk made an arena with a small limit take chunks for
    /// ever.
    #[test]
    fn every_size_fits_under_every_limit() {
        for limit_bytes in [1, 64 << 10, 1 << 20, 64 << 20, usize::MAX] {
            let arena = Arena::new(ChunkPool::new(0, None, Arc::default()), limit_bytes);
            std::thread::scope(|scope| {
                for byte in 0..3u8 {
                    let arena = &arena;
                    scope.spawn(move || {
                        for len in [1, 900, 1100, 8 << 10, 63 << 10, 100 << 10, 300 << 10, 3 << 20]
                        {
                            let at = arena.alloc(len, 64);
                            assert!(at.addr().is_multiple_of(64));
                            // SAFETY: just allocated, of this length, known to this thread only.
                            unsafe { at.write_bytes(byte, len) };
                            // SAFETY: as above, and written.
                            let written = unsafe { std::slice::from_raw_parts(at, len) };
                            assert!(written.iter().all(|written| *written == byte));
                        }
                    });
                }
            });
            let used = arena.allocated_bytes();
            assert!(used <= arena.reserved_bytes() && arena.is_full() == (used >= limit_bytes));
        }
    }

    /// The kernel of many arm64 machines has pages of 16 or 64 KiB. Once, the memory released
    /// before a pinned entry ended at a multiple of 4 KiB, and the entry was lost with the rest of
    /// its page.
    #[test]
    fn pages_that_a_pin_shares_are_not_released() {
        let (small, large) = (4 << 10, 16 << 10);
        assert_eq!(whole_pages(0..small, small), 0..small);
        assert!(whole_pages(0..small, large).is_empty());
        assert_eq!(whole_pages(small..3 * large + small, large), large..3 * large);
        assert!(whole_pages(small..2 * small, large).is_empty());
    }
}
