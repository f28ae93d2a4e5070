//! Makes room: garbage collection, evacuation of failing blocks, wear levelling, and what to do
//! when the device is full. It runs only between transactions.
//!
//! Collection, step by step:
//!
//! 1. The victim is the movable block that costs the fewest programs: its live pages, and a
//!    metadata page for each table that has pages there. Among equals it is the least worn. For a
//!    block of values, the cost is the pages that its needed values would take (`values.rs`).
//! 2. Its live pages go to the stream of the deepest level that refers to them. The metadata pages
//!    of their tables are programmed again.
//! 3. The journal page commits the new addresses. Then the block is free.
//!
//! A block that has fewer than two pages to gain is left alone, because the journal page would use
//! them up.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::kvssd::counters::Cause;
use crate::kvssd::device::{Change, KvSsd};
use crate::kvssd::format::meta_page::TableMeta;
use crate::kvssd::format::record::Kind;
use crate::kvssd::options::{Durability, Form, Placement};
use crate::kvssd::pending::Write;
use crate::kvssd::space::{Owner, Stream, Use};
use crate::kvssd::tree::{Commit, Node};
use crate::nand::PageType;

/// Above this part of the limit nothing is remapped, because the garbage inside pages must be
/// removed.
const SHORT_PERCENT: u64 = 92;
/// Blocks that the smallest part of a compaction may fill.
const PART_BLOCKS: u32 = 3;
/// Free blocks in addition to what is planned and to what streams may open.
const SPARE_BLOCKS: u32 = 2;

impl KvSsd {
    /// Streams that have a block open, or may have one.
    fn streams(&self) -> impl Iterator<Item = Stream> + use<> {
        let levels = match self.options.placement {
            Placement::PerLevel => (self.deepest_kv_level() + 2).max(4),
            Placement::Mixed | Placement::PerTable => 1,
        };
        let log = (self.options.durability == Durability::Log).then_some(Stream::Log);
        let others = [Stream::Meta, Stream::Journal, Stream::Checkpoint];
        let values = (0..self.values.group_count()).map(Stream::Values);
        (0..levels).map(Stream::Kv).chain(others).chain(log).chain(values)
    }

    /// Streams that will soon open a block.
    fn low_stream_count(&self) -> u32 {
        let is_low = |stream: &Stream| self.space.room_in(*stream) < self.space.block_pages() / 4;
        self.streams().filter(is_low).count() as u32
    }

    /// Blocks that must be free whatever is open. After a power cut no block is resumed. The first
    /// collection then opens one block for each kind of page before it frees any, and more for a
    /// large checkpoint.
    fn restart_blocks(&self) -> u32 {
        let is_other = |stream: &Stream| !matches!(stream, Stream::Kv(_) | Stream::Values(_));
        // If values are separated, the next collection may open another kind, and a second power
        // cut would find two blocks fewer.
        let one_each = 1
            + self.streams().filter(is_other).count() as u32
            + if self.values.group_count() > 0 { 2 } else { 0 };
        let saved_pages = self.checkpoints.back().map_or(0, |(_, pages)| pages.len() as u32);
        one_each + saved_pages / self.space.block_pages()
    }

    /// Blocks that must be free in addition to those that are planned.
    fn spare_blocks(&self) -> u32 {
        (self.low_stream_count() + SPARE_BLOCKS).max(self.restart_blocks())
    }

    /// How many pages of tables and metadata leave room to work: for open blocks, one part of a
    /// compaction, two checkpoints and the journal between them, and at least the
    /// over-provisioning. A block with one dead page is never collected, so it counts as all its
    /// pages but one.
    pub fn limit_pages(&self) -> u64 {
        let block_pages = u64::from(self.space.block_pages());
        let usable = u64::from(self.space.usable_count());
        let percent = u64::from(self.options.over_provision_percent);
        let journal = 2 * self.checkpoint_interval() / block_pages + 1;
        let saved_pages = self.checkpoints.iter().map(|(_, pages)| pages.len() as u64).sum::<u64>();
        let log = match self.options.durability {
            Durability::Capacitor => 0,
            Durability::Log => u64::from(self.options.memtable_pages) * 2 / block_pages + 1,
        };
        // Besides what it writes, a flush plans one block for each stream of values.
        let flushed = u64::from(self.values.group_count());
        let fixed = u64::from(self.restart_blocks() + PART_BLOCKS);
        let work = self.streams().count() as u64 + fixed + flushed;
        let needed = work + journal + saved_pages / block_pages + 1 + log;
        let reserve = needed.max((usable * percent).div_ceil(100));
        usable.saturating_sub(reserve) * (block_pages - 1)
    }

