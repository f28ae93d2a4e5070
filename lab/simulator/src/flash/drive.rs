//! A block SSD below files: extents are allocated next-fit, requests are 64 KiB long, pages are
//! mapped one by one, nothing is trimmed, and collection is greedy. The rules are those of
//! `devices/flash/src/{block,ftl}` without wear and bad blocks.

use std::collections::{BTreeMap, VecDeque};

use super::FlashError;

/// Bytes of a host block.
pub(super) const BLOCK_BYTES: u64 = 4096;
/// The most host blocks in a request.
const REQUEST_BLOCKS: u64 = 16;
/// Host blocks that the file system writes when a file is created, including those of the store's
/// own log of edits.
const CREATE_BLOCKS: u64 = 3;
/// Blocks that stay free for collections.
const RESERVED_BLOCKS: usize = 2;
/// The fewest blocks that the host never sees.
const MIN_SPARE_BLOCKS: u32 = 5;

const NOWHERE: u32 = u32::MAX;
const HOST: usize = 0;
const MOVED: usize = 1;

pub(super) struct Drive {
    block_pages: u32,
    /// Host blocks of a page.
    per_page: u64,
    is_split: bool,
    /// The place of each logical page, and the logical page at each place.
    places: Vec<u32>,
    owners: Vec<u32>,
    valid: Vec<u32>,
    /// The numbers of valid pages of full blocks. Other blocks have `NOWHERE`, so that a search for
    /// the smallest count is one pass over numbers.
    sealed: Vec<u32>,
    free: VecDeque<u32>,
    frontiers: [Option<(u32, u32)>; 2],
    space: FreeSpace,
    files: BTreeMap<u32, Vec<(u64, u64)>>,
    /// The ring of the file system's journal: its blocks, and the next one.
    journal: (u64, u64),
    pub(super) host_blocks: u64,
    pub(super) host_pages: u64,
    pub(super) moved_pages: u64,
    pub(super) collections: u64,
}

impl Drive {
    /// An empty drive. `block_count` is above `MIN_SPARE_BLOCKS`, and a page consists of whole host
    /// blocks.
    pub(super) fn new(
        block_count: u32,
        block_pages: u32,
        page_bytes: u64,
        set_aside_percent: u32,
        is_split: bool,
    ) -> Drive {
        let pages = u64::from(block_count) * u64::from(block_pages);
        let visible = pages * u64::from(100 - set_aside_percent) / 100;
        let most = u64::from(block_count - MIN_SPARE_BLOCKS) * u64::from(block_pages);
        let (logical, per_page) = (visible.min(most), page_bytes / BLOCK_BYTES);
        let host_blocks = logical * per_page;
        let ring = 2 * (host_blocks / 256).max(32);
        Drive {
            block_pages,
            per_page,
            is_split,
            places: vec![NOWHERE; logical as usize],
            owners: vec![NOWHERE; pages as usize],
            valid: vec![0; block_count as usize],
            sealed: vec![NOWHERE; block_count as usize],
            free: (0..block_count).collect(),
            frontiers: [None; 2],
            space: FreeSpace::new(ring, host_blocks.saturating_sub(ring)),
            files: BTreeMap::new(),
            journal: (ring, 0),
            host_blocks: 0,
            host_pages: 0,
            moved_pages: 0,
            collections: 0,
        }
    }

    /// Writes a file of this many bytes.
    pub(super) fn add_file(&mut self, id: u32, bytes: u64) -> Result<(), FlashError> {
        let mut left = bytes.div_ceil(BLOCK_BYTES);
        let mut runs = Vec::new();
        while left > 0 {
            let full = || FlashError::FullFiles { files: self.files.len() as u64 };
            let run = self.space.take(left.min(REQUEST_BLOCKS)).ok_or_else(full)?;
            self.write(run.0, run.1)?;
            runs.push(run);
            left -= run.1;
        }
        self.files.insert(id, runs);
        self.log(CREATE_BLOCKS)
    }

    pub(super) fn remove_file(&mut self, id: u32) {
        for (start, count) in self.files.remove(&id).unwrap_or_default() {
            self.space.release(start, count);
        }
    }

    /// Writes this many blocks of the journal, as one request.
    fn log(&mut self, blocks: u64) -> Result<(), FlashError> {
        let (ring, next) = self.journal;
        let start = if next + blocks > ring { 0 } else { next };
        self.journal.1 = start + blocks;
        self.write(start, blocks)
    }

