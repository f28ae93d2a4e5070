//! Tables that compactions leave alone, because one of their pages cannot be read. The list is only
//! in RAM, so the next open tries these tables again.

use std::collections::BTreeSet;

use crate::error::{Error, Result};
use crate::kvssd::catalog::{Catalog, read_meta};
use crate::kvssd::format::meta_page::TableMeta;

/// See the module docs.
#[derive(Debug, Default)]
pub(crate) struct Stuck {
    /// Numbers of tables. A number is never used again, so the number of a table that was removed
    /// does no harm.
    tables: BTreeSet<u64>,
    /// How many tables the last merge within level 0 left.
    merged_count: usize,
}

impl Stuck {
    pub(crate) fn tables(&self) -> &BTreeSet<u64> {
        &self.tables
    }

    /// Forgets everything, so that stuck tables are tried again.
    pub(crate) fn clear(&mut self) {
        *self = Stuck::default();
    }

    /// Whether level 0, with this many tables, may be merged within itself while it waits for stuck
    /// tables below. It must have twice as many tables as after the last merge. So merges come to
    /// an end, and each flushed table pays for the merge of one more table.
    pub(crate) fn may_merge(&mut self, count: usize) -> bool {
        self.merged_count = self.merged_count.min(count);
        self.tables.is_empty() || count >= 2 * self.merged_count
    }

    /// Notes how many tables a merge within level 0 left.
    pub(crate) fn note_merge(&mut self, count: usize) {
        self.merged_count = count;
    }
}

/// Marks the tables with a page that a compaction of `job` could not read, so that no compaction
/// uses them any more. If these tables are unknown or already marked, the tables of the job are
/// marked. Returns the error if it is of another kind, or if it would recur because nothing is left
/// to mark.
pub(crate) fn mark_stuck(catalog: &mut Catalog, error: Error, job: &BTreeSet<u64>) -> Result<()> {
    let (Error::Uncorrectable(ppa) | Error::PageDamaged(ppa, _)) = &error else {
        return Err(error);
    };
    let mut found = tables_with(catalog, catalog.space.nand.geometry().flat(*ppa))?;
    if found.is_subset(&catalog.stuck.tables) {
        found = job.difference(&catalog.stuck.tables).copied().collect();
    }
    catalog.counters.stuck_tables += found.len() as u64;
    catalog.stuck.tables.extend(&found);
    if found.is_empty() { Err(error) } else { Ok(()) }
}

/// The tables that need a page.
fn tables_with(catalog: &mut Catalog, page: u32) -> Result<BTreeSet<u64>> {
    let of_meta = catalog.tree.nodes().filter(|node| node.meta_page == page).map(|node| node.id);
    let mut found: BTreeSet<u64> = of_meta.collect();
    let block = catalog.references.block(page);
    let near: Vec<u64> = catalog.references.tables(block).collect();
    for node in near.into_iter().filter_map(|id| catalog.tree.node(id).cloned()) {
        let needs_it = match read_meta(&mut catalog.space, &node) {
            Ok(table) => needs(&table, page),
            Err(Error::Uncorrectable(_) | Error::PageDamaged(..)) => true,
            Err(other) => return Err(other),
        };
        if needs_it {
            found.insert(node.id);
        }
    }
    Ok(found)
}

fn needs(table: &TableMeta, page: u32) -> bool {
    let mut groups = table.entries.iter().map(|one| one.page..one.page + u32::from(one.page_count));
    groups.any(|group| group.contains(&page)) || table.reals.iter().any(|real| real.page == page)
}
