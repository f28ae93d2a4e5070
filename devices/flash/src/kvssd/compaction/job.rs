//! A compaction: one transaction, or several if its outputs do not fit at once. Step by step:
//!
//! 1. Read the metadata pages of its tables and plan its outputs (`remap.rs`).
//! 2. Count the blocks that the outputs may take, and collect until that many are free. Collections
//!    move pages, so step 1 is repeated after a collection.
//! 3. If there is no room, or the commit would not fit a journal page, only the part up to a key is
//!    done now: inputs that reach beyond the key are cut, and the rest stays where it is. The part
//!    is halved until it fits. The commit also records the cuts. If no part has a commit that fits,
//!    a checkpoint takes its place (`Catalog::commit`).
//! 4. Program pages, then metadata pages, then the journal page.

use std::sync::Arc;

use super::append::{append, plan_append};
use super::filters::filter_size;
use super::output::{Place, fill_pages, write_tables};
use super::piece::{Piece, cut, hull};
use super::remap::{CompactionInput, Output, RemapLimits, plan_compaction};
use crate::error::{Error, Result};
use crate::kvssd::catalog::{Catalog, Transaction, read_meta, read_metas};
use crate::kvssd::collection::budget::{blocks_for, full, has_room_now, is_short_of_space};
use crate::kvssd::collection::{after_commit, make_room};
use crate::kvssd::counters::Cause;
use crate::kvssd::format::key::Key;
use crate::kvssd::format::meta_page::TableMeta;
use crate::kvssd::options::Form;
use crate::kvssd::tables::merge::Merged;
use crate::kvssd::tree::Node;
use crate::kvssd::tree::journal::node_bytes;

/// A table in which more than one record in this many is a delete is rewritten, not remapped.
const TOMBSTONE_DIVISOR: u64 = 4;

/// A delayed compaction of up to this many blocks may always collect.
const DELAYED_PART_BLOCKS: u64 = 4;

/// Tables that should sink, or be rewritten where they are.
#[derive(Clone, Debug, Default)]
pub(super) struct Job {
    /// Oldest first.
    pub(super) upper: Vec<Arc<Node>>,
    pub(super) output_level: u8,
    /// Whether nothing is remapped.
    pub(super) is_rewrite: bool,
    /// The cursors to remember for the policy.
    pub(super) cursors: Vec<(u32, Box<[u8]>)>,
    pub(super) last_level: Option<u32>,
}

/// Runs a job, or its first part if there is no room for the whole job. Returns the key up to which
/// it ran, if there is more.
pub(super) fn run(catalog: &mut Catalog, job: &Job) -> Result<Option<Key>> {
    let (mut most_pages, mut may_save) = (u64::MAX, false);
    loop {
        let inputs = inputs(catalog, job)?;
        let whole = inputs.page_count;
        let piece = if most_pages < whole { cut(inputs, most_pages) } else { inputs };
        let (is_part, end) = (!piece.rest.is_empty(), piece.end.clone());
        match try_piece(catalog, job, piece, may_save) {
            Ok(true) => {
                catalog.counters.compactions += 1;
                catalog.counters.split_compactions += u64::from(is_part);
                after_commit(catalog)?;
                return Ok(end);
            }
            Ok(false) | Err(Error::OutOfBlocks | Error::JournalFull) => {}
            Err(other) => return Err(other),
        }
        most_pages = most_pages.min(whole) / 2;
        if most_pages == 0 {
            if may_save {
                return Err(full(catalog));
            }
            (most_pages, may_save) = (u64::MAX, true);
        }
    }
}

