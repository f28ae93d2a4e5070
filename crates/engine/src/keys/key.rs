//! Internal keys: a user key with the sequence number and kind of one write. Pure functions only.
//!
//! Order: user key ascending (bytes), then trailer descending, so that the newest version of a key
//! comes first. The trailer is `sequence << 8 | kind`.

use std::cmp::Ordering;

use runstone_policy::shape::range_delete::RangeDelete;

use crate::error::Error;

/// Identifies a keyspace within a store.
pub type KeyspaceId = u32;
/// An id that no keyspace has, for records in the log that write to no keyspace.
pub(crate) const NO_KEYSPACE: KeyspaceId = KeyspaceId::MAX;

/// Position of a write in the store's history; 56 bits are used.
pub type SeqNo = u64;

/// Largest sequence number that fits a trailer.
pub const MAX_SEQ: SeqNo = (1 << 56) - 1;
/// Longest user key in bytes.
pub const MAX_KEY_BYTES: usize = (1 << 16) - 1;
/// Longest value in bytes.
pub const MAX_VALUE_BYTES: u64 = (1 << 32) - 1;

/// Returns the value that a program made, or an error if it is longer than a value may be.
pub(crate) fn check_length(value: Vec<u8>, most: u64) -> Result<Vec<u8>, String> {
    match value.len() as u64 > most {
        true => Err(format!("its value has {} bytes; the most is {most}", value.len())),
        false => Ok(value),
    }
}

/// The kind of a version of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[non_exhaustive]
pub enum Kind {
    /// The key was deleted.
    Delete = 0,
    /// The value is stored inline.
    Put = 1,
    /// An operand of the keyspace's merge operator, which applies to older versions.
    Merge = 2,
    /// Deletes older entries from this key on. The value is the least key after the range; empty
    /// means that the range has no end.
    RangeDelete = 3,
    /// The value is a pointer into a value file.
    ValuePointer = 4,
    /// A pointer that a collection wrote, to the record of an older version with this value.
    Relocate = 5,
    /// The value is stored inline, and expires.
    ExpiringPut = 6,
    /// The value is a pointer into a value file, and expires.
    ExpiringPointer = 7,
}

impl Kind {
    /// Decodes a stored kind. Kinds of a newer format are `None`.
    #[inline]
    pub fn from_u8(byte: u8) -> Option<Kind> {
        Some(match byte {
            0 => Kind::Delete,
            1 => Kind::Put,
            2 => Kind::Merge,
            3 => Kind::RangeDelete,
            4 => Kind::ValuePointer,
            5 => Kind::Relocate,
            6 => Kind::ExpiringPut,
            7 => Kind::ExpiringPointer,
            _ => return None,
        })
    }

    fn deletes(self) -> bool {
        matches!(self, Kind::Delete | Kind::RangeDelete)
    }

    fn is_pointer(self) -> bool {
        matches!(self, Kind::ValuePointer | Kind::Relocate | Kind::ExpiringPointer)
    }

    fn is_inline(self) -> bool {
        matches!(self, Kind::Put | Kind::ExpiringPut)
    }

    fn expires(self) -> bool {
        matches!(self, Kind::ExpiringPut | Kind::ExpiringPointer)
    }

    /// Whether this write was made by a collection, which moved the value of the key, and not by a
    /// user.
    pub(crate) fn is_relocation(self) -> bool {
        self == Kind::Relocate
    }
}

/// Whether a test is true for a trailer's kind. It is false for kinds of a newer format.
#[inline]
fn is(trailer: u64, asked: impl FnOnce(Kind) -> bool) -> bool {
    Kind::from_u8(kind_of(trailer)).is_some_and(asked)
}

/// Whether an entry with this trailer deletes its key, alone or together with other keys.
#[inline]
pub fn is_delete(trailer: u64) -> bool {
    is(trailer, Kind::deletes)
}

/// Packs a trailer.
#[inline]
pub fn pack(seq: SeqNo, kind: Kind) -> u64 {
    debug_assert!(seq <= MAX_SEQ, "a sequence number leaves no room for the kind");
    seq << 8 | kind as u64
}

/// The trailer that sorts before every version visible at `seq`, and after every newer one.
#[inline]
pub fn seek_trailer(seq: SeqNo) -> u64 {
    debug_assert!(seq <= MAX_SEQ, "a sequence number leaves no room for the kind");
    seq << 8 | 0xff
}

/// The sequence number of a trailer.
#[inline]
pub fn seq_of(trailer: u64) -> SeqNo {
    trailer >> 8
}

/// The kind byte of a trailer.
#[inline]
pub fn kind_of(trailer: u64) -> u8 {
    trailer as u8
}

/// Whether an entry with this trailer has its value in a value file.
#[inline]
pub fn is_pointer(trailer: u64) -> bool {
    is(trailer, Kind::is_pointer)
}

