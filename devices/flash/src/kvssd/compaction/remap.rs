//! Plans a compaction by the rules of [`runstone_rules::remap`], and cuts its outputs.
//!
//! If tables are cut before bounds of a fixed set, the charged pages are the histogram, and a page
//! of any stratum that lies across a bound is shared. If the cut were beside the bound, a table
//! would reach into the next cell, and every compaction of that cell would include it.

use std::collections::BTreeSet;

use runstone_policy::partition::{CutKey, Histogram, Input, Partitioner, Point};
use runstone_rules::remap::{
    Device, PageEntry, Planned, Stacked, TableEntries, plan, size_cuts, stack,
};

use crate::kvssd::format::key::Key;
use crate::kvssd::format::meta_page::{Clip, Entry, TableMeta};
use crate::kvssd::tree::references::References;

/// The tables of a compaction.
#[derive(Clone, Copy, Debug)]
pub struct CompactionInput<'a> {
    /// Upper tables by run, oldest first. The tables of one run are disjoint. Each table of level 0
    /// is a run.
    pub upper: &'a [&'a [TableMeta]],
    /// All lower tables that overlap the upper ones. They are disjoint.
    pub lower: &'a [TableMeta],
}

impl<'a> CompactionInput<'a> {
    /// All tables: the lower ones, then the upper ones, oldest first.
    pub(crate) fn tables(&self) -> impl Iterator<Item = &'a TableMeta> + use<'a> {
        self.lower.iter().chain(self.upper.iter().copied().flatten())
    }
}

/// Limits of a remapped table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemapLimits {
    /// TH: the most strata of a remapped table; 0 rewrites everything (nLSM).
    pub threshold: u8,
    /// The most pages that a table may have.
    pub table_pages: u32,
    /// Bytes of a page, which the metadata must fit.
    pub page_bytes: usize,
    /// Where outputs are cut.
    pub cuts: Partitioner,
}

/// One output of a compaction, in key order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// A table of these entries. Only its metadata page is written.
    Remap {
        /// The entries, clipped to the output, with their new strata.
        entries: Vec<Entry>,
        /// Number of strata.
        counter: u8,
    },
    /// A virtual table: only its metadata page is written.
    Delay(TableMeta),
    /// A table that receives the records of these entries as a segment.
    Append {
        /// The table as it was.
        lower: TableMeta,
        /// The entries that sink into it.
        entries: Vec<Entry>,
    },
    /// The records of these entries, to be written into new pages.
    Rewrite {
        /// The entries, clipped to the output, with the strata of the compaction.
        entries: Vec<Entry>,
        /// Where the new tables are to be cut in addition to the cuts by size.
        cuts: Vec<CutKey>,
    },
}

impl PageEntry for Entry {
    type Key = Key;

    fn page(&self) -> u32 {
        self.page
    }

    fn page_count(&self) -> u32 {
        self.page_count.into()
    }

    fn stratum(&self) -> u8 {
        self.stratum
    }

    fn is_charged(&self) -> bool {
        self.is_charged
    }

    fn first_key(&self) -> &Key {
        &self.clip.lo
    }

    fn clipped(&self, from: Option<&Key>, to: Option<&Key>) -> Option<Entry> {
        let lo = from.map_or(&self.clip.lo, |from| from.max(&self.clip.lo));
        let hi = to.map_or(&self.clip.hi, |to| to.min(&self.clip.hi));
        let clip = || Clip { lo: lo.clone(), hi: hi.clone() };
        (lo < hi).then(|| Entry { clip: clip(), ..self.clone() })
    }

    fn placed(self, stratum: u8, is_charged: bool) -> Entry {
        Entry { stratum, is_charged, ..self }
    }
}

fn entries_of(table: &TableMeta) -> TableEntries<'_, Entry> {
    TableEntries { entries: &table.entries, strata: table.counter.into() }
}

