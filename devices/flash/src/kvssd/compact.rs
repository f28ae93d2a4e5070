//! Flushes and compactions. Each is one transaction, or several if its outputs do not fit at once.
//!
//! A compaction, step by step:
//!
//! 1. Read the metadata pages of its tables and plan its outputs (`remap.rs`).
//! 2. Count the blocks that they may take, and collect until that many are free. Collections move
//!    pages, so step 1 is repeated after one.
//! 3. If there is no room, or the commit would not fit a journal page, only the part up to a key is
//!    done now: inputs that reach beyond it are cut, and the rest stays where it is. The part is
//!    halved until it fits. The commit also says what is cut. If the commit of no part fits, a
//!    checkpoint takes its place (`KvSsd::commit`).
//! 4. Program pages, then metadata pages, then the journal page.

use std::cell::RefCell;
use std::sync::Arc;

use runstone_policy::partition::CutKey;

use crate::error::{Error, Result};
use crate::kvssd::compaction::append::{append, plan_append};
use crate::kvssd::compaction::remap::{CompactionInput, Output, RemapLimits, plan_compaction};
use crate::kvssd::counters::Cause;
use crate::kvssd::device::{Change, KvSsd, Saved};
use crate::kvssd::format::key::Key;
use crate::kvssd::format::kv_page::record_bytes;
use crate::kvssd::format::meta_page::{Clip, Entry, TableMeta};
use crate::kvssd::format::record::{KeyBlock, Kind, Version};
use crate::kvssd::options::{Form, Placement};
use crate::kvssd::space::{Owner, Space, Stream};
use crate::kvssd::tables::merge::Merged;
use crate::kvssd::tables::rewrite::Rewriter;
use crate::kvssd::tables::{PageReader, PageWriter};
use crate::kvssd::tree::journal::node_bytes;
use crate::kvssd::tree::{Commit, Node};
use crate::nand::SharedBytes;

/// A table in which more than one record in this many is a delete is rewritten, not remapped.
const TOMBSTONE_DIVISOR: u64 = 4;

/// Blocks for which a delayed compaction may always collect.
const DELAYED_PART_BLOCKS: u64 = 4;

/// How many tables of lLSM are merged at a time when space is short.
const MERGED_TABLES: usize = 8;

/// Tables that are to sink, or to be rewritten where they are.
#[derive(Clone, Debug, Default)]
pub(super) struct Job {
    /// Oldest first.
    pub(super) upper: Vec<Arc<Node>>,
    pub(super) output_level: u8,
    /// Whether nothing is remapped.
    pub(super) is_rewrite: bool,
    /// The cursors that the policy wants to be remembered.
    pub(super) cursors: Vec<(u32, Box<[u8]>)>,
    pub(super) last_level: Option<u32>,
}

/// The inputs of one transaction, and what is left of the tables that it cuts.
struct Piece {
    upper: Vec<TableMeta>,
    lower: Vec<TableMeta>,
    /// Metadata pages of all inputs, those of upper tables first.
    nodes: Vec<Arc<Node>>,
    rest: Vec<TableMeta>,
    page_count: u64,
}

impl Piece {
    /// The upper tables by run, oldest first.
    fn runs(&self) -> Vec<&[TableMeta]> {
        let mut at = 0;
        let of_a_run = |one: &Arc<Node>, next: &Arc<Node>| one.level > 0 && one.level == next.level;
        let runs = self.nodes[..self.upper.len()].chunk_by(of_a_run);
        runs.map(|run| {
            at += run.len();
            &self.upper[at - run.len()..at]
        })
        .collect()
    }
}

/// Where new tables belong, and where they are cut.
struct Place<'a> {
    level: u8,
    txn: u64,
    cuts: &'a [CutKey],
    /// Most pages of a table.
    fill_pages: u32,
}

