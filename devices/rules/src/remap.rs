//! Rules of remapping that the flash firmware and its simulator share: how often flash may be
//! referred to, and how the strata of a remapped table are numbered. Source: KVSSD.

use std::collections::{BTreeMap, BTreeSet};

/// Most references of a page: what 3 bits hold.
pub const MAX_PAGE_REFERENCES: u8 = 7;
/// Most tables of a block that a remapping may touch.
pub const MAX_BLOCK_TABLES: usize = 5;

/// The new strata of an output, by the old ones, and their number. `old` has the stratum of each
/// entry in the compaction, and whether it comes from a lower table. Lower strata stay; upper ones
/// follow without a gap. The numbers mean nothing if there are more than a u8 holds: no such output
/// is remapped.
pub fn renumber(old: impl Iterator<Item = (u16, bool)>) -> (BTreeMap<u16, u8>, u16) {
    let (mut lower, mut upper) = (BTreeSet::new(), BTreeSet::new());
    old.for_each(|(stratum, is_lower)| {
        let side = if is_lower { &mut lower } else { &mut upper };
        side.insert(stratum);
    });
    let first_free = lower.last().map_or(0, |highest| highest + 1);
    let counter = first_free + upper.len() as u16;
    let moved = upper.into_iter().zip(first_free..);
    let strata = lower.into_iter().map(|stratum| (stratum, stratum)).chain(moved);
    (strata.map(|(old, new)| (old, new as u8)).collect(), counter)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn upper_strata_follow_the_highest_lower_one() {
        let old = [(0, true), (2, true), (7, false), (4, false), (7, false)];
        let (strata, counter) = renumber(old.into_iter());
        assert_eq!(strata, BTreeMap::from([(0, 0), (2, 2), (4, 3), (7, 4)]));
        assert_eq!(counter, 5);
        assert_eq!(renumber([(3, false)].into_iter()), (BTreeMap::from([(3, 0)]), 1));
    }
}
