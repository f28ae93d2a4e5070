//! The blocks of a KVSSD: all types come from one free pool, each stream of pages has a frontier,
//! and live pages are counted per block. This module also tracks bad blocks. It decides nothing
//! about tables and never moves a page.
//!
//! * A page counts as live once it is programmed. A transaction that fails releases its pages. So a
//!   block with pages of an uncommitted transaction is never free. It is never a victim either,
//!   because collections run only between transactions. So the pages need no pins
//!   (docs/design/devices.md).
//! * A block without live pages is free at once, and is erased when it is opened again. A commit
//!   made it free, and the journal page of that commit is on flash by then.
//! * No block is resumed after a restart: a page that looks erased may be disturbed.

use std::collections::{BTreeMap, BTreeSet};

use crate::error::{Error, Result};
use crate::kvssd::counters::{Cause, Programs};
use crate::nand::{Nand, PageTag, PageType, Ppa, SharedBytes};

/// A stream of pages, which fills one frontier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stream {
    /// Keys and values: one stream per level, or one for all levels.
    Kv(u8),
    Meta,
    Journal,
    Checkpoint,
    Log,
    /// Separated values of a group.
    Values(u8),
}

impl Stream {
    pub(super) fn page_type(self) -> PageType {
        match self {
            Stream::Kv(_) => PageType::Kv,
            Stream::Meta => PageType::Meta,
            Stream::Journal => PageType::Journal,
            Stream::Checkpoint => PageType::Checkpoint,
            Stream::Log => PageType::Log,
            Stream::Values(_) => PageType::Value,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    /// Nothing was ever programmed here.
    Fresh,
    /// It is erased before it is used.
    Free,
    Frontier,
    Sealed,
    /// A program or erase failed here. The block is retired once its live pages have been moved.
    Failing,
    Retired,
}

impl Use {
    fn is_bad(self) -> bool {
        matches!(self, Use::Failing | Use::Retired)
    }
}

/// What a page belongs to.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Owner {
    pub(super) level: u8,
    pub(super) txn: u64,
    /// Table, checkpoint or log group.
    pub(super) id: u64,
    /// Position of the first page in that owner.
    pub(super) index: u32,
}

pub(super) struct Space {
    pub(super) nand: Nand,
    uses: Vec<Use>,
    /// Blocks that are failing or retired.
    bad_count: u32,
    types: Vec<Option<PageType>>,
    live_pages: Vec<u32>,
    /// For each block, the last program before it became free: a commit, or a later program.
    unneeded_since: Vec<u64>,
    /// Live pages of keys, values and metadata, including those of separated values.
    pub(super) data_pages: u64,
    /// Blocks in which a live page cannot be read. No collection empties them.
    stuck: BTreeSet<u32>,
    frontiers: BTreeMap<Stream, Ppa>,
    /// Streams from this level on use the most worn blocks, because their data stay long.
    pub(super) deep_level: u8,
    pub(super) program_seq: u64,
    pub(super) cause: Cause,
    pub(super) programs: Programs,
    /// Pages of the running transaction: first page and count of each group.
    uncommitted: Vec<(u32, u32)>,
}

impl Space {
    pub(super) fn new(nand: Nand, is_fresh: bool) -> Space {
        let block_count = nand.geometry().block_count;
        let start = |block| match nand.is_retired(block) {
            true => Use::Retired,
            false if is_fresh => Use::Fresh,
            false => Use::Free,
        };
        let uses: Vec<Use> = (0..block_count).map(start).collect();
        Space {
            bad_count: uses.iter().filter(|used| used.is_bad()).count() as u32,
            uses,
            types: vec![None; block_count as usize],
            live_pages: vec![0; block_count as usize],
            unneeded_since: vec![nand.last_seq(); block_count as usize],
            data_pages: 0,
            stuck: BTreeSet::new(),
            frontiers: BTreeMap::new(),
            deep_level: u8::MAX,
            program_seq: 0,
            cause: Cause::Checkpoint,
            programs: Programs::default(),
            uncommitted: Vec::new(),
            nand,
        }
    }

    pub(super) fn page_bytes(&self) -> usize {
        self.nand.geometry().page_bytes as usize
    }

    pub(super) fn block_pages(&self) -> u32 {
        self.nand.geometry().block_pages
    }

