//! Reads everything and checks that it is consistent: every page of every table, the reference
//! counts, the live pages of every block, and every separated value. Changes nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::catalog::{Catalog, read_meta, read_records};
use super::format::kv_page::record_bytes;
use super::format::meta_page::TableMeta;
use super::format::record::Kind;
use super::pending::Pending;
use super::read::View;
use super::tree::{Node, ValueEntry};
use crate::error::{Error, Result};

/// Pointers in the clips of tables, by sequence number, with their keys.
type Pointers = BTreeMap<u64, Vec<u8>>;

/// Counts of the items that were read and found sound.
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

/// Verifies the device. The first problem found is the error.
pub(super) fn verify(catalog: &mut Catalog, pending: &Pending) -> Result<Verified> {
    let nodes: Vec<Arc<Node>> = catalog.tree.nodes().cloned().collect();
    let memtable_records = pending.memtable.keys().map(|(_, versions)| versions.all().count());
    let memtable_records = memtable_records.sum::<usize>() as u64;
    let mut found = Verified { memtable_records, ..Verified::default() };
    let mut groups: BTreeMap<u32, (u32, u8)> = BTreeMap::new();
    let mut reals: BTreeMap<u32, (u32, u8)> = BTreeMap::new();
    let mut pointers: Pointers = BTreeMap::new();
    for node in &nodes {
        let table = read_meta(&mut catalog.space, node)?;
        check_node(node, &table)?;
        found.tables += 1;
        for real in &table.reals {
            reals.entry(real.page).or_insert((1, 0)).1 += 1;
        }
        for entry in &table.entries {
            let group = groups.entry(entry.page).or_insert((u32::from(entry.page_count), 0));
            group.1 += 1;
            let records = read_records(&mut catalog.space, entry)?;
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
    check_space(catalog, pending, &nodes, &groups)?;
    check_values(catalog, pending, &pointers, &mut found)?;
    Ok(found)
}

/// Checks that every value is in its home. Once the needed values are counted, a value is needed
/// only if a pointer leads to it. Every pointer that leads nowhere must be hidden from all readers.
fn check_values(
    catalog: &mut Catalog,
    pending: &Pending,
    pointers: &Pointers,
    found: &mut Verified,
) -> Result<()> {
    let known: Vec<u32> = catalog.tree.value_pages().map(|entry| entry.page).collect();
    let is_same = |entry: &ValueEntry| catalog.values.entry(entry.page).as_ref() == Some(entry);
    if known != catalog.values.pages_in(0..u32::MAX) || !catalog.tree.value_pages().all(is_same) {
        return Err(wrong_values("their pages are not those of the tree".to_string()));
    }
    let mut present = BTreeSet::new();
    for page in catalog.values.pages_in(0..u32::MAX) {
        let (mut needed, mut needed_bytes) = (0, 0);
        for (key, version) in catalog.values.read_page(&mut catalog.space, page)? {
            let home = catalog.values.home(catalog.values.group_of(&key), version.seq);
            if home.is_none_or(|(home, _)| home != page) || !present.insert(version.seq) {
                let why = format!("version {} is not to be in page {page}", version.seq);
                return Err(wrong_values(why));
            }
            if catalog.values.is_counted && catalog.values.is_needed(page, version.seq) {
                needed += 1;
                needed_bytes += record_bytes(key.len(), version.value.len()) as u64;
                if pointers.get(&version.seq).is_none_or(|other| **other != *key) {
                    let why = format!("nothing points to version {}", version.seq);
                    return Err(wrong_values(why));
                }
            }
            found.values += 1;
        }
        let counted = catalog.values.needed_of(page);
        if catalog.values.is_counted && !is_hiding(catalog) && counted != (needed, needed_bytes) {
            let why = format!("page {page} has {needed} values in need, counted are others");
            return Err(wrong_values(why));
        }
    }
    found.value_pages = catalog.values.used_pages();
    for (seq, key) in pointers {
        let home = catalog.values.home(catalog.values.group_of(key), *seq);
        let is_needed = home.is_some_and(|(page, _)| catalog.values.is_needed(page, *seq));
        if !present.contains(seq) || !is_needed {
            check_hidden(catalog, pending, *seq, key)?;
        }
    }
    Ok(())
}

/// Whether values may be gone although pointers to them are left.
fn is_hiding(catalog: &Catalog) -> bool {
    catalog.values.group_count() > 1
}

fn check_hidden(catalog: &mut Catalog, pending: &Pending, seq: u64, key: &[u8]) -> Result<()> {
    for snapshot in catalog.snapshots.all().into_iter().chain([u64::MAX]) {
        let mut view = View { catalog, memtable: &pending.memtable };
        let version = view.find(key, snapshot)?;
        if !is_hiding(catalog) || version.is_some_and(|version| version.seq == seq) {
            return Err(wrong_values(format!("version {seq} of a key is needed and is gone")));
        }
    }
    Ok(())
}

fn check_space(
    catalog: &Catalog,
    pending: &Pending,
    nodes: &[Arc<Node>],
    groups: &BTreeMap<u32, (u32, u8)>,
) -> Result<()> {
    let block_pages = catalog.space.block_pages();
    let mut live: BTreeMap<u32, u32> = BTreeMap::new();
    for (page, (page_count, count)) in groups {
        *live.entry(page / block_pages).or_insert(0) += page_count;
        if catalog.references.count(*page) != *count {
            return Err(wrong(format!("page {page} has {count} references, not as counted")));
        }
    }
    let history = catalog.history.pages().map(|(page, _)| page);
    let meta = nodes.iter().map(|node| node.meta_page);
    for (page, what) in catalog.values.pages() {
        *live.entry(page / block_pages).or_insert(0) += what.page_count;
    }
    for page in meta.chain(history).chain(pending.log_pages()) {
        *live.entry(page / block_pages).or_insert(0) += 1;
    }
    for block in catalog.space.blocks() {
        let (counted, needed) =
            (catalog.space.live_in(block), live.get(&block).copied().unwrap_or(0));
        if counted != needed {
            let why = format!("block {block} has {needed} live pages, counted are {counted}");
            return Err(wrong(why));
        }
    }
    Ok(())
}

fn wrong_values(why: String) -> Error {
    Error::Corrupt { what: "separated values", why }
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