/// Plans a compaction.
pub fn plan_compaction(
    input: &CompactionInput<'_>,
    references: &References,
    limits: &RemapLimits,
) -> Vec<Output> {
    let lower: Vec<_> = input.lower.iter().map(entries_of).collect();
    let runs = input.upper.iter().map(|run| run.iter().map(entries_of).collect());
    let stacked = stack(&lower, &runs.collect::<Vec<_>>());
    let cuts = match limits.cuts {
        Partitioner::Size => size_cuts(&stacked, limits.table_pages),
        global => cells(&stacked, global, limits),
    };
    let inputs: BTreeSet<u64> = input.tables().map(|table| table.id).collect();
    let device = Device {
        threshold: limits.threshold,
        table_pages: limits.table_pages,
        has_room: &|entries| TableMeta::encoded_bytes(entries) <= limits.page_bytes,
        references: &|page| references.count(page).into(),
        block: &|page| references.block(page),
        other_tables: &|block| references.tables(block).filter(|id| !inputs.contains(id)).count(),
    };
    let outputs = plan(&stacked, &cuts, &device).into_iter().map(|output| match output {
        Planned::Remap { entries, strata } => Output::Remap { entries, counter: strata },
        // A cut by size is not planned here: it is made while the pages are written.
        Planned::Rewrite { entries, .. } if limits.cuts == Partitioner::Size => {
            Output::Rewrite { entries, cuts: Vec::new() }
        }
        Planned::Rewrite { entries, cuts } => {
            Output::Rewrite { entries, cuts: cuts.iter().map(|cut| CutKey::from(&**cut)).collect() }
        }
    });
    outputs.collect()
}

