//! The budget of pages and blocks: what is needed, what must stay free, and when space is short.

use crate::error::Error;
use crate::kvssd::catalog::Catalog;
use crate::kvssd::options::{Durability, Form, Placement};
use crate::kvssd::space::Stream;

/// Above this percentage of the limit nothing is remapped, because the garbage inside pages must be
/// removed.
const SHORT_PERCENT: u64 = 92;
/// Blocks that the smallest part of a compaction may fill.
const PART_BLOCKS: u32 = 3;
/// Free blocks in addition to the planned blocks and those that streams may open.
const SPARE_BLOCKS: u32 = 2;

/// Streams that have a block open, or may have one.
fn streams(catalog: &Catalog) -> impl Iterator<Item = Stream> + use<> {
    let levels = match catalog.options.placement {
        Placement::PerLevel => (catalog.deepest_kv_level() + 2).max(4),
        Placement::Mixed | Placement::PerTable => 1,
    };
    let log = (catalog.options.durability == Durability::Log).then_some(Stream::Log);
    let others = [Stream::Meta, Stream::Journal, Stream::Checkpoint];
    let values = (0..catalog.values.group_count()).map(Stream::Values);
    (0..levels).map(Stream::Kv).chain(others).chain(log).chain(values)
}

/// How many streams will soon open a block.
fn low_stream_count(catalog: &Catalog) -> u32 {
    let is_low = |stream: &Stream| catalog.space.room_in(*stream) < catalog.space.block_pages() / 4;
    streams(catalog).filter(is_low).count() as u32
}

/// How many blocks must be free whatever blocks are open. After a power cut no block is resumed.
/// The first collection then opens one block for each kind of page before it frees any, and more
/// for a large checkpoint.
fn restart_blocks(catalog: &Catalog) -> u32 {
    let is_other = |stream: &Stream| !matches!(stream, Stream::Kv(_) | Stream::Values(_));
    // If values are separated, the next collection may open another kind of block, and after a
    // second power cut two blocks fewer would be free.
    let one_each = 1
        + streams(catalog).filter(is_other).count() as u32
        + if catalog.values.group_count() > 0 { 2 } else { 0 };
    let saved_pages = catalog.history.newest_pages();
    one_each + saved_pages / catalog.space.block_pages()
}

/// How many blocks must be free in addition to the planned blocks.
pub(crate) fn spare_blocks(catalog: &Catalog) -> u32 {
    (low_stream_count(catalog) + SPARE_BLOCKS).max(restart_blocks(catalog))
}

/// How many pages of tables and metadata leave room to work: for open blocks, one part of a
/// compaction, two checkpoints and the journal between them, and at least the over-provisioning. A
/// block with a single dead page is never collected, so one page of each block does not count.
pub(crate) fn limit_pages(catalog: &Catalog) -> u64 {
    let block_pages = u64::from(catalog.space.block_pages());
    let usable = u64::from(catalog.space.usable_count());
    let percent = u64::from(catalog.options.over_provision_percent);
    let journal =
        2 * catalog.options.checkpoint_interval(&catalog.space.nand.geometry()) / block_pages + 1;
    let saved_pages = catalog.history.saved_pages();
    let log = match catalog.options.durability {
        Durability::Capacitor => 0,
        Durability::Log => u64::from(catalog.options.memtable_pages) * 2 / block_pages + 1,
    };
    // Besides what it writes, a flush plans one block for each stream of values.
    let flushed = u64::from(catalog.values.group_count());
    let fixed = u64::from(restart_blocks(catalog) + PART_BLOCKS);
    let work = streams(catalog).count() as u64 + fixed + flushed;
    let needed = work + journal + saved_pages / block_pages + 1 + log;
    let reserve = needed.max((usable * percent).div_ceil(100));
    usable.saturating_sub(reserve) * (block_pages - 1)
}

/// Pages that tables, metadata and values need now.
pub(crate) fn live_pages(catalog: &Catalog) -> u64 {
    let others = catalog.space.data_pages - catalog.values.used_pages();
    others + catalog.values.needed_pages(catalog.space.page_bytes())
}

/// Live and reserved pages.
pub(crate) fn needed_pages(catalog: &Catalog) -> u64 {
    live_pages(catalog) + catalog.reserved_pages
}

pub(crate) fn full(catalog: &Catalog) -> Error {
    Error::Full { live_pages: needed_pages(catalog), limit_pages: limit_pages(catalog) }
}

/// Whether space is short. Space is never short in the append form, in which a segment uses only
/// space that its table has reserved.
pub(crate) fn is_short_of_space(catalog: &Catalog) -> bool {
    catalog.options.form != Form::Append
        && live_pages(catalog) * 100 > limit_pages(catalog) * SHORT_PERCENT
}

/// Whether this many blocks can be opened without a collection.
pub(crate) fn has_room_now(catalog: &Catalog, planned_blocks: u32) -> bool {
    catalog.space.free_count() >= planned_blocks.saturating_add(spare_blocks(catalog))
}

/// How many blocks this many pages of tables may need in addition to the open blocks.
pub(crate) fn blocks_for(catalog: &Catalog, page_count: u64, outputs: u64) -> u32 {
    // If records are packed again, more room may be unused at the ends of pages than before.
    let with_waste = page_count + page_count / 8;
    let blocks = with_waste.div_ceil(u64::from(catalog.space.block_pages()));
    let partial = if catalog.options.placement == Placement::PerTable { outputs } else { 0 };
    u32::try_from(blocks + partial).unwrap_or(u32::MAX)
}