fn inputs(catalog: &mut Catalog, job: &Job) -> Result<Piece> {
    // A collection may have moved the metadata pages since the job was planned.
    let present = |node: &Arc<Node>| catalog.tree.node(node.id).cloned();
    let mut nodes: Vec<Arc<Node>> = job.upper.iter().filter_map(present).collect();
    let upper = read_metas(&mut catalog.space, &nodes)?;
    let is_sinking = nodes.iter().any(|node| node.level != job.output_level);
    let lower_nodes = match is_sinking {
        true => catalog.tree.overlapping(usize::from(job.output_level), &hull(&nodes)),
        false => Vec::new(),
    };
    let lower = read_metas(&mut catalog.space, &lower_nodes)?;
    nodes.extend(lower_nodes);
    let tables = upper.iter().chain(&lower);
    let page_count = tables.flat_map(|table| &table.entries);
    let page_count = page_count.map(|entry| u64::from(entry.page_count)).sum();
    Ok(Piece { upper, lower, nodes, rest: Vec::new(), page_count, end: None })
}

/// Tries a piece. Returns `false` if there is no room for it. `may_save` says whether its commit
/// may be too large for a journal page.
fn try_piece(catalog: &mut Catalog, job: &Job, piece: Piece, may_save: bool) -> Result<bool> {
    let limits = RemapLimits {
        threshold: threshold_for(catalog, job, &piece),
        table_pages: catalog.space.block_pages(),
        page_bytes: catalog.space.page_bytes(),
        cuts: catalog.options.cuts,
    };
    // A table that rises to the level of the output is older than the tables that it overlaps
    // there.
    let rises = job.upper.first().is_some_and(|node| node.level > job.output_level);
    let (upper, lower) = match rises {
        true => (vec![&piece.lower[..]], &piece.upper),
        false => (piece.runs(), &piece.lower),
    };
    let input = CompactionInput { upper: &upper, lower };
    let outputs = match catalog.options.form {
        Form::Delay => delay(catalog, &piece, &input, &limits),
        Form::Append if limits.threshold > 0 && !rises => plan_append(&input),
        // A table to which nothing is appended is rewritten.
        Form::Append => {
            plan_compaction(&input, &catalog.references, &RemapLimits { threshold: 0, ..limits })
        }
        Form::Remap => plan_compaction(&input, &catalog.references, &limits),
    };
    let (blocks, journal_bytes) = needs(catalog, job, &piece, &outputs);
    if journal_bytes > catalog.space.page_bytes() && !may_save {
        return Ok(false);
    }
    // A delayed compaction has too many tables for collections to make room for all of them at
    // once, and blocks of whole tables give little to collect. Each part of it frees blocks for the
    // next part.
    let is_large = piece.page_count > DELAYED_PART_BLOCKS * u64::from(limits.table_pages);
    if catalog.options.form == Form::Delay && is_large && !has_room_now(catalog, blocks) {
        return Ok(false);
    }
    let txn = catalog.tree.txn;
    if !make_room(catalog, blocks)? {
        return Ok(false);
    }
    if catalog.tree.txn != txn {
        // Collections moved pages: plan again, now that there is room.
        let inputs = inputs(catalog, job)?;
        let piece = match piece.rest.is_empty() {
            true => inputs,
            false => cut(inputs, piece.page_count),
        };
        return try_piece(catalog, job, piece, may_save);
    }
    catalog.transact(Cause::Compaction, |catalog| execute(catalog, job, piece, outputs))?;
    Ok(true)
}

/// TH, or 0 if the tables must be rewritten: because space is short, because there are many
/// deletes, or because a table is cut.
fn threshold_for(catalog: &Catalog, job: &Job, piece: &Piece) -> u8 {
    let records: u64 = piece.nodes.iter().map(|node| node.record_count).sum();
    let deletes: u64 = piece.nodes.iter().map(|node| node.tombstones).sum();
    let is_rewrite = job.is_rewrite
        || !piece.rest.is_empty()
        || has_many_deletes(deletes, records)
        || is_short_of_space(catalog);
    if is_rewrite { 0 } else { catalog.options.threshold }
}

/// The plan of dLSM: one virtual table, or one rewrite of all tables. The tables of level 0 span
/// all keys, so a virtual table of them would include the whole next level.
fn delay(
    catalog: &Catalog,
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
            plan_compaction(input, &catalog.references, &rewriting)
        }
    }
}

