//! Arithmetic on spreads of keys: unions, draws, positions, prefix buckets. It uses only integers,
//! so that a report is the same on every machine. This file knows nothing of trees.

/// Distinct keys in two even spreads of `a` and `b` keys over `width` keys.
pub(super) fn union_of(a: u64, b: u64, width: u64) -> u64 {
    (a + (b - mul_div(a, b, width))).min(width)
}

/// Distinct keys after `draws` independent draws from `space`. It applies the union rule by
/// doubling, in fixed point if there is room, since rounding errors add up over small numbers.
/// O(log draws).
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

/// Entries are summed with this many bits after the point, so that many small pieces lose none.
const FRACTION_BITS: u32 = 20;

/// Distinct keys of several tables: between two neighbouring bounds the density is even, and the
/// number of keys that tables share there follows from the union rule. So a region that is dense in
/// one table stays dense, which decides what its next compaction overlaps. Each entry has a
/// key of its own.
#[derive(Clone, Debug)]
pub(super) struct Spread {
    /// Keys at which the density changes, with the entries before them in fixed point.
    pieces: Vec<(u64, u128)>,
    /// The key after the last one.
    pub end: u64,
    /// Distinct keys.
    pub entries: u64,
}

impl Spread {
    /// The spread of tables, each given as (first key, last key, entries); `entries` fit between
    /// the keys. O(n log n + n overlap).
    pub fn of(tables: &[(u64, u64, u64)]) -> Option<Spread> {
        let end = tables.iter().map(|table| table.1).max()? + 1;
        let (mut pieces, mut sum) = (Vec::new(), 0_u128);
        let ranges = tables.iter().map(|(first, last, _)| (*first, last + 1));
        sweep(ranges, |from, to, covering| {
            pieces.push((from, sum));
            sum += union_within(to - from, covering.iter().map(|at| tables[*at]));
        });
        let half = 1 << (FRACTION_BITS - 1);
        let entries = u64::try_from((sum + half) >> FRACTION_BITS).unwrap_or(u64::MAX);
        // Because of rounding, the sum may be less than `entries`, but by less than one entry.
        pieces.push((end, sum));
        Some(Spread { pieces, end, entries })
    }

    /// The key of an entry. The key of entry `entries` is just after the range.
    pub fn key_at(&self, entry: u64) -> u64 {
        let wanted = u128::from(entry) << FRACTION_BITS;
        // This finds the last piece that begins there, because a piece without entries has the same
        // sum as the next piece.
        let next = self.pieces.partition_point(|(_, sum)| *sum <= wanted);
        match (self.pieces.get(next.wrapping_sub(1)), self.pieces.get(next)) {
            (Some((key, sum)), Some((next_key, next_sum))) if entry < self.entries => {
                let ahead = (wanted - sum) * u128::from(next_key - key) / (next_sum - sum);
                key + ahead as u64
            }
            _ => self.end,
        }
    }

    /// The first entry whose key is at least `key`.
    pub fn entry_from(&self, key: u64) -> u64 {
        let next = self.pieces.partition_point(|(from, _)| *from <= key);
        match (self.pieces.get(next.wrapping_sub(1)), self.pieces.get(next)) {
            (Some((from, sum)), Some((next_key, next_sum))) => {
                let ahead = u128::from(key - from) * (next_sum - sum);
                let before = sum + ahead.div_ceil(u128::from(next_key - from));
                let entry = before.div_ceil(1 << FRACTION_BITS);
                u64::try_from(entry).unwrap_or(u64::MAX).min(self.entries)
            }
            (None, _) => 0,
            (_, None) => self.entries,
        }
    }
}

/// The distinct keys, in fixed point, within `width` keys that all these tables cover.
fn union_within(width: u64, tables: impl Iterator<Item = (u64, u64, u64)>) -> u128 {
    let width = u128::from(width);
    tables.fold(0, |union, (first, last, entries)| {
        let whole = u128::from(last - first) + 1;
        let own = (u128::from(entries) << FRACTION_BITS) * width / whole;
        union + own - union * own / (width << FRACTION_BITS)
    })
}

