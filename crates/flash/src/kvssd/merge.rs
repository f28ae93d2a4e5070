//! Reads over clipped pages: lookups by strata, ordered scans, and the rewriting of entries into
//! new pages. Where pages come from and go to is the caller's.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;

use runstone_policy::partition::CutKey;

use super::kv_page::{KeyBlock, Kind, KvPage, Record, build_pages, find_in};
use super::meta_page::{Clip, Entry, TableMeta};
use super::{PageReader, PageWriter};
use crate::error::Result;

/// What a table says about a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// Nothing: an older table may know.
    Absent,
    /// It was deleted.
    Deleted,
    /// It has this value.
    Found(Vec<u8>),
}

/// Looks a key up in one table: the strata from high to low, only in entries whose clip has the
/// key; the first version that a reader at `snapshot` sees wins.
pub fn lookup(
    table: &TableMeta,
    key: &[u8],
    snapshot: u64,
    page_bytes: usize,
    reader: &mut dyn PageReader,
) -> Result<Lookup> {
    let begun = table.entries.partition_point(|entry| *entry.clip.lo <= *key);
    let may_know = |entry: &&Entry| *key < *entry.clip.hi;
    let mut entries: Vec<&Entry> = table.entries[..begun].iter().filter(may_know).collect();
    entries.sort_by_key(|entry| Reverse(entry.stratum));
    for entry in entries {
        let bytes = reader.read_pages(entry)?;
        if let Some(record) = find_in(&bytes, page_bytes, key, snapshot)? {
            return Ok(match record.kind() {
                Kind::Put => Lookup::Found(record.value().to_vec()),
                Kind::Delete => Lookup::Deleted,
            });
        }
    }
    Ok(Lookup::Absent)
}

/// All records of some entries inside their clips, by key, newest versions first. A page is read
/// when the merge comes to its clip, and kept until it is used up.
///
/// Records are taken in runs: as long as one page has keys below all that other pages have, neither
/// heap nor neighbours need to be asked.
pub struct Merged<'a> {
    reader: &'a mut dyn PageReader,
    page_bytes: usize,
    /// Not read yet; the last is next.
    waiting: Vec<Entry>,
    heap: BinaryHeap<Reverse<OpenPage>>,
    /// The page of the run; its first `run` records come next.
    current: Option<OpenPage>,
    run: usize,
    /// No other page has a key of the run.
    is_alone: bool,
}

/// A page with the records that are still to come: at least one. Ordered by key, then newest first.
struct OpenPage {
    page: KvPage,
    rest: Range<usize>,
}

impl OpenPage {
    fn order(&self) -> (&[u8], Reverse<u64>) {
        (self.key(0), Reverse(self.page.seq(self.rest.start)))
    }

    fn key(&self, at: usize) -> &[u8] {
        self.page.key(self.rest.start + at)
    }

    /// How many keys are below `limit`. Short runs are usual: the search widens from the start.
    fn count_below(&self, limit: &[u8]) -> usize {
        let (mut from, mut to) = (0, 1);
        while to <= self.rest.len() && self.key(to - 1) < limit {
            (from, to) = (to, 2 * to);
        }
        to = (to - 1).min(self.rest.len());
        while from < to {
            let middle = from.midpoint(to);
            if self.key(middle) < limit {
                from = middle + 1;
            } else {
                to = middle;
            }
        }
        from
    }
}

impl PartialEq for OpenPage {
    fn eq(&self, other: &OpenPage) -> bool {
        self.order() == other.order()
    }
}

impl Eq for OpenPage {}

impl PartialOrd for OpenPage {
    fn partial_cmp(&self, other: &OpenPage) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for OpenPage {
    fn cmp(&self, other: &OpenPage) -> std::cmp::Ordering {
        self.order().cmp(&other.order())
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
        let (heap, current) = (BinaryHeap::new(), None);
        Merged { reader, page_bytes, waiting: entries, heap, current, run: 0, is_alone: true }
    }

    /// Opens every page whose clip begins at or before the smallest open key.
    fn open_pages(&mut self) -> Result<()> {
        while let Some(next) = self.waiting.last() {
            if self.heap.peek().is_some_and(|first| *first.0.key(0) < *next.clip.lo) {
                break;
            }
            let Some(entry) = self.waiting.pop() else { break };
            let page = KvPage::decode(self.reader.read_pages(&entry)?, self.page_bytes)?;
            let rest = page.inside(&entry.clip);
            if !rest.is_empty() {
                self.heap.push(Reverse(OpenPage { page, rest }));
            }
        }
        Ok(())
    }

    /// Makes sure that a run is there; `false` behind the last record.
    fn find_run(&mut self) -> Result<bool> {
        if self.run > 0 {
            return Ok(true);
        }
        let used = self.current.take().filter(|page| !page.rest.is_empty());
        self.heap.extend(used.map(Reverse));
        self.open_pages()?;
        let Some(Reverse(first)) = self.heap.pop() else { return Ok(false) };
        let others = self.heap.peek().map(|page| page.0.key(0));
        let unread = self.waiting.last().map(|entry| &*entry.clip.lo);
        let below = match others.into_iter().chain(unread).min() {
            Some(limit) => first.count_below(limit),
            None => first.rest.len(),
        };
        self.is_alone = below > 0;
        self.run = below.max(1);
        self.current = Some(first);
        Ok(true)
    }

    fn take(&mut self) -> Option<Record> {
        self.run -= 1;
        let current = self.current.as_mut()?;
        current.rest.next().map(|at| current.page.record(at))
    }

    /// Adds all versions of the next key, newest first; `false` behind the last key.
    fn next_key(&mut self, versions: &mut KeyBlock) -> Result<bool> {
        while self.find_run()? {
            let key = self.current.as_ref().map(|page| page.key(0));
            if versions.first().is_some_and(|first| Some(first.key()) != key) {
                break;
            }
            versions.extend(self.take());
            if self.run == 0 && self.is_alone {
                break;
            }
        }
        Ok(!versions.is_empty())
    }
}

impl Iterator for Merged<'_> {
    type Item = Result<Record>;

