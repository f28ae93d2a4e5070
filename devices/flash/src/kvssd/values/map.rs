//! Where separated values are, and which of them are needed. This is in RAM. The source of truth is
//! the pages that commits name, and the pointers in the tree.
//!
//! The address of a value is its key and its sequence number. The key gives the group. In a group
//! each sequence number has a home: the page with the largest start at or before it. A value that
//! moves keeps its address, so no pointer is ever rewritten. Rejected: a map of small logical
//! pages, which would have as many entries as the map of an ordinary SSD. Also rejected: pointers
//! to pages, which a collection would have to look up in the tree.
//!
//! A log is one group. A page knows its needed values by their sequence numbers and not by a count,
//! so dropping a value twice does no harm.

use std::collections::BTreeMap;

use xxhash_rust::xxh3::xxh3_64;

use crate::kvssd::format::kv_page::page_room_bytes;
use crate::kvssd::tree::ValueEntry;

/// A page of values, or the pages of one large value.
#[derive(Clone, Debug, Default)]
pub(crate) struct ValuePage {
    pub(crate) group: u8,
    pub(crate) page_count: u32,
    starts: Vec<u64>,
    /// Sequence numbers of the needed values, ascending. Meaningless until `is_counted` is true.
    needed: Vec<u64>,
    needed_bytes: u64,
}

/// What a transaction changes in values.
#[derive(Debug, Default)]
pub(crate) struct ValueChange {
    /// Values whose pointers were removed from the tree: group, sequence number, record bytes.
    pub(crate) dropped: Vec<(u8, u64, usize)>,
    /// Pages that no longer contain needed values.
    pub(crate) emptied: Vec<u32>,
    /// New pages, with the sequence number and record bytes of each value.
    pub(crate) added: Vec<(ValueEntry, Vec<(u64, usize)>)>,
}

#[derive(Clone, Debug, Default)]
struct Group {
    /// The page at each start.
    homes: BTreeMap<u64, u32>,
    page_count: u64,
    /// Pages that were written since all pages of the group were last read together.
    unread_pages: u64,
}

/// See the module docs.
#[derive(Clone, Debug, Default)]
pub(crate) struct ValueMap {
    groups: Vec<Group>,
    pages: BTreeMap<u32, ValuePage>,
    /// Whether pages know which of their values are needed.
    pub(crate) is_counted: bool,
    used_pages: u64,
    needed: Needed,
}

/// Values that are needed, measured by the space that they take once they are packed again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Needed {
    small_count: u64,
    small_bytes: u64,
    large_pages: u64,
}

impl Needed {
    fn of(page: &ValuePage) -> Needed {
        let count = page.needed.len() as u64;
        match page.page_count {
            1 => Needed { small_count: count, small_bytes: page.needed_bytes, large_pages: 0 },
            pages => Needed { large_pages: u64::from(pages) * count.min(1), ..Needed::default() },
        }
    }

    fn add(&mut self, other: Needed) {
        self.small_count += other.small_count;
        self.small_bytes += other.small_bytes;
        self.large_pages += other.large_pages;
    }

    fn take(&mut self, other: Needed) {
        self.small_count -= other.small_count;
        self.small_bytes -= other.small_bytes;
        self.large_pages -= other.large_pages;
    }

    /// About how many pages the values take. Exact for records of one size.
    fn pages(&self, page_bytes: usize) -> u64 {
        let mean_bytes = self.small_bytes.div_ceil(self.small_count.max(1)).max(1);
        let per_page = (page_room_bytes(page_bytes) as u64 / mean_bytes).max(1);
        self.small_count.div_ceil(per_page) + self.large_pages
    }
}

impl ValueMap {
    /// A map of this many groups, without pages.
    pub(crate) fn new(group_count: u8) -> ValueMap {
        let groups = vec![Group::default(); usize::from(group_count)];
        ValueMap { groups, is_counted: true, ..ValueMap::default() }
    }

    pub(crate) fn group_count(&self) -> u8 {
        self.groups.len() as u8
    }

    /// The group of a key.
    pub(crate) fn group_of(&self, key: &[u8]) -> u8 {
        ((u128::from(xxh3_64(key)) * self.groups.len() as u128) >> 64) as u8
    }

