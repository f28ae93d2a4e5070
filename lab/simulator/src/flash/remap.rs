//! Plans which outputs of a compaction keep their pages and which are rewritten, for tables cut by
//! size, by the firmware's rules ([`runstone_rules::remap`]).

use std::collections::BTreeSet;

use runstone_rules::remap::{Device, PageEntry, TableEntries, plan, size_cuts, stack};

use super::tree::{Entry, Node};

/// The outputs of a compaction, in key order.
pub(super) type Output = runstone_rules::remap::Planned<Entry>;

/// The tables of a compaction.
pub(super) struct Input<'a> {
    /// The upper tables, oldest first. The tables of one level are one run, except in level 0,
    /// where each table is a run.
    pub(super) upper: Vec<&'a Node>,
    pub(super) lower: Vec<&'a Node>,
}

/// The facts about flash that planning needs.
pub(super) struct Known<'a> {
    pub(super) threshold: u8,
    pub(super) table_pages: u32,
    /// The number of references to a page.
    pub(super) references: &'a dyn Fn(u32) -> usize,
    /// The block of a page.
    pub(super) block: &'a dyn Fn(u32) -> u32,
    /// Tables with pages in a block.
    pub(super) tables: &'a dyn Fn(u32) -> BTreeSet<u32>,
}

/// Bounds are inclusive here, and a cut is the first key of the next table.
impl PageEntry for Entry {
    type Key = u32;

    fn page(&self) -> u32 {
        self.page
    }

    fn page_count(&self) -> u32 {
        1
    }

    fn stratum(&self) -> u8 {
        self.stratum
    }

    fn is_charged(&self) -> bool {
        self.is_charged
    }

    fn first_key(&self) -> &u32 {
        &self.lo
    }

    fn clipped(&self, from: Option<&u32>, to: Option<&u32>) -> Option<Entry> {
        let lo = from.map_or(self.lo, |from| self.lo.max(*from));
        let hi = match to {
            Some(to) => self.hi.min(to.checked_sub(1)?),
            None => self.hi,
        };
        (lo <= hi).then_some(Entry { lo, hi, ..*self })
    }

    fn placed(self, stratum: u8, is_charged: bool) -> Entry {
        Entry { stratum, is_charged, ..self }
    }
}

fn entries_of(node: &Node) -> TableEntries<'_, Entry> {
    TableEntries { entries: &node.entries, strata: node.counter }
}

/// Plans a compaction.
pub(super) fn plan_compaction(input: &Input<'_>, known: &Known<'_>) -> Vec<Output> {
    let lower: Vec<_> = input.lower.iter().map(|node| entries_of(node)).collect();
    let runs = input.upper.chunk_by(|one, next| one.level > 0 && one.level == next.level);
    let upper: Vec<Vec<_>> =
        runs.map(|run| run.iter().map(|node| entries_of(node)).collect()).collect();
    let stacked = stack(&lower, &upper);
    let inputs: BTreeSet<u32> =
        input.upper.iter().chain(&input.lower).map(|node| node.id).collect();
    let device = Device {
        threshold: known.threshold,
        table_pages: known.table_pages,
        has_room: &|_| true,
        references: known.references,
        block: known.block,
        other_tables: &|block| (known.tables)(block).difference(&inputs).count(),
    };
    plan(&stacked, &size_cuts(&stacked, known.table_pages), &device)
}

/// Plans a compaction that remaps nothing.
pub(super) fn rewrite(input: &Input<'_>) -> Vec<Output> {
    let nodes = input.upper.iter().chain(&input.lower);
    let entries = nodes.flat_map(|node| &node.entries).copied().collect();
    vec![Output::Rewrite { entries, cuts: Vec::new() }]
}