    /// Makes a request: each page that it touches is programmed.
    fn write(&mut self, start: u64, count: u64) -> Result<(), FlashError> {
        self.host_blocks += count;
        for logical in start / self.per_page..(start + count).div_ceil(self.per_page) {
            self.host_pages += 1;
            self.program(logical as u32, HOST)?;
        }
        Ok(())
    }

    fn program(&mut self, logical: u32, stream: usize) -> Result<(), FlashError> {
        let (block, at, slot) = self.next_page(stream)?;
        let place = block * self.block_pages + at;
        let old = std::mem::replace(&mut self.places[logical as usize], place);
        if old != NOWHERE {
            let from = (old / self.block_pages) as usize;
            self.owners[old as usize] = NOWHERE;
            self.valid[from] -= 1;
            if self.sealed[from] != NOWHERE {
                self.sealed[from] = self.valid[from];
            }
        }
        self.owners[place as usize] = logical;
        self.valid[block as usize] += 1;
        let is_full = at + 1 == self.block_pages;
        self.frontiers[slot] = (!is_full).then_some((block, at + 1));
        if is_full {
            self.sealed[block as usize] = self.valid[block as usize];
        }
        Ok(())
    }

    /// The next page to program: block, page in the block, and frontier.
    fn next_page(&mut self, stream: usize) -> Result<(u32, u32, usize), FlashError> {
        let slot = if self.is_split { stream } else { HOST };
        if stream == HOST {
            while self.frontiers[slot].is_none() && self.free.len() <= RESERVED_BLOCKS {
                self.collect()?;
            }
        }
        if let Some((block, at)) = self.frontiers[slot] {
            return Ok((block, at, slot));
        }
        let block = self.free.pop_front().ok_or(FlashError::OutOfBlocks)?;
        Ok((block, 0, slot))
    }

    /// Empties the sealed block with the fewest valid pages.
    fn collect(&mut self) -> Result<(), FlashError> {
        let least = self.sealed.iter().copied().min().unwrap_or(NOWHERE);
        let victim = self.sealed.iter().position(|valid| *valid == least);
        let victim = victim.filter(|_| least < self.block_pages).ok_or(FlashError::OutOfBlocks)?;
        let victim = victim as u32;
        self.collections += 1;
        let first = victim * self.block_pages;
        for place in first..first + self.block_pages {
            let logical = self.owners[place as usize];
            if logical != NOWHERE {
                self.program(logical, MOVED)?;
                self.moved_pages += 1;
            }
        }
        self.sealed[victim as usize] = NOWHERE;
        self.free.push_back(victim);
        Ok(())
    }
}

/// Free host blocks, allocated next-fit: each search continues where the last one ended.
struct FreeSpace {
    runs: BTreeMap<u64, u64>,
    cursor: u64,
}

impl FreeSpace {
    fn new(start: u64, count: u64) -> FreeSpace {
        FreeSpace { runs: BTreeMap::from([(start, count)]), cursor: start }
    }

    /// Takes up to `wanted` contiguous blocks. Returns the first block and the count.
    fn take(&mut self, wanted: u64) -> Option<(u64, u64)> {
        let around = self.runs.range(..=self.cursor).next_back();
        let around = around.filter(|&(start, count)| start + count > self.cursor);
        let next = around.or_else(|| self.runs.range(self.cursor..).next());
        let (&first, &length) = next.or_else(|| self.runs.iter().next())?;
        let start = first.max(if first + length > self.cursor { self.cursor } else { 0 });
        let count = wanted.min(first + length - start);
        self.runs.remove(&first);
        if start > first {
            self.runs.insert(first, start - first);
        }
        if start + count < first + length {
            self.runs.insert(start + count, first + length - start - count);
        }
        self.cursor = start + count;
        (count > 0).then_some((start, count))
    }

    fn release(&mut self, mut start: u64, mut count: u64) {
        if let Some(after) = self.runs.remove(&(start + count)) {
            count += after;
        }
        if let Some((&before, &length)) = self.runs.range(..start).next_back()
            && before + length == start
        {
            self.runs.remove(&before);
            (start, count) = (before, length + count);
        }
        self.runs.insert(start, count);
    }
}
