//! Reads over clipped pages: lookups by strata, ordered scans, and the rewriting of entries into
//! new pages. Where pages come from and go to is the caller's.

use std::cmp::{Ordering, Reverse};
use std::ops::Range;

use runstone_policy::partition::CutKey;

use super::draft::build_pages;
use super::key::Key;
use super::kv_page::{KvPage, find_in};
use super::meta_page::{Clip, Entry, TableMeta};
use super::record::{KeyBlock, Kind, Record, Version};
use super::{PageReader, PageWriter};
use crate::error::Result;

/// Looks a key up in one table: the strata from high to low, only in entries whose clip has the
/// key; the first version that a reader at `snapshot` sees wins, a delete too. Where there is none,
/// an older table may know.
pub fn find_record(
    table: &TableMeta,
    key: &[u8],
    snapshot: u64,
    page_bytes: usize,
    reader: &mut dyn PageReader,
) -> Result<Option<Record>> {
    let mut entries = candidates(table, key);
    entries.sort_by_key(|entry| Reverse(entry.stratum));
    for entry in entries {
        let bytes = reader.read_pages(entry)?;
        let found = find_in(&bytes, page_bytes, key, snapshot)?;
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}

/// The entries that may know a key: at most one of each stratum, that with the last start before
/// the key, for those of one stratum are disjoint. So the search ends when all strata were met.
fn candidates<'a>(table: &'a TableMeta, key: &[u8]) -> Vec<&'a Entry> {
    let begun = table.entries.partition_point(|entry| *entry.clip.lo <= *key);
    let mut is_met = [false; 1 << u8::BITS];
    let mut left = table.counter;
    let mut found = Vec::new();
    for entry in table.entries[..begun].iter().rev() {
        if left == 0 {
            break;
        }
        if !std::mem::replace(&mut is_met[usize::from(entry.stratum)], true) {
            left -= 1;
            found.extend(Some(entry).filter(|entry| *key < *entry.clip.hi));
        }
    }
    found
}

/// All records of some entries inside their clips, by key, newest versions first. A page is read
/// when the merge comes to its clip, and kept until it is used up.
///
/// Records are taken in runs: as long as one page has keys below all that other pages have, these
/// need not be asked. Few pages are open at a time, one of each table or stratum: they are kept
/// sorted, which asks fewer keys than a heap does.
pub struct Merged<'a> {
    reader: &'a mut dyn PageReader,
    page_bytes: usize,
    /// Not read yet; the last is next.
    waiting: Vec<Entry>,
    /// Sorted, the last is next: its first `run` records, if that is not 0.
    open: Vec<OpenPage>,
    run: usize,
    /// No other page has a key of the run.
    is_alone: bool,
}

/// A page with the records that are still to come. Ordered by key, then newest first.
struct OpenPage {
    page: KvPage,
    rest: Range<usize>,
    /// The first key of the rest, if there is any: it is compared most, and fastest here.
    head: Key,
}

impl OpenPage {
    /// `None` without records.
    fn of(page: KvPage, rest: Range<usize>) -> Option<OpenPage> {
        let head = Key::from(rest.clone().next().map(|at| page.key(at))?);
        Some(OpenPage { page, rest, head })
    }

    fn is_before(&self, other: &OpenPage) -> bool {
        let seq = |page: &OpenPage| page.page.stamp(page.rest.start).0;
        let order = self.head.cmp(&other.head).then_with(|| seq(other).cmp(&seq(self)));
        order == Ordering::Less
    }

    /// Takes records off the front.
    fn skip(&mut self, count: usize) {
        self.rest.start += count;
        if !self.rest.is_empty() {
            self.head = self.key(0).into();
        }
    }

    fn key(&self, at: usize) -> &[u8] {
        self.page.key(self.rest.start + at)
    }

    /// Whether a record is a value, and the last version of its key in this page. The first record
    /// of a run is the first version.
    fn is_plain(&self, at: usize) -> bool {
        let is_last = at + 1 == self.rest.len() || self.key(at) != self.key(at + 1);
        is_last && self.page.stamp(self.rest.start + at).1 == Kind::Put
    }

    /// How many keys are below `limit`. Short runs are usual: the search widens from the start.
    fn count_below(&self, limit: &Key) -> usize {
        if self.head >= *limit {
            return 0;
        }
        let (mut from, mut to) = (1, 2);
        while to <= self.rest.len() && self.key(to - 1) < &**limit {
            (from, to) = (to, 2 * to);
        }
        to = (to - 1).min(self.rest.len());
        while from < to {
            let middle = from.midpoint(to);
            if self.key(middle) < &**limit {
                from = middle + 1;
            } else {
                to = middle;
            }
        }
        from
    }
}