/// How many blocks must be free, and how many bytes the commit may take in its journal page.
fn needs(catalog: &Catalog, job: &Job, piece: &Piece, outputs: &[Output]) -> (u32, usize) {
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
                let may_overflow = count + kept_pages > u64::from(catalog.space.block_pages())
                    || meta_bytes > catalog.space.page_bytes();
                count += if may_overflow { kept_pages } else { 0 };
                1
            }
            Output::Remap { .. } | Output::Delay(_) => continue,
        };
        let by_pages = count / u64::from((fill_pages(catalog) - 1).max(1));
        let by_meta = meta_bytes * 2 / catalog.space.page_bytes();
        pages += count;
        rewritten += 1 + by_pages.max(by_meta as u64) + cuts;
    }
    let cursors: usize = job.cursors.iter().map(|(_, key)| 6 + key.len()).sum();
    let tables = tables + rewritten as usize;
    let journal_bytes = 128 + cursors + 8 * piece.nodes.len() + tables * fence_bytes;
    (blocks_for(catalog, pages, rewritten), journal_bytes)
}

fn execute(catalog: &mut Catalog, job: &Job, piece: Piece, outputs: Vec<Output>) -> Result<()> {
    let mut made = catalog.begin();
    made.commit.cursors.clone_from(&job.cursors);
    made.commit.last_level = job.last_level.unwrap_or(made.commit.last_level);
    for output in outputs {
        for table in write_output(catalog, job, &piece, output, &mut made)? {
            catalog.add_table(table, job.output_level, &mut made)?;
        }
    }
    let is_whole = piece.rest.is_empty();
    for table in piece.rest {
        let level = table.level;
        catalog.add_table(table, level, &mut made)?;
    }
    for (node, table) in piece.nodes.iter().zip(piece.upper.into_iter().chain(piece.lower)) {
        made.commit.removed.push(node.id);
        // A table that was cut differs from the table on flash; a whole table is in memory already.
        let table = match is_whole {
            true => catalog.space.read_again(node.meta_page).map(|()| table)?,
            false => read_meta(&mut catalog.space, node)?,
        };
        made.removed.push((table, node.meta_page));
    }
    catalog.commit(made)
}

/// Writes the pages of keys and values of an output, and returns its tables.
fn write_output(
    catalog: &mut Catalog,
    job: &Job,
    piece: &Piece,
    output: Output,
    made: &mut Transaction,
) -> Result<Vec<TableMeta>> {
    let page_bytes = catalog.space.page_bytes();
    let place = Place { level: job.output_level, cuts: &[], fill_pages: fill_pages(catalog) };
    Ok(match output {
        Output::Remap { entries, counter } => {
            catalog.counters.remapped_tables += 1;
            vec![piece.remapped(entries, counter)]
        }
        Output::Delay(TableMeta { entries, reals, counter, .. }) => {
            catalog.counters.remapped_tables += 1;
            vec![TableMeta { reals, ..piece.remapped(entries, counter) }]
        }
        Output::Rewrite { entries, cuts } => {
            let place = Place { cuts: &cuts, ..place };
            let tables = write_tables(catalog, place, made, |rewriter, reader, writer| {
                rewriter.rewrite(Merged::new(entries, page_bytes, reader), writer)
            })?;
            catalog.counters.rewritten_tables += tables.len() as u64;
            tables
        }
        Output::Append { lower, entries } => {
            let from = piece.nodes.first().map_or(job.output_level, |node| node.level);
            let most = (catalog.options.threshold, filter_size(catalog, from));
            let place = Place { fill_pages: catalog.space.block_pages(), ..place };
            let (segments, is_untouched) = (lower.counter, entries.is_empty());
            let tables = write_tables(catalog, place, made, |rewriter, reader, writer| {
                append(lower, entries, most, rewriter, reader, writer)
            })?;
            match &tables[..] {
                [table] if table.counter > segments => catalog.counters.appended_segments += 1,
                _ if is_untouched => {}
                _ => catalog.counters.rewritten_tables += tables.len() as u64,
            }
            tables
        }
    })
}

/// Whether so many of the records are deletes that they are worth a rewrite.
pub(super) fn has_many_deletes(deletes: u64, records: u64) -> bool {
    deletes * TOMBSTONE_DIVISOR > records
}