impl KvSsd {
    /// Turns the memtable into tables of level 0. The commit says that its writes are in tables.
    pub(super) fn flush_memtable(&mut self) -> Result<()> {
        if self.memtable.is_empty() {
            return Ok(());
        }
        let page_count = self.memtable.page_count(self.space.page_bytes());
        // Each stream of values may open a block, and the last page of each is not full.
        let streams = u32::from(self.values.group_count());
        let blocks = self.blocks_for(page_count + u64::from(streams), 1) + streams;
        if !self.make_room(blocks)? {
            return Err(self.full());
        }
        if self.apart_from().is_some() && !self.is_saved_apart {
            self.checkpoint()?;
        }
        let memtable = std::mem::take(&mut self.memtable);
        let flushed = self.transact(Cause::Flush, |device| {
            let mut commit = device.tree.next_commit();
            commit.flushed_seq = commit.last_seq;
            let mut change = Change::default();
            let mut keys = memtable.keys();
            let (apart_from, mut values) = (device.apart_from(), Vec::new());
            let next_key = |block: &mut KeyBlock| {
                let Some((key, versions)) = keys.next() else { return Ok(false) };
                for version in versions.all() {
                    let is_apart = apart_from.is_some_and(|from| version.value.len() >= from);
                    if is_apart && version.kind == Kind::Put {
                        block.push(key, version.pointer());
                        values.push((key.into(), version.clone()));
                    } else {
                        block.push(key, version.clone());
                    }
                }
                Ok(true)
            };
            let fill_pages = device.space.block_pages();
            let place = Place { level: 0, txn: commit.txn, cuts: &[], fill_pages };
            let tables = device.write_tables(place, &mut change, |rewriter, _, writer| {
                rewriter.write(next_key, writer)
            })?;
            device.write_values(values, &mut commit, &mut change)?;
            for table in tables {
                device.add_table(table, 0, &mut commit, &mut change)?;
            }
            device.commit(&commit, change)
        });
        if flushed.is_err() {
            self.memtable = memtable;
            return flushed;
        }
        self.counters.flushes += 1;
        let flushed_seq = self.tree.flushed_seq;
        match &mut self.saved {
            Saved::Capacitor(capacitor) => {
                // If the machine loses power, the writes are in tables or in the file.
                self.space.nand.sync()?;
                capacitor.clear()?;
            }
            Saved::Log(log) => log.forget(flushed_seq, &mut self.space),
        }
        self.after_commit()
    }

    /// Does the work that may be due after each transaction.
    pub(super) fn after_commit(&mut self) -> Result<()> {
        self.evacuate()?;
        self.checkpoint_if_due()
    }

    /// How many blocks this many pages of tables may need in addition to the open ones.
    pub(super) fn blocks_for(&self, page_count: u64, outputs: u64) -> u32 {
        // If records are packed again, more room may be unused at the ends of pages than before.
        let with_waste = page_count + page_count / 8;
        let blocks = with_waste.div_ceil(u64::from(self.space.block_pages()));
        let partial = if self.options.placement == Placement::PerTable { outputs } else { 0 };
        u32::try_from(blocks + partial).unwrap_or(u32::MAX)
    }

    /// Moves down what exceeds the policy's limits, and rewrites tables that are full of deletes.
    pub(super) fn settle(&mut self) -> Result<()> {
        let policy = self.options.compaction_policy()?;
        let numbers = self.options.policy_options(&self.space.nand.geometry());
        let (busy, heat) = Default::default();
        while let Some(plan) = policy.pick(&self.tree.shape(), &busy, &heat, &numbers) {
            self.run_plan(plan)?;
        }
        while let Some(node) = self.find_idle_deletes() {
            self.rewrite_in_place(node)?;
        }
        Ok(())
    }