    /// The pages that contain a value of a group: first page and count.
    pub(crate) fn home(&self, group: u8, seq: u64) -> Option<(u32, u32)> {
        let homes = &self.groups.get(usize::from(group))?.homes;
        let page = *homes.range(..=seq).next_back()?.1;
        Some((page, self.pages.get(&page)?.page_count))
    }

    /// Whether a page has this start already.
    pub(crate) fn is_start(&self, group: u8, start: u64) -> bool {
        self.groups.get(usize::from(group)).is_none_or(|group| group.homes.contains_key(&start))
    }

    pub(crate) fn page(&self, page: u32) -> Option<&ValuePage> {
        self.pages.get(&page)
    }

    /// All pages, by number.
    pub(crate) fn pages(&self) -> impl Iterator<Item = (u32, &ValuePage)> {
        self.pages.iter().map(|(page, what)| (*page, what))
    }

    /// The pages with these numbers.
    pub(crate) fn pages_in(&self, range: std::ops::Range<u32>) -> Vec<u32> {
        self.pages.range(range).map(|(page, _)| *page).collect()
    }

    /// The pages of a group.
    pub(crate) fn pages_of(&self, group: u8) -> Vec<u32> {
        let pages = self.pages.iter().filter(|(_, page)| page.group == group);
        pages.map(|(page, _)| *page).collect()
    }

    /// What commits say about a page.
    pub(crate) fn entry(&self, page: u32) -> Option<ValueEntry> {
        let ValuePage { group, page_count, starts, .. } = self.pages.get(&page)?;
        let (group, page_count, starts) = (*group, *page_count as u16, starts.clone());
        Some(ValueEntry { page, page_count, group, starts })
    }

    /// Pages that contain values, needed or not.
    pub(crate) fn used_pages(&self) -> u64 {
        self.used_pages
    }

    /// About how many pages the needed values would take, including the last pages of collections,
    /// which are not full. Until the needed values are counted, all values count as needed.
    pub(crate) fn needed_pages(&self, page_bytes: usize) -> u64 {
        let packed = self.needed.pages(page_bytes);
        if self.is_counted { self.used_pages.min(packed + packed / 32) } else { self.used_pages }
    }

    /// Pages that the needed values of a block would take.
    pub(crate) fn cost(&self, pages: std::ops::Range<u32>, page_bytes: usize) -> u32 {
        let mut needed = Needed::default();
        self.pages.range(pages).for_each(|(_, page)| needed.add(Needed::of(page)));
        needed.pages(page_bytes) as u32
    }

    /// Adds a page, without needed values.
    pub(crate) fn insert(&mut self, entry: ValueEntry) {
        let ValueEntry { page, page_count, group, starts } = entry;
        let page_count = u32::from(page_count);
        let of_group = &mut self.groups[usize::from(group)];
        of_group.homes.extend(starts.iter().map(|start| (*start, page)));
        of_group.page_count += u64::from(page_count);
        of_group.unread_pages += u64::from(page_count);
        self.used_pages += u64::from(page_count);
        let (needed, needed_bytes) = Default::default();
        self.pages.insert(page, ValuePage { group, page_count, starts, needed, needed_bytes });
    }

    /// Removes a page. Returns how many pages it consists of.
    pub(crate) fn remove(&mut self, page: u32) -> u32 {
        let Some(gone) = self.pages.remove(&page) else { return 0 };
        self.needed.take(Needed::of(&gone));
        self.used_pages -= u64::from(gone.page_count);
        let of_group = &mut self.groups[usize::from(gone.group)];
        for start in &gone.starts {
            of_group.homes.remove(start);
        }
        of_group.page_count -= u64::from(gone.page_count);
        of_group.unread_pages = of_group.unread_pages.min(of_group.page_count);
        gone.page_count
    }

    /// Forgets which values are needed, before they are counted again.
    pub(crate) fn forget_needed(&mut self) {
        self.needed = Needed::default();
        for page in self.pages.values_mut() {
            page.needed.clear();
            page.needed_bytes = 0;
        }
    }

    /// Marks a value as needed.
    pub(crate) fn need(&mut self, group: u8, seq: u64, bytes: usize) {
        let home = self.home(group, seq).map(|(page, _)| page);
        if let Some(page) = home.and_then(|page| self.pages.get_mut(&page)) {
            self.needed.take(Needed::of(page));
            if let Err(at) = page.needed.binary_search(&seq) {
                page.needed.insert(at, seq);
                page.needed_bytes += bytes as u64;
            }
            self.needed.add(Needed::of(page));
        }
    }

