//! Separated values: how they are written, read, and moved.
//!
//! A flush writes the pages of its tables, with pointers. Then it writes the values, in the order
//! of their sequence numbers, into pages of their groups; then the metadata pages of the tables;
//! and then the journal page, which names the pages of values. So what a power cut leaves of a
//! flush is garbage as a whole. Rejected: metadata pages for the pages of values too. A journal
//! page has enough room, and a metadata page for each group wrote as much as every tenth value.
//!
//! The collection of a block is one transaction, like all collections (`collect.rs`):
//!
//! 1. The needed values of its pages are read and packed into new pages of the group. They keep
//!    their addresses, so no table is written.
//! 2. The journal page names the block as emptied, and the new pages. Only then is the block free.
//!
//! Compactions know which values are needed, because they report each pointer that they drop. That
//! knowledge is not on flash. After a restart the pointers are counted before the first collection,
//! and until then every value counts as needed. If values are in groups, all pages of a group are
//! read together now and then. Of the versions of a key there, those that a newer one hides are
//! garbage, although the tree still has their pointers. After the next collection these pointers
//! lead nowhere. Nobody notices, because what hides them is dropped later than they are.

pub(super) mod map;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::kvssd::counters::Cause;
use crate::kvssd::device::{Change, KvSsd, read_records};
use crate::kvssd::format::draft::Draft;
use crate::kvssd::format::key::Key;
use crate::kvssd::format::kv_page::{KvPage, find_in, page_room_bytes, record_bytes};
use crate::kvssd::format::record::{Kind, Version};
use crate::kvssd::options::ValuePlacement;
use crate::kvssd::space::{Owner, Stream};
use crate::kvssd::tables::rewrite::is_seen;
use crate::kvssd::tree::{Commit, Node, ValueEntry};
use crate::kvssd::values::map::ValueChange;
use crate::nand::{SharedBytes, SharedValue};

/// A version and its key.
pub(super) type Keyed = (Key, Version);

impl KvSsd {
    /// Values of at least this many bytes are separated by a flush; `None` if no value is.
    pub(super) fn apart_from(&self) -> Option<usize> {
        let is_inline = self.options.values == ValuePlacement::Inline;
        (!is_inline).then_some(self.options.values_from as usize)
    }

    /// The value of a version, wherever it is stored.
    pub(super) fn value_of(
        &mut self,
        key: &[u8],
        version: Option<Version>,
    ) -> Result<Option<Vec<u8>>> {
        let Some(Version { seq, kind, value, .. }) = version else { return Ok(None) };
        Ok(match kind {
            Kind::Put => Some(value.to_vec()),
            Kind::Delete => None,
            Kind::Pointer => Some(self.read_value(key, seq)?.to_vec()),
        })
    }

    /// Reads a separated value.
    pub(super) fn read_value(&mut self, key: &[u8], seq: u64) -> Result<SharedValue> {
        let found = self.find_value(key, seq)?;
        found.ok_or_else(|| {
            let why = format!("version {seq} of a key is in none");
            Error::Corrupt { what: "value page", why }
        })
    }

    fn find_value(&mut self, key: &[u8], seq: u64) -> Result<Option<SharedValue>> {
        let home = self.values.home(self.values.group_of(key), seq);
        let Some((page, page_count)) = home else { return Ok(None) };
        let bytes = self.space.read(page, page_count)?;
        self.counters.value_pages_read += u64::from(page_count);
        let found = find_in(&bytes, self.space.page_bytes(), key, seq)?;
        let value = found.filter(|record| record.seq() == seq);
        Ok(value.map(|record| record.version().value.clone()))
    }

    /// Writes the values of a flush, except those that the flush itself found hidden.
    pub(super) fn write_values(
        &mut self,
        mut values: Vec<Keyed>,
        commit: &mut Commit,
        change: &mut Change,
    ) -> Result<()> {
        let hidden: BTreeSet<u64> =
            change.values.dropped.drain(..).map(|(_, seq, _)| seq).collect();
        values.retain(|(_, version)| !hidden.contains(&version.seq));
        self.counters.values_apart += values.len() as u64;
        let mut groups = vec![Vec::new(); usize::from(self.values.group_count())];
        for (key, version) in values {
            groups[usize::from(self.values.group_of(&key))].push((key, version));
        }
        for (group, values) in (0..).zip(groups) {
            self.write_group(group, values, &[], commit, &mut change.values)?;
        }
        Ok(())
    }