    fn run_plan(&mut self, plan: runstone_policy::plan::Plan) -> Result<()> {
        let mut cursors = plan.cursors;
        let mut last_level = plan.last_level;
        for compaction in &plan.compactions {
            let inputs = compaction.inputs.iter().flat_map(|input| input.tables.iter());
            let mut upper: Vec<Arc<Node>> =
                inputs.filter_map(|id| self.tree.node(*id).cloned()).collect();
            let output_level = self.target(compaction.output_level, &upper);
            if upper.iter().any(|node| node.level != output_level) {
                upper.retain(|node| node.level != output_level);
            }
            upper.sort_by_key(|node| (std::cmp::Reverse(node.level), node.max_seq));
            let (cursors, last_level) = (std::mem::take(&mut cursors), last_level.take());
            let is_rewrite = false;
            self.run(&Job { upper, output_level, is_rewrite, cursors, last_level })?;
        }
        let mut moves = Vec::new();
        for (from, to) in plan.relabel {
            // If there are several runs, those that meet would have to move one after the other.
            let levels = self.tree.bands.levels(from);
            debug_assert_eq!(levels.len(), 1, "policies of several runs relabel nothing");
            let tables = levels.flat_map(|level| self.tree.level(level as usize));
            moves.extend(tables.map(|node| (node.id, to)));
        }
        moves.extend(plan.moves.iter().map(|step| (step.table, step.to_level)));
        self.move_tables(moves, cursors, last_level)
    }

    /// The level of the tree that receives a compaction into a level of the policy.
    fn target(&self, band: u32, upper: &[Arc<Node>]) -> u8 {
        let range = hull(upper);
        let meets = |level: u32| !self.tree.overlapping(level as usize, &range).is_empty();
        let levels = upper.iter().map(|node| u32::from(node.level));
        self.tree.bands.target(band, levels, meets) as u8
    }

    /// Moves tables to another level of the policy. A table that overlaps nothing there needs only
    /// the journal page. Tables are given by id, because collections in between move their metadata
    /// pages. The tables do not overlap each other.
    fn move_tables(
        &mut self,
        moves: Vec<(u64, u32)>,
        mut cursors: Vec<(u32, Box<[u8]>)>,
        last_level: Option<u32>,
    ) -> Result<()> {
        let mut moves = moves.into_iter().peekable();
        let is_relabelled = last_level.is_some_and(|last| last != self.tree.last_level);
        let mut is_due = is_relabelled || !cursors.is_empty();
        while is_due || moves.peek().is_some() {
            is_due = false;
            if !self.make_room(0)? {
                return Err(self.full());
            }
            let mut commit = self.tree.next_commit();
            commit.cursors = std::mem::take(&mut cursors);
            commit.last_level = last_level.unwrap_or(commit.last_level);
            let mut used_bytes: usize = commit.cursors.iter().map(|(_, key)| 6 + key.len()).sum();
            let room = self.space.page_bytes() - 128;
            let mut sinking = None;
            while let Some((id, band)) = moves.peek().copied() {
                let Some(node) = self.tree.node(id) else {
                    moves.next();
                    continue;
                };
                used_bytes += 8 + node_bytes(&node.fence);
                if used_bytes > room {
                    break;
                }
                moves.next();
                let meets = |level: u32| {
                    level > 0 && !self.tree.overlapping(level as usize, &node.fence).is_empty()
                };
                let level = self.tree.bands.rest(band, node.level.into(), meets) as u8;
                if level == node.level {
                    continue;
                }
                if meets(level.into()) {
                    sinking = Some((Arc::clone(node), level));
                    break;
                }
                commit.removed.push(id);
                commit.added.push(Node { level, ..Node::clone(node) });
            }
            self.counters.moved_tables += commit.added.len() as u64;
            self.transact(Cause::Compaction, |device| device.commit(&commit, Change::default()))?;
            self.after_commit()?;
            if let Some((node, output_level)) = sinking {
                self.run(&Job { upper: vec![node], output_level, ..Job::default() })?;
            }
        }
        Ok(())
    }

    /// Finds a table with many deletes that no longer hide anything.
    fn find_idle_deletes(&self) -> Option<Arc<Node>> {
        let first_snapshot = self.snapshots.keys().next().copied().unwrap_or(u64::MAX);
        let is_idle = |node: &&Arc<Node>| {
            let level = usize::from(node.level);
            node.tombstones * TOMBSTONE_DIVISOR > node.record_count
                && level > 0
                && node.max_seq <= first_snapshot
                && (level + 1..self.tree.level_count())
                    .all(|below| self.tree.overlapping(below, &node.fence).is_empty())
        };
        self.tree.nodes().find(is_idle).cloned()
    }

    pub(super) fn rewrite_in_place(&mut self, node: Arc<Node>) -> Result<()> {
        let output_level = node.level;
        self.run(&Job { upper: vec![node], output_level, is_rewrite: true, ..Job::default() })
    }

