//! Chooses where the next page is written: frontiers, free blocks, greedy collection, bad blocks,
//! wear.
//!
//! The host opens a block only while `RESERVED_BLOCKS` more stay free, so that a collection, which
//! fills at most one new block, always finds one even if a program fails while it runs.
//!
//! Progress: the logical pages fit into all blocks but `MIN_SPARE_BLOCKS`. Of these spare blocks,
//! at most two are frontiers, and at most `RESERVED_BLOCKS` are free when a collection runs. So the
//! garbage of at least one more block is in sealed blocks, and the victim with the fewest valid
//! pages has some of it. Each collection therefore gains at least one page.

use super::{Ftl, GcFrontier};
use crate::error::{Error, Result};
use crate::nand::{PageTag, PageType, Ppa, SharedBytes};

/// The frontier of the pages that recovery moves. It is also the level in their tags.
pub(super) const RECOVERY_SLOT: usize = 2;
pub(super) const RESERVED_BLOCKS: usize = 2;
pub(super) const MIN_SPARE_BLOCKS: u32 = 5;
/// Cold blocks are moved once erase counts differ by this much.
pub(super) const WEAR_GAP: u64 = 100;

/// Who writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stream {
    Host,
    Gc,
    /// Pages from the block of a torn page, which are moved at open.
    Recovery,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    /// Erased since the device was opened.
    Free,
    /// The block reads as erased, but a power cut may have disturbed its first page. It is erased
    /// before use.
    FreeUnerased,
    Frontier,
    Sealed,
    /// A program failed here. The block is retired, and its pages must be moved.
    Failing,
    Retired,
}

impl Ftl {
    /// Programs a logical page at the stream's frontier and maps it there. A failed program is
    /// repeated elsewhere, and its block is doomed.
    pub(super) fn place(&mut self, logical: u32, data: &SharedBytes, stream: Stream) -> Result<()> {
        loop {
            let ppa = self.next_page(stream)?;
            self.program_seq += 1;
            let tag = PageTag {
                page_type: PageType::Host,
                level: self.slot(stream) as u8,
                program_seq: self.program_seq,
                txn: 0,
                owner: u64::from(logical),
                index: 0,
            };
            match self.nand.queued(|nand| nand.program_shared(ppa, data, tag)) {
                Ok(()) => {
                    self.advance(stream, ppa);
                    self.map.assign(logical, ppa);
                    return Ok(());
                }
                Err(Error::ProgramFailed(_)) => {
                    self.counters.failed_programs += 1;
                    // The block is marked at once, so that recovery does not mistake the lost page
                    // for corruption.
                    self.nand.retire(ppa.block)?;
                    self.uses[ppa.block as usize] = Use::Failing;
                    self.frontiers[self.slot(stream)] = None;
                }
                Err(other) => {
                    self.counters.failed_programs += u64::from(matches!(other, Error::PowerCut));
                    return Err(other);
                }
            }
        }
    }

    /// Moves the pages of failing blocks.
    pub(super) fn retire_failing(&mut self) -> Result<()> {
        while let Some(block) = self.find_block(Use::Failing) {
            self.move_valid(block, Stream::Gc)?;
            self.uses[block as usize] = Use::Retired;
        }
        Ok(())
    }

    fn slot(&self, stream: Stream) -> usize {
        match stream {
            Stream::Host => 0,
            Stream::Gc => usize::from(self.options.gc_frontier == GcFrontier::Split),
            Stream::Recovery => RECOVERY_SLOT,
        }
    }

    fn advance(&mut self, stream: Stream, ppa: Ppa) {
        let is_full = ppa.page + 1 == self.nand.geometry().block_pages;
        if is_full {
            self.uses[ppa.block as usize] = Use::Sealed;
        }
        let slot = self.slot(stream);
        self.frontiers[slot] = (!is_full).then_some(Ppa { page: ppa.page + 1, ..ppa });
    }

    fn next_page(&mut self, stream: Stream) -> Result<Ppa> {
        let slot = self.slot(stream);
        if stream == Stream::Host && self.frontiers[slot].is_none() {
            self.restore_reserve()?;
            while self.frontiers[slot].is_none() && self.free_count() <= RESERVED_BLOCKS {
                // With a shared frontier the collection may have opened a block, so the loop checks
                // again.
                self.collect()?;
            }
        }
        if let Some(ppa) = self.frontiers[slot] {
            return Ok(ppa);
        }
        let block = self.open_block()?;
        self.uses[block as usize] = Use::Frontier;
        let ppa = Ppa { block, page: 0 };
        self.frontiers[slot] = Some(ppa);
        Ok(ppa)
    }

    /// Frees blocks if a power cut or a bad block has reduced the reserve. A collection into the
    /// host's own block gains less than a block, so several may be needed.
    fn restore_reserve(&mut self) -> Result<()> {
        while self.free_count() < RESERVED_BLOCKS && self.victim().is_some() {
            self.collect()?;
        }
        Ok(())
    }