    /// Programs consecutive pages in one block and returns the number of the first. If a program
    /// fails, the block is doomed, and all pages are programmed again elsewhere. Any other error
    /// ends the call.
    pub(super) fn program(
        &mut self,
        stream: Stream,
        bytes: SharedBytes,
        owner: Owner,
    ) -> Result<u32> {
        let pages = self.split(bytes);
        let page_count = pages.len() as u32;
        loop {
            let first = self.find_room(stream, page_count)?;
            match self.program_at(stream, first, &pages, owner) {
                Ok(()) => {
                    let page = self.nand.geometry().flat(first);
                    self.uncommitted.push((page, page_count));
                    self.hold(page, page_count);
                    let next = Ppa { page: first.page + page_count, ..first };
                    self.frontiers.insert(stream, next);
                    if next.page == self.block_pages() {
                        self.seal(stream);
                    }
                    return Ok(page);
                }
                Err(Error::ProgramFailed(_)) => {
                    // If the image refuses the mark, the block is used like any other.
                    self.seal(stream);
                    self.nand.retire(first.block)?;
                    self.set_use(first.block, Use::Failing);
                    self.settle(first.block);
                }
                Err(other) => {
                    // It is unknown where writing may continue in the block. If the caller tries
                    // again, it must not program pages of this group that were programmed already.
                    self.seal(stream);
                    return Err(other);
                }
            }
        }
    }

    /// The pages of a group. Bytes are copied only if the group has several pages.
    fn split(&self, bytes: SharedBytes) -> Vec<SharedBytes> {
        if bytes.len() == self.page_bytes() {
            return vec![bytes];
        }
        let pages = bytes.flat();
        pages.chunks_exact(self.page_bytes()).map(|page| page.to_vec().into()).collect()
    }

    fn program_at(
        &mut self,
        stream: Stream,
        first: Ppa,
        pages: &[SharedBytes],
        owner: Owner,
    ) -> Result<()> {
        let page_type = stream.page_type();
        for (at, data) in (0..).zip(pages) {
            self.program_seq += 1;
            let tag = PageTag {
                page_type,
                level: owner.level,
                program_seq: self.program_seq,
                txn: owner.txn,
                owner: owner.id,
                index: owner.index + at,
            };
            let ppa = Ppa { page: first.page + at, ..first };
            let done = self.nand.program_shared(ppa, data, tag);
            let is_counted = matches!(
                done,
                Ok(()) | Err(Error::PowerCut | Error::ProgramFailed(_) | Error::Image { .. })
            );
            if is_counted {
                self.programs.add(self.cause, page_type, done.is_err());
            }
            done?;
        }
        Ok(())
    }

    /// The next pages of the stream, in a new block if the open one has too few left.
    fn find_room(&mut self, stream: Stream, page_count: u32) -> Result<Ppa> {
        let block_pages = self.block_pages();
        if let Some(next) = self.frontiers.get(&stream) {
            if next.page + page_count <= block_pages {
                return Ok(*next);
            }
            self.seal(stream);
        }
        let block = self.open_block(stream)?;
        self.set_use(block, Use::Frontier);
        self.types[block as usize] = Some(stream.page_type());
        let first = Ppa { block, page: 0 };
        self.frontiers.insert(stream, first);
        Ok(first)
    }

    /// Closes the block of the stream, full or not.
    pub(super) fn seal(&mut self, stream: Stream) {
        if let Some(next) = self.frontiers.remove(&stream) {
            self.set_use(next.block, Use::Sealed);
            self.settle(next.block);
        }
    }

    /// Takes a free block and erases it: the most worn for deep levels, otherwise the least worn.
    fn open_block(&mut self, stream: Stream) -> Result<u32> {
        loop {
            let free = (0..self.uses.len() as u32).filter(|block| self.is_free(*block));
            let worn = |block: &u32| self.nand.erase_count(*block);
            let is_deep = matches!(stream, Stream::Kv(level) if level >= self.deep_level);
            let block = if is_deep { free.max_by_key(worn) } else { free.min_by_key(worn) };
            let block = block.ok_or(Error::OutOfBlocks)?;
            if self.uses[block as usize] == Use::Fresh || self.erase(block)? {
                return Ok(block);
            }
        }
    }

    /// Erases a block and returns whether that succeeded. If not, the block is retired.
    fn erase(&mut self, block: u32) -> Result<bool> {
        match self.nand.erase_unneeded(block, self.unneeded_since[block as usize]) {
            Ok(()) => Ok(true),
            Err(Error::EraseFailed { .. }) => {
                self.nand.retire(block)?;
                self.set_use(block, Use::Retired);
                Ok(false)
            }
            Err(other) => Err(other),
        }
    }