    /// Runs a job, or its first part if there is no room for the whole job.
    pub(super) fn run(&mut self, job: &Job) -> Result<()> {
        let (mut most_pages, mut may_save) = (u64::MAX, false);
        loop {
            let inputs = self.inputs(job)?;
            let whole = inputs.page_count;
            let piece = if most_pages < whole { cut(inputs, most_pages) } else { inputs };
            let is_part = !piece.rest.is_empty();
            match self.try_piece(job, piece, may_save) {
                Ok(true) => {
                    self.counters.compactions += 1;
                    self.counters.split_compactions += u64::from(is_part);
                    return self.after_commit();
                }
                Ok(false) | Err(Error::OutOfBlocks | Error::JournalFull) => {}
                Err(other) => return Err(other),
            }
            most_pages = most_pages.min(whole) / 2;
            if most_pages == 0 {
                if may_save {
                    return Err(self.full());
                }
                (most_pages, may_save) = (u64::MAX, true);
            }
        }
    }

    fn inputs(&mut self, job: &Job) -> Result<Piece> {
        // A collection may have moved the metadata pages meanwhile.
        let present = |node: &Arc<Node>| self.tree.node(node.id).cloned();
        let mut nodes: Vec<Arc<Node>> = job.upper.iter().filter_map(present).collect();
        let upper = self.read_metas(&nodes)?;
        let is_sinking = nodes.iter().any(|node| node.level != job.output_level);
        let lower_nodes = match is_sinking {
            true => self.tree.overlapping(usize::from(job.output_level), &hull(&nodes)),
            false => Vec::new(),
        };
        let lower = self.read_metas(&lower_nodes)?;
        nodes.extend(lower_nodes);
        let tables = upper.iter().chain(&lower);
        let page_count = tables.flat_map(|table| &table.entries);
        let page_count = page_count.map(|entry| u64::from(entry.page_count)).sum();
        Ok(Piece { upper, lower, nodes, rest: Vec::new(), page_count })
    }

    /// Tries a piece. Returns `false` if it has no room. `may_save` says whether its commit may be
    /// too large for a journal page.
    fn try_piece(&mut self, job: &Job, piece: Piece, may_save: bool) -> Result<bool> {
        let limits = RemapLimits {
            threshold: self.threshold_for(job, &piece),
            table_pages: self.space.block_pages(),
            page_bytes: self.space.page_bytes(),
            cuts: self.options.cuts,
        };
        // A table that rises to the level of the output is older than the tables that it meets
        // there.
        let rises = job.upper.first().is_some_and(|node| node.level > job.output_level);
        let (upper, lower) = match rises {
            true => (vec![&piece.lower[..]], &piece.upper),
            false => (piece.runs(), &piece.lower),
        };
        let input = CompactionInput { upper: &upper, lower };
        let outputs = match self.options.form {
            Form::Delay => self.delay(&piece, &input, &limits),
            Form::Append if limits.threshold > 0 && !rises => plan_append(&input),
            // A table that does not append is rewritten.
            Form::Append => {
                plan_compaction(&input, &self.references, &RemapLimits { threshold: 0, ..limits })
            }
            Form::Remap => plan_compaction(&input, &self.references, &limits),
        };
        let (blocks, journal_bytes) = self.needs(job, &piece, &outputs);
        if journal_bytes > self.space.page_bytes() && !may_save {
            return Ok(false);
        }
        // A delayed compaction has too many tables to collect for all at once, and blocks of whole
        // tables give little to collect. Each part of it frees blocks for the next part.
        let is_large = piece.page_count > DELAYED_PART_BLOCKS * u64::from(limits.table_pages);
        if self.options.form == Form::Delay && is_large && !self.has_room_now(blocks) {
            return Ok(false);
        }
        let txn = self.tree.txn;
        if !self.make_room(blocks)? {
            return Ok(false);
        }
        if self.tree.txn != txn {
            // Collections moved pages: plan again, now that there is room.
            let inputs = self.inputs(job)?;
            let piece = match piece.rest.is_empty() {
                true => inputs,
                false => cut(inputs, piece.page_count),
            };
            return self.try_piece(job, piece, may_save);
        }
        self.transact(Cause::Compaction, |device| device.execute(job, piece, outputs))?;
        Ok(true)
    }

