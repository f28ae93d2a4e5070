//! The filter of a page: which keys the page may have. It is in the metadata entry of the page, so
//! it costs no RAM and no separate read, and moves wherever a remapping moves the page.

use std::sync::Arc;

use xxhash_rust::xxh3::xxh3_64;

/// The fewest bits per key that are useful.
const LEAST_BITS_PER_KEY: usize = 4;
/// Bits that each key sets: near the optimum for eight to ten bits per key. With twice as many
/// bits, a filter with twice as many probes errs only a third as often. But existing filters have
/// six probes, and the few pages with more bits per key have few errors to save.
const PROBES: u64 = 6;

/// How large the filters of pages are. The default makes none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FilterSize {
    /// Thousandths of a bit for each key.
    pub millibits_per_key: u32,
    /// The most bytes that the filter of a page may take.
    pub most_bytes: usize,
}

/// A Bloom filter. If it is empty there is no filter, and any key may be present.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PageFilter(Arc<[u8]>);

impl PageFilter {
    /// A filter of these keys. Empty if the size is too small for them.
    pub fn of_keys<'a>(
        keys: impl ExactSizeIterator<Item = &'a [u8]>,
        size: FilterSize,
    ) -> PageFilter {
        let count = keys.len();
        let millibits = count * size.millibits_per_key as usize;
        let len = millibits.div_ceil(8000).min(size.most_bytes);
        if len == 0 || len * 8 < count * LEAST_BITS_PER_KEY {
            return PageFilter::default();
        }
        let mut bytes = vec![0; len];
        for key in keys {
            places(key, len).for_each(|at| bytes[at / 8] |= 1 << (at % 8));
        }
        PageFilter(bytes.into())
    }

    /// Decodes a filter.
    pub(crate) fn from_bytes(bytes: &[u8]) -> PageFilter {
        PageFilter(bytes.into())
    }

    /// Its encoding; empty if there is no filter.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Whether the page may have a key.
    pub fn may_hold(&self, key: &[u8]) -> bool {
        let is_set = |at: usize| self.0[at / 8] & 1 << (at % 8) != 0;
        self.0.is_empty() || places(key, self.0.len()).all(is_set)
    }
}

/// The bits of a key in a filter of this many bytes, at least one.
fn places(key: &[u8], len: usize) -> impl Iterator<Item = usize> {
    let (hash, bits) = (xxh3_64(key), len as u64 * 8);
    let step = hash >> 32 | 1;
    (0..PROBES).map(move |probe| (hash.wrapping_add(step.wrapping_mul(probe)) % bits) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_holds_its_keys_and_few_others() {
        let keys: Vec<[u8; 4]> = (0..300_u32).map(u32::to_be_bytes).collect();
        let of = |most_bytes| {
            let size = FilterSize { millibits_per_key: 10_000, most_bytes };
            PageFilter::of_keys(keys.iter().map(|key| &key[..]), size)
        };
        for (most_bytes, most_wrong) in [(1000, 20), (200, 120)] {
            let filter = of(most_bytes);
            assert!(filter.bytes().len() <= most_bytes.min(375));
            assert!(keys.iter().all(|key| filter.may_hold(key)));
            let others = (300..1300_u32).map(u32::to_be_bytes);
            let wrong = others.filter(|key| filter.may_hold(key)).count();
            assert!(wrong <= most_wrong, "{wrong} of 1000 with {most_bytes} bytes");
            assert_eq!(PageFilter::from_bytes(filter.bytes()), filter);
        }
        let none = of(100);
        assert!(none.bytes().is_empty() && none.may_hold(b"any"), "too little room");
    }
}
