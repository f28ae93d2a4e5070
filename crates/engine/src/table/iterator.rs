//! Walks a table in both directions, block by block.
//!
//! There are two ways to read blocks. `Cached` is for scans: blocks are read through the block
//! cache, with read-ahead hints that double while the walk is sequential. `Sequential` is for
//! compactions: large reads go into a private buffer, and nothing enters the cache, because a
//! compaction touches every block once.

use std::mem;
use std::sync::Arc;

use crate::error::Result;
use crate::format::block::{BEFORE_ALL_VERSIONS, BadBlock, Block, BlockCursor};
use crate::format::index::Partition;
use crate::table::behind::Behind;
use crate::table::copy::WholeBlock;
use crate::table::reader::{ProbeStats, TableReader};

/// How much a compaction reads of each input run at once. Eight such reads fit the cache of a core
/// (measured, docs/limits.md).
pub(crate) const COMPACTION_READ_BYTES: u64 = 128 << 10;
const FIRST_READ_AHEAD_BYTES: u64 = 16 << 10;
const MAX_READ_AHEAD_BYTES: u64 = 256 << 10;

/// How blocks are fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Through the cache.
    Cached {
        /// Whether blocks that were read enter the cache.
        fill: bool,
    },
    /// Large sequential reads that bypass the cache.
    Sequential,
}

/// An iterator over one table.
#[derive(Debug)]
pub struct TableIter {
    table: Arc<TableReader>,
    access: Access,
    /// User keys below this one are not shown.
    floor: Option<Box<[u8]>>,
    part: usize,
    partition: Option<Arc<Partition>>,
    block: usize,
    cursor: Option<BlockCursor>,
    key_buffer: Vec<u8>,
    /// The bytes read ahead by `Sequential`, and their offset in the file.
    window: Vec<u8>,
    window_at: u64,
    /// For `Sequential`: the parts of the file that the system had in memory.
    behind: Behind,
    /// For `Cached`: the length of the next hint. `hinted_to` is where the last hint ends.
    read_ahead_bytes: u64,
    hinted_to: u64,
    stats: ProbeStats,
}

impl TableIter {
    /// An iterator that is on no entry; seek before use.
    pub fn new(table: Arc<TableReader>, access: Access) -> Self {
        TableIter {
            table,
            access,
            floor: None,
            part: 0,
            partition: None,
            block: 0,
            cursor: None,
            key_buffer: Vec::new(),
            window: Vec::new(),
            window_at: 0,
            behind: Behind::default(),
            read_ahead_bytes: 0,
            hinted_to: 0,
            stats: ProbeStats::default(),
        }
    }

    /// Shows only the user keys from `floor` on.
    pub fn starting_at(mut self, floor: Option<&[u8]>) -> Self {
        self.floor = floor.map(Box::from);
        self
    }

    /// Reuses the buffers of a finished iterator.
    pub fn after(mut self, done: Option<TableIter>) -> Self {
        let Some(mut done) = done else { return self };
        done.drop_cursor();
        done.window.clear();
        let (window, key_buffer) = (mem::take(&mut done.window), mem::take(&mut done.key_buffer));
        self.window = window;
        self.key_buffer = key_buffer;
        self
    }

    /// Whether the iterator is on an entry.
    #[inline]
    pub fn valid(&self) -> bool {
        self.cursor.as_ref().is_some_and(BlockCursor::valid)
    }

    /// Counts of the blocks that were read through the cache.
    pub fn stats(&self) -> &ProbeStats {
        &self.stats
    }

    /// The cursor on the current entry.
    #[inline]
    pub fn cursor(&self) -> Option<&BlockCursor> {
        self.cursor.as_ref()
    }

    /// The cursor in the current block, without the rest of the iterator.
    pub fn into_cursor(mut self) -> Option<BlockCursor> {
        self.cursor.take()
    }

    /// Moves to the first entry.
    pub fn seek_to_first(&mut self) -> Result<()> {
        if self.floor.is_some() {
            return self.seek(b"", BEFORE_ALL_VERSIONS);
        }
        self.load(0, |_| 0)?;
        self.in_block(BlockCursor::seek_to_first)
    }

    /// Moves to the last entry.
    pub fn seek_to_last(&mut self) -> Result<()> {
        self.load(self.table.partition_count() - 1, |partition| partition.block_count() - 1)?;
        self.in_block(BlockCursor::seek_to_last)?;
        self.stay_above_floor();
        Ok(())
    }

