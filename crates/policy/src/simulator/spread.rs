//! Arithmetic of evenly spread keys: unions, draws, positions, prefix buckets. Integers only, so
//! that a report is the same on every machine. Knows no tree.

/// Distinct keys among two even spreads of `a` and `b` keys over `width` keys.
pub(super) fn union_of(a: u64, b: u64, width: u64) -> u64 {
    (a + (b - mul_div(a, b, width))).min(width)
}

/// Distinct keys after `draws` independent draws out of `space`: the union rule, doubling, in
/// fixed point where there is room, since rounding adds up over small numbers. O(log draws).
pub(super) fn thrown_into(draws: u64, space: u64) -> u64 {
    let shift = space.leading_zeros().min(20);
    let (one, space) = (1 << shift, space << shift);
    let mut distinct = 0;
    for bit in (0..u64::BITS - draws.leading_zeros()).rev() {
        distinct = union_of(distinct, distinct, space);
        if draws >> bit & 1 == 1 {
            distinct = union_of(distinct, one, space);
        }
    }
    (distinct >> shift).max(1)
}

/// `a * b / divisor`, saturating.
pub(super) fn mul_div(a: u64, b: u64, divisor: u64) -> u64 {
    u64::try_from(u128::from(a) * u128::from(b) / u128::from(divisor)).unwrap_or(u64::MAX)
}

/// A key as a number.
pub(super) fn number(key: &[u8]) -> u64 {
    u64::from_be_bytes(key.try_into().expect("the simulator makes 8-byte keys only"))
}

/// splitmix64: one well-mixed number per input.
pub(super) fn mix(input: u64) -> u64 {
    let mut z = input.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Entries spread evenly over the keys `low..low + width`; `entries <= width`, so each has a key of
/// its own.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spread {
    /// Smallest key.
    pub low: u64,
    /// Keys in the range.
    pub width: u64,
    /// Entries among them.
    pub entries: u64,
}

impl Spread {
    /// The key of an entry; that of entry `entries` lies just behind the range.
    pub fn key_at(&self, entry: u64) -> u64 {
        self.low + mul_div(self.width, entry, self.entries)
    }

    /// The first entry whose key is at least `key`.
    pub fn entry_from(&self, key: u64) -> u64 {
        let ahead = u128::from(key.saturating_sub(self.low)) * u128::from(self.entries);
        u64::try_from(ahead.div_ceil(u128::from(self.width))).unwrap_or(u64::MAX).min(self.entries)
    }
}

/// The key space cut into equal buckets; a key's bucket is its prefix.
#[derive(Clone, Copy, Debug)]
pub(super) struct Buckets {
    /// Keys in all.
    pub key_space: u64,
    /// Buckets; between 1 and `key_space`.
    pub count: u64,
}

impl Buckets {
    /// The bucket of a key.
    pub fn of(&self, key: u64) -> u64 {
        mul_div(key, self.count, self.key_space).min(self.count - 1)
    }

    /// The first key of a bucket; of bucket `count`, the end of the key space.
    pub fn start(&self, bucket: u64) -> u64 {
        let keys = u128::from(bucket) * u128::from(self.key_space);
        u64::try_from(keys.div_ceil(u128::from(self.count))).unwrap_or(u64::MAX)
    }

    /// The prefixes of the entries `from..to`, sorted; empty if there are more than `most`. A
    /// prefix is the first key of its bucket, so that it orders against keys as a prefix does.
    pub fn prefixes(&self, spread: &Spread, from: u64, to: u64, most: usize) -> Vec<Box<[u8]>> {
        let mut prefixes: Vec<Box<[u8]>> = Vec::new();
        let mut entry = from;
        while entry < to {
            if prefixes.len() == most {
                return Vec::new();
            }
            let bucket = self.of(spread.key_at(entry));
            prefixes.push(Box::new(self.start(bucket).to_be_bytes()));
            entry = spread.entry_from(self.start(bucket + 1)).max(entry + 1);
        }
        prefixes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expected_unions() {
        assert_eq!(union_of(0, 10, 10), 10);
        assert_eq!(union_of(500, 500, 1000), 750);
        // 1000 draws of 1000 leave 1/e of the keys undrawn.
        let distinct = thrown_into(1000, 1000);
        assert!((631..=633).contains(&distinct), "{distinct}");
        assert_eq!(thrown_into(1, 1), 1);
    }

    #[test]
    fn positions_and_entries_are_inverse() {
        for (low, width, entries) in [(0, 10, 10), (7, 1000, 3), (5, 1 << 40, 12345), (0, 7, 5)] {
            let spread = Spread { low, width, entries };
            for entry in 0..entries.min(100) {
                let key = spread.key_at(entry);
                assert_eq!(spread.entry_from(key), entry);
                assert_eq!(spread.entry_from(key + 1), entry + 1);
            }
            assert_eq!(spread.key_at(entries), low + width);
        }
    }

    #[test]
    fn buckets_tile_the_key_space() {
        for (key_space, count) in [(10, 3), (1000, 7), (1 << 60, 128), (5, 5)] {
            let buckets = Buckets { key_space, count };
            for bucket in 0..count {
                let start = buckets.start(bucket);
                assert_eq!(buckets.of(start), bucket);
                assert_eq!(buckets.of(buckets.start(bucket + 1) - 1), bucket);
            }
            assert_eq!(buckets.start(count), key_space);
        }
        let buckets = Buckets { key_space: 100, count: 10 };
        let spread = Spread { low: 15, width: 30, entries: 6 };
        let number_of = |prefix: &[u8]| number(prefix);
        let all: Vec<u64> =
            buckets.prefixes(&spread, 0, 6, 10).iter().map(|prefix| number_of(prefix)).collect();
        assert_eq!(all, [10, 20, 30, 40]);
        assert!(buckets.prefixes(&spread, 0, 6, 3).is_empty(), "more than a table may list");
    }
}
