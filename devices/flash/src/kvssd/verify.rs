//! Reads everything and checks that it is consistent: every page of every table, the reference
//! counts, the live pages of every block, and every separated value. Changes nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::kvssd::device::{KvSsd, PagesRead, read_records};
use crate::kvssd::format::kv_page::record_bytes;
use crate::kvssd::format::meta_page::TableMeta;
use crate::kvssd::format::record::Kind;
use crate::kvssd::tree::{Node, ValueEntry};

/// Pointers in the clips of tables, by sequence number, with their keys.
type Pointers = BTreeMap<u64, Vec<u8>>;

/// Counts of what was read and found sound.
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
    /// How many of these records are deletes.
    pub tombstones: u64,
    /// Pages that two or more tables share.
    pub shared_pages: u64,
    /// Pages of separated values.
    pub value_pages: u64,
    /// Values in these pages, including those that no reader needs any more.
    pub values: u64,
    /// Records that are in no table yet: they are in the memtable, and saved outside the tables.
    pub memtable_records: u64,
}

impl KvSsd {
    /// Verifies the device. The first problem found is the error.
    pub fn verify(&mut self) -> Result<Verified> {
        let nodes: Vec<Arc<Node>> = self.tree.nodes().cloned().collect();
        let memtable_records = self.memtable.keys().map(|(_, versions)| versions.all().count());
        let memtable_records = memtable_records.sum::<usize>() as u64;
        let mut found = Verified { memtable_records, ..Verified::default() };
        let mut groups: BTreeMap<u32, (u32, u8)> = BTreeMap::new();
        let mut reals: BTreeMap<u32, (u32, u8)> = BTreeMap::new();
        let mut pointers: Pointers = BTreeMap::new();
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
                let apart = records.iter().filter(|record| record.kind() == Kind::Pointer);
                pointers.extend(apart.map(|record| (record.seq(), record.key().to_vec())));
                let deletes = records.iter().filter(|record| record.kind() == Kind::Delete);
                found.tombstones += deletes.count() as u64;
            }
        }
        found.pages = groups.values().map(|(page_count, _)| u64::from(*page_count)).sum();
        found.shared_pages = groups.values().filter(|(_, count)| *count > 1).count() as u64;
        groups.extend(reals);
        self.check_space(&nodes, &groups)?;
        self.check_values(&pointers, &mut found)?;
        Ok(found)
    }

    /// Checks that every value is in its home. Once the needed values are counted, a value is
    /// needed only if a pointer leads to it. Every pointer that leads nowhere must be hidden from
    /// all readers.
    fn check_values(&mut self, pointers: &Pointers, found: &mut Verified) -> Result<()> {
        let known: Vec<u32> = self.tree.value_pages().map(|entry| entry.page).collect();
        let is_same = |entry: &ValueEntry| self.values.entry(entry.page).as_ref() == Some(entry);
        if known != self.values.pages_in(0..u32::MAX) || !self.tree.value_pages().all(is_same) {
            return Err(wrong_values("their pages are not those of the tree".to_string()));
        }
        let mut present = BTreeSet::new();
        for page in self.values.pages_in(0..u32::MAX) {
            let (mut needed, mut needed_bytes) = (0, 0);
            for (key, version) in self.read_value_page(page)? {
                let home = self.values.home(self.values.group_of(&key), version.seq);
                if home.is_none_or(|(home, _)| home != page) || !present.insert(version.seq) {
                    let why = format!("version {} is not to be in page {page}", version.seq);
                    return Err(wrong_values(why));
                }
                if self.values.is_counted && self.values.is_needed(page, version.seq) {
                    needed += 1;
                    needed_bytes += record_bytes(key.len(), version.value.len()) as u64;
                    if pointers.get(&version.seq).is_none_or(|other| **other != *key) {
                        let why = format!("nothing points to version {}", version.seq);
                        return Err(wrong_values(why));
                    }
                }
                found.values += 1;
            }
            let counted = self.values.needed_of(page);
            if self.values.is_counted && !self.is_hiding() && counted != (needed, needed_bytes) {
                let why = format!("page {page} has {needed} values in need, counted are others");
                return Err(wrong_values(why));
            }
        }
        found.value_pages = self.values.used_pages();
        for (seq, key) in pointers {
            let home = self.values.home(self.values.group_of(key), *seq);
            let is_needed = home.is_some_and(|(page, _)| self.values.is_needed(page, *seq));
            if !present.contains(seq) || !is_needed {
                self.check_hidden(*seq, key)?;
            }
        }
        Ok(())
    }

    /// Whether values may be gone although pointers to them are left.
    fn is_hiding(&self) -> bool {
        self.values.group_count() > 1
    }

    fn check_hidden(&mut self, seq: u64, key: &[u8]) -> Result<()> {
        let snapshots: Vec<u64> = self.snapshots.keys().copied().chain([u64::MAX]).collect();
        for snapshot in snapshots {
            let version = self.find(key, snapshot, &mut PagesRead::default())?;
            if !self.is_hiding() || version.is_some_and(|version| version.seq == seq) {
                return Err(wrong_values(format!("version {seq} of a key is needed and is gone")));
            }
        }
        Ok(())
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
        for (page, what) in self.values.pages() {
            *live.entry(page / block_pages).or_insert(0) += what.page_count;
        }
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

fn wrong_values(why: String) -> Error {
    Error::Corrupt { what: "values apart", why }
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
