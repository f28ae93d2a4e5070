//! Plans which outputs of a compaction keep their pages and which are rewritten, for tables cut by
//! size. The firmware has the same rules; `devices/flash/src/kvssd/remap.rs` gives their reasons.
//!
//! 1. Strata of the upper tables go above the lower ones; runs stack.
//! 2. In key order: once an output is charged with all but one of its pages, it is cut before the
//!    next entry of stratum 0.
//! 3. An output of at most TH strata is remapped if its pages have few references and their blocks
//!    few tables. Adjacent others become one rewrite.

use std::collections::{BTreeMap, BTreeSet};

use super::tree::{Entry, Node};
use runstone_rules::remap::{MAX_BLOCK_TABLES, MAX_PAGE_REFERENCES, renumber};

/// The tables of a compaction.
pub(super) struct Input<'a> {
    /// Oldest first. Those of one level are one run, but in level 0, where each is.
    pub(super) upper: Vec<&'a Node>,
    pub(super) lower: Vec<&'a Node>,
}

/// What the planning must know of flash.
pub(super) struct Known<'a> {
    pub(super) threshold: u8,
    pub(super) table_pages: u32,
    /// References of a page.
    pub(super) references: &'a dyn Fn(u32) -> usize,
    /// Block of a page.
    pub(super) block: &'a dyn Fn(u32) -> u32,
    /// Tables with pages in a block.
    pub(super) tables: &'a dyn Fn(u32) -> BTreeSet<u32>,
}

/// One output, in key order.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Output {
    /// A table of these entries.
    Remap { entries: Vec<Entry>, counter: u16 },
    /// The keys of these entries go into new pages.
    Rewrite(Vec<Entry>),
}

struct Reference<'a> {
    entry: &'a Entry,
    stratum: u16,
    is_lower: bool,
}

/// Plans a compaction.
pub(super) fn plan(input: &Input<'_>, known: &Known<'_>) -> Vec<Output> {
    let sorted = collect(input);
    let mut planned = Planned::new(input, known);
    let mut outputs: Vec<Output> = Vec::new();
    for (lo, hi) in ranges(&sorted, known.table_pages) {
        let inside = clipped(&sorted, lo, hi);
        if inside.is_empty() {
            continue;
        }
        match (planned.remap(&sorted, &inside), outputs.last_mut()) {
            (Some((entries, counter)), _) => outputs.push(Output::Remap { entries, counter }),
            (None, Some(Output::Rewrite(entries))) => {
                entries.extend(inside.iter().map(|(_, entry)| *entry));
            }
            (None, _) => {
                outputs.push(Output::Rewrite(inside.iter().map(|(_, entry)| *entry).collect()));
            }
        }
    }
    outputs
}

/// The same where nothing is remapped.
pub(super) fn rewrite(input: &Input<'_>) -> Vec<Output> {
    let nodes = input.upper.iter().chain(&input.lower);
    vec![Output::Rewrite(nodes.flat_map(|node| &node.entries).copied().collect())]
}

fn collect<'a>(input: &Input<'a>) -> Vec<Reference<'a>> {
    let mut sorted = Vec::new();
    let mut push = |node: &'a Node, shift: u16, is_lower: bool| {
        sorted.extend(node.entries.iter().map(|entry| Reference {
            entry,
            stratum: u16::from(entry.stratum) + shift,
            is_lower,
        }));
    };
    let strata = |nodes: &[&Node]| nodes.iter().map(|node| node.counter).max().unwrap_or(0);
    let mut shift = strata(&input.lower);
    input.lower.iter().for_each(|node| push(node, 0, true));
    for run in input.upper.chunk_by(|one, next| one.level > 0 && one.level == next.level) {
        run.iter().for_each(|node| push(node, shift, false));
        shift += strata(run);
    }
    sorted.sort_by_key(|one| (one.entry.lo, one.stratum));
    sorted
}

