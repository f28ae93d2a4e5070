//! Asks the processor for a cache line ahead of its use. A hint: nothing depends on it.
//!
//! Obligation of the unsafe code: none but that the address is inside of the slice, so that no
//! pointer is made out of bounds; a prefetch never faults.

/// Asks for the line that holds `bytes[at]`, if there is such a byte.
#[inline(always)]
#[allow(unsafe_code)]
pub fn prefetch(bytes: &[u8], at: usize) {
    #[cfg(target_arch = "x86_64")]
    if let Some(byte) = bytes.get(at) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a hint about an address of a byte that exists.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(byte).cast()) }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (bytes, at);
}
