//! Sorted arrays of short keys with heads, and the partition: the index and filter of a few hundred
//! neighbouring data blocks. A table is a sequence of partitions below one small root array, so a
//! reader loads only the partitions of the keys that it reads.
//!
//! ```text
//! key array   count varint | prefix bytes | count x (suffix bytes)
//! bytes       varint length | data
//! partition   filter bytes (empty: none) | first_offset varint | key array of separators
//!             | count x (stored block length varint)
//! ```
//!
//! The separator of a block is >= every user key inside and < the first user key of the next block,
//! except where versions of one key span both blocks. Then the separator is that key, and a search
//! continues in the next block.

use crate::format::filter::Filter;
use crate::format::resident::Residents;
use crate::keys::codec::{Reader, put_bytes, put_varint};
use crate::keys::{common_prefix_len, head};

/// How many heads on either side of a guess are searched. If hashed keys fill 512 blocks with
/// thirty keys each, the number of keys in the first half has a standard deviation of 62, which is
/// two blocks.
const NEAR_HEADS: usize = 8;
/// Up to this many keys with equal heads are compared one by one. For more, a binary search is
/// used.
const FEW_EQUAL_HEADS: usize = 4;

/// A sorted array of keys, searched by eight-byte heads first.
#[derive(Debug, Default)]
pub struct KeyArray {
    prefix: Box<[u8]>,
    heads: Box<[u64]>,
    /// `Some` if the heads are evenly spread.
    spread: Option<Spread>,
    /// End of each key's suffix in `suffixes`.
    ends: Box<[u32]>,
    suffixes: Box<[u8]>,
}

/// A straight line through ascending heads. Most of them are near it.
#[derive(Clone, Copy, Debug)]
struct Spread {
    /// The first head.
    least: u64,
    /// Places per head, as a fraction of 2^64.
    slope: u64,
}

impl Spread {
    /// `None` if a guess would often be wrong, as for numbers in decimal digits. Guessing would
    /// then cost more than it saves. O(heads).
    fn of(heads: &[u64]) -> Option<Spread> {
        let (least, last) = (*heads.first()?, *heads.last()?);
        let span = u128::from(last.checked_sub(least)?) + 1;
        let slope = u64::try_from(((heads.len() as u128) << 64) / span).ok()?;
        let spread = Spread { least, slope };
        let is_near =
            |&(place, head): &(usize, &u64)| spread.guess(*head).abs_diff(place) < NEAR_HEADS;
        let near = heads.iter().enumerate().filter(is_near).count();
        (heads.len() > 2 * NEAR_HEADS && near >= heads.len() / 8 * 7).then_some(spread)
    }

    #[inline]
    fn guess(self, head: u64) -> usize {
        let above = head.saturating_sub(self.least);
        ((u128::from(above) * u128::from(self.slope)) >> 64) as usize
    }
}

impl KeyArray {
    /// Number of keys.
    pub fn len(&self) -> usize {
        self.heads.len()
    }

    /// Key `i`, as one vector.
    pub fn key(&self, i: usize) -> Vec<u8> {
        let mut key = self.prefix.to_vec();
        key.extend_from_slice(self.suffix(i));
        key
    }

    #[inline]
    fn suffix(&self, i: usize) -> &[u8] {
        let start = i.checked_sub(1).and_then(|p| self.ends.get(p)).copied().unwrap_or(0);
        let end = self.ends.get(i).copied().unwrap_or(start);
        self.suffixes.get(start as usize..end as usize).unwrap_or(&[])
    }