/// Whether an entry with this trailer has its value inline.
#[inline]
pub fn is_inline(trailer: u64) -> bool {
    is(trailer, Kind::is_inline)
}

/// Whether an entry with this trailer expires.
#[inline]
pub fn expires(trailer: u64) -> bool {
    is(trailer, Kind::expires)
}

/// Whether an entry with this trailer was written by a collection, which moved the value of an
/// older version.
#[inline]
pub fn is_relocation(trailer: u64) -> bool {
    is(trailer, Kind::is_relocation)
}

/// Whether an entry with this trailer is an operand.
#[inline]
pub fn is_operand(trailer: u64) -> bool {
    is(trailer, |kind| kind == Kind::Merge)
}

/// Whether an entry with this trailer deletes a range.
#[inline]
pub fn is_range_delete(trailer: u64) -> bool {
    is(trailer, |kind| kind == Kind::RangeDelete)
}

/// The error for a kind of entry that this release does not write.
pub(crate) fn unsupported_kind(trailer: u64) -> Error {
    Error::corruption("a table", 0, format!("entry of unsupported kind {}", kind_of(trailer)))
}

/// The range delete that an entry of kind [`Kind::RangeDelete`] represents.
pub fn range_delete(start: &[u8], seq: SeqNo, end: &[u8]) -> RangeDelete {
    let end = (!end.is_empty()).then(|| end.into());
    RangeDelete { start: start.into(), end, seq }
}

/// Compares internal keys.
#[inline]
pub fn compare(a_key: &[u8], a_trailer: u64, b_key: &[u8], b_trailer: u64) -> Ordering {
    a_key.cmp(b_key).then_with(|| b_trailer.cmp(&a_trailer))
}

/// The eight bytes of `key` from `skip` on as a big-endian number, padded with zeros. For keys that
/// share their first `skip` bytes, different heads have the same order as the keys. Equal heads
/// decide nothing.
#[inline]
pub fn head(key: &[u8], skip: usize) -> u64 {
    match key.get(skip..skip + 8) {
        Some(bytes) => u64::from_be_bytes([
            bytes[0], bytes[1], bytes[2], bytes[3], bytes[4], bytes[5], bytes[6], bytes[7],
        ]),
        None => {
            let rest = key.get(skip..).unwrap_or(&[]);
            let mut padded = [0u8; 8];
            padded[..rest.len()].copy_from_slice(rest);
            u64::from_be_bytes(padded)
        }
    }
}

/// How to take heads of keys that mostly share a prefix. The head is taken after that prefix. A key
/// with another beginning gets the smallest or the largest head, so that heads never contradict the
/// order of the keys. Equal heads decide nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeadRule {
    /// Length of the shared prefix, at most 16.
    skip: usize,
    /// The prefix as a big-endian number, followed by zeros.
    prefix: u128,
}

impl HeadRule {
    /// Heads are the first eight bytes.
    pub const WHOLE: HeadRule = HeadRule { skip: 0, prefix: 0 };

    /// The rule for keys from `low` to `high`.
    pub fn between(low: &[u8], high: &[u8]) -> HeadRule {
        let skip = common_prefix_len(low, high).min(size_of::<u128>());
        HeadRule { skip, prefix: first_sixteen(&low[..skip]) }
    }

    /// A rule that suits the keys of both rules.
    pub fn or(self, other: HeadRule) -> HeadRule {
        let alike = ((self.prefix ^ other.prefix).leading_zeros() / 8) as usize;
        let skip = self.skip.min(other.skip).min(alike);
        HeadRule { skip, prefix: self.prefix & mask(skip) }
    }

    /// The head of a key.
    #[inline]
    pub fn head(&self, key: &[u8]) -> u64 {
        if self.skip == 0 {
            return head(key, 0);
        }
        match (first_sixteen(key) & mask(self.skip)).cmp(&self.prefix) {
            Ordering::Equal if key.len() >= self.skip => head(key, self.skip),
            Ordering::Greater => u64::MAX,
            // The padding made this key look as if it had the prefix. The key ends within the
            // prefix, so it sorts before keys that have the prefix.
            Ordering::Equal | Ordering::Less => 0,
        }
    }
}

/// Ones over the first `len` bytes of sixteen.
#[inline]
fn mask(len: usize) -> u128 {
    u128::MAX.checked_shl(128 - 8 * len as u32).unwrap_or(0)
}

/// The first sixteen bytes as a big-endian number, padded with zeros.
#[inline]
fn first_sixteen(key: &[u8]) -> u128 {
    match key.first_chunk() {
        Some(bytes) => u128::from_be_bytes(*bytes),
        None => {
            let mut padded = [0u8; size_of::<u128>()];
            padded[..key.len()].copy_from_slice(key);
            u128::from_be_bytes(padded)
        }
    }
}