/// The bounds at which outputs are cut. Each page counts at its last key. A page that lies across a
/// bound is charged to the table before the bound, so tables are planned smaller by one page per
/// stratum.
fn cells(stacked: &[Stacked<'_, Entry>], cuts: Partitioner, limits: &RemapLimits) -> Vec<Key> {
    let charged = stacked.iter().filter(|one| one.entry.is_charged);
    let points = charged.map(|one| {
        let clip = &one.entry.clip;
        // An error of a few bytes does not matter when pages are counted.
        let last_key = clip.last_inside(clip.hi.len() + 4);
        let last_key = last_key.max(clip.lo.to_vec()).into_boxed_slice();
        Point { last_key, bytes: u64::from(one.entry.page_count) }
    });
    let histogram = Histogram::new(points.collect());
    let keys = histogram.points();
    let (Some(first), Some(last)) = (keys.first(), keys.last()) else { return Vec::new() };
    let table_pages = limits.table_pages.saturating_sub(u32::from(limits.threshold)).max(1);
    let input = Input {
        histogram: &histogram,
        min_key: &first.last_key,
        max_key: &last.last_key,
        table_bytes: u64::from(table_pages),
        prefixer: None,
    };
    cuts.rule().cuts(&input).iter().map(|cut| Key::from(&**cut)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kvssd::format::page_filter::PageFilter;

    const LIMITS: RemapLimits =
        RemapLimits { threshold: 2, table_pages: 4, page_bytes: 4096, cuts: Partitioner::Size };

    fn entry(page: u32, stratum: u8, keys: &str) -> Entry {
        let (lo, hi) = keys.as_bytes().split_at(1);
        let clip = Clip { lo: lo.into(), hi: hi.into() };
        let (page_count, is_charged, has_tombstones, record_count) = (1, true, false, 1);
        let filter = PageFilter::default();
        Entry { page, page_count, stratum, is_charged, has_tombstones, record_count, clip, filter }
    }

    fn table(id: u64, entries: Vec<Entry>) -> TableMeta {
        let counter = entries.iter().map(|entry| entry.stratum + 1).max().unwrap();
        let (level, txn, min_seq, max_seq, tombstones, reals) = (1, 1, 1, 1, 0, Vec::new());
        TableMeta { id, level, txn, counter, min_seq, max_seq, tombstones, entries, reals }
    }

    fn plan(upper: &[TableMeta], lower: &[TableMeta], limits: &RemapLimits) -> Vec<String> {
        let mut references = References::new(8, 8);
        upper.iter().chain(lower).for_each(|table| references.add(table));
        show(plan_compaction(&CompactionInput { upper: &[upper], lower }, &references, limits))
    }

    fn show(outputs: Vec<Output>) -> Vec<String> {
        let text = |entries: &[Entry]| -> String {
            let one = |entry: &Entry| {
                let key = |key: &[u8]| String::from_utf8_lossy(key).to_string();
                let charged = if entry.is_charged { "" } else { "'" };
                let (lo, hi) = (key(&entry.clip.lo), key(&entry.clip.hi));
                format!(" {}.{}{charged}[{lo}{hi})", entry.page, entry.stratum)
            };
            entries.iter().map(one).collect()
        };
        let line = |output: &Output| match output {
            Output::Remap { entries, counter } => format!("remap {counter}:{}", text(entries)),
            Output::Delay(table) => format!("delay {}:{}", table.counter, text(&table.entries)),
            Output::Append { lower, entries } => {
                format!("append to{}:{}", text(&lower.entries), text(entries))
            }
            Output::Rewrite { entries, cuts } => {
                let cut = |cut: &CutKey| format!(" |{}", String::from_utf8_lossy(cut));
                let cuts: String = cuts.iter().map(cut).collect();
                format!("rewrite:{}{cuts}", text(entries))
            }
        };
        outputs.iter().map(line).collect()
    }

    /// Figure 3 of the paper: an overlap page that two outputs share and that is charged to the
    /// left one.
    #[test]
    fn a_page_across_a_cut_is_shared() {
        let upper = [table(1, vec![entry(1, 0, "ac"), entry(2, 0, "dj")])];
        let lower = [
            table(2, vec![entry(8, 0, "ab"), entry(9, 0, "bd"), entry(10, 0, "df")]),
            table(3, vec![entry(11, 0, "fh"), entry(12, 0, "hk")]),
        ];
        let expected = [
            "remap 2: 8.0[ab) 1.1[ac) 9.0[bd)",
            "remap 2: 10.0[df) 2.1[dh) 11.0[fh)",
            "remap 2: 2.1'[hj) 12.0[hk)",
        ];
        assert_eq!(plan(&upper, &lower, &LIMITS), expected);
    }

    /// The bounds are bit prefixes (b, d, h, j). A page of any stratum that lies across a bound is
    /// in both outputs: no part of a table is outside its cell.
    #[test]
    fn under_global_range_outputs_end_at_bounds_that_all_levels_share() {
        let upper = [table(1, vec![entry(1, 0, "ac"), entry(2, 0, "dj")])];
        let lower = [
            table(2, vec![entry(8, 0, "ab"), entry(9, 0, "bd"), entry(10, 0, "df")]),
            table(3, vec![entry(11, 0, "fi"), entry(12, 0, "ik")]),
        ];
        let cuts = Partitioner::GlobalRange;
        let expected = [
            "remap 2: 8.0[ab) 1.1[ab)",
            "remap 2: 1.1'[bc) 9.0[bd)",
            "remap 2: 10.0[df) 2.1[dh) 11.0[fh)",
            "remap 2: 2.1'[hj) 11.0'[hi) 12.0[ij)",
            "remap 1: 12.0'[jk)",
        ];
        assert_eq!(plan(&upper, &lower, &RemapLimits { cuts, ..LIMITS }), expected);
        let rewritten = plan(&upper, &lower, &RemapLimits { threshold: 0, cuts, ..LIMITS });
        let pages = "8.0[ab) 1.0[ac) 9.0[bd) 10.0[df) 2.0[dj) 11.0[fi) 12.0[ik)";
        assert_eq!(rewritten, [format!("rewrite: {pages} |h")]);
    }

    #[test]
    fn strata_over_the_threshold_are_rewritten_as_one_compaction() {
        let upper = [table(1, vec![entry(1, 0, "az")])];
        let lower = [
            table(2, vec![entry(8, 0, "ac"), entry(9, 1, "bd"), entry(10, 0, "df")]),
            table(3, vec![entry(11, 0, "fh"), entry(12, 0, "hk"), entry(13, 0, "km")]),
            table(4, vec![entry(14, 0, "mz")]),
        ];
        let planned = plan(&upper, &lower, &LIMITS);
        assert!(planned[0].starts_with("rewrite: "), "{planned:?}");
        assert!(planned[1..].iter().all(|line| line.starts_with("remap 2:")), "{planned:?}");
        let rewritten = plan(&upper, &lower, &RemapLimits { threshold: 0, ..LIMITS });
        assert_eq!(rewritten.len(), 1, "nLSM: one compaction of everything: {rewritten:?}");
        let all = plan(&upper, &lower, &RemapLimits { threshold: 3, ..LIMITS });
        assert!(all.iter().all(|line| line.starts_with("remap")), "{all:?}");
    }

    #[test]
    fn full_counters_and_lists_force_a_rewrite() {
        let upper = [table(1, vec![entry(1, 0, "ab")])];
        let lower = [table(2, vec![entry(8, 0, "ab")])];
        let input = CompactionInput { upper: &[&upper], lower: &lower };
        let mut references = References::new(8, 8);
        upper.iter().chain(&lower).for_each(|table| references.add(table));
        let is_remapped = |references: &References| {
            let planned = plan_compaction(&input, references, &LIMITS);
            matches!(planned[..], [Output::Remap { .. }])
        };
        let mut counted = references.clone();
        for count in 1..=8 {
            assert_eq!(counted.count(8), count);
            assert_eq!(is_remapped(&counted), count < 7, "{count} references");
            counted.add(&lower[0]);
        }
        for others in 0..7 {
            assert_eq!(is_remapped(&references), others < 5, "{others} other tables in the block");
            references.add(&table(10 + others, vec![entry(9 + others as u32 % 4, 0, "ab")]));
        }
        let tiny = RemapLimits { page_bytes: 64 + 2 * 18 - 1, ..LIMITS };
        assert!(plan(&upper, &lower, &tiny)[0].starts_with("rewrite"));
    }

    /// Each table receives the keys up to the next table, and the first also receives the keys
    /// before it. An entry that ends between two tables extends the left one. A table into which
    /// nothing sinks stays as it was.
    #[test]
    fn lower_tables_take_segments_by_their_first_keys() {
        let upper = [table(1, vec![entry(1, 0, "ad"), entry(2, 0, "dg")])];
        let lower = [
            table(2, vec![entry(8, 0, "bc"), entry(9, 1, "bd")]),
            table(3, vec![entry(10, 0, "eh")]),
            table(4, vec![entry(11, 0, "ik")]),
        ];
        let planned = |upper, lower| {
            let input = CompactionInput { upper: &[upper], lower };
            show(crate::kvssd::compaction::append::plan_append(&input))
        };
        let expected = [
            "append to 8.0[bc) 9.1[bd): 1.0[ad) 2.0[de)",
            "append to 10.0[eh): 2.0[eg)",
            "append to 11.0[ik):",
        ];
        assert_eq!(planned(&upper, &lower), expected);
        assert_eq!(planned(&upper, &[]), ["rewrite: 1.0[ad) 2.0[dg)"]);
    }

    #[test]
    fn references_come_and_go() {
        let mut references = References::new(2, 8);
        let (one, two) = (table(1, vec![entry(3, 0, "ac")]), table(2, vec![entry(3, 0, "cd")]));
        references.add(&one);
        references.add(&two);
        assert_eq!((references.count(3), references.tables(0).count()), (2, 2));
        assert!(references.remove(&one).is_empty());
        assert_eq!(references.remove(&two), [3]);
        assert_eq!(references.tables(0).count(), 0);
        assert_eq!(references.ram_parts(), (16 * 3 / 8, 4 * 2 * 5));
    }
}
