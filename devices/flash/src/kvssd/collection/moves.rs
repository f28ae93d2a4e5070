//! Moves the needed pages of a block elsewhere, in one transaction.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::error::Result;
use crate::kvssd::catalog::{Catalog, Transaction, read_meta, read_metas};
use crate::kvssd::format::meta_page::TableMeta;
use crate::kvssd::space::Owner;
use crate::kvssd::tree::Node;
use crate::kvssd::values::Keyed;

/// Moves the metadata pages of a block.
pub(super) fn move_meta_pages(catalog: &mut Catalog, block: u32) -> Result<()> {
    let block_pages = catalog.space.block_pages();
    // Virtual tables whose real tables have their metadata here.
    let virtuals: BTreeSet<u64> = catalog.references.tables(block).collect();
    let is_here =
        |node: &&Arc<Node>| node.meta_page / block_pages == block || virtuals.contains(&node.id);
    let nodes: Vec<Arc<Node>> = catalog.tree.nodes().filter(is_here).cloned().collect();
    let mut moved = catalog.begin();
    let txn = moved.commit.txn;
    let mut left = Vec::new();
    for node in &nodes {
        let owner = Owner { level: node.level, txn, id: node.id, index: 0 };
        if virtuals.contains(&node.id) {
            let table = read_meta(&mut catalog.space, node)?;
            let mut new = TableMeta { txn, level: node.level, ..table.clone() };
            for real in &mut new.reals {
                if real.page / block_pages == block {
                    real.page = catalog.metas.copy(&mut catalog.space, real.page, owner)?;
                }
            }
            replace(catalog, node, table, new, &mut moved)?;
        } else {
            let copy = catalog.metas.copy(&mut catalog.space, node.meta_page, owner)?;
            moved.commit.moved.push((node.id, copy));
            left.push(node.meta_page);
        }
    }
    catalog.commit(moved)?;
    left.into_iter().for_each(|page| catalog.space.release(page, 1));
    Ok(())
}

/// Writes the metadata of a table whose pages moved.
fn replace(
    catalog: &mut Catalog,
    node: &Node,
    old: TableMeta,
    new: TableMeta,
    moved: &mut Transaction,
) -> Result<()> {
    let meta_page = catalog.metas.write(&mut catalog.space, &new)?.meta_page;
    moved.commit.moved.push((node.id, meta_page));
    moved.added.push(new);
    moved.removed.push((old, node.meta_page));
    Ok(())
}

/// Moves the pages of keys and values of a block.
pub(super) fn move_kv_pages(catalog: &mut Catalog, block: u32) -> Result<()> {
    let ids: Vec<u64> = catalog.references.tables(block).collect();
    let nodes: Vec<Arc<Node>> =
        ids.iter().filter_map(|id| catalog.tree.node(*id).cloned()).collect();
    let old = read_metas(&mut catalog.space, &nodes)?;
    let mut moved = catalog.begin();
    let txn = moved.commit.txn;
    let places = copy_groups(catalog, block, &nodes, &old, txn)?;
    for (node, table) in nodes.iter().zip(old) {
        let mut new = TableMeta { txn, level: node.level, ..table.clone() };
        let mut strata = BTreeSet::new();
        for entry in &mut new.entries {
            if let Some(page) = places.get(&entry.page) {
                entry.page = *page;
                strata.insert(entry.stratum);
            }
        }
        for stratum in strata.into_iter().filter(|_| !table.reals.is_empty()) {
            let real = new.stratum(stratum);
            let written = catalog.metas.write(&mut catalog.space, &real)?;
            new.reals[usize::from(stratum)].page = written.meta_page;
        }
        replace(catalog, node, table, new, &mut moved)?;
    }
    catalog.commit(moved)
}

/// Copies the page groups of a block, and returns where each one went.
fn copy_groups(
    catalog: &mut Catalog,
    block: u32,
    nodes: &[Arc<Node>],
    tables: &[TableMeta],
    txn: u64,
) -> Result<BTreeMap<u32, u32>> {
    let mut groups: BTreeMap<u32, (u16, u8, u64)> = BTreeMap::new();
    for (node, table) in nodes.iter().zip(tables) {
        for entry in &table.entries {
            if catalog.references.block(entry.page) == block {
                let group = groups.entry(entry.page).or_insert((0, 0, 0));
                *group = (entry.page_count, group.1.max(node.level), node.id);
            }
        }
    }
    let mut moved = BTreeMap::new();
    for (page, (page_count, level, id)) in groups {
        let bytes = catalog.space.read(page, u32::from(page_count))?;
        let owner = Owner { level, txn, id, index: 0 };
        moved.insert(page, catalog.space.program(catalog.kv_stream(level), bytes, owner)?);
    }
    Ok(moved)
}

/// Moves the needed values out of a block of values.
pub(super) fn move_value_pages(catalog: &mut Catalog, block: u32) -> Result<()> {
    let block_pages = catalog.space.block_pages();
    let first = block * block_pages;
    let mut moved = catalog.begin();
    moved.values.emptied = catalog.values.pages_in(first..first + block_pages);
    let mut left: BTreeMap<u8, Vec<Keyed>> = BTreeMap::new();
    for page in &moved.values.emptied {
        let group = catalog.values.page(*page).map_or(0, |page| page.group);
        let values = catalog.values.read_page(&mut catalog.space, *page)?;
        let needed = values.into_iter().filter(|(_, one)| catalog.values.is_needed(*page, one.seq));
        left.entry(group).or_default().extend(needed);
    }
    moved.commit.values.emptied.push((first, block_pages));
    for (group, values) in left {
        catalog.counters.moved_values += values.len() as u64;
        let Transaction { commit, values: change, .. } = &mut moved;
        catalog.values.write_group(&mut catalog.space, group, values, commit, change)?;
    }
    catalog.commit(moved)
}
