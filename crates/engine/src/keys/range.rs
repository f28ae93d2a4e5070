//! Ranges of keys, as arguments of methods.

use std::ops::{Bound, Range, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive};

/// A range of keys: `"a".."c"`, `"a"..="b"`, `"a"..`, `..`, or a pair of bounds. The ends are of
/// any type that can be read as bytes.
///
/// It is not [`std::ops::RangeBounds`], because the compiler could not infer the key type of `..`,
/// so callers would have to write it.
pub trait KeyRange {
    /// Where the range begins.
    fn start(&self) -> Bound<&[u8]>;
    /// Where the range ends.
    fn end(&self) -> Bound<&[u8]>;
}

impl KeyRange for RangeFull {
    fn start(&self) -> Bound<&[u8]> {
        Bound::Unbounded
    }

    fn end(&self) -> Bound<&[u8]> {
        Bound::Unbounded
    }
}

/// Implements one kind of range of the standard library.
macro_rules! ranges {
    ($($range:ident,)*) => {
        $(
            impl<K: AsRef<[u8]>> KeyRange for $range<K> {
                fn start(&self) -> Bound<&[u8]> {
                    std::ops::RangeBounds::start_bound(self).map(K::as_ref)
                }

                fn end(&self) -> Bound<&[u8]> {
                    std::ops::RangeBounds::end_bound(self).map(K::as_ref)
                }
            }
        )*
    };
}

ranges! { Range, RangeFrom, RangeInclusive, RangeTo, RangeToInclusive, }

impl<K: AsRef<[u8]>> KeyRange for (Bound<K>, Bound<K>) {
    fn start(&self) -> Bound<&[u8]> {
        self.0.as_ref().map(K::as_ref)
    }

    fn end(&self) -> Bound<&[u8]> {
        self.1.as_ref().map(K::as_ref)
    }
}

impl<R: KeyRange + ?Sized> KeyRange for &R {
    fn start(&self) -> Bound<&[u8]> {
        (**self).start()
    }

    fn end(&self) -> Bound<&[u8]> {
        (**self).end()
    }
}
