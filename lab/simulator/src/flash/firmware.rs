//! Blocks of a device that keeps the tree itself: a frontier for each stream of pages, counts of
//! live pages, and greedy collection. The rules are those of `devices/flash/src/kvssd` without
//! wear, bad blocks, checkpoints and restarts.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::tree::{Pages, Tree};
use super::{FlashDesign, FlashError};

/// Blocks for journal and checkpoints.
const JOURNAL_BLOCKS: u32 = 5;
/// Free blocks beyond those that are planned and those that streams may open.
const SPARE_BLOCKS: u32 = 2;
/// Blocks that must be free, whatever blocks are open, including those that the smallest part of a
/// compaction fills.
const WORK_BLOCKS: u32 = 7;
/// Above this fraction of the limit nothing is remapped.
const SHORT_PERCENT: u64 = 92;

/// The stream of metadata pages. The stream of other pages is 1 plus the level, or 1 for all
/// levels.
const META: usize = 0;
const NOWHERE: u32 = u32::MAX;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Slot {
    Dead,
    Page(u32),
    Meta(u32),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    Free,
    Open,
    Sealed,
}

pub(super) struct Firmware {
    design: FlashDesign,
    block_pages: u32,
    set_aside_percent: u32,
    slots: Vec<Slot>,
    live: Vec<u32>,
    uses: Vec<Use>,
    free: VecDeque<u32>,
    /// By stream: the open block and its next page.
    frontiers: Vec<Option<(u32, u32)>>,
    /// The place of each page.
    places: Vec<u32>,
    /// The place of each table's metadata.
    metas: BTreeMap<u32, u32>,
    live_pages: u64,
    /// Pages programmed for flushes and compactions.
    pub(super) tree_pages: u64,
    /// Pages programmed by collections.
    pub(super) moved_pages: u64,
    pub(super) collections: u64,
}

impl Firmware {
    pub(super) fn new(
        design: FlashDesign,
        block_count: u32,
        block_pages: u32,
        set_aside_percent: u32,
    ) -> Firmware {
        let blocks = block_count - JOURNAL_BLOCKS;
        Firmware {
            design,
            block_pages,
            set_aside_percent,
            slots: vec![Slot::Dead; blocks as usize * block_pages as usize],
            live: vec![0; blocks as usize],
            uses: vec![Use::Free; blocks as usize],
            free: (0..blocks).collect(),
            frontiers: Vec::new(),
            places: Vec::new(),
            metas: BTreeMap::new(),
            live_pages: 0,
            tree_pages: 0,
            moved_pages: 0,
            collections: 0,
        }
    }

    fn stream(&self, level: usize) -> usize {
        if matches!(self.design, FlashDesign::Rlsm { .. }) { 1 + level } else { 1 }
    }

    fn stream_count(&self, level_count: usize) -> usize {
        1 + self.stream(level_count.max(3))
    }

    /// The most pages that may be in use, so that there is room to work.
    fn limit_pages(&self, level_count: usize) -> u64 {
        let blocks = self.uses.len() as u32 + JOURNAL_BLOCKS;
        let work = self.stream_count(level_count) as u32 + WORK_BLOCKS + JOURNAL_BLOCKS;
        let reserve = work.max((blocks * self.set_aside_percent).div_ceil(100));
        u64::from(blocks.saturating_sub(reserve)) * u64::from(self.block_pages - 1)
    }

    /// Whether garbage inside pages must be removed.
    pub(super) fn is_short(&self, level_count: usize) -> bool {
        self.live_pages * 100 > self.limit_pages(level_count) * SHORT_PERCENT
    }

    #[cfg(test)]
    pub(super) fn live_pages(&self) -> u64 {
        self.live_pages
    }

    /// Refuses pages that would not fit.
    pub(super) fn check_room(&self, more_pages: u32, level_count: usize) -> Result<(), FlashError> {
        let limit_pages = self.limit_pages(level_count);
        match self.live_pages + u64::from(more_pages) <= limit_pages {
            true => Ok(()),
            false => Err(FlashError::Full { live_pages: self.live_pages, limit_pages }),
        }
    }

    pub(super) fn block(&self, page: u32) -> u32 {
        self.places[page as usize] / self.block_pages
    }

    /// Tables with keys in a block.
    pub(super) fn tables(&self, block: u32, pages: &Pages) -> BTreeSet<u32> {
        let slots = self.slots_of(block).filter_map(|(_, slot)| match slot {
            Slot::Page(page) => Some(pages.tables(page)),
            Slot::Meta(_) | Slot::Dead => None,
        });
        slots.flatten().copied().collect()
    }