    pub(super) fn read(&mut self, page: u32, page_count: u32) -> Result<SharedBytes> {
        let first = self.nand.geometry().page(page);
        if page_count == 1 {
            return Ok(self.nand.read_shared(first)?.0);
        }
        let mut bytes = Vec::with_capacity(self.page_bytes() * page_count as usize);
        for at in page..page + page_count {
            let ppa = self.nand.geometry().page(at);
            bytes.extend_from_slice(&self.nand.read_shared(ppa)?.0.flat());
        }
        Ok(bytes.into())
    }

    /// Reads a page whose content is known. The device reads it; the emulator need not.
    pub(super) fn read_again(&mut self, page: u32) -> Result<()> {
        self.nand.read_again(self.nand.geometry().page(page))
    }

    /// Counts pages as live in their block.
    pub(super) fn hold(&mut self, page: u32, page_count: u32) {
        let block = page / self.block_pages();
        self.live_pages[block as usize] += page_count;
        if self.has_data(block) {
            self.data_pages += u64::from(page_count);
        }
    }

    /// Stops counting pages that nothing needs any more.
    pub(super) fn release(&mut self, page: u32, page_count: u32) {
        let block = page / self.block_pages();
        self.live_pages[block as usize] -= page_count;
        if self.has_data(block) {
            self.data_pages -= u64::from(page_count);
        }
        self.settle(block);
    }

    fn has_data(&self, block: u32) -> bool {
        matches!(self.types[block as usize], Some(PageType::Kv | PageType::Meta | PageType::Value))
    }

    /// Keeps the pages that the running transaction programmed.
    pub(super) fn keep(&mut self) {
        self.uncommitted.clear();
    }

    /// Gives up the pages that the running transaction programmed: they are garbage.
    pub(super) fn give_up(&mut self) {
        for (page, page_count) in std::mem::take(&mut self.uncommitted) {
            self.release(page, page_count);
        }
    }

    /// At boot: notes what a block contains, before its live pages are counted.
    pub(super) fn assign(&mut self, block: u32, page_type: PageType) {
        self.types[block as usize] = Some(page_type);
        let is_bad = self.nand.is_retired(block);
        self.set_use(block, if is_bad { Use::Failing } else { Use::Sealed });
    }

    /// At boot: frees the blocks without live pages.
    pub(super) fn settle_all(&mut self) {
        self.blocks().for_each(|block| self.settle(block));
    }

    fn settle(&mut self, block: u32) {
        let at = block as usize;
        if self.live_pages[at] > 0 {
            return;
        }
        self.stuck.remove(&block);
        self.unneeded_since[at] = self.nand.last_seq();
        let settled = match self.uses[at] {
            Use::Sealed => Use::Free,
            Use::Failing => Use::Retired,
            other => other,
        };
        self.set_use(block, settled);
    }

    /// Marks a block so that no collection empties it any more.
    pub(super) fn mark_stuck(&mut self, block: u32) {
        self.stuck.insert(block);
    }

    /// Blocks with data that are full or closed, and can be moved.
    pub(super) fn movable(&self, wanted: Use) -> impl Iterator<Item = u32> + '_ {
        self.blocks().filter(move |&block| {
            let is_wanted = self.uses[block as usize] == wanted && self.has_data(block);
            is_wanted && self.live_pages[block as usize] > 0 && !self.stuck.contains(&block)
        })
    }

    fn is_free(&self, block: u32) -> bool {
        matches!(self.uses[block as usize], Use::Fresh | Use::Free)
    }

    pub(super) fn free_count(&self) -> u32 {
        (0..self.uses.len() as u32).filter(|block| self.is_free(*block)).count() as u32
    }

    /// Blocks that are not bad.
    pub(super) fn usable_count(&self) -> u32 {
        self.uses.len() as u32 - self.bad_count
    }

    fn set_use(&mut self, block: u32, used: Use) {
        let before = std::mem::replace(&mut self.uses[block as usize], used);
        self.bad_count -= u32::from(before.is_bad());
        self.bad_count += u32::from(used.is_bad());
    }

    /// Type of the pages of a block that is in use.
    pub(super) fn type_of(&self, block: u32) -> Option<PageType> {
        self.types[block as usize].filter(|_| !self.is_free(block))
    }

    pub(super) fn live_in(&self, block: u32) -> u32 {
        self.live_pages[block as usize]
    }

    /// How many more pages fit into the open block of a stream.
    pub(super) fn room_in(&self, stream: Stream) -> u32 {
        self.frontiers.get(&stream).map_or(0, |next| self.block_pages() - next.page)
    }

    pub(super) fn blocks(&self) -> std::ops::Range<u32> {
        0..self.uses.len() as u32
    }
}