    /// TH, or 0 if the tables must be rewritten: because space is short, because deletes are many,
    /// or because a table is cut.
    fn threshold_for(&self, job: &Job, piece: &Piece) -> u8 {
        let records: u64 = piece.nodes.iter().map(|node| node.record_count).sum();
        let deletes: u64 = piece.nodes.iter().map(|node| node.tombstones).sum();
        let is_rewrite = job.is_rewrite
            || !piece.rest.is_empty()
            || deletes * TOMBSTONE_DIVISOR > records
            || self.is_short_of_space();
        if is_rewrite { 0 } else { self.options.threshold }
    }

    /// The plan of dLSM: one virtual table, or one rewrite of all. The tables of level 0 span all
    /// keys, so a virtual table of them would take the whole next level with it.
    fn delay(
        &self,
        piece: &Piece,
        input: &CompactionInput<'_>,
        limits: &RemapLimits,
    ) -> Vec<Output> {
        let tables = piece.upper.iter().chain(&piece.lower);
        let meta_page = |table: &TableMeta| {
            let mut all = tables.clone().zip(&piece.nodes);
            all.find(|(other, _)| other.id == table.id).map_or(0, |(_, node)| node.meta_page)
        };
        let is_stacked = piece.nodes.first().is_some_and(|node| node.level == 0);
        let most = if is_stacked { 0 } else { limits.threshold };
        let whole = TableMeta::over(input.tables().map(|table| (table, meta_page(table))), most);
        match whole.filter(|table| table.encode(limits.page_bytes).is_some()) {
            Some(table) => vec![Output::Delay(table)],
            None => {
                let rewriting = RemapLimits { threshold: 0, ..*limits };
                plan_compaction(input, &self.references, &rewriting)
            }
        }
    }

    /// The blocks that must be free, and the bytes of the journal page.
    fn needs(&self, job: &Job, piece: &Piece, outputs: &[Output]) -> (u32, usize) {
        let (mut pages, mut tables, mut fence_bytes) = (0, piece.rest.len(), 0);
        let mut rewritten = 0;
        for output in outputs {
            let (kept, written) = match output {
                Output::Remap { entries, .. } => (&entries[..], &[][..]),
                Output::Delay(table) => (&table.entries[..], &[][..]),
                Output::Rewrite { entries, .. } => (&[][..], &entries[..]),
                Output::Append { lower, entries } => (&lower.entries[..], &entries[..]),
            };
            let longest = kept.iter().chain(written).map(|entry| node_bytes(&entry.clip)).max();
            fence_bytes = fence_bytes.max(longest.unwrap_or(0));
            tables += 1;
            let mut count: u64 = written.iter().map(|entry| u64::from(entry.page_count)).sum();
            let mut meta_bytes = TableMeta::encoded_bytes(written);
            let cuts = match output {
                Output::Rewrite { cuts, .. } => cuts.len() as u64,
                Output::Append { lower, .. } => {
                    // If the table overflows, all of it is written.
                    let kept_pages = u64::from(lower.charged_pages());
                    meta_bytes += TableMeta::encoded_bytes(kept);
                    let may_overflow = count + kept_pages > u64::from(self.space.block_pages())
                        || meta_bytes > self.space.page_bytes();
                    count += if may_overflow { kept_pages } else { 0 };
                    1
                }
                Output::Remap { .. } | Output::Delay(_) => continue,
            };
            let by_pages = count / u64::from((self.fill_pages() - 1).max(1));
            let by_meta = meta_bytes * 2 / self.space.page_bytes();
            pages += count;
            rewritten += 1 + by_pages.max(by_meta as u64) + cuts;
        }
        let cursors: usize = job.cursors.iter().map(|(_, key)| 6 + key.len()).sum();
        let tables = tables + rewritten as usize;
        let journal_bytes = 128 + cursors + 8 * piece.nodes.len() + tables * fence_bytes;
        (self.blocks_for(pages, rewritten), journal_bytes)
    }

