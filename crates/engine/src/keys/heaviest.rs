//! Finds the heaviest prefixes of weighted keys. Pure functions: they know nothing about tables or
//! reads.
//!
//! 1. All keys are one group, named by the prefix that they share.
//! 2. The heaviest group that can be divided is divided by the byte after its name, and each part
//!    is named by the prefix that its keys share. A group stays whole if no part would have at
//!    least a sixteenth of its weight: its keys then differ like random numbers, and 256 parts of a
//!    few thousandths each would say nothing.
//! 3. This ends when there are as many groups as requested. A division adds at most 256 groups, and
//!    fewer than 16 heavy ones.

use crate::keys::common_prefix_len;

/// A part with less than this fraction of a group's weight is no reason to divide the group.
const LEAST_FRACTION: u64 = 16;

/// Keys that share a prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Heavy {
    /// The prefix that they share.
    pub(crate) prefix: Vec<u8>,
    /// The sum of their weights.
    pub(crate) weight: u64,
    /// Whether they are one key.
    pub(crate) is_key: bool,
}

/// At most `limit` prefixes, the heaviest first; no key counts for two of them. `keys` ascend, and
/// may repeat.
pub(crate) fn heaviest<K: AsRef<[u8]>>(keys: &[(K, u64)], limit: usize) -> Vec<Heavy> {
    let mut whole: Vec<Group<'_, K>> = Vec::new();
    let mut open: Vec<Group<'_, K>> = Group::of(keys).into_iter().collect();
    while open.len() + whole.len() < limit {
        let Some(at) = (0..open.len()).max_by_key(|at| open[*at].weight) else { break };
        let group = open.swap_remove(at);
        let parts = group.parts();
        let heavy = parts.iter().map(|part| part.weight).max().unwrap_or(0);
        match parts.len() > 1 && heavy >= group.weight / LEAST_FRACTION {
            true => open.extend(parts),
            false => whole.push(group),
        }
    }
    let mut heavy: Vec<Heavy> = open.iter().chain(&whole).map(Group::named).collect();
    heavy.sort_by(|a, b| b.weight.cmp(&a.weight).then_with(|| a.prefix.cmp(&b.prefix)));
    heavy.truncate(limit);
    heavy
}

/// Neighbouring keys.
struct Group<'a, K> {
    keys: &'a [(K, u64)],
    /// How many bytes they have in common.
    common: usize,
    weight: u64,
}

impl<'a, K: AsRef<[u8]>> Group<'a, K> {
    /// `None` if there are no keys.
    fn of(keys: &'a [(K, u64)]) -> Option<Group<'a, K>> {
        let (first, last) = (keys.first()?.0.as_ref(), keys.last()?.0.as_ref());
        let weight = keys.iter().fold(0, |sum: u64, (_, weight)| sum.saturating_add(*weight));
        Some(Group { keys, common: common_prefix_len(first, last), weight })
    }

    /// Divides the group by the byte after the common prefix. A key that is the prefix itself is a
    /// part too.
    fn parts(&self) -> Vec<Group<'a, K>> {
        let next = |key: &(K, u64)| key.0.as_ref().get(self.common).copied();
        let alike = self.keys.chunk_by(|a, b| next(a) == next(b));
        alike.filter_map(Group::of).collect()
    }

    fn named(&self) -> Heavy {
        let first = self.keys[0].0.as_ref();
        let is_key = self.keys.iter().all(|(key, _)| key.as_ref() == first);
        Heavy { prefix: first[..self.common].to_vec(), weight: self.weight, is_key }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(keys: &[(&str, u64)], limit: usize) -> Vec<(String, u64, bool)> {
        let text = |heavy: Heavy| {
            (String::from_utf8(heavy.prefix).expect("a text"), heavy.weight, heavy.is_key)
        };
        heaviest(keys, limit).into_iter().map(text).collect()
    }

    fn named(name: &str, weight: u64, is_key: bool) -> (String, u64, bool) {
        (name.to_string(), weight, is_key)
    }

    #[test]
    fn the_heaviest_is_divided_until_there_are_enough() {
        let keys = [("log/1", 40), ("log/2", 50), ("user/1/a", 5), ("user/1/b", 4), ("user/2", 1)];
        assert_eq!(texts(&keys, 1), [named("", 100, false)]);
        assert_eq!(texts(&keys, 2), [named("log/", 90, false), named("user/", 10, false)]);
        let three = [named("log/2", 50, true), named("log/1", 40, true), named("user/", 10, false)];
        assert_eq!(texts(&keys, 3), three);
        assert_eq!(texts(&keys, 99).len(), 5);
        assert!(texts(&[], 9).is_empty() && texts(&keys, 0).is_empty());
    }

    #[test]
    fn a_key_that_others_begin_with_is_a_part_of_its_own() {
        let keys = [("a", 60), ("a", 10), ("ab", 20), ("ac", 10)];
        let all = [named("a", 70, true), named("ab", 20, true), named("ac", 10, true)];
        assert_eq!(texts(&keys, 9), all);
        let huge = [("a", u64::MAX), ("b", u64::MAX)];
        assert_eq!(texts(&huge, 1), [named("", u64::MAX, false)], "and no overflow");
    }

    #[test]
    fn keys_that_are_spread_evenly_stay_together() {
        let keys: Vec<([u8; 2], u64)> = (0..=255).map(|byte| ([byte, 7], 1)).collect();
        let found = heaviest(&keys, 20);
        assert_eq!(found, [Heavy { prefix: Vec::new(), weight: 256, is_key: false }]);
        let mut uneven = keys;
        uneven[9].1 = 1000;
        assert_eq!(
            heaviest(&uneven, 20)[0],
            Heavy { prefix: vec![9, 7], weight: 1000, is_key: true }
        );
    }
}
