//! Plans a compaction of upper tables into lower ones: which outputs keep pages that exist, and
//! which must be rewritten.
//!
//! 1. The strata of the upper tables are put above the lower ones. Runs stack, oldest first; the
//!    tables of one share their strata.
//! 2. All entries are sorted by `clip.lo`; among equals those of the lowest stratum come first.
//! 3. Walk: once an output is charged with all but one of its pages, it is cut before the next
//!    entry of stratum 0. Entries of stratum 0 never overlap, so only pages of higher strata, which
//!    were remapped from above, are ever shared by two outputs. Where tables are cut before bounds
//!    of a fixed set instead, the charged pages are the histogram, and a page of any stratum that
//!    lies across a bound is shared: cut beside the bound, a table would reach into the next cell,
//!    and every compaction of that cell would take it along.
//! 4. An output with s strata is remapped if s <= TH and all limits hold: references of its pages,
//!    tables of the blocks it touches, charged pages, size of its metadata page. Its upper strata
//!    are renumbered to follow its lower ones without a gap.
//! 5. Adjacent outputs that must be rewritten become one rewrite.
//!
//! A shared page is charged to the leftmost remapped output that has it, if it was charged to an
//! input; a page whose charged sharer died first is charged to nobody.

use std::collections::{BTreeMap, BTreeSet};

use runstone_policy::partition::{CutKey, Histogram, Input, Partitioner, Point};
use runstone_rules::remap::{MAX_BLOCK_TABLES, MAX_PAGE_REFERENCES, renumber};

use super::meta_page::{Clip, Entry, TableMeta};
use super::references::References;

/// The tables of a compaction.
#[derive(Clone, Copy, Debug)]
pub struct CompactionInput<'a> {
    /// Upper tables by run, oldest first. Those of one run are disjoint; each table of level 0 is a
    /// run.
    pub upper: &'a [&'a [TableMeta]],
    /// Lower tables: all that overlap the upper ones, disjoint.
    pub lower: &'a [TableMeta],
}

impl<'a> CompactionInput<'a> {
    /// All tables: the lower ones, then the upper ones, oldest first.
    pub(super) fn tables(&self) -> impl Iterator<Item = &'a TableMeta> + use<'a> {
        self.lower.iter().chain(self.upper.iter().copied().flatten())
    }
}

/// What a remapped table may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemapLimits {
    /// TH: most strata; 0 rewrites everything (nLSM).
    pub threshold: u8,
    /// Most pages of a table.
    pub table_pages: u32,
    /// Bytes of a page, which the metadata must fit.
    pub page_bytes: usize,
    /// Where outputs are cut.
    pub cuts: Partitioner,
}

/// One output of a compaction, in key order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// A table of these entries; nothing but its metadata page is written.
    Remap {
        /// Clipped to the output, with their new strata.
        entries: Vec<Entry>,
        /// Number of strata.
        counter: u8,
    },
    /// A virtual table, of which only the metadata page is written.
    Delay(TableMeta),
    /// A table that takes the records of these entries as a segment.
    Append {
        /// The table as it is.
        lower: TableMeta,
        /// What sinks into it.
        entries: Vec<Entry>,
    },
    /// The records of these entries, to be written into new pages.
    Rewrite {
        /// Clipped to the output; strata as in the compaction.
        entries: Vec<Entry>,
        /// Where the new tables are to be cut besides by size.
        cuts: Vec<CutKey>,
    },
}

/// An entry with its stratum in the whole compaction.
struct Reference<'a> {
    entry: &'a Entry,
    stratum: u16,
    is_lower: bool,
}

/// Keys of one output: from a cut, if it is not the first, to the next, if it is not the last.
#[derive(Clone, Copy)]
struct Range<'a> {
    lo: Option<&'a [u8]>,
    hi: Option<&'a [u8]>,
}

