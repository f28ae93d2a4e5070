//! Tables over pages of keys, by level: the tree as the model of flash keeps it. It knows nothing
//! of blocks.

use std::collections::BTreeMap;
use std::sync::Arc;

use runstone_policy::shape::plan::Plan;
use runstone_policy::shape::{PolicyState, Shape, Table};
use runstone_rules::bands::Bands;

/// A part of a page: the keys inside a clip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) page: u32,
    pub(super) stratum: u8,
    /// Whether the page counts for the size of this table.
    pub(super) is_charged: bool,
    /// Smallest key of the clip, inclusive.
    pub(super) lo: u32,
    /// Largest key of the clip, inclusive.
    pub(super) hi: u32,
}

/// A table as its metadata page describes it.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) id: u32,
    pub(super) level: usize,
    pub(super) entries: Vec<Entry>,
    /// Number of strata.
    pub(super) counter: u16,
    /// The table as policies see it.
    seen: Arc<Table>,
}

impl Node {
    /// Smallest and largest key.
    pub(super) fn bounds(&self) -> (u32, u32) {
        bounds(&self.entries)
    }

    fn max_seq(&self) -> u64 {
        self.seen.max_seq
    }
}

fn bounds(entries: &[Entry]) -> (u32, u32) {
    let lo = entries.iter().map(|entry| entry.lo).min().unwrap_or(0);
    let hi = entries.iter().map(|entry| entry.hi).max().unwrap_or(0);
    (lo, hi)
}

/// Pages of keys. A page to which no table refers is reused.
pub(super) struct Pages {
    pub(super) per_page: usize,
    keys: Vec<u32>,
    lengths: Vec<u16>,
    /// The tables that refer to each page, once for each reference.
    tables: Vec<Vec<u32>>,
    free: Vec<u32>,
}

impl Pages {
    pub(super) fn new(per_page: usize) -> Pages {
        let (keys, lengths, tables, free) = Default::default();
        Pages { per_page, keys, lengths, tables, free }
    }

    /// A page of ascending keys, at most as many as fit into a page.
    fn add(&mut self, keys: &[u32]) -> u32 {
        let page = self.free.pop().unwrap_or_else(|| {
            self.keys.resize(self.keys.len() + self.per_page, 0);
            self.lengths.push(0);
            self.tables.push(Vec::new());
            self.lengths.len() as u32 - 1
        });
        let start = page as usize * self.per_page;
        self.keys[start..start + keys.len()].copy_from_slice(keys);
        self.lengths[page as usize] = keys.len() as u16;
        page
    }

    /// New pages of ascending keys, as entries of one stratum.
    pub(super) fn pack(&mut self, keys: &[u32]) -> Vec<Entry> {
        let per_page = self.per_page;
        let entry = |keys: &[u32]| Entry {
            page: self.add(keys),
            stratum: 0,
            is_charged: true,
            lo: keys[0],
            hi: keys[keys.len() - 1],
        };
        keys.chunks(per_page).map(entry).collect()
    }

    /// The distinct keys of some entries, ascending: only the newest version of each key counts.
    pub(super) fn merge(&self, entries: &[Entry]) -> Vec<u32> {
        let mut merged = Vec::with_capacity(entries.len() * self.per_page);
        for entry in entries {
            let start = entry.page as usize * self.per_page;
            let keys = &self.keys[start..start + usize::from(self.lengths[entry.page as usize])];
            let from = keys.partition_point(|key| *key < entry.lo);
            let to = keys.partition_point(|key| *key <= entry.hi);
            merged.extend_from_slice(&keys[from..to]);
        }
        // Pages are sorted runs already, which makes a stable sort fast.
        merged.sort();
        merged.dedup();
        merged
    }

    /// The tables that refer to a page, once for each reference.
    pub(super) fn tables(&self, page: u32) -> &[u32] {
        &self.tables[page as usize]
    }

    /// Removes a reference. Returns whether nothing refers to the page any more; then it is free.
    fn unrefer(&mut self, page: u32, table: u32) -> bool {
        let tables = &mut self.tables[page as usize];
        if let Some(at) = tables.iter().position(|other| *other == table) {
            tables.swap_remove(at);
        }
        let is_garbage = tables.is_empty();
        if is_garbage {
            self.free.push(page);
        }
        is_garbage
    }
}

/// The tables of all levels.
pub(super) struct Tree {
    /// How many levels of this tree a level of the policy uses.
    pub(super) bands: Bands,
    pub(super) pages: Pages,
    nodes: BTreeMap<u32, Node>,
    /// By level: level 0 oldest first, the others in key order.
    levels: Vec<Vec<u32>>,
    state: PolicyState,
    next_id: u32,
    page_bytes: u64,
}

impl Tree {
    pub(super) fn new(bands: Bands, per_page: usize, page_bytes: u64) -> Tree {
        Tree {
            bands,
            pages: Pages::new(per_page),
            nodes: BTreeMap::new(),
            levels: Vec::new(),
            state: PolicyState::default(),
            next_id: 1,
            page_bytes,
        }
    }

    /// The level of the policy that contains this level.
    pub(super) fn band(&self, level: usize) -> usize {
        self.bands.band(level as u32) as usize
    }