/// Visits the stretches between the bounds of ranges, from the first bound on. Each comes with the
/// ranges that cover it. O(n log n + n depth).
pub(super) fn sweep<K: Ord + Copy>(
    ranges: impl Iterator<Item = (K, K)>,
    mut visit: impl FnMut(K, K, &[usize]),
) {
    let numbered = ranges.enumerate();
    let bounds = numbered.flat_map(|(at, (first, end))| [(first, true, at), (end, false, at)]);
    let mut bounds: Vec<(K, bool, usize)> = bounds.collect();
    bounds.sort_unstable();
    let mut covering: Vec<usize> = Vec::new();
    for (at, (key, opens, range)) in bounds.iter().enumerate() {
        let from = bounds[at.saturating_sub(1)].0;
        if from < *key {
            visit(from, *key, &covering);
        }
        match opens {
            true => covering.push(*range),
            false => covering.retain(|other| other != range),
        }
    }
}

/// The key space cut into equal buckets; a key's bucket is its prefix.
#[derive(Clone, Copy, Debug)]
pub(super) struct Buckets {
    /// The number of keys.
    pub key_space: u64,
    /// The number of buckets, between 1 and `key_space`.
    pub count: u64,
}

impl Buckets {
    /// The bucket of a key.
    pub fn of(&self, key: u64) -> u64 {
        mul_div(key, self.count, self.key_space).min(self.count - 1)
    }

    /// The first key of a bucket. For bucket `count` it is the end of the key space.
    pub fn start(&self, bucket: u64) -> u64 {
        let keys = u128::from(bucket) * u128::from(self.key_space);
        u64::try_from(keys.div_ceil(u128::from(self.count))).unwrap_or(u64::MAX)
    }

    /// The prefixes of the entries `from..to`, sorted; empty if there are more than `most`. A
    /// prefix is the first key of its bucket, so that it compares with keys as a prefix does.
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
        // 1000 draws from 1000 keys leave 1/e of the keys undrawn.
        let distinct = thrown_into(1000, 1000);
        assert!((631..=633).contains(&distinct), "{distinct}");
        assert_eq!(thrown_into(1, 1), 1);
    }

    #[test]
    fn positions_and_entries_are_inverse() {
        for (low, width, entries) in [(0, 10, 10), (7, 1000, 3), (5, 1 << 40, 12345), (0, 7, 5)] {
            let spread = Spread::of(&[(low, low + width - 1, entries)]).expect("a table");
            assert_eq!(spread.entries, entries);
            for entry in 0..entries.min(100) {
                let key = spread.key_at(entry);
                assert_eq!(spread.entry_from(key), entry);
                assert_eq!(spread.entry_from(key + 1), entry + 1);
            }
            assert_eq!(spread.key_at(entries), low + width);
        }
    }

    #[test]
    fn density_follows_the_tables() {
        // 1000 keys over 0..1000, 500 more keys in its upper half, and a gap before the last table.
        let tables = [(0, 999, 100), (500, 999, 100), (2000, 2999, 50)];
        let spread = Spread::of(&tables).expect("tables");
        // There are 50 keys in the lower half, and 50 + 100 - 50 * 100 / 500 = 140 in the upper
        // one.
        assert_eq!(
            (spread.entries, spread.entry_from(500), spread.entry_from(1000)),
            (240, 50, 190)
        );
        assert_eq!((spread.key_at(25), spread.key_at(120), spread.key_at(190)), (250, 750, 2000));
        assert_eq!((spread.key_at(240), spread.entry_from(9999)), (3000, 240));
        let keys: Vec<u64> = (0..240).map(|entry| spread.key_at(entry)).collect();
        assert!(keys.windows(2).all(|pair| pair[0] < pair[1]));
        assert!(Spread::of(&[]).is_none());
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
        let spread = Spread::of(&[(15, 44, 6)]).expect("a table");
        let number_of = |prefix: &[u8]| number(prefix);
        let all: Vec<u64> =
            buckets.prefixes(&spread, 0, 6, 10).iter().map(|prefix| number_of(prefix)).collect();
        assert_eq!(all, [10, 20, 30, 40]);
        assert!(buckets.prefixes(&spread, 0, 6, 3).is_empty(), "more than a table may list");
    }
}
