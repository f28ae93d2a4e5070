//! Plans a compaction of upper tables into lower ones: which outputs keep pages that exist, and
//! which must be rewritten.
//!
//! 1. The strata of the upper tables are put above the lower ones. Runs are stacked, oldest first;
//!    the tables of one run share their strata.
//! 2. All entries are sorted by the first key of their clip; among equals, those of the lowest
//!    stratum come first.
//! 3. Walk: once an output is charged with all but one of its pages, it is cut before the next
//!    entry of stratum 0. Entries of stratum 0 never overlap, so only pages of higher strata, which
//!    were remapped from above, are ever shared by two outputs. The firmware may supply its own
//!    cuts instead.
//! 4. An output with s strata is remapped if s <= TH and all limits hold: references of its pages,
//!    tables of the blocks it touches, charged pages, size of its metadata page. Its upper strata
//!    are renumbered to follow its lower ones without a gap.
//! 5. Adjacent outputs that must be rewritten become one rewrite.
//!
//! A shared page is charged to the leftmost remapped output that has it, if it was charged to an
//! input; a page whose charged table was removed first is charged to nobody.

use std::collections::{BTreeMap, BTreeSet};

/// The most references that a page may have: what 3 bits can count.
pub const MAX_PAGE_REFERENCES: u8 = 7;
/// The most tables that may have pages in a block after a remapping.
pub const MAX_BLOCK_TABLES: usize = 5;

/// A reference of a table to a page or to a group of pages.
pub trait PageEntry: Clone {
    /// The type of the keys in clips.
    type Key: Ord + Clone;

    /// Number of the page.
    fn page(&self) -> u32;
    /// Pages of the group.
    fn page_count(&self) -> u32;
    /// Age inside the table: of two entries with the key, the higher stratum is newer.
    fn stratum(&self) -> u8;
    /// Whether it counts towards the size of the table.
    fn is_charged(&self) -> bool;
    /// First key of the clip.
    fn first_key(&self) -> &Self::Key;
    /// The entry cut to the keys from `from` up to but not including `to`; `None` if the clip has
    /// no keys there.
    fn clipped(&self, from: Option<&Self::Key>, to: Option<&Self::Key>) -> Option<Self>;
    /// The same entry with another stratum, charged or not.
    fn placed(self, stratum: u8, is_charged: bool) -> Self;
}

/// A table of a compaction.
#[derive(Debug)]
pub struct TableEntries<'a, E> {
    /// What it refers to.
    pub entries: &'a [E],
    /// Number of its strata.
    pub strata: u16,
}

/// An entry with its stratum in the whole compaction.
#[derive(Debug)]
pub struct Stacked<'a, E> {
    /// The entry as its table has it.
    pub entry: &'a E,
    /// Its position among all entries.
    pub stratum: u16,
    is_lower: bool,
}

/// One output of a compaction, in key order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Planned<E: PageEntry> {
    /// A table of these entries; nothing but its metadata is written.
    Remap {
        /// Clipped to the output, with their new strata.
        entries: Vec<E>,
        /// Number of strata.
        strata: u8,
    },
    /// The records of these entries, to be written into new pages.
    Rewrite {
        /// Clipped to the output, with the strata of the compaction.
        entries: Vec<E>,
        /// The cuts inside it.
        cuts: Vec<E::Key>,
    },
}

/// The facts about the device that the planning needs.
pub struct Device<'a, E> {
    /// TH: the most strata of a remapped table; 0 rewrites everything (nLSM).
    pub threshold: u8,
    /// The most pages that a table may have.
    pub table_pages: u32,
    /// Whether the metadata of a table of these entries fits in its page.
    pub has_room: &'a dyn Fn(&[E]) -> bool,
    /// The count of references to a page, including those of the inputs, because a count falls only
    /// after the commit.
    pub references: &'a dyn Fn(u32) -> usize,
    /// Block of a page.
    pub block: &'a dyn Fn(u32) -> u32,
    /// The count of tables with pages in a block, without the inputs, because the commit removes
    /// these.
    pub other_tables: &'a dyn Fn(u32) -> usize,
}

/// The entries of all tables in the order in which outputs are planned. `upper` has the upper
/// tables by run, oldest first.
pub fn stack<'a, E: PageEntry>(
    lower: &[TableEntries<'a, E>],
    upper: &[Vec<TableEntries<'a, E>>],
) -> Vec<Stacked<'a, E>> {
    let most = |tables: &[TableEntries<'_, E>]| tables.iter().map(|table| table.strata).max();
    let mut stacked = Vec::new();
    let mut push = |table: &TableEntries<'a, E>, shift: u16, is_lower: bool| {
        stacked.extend(table.entries.iter().map(|entry| Stacked {
            entry,
            stratum: u16::from(entry.stratum()) + shift,
            is_lower,
        }));
    };
    let mut shift = most(lower).unwrap_or(0);
    lower.iter().for_each(|table| push(table, 0, true));
    for run in upper {
        run.iter().for_each(|table| push(table, shift, false));
        shift += most(run).unwrap_or(0);
    }
    stacked.sort_by(|one, two| {
        let (first, second) = (one.entry.first_key(), two.entry.first_key());
        (first, one.stratum).cmp(&(second, two.stratum))
    });
    stacked
}