    /// Writes values of a group into new pages, to replace those in the pages `emptied`.
    fn write_group(
        &mut self,
        group: u8,
        mut values: Vec<Keyed>,
        emptied: &[u32],
        commit: &mut Commit,
        change: &mut ValueChange,
    ) -> Result<()> {
        values.sort_by_key(|(_, version)| version.seq);
        let packed = pack(values, page_room_bytes(self.space.page_bytes()));
        let seqs = |page: &Vec<Keyed>| page.iter().map(|(_, version)| version.seq).collect();
        let seqs: Vec<Vec<u64>> = packed.iter().map(seqs).collect();
        let starts = self.values.starts(group, emptied, &seqs);
        commit.values.group_count = self.values.group_count();
        let mut draft = Draft::default();
        for (values, starts) in packed.into_iter().zip(starts) {
            let sizes = values.iter().map(size_of).collect();
            let bytes = self.draft_page(&mut draft, values);
            let page_count = (bytes.len() / self.space.page_bytes()) as u16;
            let owner = Owner { level: group, txn: commit.txn, ..Owner::default() };
            let page = self.space.program(Stream::Values(group), bytes, owner)?;
            let entry = ValueEntry { page, page_count, group, starts };
            commit.values.added.push(entry.clone());
            change.added.push((entry, sizes));
        }
        Ok(())
    }

    fn draft_page(&self, draft: &mut Draft, mut values: Vec<Keyed>) -> SharedBytes {
        values.sort_by(|(key, one), (other, two)| {
            (key, Reverse(one.seq)).cmp(&(other, Reverse(two.seq)))
        });
        values.into_iter().for_each(|(key, version)| draft.push(&key, version));
        draft.finish(self.space.page_bytes()).bytes().clone()
    }

    /// Called after the commit: pages that values have left become garbage, and homes are where the
    /// values are now.
    pub(super) fn install_values(&mut self, change: ValueChange) {
        for page in change.emptied {
            let page_count = self.values.remove(page);
            self.space.release(page, page_count);
        }
        for (entry, sizes) in change.added {
            let page = entry.page;
            self.values.insert(entry);
            self.values.set_needed(page, &sizes);
        }
        for (group, seq, bytes) in change.dropped {
            self.values.drop_value(group, seq, bytes);
        }
    }

    /// Moves the needed values out of a block of values.
    pub(super) fn move_value_pages(&mut self, block: u32) -> Result<()> {
        let block_pages = self.space.block_pages();
        let first = block * block_pages;
        let emptied = self.values.pages_in(first..first + block_pages);
        let (mut commit, mut change) = (self.tree.next_commit(), Change::default());
        let mut left: BTreeMap<u8, Vec<Keyed>> = BTreeMap::new();
        for page in &emptied {
            let group = self.values.page(*page).map_or(0, |page| page.group);
            let values = self.read_value_page(*page)?;
            let needed =
                values.into_iter().filter(|(_, one)| self.values.is_needed(*page, one.seq));
            left.entry(group).or_default().extend(needed);
        }
        commit.values.emptied.push((first, block_pages));
        for (group, values) in left {
            self.counters.moved_values += values.len() as u64;
            self.write_group(group, values, &emptied, &mut commit, &mut change.values)?;
        }
        change.values.emptied = emptied;
        self.commit(&commit, change)
    }

    /// All values of a page. If a value is not what was written, the page counts as damaged.
    pub(super) fn read_value_page(&mut self, page: u32) -> Result<Vec<Keyed>> {
        let page_count = self.values.page(page).map_or(1, |page| page.page_count);
        let bytes = self.space.read(page, page_count)?;
        let damaged = |_| {
            let ppa = self.space.nand.geometry().page(page);
            Error::PageDamaged(ppa, "a value is not what was written")
        };
        let decoded = KvPage::decode(bytes, self.space.page_bytes()).map_err(damaged)?;
        let values = decoded.records().map(|one| (one.key().into(), one.version().clone()));
        Ok(values.collect())
    }

