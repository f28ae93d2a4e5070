//! The entry that a cursor shows, by address. Between two calls, the owner of its memory may change
//! from the walk to the state that a parked walk keeps (`Kept`), but the memory stays where it is.
//!
//! Obligations that keep the unsafe code here sound:
//! 1. The lender of an entry leaves the entry's bytes where they are until it lends another entry,
//!    or until the borrow of [`Lent`] has ended. `Cursor` has `Lent` and the lending memory in one
//!    object, and changes that memory only with `&mut self`, or as `Park` allows.
#![allow(unsafe_code)]

use std::ptr::NonNull;

/// Key and value of an entry.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lent {
    key: NonNull<[u8]>,
    value: NonNull<[u8]>,
}

// SAFETY: shared slices of bytes, like `&[u8]`.
unsafe impl Send for Lent {}
// SAFETY: as above.
unsafe impl Sync for Lent {}

impl Lent {
    /// No entry.
    pub(super) const NOTHING: Lent = Lent { key: NOTHING, value: NOTHING };

    /// Lends an entry.
    #[inline]
    pub(super) fn of((key, value): (&[u8], &[u8])) -> Lent {
        Lent { key: NonNull::from(key), value: NonNull::from(value) }
    }

    #[inline]
    pub(super) fn key(&self) -> &[u8] {
        // SAFETY: obligation 1.
        unsafe { self.key.as_ref() }
    }

    #[inline]
    pub(super) fn value(&self) -> &[u8] {
        // SAFETY: obligation 1.
        unsafe { self.value.as_ref() }
    }
}

const NOTHING: NonNull<[u8]> = NonNull::slice_from_raw_parts(NonNull::dangling(), 0);
