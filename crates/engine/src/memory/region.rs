//! Memory that is mapped from the system, not taken from the program's allocator. A region is
//! returned to the system as a whole when it is dropped. Allocators keep freed memory per thread
//! and per size, and a budget does not know about that memory.
//!
//! Obligations that keep the unsafe code here sound:
//! 1. A region stays mapped until it is dropped. Code that hands out parts of a region drops it
//!    only when no part is in use.
//! 2. All of a region is initialised from the start, because the system maps zeros.
#![allow(unsafe_code)]

use std::alloc::{Layout, handle_alloc_error};
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

pub const PAGE_BYTES: usize = 4 << 10;

/// Mapped memory.
#[derive(Debug)]
pub struct Region {
    base: NonNull<u8>,
    bytes: usize,
    /// The region begins at a multiple of this number, which may be more than a page.
    align: usize,
}

// SAFETY: the region owns its memory, and hands it out in parts that do not overlap (obligation 1).
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    /// Maps a whole number of pages. `None` if the system has no memory.
    pub fn map(bytes: usize) -> Option<Region> {
        Region::map_aligned(bytes, PAGE_BYTES)
    }

    /// As `map`, at an address that is a multiple of `align`, a power of two.
    #[cfg(not(miri))]
    pub fn map_aligned(bytes: usize, align: usize) -> Option<Region> {
        use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
        let bytes = bytes.next_multiple_of(PAGE_BYTES);
        let all = bytes + align.saturating_sub(PAGE_BYTES);
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: new memory, at an address that the system chooses.
        let first = unsafe { mmap_anonymous(std::ptr::null_mut(), all, access, flags) };
        let first: *mut u8 = first.ok()?.cast();
        let before = first.align_offset(align);
        for (at, len) in [(0, before), (before + bytes, all - before - bytes)] {
            if len > 0 {
                // SAFETY: whole pages of the mapping above, to which nobody has a pointer. A
                // refusal costs addresses only.
                let _ = unsafe { munmap(first.wrapping_add(at).cast(), len) };
            }
        }
        Some(Region { base: NonNull::new(first.wrapping_add(before))?, bytes, align })
    }

    /// Miri, which checks the modules that use this, does not know these system calls.
    #[cfg(miri)]
    pub fn map_aligned(bytes: usize, align: usize) -> Option<Region> {
        let bytes = bytes.next_multiple_of(PAGE_BYTES);
        let layout = std::alloc::Layout::from_size_align(bytes, align).ok()?;
        // SAFETY: the layout's size is not zero.
        let base = NonNull::new(unsafe { std::alloc::alloc_zeroed(layout) })?;
        Some(Region { base, bytes, align })
    }

    /// Its first byte.
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// The size of the region.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The address of a part.
    pub fn at(&self, offset: usize, len: usize) -> NonNull<u8> {
        assert!(offset + len <= self.bytes, "a part lies inside of its region");
        // SAFETY: inside the region, just checked.
        unsafe { self.base.add(offset) }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        debug_assert!(
            self.base.as_ptr().addr().is_multiple_of(self.align),
            "a region is not aligned as it was asked for"
        );
        #[cfg(not(miri))]
        // SAFETY: mapped in `map_aligned` with this length, and nobody uses it (obligation 1). A
        // refusal costs memory only.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.bytes) };
        #[cfg(miri)]
        if let Ok(layout) = std::alloc::Layout::from_size_align(self.bytes, self.align) {
            // SAFETY: allocated in `map_aligned` with the same layout, dropped once.
            unsafe { std::alloc::dealloc(self.base.as_ptr(), layout) };
        }
    }
}

/// A growing list in a mapping of its own, for what a job needs for a while. Elements are not
/// dropped.
#[derive(Debug)]
pub struct MappedVec<T: Copy> {
    region: Option<Region>,
    len: usize,
    element: PhantomData<T>,
}

impl<T: Copy> Default for MappedVec<T> {
    fn default() -> MappedVec<T> {
        MappedVec { region: None, len: 0, element: PhantomData }
    }
}

impl<T: Copy> MappedVec<T> {
    fn capacity(&self) -> usize {
        self.region.as_ref().map_or(0, |region| region.bytes() / size_of::<T>())
    }