/// Plans a compaction.
pub fn plan_compaction(
    input: &CompactionInput<'_>,
    references: &References,
    limits: &RemapLimits,
) -> Vec<Output> {
    let sorted = collect(input);
    let cuts = match limits.cuts {
        Partitioner::Size => walk(&sorted, limits.table_pages),
        global => cells(&sorted, global, limits),
    };
    let mut planned = Planned::new(input, references);
    let mut outputs = Vec::new();
    let mut rewriting: Vec<Range<'_>> = Vec::new();
    for range in ranges(&cuts) {
        let inside: Vec<(usize, Entry)> = clipped(&sorted, range).collect();
        if inside.is_empty() {
            continue;
        }
        if let Some((entries, counter)) = planned.remap(&sorted, &inside, limits) {
            outputs.extend(rewrite(&sorted, &rewriting, limits.cuts));
            rewriting.clear();
            outputs.push(Output::Remap { entries, counter });
        } else {
            rewriting.push(range);
        }
    }
    outputs.extend(rewrite(&sorted, &rewriting, limits.cuts));
    outputs
}

fn collect<'a>(input: &CompactionInput<'a>) -> Vec<Reference<'a>> {
    let strata = |tables: &[TableMeta]| {
        tables.iter().map(|table| u16::from(table.counter)).max().unwrap_or(0)
    };
    let mut sorted = Vec::new();
    let mut push = |table: &'a TableMeta, shift: u16, is_lower: bool| {
        sorted.extend(table.entries.iter().map(|entry| Reference {
            entry,
            stratum: u16::from(entry.stratum) + shift,
            is_lower,
        }));
    };
    let mut shift = strata(input.lower);
    input.lower.iter().for_each(|table| push(table, 0, true));
    for run in input.upper {
        run.iter().for_each(|table| push(table, shift, false));
        shift += strata(run);
    }
    sorted.sort_by(|one, two| {
        (&one.entry.clip.lo, one.stratum).cmp(&(&two.entry.clip.lo, two.stratum))
    });
    sorted
}

/// The keys at which outputs are cut by size.
fn walk(sorted: &[Reference<'_>], table_pages: u32) -> Vec<CutKey> {
    let mut cuts = Vec::new();
    let mut charged_pages = 0;
    for reference in sorted {
        if charged_pages + 1 >= table_pages && reference.stratum == 0 {
            cuts.push((*reference.entry.clip.lo).into());
            charged_pages = 0;
        }
        if reference.entry.is_charged {
            charged_pages += u32::from(reference.entry.page_count);
        }
    }
    cuts
}

/// The bounds at which outputs are cut: each page counts where its last key is. What lies across a
/// bound is charged to the table before it, so tables are planned a page per stratum smaller.
fn cells(sorted: &[Reference<'_>], cuts: Partitioner, limits: &RemapLimits) -> Vec<CutKey> {
    let charged = sorted.iter().filter(|reference| reference.entry.is_charged);
    let points = charged.map(|reference| {
        let clip = &reference.entry.clip;
        // A few bytes more are close enough to count pages by.
        let last_key = clip.last_inside(clip.hi.len() + 4);
        let last_key = last_key.max(clip.lo.to_vec()).into_boxed_slice();
        Point { last_key, bytes: u64::from(reference.entry.page_count) }
    });
    let histogram = Histogram::new(points.collect());
    let keys = histogram.points();
    let (Some(first), Some(last)) = (keys.first(), keys.last()) else { return Vec::new() };
    let table_pages = limits.table_pages.saturating_sub(u32::from(limits.threshold)).max(1);
    cuts.rule().cuts(&Input {
        histogram: &histogram,
        min_key: &first.last_key,
        max_key: &last.last_key,
        table_bytes: u64::from(table_pages),
        prefixer: None,
    })
}

fn ranges(cuts: &[CutKey]) -> Vec<Range<'_>> {
    let cuts = || cuts.iter().map(|cut| Some(&**cut));
    let starts = std::iter::once(None).chain(cuts());
    let ends = cuts().chain(std::iter::once(None));
    starts.zip(ends).map(|(lo, hi)| Range { lo, hi }).collect()
}

/// The entries with keys in a range, with their positions, cut to it.
fn clipped<'a>(
    sorted: &'a [Reference<'_>],
    range: Range<'a>,
) -> impl Iterator<Item = (usize, Entry)> + 'a {
    sorted.iter().enumerate().filter_map(move |(at, reference)| {
        let clip = &reference.entry.clip;
        let lo = range.lo.map_or(&clip.lo[..], |lo| lo.max(&clip.lo));
        let hi = range.hi.map_or(&clip.hi[..], |hi| hi.min(&clip.hi));
        (lo < hi).then(|| {
            let clip = Clip { lo: lo.into(), hi: hi.into() };
            (at, Entry { clip, ..reference.entry.clone() })
        })
    })
}