/// Length of the longest common prefix.
#[inline]
pub fn common_prefix_len(a: &[u8], b: &[u8]) -> usize {
    let limit = a.len().min(b.len());
    let mut at = 0;
    while at + 8 <= limit {
        let differing = head(a, at) ^ head(b, at);
        if differing != 0 {
            return at + (differing.leading_zeros() / 8) as usize;
        }
        at += 8;
    }
    while at < limit && a[at] == b[at] {
        at += 1;
    }
    at
}

/// A short key `s` with `low <= s < high`, given `low < high`; `low` itself if no shorter key fits.
pub fn separator(low: &[u8], high: &[u8]) -> Vec<u8> {
    let shared = common_prefix_len(low, high);
    if shared < low.len() && shared < high.len() {
        let candidate = low[shared] + 1;
        if candidate < high[shared] {
            let mut short = low[..=shared].to_vec();
            short[shared] = candidate;
            return short;
        }
    }
    low.to_vec()
}

/// The smallest key greater than every key that starts with `prefix`; `None` if there is none.
pub fn prefix_successor(prefix: &[u8]) -> Option<Vec<u8>> {
    let keep = prefix.iter().rposition(|byte| *byte != 0xff)?;
    let mut end = prefix[..=keep].to_vec();
    end[keep] += 1;
    Some(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The stored length of a longer value would be truncated.
    #[test]
    fn values_that_programs_make_have_the_same_limit() {
        assert_eq!(check_length(vec![7; 3], 3), Ok(vec![7; 3]));
        let refused = check_length(vec![7; 4], 3).expect_err("too long");
        assert!(refused.contains("has 4 bytes; the most is 3"), "{refused}");
    }

    #[test]
    fn newest_version_sorts_first() {
        assert_eq!(compare(b"a", pack(2, Kind::Put), b"a", pack(1, Kind::Put)), Ordering::Less);
        assert_eq!(compare(b"a", pack(1, Kind::Put), b"b", pack(9, Kind::Put)), Ordering::Less);
        assert!(seek_trailer(5) > pack(5, Kind::Relocate));
        assert!(seek_trailer(5) < pack(6, Kind::Delete));
    }

    #[test]
    fn heads_order_like_keys_after_a_shared_prefix() {
        let keys: [&[u8]; 5] = [b"user", b"user0", b"user00000001", b"user1", b"user2xxxxxxxxxx"];
        for pair in keys.windows(2) {
            assert!(head(pair[0], 4) <= head(pair[1], 4));
        }
        assert_eq!(common_prefix_len(b"user0000000012", b"user0000000034"), 12);
        assert_eq!(common_prefix_len(b"", b"x"), 0);
    }

    #[test]
    fn heads_of_a_rule_never_contradict_the_order() {
        let mut keys: Vec<&[u8]> = vec![
            b"",
            b"\0",
            b"us",
            b"us\0",
            b"us\0\0\0",
            b"user",
            b"user\0",
            b"user0000000012345",
            b"user0000000012346",
            b"user00000000123460000",
            b"user9",
            b"usf",
            b"z",
            b"\xff\xff",
        ];
        keys.sort();
        let rules = keys.iter().flat_map(|low| keys.iter().map(move |high| (low, high)));
        let rules = rules.filter(|(low, high)| low <= high);
        let rules: Vec<HeadRule> = rules.map(|(low, high)| HeadRule::between(low, high)).collect();
        let both = rules.iter().flat_map(|a| rules.iter().map(|b| a.or(*b)));
        for rule in both.chain(rules.iter().copied()) {
            for pair in keys.windows(2) {
                assert!(rule.head(pair[0]) <= rule.head(pair[1]), "{rule:?} {pair:?}");
            }
        }
        let rule = HeadRule::between(b"user0000000012345", b"user0000000099999")
            .or(HeadRule::between(b"user0000000000000", b"user0000000000009"));
        assert_eq!(rule, HeadRule::between(b"user00000000", b"user00000000"));
        assert!(rule.head(b"user0000000012345") < rule.head(b"user0000000012346"));
    }

    #[test]
    fn separators_are_short_and_between() {
        let cases: [(&[u8], &[u8]); 6] = [
            (b"abcdef", b"abzz"),
            (b"a", b"b"),
            (b"a", b"a\0"),
            (b"", b"\0"),
            (b"ab\xff\xff", b"ac"),
            (b"abc", b"abd"),
        ];
        for (low, high) in cases {
            let middle = separator(low, high);
            assert!(low <= &middle[..] && &middle[..] < high, "{low:?} {middle:?} {high:?}");
            assert!(middle.len() <= low.len());
        }
        assert_eq!(separator(b"abcdef", b"abzz"), b"abd");
        assert_eq!(prefix_successor(b"a\xff"), Some(b"b".to_vec()));
        assert_eq!(prefix_successor(b"ab"), Some(b"ac".to_vec()));
        assert_eq!(prefix_successor(b"\xff\xff"), None);
        assert_eq!(prefix_successor(b""), None);
    }
}