impl<'a> Merged<'a> {
    /// Entries in any order.
    pub fn new(
        mut entries: Vec<Entry>,
        page_bytes: usize,
        reader: &'a mut dyn PageReader,
    ) -> Merged<'a> {
        entries.sort_by(|one, two| two.clip.lo.cmp(&one.clip.lo));
        let (waiting, open) = (entries, Vec::new());
        Merged { reader, page_bytes, waiting, open, run: 0, is_alone: true }
    }

    /// Opens every page whose clip begins at or before the smallest open key.
    fn open_pages(&mut self) -> Result<()> {
        while let Some(next) = self.waiting.last() {
            if self.open.last().is_some_and(|first| first.head < next.clip.lo) {
                break;
            }
            let Some(entry) = self.waiting.pop() else { break };
            let page = KvPage::decode(self.reader.read_pages(&entry)?, self.page_bytes)?;
            page.fetch();
            let rest = page.inside(&entry.clip);
            if let Some(page) = OpenPage::of(page, rest) {
                page.page.fetch_values(page.rest.clone());
                self.open.push(page);
                self.sink();
            }
        }
        Ok(())
    }

    /// Puts the last open page where it belongs.
    fn sink(&mut self) {
        let mut at = self.open.len().saturating_sub(1);
        while at > 0 && self.open[at - 1].is_before(&self.open[at]) {
            self.open.swap(at - 1, at);
            at -= 1;
        }
    }

    /// Makes sure that a run is there; `false` behind the last record.
    fn find_run(&mut self) -> Result<bool> {
        if self.run > 0 {
            return Ok(true);
        }
        match self.open.last() {
            Some(page) if page.rest.is_empty() => drop(self.open.pop()),
            _ => self.sink(),
        }
        self.open_pages()?;
        let Some((first, others)) = self.open.split_last() else { return Ok(false) };
        let others = others.last().map(|page| &page.head);
        let unread = self.waiting.last().map(|entry| &entry.clip.lo);
        let below = match others.into_iter().chain(unread).min() {
            Some(limit) => first.count_below(limit),
            None => first.rest.len(),
        };
        self.is_alone = below > 0;
        self.run = below.max(1);
        Ok(true)
    }

    /// The records at the start of the run that are values and the only versions of their keys, if
    /// there are several.
    fn take_run(&mut self) -> Option<(KvPage, Range<usize>)> {
        let first = self.open.last_mut()?;
        let count = (0..self.run).take_while(|at| first.is_plain(*at)).count();
        if count < 2 {
            return None;
        }
        let taken = first.rest.start..first.rest.start + count;
        first.skip(count);
        self.run -= count;
        Some((first.page.clone(), taken))
    }

    /// The next record of the run: page and position.
    fn take(&mut self) -> Option<(&KvPage, usize)> {
        self.run -= 1;
        let first = self.open.last_mut()?;
        let at = first.rest.start;
        first.skip(1);
        Some((&first.page, at))
    }

    /// Adds all versions of the next key, newest first, or a run; `false` behind the last key.
    fn next_key(&mut self, block: &mut KeyBlock) -> Result<bool> {
        while self.find_run()? {
            if block.versions.is_empty() && self.is_alone && self.run > 1 {
                block.run = self.take_run();
                if block.run.is_some() {
                    return Ok(true);
                }
            }
            let key = self.open.last().map(|page| &*page.head);
            if !block.versions.is_empty() && Some(&block.key[..]) != key {
                break;
            }
            if let Some((page, at)) = self.take() {
                block.push(page.key(at), page.version(at));
            }
            if self.run == 0 && self.is_alone {
                break;
            }
        }
        Ok(!block.versions.is_empty())
    }
}

impl Iterator for Merged<'_> {
    type Item = Result<Record>;

    fn next(&mut self) -> Option<Result<Record>> {
        match self.find_run() {
            Ok(true) => self.take().map(|(page, at)| Ok(page.record(at))),
            Ok(false) => None,
            Err(error) => {
                self.waiting.clear();
                self.open.clear();
                Some(Err(error))
            }
        }
    }
}

/// Rewrites entries into new pages.
pub struct Rewriter<'a> {
    /// Sequence numbers of the snapshots, ascending.
    pub snapshots: &'a [u64],
    /// Whether a deeper table may have the key, so that its delete must stay.
    pub is_deeper: &'a dyn Fn(&[u8]) -> bool,
    /// Bytes of a page.
    pub page_bytes: usize,
    /// Most pages of a table.
    pub table_pages: u32,
    /// A page and its table end before the first key at or above each of these; ascending.
    pub cuts: &'a [CutKey],
}

