//! Finds out which separated values are needed, where compactions have not shown it.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::kvssd::catalog::{Catalog, read_meta, read_records};
use crate::kvssd::counters::Cause;
use crate::kvssd::format::key::Key;
use crate::kvssd::format::kv_page::record_bytes;
use crate::kvssd::tables::rewrite::is_seen;
use crate::kvssd::tree::Node;
use crate::kvssd::values::size_of;

/// Finds out which values are needed, by the pointers in the tree. If a page of the tree cannot
/// be read, all values stay needed.
pub(crate) fn count_values(catalog: &mut Catalog) -> Result<()> {
    if catalog.values.is_counted {
        return Ok(());
    }
    catalog.values.forget_needed();
    match count_pointers(catalog) {
        Ok(()) => {
            catalog.values.is_counted = true;
            catalog.counters.value_counts += 1;
            Ok(())
        }
        Err(Error::Uncorrectable(_) | Error::PageDamaged(..)) => Ok(()),
        Err(other) => Err(other),
    }
}

fn count_pointers(catalog: &mut Catalog) -> Result<()> {
    let nodes: Vec<Arc<Node>> = catalog.tree.nodes().cloned().collect();
    for node in nodes {
        for entry in read_meta(&mut catalog.space, &node)?.entries {
            for record in read_records(&mut catalog.space, &entry)? {
                if let Some(len) = record.version().apart_bytes() {
                    let group = catalog.values.group_of(record.key());
                    let bytes = record_bytes(record.key().len(), len);
                    catalog.values.need(group, record.seq(), bytes);
                }
            }
        }
    }
    Ok(())
}

/// Called before a collection, or when space is short. Finds out which values are needed: in
/// all groups if `all`, otherwise in the group that changed most.
pub(crate) fn look_at_values(catalog: &mut Catalog, all: bool) -> Result<()> {
    if catalog.values.used_pages() == 0 {
        return Ok(());
    }
    count_values(catalog)?;
    if catalog.values.group_count() < 2 || !catalog.values.is_counted {
        return Ok(());
    }
    catalog.space.cause = Cause::Collection;
    let groups: Vec<u8> = match all {
        true => catalog.values.unread_groups(),
        false => catalog.values.unread_group().into_iter().collect(),
    };
    groups.into_iter().try_for_each(|group| read_group(catalog, group))
}

/// Reads a group and drops the versions that newer versions in the group hide from all snapshots. A
/// page that cannot be read hides nothing.
fn read_group(catalog: &mut Catalog, group: u8) -> Result<()> {
    catalog.counters.group_reads += 1;
    let mut pages = BTreeMap::new();
    let mut versions: BTreeMap<Key, Vec<u64>> = BTreeMap::new();
    for page in catalog.values.pages_of(group) {
        let values = match catalog.values.read_page(&mut catalog.space, page) {
            Err(Error::Uncorrectable(_) | Error::PageDamaged(..)) => continue,
            values => values?,
        };
        pages.insert(page, values.iter().map(size_of).collect::<Vec<_>>());
        for (key, version) in values {
            versions.entry(key).or_default().push(version.seq);
        }
    }
    let snapshots: Vec<u64> = catalog.snapshots.all();
    let mut hidden = BTreeSet::new();
    for seqs in versions.values_mut() {
        seqs.sort_unstable_by_key(|seq| Reverse(*seq));
        let pairs = seqs.windows(2);
        let behind = pairs.filter(|pair| !is_seen(&snapshots, pair[1], pair[0]));
        hidden.extend(behind.map(|pair| pair[1]));
    }
    for (page, mut values) in pages {
        let is_left = |seq| catalog.values.is_needed(page, seq) && !hidden.contains(&seq);
        values.retain(|(seq, _)| is_left(*seq));
        values.sort_unstable();
        catalog.values.set_needed(page, &values);
    }
    catalog.values.mark_read(group);
    Ok(())
}
