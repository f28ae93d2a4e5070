//! Chooses the blocks of tables that a survey reads, and counts the reads: steps 1 and 4.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use runstone_random::Random;

use super::{LARGE_BLOCKS, MORE_PARTITIONS, PLACES, READS_TO_OPEN};
use crate::error::Result;
use crate::format::block::BlockCursor;
use crate::keys::is_range_delete;
use crate::table::handle::TableHandle;
use crate::table::reader::ProbeStats;
use crate::tree::version::Version;

/// A block that is at least this many times as large as the mean is read.
const LARGE: u64 = 2;

/// The tables of a version, and how much may still be read.
pub(super) struct Frame {
    tables: Vec<Arc<TableHandle>>,
    /// The stored lengths of blocks, by table and partition.
    lengths: BTreeMap<(usize, usize), Vec<u64>>,
    done: BTreeSet<BlockAt>,
    opened: BTreeSet<usize>,
    reads: u64,
    most: u64,
}

/// Table, partition and block.
type BlockAt = (usize, usize, usize);

/// An entry that was looked at.
pub(super) struct Look<'a> {
    pub(super) key: &'a [u8],
    pub(super) trailer: u64,
    pub(super) value: &'a [u8],
    /// Bytes of keys and values in its block.
    pub(super) block_bytes: u64,
    /// How many bytes of tables the block represents, and how many it has itself; `None` if it was
    /// chosen for its size.
    pub(super) stands_for: Option<(u64, u64)>,
}

type See<'a> = dyn FnMut(Look<'_>) + 'a;

impl Frame {
    pub(super) fn of(version: &Version, most: u64) -> Frame {
        // Ordered by level and key, so that places spread over the bytes are spread over the keys
        // too. In the order of table ids, a sample of 48 would have three times the error.
        let tables = version.shape.tables().filter_map(|(_, table)| version.handle(table.id));
        Frame {
            tables: tables.map(Arc::clone).collect(),
            lengths: BTreeMap::new(),
            done: BTreeSet::new(),
            opened: BTreeSet::new(),
            reads: 0,
            most,
        }
    }

    /// The largest possible number of reads: some blocks may have been in memory.
    pub(super) fn reads(&self) -> u64 {
        self.reads
    }

    /// Counts reads; `false` if there would be too many.
    pub(super) fn may_read(&mut self, reads: u64) -> bool {
        let is_allowed = self.reads + reads <= self.most;
        self.reads += if is_allowed { reads } else { 0 };
        is_allowed
    }

    /// Passes entries of blocks that were chosen evenly, and of large blocks, to `see`.
    pub(super) fn look(&mut self, random: &mut Random, see: &mut See<'_>) -> Result<()> {
        match self.all_blocks()? {
            Some(all) => {
                for at in all {
                    let bytes = self.lengths[&(at.0, at.1)][at.2];
                    self.see_block(at, Some(bytes), see)?;
                }
                Ok(())
            }
            None => {
                self.look_evenly(random, see)?;
                self.load_more()?;
                self.look_at_large(see)
            }
        }
    }

    /// All blocks, if there are few.
    fn all_blocks(&mut self) -> Result<Option<Vec<BlockAt>>> {
        let places = PLACES as usize;
        if self.tables.len() > places / 4 {
            return Ok(None);
        }
        let mut partitions = Vec::new();
        let mut blocks = 0;
        for table in 0..self.tables.len() {
            self.open(table);
            let reader = self.tables[table].reader()?;
            blocks += reader.properties().block_count;
            partitions.extend((0..reader.partition_count()).map(|part| (table, part)));
        }
        if blocks > PLACES || partitions.len() > places {
            return Ok(None);
        }
        for (table, part) in &partitions {
            self.load(*table, *part)?;
        }
        let blocks = partitions.into_iter().flat_map(|(table, part)| {
            (0..self.lengths[&(table, part)].len()).map(move |block| (table, part, block))
        });
        Ok(Some(blocks.collect()))
    }

