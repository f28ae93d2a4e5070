//! Copies blocks of one input that no other input of a compaction overlaps. They are written to the
//! output as they are stored, without being rebuilt and compressed again. This file decides which
//! blocks; `table/copy.rs` copies one.
//!
//! A block is copied if
//!
//! 1. the compaction is on its first entry, and no version of that entry's key preceded it;
//! 2. every other input continues above its last key, and so does the next cut between tables;
//! 3. each of its keys has one version, and none is a tombstone. With 1 and 2, that is the only
//!    version of the key in the compaction so far, and it stays whatever the snapshots are (I4). An
//!    older version of its last key in the next block finds the state that it would have found in
//!    any case;
//! 4. the layout would build the same block ([`WholeBlock::fits`]), and needs no prefixes;
//! 5. the open output block is empty or nearly full, or enough blocks in a row can be copied to
//!    make one short block cheap;
//! 6. no range delete hides an entry of the block: the caller checks this.
//!
//! All of this follows from the inputs and from the start of the output table, which is the start
//! of a cell. So the files are the same for every number of slices.

use crate::error::Result;
use crate::format::record::Place;
use crate::jobs::cutter::Cutter;
use crate::keys::SeqNo;
use crate::read::merge::MergeIter;
use crate::table::builder::{TableBuilder, TableLayout};
use crate::table::copy::{Summary, WholeBlock};

/// With this number of blocks in a row, it pays to end the open block early.
const ROW_BLOCKS: usize = 4;

/// Copies blocks during one compaction.
#[derive(Debug, Default)]
pub(crate) struct Copier {
    summary: Summary,
    /// Blocks copied.
    pub(crate) blocks: u64,
    /// Bytes of the copied blocks.
    pub(crate) bytes: u64,
}

impl Copier {
    /// Finds out whether the current entry begins a block to copy, and records the facts about that
    /// block. The current entry must be the first of its key.
    pub(crate) fn finds(
        &mut self,
        streams: &MergeIter,
        cutter: &Cutter,
        layout: &TableLayout,
        open: Option<&TableBuilder>,
    ) -> Result<bool> {
        let Some((table, block)) = streams.table().and_then(|t| Some((t, t.whole_block()?))) else {
            return Ok(false);
        };
        let is_near_end = open.is_none_or(TableBuilder::is_near_block_end);
        let Some(bound) = table.bound_of_blocks(if is_near_end { 0 } else { ROW_BLOCKS - 1 })
        else {
            return Ok(false);
        };
        if !streams.others_are_above(&bound)
            || !cutter.allows_up_to(&bound)
            || layout.prefixer.is_some()
            || !block.fits(layout)
        {
            return Ok(false);
        }
        block.summarize(layout.restart_interval, &mut self.summary).map_err(|e| table.bad_block(e))
    }

    /// The smallest and largest key of the block found, and its smallest sequence number.
    pub(crate) fn bounds(&self) -> (&[u8], &[u8], SeqNo) {
        (&self.summary.first_key, &self.summary.last_key, self.summary.min_seq)
    }

    /// The last key of the block found, the trailer of that key, and the number of entries.
    pub(crate) fn last(&self) -> (&[u8], u64, u64) {
        let Summary { last_key, last_trailer, hashes, .. } = &self.summary;
        (last_key, *last_trailer, hashes.len() as u64)
    }

    /// The place of the last entry's value, if that is separated.
    pub(crate) fn last_place(&self) -> Option<Place> {
        self.summary.last_place
    }

    /// Copies the block found.
    pub(crate) fn copy(&mut self, streams: &MergeIter, to: &mut TableBuilder) -> Result<()> {
        let block: Option<WholeBlock<'_>> = streams.table().and_then(|table| table.whole_block());
        if let Some(block) = block {
            to.add_whole(&block, &self.summary)?;
            self.blocks += 1;
            self.bytes += block.stored.len() as u64;
        }
        Ok(())
    }
}
