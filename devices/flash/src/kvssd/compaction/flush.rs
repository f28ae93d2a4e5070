//! A flush: the memtable becomes tables of level 0.

use std::collections::BTreeSet;

use super::output::{Place, write_tables};
use crate::error::Result;
use crate::kvssd::catalog::{Catalog, Transaction};
use crate::kvssd::collection::budget::{blocks_for, full};
use crate::kvssd::collection::make_room;
use crate::kvssd::counters::Cause;
use crate::kvssd::format::record::{KeyBlock, Kind};
use crate::kvssd::pending::memtable::Memtable;
use crate::kvssd::values::Keyed;

/// Writes the memtable to tables. The commit records that its writes are in tables.
pub(crate) fn flush(catalog: &mut Catalog, memtable: &Memtable) -> Result<()> {
    let page_count = memtable.page_count(catalog.space.page_bytes());
    // Each stream of values may open a block, and the last page of each is not full.
    let streams = u32::from(catalog.values.group_count());
    let blocks = blocks_for(catalog, page_count + u64::from(streams), 1) + streams;
    if !make_room(catalog, blocks)? {
        return Err(full(catalog));
    }
    if catalog.options.apart_from().is_some_and(|from| catalog.history.apart_from != Some(from)) {
        catalog.checkpoint()?;
    }
    catalog.transact(Cause::Flush, |catalog| write(catalog, memtable))?;
    catalog.counters.flushes += 1;
    Ok(())
}

fn write(catalog: &mut Catalog, memtable: &Memtable) -> Result<()> {
    let mut flushed = catalog.begin();
    flushed.commit.flushed_seq = flushed.commit.last_seq;
    let mut keys = memtable.keys();
    let (apart_from, mut values) = (catalog.options.apart_from(), Vec::new());
    let next_key = |block: &mut KeyBlock| {
        let Some((key, versions)) = keys.next() else { return Ok(false) };
        for version in versions.all() {
            let is_apart = apart_from.is_some_and(|from| version.value.len() >= from);
            if is_apart && version.kind == Kind::Put {
                block.push(key, version.pointer());
                values.push((key.into(), version.clone()));
            } else {
                block.push(key, version.clone());
            }
        }
        Ok(true)
    };
    let fill_pages = catalog.space.block_pages();
    let place = Place { level: 0, cuts: &[], fill_pages };
    let tables = write_tables(catalog, place, &mut flushed, |rewriter, _, writer| {
        rewriter.write(next_key, writer)
    })?;
    write_values(catalog, values, &mut flushed)?;
    for table in tables {
        catalog.add_table(table, 0, &mut flushed)?;
    }
    catalog.commit(flushed)
}

/// Writes the separated values, except those that the flush itself found hidden.
fn write_values(
    catalog: &mut Catalog,
    mut values: Vec<Keyed>,
    flushed: &mut Transaction,
) -> Result<()> {
    let Transaction { commit, values: change, .. } = flushed;
    let hidden: BTreeSet<u64> = change.dropped.drain(..).map(|(_, seq, _)| seq).collect();
    values.retain(|(_, version)| !hidden.contains(&version.seq));
    catalog.counters.values_apart += values.len() as u64;
    catalog.values.write(&mut catalog.space, values, commit, change)
}