    /// Index of the first key >= `key`, and whether the two are equal. O(log n); touches whole keys
    /// only where heads are equal.
    #[inline]
    pub fn lower_bound(&self, key: &[u8]) -> (usize, bool) {
        let prefix = &*self.prefix;
        match key.get(..prefix.len()).unwrap_or(key).cmp(prefix) {
            std::cmp::Ordering::Less => return (0, false),
            std::cmp::Ordering::Greater => return (self.len(), false),
            std::cmp::Ordering::Equal => {}
        }
        let rest = &key[prefix.len()..];
        let wanted = head(rest, 0);
        let mut at = self.first_head_from(wanted);
        if self.heads.get(at + FEW_EQUAL_HEADS) == Some(&wanted) {
            return self.among_equal_heads(at, rest);
        }
        while at < self.heads.len() && self.heads[at] == wanted {
            match self.suffix(at).cmp(rest) {
                std::cmp::Ordering::Less => at += 1,
                std::cmp::Ordering::Equal => return (at, true),
                std::cmp::Ordering::Greater => break,
            }
        }
        (at, false)
    }

    /// As `lower_bound`, but only among the keys that have the same head as the key at `from`. Many
    /// keys share a head if they have a long prefix in common that not all keys of the array have.
    #[cold]
    fn among_equal_heads(&self, from: usize, rest: &[u8]) -> (usize, bool) {
        let equal = self.heads[from..].partition_point(|head| *head == self.heads[from]);
        let (mut low, mut high) = (from, from + equal);
        while low < high {
            let middle = low.midpoint(high);
            match self.suffix(middle) < rest {
                true => low = middle + 1,
                false => high = middle,
            }
        }
        (low, low < from + equal && self.suffix(low) == rest)
    }

    /// The place of the first head >= `wanted`. The search first tries the place that the head
    /// would have if all heads were evenly spread, as the heads of hashes are. This reads two or
    /// three neighbouring cache lines; a binary search reads one line after another.
    #[inline]
    fn first_head_from(&self, wanted: u64) -> usize {
        let heads = &*self.heads;
        if let Some(spread) = self.spread {
            let most = heads.len().saturating_sub(2 * NEAR_HEADS);
            let from = spread.guess(wanted).saturating_sub(NEAR_HEADS).min(most);
            if let Some(near) = heads.get(from..from + 2 * NEAR_HEADS)
                && near[0] < wanted
                && near[2 * NEAR_HEADS - 1] >= wanted
            {
                return from + near.partition_point(|word| *word < wanted);
            }
        }
        heads.partition_point(|word| *word < wanted)
    }

    /// Memory in bytes.
    pub fn size_bytes(&self) -> usize {
        self.prefix.len() + self.heads.len() * 8 + self.ends.len() * 4 + self.suffixes.len()
    }

    /// Appends the stored form of ascending keys.
    pub fn encode(keys: &[Vec<u8>], out: &mut Vec<u8>) {
        let prefix_len = match (keys.first(), keys.last()) {
            (Some(first), Some(last)) => common_prefix_len(first, last),
            _ => 0,
        };
        put_varint(out, keys.len() as u64);
        put_bytes(out, keys.first().map_or(&[], |key| &key[..prefix_len]));
        for key in keys {
            put_bytes(out, &key[prefix_len..]);
        }
    }

    /// Reads the stored form.
    pub fn decode(reader: &mut Reader<'_>) -> Option<KeyArray> {
        let count = reader.take_len().ok()?;
        let prefix = reader.take_bytes().ok()?.into();
        let mut heads = Vec::with_capacity(count);
        let mut ends = Vec::with_capacity(count);
        let mut suffixes: Vec<u8> = Vec::new();
        let mut previous: &[u8] = &[];
        for i in 0..count {
            let suffix = reader.take_bytes().ok()?;
            if i > 0 && suffix < previous {
                return None;
            }
            previous = suffix;
            heads.push(head(suffix, 0));
            suffixes.extend_from_slice(suffix);
            ends.push(u32::try_from(suffixes.len()).ok()?);
        }
        Some(KeyArray {
            prefix,
            spread: Spread::of(&heads),
            heads: heads.into(),
            ends: ends.into(),
            suffixes: suffixes.into(),
        })
    }
}