    /// Pages that tables, metadata and values need now. Separated values count with the pages that
    /// they will need once they are collected.
    pub fn live_pages(&self) -> u64 {
        let others = self.space.data_pages - self.values.used_pages();
        others + self.values.needed_pages(self.space.page_bytes())
    }

    /// Pages that hold separated values, and the pages that the needed ones would take. Until the
    /// needed values are counted after an open, all of them count as needed.
    pub fn value_pages(&self) -> (u64, u64) {
        (self.values.used_pages(), self.values.needed_pages(self.space.page_bytes()))
    }

    /// Pages that are reserved for segments of tables, in addition to live pages. Under lLSM each
    /// table below level 0 reserves what it lacks of a full one. No block is set aside for a table:
    /// its segments go to the open block, and the budget makes sure that there is one.
    pub fn reserved_pages(&self) -> u64 {
        self.reserved_pages
    }

    /// Computes the budget of all tables again, because the tree has changed.
    pub(super) fn count_reserved(&mut self) {
        let block_pages = self.space.block_pages();
        let open = |node: &Arc<Node>| u64::from(block_pages.saturating_sub(node.charged_pages));
        self.reserved_pages = match self.options.form {
            Form::Append => self.tree.nodes().filter(|node| node.level > 0).map(open).sum(),
            Form::Remap | Form::Delay => 0,
        };
    }

    fn needed_pages(&self) -> u64 {
        self.live_pages() + self.reserved_pages
    }

    pub(super) fn full(&self) -> Error {
        Error::Full { live_pages: self.needed_pages(), limit_pages: self.limit_pages() }
    }

    /// A segment takes no space that its table has not reserved.
    pub(super) fn is_short_of_space(&self) -> bool {
        self.options.form != Form::Append
            && self.live_pages() * 100 > self.limit_pages() * SHORT_PERCENT
    }

