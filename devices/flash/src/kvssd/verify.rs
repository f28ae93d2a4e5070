//! Reads everything and checks that it fits together: every page of every table, the reference
//! counts, the live pages of every block. Changes nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::device::{KvSsd, read_records};
use super::meta_page::TableMeta;
use super::record::Kind;
use super::tree::Node;
use crate::error::{Error, Result};

/// What was read and found sound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verified {
    /// Tables.
    pub tables: u64,
    /// References to pages.
    pub entries: u64,
    /// Pages of keys and values, each once.
    pub pages: u64,
    /// Records inside the clips.
    pub records: u64,
    /// Deletes among them.
    pub tombstones: u64,
    /// Pages that two or more tables share.
    pub shared_pages: u64,
    /// Records that are in no table yet: in the memtable, and saved beside the tables.
    pub memtable_records: u64,
}

impl KvSsd {
    /// Verifies the device; the first thing that is wrong is the error.
    pub fn verify(&mut self) -> Result<Verified> {
        let nodes: Vec<Arc<Node>> = self.tree.nodes().cloned().collect();
        let memtable_records = self.memtable.keys().map(|(_, versions)| versions.all().count());
        let memtable_records = memtable_records.sum::<usize>() as u64;
        let mut found = Verified { memtable_records, ..Verified::default() };
        let mut groups: BTreeMap<u32, (u32, u8)> = BTreeMap::new();
        let mut reals: BTreeMap<u32, (u32, u8)> = BTreeMap::new();
        for node in &nodes {
            let table = self.read_meta(node)?;
            check_node(node, &table)?;
            found.tables += 1;
            for real in &table.reals {
                reals.entry(real.page).or_insert((1, 0)).1 += 1;
            }
            for entry in &table.entries {
                let group = groups.entry(entry.page).or_insert((u32::from(entry.page_count), 0));
                group.1 += 1;
                let records = read_records(&mut self.space, entry)?;
                found.entries += 1;
                found.records += records.len() as u64;
                if let Some(lost) = records.iter().find(|one| !entry.filter.may_hold(one.key())) {
                    let (key, page) = (lost.key(), entry.page);
                    return Err(wrong(format!("the filter of page {page} denies {key:?}")));
                }
                let deletes = records.iter().filter(|record| record.kind() == Kind::Delete);
                found.tombstones += deletes.count() as u64;
            }
        }
        found.pages = groups.values().map(|(page_count, _)| u64::from(*page_count)).sum();
        found.shared_pages = groups.values().filter(|(_, count)| *count > 1).count() as u64;
        groups.extend(reals);
        self.check_space(&nodes, &groups)?;
        Ok(found)
    }

    fn check_space(&self, nodes: &[Arc<Node>], groups: &BTreeMap<u32, (u32, u8)>) -> Result<()> {
        let block_pages = self.space.block_pages();
        let mut live: BTreeMap<u32, u32> = BTreeMap::new();
        for (page, (page_count, count)) in groups {
            *live.entry(page / block_pages).or_insert(0) += page_count;
            if self.references.count(*page) != *count {
                return Err(wrong(format!("page {page} has {count} references, not as counted")));
            }
        }
        let meta = nodes.iter().map(|node| node.meta_page);
        let journal = self.journal.iter().map(|(_, page)| *page);
        let checkpoints = self.checkpoints.iter().flat_map(|(_, pages)| pages.iter().copied());
        for page in meta.chain(journal).chain(checkpoints).chain(self.log_pages()) {
            *live.entry(page / block_pages).or_insert(0) += 1;
        }
        for block in self.space.blocks() {
            let (counted, needed) =
                (self.space.live_in(block), live.get(&block).copied().unwrap_or(0));
            if counted != needed {
                let why = format!("block {block} has {needed} live pages, counted are {counted}");
                return Err(wrong(why));
            }
        }
        Ok(())
    }
}

fn wrong(why: String) -> Error {
    Error::Corrupt { what: "block tables", why }
}

fn check_node(node: &Node, table: &TableMeta) -> Result<()> {
    let is_same = table.fence().as_ref() == Some(&node.fence)
        && table.charged_pages() == node.charged_pages
        && (table.counter, table.max_seq) == (node.counter, node.max_seq);
    if !is_same {
        let why = format!("table {} is not as its metadata page says", node.id);
        return Err(Error::Corrupt { what: "key-range tree", why });
    }
    Ok(())
}
