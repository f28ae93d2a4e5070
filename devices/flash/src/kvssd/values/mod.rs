//! Separated values: how they are written, read, and moved.
//!
//! A flush writes the pages of its tables, with pointers. Then it writes the values, in the order
//! of their sequence numbers, into pages of their groups. The metadata pages of the tables follow,
//! and then the journal page, which names the pages of values. So all pages of a flush that a power
//! cut interrupts are garbage. Rejected: metadata pages for the pages of values too. A journal page
//! has enough room, and metadata pages for each group wrote as much as one tenth of the values.
//!
//! The collection of a block is one transaction, like all collections (`collection/`):
//!
//! 1. The needed values of its pages are read and packed into new pages of the group. They keep
//!    their addresses, so no table is written.
//! 2. The journal page names the block as emptied, and the new pages. Only then is the block free.
//!
//! Compactions know which values are needed, because they report each pointer that they drop. That
//! knowledge is not on flash. After a restart the pointers are counted before the first collection,
//! and until then every value counts as needed. If values are in groups, all pages of a group are
//! read together now and then. Values in them that a newer version in the group hides are garbage,
//! although the tree still has their pointers. After the next collection these pointers lead
//! nowhere. This does no harm, because the versions that hide them are dropped later than the
//! pointers.

mod map;

use std::cmp::Reverse;

pub(super) use map::{ValueChange, ValueMap};

use super::format::draft::Draft;
use super::format::key::Key;
use super::format::kv_page::{KvPage, find_in, page_room_bytes, record_bytes};
use super::format::record::Version;
use super::space::{Owner, Space, Stream};
use super::tree::{Commit, ValueEntry};
use crate::error::{Error, Result};
use crate::nand::{SharedBytes, SharedValue};

/// A version and its key.
pub(super) type Keyed = (Key, Version);

impl ValueMap {
    /// Reads a separated value, and counts the pages in `pages_read`.
    pub(super) fn read(
        &self,
        space: &mut Space,
        key: &[u8],
        seq: u64,
        pages_read: &mut u64,
    ) -> Result<SharedValue> {
        if let Some((page, page_count)) = self.home(self.group_of(key), seq) {
            let bytes = space.read(page, page_count)?;
            *pages_read += u64::from(page_count);
            let found = find_in(&bytes, space.page_bytes(), key, seq)?;
            if let Some(record) = found.filter(|record| record.seq() == seq) {
                return Ok(record.version().value.clone());
            }
        }
        let why = format!("version {seq} of a key is in none");
        Err(Error::Corrupt { what: "value page", why })
    }

    /// Writes new values into pages of their groups.
    pub(super) fn write(
        &self,
        space: &mut Space,
        values: Vec<Keyed>,
        commit: &mut Commit,
        change: &mut ValueChange,
    ) -> Result<()> {
        let mut groups = vec![Vec::new(); usize::from(self.group_count())];
        for (key, version) in values {
            groups[usize::from(self.group_of(&key))].push((key, version));
        }
        for (group, values) in (0..).zip(groups) {
            self.write_group(space, group, values, commit, change)?;
        }
        Ok(())
    }

    /// Writes values of a group into new pages, to replace those in pages that `change` empties.
    pub(super) fn write_group(
        &self,
        space: &mut Space,
        group: u8,
        mut values: Vec<Keyed>,
        commit: &mut Commit,
        change: &mut ValueChange,
    ) -> Result<()> {
        let page_bytes = space.page_bytes();
        values.sort_by_key(|(_, version)| version.seq);
        let packed = pack(values, page_room_bytes(page_bytes));
        let seqs = |page: &Vec<Keyed>| page.iter().map(|(_, version)| version.seq).collect();
        let seqs: Vec<Vec<u64>> = packed.iter().map(seqs).collect();
        let starts = self.starts(group, &change.emptied, &seqs);
        commit.values.group_count = self.group_count();
        let mut draft = Draft::default();
        for (values, starts) in packed.into_iter().zip(starts) {
            let sizes = values.iter().map(size_of).collect();
            let bytes = draft_page(&mut draft, values, page_bytes);
            let page_count = (bytes.len() / page_bytes) as u16;
            let owner = Owner { level: group, txn: commit.txn, ..Owner::default() };
            let page = space.program(Stream::Values(group), bytes, owner)?;
            let entry = ValueEntry { page, page_count, group, starts };
            commit.values.added.push(entry.clone());
            change.added.push((entry, sizes));
        }
        Ok(())
    }

    /// Called after the commit: the emptied pages become garbage, and the new pages become the
    /// homes of their values.
    pub(super) fn install(&mut self, space: &mut Space, change: ValueChange) {
        for page in change.emptied {
            space.release(page, self.remove(page));
        }
        for (entry, sizes) in change.added {
            let page = entry.page;
            self.insert(entry);
            self.set_needed(page, &sizes);
        }
        for (group, seq, bytes) in change.dropped {
            self.drop_value(group, seq, bytes);
        }
    }

    /// All values of a page. If a value does not match its checksum, the page counts as damaged.
    pub(super) fn read_page(&self, space: &mut Space, page: u32) -> Result<Vec<Keyed>> {
        let page_count = self.page(page).map_or(1, |page| page.page_count);
        let bytes = space.read(page, page_count)?;
        let damaged = |_| {
            let ppa = space.nand.geometry().page(page);
            Error::PageDamaged(ppa, "a value is not what was written")
        };
        let decoded = KvPage::decode(bytes, space.page_bytes()).map_err(damaged)?;
        let values = decoded.records().map(|one| (one.key().into(), one.version().clone()));
        Ok(values.collect())
    }
}

fn draft_page(draft: &mut Draft, mut values: Vec<Keyed>, page_bytes: usize) -> SharedBytes {
    values.sort_by(|(key, one), (other, two)| {
        (key, Reverse(one.seq)).cmp(&(other, Reverse(two.seq)))
    });
    values.into_iter().for_each(|(key, version)| draft.push(&key, version));
    draft.finish(page_bytes).bytes().clone()
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
pub(super) fn size_of((key, version): &Keyed) -> (u64, usize) {
    (version.seq, record_bytes(key.len(), version.value.len()))
}