    fn slots_of(&self, block: u32) -> impl Iterator<Item = (u32, Slot)> + '_ {
        let first = block * self.block_pages;
        (first..first + self.block_pages).map(|place| (place, self.slots[place as usize]))
    }

    /// Programs those pages of a new table that do not exist yet, and its metadata page.
    pub(super) fn add_table(
        &mut self,
        id: u32,
        level: usize,
        new_pages: impl Iterator<Item = u32>,
    ) -> Result<(), FlashError> {
        let stream = self.stream(level);
        for page in new_pages {
            self.tree_pages += 1;
            self.program(stream, Slot::Page(page))?;
        }
        // Under nLSM the next page belongs to another table and goes to another block.
        if self.design == FlashDesign::Nlsm {
            self.seal(stream);
        }
        self.tree_pages += 1;
        self.program(META, Slot::Meta(id))
    }

    pub(super) fn remove_table(&mut self, id: u32, garbage: &[u32]) {
        if let Some(place) = self.metas.remove(&id) {
            self.release(place);
        }
        garbage.iter().for_each(|page| self.release(self.places[*page as usize]));
    }

    /// Counts a journal page.
    pub(super) fn commit(&mut self) {
        self.tree_pages += 1;
    }

    fn program(&mut self, stream: usize, slot: Slot) -> Result<(), FlashError> {
        if self.frontiers.len() <= stream {
            self.frontiers.resize(stream + 1, None);
        }
        let (block, at) = match self.frontiers[stream] {
            Some(next) => next,
            None => {
                let block = self.free.pop_front().ok_or(FlashError::OutOfBlocks)?;
                self.uses[block as usize] = Use::Open;
                (block, 0)
            }
        };
        let place = block * self.block_pages + at;
        self.slots[place as usize] = slot;
        self.live[block as usize] += 1;
        self.live_pages += 1;
        match slot {
            Slot::Page(page) => {
                let needed = self.places.len().max(page as usize + 1);
                self.places.resize(needed, NOWHERE);
                self.places[page as usize] = place;
            }
            Slot::Meta(id) => {
                self.metas.insert(id, place);
            }
            Slot::Dead => {}
        }
        self.frontiers[stream] = Some((block, at + 1));
        if at + 1 == self.block_pages {
            self.seal(stream);
        }
        Ok(())
    }

    fn seal(&mut self, stream: usize) {
        let frontier = self.frontiers.get_mut(stream).and_then(Option::take);
        if let Some((block, _)) = frontier {
            self.uses[block as usize] = Use::Sealed;
            self.settle(block);
        }
    }

    fn release(&mut self, place: u32) {
        let block = place / self.block_pages;
        self.slots[place as usize] = Slot::Dead;
        self.live[block as usize] -= 1;
        self.live_pages -= 1;
        self.settle(block);
    }

    fn settle(&mut self, block: u32) {
        let at = block as usize;
        if self.live[at] == 0 && self.uses[at] == Use::Sealed {
            self.uses[at] = Use::Free;
            self.free.push_back(block);
        }
    }

    /// Blocks that this many pages of this many tables may need beyond the open ones.
    pub(super) fn blocks_for(&self, pages: u64, tables: u64) -> u64 {
        let partial = if self.design == FlashDesign::Nlsm { tables } else { 0 };
        (pages + pages / 8).div_ceil(u64::from(self.block_pages)) + partial
    }

    /// Collects until this many blocks can be opened besides those that streams may open. Returns
    /// whether it collected anything.
    pub(super) fn make_room(&mut self, blocks: u64, tree: &Tree) -> Result<bool, FlashError> {
        let mut has_collected = false;
        loop {
            let streams = 0..self.stream_count(tree.band_count());
            let room = |stream: usize| self.frontiers.get(stream).copied().flatten();
            let is_low = |stream: &usize| {
                room(*stream).is_none_or(|(_, next)| next > self.block_pages * 3 / 4)
            };
            let spare = streams.filter(is_low).count() as u32 + SPARE_BLOCKS;
            if self.free.len() as u64 >= blocks + u64::from(spare) {
                return Ok(has_collected);
            }
            if !self.collect(tree)? {
                let is_enough = self.free.len() as u64 >= blocks;
                return if is_enough { Ok(has_collected) } else { Err(FlashError::OutOfBlocks) };
            }
            has_collected = true;
        }
    }

    /// Empties the block that costs the fewest programs; `false` if that gains nothing.
    fn collect(&mut self, tree: &Tree) -> Result<bool, FlashError> {
        let mut best = (u32::MAX, NOWHERE);
        for block in (0..self.uses.len() as u32).filter(|&b| self.uses[b as usize] == Use::Sealed) {
            let live = self.live[block as usize];
            if live < best.0 {
                let cost = live + self.tables(block, &tree.pages).len() as u32;
                best = best.min((cost, block));
            }
        }
        let victim = best.1;
        if victim == NOWHERE || self.live[victim as usize] + 2 > self.block_pages {
            return Ok(false);
        }
        let tables = self.tables(victim, &tree.pages);
        let slots: Vec<(u32, Slot)> = self.slots_of(victim).collect();
        for (place, slot) in slots {
            let stream = match slot {
                Slot::Dead => continue,
                Slot::Meta(_) => META,
                Slot::Page(page) => {
                    let nodes = tree.pages.tables(page).iter().filter_map(|id| tree.node(*id));
                    self.stream(tree.band(nodes.map(|node| node.level).max().unwrap_or(0)))
                }
            };
            self.move_to(stream, slot, place)?;
        }
        for id in tables {
            if let Some(place) = self.metas.get(&id).copied() {
                self.move_to(META, Slot::Meta(id), place)?;
            }
        }
        // This counts the journal page of the collection.
        self.moved_pages += 1;
        self.collections += 1;
        Ok(true)
    }

    fn move_to(&mut self, stream: usize, slot: Slot, from: u32) -> Result<(), FlashError> {
        self.moved_pages += 1;
        self.program(stream, slot)?;
        self.release(from);
        Ok(())
    }
}
