//! Asks the processor for a cache line ahead of its use. A hint: nothing depends on it.
//!
//! The unsafe code has one obligation: it must not compute an out-of-bounds pointer with arithmetic
//! that forbids this. The address is inside the slice, or is computed with wrapping arithmetic. A
//! prefetch never faults.

/// Size of a cache line.
pub const LINE_BYTES: usize = 64;

/// Prefetches the line that contains `items[at]`, if there is such an item.
#[inline(always)]
#[allow(unsafe_code)]
pub fn prefetch<T>(items: &[T], at: usize) {
    #[cfg(target_arch = "x86_64")]
    if let Some(item) = items.get(at) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a hint about an address of an item that exists.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(item).cast()) }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (items, at);
}

/// Prefetches the line `offset` bytes after an address, whatever is there.
#[inline(always)]
#[allow(unsafe_code)]
pub fn prefetch_at(address: *const u8, offset: usize) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a hint about an address, which is not read.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address.wrapping_add(offset).cast()) }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (address, offset);
}