    /// How many pages are filled of tables that are rewritten together. Under lLSM a quarter stays
    /// free for segments: a full table would overflow at the next segment.
    pub(super) fn fill_pages(&self) -> u32 {
        match self.options.form {
            Form::Append => (self.space.block_pages() * 3 / 4).max(1),
            Form::Remap | Form::Delay => self.space.block_pages(),
        }
    }

    fn execute(&mut self, job: &Job, piece: Piece, outputs: Vec<Output>) -> Result<()> {
        let mut commit = self.tree.next_commit();
        commit.cursors.clone_from(&job.cursors);
        commit.last_level = job.last_level.unwrap_or(commit.last_level);
        let mut change = Change::default();
        let fill_pages = self.fill_pages();
        for output in outputs {
            match output {
                Output::Remap { entries, counter } => {
                    self.counters.remapped_tables += 1;
                    let table = remapped(&piece, entries, counter);
                    self.add_table(table, job.output_level, &mut commit, &mut change)?;
                }
                Output::Delay(TableMeta { entries, reals, counter, .. }) => {
                    self.counters.remapped_tables += 1;
                    let table = TableMeta { reals, ..remapped(&piece, entries, counter) };
                    self.add_table(table, job.output_level, &mut commit, &mut change)?;
                }
                Output::Rewrite { entries, cuts } => {
                    let (level, page_bytes) = (job.output_level, self.space.page_bytes());
                    let place = Place { level, txn: commit.txn, cuts: &cuts, fill_pages };
                    let tables =
                        self.write_tables(place, &mut change, |rewriter, reader, writer| {
                            rewriter.rewrite(Merged::new(entries, page_bytes, reader), writer)
                        })?;
                    self.counters.rewritten_tables += tables.len() as u64;
                    for table in tables {
                        self.add_table(table, level, &mut commit, &mut change)?;
                    }
                }
                Output::Append { lower, entries } => {
                    let (level, most) = (job.output_level, self.options.threshold);
                    let fill_pages = self.space.block_pages();
                    let place = Place { level, txn: commit.txn, cuts: &[], fill_pages };
                    let (segments, is_untouched) = (lower.counter, entries.is_empty());
                    let tables =
                        self.write_tables(place, &mut change, |rewriter, reader, writer| {
                            append(lower, entries, most, rewriter, reader, writer)
                        })?;
                    match &tables[..] {
                        [table] if table.counter > segments => self.counters.appended_segments += 1,
                        _ if is_untouched => {}
                        _ => self.counters.rewritten_tables += tables.len() as u64,
                    }
                    for table in tables {
                        self.add_table(table, level, &mut commit, &mut change)?;
                    }
                }
            }
        }
        let is_whole = piece.rest.is_empty();
        for table in piece.rest {
            let level = table.level;
            self.add_table(table, level, &mut commit, &mut change)?;
        }
        for (node, table) in piece.nodes.iter().zip(piece.upper.into_iter().chain(piece.lower)) {
            commit.removed.push(node.id);
            // A table that was cut differs from the table on flash; a whole table is known.
            let table = match is_whole {
                true => self.read_meta_again(node, table)?,
                false => self.read_meta(node)?,
            };
            change.removed.push((table, node.meta_page));
        }
        self.commit(&commit, change)
    }

