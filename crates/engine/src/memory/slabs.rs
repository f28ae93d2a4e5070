//! The memory of cached objects. Slabs are mapped regions of one size, and each is divided into
//! slots of one size.
//!
//! A general allocator separates memory by thread. If one thread allocated a block and another
//! thread evicted it, a third thread cannot use that memory for its next block. So a cache that
//! never exceeds its budget takes more than twice as much memory (measured under glibc: 1,452 MiB
//! with a budget of 576 MiB). Here all threads share the slots of a size, an empty slab serves
//! every size or is returned to the system, and mapped memory is counted.
//!
//! Rejected: `malloc_trim` and fewer arenas, because these are settings of the program that embeds
//! the store; and whole pages for each block, because half of each page would be empty.
//!
//! Obligations that keep the unsafe code here sound:
//! 1. A region is dropped only when no buffer is in it: a slab is taken out of its class only once
//!    all its slots are free, and each buffer holds the [`Slabs`], so that the [`Slabs`] are
//!    dropped last.
//! 2. Two buffers never overlap: a slot is either in the list of free slots or belongs to one
//!    buffer.
//! 3. The memory of a region is initialised from the start, see [`Region`].
//! 4. A heap buffer is the pointer and length of a boxed slice, from which the box is restored
//!    exactly once.
#![allow(unsafe_code)]

use std::collections::BTreeSet;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::sync::{Mutex, rank, subtract};
use runstone_storage::fork::Process;

use crate::memory::region::{PAGE_BYTES, Region};

/// The budget is divided into about this many slabs. Their size is a power of two within these
/// bounds.
const SLABS_PER_BUDGET: u64 = 256;
const LEAST_SLAB_BYTES: u64 = 64 << 10;
const MOST_SLAB_BYTES: u64 = 2 << 20;
/// A buffer above this fraction of a slab is mapped by itself.
const LARGE_PART: usize = 8;
/// The size of the smallest slots. Above this size there are eight slot sizes for each doubling. A
/// buffer wastes at most a ninth of its slot, and half of that on average.
const LEAST_SLOT_BYTES: usize = 64;
const SIZES_PER_DOUBLING: usize = 8;
/// Empty slabs of up to this fraction of the budget stay mapped for the next buffers.
const SPARE_FRACTION: u64 = 64;

/// Identifies the content of a slot to the caller that took it: see [`Slabs::sparse`].
pub type Tag = [u64; 2];

/// A region of slots of one size.
#[derive(Debug)]
struct Slab {
    region: Region,
    /// The free slots; the last one is given out first.
    free: Vec<u16>,
    /// The tag of each slot that is in use.
    tags: Box<[Tag]>,
    /// Whether [`Slabs::sparse`] has returned its tags since a slot was last taken.
    is_told: bool,
}

/// The slabs of one slot size.
#[derive(Debug, Default)]
struct Class {
    slabs: Vec<Option<Slab>>,
    /// Slabs with a free slot. The slab with the lowest index is used first, so that the highest
    /// ones become empty.
    partial: BTreeSet<u32>,
    /// Indices in `slabs` that have no slab.
    vacant: Vec<u32>,
}

impl Class {
    /// The slab with the most free slots among those whose tags were not returned yet.
    fn emptiest(&mut self) -> Option<&mut Slab> {
        let untold = self.slabs.iter_mut().flatten().filter(|slab| !slab.is_told);
        untold.max_by_key(|slab| slab.free.len())
    }
}

/// The memory of a cache. All methods may be called by many threads.
#[derive(Debug)]
pub struct Slabs {
    slab_bytes: usize,
    classes: Box<[Mutex<rank::SlabClass, Class>]>,
    spare: Mutex<rank::SpareRegions, Vec<Region>>,
    most_spare: usize,
    mapped_bytes: AtomicU64,
    free_bytes: AtomicU64,
    process: Process,
}

/// Bytes in a slot, in a mapping of their own, or on the heap. Dereferences to `[u8]`.
pub struct Buffer {
    at: NonNull<u8>,
    len: usize,
    home: Home,
}

enum Home {
    Heap,
    Slot { slabs: Arc<Slabs>, class: u32, slab: u32, slot: u16 },
    Mapped { slabs: Arc<Slabs>, region: Region },
}

// SAFETY: a buffer alone refers to its bytes (obligations 2 and 4), like a boxed slice.
unsafe impl Send for Buffer {}
// SAFETY: as above; a shared buffer is only read.
unsafe impl Sync for Buffer {}