    /// Takes the least worn free block, and erases it.
    fn open_block(&mut self) -> Result<u32> {
        loop {
            let free = |block: &u32| self.is_free(*block);
            let blocks = (0..self.uses.len() as u32).filter(free);
            let least_worn = blocks.min_by_key(|&block| self.nand.erase_count(block));
            let block = least_worn.ok_or(Error::OutOfBlocks)?;
            if self.uses[block as usize] == Use::Free || self.erase(block)? {
                return Ok(block);
            }
        }
    }

    pub(super) fn free_count(&self) -> usize {
        (0..self.uses.len() as u32).filter(|&block| self.is_free(block)).count()
    }

    fn is_free(&self, block: u32) -> bool {
        matches!(self.uses[block as usize], Use::Free | Use::FreeUnerased)
    }

    fn find_block(&self, wanted: Use) -> Option<u32> {
        self.uses.iter().position(|&used| used == wanted).map(|block| block as u32)
    }

    /// Greedy: empties the sealed block with the fewest valid pages, the least worn among equals.
    fn collect(&mut self) -> Result<()> {
        let victim = self.victim().ok_or(Error::OutOfBlocks)?;
        self.counters.collections += 1;
        self.empty(victim, Stream::Gc)?;
        self.level_wear(victim)
    }

    /// The block to collect, if its collection gains a page.
    fn victim(&self) -> Option<u32> {
        let key = |block: u32| (self.map.valid_pages(block), self.nand.erase_count(block));
        let victim = self.sealed().min_by_key(|&block| key(block));
        victim.filter(|&block| self.map.valid_pages(block) < self.nand.geometry().block_pages)
    }

    /// If the block just erased is far more worn than the least worn sealed one, the pages of the
    /// least worn block are cold. They are moved, and the block is used again.
    fn level_wear(&mut self, erased: u32) -> Result<()> {
        let coldest = self.sealed().min_by_key(|&block| self.nand.erase_count(block));
        let Some(coldest) = coldest.filter(|_| self.free_count() > RESERVED_BLOCKS) else {
            return Ok(());
        };
        if self.nand.erase_count(erased) > self.nand.erase_count(coldest) + WEAR_GAP {
            self.counters.wear_moves += 1;
            self.empty(coldest, Stream::Gc)?;
        }
        Ok(())
    }

    fn sealed(&self) -> impl Iterator<Item = u32> + '_ {
        (0..self.uses.len() as u32).filter(|&block| self.uses[block as usize] == Use::Sealed)
    }

    /// Moves the valid pages of a block away and erases it. A page that cannot be read stays mapped
    /// where it is, so that its reader gets an error and not an older version. The block is then
    /// retired, because the page must not be erased.
    pub(super) fn empty(&mut self, block: u32, stream: Stream) -> Result<()> {
        self.move_valid(block, stream)?;
        if self.map.valid_pages(block) > 0 {
            self.nand.retire(block)?;
            self.uses[block as usize] = Use::Retired;
            return Ok(());
        }
        self.erase(block).map(|_| ())
    }

    /// Moves as many pages at a time as requests may be queued: their reads run side by side, and
    /// then their programs.
    fn move_valid(&mut self, block: u32, stream: Stream) -> Result<()> {
        let pages = (0..self.nand.geometry().block_pages).map(|page| Ppa { block, page });
        let valid: Vec<(u32, Ppa)> =
            pages.filter_map(|ppa| Some((self.map.owner(ppa)?, ppa))).collect();
        for some in valid.chunks(self.nand.queue_depth()) {
            let (mut read, mut last_ns) = (Vec::with_capacity(some.len()), 0);
            for &(logical, ppa) in some {
                self.counters.gc_reads += 1;
                match self.nand.queued(|nand| nand.read_shared(ppa)) {
                    Ok((data, _)) => read.push((logical, data)),
                    Err(Error::Uncorrectable(_) | Error::PageDamaged(..)) => {
                        self.counters.unreadable_pages += 1;
                    }
                    Err(other) => return Err(other),
                }
                last_ns = self.nand.last_arrival_ns().max(last_ns);
            }
            self.nand.wait_until(last_ns);
            for (logical, data) in read {
                self.place(logical, &data, stream)?;
                self.counters.gc_programs += 1;
            }
        }
        Ok(())
    }

    /// Erases a block, and returns whether it is free now. A block that cannot be erased is
    /// retired.
    fn erase(&mut self, block: u32) -> Result<bool> {
        self.counters.erases += 1;
        let now = match self.nand.erase(block) {
            Ok(()) => Use::Free,
            Err(Error::EraseFailed { .. }) => {
                self.nand.retire(block)?;
                Use::Retired
            }
            Err(other) => return Err(other),
        };
        self.uses[block as usize] = now;
        Ok(now == Use::Free)
    }
}