/// Smallest and largest keys of the outputs.
fn ranges(sorted: &[Reference<'_>], table_pages: u32) -> Vec<(u32, u32)> {
    let (mut ranges, mut from, mut charged_pages) = (Vec::new(), 0, 0);
    for reference in sorted {
        let lo = reference.entry.lo;
        if charged_pages + 1 >= table_pages && reference.stratum == 0 && lo > from {
            ranges.push((from, lo - 1));
            (from, charged_pages) = (lo, 0);
        }
        charged_pages += u32::from(reference.entry.is_charged);
    }
    ranges.push((from, u32::MAX));
    ranges
}

/// The entries with keys in a range, with their positions, cut to it.
fn clipped(sorted: &[Reference<'_>], lo: u32, hi: u32) -> Vec<(usize, Entry)> {
    let inside = sorted.iter().enumerate().filter_map(|(at, one)| {
        let (lo, hi) = (one.entry.lo.max(lo), one.entry.hi.min(hi));
        (lo <= hi).then_some((at, Entry { lo, hi, ..*one.entry }))
    });
    inside.collect()
}

/// What the outputs planned so far add to counts and lists.
struct Planned<'a> {
    known: &'a Known<'a>,
    inputs: BTreeSet<u32>,
    page_counts: BTreeMap<u32, usize>,
    /// Per block: tables that are no inputs, and outputs.
    block_tables: BTreeMap<u32, usize>,
    /// Positions of entries that are charged to an output already.
    charged: BTreeSet<usize>,
}

impl<'a> Planned<'a> {
    fn new(input: &Input<'_>, known: &'a Known<'a>) -> Planned<'a> {
        let inputs = input.upper.iter().chain(&input.lower).map(|node| node.id).collect();
        let (page_counts, block_tables, charged) = Default::default();
        Planned { known, inputs, page_counts, block_tables, charged }
    }

    /// The entries of a remapped output and its strata; `None` if a limit forbids it.
    fn remap(
        &mut self,
        sorted: &[Reference<'_>],
        inside: &[(usize, Entry)],
    ) -> Option<(Vec<Entry>, u16)> {
        let old = inside.iter().map(|(at, _)| (sorted[*at].stratum, sorted[*at].is_lower));
        let (strata, counter) = renumber(old);
        if counter > u16::from(self.known.threshold) || !self.has_room(inside) {
            return None;
        }
        let entry = |(at, entry): &(usize, Entry)| Entry {
            stratum: strata[&sorted[*at].stratum],
            is_charged: entry.is_charged && !self.charged.contains(at),
            ..*entry
        };
        let entries: Vec<Entry> = inside.iter().map(entry).collect();
        let charged_pages = entries.iter().filter(|entry| entry.is_charged).count();
        if charged_pages > self.known.table_pages as usize {
            return None;
        }
        let mut blocks = BTreeSet::new();
        for (at, entry) in inside {
            *self.page_counts.entry(entry.page).or_insert(0) += 1;
            blocks.insert((self.known.block)(entry.page));
            self.charged.insert(*at);
        }
        blocks.into_iter().for_each(|block| *self.tables_of(block) += 1);
        Some((entries, counter))
    }

    /// Counts are taken with the inputs, lists without them, as the firmware does.
    fn has_room(&mut self, inside: &[(usize, Entry)]) -> bool {
        let mut more: BTreeMap<u32, usize> = BTreeMap::new();
        inside.iter().all(|(_, entry)| {
            let added = more.entry(entry.page).or_insert(0);
            let planned = self.page_counts.get(&entry.page).copied().unwrap_or(0);
            let count = (self.known.references)(entry.page) + planned + *added;
            *added += 1;
            let block = (self.known.block)(entry.page);
            count < usize::from(MAX_PAGE_REFERENCES) && *self.tables_of(block) < MAX_BLOCK_TABLES
        })
    }

    fn tables_of(&mut self, block: u32) -> &mut usize {
        let (known, inputs) = (self.known, &self.inputs);
        let others = || (known.tables)(block).difference(inputs).count();
        self.block_tables.entry(block).or_insert_with(others)
    }
}
