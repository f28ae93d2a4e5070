//! How many table entries refer to each page, and which tables have pages in each block. This is in
//! RAM; the metadata pages are the truth. A virtual table also refers to the metadata of its real
//! tables.

use std::collections::BTreeMap;

use runstone_rules::remap::MAX_BLOCK_TABLES;

use crate::kvssd::format::meta_page::{Entry, TableMeta};

/// Reference counts and lists. A page group is counted at its first page.
#[derive(Clone, Debug)]
pub struct References {
    block_pages: u32,
    counts: Vec<u8>,
    /// For each block: the tables that have entries there, with the number of entries.
    lists: Vec<BTreeMap<u64, u32>>,
    /// Bits of the filters of each table that has some.
    filter_bits: BTreeMap<u64, u64>,
}

impl References {
    /// Makes an instance without references.
    pub fn new(block_count: u32, block_pages: u32) -> References {
        References {
            block_pages,
            counts: vec![0; block_count as usize * block_pages as usize],
            lists: vec![BTreeMap::new(); block_count as usize],
            filter_bits: BTreeMap::new(),
        }
    }

    /// References of a page.
    pub fn count(&self, page: u32) -> u8 {
        self.counts.get(page as usize).copied().unwrap_or(0)
    }

    /// Block of a page.
    pub fn block(&self, page: u32) -> u32 {
        page / self.block_pages
    }

    /// Tables with pages in a block.
    pub fn tables(&self, block: u32) -> impl Iterator<Item = u64> + '_ {
        self.lists.get(block as usize).into_iter().flat_map(|list| list.keys().copied())
    }

    /// Bits of the filters of a table, without the bits that round each filter up to bytes, so that
    /// a filter of the planned size does not look too large.
    pub fn filter_bits(&self, table: u64) -> u64 {
        self.filter_bits.get(&table).copied().unwrap_or(0)
    }

    /// Counts the entries of a new table.
    pub fn add(&mut self, table: &TableMeta) {
        *self.filter_bits.entry(table.id).or_default() += filter_bits(table);
        for page in pages(table) {
            self.counts[page as usize] += 1;
            let block = self.block(page) as usize;
            *self.lists[block].entry(table.id).or_insert(0) += 1;
        }
    }

    /// Removes the entries of a table from the counts. Returns the first pages of the groups to
    /// which no table refers any more.
    pub fn remove(&mut self, table: &TableMeta) -> Vec<u32> {
        if let Some(bits) = self.filter_bits.get_mut(&table.id) {
            *bits = bits.saturating_sub(filter_bits(table));
            if *bits == 0 {
                self.filter_bits.remove(&table.id);
            }
        }
        let mut garbage = Vec::new();
        for page in pages(table) {
            let count = &mut self.counts[page as usize];
            *count -= 1;
            if *count == 0 {
                garbage.push(page);
            }
            let block = self.block(page) as usize;
            if let Some(in_block) = self.lists[block].get_mut(&table.id) {
                *in_block -= 1;
                if *in_block == 0 {
                    self.lists[block].remove(&table.id);
                }
            }
        }
        garbage
    }

    /// RAM of the counters and of the lists as a controller would pack them: 3 bits per page, and 4
    /// bytes per place in a list.
    pub fn ram_parts(&self) -> (u64, u64) {
        let places: usize = self.lists.iter().map(|list| list.len().max(MAX_BLOCK_TABLES)).sum();
        ((self.counts.len() as u64 * 3).div_ceil(8), 4 * places as u64)
    }
}

fn filter_bits(table: &TableMeta) -> u64 {
    let bits = |entry: &Entry| (8 * entry.filter.bytes().len() as u64).saturating_sub(7);
    table.entries.iter().map(bits).sum()
}

/// The first page of each group of a table, and the metadata pages of its real tables.
fn pages(table: &TableMeta) -> impl Iterator<Item = u32> + '_ {
    let reals = table.reals.iter().map(|real| real.page);
    table.entries.iter().map(|entry| entry.page).chain(reals)
}