impl Rewriter<'_> {
    /// Merges, drops what no reader needs, and writes pages. Returns the new tables.
    pub fn rewrite(
        &self,
        mut merged: Merged<'_>,
        writer: &mut dyn PageWriter,
    ) -> Result<Vec<NewTable>> {
        self.write(|block| merged.next_key(block), writer)
    }

    /// Writes keys in order, without what no reader needs, into the pages of new tables.
    pub(super) fn write(
        &self,
        mut next_key: impl FnMut(&mut KeyBlock) -> Result<bool>,
        writer: &mut dyn PageWriter,
    ) -> Result<Vec<NewTable>> {
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
        // The first key beyond a cut, until its own table takes it.
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

    /// Writes keys that are in no table with others, unless by size.
    fn write_cell(
        &self,
        next_key: impl FnMut(&mut KeyBlock) -> Result<bool>,
        writer: &mut dyn PageWriter,
    ) -> Result<Vec<NewTable>> {
        let mut tables: Vec<NewTable> = Vec::new();
        // Of the last table: its pages, and the bytes of its metadata page.
        let (mut used_pages, mut used_bytes) = (0, 0);
        build_pages(next_key, self.page_bytes, |page| {
            let page_count = (page.bytes().len() / self.page_bytes) as u16;
            let summary = Summary::of(&page);
            let number = writer.write_pages(page.bytes().clone())?;
            let entry = new_entry(number, page_count, &page, &summary);
            let entry_bytes = TableMeta::encoded_bytes(std::slice::from_ref(&entry));
            let is_full = used_pages + u32::from(page_count) > self.table_pages;
            let has_room = !is_full && used_bytes + entry_bytes <= self.page_bytes;
            if tables.is_empty() || !has_room {
                tables.push(NewTable { min_seq: u64::MAX, ..NewTable::default() });
                (used_pages, used_bytes) = (0, TableMeta::encoded_bytes(&[]));
            }
            if let Some(table) = tables.last_mut() {
                table.add(entry, &summary);
            }
            used_pages += u32::from(page_count);
            used_bytes += entry_bytes - TableMeta::encoded_bytes(&[]);
            Ok(())
        })?;
        Ok(tables)
    }

    /// 1. A version stays if it is the newest, or if a snapshot lies between it and the next newer.
    /// 2. A delete that is the oldest to stay goes if every snapshot sees it and nothing deeper is
    ///    left for it to hide.
    fn drop_obsolete(&self, block: &mut KeyBlock) {
        let KeyBlock { key, versions, .. } = block;
        if versions.len() > 1 {
            let mut newer: Option<u64> = None;
            versions.retain(|version| {
                let is_seen = newer.is_none_or(|newer| {
                    let from = self.snapshots.partition_point(|snapshot| *snapshot < version.seq);
                    self.snapshots.get(from).is_some_and(|&snapshot| snapshot < newer)
                });
                newer = Some(version.seq);
                is_seen
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

/// A table that was just written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewTable {
    /// Its pages, in order.
    pub entries: Vec<Entry>,
    /// Records in them.
    pub record_count: u64,
    /// Deletes among these.
    pub tombstones: u64,
    /// Smallest sequence number.
    pub min_seq: u64,
    /// Largest.
    pub max_seq: u64,
}

impl NewTable {
    fn add(&mut self, entry: Entry, summary: &Summary) {
        self.record_count += u64::from(entry.record_count);
        self.entries.push(entry);
        self.tombstones += summary.tombstones;
        self.min_seq = self.min_seq.min(summary.min_seq);
        self.max_seq = self.max_seq.max(summary.max_seq);
    }
}

/// What a table needs to know of the records of a page.
struct Summary {
    tombstones: u64,
    min_seq: u64,
    max_seq: u64,
}

impl Summary {
    fn of(page: &KvPage) -> Summary {
        let mut summary = Summary { tombstones: 0, min_seq: u64::MAX, max_seq: 0 };
        for (seq, kind) in (0..page.record_count()).map(|at| page.stamp(at)) {
            summary.tombstones += u64::from(kind == Kind::Delete);
            summary.min_seq = summary.min_seq.min(seq);
            summary.max_seq = summary.max_seq.max(seq);
        }
        summary
    }
}

fn new_entry(number: u32, page_count: u16, page: &KvPage, summary: &Summary) -> Entry {
    Entry {
        page: number,
        page_count,
        stratum: 0,
        is_charged: true,
        has_tombstones: summary.tombstones > 0,
        record_count: page.record_count() as u32,
        clip: Clip::of_keys(page.key(0), page.key(page.record_count() - 1)),
    }
}
