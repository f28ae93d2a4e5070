//! Cuts a compaction into slices that run side by side. `runstone_policy::partition` plans which
//! tables move, where tables are cut and which slice takes which cells; this file reads the index
//! blocks for it.
//!
//! 1. The histogram lists every data block of the inputs, from their index partitions. If there are
//!    very many, it lists stretches of neighbouring blocks.
//! 2. Cells and slices follow from the histogram. The cells do not depend on the number of slices,
//!    and the tables of the cells have consecutive ids. So the files are the same, byte by byte,
//!    for every number of slices.

use runstone_policy::partition::slices::{
    self, Block, SliceInput, SubCompactions, TABLES_PER_SLICE,
};
use runstone_policy::plan::{Compaction, Cut};

use crate::error::{Error, Result};
use crate::options::store::CompactionInstall;
use crate::table::handle::TableHandle;
use crate::tree::version::Version;

/// Slices for each thread. A thread that is held up, by its disk or by other work on its core,
/// takes fewer slices, so the others need not wait for it.
const SLICES_PER_THREAD: usize = 4;

/// A compaction is planned from about twice this number of stretches of blocks at most. Each
/// stretch needs some 150 bytes during the planning, which the memory budget does not count.
const PLANNED_BLOCKS: u64 = 1 << 17;
/// A stretch is at most this fraction of a table.
const GRAINS_PER_TABLE: u64 = 64;

/// How many slices `threads` threads should get.
pub(crate) fn slices_for(threads: usize) -> usize {
    if threads > 1 { threads.saturating_mul(SLICES_PER_THREAD) } else { 1 }
}

/// Whether a compaction is planned by cells: if the partitioner requires it, if cuts by size or by
/// prefix give enough tables for parts, or if whole tables are parts. The number of free cores does
/// not matter, because tables must not depend on it.
pub(crate) fn is_sliced(mode: SubCompactions, cut: Cut, input_bytes: u64) -> bool {
    let (partitioner, table_bytes) = cut.cells();
    let is_large = || input_bytes / 2 / TABLES_PER_SLICE >= partitioner.usual_bytes(table_bytes);
    mode == SubCompactions::Components || matches!(cut, Cut::Cells { .. }) || is_large()
}

/// How many slices are worth a thread or an edit each.
pub(super) fn part_count(fixed: Option<usize>, bytes: u64, usual_bytes: u64) -> usize {
    let worth = slices::slice_count(usize::MAX, usize::MAX, bytes, usual_bytes);
    worth.max(fixed.unwrap_or(1))
}

/// The number of parts for a compaction that `threads` threads run. If parts cost no edit, each
/// thread gets a few.
pub(crate) fn parts_wanted(
    install: CompactionInstall,
    fixed: Option<usize>,
    (bytes, usual_bytes): (u64, u64),
    threads: usize,
) -> usize {
    let count = part_count(fixed, bytes, usual_bytes);
    match install {
        CompactionInstall::Atomic => count.max(slices_for(threads)),
        CompactionInstall::Incremental => count,
    }
}

/// The inputs with their blocks, as their indexes describe them. A separator is between the last
/// key of its block and the first key of the next block, so it can replace either of them as a
/// bound.
pub(crate) fn slice_inputs(version: &Version, compaction: &Compaction) -> Result<Vec<SliceInput>> {
    let missing = |id| Error::corruption("manifest", 0, format!("no table {id} to compact"));
    let handles: Vec<_> = compaction
        .input_ids()
        .map(|id| version.handle(id).ok_or_else(|| missing(id)))
        .collect::<Result<_>>()?;
    let (partitioner, table_bytes) = compaction.cut.cells();
    let bytes: u64 = handles.iter().map(|handle| handle.meta().bytes).sum();
    let grain_bytes = grain(bytes, partitioner.usual_bytes(table_bytes));
    let mut inputs = Vec::new();
    for handle in handles {
        let blocks = blocks_of(handle, grain_bytes)?;
        inputs.push(SliceInput { table: handle.shared_meta(), blocks });
    }
    Ok(inputs)
}

/// The size up to which neighbouring blocks are planned as one: a small part of an output, and zero
/// if there are few blocks. It follows from the inputs alone, as cells have to.
fn grain(input_bytes: u64, usual_bytes: u64) -> u64 {
    (input_bytes / PLANNED_BLOCKS).min(usual_bytes / GRAINS_PER_TABLE)
}

fn blocks_of(handle: &TableHandle, grain_bytes: u64) -> Result<Vec<Block>> {
    let reader = handle.reader()?;
    let mut blocks: Vec<Block> = Vec::new();
    let mut from_key = handle.meta().min_key.clone();
    for part in 0..reader.partition_count() {
        let partition = reader.partition(part)?;
        for i in 0..partition.block_count() {
            let last_key: Box<[u8]> = partition.separators.key(i).into();
            if *last_key < *handle.meta().min_key {
                // The block is outside the trimmed table, so no reader sees it.
                continue;
            }
            let bytes = partition.block_range(i).map_or(0, |(_, len)| len);
            match blocks.last_mut().filter(|last| last.bytes + bytes <= grain_bytes) {
                Some(last) => {
                    last.last_key = last_key.clone();
                    last.bytes += bytes;
                }
                None => blocks.push(Block { from_key, last_key: last_key.clone(), bytes }),
            }
            from_key = last_key;
        }
    }
    Ok(blocks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_planned_one_by_one_unless_there_are_very_many() {
        assert_eq!(grain(256 << 20, 64 << 20), 2 << 10, "less than a block");
        assert_eq!(grain(5 << 30, 64 << 20), 40 << 10);
        assert_eq!(grain(5 << 30, 1 << 20), 16 << 10, "a small part of a table");
    }
}
