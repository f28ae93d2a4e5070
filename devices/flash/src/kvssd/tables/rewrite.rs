//! Writes records in key order into the pages of new tables, and drops versions that no reader
//! needs. The caller decides where pages are written.

use runstone_policy::partition::CutKey;

use crate::error::Result;
use crate::kvssd::format::draft::build_pages;
use crate::kvssd::format::kv_page::KvPage;
use crate::kvssd::format::meta_page::{Clip, Entry, TableMeta};
use crate::kvssd::format::page_filter::{FilterSize, PageFilter};
use crate::kvssd::format::record::{KeyBlock, Kind, Version};
use crate::kvssd::tables::PageWriter;
use crate::kvssd::tables::merge::Merged;

/// Rewrites entries into new pages.
pub struct Rewriter<'a> {
    /// Sequence numbers of the snapshots, ascending.
    pub snapshots: &'a [u64],
    /// Whether a deeper table may have the key, so that a delete of it must stay.
    pub is_deeper: &'a dyn Fn(&[u8]) -> bool,
    /// Bytes of a page.
    pub page_bytes: usize,
    /// The most pages that a table may have.
    pub table_pages: u32,
    /// Whether a table that would be too large is split into tables of similar size.
    pub is_even: bool,
    /// How large the filters are.
    pub filter: FilterSize,
    /// The first key at or above each of these begins a new page and a new table. Ascending.
    pub cuts: &'a [CutKey],
    /// Called for each version that is not written again.
    pub on_drop: &'a dyn Fn(&[u8], &Version),
}

impl Rewriter<'_> {
    /// Merges records, drops versions that no reader needs, and writes pages. Returns the new
    /// tables, which have no number, level or transaction yet.
    pub fn rewrite(
        &self,
        mut merged: Merged<'_>,
        writer: &mut dyn PageWriter,
    ) -> Result<Vec<TableMeta>> {
        self.write(|block| merged.next_key(block), writer)
    }

    /// Writes keys in order into the pages of new tables, and drops versions that no reader needs.
    pub(crate) fn write(
        &self,
        mut next_key: impl FnMut(&mut KeyBlock) -> Result<bool>,
        writer: &mut dyn PageWriter,
    ) -> Result<Vec<TableMeta>> {
        let mut next_kept = |block: &mut KeyBlock| {
            while next_key(block)? {
                self.drop_obsolete(block);
                if !block.is_empty() {
                    return Ok(true);
                }
            }
            Ok(false)
        };
        let mut tables = Vec::new();
        // The first key beyond a cut, kept for the table to which it belongs.
        let mut beyond = KeyBlock::default();
        for cut in self.cuts {
            let next_below = |block: &mut KeyBlock| {
                if beyond.is_empty() && !next_kept(&mut beyond)? {
                    return Ok(false);
                }
                Ok(beyond.move_below(cut, block))
            };
            tables.extend(self.write_cell(next_below, writer)?);
        }
        let next_last = |block: &mut KeyBlock| {
            if beyond.is_empty() {
                return next_kept(block);
            }
            std::mem::swap(block, &mut beyond);
            Ok(true)
        };
        tables.extend(self.write_cell(next_last, writer)?);
        Ok(tables)
    }

    /// Writes keys of one cell, whose tables are cut only by size.
    fn write_cell(
        &self,
        next_key: impl FnMut(&mut KeyBlock) -> Result<bool>,
        writer: &mut dyn PageWriter,
    ) -> Result<Vec<TableMeta>> {
        let mut pages = Vec::new();
        build_pages(next_key, self.page_bytes, |page| {
            let page_count = (page.bytes().len() / self.page_bytes) as u16;
            let keys = (0..page.record_count()).map(|at| page.key(at));
            let filter = PageFilter::of_keys(keys, self.filter);
            let entry = Entry {
                page: writer.write_pages(page.bytes().clone())?,
                page_count,
                stratum: 0,
                is_charged: true,
                has_tombstones: false,
                record_count: page.record_count() as u32,
                clip: Clip::of_keys(page.key(0), page.key(page.record_count() - 1)),
                filter,
            };
            pages.push(table_of(&page, entry));
            Ok(())
        })?;
        let mut tables = join(pages.iter(), self.table_pages, self.page_bytes);
        if self.is_even && tables.len() > 1 {
            let page_count: u32 = pages.iter().map(TableMeta::charged_pages).sum();
            let even_pages = page_count.div_ceil(tables.len() as u32);
            tables = join(pages.iter(), even_pages, self.page_bytes);
        }
        Ok(tables)
    }

    /// 1. A version stays if it is the newest, or if a snapshot is between it and the next newer
    ///    one.
    /// 2. If the oldest version that stays is a delete, it is dropped when every snapshot sees it
    ///    and nothing deeper is left for it to hide.
    fn drop_obsolete(&self, block: &mut KeyBlock) {
        let KeyBlock { key, versions, .. } = block;
        if versions.len() > 1 {
            let mut newer: Option<u64> = None;
            versions.retain(|version| {
                let is_kept = newer.is_none_or(|newer| is_seen(self.snapshots, version.seq, newer));
                newer = Some(version.seq);
                if !is_kept {
                    (self.on_drop)(key, version);
                }
                is_kept
            });
        }
        let is_idle = |last: &Version| {
            let is_seen_by_all = self.snapshots.first().is_none_or(|&first| last.seq <= first);
            last.kind == Kind::Delete && is_seen_by_all && !(self.is_deeper)(key)
        };
        if versions.last().is_some_and(is_idle) {
            versions.pop();
        }
    }
}