    /// Moves to the first entry at or after the internal key.
    pub fn seek(&mut self, key: &[u8], trailer: u64) -> Result<()> {
        self.approach(key)?;
        self.finish_seek(key, trailer)
    }

    /// The first half of a seek: moves to the block that may hold `key`, but does not search it. It
    /// prefetches the cache lines that [`TableIter::finish_seek`] reads, so that seeks in many runs
    /// wait for memory together.
    pub fn approach(&mut self, key: &[u8]) -> Result<()> {
        let floor = self.floor.take();
        let found = self.load_block_of(floor.as_deref().map_or(key, |floor| floor.max(key)));
        self.floor = floor;
        found
    }

    /// The second half of a seek, for the same key.
    pub fn finish_seek(&mut self, key: &[u8], trailer: u64) -> Result<()> {
        let floor = self.floor.take();
        let found = match &floor {
            Some(floor) if **floor > *key => self.seek_in_blocks(floor, BEFORE_ALL_VERSIONS),
            _ => self.seek_in_blocks(key, trailer),
        };
        self.floor = floor;
        found
    }

    /// Seeks in this block and the next ones. The index has only keys, and the versions of a key
    /// may fill several blocks.
    fn seek_in_blocks(&mut self, key: &[u8], trailer: u64) -> Result<()> {
        self.in_block(|cursor| cursor.seek(key, trailer))?;
        while self.cursor.as_ref().is_some_and(|cursor| !cursor.valid()) {
            self.skip_forward()?;
            self.in_block(|cursor| cursor.seek(key, trailer))?;
        }
        Ok(())
    }

    fn load_block_of(&mut self, key: &[u8]) -> Result<()> {
        let part = self.table.find_partition(key);
        if part >= self.table.partition_count() {
            self.drop_cursor();
            return Ok(());
        }
        self.load(part, |partition| partition.separators.lower_bound(key).0)
    }