    /// Marks a value as no longer needed.
    pub(crate) fn drop_value(&mut self, group: u8, seq: u64, bytes: usize) {
        let home = self.home(group, seq).map(|(page, _)| page);
        if let Some(page) = home.and_then(|page| self.pages.get_mut(&page))
            && let Ok(at) = page.needed.binary_search(&seq)
        {
            self.needed.take(Needed::of(page));
            page.needed.remove(at);
            page.needed_bytes = page.needed_bytes.saturating_sub(bytes as u64);
            self.needed.add(Needed::of(page));
        }
    }

    /// Sets the needed values of a page: sequence numbers and record bytes, ascending.
    pub(crate) fn set_needed(&mut self, page: u32, values: &[(u64, usize)]) {
        if let Some(page) = self.pages.get_mut(&page) {
            self.needed.take(Needed::of(page));
            page.needed = values.iter().map(|(seq, _)| *seq).collect();
            page.needed_bytes = values.iter().map(|(_, bytes)| *bytes as u64).sum();
            self.needed.add(Needed::of(page));
        }
    }

    /// Whether a value of a page is needed. Until the needed values are counted, all values count
    /// as needed.
    pub(crate) fn is_needed(&self, page: u32, seq: u64) -> bool {
        let is_known = |page: &ValuePage| page.needed.binary_search(&seq).is_ok();
        !self.is_counted || self.pages.get(&page).is_some_and(is_known)
    }

    /// How many values of a page are needed, and their record bytes.
    pub(crate) fn needed_of(&self, page: u32) -> (usize, u64) {
        self.pages.get(&page).map_or((0, 0), |page| (page.needed.len(), page.needed_bytes))
    }

    /// The group with the most pages written since its last reading, if they are at least a quarter
    /// of its pages.
    pub(crate) fn unread_group(&self) -> Option<u8> {
        let unread = |at: &usize| self.groups[*at].unread_pages;
        let most = (0..self.groups.len()).max_by_key(unread)?;
        let Group { unread_pages, page_count, .. } = self.groups[most];
        (unread_pages > 0 && unread_pages * 4 >= page_count).then_some(most as u8)
    }

    /// Groups in which pages were written since they were last read.
    pub(crate) fn unread_groups(&self) -> Vec<u8> {
        let groups = (0..).zip(&self.groups);
        groups.filter(|(_, one)| one.unread_pages > 0).map(|(group, _)| group).collect()
    }

    pub(crate) fn mark_read(&mut self, group: u8) {
        self.groups[usize::from(group)].unread_pages = 0;
    }

    /// The starts for the new pages that receive these values instead of `emptied`. A start is
    /// needed wherever the home of a value would otherwise be another page. Starts of other pages
    /// stay, even if they could be joined: a page in between may be added again.
    pub(crate) fn starts(&self, group: u8, emptied: &[u32], pages: &[Vec<u64>]) -> Vec<Vec<u64>> {
        let homes = &self.groups[usize::from(group)].homes;
        let mut starts = vec![Vec::new(); pages.len()];
        let mut last: Option<(u64, usize)> = None;
        let in_order =
            pages.iter().enumerate().flat_map(|(at, seqs)| seqs.iter().map(move |seq| (*seq, at)));
        for (seq, at) in in_order {
            let between = last.map_or(0, |(before, _)| before + 1);
            let is_met = last.is_none_or(|(_, page)| page != at)
                || homes.range(between..=seq).any(|(_, page)| !emptied.contains(page));
            if is_met {
                starts[at].push(seq);
            }
            last = Some((seq, at));
        }
        starts
    }

    /// RAM of a controller: starts with their pages, and one bit for each value that pages know of.
    pub(crate) fn ram_bytes(&self) -> u64 {
        const START_BYTES: u64 = 12;
        const PAGE_BYTES: u64 = 8;
        let of_page = |page: &ValuePage| {
            PAGE_BYTES + START_BYTES * page.starts.len() as u64 + page.needed.len() as u64 / 8 + 1
        };
        self.pages.values().map(of_page).sum()
    }
}