    /// Called before writes are taken. Flushes a full memtable, and refuses writes that have no
    /// room. Deletes may exceed the limit by one memtable, so that a full device can be emptied. If
    /// blocks that turned bad have lowered the limit, deletes may go on as long as blocks can be
    /// freed for a flush.
    pub(super) fn make_writable(&mut self, more_pages: u64, writes: &[Write<'_>]) -> Result<()> {
        let most_pages = u64::from(self.options.memtable_pages);
        let page_bytes = self.space.page_bytes();
        if !self.memtable.is_empty() && self.memtable.page_count(page_bytes) >= most_pages {
            self.flush()?;
        }
        let is_delete = |write: &Write<'_>| write.parts().0 == Kind::Delete;
        let extra_pages = if writes.iter().all(is_delete) { most_pages } else { 0 };
        if self.has_room_for(more_pages, extra_pages) {
            return Ok(());
        }
        self.look_at_values(true)?;
        if !self.is_squeezed && !self.has_room_for(more_pages, extra_pages) {
            self.counters.squeezes += 1;
            self.flush_memtable()?;
            self.squeeze(|device| device.has_room_for(more_pages + most_pages, 0))?;
            self.is_squeezed = !self.has_room_for(more_pages + most_pages, 0);
        }
        if self.has_room_for(more_pages, extra_pages) {
            return Ok(());
        }
        let flushed_blocks = self.blocks_for(most_pages + more_pages, 1);
        match extra_pages > 0 && self.make_room(flushed_blocks)? {
            true => Ok(()),
            false => Err(self.full()),
        }
    }

    fn has_room_for(&self, more_pages: u64, extra_pages: u64) -> bool {
        let waiting = self.memtable.page_count(self.space.page_bytes());
        let needed = self.needed_pages() + waiting + more_pages;
        needed <= self.limit_pages() + extra_pages
    }

    /// Whether this many blocks can be opened without a collection.
    pub(super) fn has_room_now(&self, planned_blocks: u32) -> bool {
        self.space.free_count() >= planned_blocks.saturating_add(self.spare_blocks())
    }

    /// Collects until this many blocks can be opened in addition to those that streams may open.
    /// Returns whether that succeeded.
    pub(super) fn make_room(&mut self, planned_blocks: u32) -> Result<bool> {
        let usable = self.space.usable_count();
        for _ in 0..4 * usable {
            if self.has_room_now(planned_blocks) {
                return Ok(true);
            }
            let wanted = planned_blocks.saturating_add(self.spare_blocks());
            if wanted >= usable || !self.collect()? {
                return Ok(false);
            }
        }
        Ok(false)
    }

    /// Empties the cheapest block. Returns `false` if nothing can be gained.
    fn collect(&mut self) -> Result<bool> {
        self.look_at_values(false)?;
        let cost = |block: u32| {
            let (pages, meta_pages) = self.move_cost(block);
            (pages + meta_pages, self.space.nand.erase_count(block))
        };
        let victim = self.space.movable(Use::Sealed).min_by_key(|block| cost(*block));
        let gains = |block: &u32| self.move_cost(*block).0 + 2 <= self.space.block_pages();
        let Some(victim) = victim.filter(gains) else { return Ok(false) };
        self.empty(victim)?;
        self.counters.collections += 1;
        self.level_wear()?;
        self.checkpoint_if_due()?;
        Ok(true)
    }

    /// How many pages are programmed when a block is emptied, and how many of them are metadata
    /// pages.
    fn move_cost(&self, block: u32) -> (u32, u32) {
        if self.space.type_of(block) == Some(PageType::Value) {
            let first = block * self.space.block_pages();
            let pages = first..first + self.space.block_pages();
            return (self.values.cost(pages, self.space.page_bytes()), 0);
        }
        (self.space.live_in(block), self.references.tables(block).count() as u32)
    }

    /// Moves what is left in blocks in which a program failed.
    pub(super) fn evacuate(&mut self) -> Result<()> {
        loop {
            let failing = self.space.movable(Use::Failing).next();
            let Some(block) = failing else { return Ok(()) };
            self.empty(block)?;
        }
    }

    /// If other blocks are far more worn, the content of the least worn block is cold. It is moved,
    /// and the block is used again.
    fn level_wear(&mut self) -> Result<()> {
        let worn = |block: &u32| self.space.nand.erase_count(*block);
        let coldest = self.space.movable(Use::Sealed).min_by_key(worn);
        let most = self.space.nand.wear().max;
        let is_cold = |block: &u32| worn(block) + u64::from(self.options.wear_gap) < most;
        let has_room = self.space.free_count() > self.spare_blocks();
        if let Some(block) = coldest.filter(|block| has_room && is_cold(block)) {
            self.counters.wear_moves += 1;
            self.empty(block)?;
        }
        Ok(())
    }

    /// Moves the content of a block. A page that cannot be read stays, and its block with it, so
    /// that its reader gets an error and not an older version.
    fn empty(&mut self, block: u32) -> Result<()> {
        let moved = self.transact(Cause::Collection, |device| match device.space.type_of(block) {
            Some(PageType::Meta) => device.move_meta_pages(block),
            Some(PageType::Value) => device.move_value_pages(block),
            _ => device.move_kv_pages(block),
        });
        match moved {
            Err(Error::Uncorrectable(_) | Error::PageDamaged(..)) => {
                self.space.mark_stuck(block);
                Ok(())
            }
            other => other,
        }
    }

    fn move_meta_pages(&mut self, block: u32) -> Result<()> {
        let block_pages = self.space.block_pages();
        // Virtual tables whose real tables have their metadata here.
        let virtuals: BTreeSet<u64> = self.references.tables(block).collect();
        let is_here = |node: &&Arc<Node>| {
            node.meta_page / block_pages == block || virtuals.contains(&node.id)
        };
        let nodes: Vec<Arc<Node>> = self.tree.nodes().filter(is_here).cloned().collect();
        let (mut commit, mut change) = (self.tree.next_commit(), Change::default());
        let mut left = Vec::new();
        for node in &nodes {
            let owner = Owner { level: node.level, txn: commit.txn, id: node.id, index: 0 };
            if virtuals.contains(&node.id) {
                let table = self.read_meta(node)?;
                let mut new = TableMeta { txn: commit.txn, level: node.level, ..table.clone() };
                for real in &mut new.reals {
                    if real.page / block_pages == block {
                        real.page = self.copy_meta(real.page, owner)?;
                    }
                }
                self.replace(node, table, new, &mut commit, &mut change)?;
            } else {
                commit.moved.push((node.id, self.copy_meta(node.meta_page, owner)?));
                left.push(node.meta_page);
            }
        }
        self.commit(&commit, change)?;
        left.into_iter().for_each(|page| self.space.release(page, 1));
        Ok(())
    }

    fn copy_meta(&mut self, page: u32, owner: Owner) -> Result<u32> {
        let bytes = self.space.read(page, 1)?;
        let copy = self.space.program(Stream::Meta, bytes, owner)?;
        self.forget_meta(copy);
        Ok(copy)
    }

    /// Writes the metadata of a table whose pages moved.
    fn replace(
        &mut self,
        node: &Node,
        old: TableMeta,
        new: TableMeta,
        commit: &mut Commit,
        change: &mut Change,
    ) -> Result<()> {
        commit.moved.push((node.id, self.write_meta(&new)?.meta_page));
        change.added.push(new);
        change.removed.push((old, node.meta_page));
        Ok(())
    }

    fn move_kv_pages(&mut self, block: u32) -> Result<()> {
        let ids: Vec<u64> = self.references.tables(block).collect();
        let nodes: Vec<Arc<Node>> =
            ids.iter().filter_map(|id| self.tree.node(*id).cloned()).collect();
        let old = self.read_metas(&nodes)?;
        let mut commit = self.tree.next_commit();
        let moved = self.copy_groups(block, &nodes, &old, commit.txn)?;
        let mut change = Change::default();
        for (node, table) in nodes.iter().zip(old) {
            let mut new = TableMeta { txn: commit.txn, level: node.level, ..table.clone() };
            let mut strata = BTreeSet::new();
            for entry in &mut new.entries {
                if let Some(page) = moved.get(&entry.page) {
                    entry.page = *page;
                    strata.insert(entry.stratum);
                }
            }
            for stratum in strata.into_iter().filter(|_| !table.reals.is_empty()) {
                let real = new.stratum(stratum);
                new.reals[usize::from(stratum)].page = self.write_meta(&real)?.meta_page;
            }
            self.replace(node, table, new, &mut commit, &mut change)?;
        }
        self.commit(&commit, change)
    }

    /// Copies the page groups of a block, and returns where each one went.
    fn copy_groups(
        &mut self,
        block: u32,
        nodes: &[Arc<Node>],
        tables: &[TableMeta],
        txn: u64,
    ) -> Result<BTreeMap<u32, u32>> {
        let mut groups: BTreeMap<u32, (u16, u8, u64)> = BTreeMap::new();
        for (node, table) in nodes.iter().zip(tables) {
            for entry in &table.entries {
                if self.references.block(entry.page) == block {
                    let group = groups.entry(entry.page).or_insert((0, 0, 0));
                    *group = (entry.page_count, group.1.max(node.level), node.id);
                }
            }
        }
        let mut moved = BTreeMap::new();
        for (page, (page_count, level, id)) in groups {
            let bytes = self.space.read(page, u32::from(page_count))?;
            let owner = Owner { level, txn, id, index: 0 };
            moved.insert(page, self.space.program(self.kv_stream(level), bytes, owner)?);
        }
        Ok(moved)
    }
}
