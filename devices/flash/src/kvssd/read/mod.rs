//! What readers see: the memtable, and the tables below it.

pub(super) mod scan;

use super::catalog::Catalog;
use super::format::meta_page::{Entry, Real};
use super::format::record::{Kind, Version};
use super::pending::memtable::Memtable;
use super::space::Space;
use super::tables::PageReader;
use super::tables::lookup::find_record;
use crate::error::Result;
use crate::nand::{SharedBytes, SharedValue};

/// See the module docs.
pub(super) struct View<'a> {
    pub(super) catalog: &'a mut Catalog,
    pub(super) memtable: &'a Memtable,
}

impl View<'_> {
    /// The value of a key as a snapshot sees it.
    pub(super) fn get(&mut self, key: &[u8], snapshot: u64) -> Result<Option<Vec<u8>>> {
        self.catalog.counters.gets += 1;
        let mut read = PagesRead::default();
        let found = self.find_counted(key, snapshot, &mut read);
        let counters = &mut self.catalog.counters;
        counters.get_pages += read.pages;
        counters.get_meta_pages += read.meta_pages;
        let before = counters.value_pages_read;
        let value = match found? {
            None | Some(Version { kind: Kind::Delete, .. }) => None,
            Some(Version { kind: Kind::Put, value, .. }) => Some(value.to_vec()),
            Some(Version { kind: Kind::Pointer, seq, .. }) => {
                Some(self.read_value(key, seq)?.to_vec())
            }
        };
        let counters = &mut self.catalog.counters;
        counters.get_pages += counters.value_pages_read - before;
        counters.get_bytes += value.as_ref().map_or(0, |value| key.len() + value.len()) as u64;
        Ok(value)
    }

    /// The version of a key that a snapshot sees; it may be a delete.
    pub(super) fn find(&mut self, key: &[u8], snapshot: u64) -> Result<Option<Version>> {
        self.find_counted(key, snapshot, &mut PagesRead::default())
    }

    fn find_counted(
        &mut self,
        key: &[u8],
        snapshot: u64,
        read: &mut PagesRead,
    ) -> Result<Option<Version>> {
        if let Some(version) = self.memtable.get(key, snapshot) {
            return Ok(Some(version.clone()));
        }
        let Catalog { space, tree, metas, .. } = &mut *self.catalog;
        let page_bytes = space.page_bytes();
        for node in tree.candidates(key) {
            let table = metas.read(space, &node)?;
            // The list of the real tables of a virtual table is in RAM.
            read.meta_pages += u64::from(table.reals.is_empty());
            read.pages += u64::from(table.reals.is_empty());
            let mut reader = Counting { space: &mut *space, read: &mut *read };
            if let Some(record) = find_record(&table, key, snapshot, page_bytes, &mut reader)? {
                return Ok(Some(record.version().clone()));
            }
        }
        Ok(None)
    }

    /// Reads a separated value.
    fn read_value(&mut self, key: &[u8], seq: u64) -> Result<SharedValue> {
        let Catalog { space, values, counters, .. } = &mut *self.catalog;
        values.read(space, key, seq, &mut counters.value_pages_read)
    }
}

/// Counts of pages that a look-up read.
#[derive(Default)]
struct PagesRead {
    pages: u64,
    /// How many of these are pages of metadata.
    meta_pages: u64,
}

/// Reads the pages of entries, and counts them.
struct Counting<'a> {
    space: &'a mut Space,
    read: &'a mut PagesRead,
}

impl PageReader for Counting<'_> {
    fn read_pages(&mut self, entry: &Entry) -> Result<SharedBytes> {
        self.read.pages += u64::from(entry.page_count);
        self.space.read(entry.page, u32::from(entry.page_count))
    }

    fn look_at(&mut self, real: &Real) -> Result<()> {
        self.read.meta_pages += 1;
        self.read.pages += 1;
        self.space.read_again(real.page)
    }
}