    fn look_evenly(&mut self, random: &mut Random, see: &mut See<'_>) -> Result<()> {
        let bytes: Vec<u64> = self.tables.iter().map(|table| table.file_meta().bytes).collect();
        let all: u64 = bytes.iter().sum();
        let step = (all / PLACES).max(1);
        let (mut place, mut before) = (random.below(step), 0);
        for (table, bytes) in bytes.into_iter().enumerate() {
            while place < before + bytes && self.reads + READS_TO_OPEN + 2 <= self.most {
                let share = (u128::from(place - before) << 32) / u128::from(bytes);
                self.open(table);
                if let Some((part, block)) = self.tables[table].reader()?.block_at(share)? {
                    self.load(table, part)?;
                    self.see_block((table, part, block), Some(step), see)?;
                }
                place += step;
            }
            before += bytes;
        }
        Ok(())
    }

    /// Loads partitions that are spread over all partitions of the tables that are open by now.
    fn load_more(&mut self) -> Result<()> {
        let mut others = Vec::new();
        for table in self.opened.iter().copied() {
            let parts = 0..self.tables[table].reader()?.partition_count();
            others.extend(parts.map(|part| (table, part)));
        }
        others.retain(|at| !self.lengths.contains_key(at));
        let step = others.len().div_ceil(MORE_PARTITIONS as usize).max(1);
        others.into_iter().step_by(step).try_for_each(|(table, part)| self.load(table, part))
    }

    fn look_at_large(&mut self, see: &mut See<'_>) -> Result<()> {
        let count: u64 = self.lengths.values().map(|lengths| lengths.len() as u64).sum();
        let sum: u64 = self.lengths.values().flatten().sum();
        let least = LARGE * sum / count.max(1);
        let all = self.lengths.iter().flat_map(|(&(table, part), lengths)| {
            let blocks = lengths.iter().enumerate();
            blocks.map(move |(block, bytes)| (*bytes, (table, part, block)))
        });
        let is_new = |(bytes, at): &(u64, BlockAt)| *bytes >= least && !self.done.contains(at);
        let mut large: Vec<(u64, BlockAt)> = all.filter(is_new).collect();
        large.sort_by_key(|(bytes, at)| (Reverse(*bytes), *at));
        for (_, at) in large.into_iter().take(LARGE_BLOCKS) {
            self.see_block(at, None, see)?;
        }
        Ok(())
    }

    fn open(&mut self, table: usize) {
        if self.opened.insert(table) && self.tables[table].opened().is_none() {
            self.reads += READS_TO_OPEN;
        }
    }

    fn load(&mut self, table: usize, part: usize) -> Result<()> {
        if !self.lengths.contains_key(&(table, part)) && self.may_read(1) {
            let partition = self.tables[table].reader()?.partition(part)?;
            let length = |block| partition.block_range(block).map_or(0, |(_, len)| len);
            let lengths = (0..partition.block_count()).map(length).collect();
            self.lengths.insert((table, part), lengths);
        }
        Ok(())
    }

    /// Passes the entries of a block, which represents this many bytes, to `see`. A place whose
    /// block was read for another place costs no further read.
    fn see_block(&mut self, at: BlockAt, bytes: Option<u64>, see: &mut See<'_>) -> Result<()> {
        if !self.done.contains(&at) && !self.may_read(1) {
            return Ok(());
        }
        self.done.insert(at);
        let (table, part, number) = at;
        let handle = &self.tables[table];
        let reader = handle.reader()?;
        let partition = reader.partition(part)?;
        let taken = partition.block_range(number).map_or(0, |(_, len)| len);
        let block = reader.block(&partition, number, false, &mut ProbeStats::default())?;
        let damaged = |what| reader.corrupt_block(&partition, number, what);
        let mut iter = BlockCursor::new(block, Vec::new());
        let mut block_bytes = 0;
        iter.seek_to_first().map_err(damaged)?;
        while iter.valid() {
            block_bytes += (iter.key().len() + iter.value().len()) as u64;
            iter.next().map_err(damaged)?;
        }
        iter.seek_to_first().map_err(damaged)?;
        while iter.valid() {
            let (key, trailer, value) = (iter.key(), iter.trailer(), iter.value());
            // Skips entries that another table of the tree shows instead, and bounds that are not
            // keys.
            let is_shown = handle.trim_key().is_none_or(|least| key >= least);
            if is_shown && !is_range_delete(trailer) {
                let stands_for = bytes.map(|bytes| (bytes, taken));
                see(Look { key, trailer, value, block_bytes, stands_for });
            }
            iter.next().map_err(damaged)?;
        }
        Ok(())
    }
}