/// The rewrite of adjacent ranges, if there are any. A cut by size is not planned here: it is made
/// as the pages are written.
fn rewrite(sorted: &[Reference<'_>], ranges: &[Range<'_>], cuts: Partitioner) -> Option<Output> {
    let range = Range { lo: ranges.first()?.lo, hi: ranges.last()?.hi };
    let inner = ranges[1..].iter().filter_map(|range| range.lo);
    Some(Output::Rewrite {
        entries: clipped(sorted, range).map(|(_, entry)| entry).collect(),
        cuts: match cuts {
            Partitioner::Size => Vec::new(),
            _ => inner.map(CutKey::from).collect(),
        },
    })
}

/// What the outputs planned so far add to counts and lists.
struct Planned<'a> {
    references: &'a References,
    input_ids: BTreeSet<u64>,
    page_counts: BTreeMap<u32, u8>,
    block_tables: BTreeMap<u32, usize>,
    /// Positions of entries that are charged to an output already.
    charged: BTreeSet<usize>,
}

impl<'a> Planned<'a> {
    fn new(input: &CompactionInput<'_>, references: &'a References) -> Planned<'a> {
        Planned {
            references,
            input_ids: input.tables().map(|table| table.id).collect(),
            page_counts: BTreeMap::new(),
            block_tables: BTreeMap::new(),
            charged: BTreeSet::new(),
        }
    }

    /// The entries of a remapped output and its counter; `None` if a limit forbids it.
    fn remap(
        &mut self,
        sorted: &[Reference<'_>],
        inside: &[(usize, Entry)],
        limits: &RemapLimits,
    ) -> Option<(Vec<Entry>, u8)> {
        let old = inside.iter().map(|(at, _)| (sorted[*at].stratum, sorted[*at].is_lower));
        let (strata, counter) = renumber(old);
        if counter > u16::from(limits.threshold) || !self.has_room(inside) {
            return None;
        }
        let entry = |(at, entry): &(usize, Entry)| Entry {
            stratum: strata[&sorted[*at].stratum],
            is_charged: entry.is_charged && !self.charged.contains(at),
            ..entry.clone()
        };
        let entries: Vec<Entry> = inside.iter().map(entry).collect();
        let charged = entries.iter().filter(|entry| entry.is_charged);
        let charged_pages: u32 = charged.map(|entry| u32::from(entry.page_count)).sum();
        let fits = charged_pages <= limits.table_pages
            && TableMeta::encoded_bytes(&entries) <= limits.page_bytes;
        if !fits {
            return None;
        }
        self.commit(inside);
        Some((entries, counter as u8))
    }

    /// The lists are taken without the inputs, which leave them; the counts with the inputs,
    /// because a count falls only after the commit.
    fn has_room(&self, inside: &[(usize, Entry)]) -> bool {
        let mut more: BTreeMap<u32, u8> = BTreeMap::new();
        inside.iter().all(|(_, entry)| {
            let added = more.entry(entry.page).or_insert(0);
            let planned = self.page_counts.get(&entry.page).copied().unwrap_or(0);
            let count = self.references.count(entry.page) + planned + *added;
            *added += 1;
            let block = self.references.block(entry.page);
            let others = self.references.tables(block).filter(|id| !self.input_ids.contains(id));
            let tables = others.count() + self.block_tables.get(&block).copied().unwrap_or(0);
            count < MAX_PAGE_REFERENCES && tables < MAX_BLOCK_TABLES
        })
    }

    fn commit(&mut self, inside: &[(usize, Entry)]) {
        let mut blocks = BTreeSet::new();
        for (at, entry) in inside {
            *self.page_counts.entry(entry.page).or_insert(0) += 1;
            blocks.insert(self.references.block(entry.page));
            self.charged.insert(*at);
        }
        for block in blocks {
            *self.block_tables.entry(block).or_insert(0) += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kvssd::page_filter::PageFilter;

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

    /// Figure 3 of the paper: an overlap page shared by two outputs, charged to the left one.
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

    /// The bounds are bit prefixes (b, d, h, j), and a page of any stratum that lies across one is
    /// in both outputs: nothing of a table is outside its cell.
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

    /// Tables take the keys up to the next one, the first also those before it. What ends between
    /// two tables grows the left one; one that nothing sinks into is as it was.
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
            show(crate::kvssd::append::plan_append(&input))
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