    /// Levels of the policy.
    pub(super) fn band_count(&self) -> usize {
        self.levels.len().checked_sub(1).map_or(0, |deepest| self.band(deepest) + 1)
    }

    pub(super) fn node(&self, id: u32) -> Option<&Node> {
        self.nodes.get(&id)
    }

    /// The tree as policies see it.
    pub(super) fn shape(&self) -> Shape {
        let table = |id: &u32| Arc::clone(&self.nodes[id].seen);
        let stack = self.levels.first().into_iter().flatten().rev().map(table);
        let runs = self.levels.iter().skip(1).map(|ids| ids.iter().map(table).collect());
        let levels = self.bands.seen(stack, runs);
        Shape { levels, state: self.state.clone(), ..Shape::default() }
    }

    /// Keeps the facts that the policy wants to be remembered.
    pub(super) fn remember(&mut self, plan: &Plan) {
        self.state.cursors.extend(plan.cursors.iter().cloned());
        self.state.last_level = plan.last_level.unwrap_or(self.state.last_level);
    }

    /// Smallest and largest key of some tables.
    pub(super) fn hull(&self, ids: &[u32]) -> (u32, u32) {
        let bounds = || ids.iter().filter_map(|id| Some(self.node(*id)?.bounds()));
        let lo = bounds().map(|(lo, _)| lo).min().unwrap_or(0);
        (lo, bounds().map(|(_, hi)| hi).max().unwrap_or(0))
    }

    /// Tables of a level that overlap these keys, in the level's order.
    pub(super) fn overlapping(&self, level: usize, (lo, hi): (u32, u32)) -> Vec<u32> {
        let ids = self.levels.get(level).map_or(&[][..], Vec::as_slice);
        let meets = |id: &&u32| {
            let bounds = self.nodes[id].bounds();
            bounds.0 <= hi && lo <= bounds.1
        };
        ids.iter().filter(meets).copied().collect()
    }

    /// Puts tables in the order of their age, the oldest first: deeper levels before upper ones.
    pub(super) fn sort_by_age(&self, ids: &mut [u32]) {
        ids.sort_by_key(|id| {
            let node = &self.nodes[id];
            (std::cmp::Reverse(node.level), node.max_seq())
        });
    }

    /// Adds a table and returns its number.
    pub(super) fn add(
        &mut self,
        level: usize,
        entries: Vec<Entry>,
        counter: u16,
        max_seq: u64,
    ) -> u32 {
        let id = self.next_id;
        self.next_id += 1;
        entries.iter().for_each(|entry| self.pages.tables[entry.page as usize].push(id));
        let (lo, hi) = bounds(&entries);
        let charged_pages = entries.iter().filter(|entry| entry.is_charged).count() as u64;
        let seen = Table {
            id: u64::from(id),
            min_key: Box::from(lo.to_be_bytes()),
            max_key: Box::from(hi.to_be_bytes()),
            bytes: charged_pages * self.page_bytes,
            entries: charged_pages * self.pages.per_page as u64,
            max_seq,
            ..Table::default()
        };
        self.nodes.insert(id, Node { id, level, entries, counter, seen: Arc::new(seen) });
        self.place(id, level);
        id
    }

    fn place(&mut self, id: u32, level: usize) {
        if self.levels.len() <= level {
            self.levels.resize(level + 1, Vec::new());
        }
        let lo = self.nodes[&id].bounds().0;
        let ids = &self.levels[level];
        let at = match level {
            0 => ids.len(),
            _ => ids.partition_point(|other| self.nodes[other].bounds().0 < lo),
        };
        self.levels[level].insert(at, id);
    }

    fn unplace(&mut self, id: u32, level: usize) {
        self.levels[level].retain(|other| *other != id);
    }

    /// Moves a table to a level where it overlaps no table.
    pub(super) fn relabel(&mut self, id: u32, level: usize) {
        let Some(node) = self.nodes.get_mut(&id) else { return };
        let from = std::mem::replace(&mut node.level, level);
        self.unplace(id, from);
        self.place(id, level);
    }

    /// Removes a table, and returns the pages that are garbage now.
    pub(super) fn remove(&mut self, id: u32) -> Vec<u32> {
        let Some(node) = self.nodes.remove(&id) else { return Vec::new() };
        self.unplace(id, node.level);
        let pages = node.entries.iter().map(|entry| entry.page);
        pages.filter(|page| self.pages.unrefer(*page, id)).collect()
    }

    pub(super) fn max_seq<'a>(&self, ids: impl IntoIterator<Item = &'a u32>) -> u64 {
        ids.into_iter().map(|id| self.nodes[id].max_seq()).max().unwrap_or(0)
    }

    /// Every key of every table, for tests.
    #[cfg(test)]
    pub(super) fn keys(&self) -> Vec<u32> {
        self.nodes.values().flat_map(|node| self.pages.merge(&node.entries)).collect()
    }

    /// Pages that tables refer to, and a metadata page for each table.
    #[cfg(test)]
    pub(super) fn live_pages(&self) -> u64 {
        let referred = self.pages.tables.iter().filter(|tables| !tables.is_empty());
        (referred.count() + self.nodes.len()) as u64
    }
}