    /// Writes new tables, and notes in `change` which pointers they no longer have. `write`
    /// receives the rewriter that packs them, and the flash to read and write.
    fn write_tables(
        &mut self,
        Place { level, txn, cuts, fill_pages }: Place<'_>,
        change: &mut Change,
        write: impl FnOnce(
            &Rewriter<'_>,
            &mut dyn PageReader,
            &mut dyn PageWriter,
        ) -> Result<Vec<TableMeta>>,
    ) -> Result<Vec<TableMeta>> {
        let snapshots: Vec<u64> = self.snapshots.keys().copied().collect();
        let (tree, values) = (&self.tree, &self.values);
        let dropped = RefCell::new(&mut change.values.dropped);
        let on_drop = |key: &[u8], version: &Version| {
            if let Some(len) = version.apart_bytes() {
                let bytes = record_bytes(key.len(), len);
                dropped.borrow_mut().push((values.group_of(key), version.seq, bytes));
            }
        };
        let rewriter = Rewriter {
            snapshots: &snapshots,
            // Level 0 hides deeper levels, and its own older tables.
            is_deeper: &|key| level == 0 || tree.is_below(usize::from(level), key),
            page_bytes: self.space.page_bytes(),
            table_pages: fill_pages,
            is_even: self.options.form == Form::Append,
            filter_bytes: match self.options.has_filters {
                true => self.space.page_bytes() / (2 * self.space.block_pages() as usize),
                false => 0,
            },
            cuts,
            on_drop: &on_drop,
        };
        let stream = self.kv_stream(level);
        let owner = Owner { level, txn, id: tree.next_table_id, index: 0 };
        let space = RefCell::new(&mut self.space);
        let mut writer = Writing { space: &space, stream, owner };
        let tables = write(&rewriter, &mut Reading(&space), &mut writer)?;
        self.end_table(stream);
        Ok(tables)
    }

    /// Under nLSM the next page belongs to another table and goes to another block.
    fn end_table(&mut self, stream: Stream) {
        if self.options.placement == Placement::PerTable {
            self.space.seal(stream);
        }
    }

    fn add_table(
        &mut self,
        table: TableMeta,
        level: u8,
        commit: &mut Commit,
        change: &mut Change,
    ) -> Result<()> {
        let table = TableMeta { id: commit.next_table_id, level, txn: commit.txn, ..table };
        commit.next_table_id += 1;
        commit.added.push(self.write_meta(&table)?);
        change.added.push(table);
        Ok(())
    }

    /// Moves everything to the deepest level and rewrites it there, which is the smallest form.
    pub fn compact(&mut self) -> Result<()> {
        self.flush_memtable()?;
        self.squeeze(|_| false)
    }

    /// Compacts table by table, until `is_enough` says so.
    pub(super) fn squeeze(&mut self, is_enough: impl Fn(&KvSsd) -> bool) -> Result<()> {
        let bottom = self.tree.level_count().saturating_sub(1).max(1);
        for level in 0..bottom {
            while !self.tree.level(level).is_empty() && !is_enough(self) {
                let tables = self.tree.level(level);
                let upper = if level == 0 { tables.to_vec() } else { tables[..1].to_vec() };
                let range = hull(&upper);
                let meets = |below: &usize| !self.tree.overlapping(*below, &range).is_empty();
                // One level of the policy at a time. With all of them at once, lLSM ran full where
                // it does not with one (docs/papers/kvssd.md, 1.1 volumes).
                let bands = self.tree.bands;
                let below = bands.levels(bands.band(level as u32) + 1).end as usize - 1;
                let last = below.min(bottom);
                let output_level = (level + 1..last).find(meets).unwrap_or(last) as u8;
                self.run(&Job { upper, output_level, is_rewrite: true, ..Job::default() })?;
            }
        }
        // Under lLSM tables are also merged, so that fewer of them reserve space.
        let count = if self.options.form == Form::Append { MERGED_TABLES } else { 1 };
        let is_wasteful = |nodes: &&[Arc<Node>]| {
            let pages: u32 = nodes.iter().map(|node| node.charged_pages).sum();
            nodes.iter().any(|node| node.counter > 1 || node.tombstones > 0)
                || count > 1 && (pages.div_ceil(self.fill_pages()) as usize) < nodes.len()
        };
        let wasteful: Vec<Vec<Arc<Node>>> = (self.tree.level(bottom).chunks(count))
            .filter(is_wasteful)
            .map(<[Arc<Node>]>::to_vec)
            .collect();
        for upper in wasteful {
            let is_there = upper.iter().all(|node| self.tree.node(node.id).is_some());
            if is_there && !is_enough(self) {
                let output_level = bottom as u8;
                self.run(&Job { upper, output_level, is_rewrite: true, ..Job::default() })?;
            }
        }
        Ok(())
    }
}

