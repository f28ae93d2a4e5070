//! Rebuilds the mapping from the spare bytes of all pages.
//!
//! 1. Among all intact pages of a logical page, the one with the largest program number is current.
//! 2. A torn page is the last page of its block, because nothing is programmed after it. Its block
//!    is the one that its stream opened last, because no block is resumed after a later open. In
//!    such a block a damaged last page does not count: its older version is current, because nobody
//!    acknowledged the new one. The other pages of the block are moved and the block is erased
//!    before the host may write. So no torn page is older than the last open.
//! 3. Damaged spare bytes anywhere else are corruption: the page might have been current, so the
//!    device is refused. Pages with damaged data anywhere else stay mapped, and their readers get
//!    an error.
//! 4. Every block with any programmed page is sealed. A block that reads as erased may be
//!    disturbed, so it is erased before use.
//! 5. A collection that a power cut interrupts has used a free block and freed none. After a few
//!    such cuts in a row no free block would be left. So if few blocks are free, the moves of the
//!    collection are undone: if all pages of its block are still where they were copied from, they
//!    are mapped there again, and the block is free. Blocks without valid pages are free too. So
//!    the next open finds a block to move pages to, even if the power is cut in every open.
//!
//! Corruption in the last page of a frontier cannot be distinguished from a torn program. Trimmed
//! pages come back, unless they were collected.

use std::collections::BTreeMap;

use super::Ftl;
use super::space::{RECOVERY_SLOT, RESERVED_BLOCKS, Stream, Use};
use crate::error::{Error, Result};
use crate::nand::{Oob, PageType, Ppa, Spare};

impl Ftl {
    pub(super) fn recover(&mut self) -> Result<()> {
        self.program_seq = self.nand.last_seq();
        let block_count = self.nand.geometry().block_count;
        let mut blocks = Vec::with_capacity(block_count as usize);
        for block in 0..block_count {
            blocks.push(self.nand.read_spares(block)?);
        }
        let mut newest = vec![0; self.map.logical_pages() as usize];
        let (mut torn, mut last_opened) = (Vec::new(), Vec::new());
        for (block, spares) in (0..).zip(&blocks) {
            let is_frontier = may_be_frontier(&blocks, spares);
            if self.recover_block(block, spares, is_frontier, &mut newest)? {
                torn.push(block);
            }
            if is_frontier {
                last_opened.push(block);
            }
        }
        if self.free_count() <= RESERVED_BLOCKS {
            for block in last_opened {
                self.take_back(block, &blocks)?;
            }
            self.free_garbage(&torn);
        }
        // Blocks without valid pages are emptied first, because the pages of the other blocks may
        // be moved there.
        torn.sort_by_key(|&block| self.map.valid_pages(block));
        for block in torn {
            self.empty(block, Stream::Recovery)?;
        }
        if let Some(ppa) = self.frontiers[RECOVERY_SLOT].take() {
            self.uses[ppa.block as usize] = Use::Sealed;
        }
        Ok(())
    }

    /// Adds the pages of one block, and returns whether its last page is torn.
    fn recover_block(
        &mut self,
        block: u32,
        spares: &[Spare],
        is_frontier: bool,
        newest: &mut [u64],
    ) -> Result<bool> {
        let is_retired = self.nand.is_retired(block);
        let used = spares.iter().rposition(|spare| *spare != Spare::Erased);
        self.uses[block as usize] = match (is_retired, used) {
            (true, _) => Use::Retired,
            (false, None) => Use::FreeUnerased,
            (false, Some(_)) => Use::Sealed,
        };
        let Some(last) = used.map(|last| last as u32) else { return Ok(false) };
        let is_half_erased = spares.iter().all(|spare| *spare == Spare::Damaged);
        if is_half_erased {
            return Ok(!is_retired);
        }
        for (page, spare) in (0..=last).zip(spares) {
            let ppa = Ppa { block, page };
            let may_be_torn = page == last && (is_frontier || is_retired);
            match spare {
                Spare::Valid(oob) => {
                    if may_be_torn && !self.is_whole(ppa)? {
                        return Ok(!is_retired);
                    }
                    self.take(ppa, oob, newest)?;
                }
                _ if may_be_torn => return Ok(!is_retired),
                _ => return Err(Error::PageDamaged(ppa, "spare bytes, and not by a power cut")),
            }
        }
        Ok(false)
    }