    fn next(&mut self) -> Option<Result<Record>> {
        match self.find_run() {
            Ok(true) => self.take().map(Ok),
            Ok(false) => None,
            Err(error) => {
                self.waiting.clear();
                self.heap.clear();
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
        self.write(|versions| merged.next_key(versions), writer)
    }

    /// Writes keys in order, without what no reader needs, into the pages of new tables.
    pub(super) fn write(
        &self,
        mut next_key: impl FnMut(&mut KeyBlock) -> Result<bool>,
        writer: &mut dyn PageWriter,
    ) -> Result<Vec<NewTable>> {
        let mut next_kept = |versions: &mut KeyBlock| {
            while next_key(versions)? {
                self.drop_obsolete(versions);
                if !versions.is_empty() {
                    return Ok(true);
                }
            }
            Ok(false)
        };
        let mut tables = Vec::new();
        // The first key beyond a cut, until its own table takes it.
        let mut beyond = KeyBlock::new();
        for cut in self.cuts {
            let next_below = |versions: &mut KeyBlock| {
                if beyond.is_empty() && !next_kept(&mut beyond)? {
                    return Ok(false);
                }
                let is_below = *beyond[0].key() < **cut;
                if is_below {
                    versions.append(&mut beyond);
                }
                Ok(is_below)
            };
            tables.extend(self.write_cell(next_below, writer)?);
        }
        let next_last = |versions: &mut KeyBlock| {
            versions.append(&mut beyond);
            Ok(!versions.is_empty() || next_kept(versions)?)
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
        let mut used_pages = 0;
        build_pages(next_key, self.page_bytes, |bytes, records| {
            let page_count = (bytes.len() / self.page_bytes) as u16;
            let entry = new_entry(writer.write_pages(bytes.into())?, page_count, records);
            let meta_bytes = |table: &NewTable| {
                TableMeta::encoded_bytes(&table.entries)
                    + TableMeta::encoded_bytes(std::slice::from_ref(&entry))
            };
            let is_full = used_pages + u32::from(page_count) > self.table_pages;
            let fits = |table: &NewTable| !is_full && meta_bytes(table) <= self.page_bytes;
            if !tables.last().is_some_and(fits) {
                tables.push(NewTable { min_seq: u64::MAX, ..NewTable::default() });
                used_pages = 0;
            }
            if let Some(table) = tables.last_mut() {
                table.add(entry, records);
            }
            used_pages += u32::from(page_count);
            Ok(())
        })?;
        Ok(tables)
    }

    /// 1. A version stays if it is the newest, or if a snapshot lies between it and the next newer.
    /// 2. A delete that is the oldest to stay goes if every snapshot sees it and nothing deeper is
    ///    left for it to hide.
    fn drop_obsolete(&self, versions: &mut Vec<Record>) {
        let mut newer: Option<u64> = None;
        versions.retain(|record| {
            let is_seen = newer.is_none_or(|newer| {
                let from = self.snapshots.partition_point(|&snapshot| snapshot < record.seq());
                self.snapshots.get(from).is_some_and(|&snapshot| snapshot < newer)
            });
            newer = Some(record.seq());
            is_seen
        });
        let is_idle = |last: &&Record| {
            let is_seen_by_all = self.snapshots.first().is_none_or(|&first| last.seq() <= first);
            last.kind() == Kind::Delete && is_seen_by_all && !(self.is_deeper)(last.key())
        };
        if versions.last().as_ref().is_some_and(is_idle) {
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
    fn add(&mut self, entry: Entry, records: &[Record]) {
        self.entries.push(entry);
        self.record_count += records.len() as u64;
        for record in records {
            self.tombstones += u64::from(record.kind() == Kind::Delete);
            self.min_seq = self.min_seq.min(record.seq());
            self.max_seq = self.max_seq.max(record.seq());
        }
    }
}

fn new_entry(page: u32, page_count: u16, records: &[Record]) -> Entry {
    let key = |record: Option<&Record>| record.map_or(Vec::new(), |record| record.key().to_vec());
    Entry {
        page,
        page_count,
        stratum: 0,
        is_charged: true,
        has_tombstones: records.iter().any(|record| record.kind() == Kind::Delete),
        record_count: records.len() as u32,
        clip: Clip::of_keys(&key(records.first()), &key(records.last())),
    }
}