/// Whether a snapshot sees a version even though there is a newer one.
pub(crate) fn is_seen(snapshots: &[u64], seq: u64, newer: u64) -> bool {
    let from = snapshots.partition_point(|snapshot| *snapshot < seq);
    snapshots.get(from).is_some_and(|&snapshot| snapshot < newer)
}

/// A table of one page, with the totals that a table keeps about its records.
fn table_of(page: &KvPage, mut entry: Entry) -> TableMeta {
    let mut table = TableMeta { counter: 1, min_seq: u64::MAX, ..TableMeta::default() };
    for (seq, kind) in (0..page.record_count()).map(|at| page.stamp(at)) {
        table.tombstones += u64::from(kind == Kind::Delete);
        table.min_seq = table.min_seq.min(seq);
        table.max_seq = table.max_seq.max(seq);
    }
    entry.has_tombstones = table.tombstones > 0;
    table.entries.push(entry);
    table
}

/// Joins pages, in order, into tables of at most `table_pages` whose metadata fit a page.
fn join<'a>(
    pages: impl Iterator<Item = &'a TableMeta>,
    table_pages: u32,
    page_bytes: usize,
) -> Vec<TableMeta> {
    let mut tables: Vec<TableMeta> = Vec::new();
    // For the last table: the number of its pages, and the bytes of its metadata page.
    let (mut used_pages, mut used_bytes) = (0, 0);
    for page in pages {
        let page_count = page.charged_pages();
        let entry_bytes = TableMeta::encoded_bytes(&page.entries) - TableMeta::encoded_bytes(&[]);
        let has_room =
            used_pages + page_count <= table_pages && used_bytes + entry_bytes <= page_bytes;
        match tables.last_mut().filter(|_| has_room) {
            Some(table) => {
                table.entries.extend_from_slice(&page.entries);
                table.tombstones += page.tombstones;
                table.min_seq = table.min_seq.min(page.min_seq);
                table.max_seq = table.max_seq.max(page.max_seq);
            }
            None => {
                tables.push(page.clone());
                (used_pages, used_bytes) = (0, TableMeta::encoded_bytes(&[]));
            }
        }
        used_pages += page_count;
        used_bytes += entry_bytes;
    }
    tables
}