    /// Finds out which values are needed, by the pointers in the tree. If a page of the tree cannot
    /// be read, all values stay needed.
    pub(super) fn count_values(&mut self) -> Result<()> {
        if self.values.is_counted {
            return Ok(());
        }
        self.values.forget_needed();
        match self.count_pointers() {
            Ok(()) => {
                self.values.is_counted = true;
                self.counters.value_counts += 1;
                Ok(())
            }
            Err(Error::Uncorrectable(_) | Error::PageDamaged(..)) => Ok(()),
            Err(other) => Err(other),
        }
    }

    fn count_pointers(&mut self) -> Result<()> {
        let nodes: Vec<Arc<Node>> = self.tree.nodes().cloned().collect();
        for node in nodes {
            for entry in self.read_meta(&node)?.entries {
                for record in read_records(&mut self.space, &entry)? {
                    if let Some(len) = record.version().apart_bytes() {
                        let group = self.values.group_of(record.key());
                        let bytes = record_bytes(record.key().len(), len);
                        self.values.need(group, record.seq(), bytes);
                    }
                }
            }
        }
        Ok(())
    }

    /// Called before a collection, or when space is short. Finds out which values are needed: in
    /// all groups if `all`, otherwise in the group that changed most.
    pub(super) fn look_at_values(&mut self, all: bool) -> Result<()> {
        if self.values.used_pages() == 0 {
            return Ok(());
        }
        self.count_values()?;
        if self.values.group_count() < 2 || !self.values.is_counted {
            return Ok(());
        }
        self.space.cause = Cause::Collection;
        let groups: Vec<u8> = match all {
            true => self.values.unread_groups(),
            false => self.values.unread_group().into_iter().collect(),
        };
        groups.into_iter().try_for_each(|group| self.read_group(group))
    }

    /// Reads a group and drops the versions that newer ones in it hide from all snapshots. A page
    /// that cannot be read hides nothing.
    fn read_group(&mut self, group: u8) -> Result<()> {
        self.counters.group_reads += 1;
        let mut pages = BTreeMap::new();
        let mut versions: BTreeMap<Key, Vec<u64>> = BTreeMap::new();
        for page in self.values.pages_of(group) {
            let values = match self.read_value_page(page) {
                Err(Error::Uncorrectable(_) | Error::PageDamaged(..)) => continue,
                values => values?,
            };
            pages.insert(page, values.iter().map(size_of).collect::<Vec<_>>());
            for (key, version) in values {
                versions.entry(key).or_default().push(version.seq);
            }
        }
        let snapshots: Vec<u64> = self.snapshots.keys().copied().collect();
        let mut hidden = BTreeSet::new();
        for seqs in versions.values_mut() {
            seqs.sort_unstable_by_key(|seq| Reverse(*seq));
            let pairs = seqs.windows(2);
            let behind = pairs.filter(|pair| !is_seen(&snapshots, pair[1], pair[0]));
            hidden.extend(behind.map(|pair| pair[1]));
        }
        for (page, mut values) in pages {
            let is_left = |seq| self.values.is_needed(page, seq) && !hidden.contains(&seq);
            values.retain(|(seq, _)| is_left(*seq));
            values.sort_unstable();
            self.values.set_needed(page, &values);
        }
        self.values.mark_read(group);
        Ok(())
    }
}

/// Fills pages in the order of the values. A value that is larger than a page has pages of its own.
fn pack(values: Vec<Keyed>, room_bytes: usize) -> Vec<Vec<Keyed>> {
    let mut pages: Vec<Vec<Keyed>> = Vec::new();
    let mut used_bytes = 0;
    for (key, version) in values {
        let bytes = record_bytes(key.len(), version.value.len());
        match pages.last_mut().filter(|_| used_bytes + bytes <= room_bytes) {
            Some(page) => page.push((key, version)),
            None => {
                pages.push(vec![(key, version)]);
                used_bytes = 0;
            }
        }
        used_bytes += bytes;
    }
    pages
}

/// Sequence number and record bytes of a value.
fn size_of((key, version): &Keyed) -> (u64, usize) {
    (version.seq, record_bytes(key.len(), version.value.len()))
}
