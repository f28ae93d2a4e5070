//! Reads over clipped pages: lookups by strata, ordered scans, and the rewriting of entries into
//! new pages. Where pages come from and go to is the caller's.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

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
    let may_know = |entry: &&Entry| entry.clip.contains(key);
    let mut entries: Vec<&Entry> = table.entries.iter().filter(may_know).collect();
    entries.sort_by_key(|entry| Reverse(entry.stratum));
    for entry in entries {
        let bytes = reader.read_pages(entry)?;
        if let Some(record) = find_in(&bytes, page_bytes, key, snapshot)? {
            return Ok(match record.kind {
                Kind::Put => Lookup::Found(record.value.to_vec()),
                Kind::Delete => Lookup::Deleted,
            });
        }
    }
    Ok(Lookup::Absent)
}

/// All records of some entries inside their clips, by key, newest versions first. A page is read
/// when the merge comes to its clip, and kept until it is used up.
pub struct Merged<'a> {
    reader: &'a mut dyn PageReader,
    page_bytes: usize,
    /// Not read yet; the last is next.
    waiting: Vec<Entry>,
    heap: BinaryHeap<Reverse<Head>>,
}

/// The next record of an open page. Ordered by key, then newest first.
struct Head {
    record: Record,
    rest: std::vec::IntoIter<Record>,
}

impl Head {
    fn order(&self) -> (&[u8], Reverse<u64>) {
        (&self.record.key, Reverse(self.record.seq))
    }
}

impl PartialEq for Head {
    fn eq(&self, other: &Head) -> bool {
        self.order() == other.order()
    }
}

impl Eq for Head {}

impl PartialOrd for Head {
    fn partial_cmp(&self, other: &Head) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Head {
    fn cmp(&self, other: &Head) -> std::cmp::Ordering {
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
        Merged { reader, page_bytes, waiting: entries, heap: BinaryHeap::new() }
    }

    /// Opens every page whose clip begins at or before the smallest open key.
    fn open_pages(&mut self) -> Result<()> {
        while let Some(next) = self.waiting.last() {
            let is_later = |head: &Reverse<Head>| head.0.record.key < next.clip.lo;
            if self.heap.peek().is_some_and(is_later) {
                break;
            }
            let Some(entry) = self.waiting.pop() else { break };
            let page = KvPage::decode(&self.reader.read_pages(&entry)?, self.page_bytes)?;
            let mut records = page.into_records();
            records.retain(|record| entry.clip.contains(&record.key));
            self.push(records.into_iter());
        }
        Ok(())
    }

    fn push(&mut self, mut rest: std::vec::IntoIter<Record>) {
        if let Some(record) = rest.next() {
            self.heap.push(Reverse(Head { record, rest }));
        }
    }
}

impl Iterator for Merged<'_> {
    type Item = Result<Record>;

    fn next(&mut self) -> Option<Result<Record>> {
        if let Err(error) = self.open_pages() {
            self.waiting.clear();
            self.heap.clear();
            return Some(Err(error));
        }
        let Reverse(Head { record, rest }) = self.heap.pop()?;
        self.push(rest);
        Some(Ok(record))
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
}

impl Rewriter<'_> {
    /// Merges, drops what no reader needs, and writes pages. Returns the new tables.
    pub fn rewrite(
        &self,
        merged: Merged<'_>,
        writer: &mut dyn PageWriter,
    ) -> Result<Vec<NewTable>> {
        self.write(self.kept(merged), writer)
    }

    /// Writes keys in order into the pages of new tables.
    pub(super) fn write(
        &self,
        keys: impl IntoIterator<Item = Result<KeyBlock>>,
        writer: &mut dyn PageWriter,
    ) -> Result<Vec<NewTable>> {
        let mut tables: Vec<NewTable> = Vec::new();
        let mut used_pages = 0;
        build_pages(keys, self.page_bytes, |bytes, records| {
            let page_count = (bytes.len() / self.page_bytes) as u16;
            let entry = new_entry(writer.write_pages(&bytes)?, page_count, records);
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

    /// The versions of each key that stay.
    fn kept<'m>(&self, merged: Merged<'m>) -> impl Iterator<Item = Result<KeyBlock>> + use<'_, 'm> {
        let mut merged = merged.peekable();
        std::iter::from_fn(move || {
            loop {
                let first = match merged.next()? {
                    Ok(record) => record,
                    Err(error) => return Some(Err(error)),
                };
                let mut versions = vec![first];
                while let Some(Ok(same)) =
                    merged.next_if(|next| matches!(next, Ok(next) if next.key == versions[0].key))
                {
                    versions.push(same);
                }
                self.drop_obsolete(&mut versions);
                if !versions.is_empty() {
                    return Some(Ok(versions));
                }
            }
        })
    }

    /// 1. A version stays if it is the newest, or if a snapshot lies between it and the next newer.
    /// 2. A delete that is the oldest to stay goes if every snapshot sees it and nothing deeper is
    ///    left for it to hide.
    pub(super) fn drop_obsolete(&self, versions: &mut Vec<Record>) {
        let mut newer: Option<u64> = None;
        versions.retain(|record| {
            let is_seen = newer.is_none_or(|newer| {
                let from = self.snapshots.partition_point(|&snapshot| snapshot < record.seq);
                self.snapshots.get(from).is_some_and(|&snapshot| snapshot < newer)
            });
            newer = Some(record.seq);
            is_seen
        });
        let is_idle = |last: &&Record| {
            let is_seen_by_all = self.snapshots.first().is_none_or(|&first| last.seq <= first);
            last.kind == Kind::Delete && is_seen_by_all && !(self.is_deeper)(&last.key)
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
            self.tombstones += u64::from(record.kind == Kind::Delete);
            self.min_seq = self.min_seq.min(record.seq);
            self.max_seq = self.max_seq.max(record.seq);
        }
    }
}

fn new_entry(page: u32, page_count: u16, records: &[Record]) -> Entry {
    let key = |record: Option<&Record>| record.map_or(Vec::new(), |record| record.key.clone());
    Entry {
        page,
        page_count,
        stratum: 0,
        is_charged: true,
        has_tombstones: records.iter().any(|record| record.kind == Kind::Delete),
        record_count: records.len() as u32,
        clip: Clip::of_keys(&key(records.first()), &key(records.last())),
    }
}