/// The index and slot size of the class for `len` bytes.
fn class_of(len: usize) -> (usize, usize) {
    let len = len.max(LEAST_SLOT_BYTES);
    let power = len.next_power_of_two().max(2 * LEAST_SLOT_BYTES);
    let step = power / (2 * SIZES_PER_DOUBLING);
    let steps = len.div_ceil(step);
    let doublings = (power / (2 * LEAST_SLOT_BYTES)).trailing_zeros() as usize;
    (doublings * SIZES_PER_DOUBLING + steps - SIZES_PER_DOUBLING, steps * step)
}

/// The bytes that a buffer of `len` bytes takes, given the size of slabs.
fn rounded(len: usize, slab_bytes: usize) -> usize {
    match len > slab_bytes / LARGE_PART {
        true => len.next_multiple_of(PAGE_BYTES),
        false => class_of(len).1,
    }
}

impl Slabs {
    /// Slabs that have mapped no memory yet.
    pub fn new(budget_bytes: u64) -> Arc<Slabs> {
        let slab_bytes = (budget_bytes / SLABS_PER_BUDGET).clamp(LEAST_SLAB_BYTES, MOST_SLAB_BYTES);
        let slab_bytes = slab_bytes.next_power_of_two() as usize;
        let (last, _) = class_of(slab_bytes / LARGE_PART);
        Arc::new(Slabs {
            slab_bytes,
            classes: (0..=last).map(|_| Mutex::default()).collect(),
            spare: Mutex::default(),
            most_spare: (budget_bytes / SPARE_FRACTION / slab_bytes as u64).max(1) as usize,
            mapped_bytes: AtomicU64::new(0),
            free_bytes: AtomicU64::new(0),
            process: Process::current(),
        })
    }

    /// Bytes mapped now.
    pub fn mapped_bytes(&self) -> u64 {
        self.mapped_bytes.load(Relaxed)
    }

    /// Bytes of the free slots in slabs that also have slots in use; a part of the mapped bytes.
    pub fn free_bytes(&self) -> u64 {
        self.free_bytes.load(Relaxed)
    }

    /// Bytes of a slab.
    pub fn slab_bytes(&self) -> u64 {
        self.slab_bytes as u64
    }

    /// The bytes that a buffer of `len` takes.
    pub fn taken_bytes(&self, len: usize) -> usize {
        rounded(len, self.slab_bytes)
    }

    /// A buffer of `len` bytes with undefined but initialised content. `None` if the system has no
    /// memory. O(log slabs).
    pub fn take(self: &Arc<Slabs>, len: usize, tag: Tag) -> Option<Buffer> {
        if len > self.slab_bytes / LARGE_PART {
            let region = Region::map(len.next_multiple_of(PAGE_BYTES))?;
            self.mapped_bytes.fetch_add(region.bytes() as u64, Relaxed);
            let at = region.at(0, len);
            let home = Home::Mapped { slabs: Arc::clone(self), region };
            return Some(Buffer { at, len, home });
        }
        let (number, slot_bytes) = class_of(len);
        let mut class = self.classes[number].lock();
        let at = match class.partial.first() {
            Some(at) => *at,
            None => self.add_slab(&mut class, slot_bytes)?,
        };
        let slab = class.slabs[at as usize].as_mut()?;
        let slot = slab.free.pop()?;
        slab.tags[usize::from(slot)] = tag;
        slab.is_told = false;
        let at_slot = if seeded!(SlotsOverlap) { slot & !1 } else { slot };
        let place = slab.region.at(usize::from(at_slot) * slot_bytes, slot_bytes);
        if slab.free.is_empty() {
            class.partial.remove(&at);
        }
        // Counted under the lock, so that every slot that other threads can take is counted as
        // free.
        subtract(&self.free_bytes, slot_bytes as u64);
        drop(class);
        let home = Home::Slot { slabs: Arc::clone(self), class: number as u32, slab: at, slot };
        Some(Buffer { at: place, len, home })
    }

    /// A copy of `bytes`.
    pub fn copy(self: &Arc<Slabs>, bytes: &[u8], tag: Tag) -> Option<Buffer> {
        let mut buffer = self.take(bytes.len(), tag)?;
        buffer.copy_from_slice(bytes);
        Some(buffer)
    }

    fn add_slab(&self, class: &mut Class, slot_bytes: usize) -> Option<u32> {
        let region = match self.spare.lock().pop() {
            Some(region) => region,
            None => {
                let region = Region::map(self.slab_bytes)?;
                self.mapped_bytes.fetch_add(self.slab_bytes as u64, Relaxed);
                region
            }
        };
        let slots = self.slab_bytes / slot_bytes;
        assert!(slots >= LARGE_PART && slots <= usize::from(u16::MAX), "numbers of slots fit");
        let free = (0..slots as u16).rev().collect();
        let tags = vec![[0; 2]; slots].into();
        let slab = Some(Slab { region, free, tags, is_told: false });
        let at = match class.vacant.pop() {
            Some(at) => {
                class.slabs[at as usize] = slab;
                at
            }
            None => {
                class.slabs.push(slab);
                class.slabs.len() as u32 - 1
            }
        };
        class.partial.insert(at);
        self.free_bytes.fetch_add((slots * slot_bytes) as u64, Relaxed);
        Some(at)
    }