    /// Moves to the next entry.
    #[inline]
    // Public because of `testing`. Unlike `Iterator::next`, it can fail.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Result<()> {
        if let Some(cursor) = &mut self.cursor {
            if let Err(what) = cursor.next() {
                return Err(self.corrupt(what));
            }
            if !cursor.valid() {
                return self.skip_forward();
            }
        }
        Ok(())
    }

    /// The current block, if the iterator is on its first entry and has read the block without the
    /// cache.
    #[inline]
    pub fn whole_block(&self) -> Option<WholeBlock<'_>> {
        let cursor = self.cursor.as_ref().filter(|cursor| cursor.is_first() && cursor.valid())?;
        if self.access != Access::Sequential || !self.table.holds_numbers() {
            return None;
        }
        let (offset, len) = self.partition.as_ref()?.block_range(self.block)?;
        let start = usize::try_from(offset.checked_sub(self.window_at)?).ok()?;
        let stored = self.window.get(start..start + len as usize)?;
        Some(WholeBlock { stored, block: cursor.block() })
    }

    /// A key at or above all keys of this block and the next `more` blocks, and below the keys that
    /// follow. `None` if these blocks are not all in this partition.
    pub fn bound_of_blocks(&self, more: usize) -> Option<Vec<u8>> {
        let separators = &self.partition.as_ref()?.separators;
        let last = self.block + more;
        (last < separators.len()).then(|| separators.key(last))
    }

    /// Moves to the first entry of the next block.
    pub fn skip_block(&mut self) -> Result<()> {
        if let Some(cursor) = &mut self.cursor {
            cursor.skip_all();
        }
        self.skip_forward()
    }

    /// The error for a block that does not decode.
    pub fn bad_block(&self, what: BadBlock) -> crate::Error {
        self.corrupt(what)
    }

    /// Moves to the previous entry.
    pub fn prev(&mut self) -> Result<()> {
        self.in_block(BlockCursor::prev)?;
        while self.cursor.as_ref().is_some_and(|cursor| !cursor.valid()) {
            if self.block > 0 {
                self.block -= 1;
                self.load_block()?;
            } else if self.part > 0 {
                self.load(self.part - 1, |partition| partition.block_count() - 1)?;
            } else {
                self.drop_cursor();
                return Ok(());
            }
            self.in_block(BlockCursor::seek_to_last)?;
        }
        self.stay_above_floor();
        Ok(())
    }

    /// After a step back that went below the floor, moves to no entry.
    fn stay_above_floor(&mut self) {
        let Some(floor) = &self.floor else { return };
        if self.cursor.as_ref().is_some_and(|at| at.valid() && *at.key() < **floor) {
            self.drop_cursor();
        }
    }

    fn skip_forward(&mut self) -> Result<()> {
        while self.cursor.as_ref().is_some_and(|cursor| !cursor.valid()) {
            let blocks = self.partition.as_ref().map_or(0, |partition| partition.block_count());
            if self.block + 1 < blocks {
                self.block += 1;
                self.load_block()?;
            } else if self.part + 1 < self.table.partition_count() {
                self.load(self.part + 1, |_| 0)?;
            } else {
                self.drop_cursor();
                return Ok(());
            }
            self.in_block(BlockCursor::seek_to_first)?;
        }
        Ok(())
    }

    fn in_block(
        &mut self,
        step: impl FnOnce(&mut BlockCursor) -> std::result::Result<(), &'static str>,
    ) -> Result<()> {
        match self.cursor.as_mut().map(step) {
            None | Some(Ok(())) => Ok(()),
            Some(Err(what)) => Err(self.corrupt(what)),
        }
    }

    fn corrupt(&self, what: &str) -> crate::Error {
        match &self.partition {
            Some(partition) => self.table.corrupt_block(partition, self.block, what),
            None => self.table.corrupt(0, what),
        }
    }

    fn drop_cursor(&mut self) {
        if let Some(cursor) = self.cursor.take() {
            self.key_buffer = cursor.into_buffer();
        }
    }

    fn load(&mut self, part: usize, choose: impl FnOnce(&Partition) -> usize) -> Result<()> {
        if self.part != part || self.partition.is_none() {
            self.partition = Some(Arc::clone(&*self.table.partition(part)?));
            self.part = part;
        }
        if let Some(partition) = &self.partition {
            self.block = choose(partition);
        }
        self.load_block()
    }

    fn load_block(&mut self) -> Result<()> {
        self.drop_cursor();
        let Some(partition) = self.partition.clone() else { return Ok(()) };
        if self.block >= partition.block_count() {
            return Ok(());
        }
        let block = match self.access {
            Access::Cached { fill } => {
                let reads = self.stats.block_reads;
                self.stats.blocks += 1;
                let block = self.table.block(&partition, self.block, fill, &mut self.stats)?;
                if self.stats.block_reads > reads {
                    self.hint(&partition);
                }
                block
            }
            Access::Sequential => Arc::new(self.block_from_window(&partition)?),
        };
        self.cursor = Some(BlockCursor::new(block, std::mem::take(&mut self.key_buffer)));
        Ok(())
    }

    /// After each miss, gives a hint for a stretch twice as long as the last one.
    fn hint(&mut self, partition: &Partition) {
        let Some((offset, len)) = partition.block_range(self.block) else { return };
        let end = offset + len;
        if self.read_ahead_bytes == 0 {
            // The first miss says nothing about the walk.
            self.read_ahead_bytes = FIRST_READ_AHEAD_BYTES;
            self.hinted_to = end;
        } else if end > self.hinted_to {
            self.table.read_ahead(end, self.read_ahead_bytes);
            self.hinted_to = end + self.read_ahead_bytes;
            self.read_ahead_bytes = (self.read_ahead_bytes * 2).min(MAX_READ_AHEAD_BYTES);
        }
    }

    fn block_from_window(&mut self, partition: &Partition) -> Result<Block> {
        let Some((offset, len)) = partition.block_range(self.block) else {
            return Err(self.table.corrupt(0, "block number out of range"));
        };
        let window_end = self.window_at + self.window.len() as u64;
        if offset < self.window_at || offset + len > window_end {
            let last = partition.block_range(partition.block_count() - 1);
            let data_end = last.map_or(offset + len, |(offset, len)| offset + len);
            let wanted =
                COMPACTION_READ_BYTES.max(len).min(data_end.saturating_sub(offset)).max(len);
            self.window_at = offset;
            self.table.enter(&mut self.behind, offset, wanted);
            if let Err(error) = self.table.read_raw(offset, wanted, &mut self.window) {
                self.window.clear();
                return Err(error);
            }
        }
        let start = (offset - self.window_at) as usize;
        match self.window.get(start..start + len as usize) {
            Some(stored) => self.table.open_block(stored, offset),
            None => Err(self.table.corrupt(offset, "block outside of its partition")),
        }
    }
}

impl Drop for TableIter {
    fn drop(&mut self) {
        self.table.leave(&mut self.behind);
    }
}
