//! lLSM: segments are appended to tables. Plans a compaction that appends to the tables below it,
//! and writes a segment. This module knows nothing of a device.
//!
//! 1. The lower tables divide the keys among them: each receives the keys from its own first key up
//!    to the first key of the next table. The first table also receives the keys before that. So
//!    outputs stay disjoint.
//! 2. The data that sink into a table are merged in memory: one version per key and snapshot.
//!    Deletes stay, because the older versions in the table itself are not read.
//! 3. If table and segment together are no larger than a table may be, the segment is written and
//!    becomes the highest stratum of the table. Nothing else is written except the metadata page.
//! 4. Otherwise the two are merged: into one table if that is enough, or else into even parts.

use crate::error::Result;
use crate::kvssd::compaction::remap::{CompactionInput, Output};
use crate::kvssd::format::meta_page::{Clip, Entry, TableMeta};
use crate::kvssd::format::page_filter::FilterSize;
use crate::kvssd::tables::merge::Merged;
use crate::kvssd::tables::rewrite::Rewriter;
use crate::kvssd::tables::{PageReader, PageWriter};
use crate::nand::SharedBytes;

/// Plans the compaction.
pub fn plan_append(input: &CompactionInput<'_>) -> Vec<Output> {
    let entries = input.upper.iter().copied().flatten().flat_map(|table| &table.entries).cloned();
    let sinking = TableMeta { entries: entries.collect(), ..TableMeta::default() };
    if input.lower.is_empty() {
        return vec![Output::Rewrite { entries: sinking.entries, cuts: Vec::new() }];
    }
    let last = sinking.entries.iter().map(|entry| entry.clip.hi.clone()).max().unwrap_or_default();
    let starts = input.lower.iter().filter_map(|table| Some(table.fence()?.lo));
    let mut ends: Vec<_> = starts.skip(1).collect();
    ends.push(last);
    let mut lo = Default::default();
    let mut outputs = Vec::with_capacity(ends.len());
    for (lower, hi) in input.lower.iter().zip(ends) {
        let mut entries = sinking.clipped(&Clip { lo, hi: hi.clone() }).entries;
        lo = hi;
        // A virtual table was made when the device was open as dLSM. Nothing is appended to its
        // real tables.
        outputs.push(match lower.reals.is_empty() {
            true => Output::Append { lower: lower.clone(), entries },
            false => {
                entries.extend(lower.entries.iter().cloned());
                Output::Rewrite { entries, cuts: Vec::new() }
            }
        });
    }
    outputs
}

/// Appends the records of `entries` to a table of at most `most_segments`, or rewrites the table
/// with them. `segment_filter` is the filter size of a segment, whose keys are those of a shallower
/// level. Returns the table as it is afterwards.
pub(crate) fn append(
    lower: TableMeta,
    entries: Vec<Entry>,
    (most_segments, segment_filter): (u8, FilterSize),
    rewriter: &Rewriter<'_>,
    reader: &mut dyn PageReader,
    writer: &mut dyn PageWriter,
) -> Result<Vec<TableMeta>> {
    let page_bytes = rewriter.page_bytes;
    let mut segment = Segment::default();
    let filter = segment_filter;
    let merging = Rewriter { is_deeper: &|_| true, filter, cuts: &[], ..*rewriter };
    let parts = merging.rewrite(Merged::new(entries, page_bytes, reader), &mut segment)?;
    if parts.is_empty() {
        return Ok(vec![lower]);
    }
    let (stratum, mut table) = (lower.counter, lower);
    for part in parts {
        table.min_seq = table.min_seq.min(part.min_seq);
        table.max_seq = table.max_seq.max(part.max_seq);
        table.tombstones += part.tombstones;
        table.entries.extend(part.entries.into_iter().map(|entry| Entry { stratum, ..entry }));
    }
    let has_room = stratum < most_segments
        && table.charged_pages() <= rewriter.table_pages
        && TableMeta::encoded_bytes(&table.entries) <= page_bytes;
    if !has_room {
        let mut reader = Over { segment, below: reader };
        return rewriter.rewrite(Merged::new(table.entries, page_bytes, &mut reader), writer);
    }
    for entry in table.entries.iter_mut().filter(|entry| entry.stratum == stratum) {
        if let Some(page) = segment.page(entry) {
            entry.page = writer.write_pages(page)?;
        }
    }
    table.counter += 1;
    table.sort();
    Ok(vec![table])
}

/// A segment in memory. Its pages are numbered from the largest number down: no device uses such
/// numbers.
#[derive(Default)]
struct Segment {
    pages: Vec<SharedBytes>,
}

impl Segment {
    fn page(&self, entry: &Entry) -> Option<SharedBytes> {
        self.pages.get((u32::MAX - entry.page) as usize).cloned()
    }
}