    /// Takes back a slot, and also the slab if that was its last used slot.
    fn give(&self, number: u32, at: u32, slot: u16) {
        // A forked process must not use locks that another thread held at the fork. There, memory
        // that is dropped stays mapped.
        if !self.process.is_current() {
            return;
        }
        let mut class = self.classes[number as usize].lock();
        let Some(slab) = class.slabs[at as usize].as_mut() else { return };
        slab.free.push(slot);
        let (free, slots) = (slab.free.len(), slab.tags.len());
        let slot_bytes = slot_bytes_of(number as usize) as u64;
        if free < slots {
            if free == 1 {
                class.partial.insert(at);
            }
            self.free_bytes.fetch_add(slot_bytes, Relaxed);
            return;
        }
        let emptied = class.slabs[at as usize].take();
        class.partial.remove(&at);
        class.vacant.push(at);
        subtract(&self.free_bytes, (slots as u64 - 1) * slot_bytes);
        drop(class);
        if let Some(slab) = emptied {
            self.keep_or_unmap(slab.region);
        }
    }

    fn keep_or_unmap(&self, region: Region) {
        let mut spare = self.spare.lock();
        if spare.len() < self.most_spare {
            return spare.push(region);
        }
        drop(spare);
        subtract(&self.mapped_bytes, region.bytes() as u64);
    }

    /// The tags of the slots in use in the slab with the most free memory. Once all of them are
    /// dropped, the slab can serve other sizes. The tags of each slab are returned only once until
    /// it gives out another slot, because objects that a reader holds cannot be dropped. Empty if
    /// the tags of every slab were returned. O(slabs).
    pub fn sparse(&self) -> Vec<Tag> {
        let free_bytes = |number: &usize| {
            let mut class = self.classes[*number].lock();
            class.emptiest().map_or(0, |slab| slab.free.len()) * slot_bytes_of(*number)
        };
        let Some(number) = (0..self.classes.len()).max_by_key(free_bytes) else {
            return Vec::new();
        };
        let mut class = self.classes[number].lock();
        let emptiest = class.emptiest().filter(|slab| !slab.free.is_empty());
        let Some(slab) = emptiest else { return Vec::new() };
        slab.is_told = true;
        let mut is_free = vec![false; slab.tags.len()];
        slab.free.iter().for_each(|slot| is_free[usize::from(*slot)] = true);
        let tags = slab.tags.iter().zip(is_free);
        tags.filter(|(_, is_free)| !is_free).map(|(tag, _)| *tag).collect()
    }

    /// Unmaps the empty slabs, because nobody has used the store for a while.
    pub fn trim(&self) {
        let spare = std::mem::take(&mut *self.spare.lock());
        let bytes: usize = spare.iter().map(|region| region.bytes()).sum();
        subtract(&self.mapped_bytes, bytes as u64);
    }
}

/// The size of the slots of a class; the inverse of [`class_of`].
fn slot_bytes_of(number: usize) -> usize {
    let Some(above) = number.checked_sub(1) else { return LEAST_SLOT_BYTES };
    let half = LEAST_SLOT_BYTES << (above / SIZES_PER_DOUBLING);
    half + half / SIZES_PER_DOUBLING * (above % SIZES_PER_DOUBLING + 1)
}

impl Buffer {
    /// The bytes of memory that the buffer takes.
    pub fn taken_bytes(&self) -> usize {
        match &self.home {
            // Common allocators have similar sizes.
            Home::Heap => class_of(self.len).1,
            Home::Slot { class, .. } => slot_bytes_of(*class as usize),
            Home::Mapped { region, .. } => region.bytes(),
        }
    }
}

impl From<Vec<u8>> for Buffer {
    /// A buffer on the heap, for content that does not outlive its reader.
    fn from(bytes: Vec<u8>) -> Buffer {
        let bytes = Box::leak(bytes.into_boxed_slice());
        let len = bytes.len();
        Buffer { at: NonNull::from(bytes).cast(), len, home: Home::Heap }
    }
}

impl Deref for Buffer {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: `len` initialised bytes (obligation 3) that belong to this buffer (2, 4), and
        // that last as long as its home (1).
        unsafe { std::slice::from_raw_parts(self.at.as_ptr(), self.len) }
    }
}