/// The range from the first to the last key of some tables.
fn hull(nodes: &[Arc<Node>]) -> Clip {
    let lo = nodes.iter().map(|node| &node.fence.lo).min().cloned().unwrap_or_default();
    let hi = nodes.iter().map(|node| &node.fence.hi).max().cloned().unwrap_or_default();
    Clip { lo, hi }
}

/// A remapped table. Its deletes are estimated by the pages that have some.
fn remapped(piece: &Piece, entries: Vec<Entry>, counter: u8) -> TableMeta {
    let inputs = || piece.upper.iter().chain(&piece.lower);
    let flagged = |entries: &[Entry]| -> u64 {
        let with_deletes = entries.iter().filter(|entry| entry.has_tombstones);
        with_deletes.map(|entry| u64::from(entry.record_count)).sum()
    };
    let all: u64 = inputs().map(|table| flagged(&table.entries)).sum();
    let deletes: u64 = inputs().map(|table| table.tombstones).sum();
    TableMeta {
        counter,
        min_seq: inputs().map(|table| table.min_seq).min().unwrap_or(0),
        max_seq: inputs().map(|table| table.max_seq).max().unwrap_or(0),
        tombstones: deletes * flagged(&entries) / all.max(1),
        entries,
        ..TableMeta::default()
    }
}

/// The part of the inputs up to a key, with about `most_pages` pages. What is beyond the key
/// becomes `rest`. Inputs that begin beyond the key are left out. Nothing is cut if all inputs
/// begin at one key.
fn cut(piece: Piece, most_pages: u64) -> Piece {
    let mut starts: Vec<(&[u8], u64)> = Vec::new();
    for entry in piece.upper.iter().chain(&piece.lower).flat_map(|table| &table.entries) {
        starts.push((&entry.clip.lo, u64::from(entry.page_count)));
    }
    starts.sort();
    let first = starts.first().map_or(&[][..], |(lo, _)| lo);
    let mut page_count = 0;
    let at = starts.iter().find(|(lo, count)| {
        let is_full = page_count >= most_pages && *lo > first;
        page_count += if is_full { 0 } else { *count };
        is_full
    });
    let Some(key) = at.map(|(lo, _)| Key::from(*lo)) else { return piece };
    let upper_count = piece.upper.len();
    let mut done = Piece { upper: vec![], lower: vec![], nodes: vec![], rest: vec![], page_count };
    let tables = piece.upper.into_iter().chain(piece.lower);
    for (at, (table, node)) in tables.zip(piece.nodes).enumerate() {
        let before = table.clipped(&Clip { lo: Key::default(), hi: key.clone() });
        if before.entries.is_empty() {
            continue;
        }
        let mut beyond = table.clipped(&Clip { lo: key.clone(), hi: table_end(&table) });
        if !table.reals.is_empty() {
            // The real tables that end before the key leave the virtual one.
            beyond = TableMeta::over([(&beyond, node.meta_page)], u8::MAX).unwrap_or_default();
            beyond = TableMeta {
                entries: beyond.entries,
                reals: beyond.reals,
                counter: beyond.counter,
                ..table.clone()
            };
        }
        done.rest.extend(Some(TableMeta { level: node.level, ..beyond }));
        if at < upper_count {
            done.upper.push(before)
        } else {
            done.lower.push(before)
        }
        done.nodes.push(node);
    }
    done.rest.retain(|table| !table.entries.is_empty());
    done
}

fn table_end(table: &TableMeta) -> Key {
    table.fence().map_or(Key::default(), |fence| fence.hi)
}

/// Lets reads and writes take turns on one flash.
struct Reading<'a, 'b>(&'a RefCell<&'b mut Space>);

impl PageReader for Reading<'_, '_> {
    fn read_pages(&mut self, entry: &Entry) -> Result<SharedBytes> {
        self.0.borrow_mut().read(entry.page, u32::from(entry.page_count))
    }
}

struct Writing<'a, 'b> {
    space: &'a RefCell<&'b mut Space>,
    stream: Stream,
    owner: Owner,
}

impl PageWriter for Writing<'_, '_> {
    fn write_pages(&mut self, bytes: SharedBytes) -> Result<u32> {
        self.space.borrow_mut().program(self.stream, bytes, self.owner)
    }
}
