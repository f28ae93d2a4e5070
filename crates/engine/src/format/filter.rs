//! A blocked Bloom filter: all bits of a key are in one 64-byte line, so a probe costs one cache
//! miss. The builder of a table decides how many bits the table gets.
//!
//! ```text
//! probes u8 | line*      a line is 8 x u64, little-endian
//! ```
//!
//! About 0.96% false positives at 10 bits per key. Rejected: binary fuse filters, which are smaller
//! but need all keys before the first bit is set, and cost three cache misses per probe; and ribbon
//! filters, which cost more to build.

use runstone_policy::filters::LINE_BITS;

use crate::memory::prefetch::prefetch;

/// More bits than this bring no gain: the number of probes is limited, and keys share lines.
const MOST_MILLIBITS_PER_KEY: u32 = 24_000;

#[derive(Clone, Copy, Debug, Default)]
#[repr(align(64))]
struct Line([u64; 8]);

/// A filter in memory.
#[derive(Debug)]
pub struct Filter {
    lines: Vec<Line>,
    probes: u32,
}

/// The hash that filters are built from and probed with.
#[inline]
pub fn hash(key: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(key)
}

impl Filter {
    /// Builds a filter over key hashes, with this many thousandths of a bit per key. With less than
    /// 0.7 bits a filter is worse than none, so none is built.
    pub fn build(hashes: &[u64], millibits_per_key: u32) -> Option<Filter> {
        if millibits_per_key < 700 || hashes.is_empty() {
            return None;
        }
        let millibits_per_key = millibits_per_key.min(MOST_MILLIBITS_PER_KEY);
        let bits = hashes.len() as u64 * u64::from(millibits_per_key) / 1000;
        let line_count = bits.div_ceil(LINE_BITS).max(1);
        // ln 2 * bits per key is optimal for a plain Bloom filter; a blocked filter needs a little
        // less.
        let probes = (millibits_per_key * 69 / 100_000).clamp(1, 12);
        let mut filter = Filter { lines: vec![Line::default(); line_count as usize], probes };
        for hash in hashes {
            let line = &mut filter.lines[line_of(*hash, line_count)].0;
            let mut state = *hash;
            for _ in 0..probes {
                let bit = state & (LINE_BITS - 1);
                line[(bit >> 6) as usize] |= 1 << (bit & 63);
                state = state.rotate_right(9).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            }
        }
        Some(filter)
    }

    /// Whether a key with this hash may be present. One cache miss.
    #[inline]
    pub fn may_contain(&self, hash: u64) -> bool {
        let line = &self.lines[line_of(hash, self.lines.len() as u64)].0;
        let mut state = hash;
        for _ in 0..self.probes {
            let bit = state & (LINE_BITS - 1);
            if line[(bit >> 6) as usize] & 1 << (bit & 63) == 0 {
                return false;
            }
            state = state.rotate_right(9).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        }
        true
    }

    /// Prefetches the line of keys with this hash.
    #[inline]
    pub fn prefetch(&self, hash: u64) {
        prefetch(&self.lines, line_of(hash, self.lines.len() as u64));
    }

    /// Appends the stored form.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.push(self.probes as u8);
        for word in self.lines.iter().flat_map(|line| line.0) {
            out.extend_from_slice(&word.to_le_bytes());
        }
    }

    /// Reads the stored form.
    pub fn decode(bytes: &[u8]) -> Option<Filter> {
        let (probes, rest) = bytes.split_first()?;
        let (lines, tail) = rest.as_chunks::<64>();
        if lines.is_empty() || !tail.is_empty() || !(1..=12).contains(probes) {
            return None;
        }
        let decode_line = |bytes: &[u8; 64]| {
            let mut line = Line::default();
            for (word, chunk) in line.0.iter_mut().zip(bytes.as_chunks::<8>().0) {
                *word = u64::from_le_bytes(*chunk);
            }
            line
        };
        Some(Filter { lines: lines.iter().map(decode_line).collect(), probes: u32::from(*probes) })
    }

    /// Memory in bytes.
    pub fn size_bytes(&self) -> usize {
        self.lines.len() * size_of::<Line>()
    }
}

/// Maps the high half of the hash onto the lines; the low bits choose inside the line.
#[inline]
fn line_of(hash: u64, line_count: u64) -> usize {
    (((hash >> 32) * line_count) >> 32) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_false_negative_and_about_one_percent_false_positives() {
        let hashes: Vec<u64> = (0..20_000u64).map(|i| hash(&i.to_be_bytes())).collect();
        let filter = Filter::build(&hashes, 10_000).expect("filter");
        let mut bytes = Vec::new();
        filter.encode(&mut bytes);
        let filter = Filter::decode(&bytes).expect("own bytes");
        assert!(hashes.iter().all(|hash| filter.may_contain(*hash)));
        let wrong =
            (20_000..220_000u64).filter(|i| filter.may_contain(hash(&i.to_be_bytes()))).count();
        assert!((1_000..3_000).contains(&wrong), "{wrong} of 200000");
    }

    #[test]
    fn no_filter_below_its_worth_and_bad_bytes_are_refused() {
        assert!(Filter::build(&[1, 2, 3], 699).is_none());
        assert!(Filter::build(&[], 10_000).is_none());
        assert!(Filter::decode(&[]).is_none());
        assert!(Filter::decode(&[6; 64]).is_none());
        assert!(Filter::decode(&[0; 65]).is_none());
    }
}