    /// If all valid pages of a block are copies of pages that are still there, maps the originals.
    /// Copies are recognised by their bytes: if two pages are equal, it does not matter which one
    /// is current.
    fn take_back(&mut self, block: u32, blocks: &[Vec<Spare>]) -> Result<()> {
        let mut sources: BTreeMap<u64, (u64, Ppa)> = BTreeMap::new();
        let pages = (0..self.nand.geometry().block_pages).map(|page| Ppa { block, page });
        let valid = pages.filter_map(|ppa| Some((self.map.owner(ppa)?, ppa)));
        let copies: BTreeMap<u64, Ppa> =
            valid.map(|(logical, ppa)| (u64::from(logical), ppa)).collect();
        for (other, spares) in (0..).zip(blocks).filter(|(other, _)| *other != block) {
            for (page, spare) in (0..).zip(spares) {
                let Spare::Valid(oob) = spare else { continue };
                let (owner, at) = (oob.tag.owner, oob.tag.program_seq);
                if copies.contains_key(&owner) {
                    let found = (at, Ppa { block: other, page });
                    let last = sources.entry(owner).or_insert(found);
                    *last = (*last).max(found);
                }
            }
        }
        for (owner, copy) in &copies {
            let Some((_, source)) = sources.get(owner) else { return Ok(()) };
            if !self.are_equal(*copy, *source)? {
                return Ok(());
            }
        }
        for (owner, (_, source)) in sources {
            self.map.assign(owner as u32, source);
        }
        Ok(())
    }

    /// Frees the blocks without valid pages. Blocks with a torn page must be erased first.
    fn free_garbage(&mut self, torn: &[u32]) {
        for block in 0..self.nand.geometry().block_count {
            let used = &mut self.uses[block as usize];
            let is_empty = self.map.valid_pages(block) == 0 && !torn.contains(&block);
            if *used == Use::Sealed && is_empty {
                *used = Use::FreeUnerased;
            }
        }
    }

    /// Whether two pages can be read and have the same bytes.
    fn are_equal(&mut self, one: Ppa, other: Ppa) -> Result<bool> {
        let mut read = |ppa| match self.nand.read_shared(ppa) {
            Ok((bytes, _)) => Ok(Some(bytes)),
            Err(Error::Uncorrectable(_) | Error::PageDamaged(..)) => Ok(None),
            Err(other) => Err(other),
        };
        let (one, other) = (read(one)?, read(other)?);
        Ok(one.zip(other).is_some_and(|(one, other)| one.flat() == other.flat()))
    }

    fn is_whole(&mut self, ppa: Ppa) -> Result<bool> {
        match self.nand.read_shared(ppa) {
            Ok(_) => Ok(true),
            Err(Error::PageDamaged(..)) => Ok(false),
            Err(other) => Err(other),
        }
    }

    fn take(&mut self, ppa: Ppa, oob: &Oob, newest: &mut [u64]) -> Result<()> {
        let tag = &oob.tag;
        let corrupt = |why: String| Err(Error::Corrupt { what: "block SSD", why });
        if tag.page_type != PageType::Host {
            return corrupt(format!("{ppa} is a {} page", tag.page_type.name()));
        }
        let Some(slot) = newest.get_mut(usize::try_from(tag.owner).unwrap_or(usize::MAX)) else {
            let (owner, limit) = (tag.owner, self.map.logical_pages());
            return corrupt(format!("{ppa} holds logical page {owner} of {limit}"));
        };
        if tag.program_seq > *slot {
            *slot = tag.program_seq;
            self.map.assign(tag.owner as u32, ppa);
        }
        Ok(())
    }
}

/// Whether no block of the same stream was opened later. A block whose first page is damaged has no
/// other pages, or is half-erased.
fn may_be_frontier(blocks: &[Vec<Spare>], spares: &[Spare]) -> bool {
    let opened = |spares: &[Spare]| match spares.first() {
        Some(Spare::Valid(oob)) => Some((oob.tag.level, oob.tag.program_seq)),
        _ => None,
    };
    let Some((stream, at)) = opened(spares) else { return true };
    let is_later = |other: &Vec<Spare>| {
        opened(other).is_some_and(|(other_stream, later)| other_stream == stream && later > at)
    };
    usize::from(stream) == RECOVERY_SLOT || !blocks.iter().any(is_later)
}
