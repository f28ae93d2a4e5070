//! Makes room: garbage collection, evacuation of failing blocks, wear levelling, and what to do
//! when the device is full. It runs only between transactions.
//!
//! Collection, step by step:
//!
//! 1. The victim is the movable block that costs the fewest programs: its live pages, and a
//!    metadata page for each table that has pages there. Among equals it is the least worn. For a
//!    block of values, the cost is the pages that its needed values would take (`values/`).
//! 2. Its live pages move to the stream of the deepest level that refers to them. The metadata
//!    pages of their tables are programmed again.
//! 3. The journal page commits the new addresses. Then the block is free.
//!
//! A block that has fewer than two pages to gain is left alone, because the journal page would use
//! them up. Such a block is no candidate, however cheap.

pub(super) mod budget;
mod moves;
mod needed;

use budget::{has_room_now, spare_blocks};
use moves::{move_kv_pages, move_meta_pages, move_value_pages};
pub(super) use needed::look_at_values;

use super::catalog::Catalog;
use super::counters::Cause;
use super::space::Use;
use crate::error::{Error, Result};
use crate::nand::PageType;

/// Collects until this many blocks can be opened in addition to those that streams may open.
/// Returns whether that succeeded.
pub(super) fn make_room(catalog: &mut Catalog, planned_blocks: u32) -> Result<bool> {
    let usable = catalog.space.usable_count();
    for _ in 0..4 * usable {
        if has_room_now(catalog, planned_blocks) {
            return Ok(true);
        }
        let wanted = planned_blocks.saturating_add(spare_blocks(catalog));
        if wanted >= usable || !collect(catalog)? {
            return Ok(false);
        }
    }
    Ok(false)
}

/// Empties the cheapest block. Returns `false` if nothing can be gained.
fn collect(catalog: &mut Catalog) -> Result<bool> {
    look_at_values(catalog, false)?;
    let blocks = catalog
        .space
        .movable(Use::Sealed)
        .map(|block| (block, move_cost(catalog, block), catalog.space.nand.erase_count(block)));
    let Some(victim) = cheapest(blocks, catalog.space.block_pages()) else { return Ok(false) };
    empty(catalog, victim)?;
    catalog.counters.collections += 1;
    level_wear(catalog)?;
    catalog.checkpoint_if_due()?;
    Ok(true)
}

/// The victim among blocks. Each block is given with the cost of moving it and with its wear. A
/// block that gains nothing may be cheaper, because it has fewer tables. It must not hide a block
/// that gains something.
fn cheapest(blocks: impl Iterator<Item = (u32, (u32, u32), u64)>, block_pages: u32) -> Option<u32> {
    let gains = |(_, (pages, _), _): &(u32, (u32, u32), u64)| pages + 2 <= block_pages;
    let victim = blocks
        .filter(gains)
        .min_by_key(|(_, (pages, meta_pages), erase_count)| (pages + meta_pages, *erase_count));
    victim.map(|(block, ..)| block)
}

/// How many pages are programmed when a block is emptied, and how many of them are metadata pages.
fn move_cost(catalog: &Catalog, block: u32) -> (u32, u32) {
    if catalog.space.type_of(block) == Some(PageType::Value) {
        let first = block * catalog.space.block_pages();
        let pages = first..first + catalog.space.block_pages();
        return (catalog.values.cost(pages, catalog.space.page_bytes()), 0);
    }
    (catalog.space.live_in(block), catalog.references.tables(block).count() as u32)
}

/// Moves the remaining pages of blocks in which a program failed.
fn evacuate(catalog: &mut Catalog) -> Result<()> {
    loop {
        let failing = catalog.space.movable(Use::Failing).next();
        let Some(block) = failing else { return Ok(()) };
        empty(catalog, block)?;
    }
}

/// If other blocks are far more worn, the content of the least worn block is cold. It is moved,
/// and the block is used again.
fn level_wear(catalog: &mut Catalog) -> Result<()> {
    let worn = |block: &u32| catalog.space.nand.erase_count(*block);
    let coldest = catalog.space.movable(Use::Sealed).min_by_key(worn);
    let most = catalog.space.nand.wear().max;
    let is_cold = |block: &u32| worn(block) + u64::from(catalog.options.wear_gap) < most;
    let has_room = catalog.space.free_count() > spare_blocks(catalog);
    if let Some(block) = coldest.filter(|block| has_room && is_cold(block)) {
        catalog.counters.wear_moves += 1;
        empty(catalog, block)?;
    }
    Ok(())
}

/// Moves the content of a block. A page that cannot be read stays, and its block with it, so
/// that its reader gets an error and not an older version.
fn empty(catalog: &mut Catalog, block: u32) -> Result<()> {
    let moved = catalog.transact(Cause::Collection, |catalog| match catalog.space.type_of(block) {
        Some(PageType::Meta) => move_meta_pages(catalog, block),
        Some(PageType::Value) => move_value_pages(catalog, block),
        _ => move_kv_pages(catalog, block),
    });
    match moved {
        Err(Error::Uncorrectable(_) | Error::PageDamaged(..)) => {
            catalog.space.mark_stuck(block);
            Ok(())
        }
        other => other,
    }
}

/// Does the work that may be due after each transaction.
pub(super) fn after_commit(catalog: &mut Catalog) -> Result<()> {
    evacuate(catalog)?;
    catalog.checkpoint_if_due()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Once, the cheapest block of all was chosen first. If it had nothing to gain, nothing was
    /// collected: a block of few live pages but many tables stayed, and the device was reported
    /// full below its limit.
    #[test]
    fn a_block_without_garbage_does_not_hide_another() {
        let (full, shared, worn) = ((0, (63, 1), 0), (1, (40, 40), 3), (2, (40, 40), 4));
        let victim = |blocks: &[(u32, (u32, u32), u64)]| cheapest(blocks.iter().copied(), 64);
        assert_eq!(victim(&[full, worn, shared]), Some(1));
        assert_eq!(victim(&[full, worn, shared, (3, (62, 1), 9)]), Some(3));
        assert_eq!(victim(&[full]), None);
    }
}