/// Index and filter of neighbouring blocks, in memory.
#[derive(Debug)]
pub struct Partition {
    /// Filter over the user keys of these blocks.
    pub filter: Option<Filter>,
    /// One separator per block.
    pub separators: KeyArray,
    /// The offset of each block, and the end of the last block.
    offsets: Box<[u64]>,
    /// The blocks that are in memory.
    pub residents: Residents,
}

impl Partition {
    /// Number of data blocks.
    pub fn block_count(&self) -> usize {
        self.separators.len()
    }

    /// File offset and stored length of a block.
    #[inline]
    pub fn block_range(&self, i: usize) -> Option<(u64, u64)> {
        let start = *self.offsets.get(i)?;
        Some((start, *self.offsets.get(i + 1)? - start))
    }

    /// Memory in bytes.
    pub fn size_bytes(&self) -> usize {
        let filter_bytes = self.filter.as_ref().map_or(0, Filter::size_bytes);
        size_of::<Partition>()
            + filter_bytes
            + self.separators.size_bytes()
            + self.offsets.len() * 8
            + self.residents.size_bytes()
    }

    /// Reads the stored form; block offsets must lie inside a file of `file_len` bytes.
    pub fn decode(bytes: &[u8], file_len: u64) -> Option<Partition> {
        let mut reader = Reader::new(bytes);
        let filter_bytes = reader.take_bytes().ok()?;
        let filter = match filter_bytes {
            [] => None,
            bytes => Some(Filter::decode(bytes)?),
        };
        let mut offset = reader.take_varint().ok()?;
        let separators = KeyArray::decode(&mut reader)?;
        let mut offsets = vec![offset];
        for _ in 0..separators.len() {
            offset = offset.checked_add(reader.take_varint().ok()?)?;
            offsets.push(offset);
        }
        let complete = reader.is_empty() && separators.len() > 0 && offset <= file_len;
        let residents = Residents::new(separators.len());
        complete.then(|| Partition { filter, separators, offsets: offsets.into(), residents })
    }
}

/// Collects a partition while its blocks are written.
#[derive(Debug, Default)]
pub struct PartitionBuilder {
    first_offset: u64,
    separators: Vec<Vec<u8>>,
    lengths: Vec<u64>,
}

impl PartitionBuilder {
    /// Adds a block that was written at `offset`.
    pub fn add_block(&mut self, separator: Vec<u8>, offset: u64, stored_len: u64) {
        if self.separators.is_empty() {
            self.first_offset = offset;
        }
        self.separators.push(separator);
        self.lengths.push(stored_len);
    }

    /// Blocks so far.
    pub fn block_count(&self) -> usize {
        self.separators.len()
    }