/// The keys at which outputs are cut by size.
pub fn size_cuts<E: PageEntry>(stacked: &[Stacked<'_, E>], table_pages: u32) -> Vec<E::Key> {
    let mut cuts = Vec::new();
    let mut charged_pages = 0;
    for one in stacked {
        if charged_pages + 1 >= table_pages && one.stratum == 0 {
            cuts.push(one.entry.first_key().clone());
            charged_pages = 0;
        }
        if one.entry.is_charged() {
            charged_pages += one.entry.page_count();
        }
    }
    cuts
}

/// Plans the outputs between ascending cuts.
pub fn plan<E: PageEntry>(
    stacked: &[Stacked<'_, E>],
    cuts: &[E::Key],
    device: &Device<'_, E>,
) -> Vec<Planned<E>> {
    let starts = std::iter::once(None).chain(cuts.iter().map(Some));
    let ends = cuts.iter().map(Some).chain(std::iter::once(None));
    let mut account = Account::new(device);
    let mut outputs = Vec::new();
    let mut rewriting: Vec<KeyRange<'_, E>> = Vec::new();
    for range in starts.zip(ends) {
        let inside = clipped(stacked, range);
        if inside.is_empty() {
            continue;
        }
        if let Some((entries, strata)) = account.remap(stacked, &inside) {
            outputs.extend(rewrite(stacked, &rewriting));
            rewriting.clear();
            outputs.push(Planned::Remap { entries, strata });
        } else {
            rewriting.push(range);
        }
    }
    outputs.extend(rewrite(stacked, &rewriting));
    outputs
}

/// Keys of one output: from a cut, if it is not the first, to the next, if it is not the last.
type KeyRange<'a, E> = (Option<&'a <E as PageEntry>::Key>, Option<&'a <E as PageEntry>::Key>);

/// The entries with keys in a range, cut to the range, with their positions.
fn clipped<E: PageEntry>(
    stacked: &[Stacked<'_, E>],
    (from, to): KeyRange<'_, E>,
) -> Vec<(usize, E)> {
    let inside = stacked.iter().enumerate();
    inside.filter_map(|(at, one)| Some((at, one.entry.clipped(from, to)?))).collect()
}

/// The rewrite of adjacent ranges, if there are any.
fn rewrite<E: PageEntry>(
    stacked: &[Stacked<'_, E>],
    ranges: &[KeyRange<'_, E>],
) -> Option<Planned<E>> {
    let whole = (ranges.first()?.0, ranges.last()?.1);
    Some(Planned::Rewrite {
        entries: clipped(stacked, whole).into_iter().map(|(_, entry)| entry).collect(),
        cuts: ranges[1..].iter().filter_map(|(from, _)| from.cloned()).collect(),
    })
}

/// The counts and lists of the outputs planned so far.
struct Account<'a, E> {
    device: &'a Device<'a, E>,
    page_counts: BTreeMap<u32, usize>,
    /// Per block: tables that are not inputs, and outputs.
    block_tables: BTreeMap<u32, usize>,
    /// Positions of entries that are charged to an output already.
    charged: BTreeSet<usize>,
}

impl<'a, E: PageEntry> Account<'a, E> {
    fn new(device: &'a Device<'a, E>) -> Account<'a, E> {
        let (page_counts, block_tables, charged) = Default::default();
        Account { device, page_counts, block_tables, charged }
    }

    /// The entries of a remapped output and its strata; `None` if a limit forbids it.
    fn remap(&mut self, stacked: &[Stacked<'_, E>], inside: &[(usize, E)]) -> Option<(Vec<E>, u8)> {
        let old = inside.iter().map(|(at, _)| (stacked[*at].stratum, stacked[*at].is_lower));
        let (strata, count) = renumber(old);
        if count > u16::from(self.device.threshold) || !self.may_share(inside) {
            return None;
        }
        let entry = |(at, entry): &(usize, E)| {
            let is_charged = entry.is_charged() && !self.charged.contains(at);
            entry.clone().placed(strata[&stacked[*at].stratum], is_charged)
        };
        let entries: Vec<E> = inside.iter().map(entry).collect();
        let charged = entries.iter().filter(|entry| entry.is_charged());
        let charged_pages: u32 = charged.map(PageEntry::page_count).sum();
        if charged_pages > self.device.table_pages || !(self.device.has_room)(&entries) {
            return None;
        }
        self.commit(inside);
        Some((entries, count as u8))
    }

    /// Whether the pages may have one more reference, and their blocks one more table.
    fn may_share(&mut self, inside: &[(usize, E)]) -> bool {
        let mut more: BTreeMap<u32, usize> = BTreeMap::new();
        inside.iter().all(|(_, entry)| {
            let page = entry.page();
            let added = more.entry(page).or_insert(0);
            let planned = self.page_counts.get(&page).copied().unwrap_or(0);
            let count = (self.device.references)(page) + planned + *added;
            *added += 1;
            let tables = *self.tables_of((self.device.block)(page));
            count < usize::from(MAX_PAGE_REFERENCES) && tables < MAX_BLOCK_TABLES
        })
    }

    fn commit(&mut self, inside: &[(usize, E)]) {
        let mut blocks = BTreeSet::new();
        for (at, entry) in inside {
            *self.page_counts.entry(entry.page()).or_insert(0) += 1;
            blocks.insert((self.device.block)(entry.page()));
            self.charged.insert(*at);
        }
        blocks.into_iter().for_each(|block| *self.tables_of(block) += 1);
    }

    fn tables_of(&mut self, block: u32) -> &mut usize {
        let others = || (self.device.other_tables)(block);
        self.block_tables.entry(block).or_insert_with(others)
    }
}

/// The new stratum of each old stratum of an output, and the number of strata. `old` has the
/// stratum of each entry in the compaction, and whether it comes from a lower table. Lower strata
/// stay; upper ones follow without a gap. The numbers mean nothing if there are more than a u8
/// holds: no such output is remapped.
fn renumber(old: impl Iterator<Item = (u16, bool)>) -> (BTreeMap<u16, u8>, u16) {
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
