//! Walks a table from its first entry to its last, past any damage.
//!
//! 1. A block that cannot be read, or whose entries do not ascend, is skipped. Its keys are between
//!    the separators before and after it. The walk notes that range.
//! 2. A partition that two attempts could not read is skipped in the same way: its blocks cannot be
//!    found.
//! 3. Blocks are read in large pieces. If a piece cannot be read, its blocks are tried one by one:
//!    a bad sector should cost only one block.

use std::cmp::Ordering;
use std::sync::Arc;

use crate::error::Result;
use crate::format::block::{Block, BlockCursor};
use crate::format::index::Partition;
use crate::keys::compare;
use crate::table::reader::TableReader;

/// How much is read at once.
const READ_BYTES: u64 = 128 << 10;

/// Keys of a table that could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Hole {
    pub(super) from: Vec<u8>,
    /// Inclusive.
    pub(super) to: Vec<u8>,
    pub(super) what: String,
}

/// See the module docs.
#[derive(Debug)]
pub(super) struct Salvage {
    table: Arc<TableReader>,
    /// Keys below this one are not shown.
    floor: Box<[u8]>,
    /// The number of the next partition. The two fields after it are the current partition and the
    /// next block of that partition.
    next_part: usize,
    partition: Option<Arc<Partition>>,
    next_block: usize,
    cursor: Option<BlockCursor>,
    /// No key of a later block is below this one.
    behind: Vec<u8>,
    /// No key of the cursor's block is above this one.
    until: Vec<u8>,
    /// The last entry shown.
    last: Option<(Vec<u8>, u64)>,
    window: Vec<u8>,
    window_at: u64,
    pub(super) holes: Vec<Hole>,
    /// Entries shown.
    pub(super) entries: u64,
}

impl Salvage {
    /// Begins before the first entry; call `next` first.
    pub(super) fn new(table: Arc<TableReader>, floor: &[u8]) -> Salvage {
        let behind = table.properties().min_key.clone();
        Salvage {
            table,
            floor: floor.into(),
            next_part: 0,
            partition: None,
            next_block: 0,
            cursor: None,
            until: behind.clone(),
            behind,
            last: None,
            window: Vec::new(),
            window_at: 0,
            holes: Vec::new(),
            entries: 0,
        }
    }

    /// The current entry: key, trailer, value. `None` before the first and after the last.
    pub(super) fn entry(&self) -> Option<(&[u8], u64, &[u8])> {
        let cursor = self.cursor.as_ref().filter(|cursor| cursor.valid())?;
        Some((cursor.key(), cursor.trailer(), cursor.value()))
    }

    /// Moves to the next entry that can be read. Returns whether there is one.
    pub(super) fn next(&mut self) -> bool {
        loop {
            let stepped = match &mut self.cursor {
                Some(cursor) if cursor.valid() => cursor.next().map(|()| cursor.valid()),
                _ => Ok(false),
            };
            let is_on_entry = match stepped {
                Ok(true) => true,
                Ok(false) => {
                    if !self.enter_next_block() {
                        return false;
                    }
                    self.entry().is_some()
                }
                Err(what) => {
                    self.leave_block(what);
                    false
                }
            };
            if is_on_entry && self.accept() {
                return true;
            }
        }
    }

    /// Whether the entry may be shown: it ascends, and is not below the floor.
    fn accept(&mut self) -> bool {
        let Some((key, trailer, _)) = self.entry() else { return false };
        let ascends = self.last.as_ref().is_none_or(|(last, last_trailer)| {
            compare(last, *last_trailer, key, trailer) == Ordering::Less
        });
        if !ascends || *key > *self.until {
            self.leave_block("the entries do not ascend");
            return false;
        }
        let is_shown = key >= &*self.floor;
        let (mut buffer, _) = self.last.take().unwrap_or_default();
        let Some((key, trailer, _)) = self.entry() else { return false };
        buffer.clear();
        buffer.extend_from_slice(key);
        self.last = Some((buffer, trailer));
        self.entries += u64::from(is_shown);
        is_shown
    }

    /// Gives up the rest of the cursor's block.
    fn leave_block(&mut self, what: &str) {
        if let Some(cursor) = &mut self.cursor {
            cursor.skip_all();
        }
        let from = self.last.as_ref().map_or_else(|| self.behind.clone(), |(key, _)| key.clone());
        self.note(from, self.until.clone(), what.to_string());
    }

    fn note(&mut self, from: Vec<u8>, to: Vec<u8>, what: String) {
        if *to < *self.floor {
            return;
        }
        match self.holes.last_mut() {
            // Damaged blocks in a row are one hole.
            Some(last) if last.to >= from => last.to = to.max(std::mem::take(&mut last.to)),
            _ => self.holes.push(Hole { from, to, what }),
        }
    }

    /// Enters the next block that can be read. Returns `false` at the end.
    fn enter_next_block(&mut self) -> bool {
        loop {
            let Some(partition) = self.partition.clone() else {
                if !self.enter_next_partition() {
                    return false;
                }
                continue;
            };
            let block = self.next_block;
            if block >= partition.block_count() {
                self.partition = None;
                continue;
            }
            self.next_block += 1;
            let from = std::mem::replace(&mut self.until, partition.separators.key(block));
            self.behind = from.clone();
            let entered = self.read_block(&partition, block).and_then(|found| {
                let mut cursor = BlockCursor::new(Arc::new(found), Vec::new());
                let outcome = cursor.seek_to_first();
                outcome.map_err(|what| self.table.corrupt_block(&partition, block, what))?;
                Ok(cursor)
            });
            match entered {
                Ok(cursor) => {
                    self.cursor = Some(cursor);
                    return true;
                }
                Err(error) => self.note(from, self.until.clone(), error.to_string()),
            }
        }
    }

    fn enter_next_partition(&mut self) -> bool {
        let part = self.next_part;
        if part >= self.table.partition_count() {
            return false;
        }
        self.next_part += 1;
        let read = || self.table.partition(part).map(|found| Arc::clone(&*found));
        match read().or_else(|_| read()) {
            Ok(partition) => (self.partition, self.next_block) = (Some(partition), 0),
            Err(error) => {
                let to = self.table.last_separator(part);
                let from = std::mem::replace(&mut self.until, to.clone());
                self.note(from, to, error.to_string());
            }
        }
        true
    }

    fn read_block(&mut self, partition: &Partition, block: usize) -> Result<Block> {
        let out_of_range = || self.table.corrupt(0, "block number out of range");
        let (offset, len) = partition.block_range(block).ok_or_else(out_of_range)?;
        let window_end = self.window_at + self.window.len() as u64;
        if offset < self.window_at || offset + len > window_end {
            let last = partition.block_range(partition.block_count() - 1);
            let data_end = last.map_or(offset + len, |(offset, len)| offset + len);
            let wanted = READ_BYTES.min(data_end.saturating_sub(offset)).max(len);
            self.window_at = offset;
            let read = self.table.read_raw(offset, wanted, &mut self.window);
            let read = read.or_else(|_| self.table.read_raw(offset, len, &mut self.window));
            read.inspect_err(|_| self.window.clear())?;
        }
        let start = (offset - self.window_at) as usize;
        match self.window.get(start..start + len as usize) {
            Some(stored) => self.table.open_block(stored, offset),
            None => Err(self.table.corrupt(offset, "a block outside of its partition")),
        }
    }
}