    /// Makes room for more elements. Ends the process if the system has no memory, as a `Vec` does.
    pub fn reserve(&mut self, more: usize) {
        const {
            assert!(align_of::<T>() <= PAGE_BYTES && size_of::<T>() > 0, "elements fit pages");
        }
        let wanted = self.len + more;
        if wanted <= self.capacity() {
            return;
        }
        let bytes = wanted.max(2 * self.capacity()) * size_of::<T>();
        let Some(region) = Region::map(bytes) else {
            handle_alloc_error(Layout::array::<T>(wanted).unwrap_or(Layout::new::<T>()));
        };
        if let Some(old) = &self.region {
            let len_bytes = self.len * size_of::<T>();
            // SAFETY: inside both regions, which are different ones.
            unsafe {
                old.at(0, len_bytes).copy_to_nonoverlapping(region.at(0, len_bytes), len_bytes)
            };
        }
        self.region = Some(region);
    }

    pub fn push(&mut self, element: T) {
        if self.len == self.capacity() {
            self.reserve(1);
        }
        if let Some(region) = &self.region {
            let at = region.at(self.len * size_of::<T>(), size_of::<T>());
            // SAFETY: aligned, since regions begin at pages, and inside; only this value uses it.
            unsafe { at.cast::<T>().write(element) };
            self.len += 1;
        }
    }
}

impl<T: Copy> Deref for MappedVec<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        let Some(region) = &self.region else { return &[] };
        let first = region.at(0, self.len * size_of::<T>()).cast::<T>();
        // SAFETY: `len` elements were written, and this value alone uses the region (obligation 1).
        unsafe { std::slice::from_raw_parts(first.as_ptr(), self.len) }
    }
}

impl<T: Copy> DerefMut for MappedVec<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        let Some(region) = &self.region else { return &mut [] };
        let first = region.at(0, self.len * size_of::<T>()).cast::<T>();
        // SAFETY: as in `deref`; `&mut self` is the only access.
        unsafe { std::slice::from_raw_parts_mut(first.as_ptr(), self.len) }
    }
}

/// Bytes in a mapping of their own, for what a job needs for a while.
#[derive(Debug)]
pub struct MappedBytes {
    region: Region,
    len: usize,
}

impl MappedBytes {
    /// `len` zeros. `None` if the system has no memory.
    pub fn zeros(len: usize) -> Option<MappedBytes> {
        Some(MappedBytes { region: Region::map(len.max(1))?, len })
    }
}

impl Deref for MappedBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: initialised bytes of a region (obligation 2) whose only user is this value (1).
        unsafe { std::slice::from_raw_parts(self.region.at(0, self.len).as_ptr(), self.len) }
    }
}

impl DerefMut for MappedBytes {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`; `&mut self` is the only access.
        unsafe { std::slice::from_raw_parts_mut(self.region.at(0, self.len).as_ptr(), self.len) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_region_begins_where_asked_and_is_zero() {
        for (bytes, align) in [(1, PAGE_BYTES), (2 << 20, 2 << 20), (3 << 20, 2 << 20)] {
            let region = Region::map_aligned(bytes, align).expect("memory");
            assert!(region.base().as_ptr().addr().is_multiple_of(align));
            assert_eq!(region.bytes(), bytes.next_multiple_of(PAGE_BYTES));
            for at in [0, region.bytes() - 1] {
                let byte = region.at(at, 1).as_ptr();
                // SAFETY: inside the region, of which this is the only user.
                assert_eq!(unsafe { byte.read() }, 0);
                // SAFETY: as above.
                unsafe { byte.write(1) };
            }
        }
    }

    #[test]
    fn a_mapped_list_grows_and_keeps_its_elements() {
        let mut list = MappedVec::default();
        assert!(list.is_empty() && list.iter().all(|_: &(u64, bool)| false));
        for number in 0..3_000u64 {
            list.push((number, number % 3 == 0));
            assert_eq!(list.len() as u64, number + 1);
        }
        list.reserve(10_000);
        list[7].0 = 9;
        let numbers: Vec<u64> = list.iter().map(|(number, _)| *number).collect();
        let wanted = (0..3_000).map(|number| if number == 7 { 9 } else { number });
        assert_eq!(numbers, wanted.collect::<Vec<_>>());
        assert!(list.iter().skip(8).all(|(number, third)| *third == (number % 3 == 0)));
    }

    #[test]
    fn mapped_bytes_are_zero_and_can_be_written() {
        for len in [0, 1, PAGE_BYTES, 300_000] {
            let mut bytes = MappedBytes::zeros(len).expect("memory");
            assert!(bytes.len() == len && bytes.iter().all(|byte| *byte == 0));
            bytes.fill(7);
            assert!(bytes.iter().all(|byte| *byte == 7));
        }
    }
}