impl PageWriter for Segment {
    fn write_pages(&mut self, bytes: SharedBytes) -> Result<u32> {
        self.pages.push(bytes);
        Ok(u32::MAX - (self.pages.len() - 1) as u32)
    }
}

/// A segment in memory, and the flash for all other pages.
struct Over<'a> {
    segment: Segment,
    below: &'a mut dyn PageReader,
}

impl PageReader for Over<'_> {
    fn read_pages(&mut self, entry: &Entry) -> Result<SharedBytes> {
        self.segment.page(entry).map_or_else(|| self.below.read_pages(entry), Ok)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kvssd::format::record::{KeyBlock, Kind, Version};

    const PAGE_BYTES: usize = 512;

    /// Pages by number, from 0 on.
    #[derive(Default)]
    struct Pages(Vec<SharedBytes>);

    impl PageWriter for Pages {
        fn write_pages(&mut self, bytes: SharedBytes) -> Result<u32> {
            self.0.push(bytes);
            Ok(self.0.len() as u32 - 1)
        }
    }

    impl PageReader for Pages {
        fn read_pages(&mut self, entry: &Entry) -> Result<SharedBytes> {
            Ok(self.0[entry.page as usize].clone())
        }
    }

    /// A rewriter with no level below it, so it drops every delete that may be dropped.
    fn rewriter(table_pages: u32) -> Rewriter<'static> {
        Rewriter {
            snapshots: &[],
            is_deeper: &|_| false,
            page_bytes: PAGE_BYTES,
            table_pages,
            is_even: true,
            filter: FilterSize::default(),
            cuts: &[],
            on_drop: &|_, _| {},
        }
    }

    /// A table of keys whose values take a quarter of a page; an odd key is deleted if `deletes`.
    fn table(keys: std::ops::Range<u64>, seq: u64, deletes: bool, pages: &mut Pages) -> TableMeta {
        let mut keys = keys;
        let next_key = |block: &mut KeyBlock| {
            let Some(at) = keys.next() else { return Ok(false) };
            let kind = if deletes && at % 2 == 1 { Kind::Delete } else { Kind::Put };
            let value = [7; 90];
            let value = if kind == Kind::Put { &value[..] } else { &[] };
            block.push(&at.to_be_bytes(), Version::new(seq + at, kind, value));
            Ok(true)
        };
        let rewriter = Rewriter { is_deeper: &|_| true, ..rewriter(99) };
        let mut tables = rewriter.write(next_key, pages).unwrap();
        assert_eq!(tables.len(), 1);
        tables.remove(0)
    }

    fn sink(upper: &TableMeta, lower: &TableMeta, pages: &mut Pages, most: u8) -> Vec<TableMeta> {
        let (mut written, entries) = (Pages(pages.0.clone()), upper.entries.clone());
        let (lower, most) = (lower.clone(), (most, FilterSize::default()));
        let made = append(lower, entries, most, &rewriter(8), pages, &mut written);
        pages.0 = written.0;
        made.unwrap()
    }

    fn keys(tables: &[TableMeta], pages: &mut Pages) -> usize {
        let entries = tables.iter().flat_map(|table| table.entries.clone()).collect();
        Merged::new(entries, PAGE_BYTES, pages).count()
    }

    #[test]
    fn a_table_with_room_takes_a_segment() {
        let mut pages = Pages::default();
        let lower = table(0..20, 1, false, &mut pages);
        let upper = table(4..10, 100, true, &mut pages);
        let before = pages.0.len();
        let made = sink(&upper, &lower, &mut pages, 3);
        let [grown] = &made[..] else { panic!("{made:?}") };
        let written = pages.0.len() - before;
        assert_eq!(grown.charged_pages(), lower.charged_pages() + written as u32);
        assert_eq!((grown.counter, grown.min_seq, grown.max_seq), (2, 1, 109));
        assert_eq!(grown.tombstones, 3, "a delete hides what the table holds below the segment");
        grown.check().unwrap();
        assert_eq!(keys(&made, &mut pages), 26);
    }

    #[test]
    fn a_table_without_room_is_merged_and_split_in_halves() {
        let mut pages = Pages::default();
        let lower = table(0..20, 1, false, &mut pages);
        let nearly = table(4..24, 100, true, &mut pages);
        let merged = sink(&nearly, &lower, &mut pages, 1);
        assert_eq!(merged.len(), 1, "the segments were too many, not the records");
        assert_eq!(keys(&merged, &mut pages), 14);
        let far = table(20..48, 100, false, &mut pages);
        let halves = sink(&far, &lower, &mut pages, 9);
        let sizes: Vec<u32> = halves.iter().map(TableMeta::charged_pages).collect();
        assert_eq!(sizes, [6, 6]);
        assert_eq!(keys(&halves, &mut pages), 48);
        assert!(halves.iter().all(|half| half.counter == 1));
    }
}