    /// Appends the stored form to `out`, and starts the next partition. Returns the last separator.
    pub fn finish(&mut self, filter: Option<&Filter>, out: &mut Vec<u8>) -> Vec<u8> {
        let mut filter_bytes = Vec::new();
        if let Some(filter) = filter {
            filter.encode(&mut filter_bytes);
        }
        put_bytes(out, &filter_bytes);
        put_varint(out, self.first_offset);
        KeyArray::encode(&self.separators, out);
        for len in self.lengths.drain(..) {
            put_varint(out, len);
        }
        self.separators.drain(..).next_back().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use runstone_random::Random;

    #[test]
    fn lower_bound_agrees_with_a_sorted_vec() {
        let sets: Vec<Vec<&[u8]>> = vec![
            vec![b"a", b"ab", b"abcdefgh", b"abcdefghi", b"abcdefghj", b"b"],
            vec![b"user00000001x", b"user00000001y", b"user000000020"],
            vec![b"", b"\0", b"\0\0", b"\0\0\0\0\0\0\0\0\0", b"\x01"],
            vec![b"only"],
        ];
        let probes: Vec<&[u8]> = sets.concat();
        for set in &sets {
            let keys: Vec<Vec<u8>> = set.iter().map(|key| key.to_vec()).collect();
            let mut bytes = Vec::new();
            KeyArray::encode(&keys, &mut bytes);
            let array = KeyArray::decode(&mut Reader::new(&bytes)).expect("own bytes");
            for (i, key) in keys.iter().enumerate() {
                assert_eq!(&array.key(i), key);
            }
            for probe in probes.iter().copied().chain([&b"zzz"[..], b"user0000", b"abcdefghii"]) {
                let expected = keys.partition_point(|key| &key[..] < probe);
                let equal = keys.get(expected).is_some_and(|key| &key[..] == probe);
                assert_eq!(array.lower_bound(probe), (expected, equal), "{probe:?} in {set:?}");
            }
        }
    }

    /// Keys whose heads lead to good, bad and worthless guesses.
    #[test]
    fn lower_bound_of_many_keys_agrees_with_a_sorted_vec() {
        let mut random = Random::new(7);
        let mut spread = |bits: u32| random.draw() >> (64 - bits);
        // Every thirtieth key, like the separators of blocks.
        let mut hashed: Vec<u64> = (0..512 * 30).map(|_| spread(64)).collect();
        hashed.sort_unstable();
        let hashed: Vec<u64> = hashed.into_iter().step_by(30).collect();
        // Between the first and the last key all heads are alike.
        let mut alike: Vec<Vec<u8>> =
            (0..5_000).map(|i| format!("tenant1/orders/{:06}", 2 * i).into_bytes()).collect();
        alike.insert(0, b"a".to_vec());
        alike.push(b"z".to_vec());
        let crowded: Vec<u64> = (0..512).map(|i| spread(1 + i / 8)).collect();
        let texts = |numbers: &[u64]| numbers.iter().map(|n| format!("{n:020}")).collect();
        let bytes = |numbers: &[u64]| numbers.iter().map(|n| n.to_be_bytes().to_vec()).collect();
        let as_text: Vec<String> = texts(&hashed);
        let mut sets: Vec<Vec<Vec<u8>>> = vec![bytes(&hashed), bytes(&crowded)];
        sets.push(as_text.iter().map(|text| text.as_bytes().to_vec()).collect());
        sets.push((0..400u32).map(|i| format!("same head {:04}", i / 2 * 7).into()).collect());
        sets.extend([alike, (0..17u8).map(|i| vec![i]).collect()]);
        let mut evenly = 0;
        for mut keys in sets {
            keys.sort();
            keys.dedup();
            let mut encoded = Vec::new();
            KeyArray::encode(&keys, &mut encoded);
            let array = KeyArray::decode(&mut Reader::new(&encoded)).expect("own bytes");
            evenly += usize::from(array.spread.is_some());
            let shorter = keys.iter().map(|key| key[..key.len() - 1].to_vec());
            let longer = keys.iter().map(|key| [&key[..], b"\0"].concat());
            let ends = [vec![], vec![0xff; 9]];
            for probe in keys.iter().cloned().chain(shorter).chain(longer).chain(ends) {
                let expected = keys.partition_point(|key| *key < probe);
                let equal = keys.get(expected) == Some(&probe);
                assert_eq!(array.lower_bound(&probe), (expected, equal), "{probe:?}");
            }
        }
        assert_eq!(evenly, 2, "the hashes and the single bytes");
    }

    #[test]
    fn truncated_partitions_are_refused() {
        let mut builder = PartitionBuilder::default();
        builder.add_block(b"k1".to_vec(), 0, 100);
        builder.add_block(b"k2".to_vec(), 100, 50);
        let filter = Filter::build(&[1, 2, 3], 100);
        let mut bytes = Vec::new();
        assert_eq!(builder.finish(filter.as_ref(), &mut bytes), b"k2");
        let partition = Partition::decode(&bytes, 150).expect("own bytes");
        assert_eq!(partition.block_range(1), Some((100, 50)));
        assert_eq!(partition.block_range(2), None);
        assert!(Partition::decode(&bytes, 149).is_none(), "a block beyond the file");
        for cut in 0..bytes.len() {
            assert!(Partition::decode(&bytes[..cut], 150).is_none());
        }
    }
}