impl DerefMut for Buffer {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`; `&mut self` is the only access.
        unsafe { std::slice::from_raw_parts_mut(self.at.as_ptr(), self.len) }
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl std::fmt::Debug for Buffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Buffer").field("bytes", &self.len).finish_non_exhaustive()
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        match &self.home {
            Home::Heap => {
                let bytes = std::ptr::slice_from_raw_parts_mut(self.at.as_ptr(), self.len);
                // SAFETY: obligation 4.
                drop(unsafe { Box::from_raw(bytes) });
            }
            Home::Slot { slabs, class, slab, slot } => slabs.give(*class, *slab, *slot),
            // The region is dropped after this.
            Home::Mapped { slabs, region } => {
                subtract(&slabs.mapped_bytes, region.bytes() as u64);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use runstone_random::Random;

    #[test]
    fn sizes_are_eight_for_each_doubling_and_waste_little() {
        let mut last = 0;
        for len in 1..20_000 {
            let (number, slot_bytes) = class_of(len);
            assert_eq!(slot_bytes_of(number), slot_bytes, "{len}");
            assert!(slot_bytes >= len && (number == last || number == last + 1), "{len}");
            assert!(len <= LEAST_SLOT_BYTES || slot_bytes - len <= len / 8, "{len}: {slot_bytes}");
            last = number;
        }
        assert_eq!(
            [64, 65, 128, 129, 4096, 4097].map(|len| class_of(len).1),
            [64, 72, 128, 144, 4096, 4608]
        );
    }

    /// Each buffer keeps its own bytes while others are dropped, and in the end nothing is mapped.
    #[test]
    fn buffers_of_many_threads_do_not_overlap() {
        let slabs = Slabs::new(1 << 20);
        let (threads, rounds) = if cfg!(miri) { (2, 30) } else { (4, 20_000) };
        std::thread::scope(|scope| {
            for thread in 0..threads {
                let slabs = &slabs;
                scope.spawn(move || {
                    let mut held: Vec<(u8, Buffer)> = Vec::new();
                    let mut stream = Random::new(thread);
                    let mut random = |below: usize| stream.below(below as u64) as usize;
                    for round in 0..rounds {
                        let len = [1, 100, 700, 4_100, 9_000, 70_000][random(6)];
                        let fill = random(256) as u8;
                        let mut buffer = slabs.take(len, [thread, round]).expect("memory");
                        buffer.fill(fill);
                        held.push((fill, buffer));
                        if held.len() > 20 {
                            let (fill, buffer) = held.swap_remove(random(held.len()));
                            assert!(buffer.iter().all(|byte| *byte == fill));
                        }
                    }
                });
            }
        });
        slabs.trim();
        assert_eq!((slabs.mapped_bytes(), slabs.free_bytes()), (0, 0));
    }

    /// Memory of one size becomes memory of another once the content of sparse slabs is dropped.
    #[test]
    fn what_is_sparse_is_told_and_its_slab_serves_others() {
        let slabs = Slabs::new(1 << 20);
        let mut all: Vec<Option<Buffer>> = (0..64).map(|tag| slabs.take(4_000, [tag, 7])).collect();
        let mapped = slabs.mapped_bytes();
        // One in four stays in use.
        (0..64).filter(|at| at % 4 > 0).for_each(|at| all[at] = None);
        assert_eq!(slabs.mapped_bytes(), mapped, "no slab is empty");
        assert!(slabs.free_bytes() > mapped / 2);
        while slabs.free_bytes() > slabs.slab_bytes() {
            let tags = slabs.sparse();
            assert!(!tags.is_empty() && tags.iter().all(|tag| tag[1] == 7), "{tags:?}");
            tags.iter().for_each(|tag| all[tag[0] as usize] = None);
        }
        assert!(slabs.mapped_bytes() <= mapped, "spare ones are still mapped");
        let _other = slabs.take(1_000, [0; 2]).expect("memory");
        assert!(slabs.mapped_bytes() <= mapped, "an empty slab serves every size");
        drop(all);
    }

    #[test]
    fn large_buffers_and_those_of_the_heap_go_back_at_once() {
        let slabs = Slabs::new(1 << 20);
        let large = slabs.take(1 << 20, [0; 2]).expect("memory");
        assert_eq!((large.len(), slabs.mapped_bytes()), (1 << 20, 1 << 20));
        assert_eq!(large.taken_bytes(), slabs.taken_bytes(1 << 20));
        drop(large);
        assert_eq!(slabs.mapped_bytes(), 0);
        let heap = Buffer::from(vec![3; 10]);
        assert_eq!((&heap[..], slabs.mapped_bytes()), (&[3; 10][..], 0));
        assert_eq!(&*slabs.copy(b"a value", [0; 2]).expect("memory"), b"a value");
    }
}
