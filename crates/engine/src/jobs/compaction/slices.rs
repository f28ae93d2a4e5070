//! A large compact in parts that run side by side (spec: compaction policies §7, sliced mode). What
//! moves, where tables are cut and which part goes where is planned by
//! `runstone_policy::partition`; here the index blocks are read for it, and the parts are executed.
//!
//! 1. The histogram: every data block of the inputs, from their index partitions; of very many,
//!    stretches of neighbours.
//! 2. Cells and slices. The cells do not depend on the number of slices, and the table of cell i
//!    gets the i-th of a row of ids: so the files are the same, byte by byte, for every number.
//! 3. Threads take the slices in key order, a few each. If one fails, what the others wrote goes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::*};

use parking_lot::Mutex;
use runstone_policy::partition::slices::{
    Block, CellRule, Slice, SliceInput, Slices, SubCompactions, TABLES_PER_SLICE,
};
use runstone_policy::partition::{CutKey, slices};
use runstone_policy::plan::{Compaction, Cut};

use crate::base::error::{Error, Result};
use crate::base::metrics::Counter;
use crate::jobs::compaction::job::{
    Compacted, KeyRange, Output, compaction_sources, merge_streams,
};
use crate::jobs::cutter::Cutter;
use crate::store::{Inner, KeyspaceInner};
use crate::table::builder::TableLayout;
use crate::table::handle::TableHandle;
use crate::tree::version::Version;

/// Slices for each thread: one that is held up, by its disk or by other work on its core, takes
/// fewer of them, instead of being waited for.
const SLICES_PER_THREAD: usize = 4;

/// A compaction is planned from at most about twice so many stretches of blocks: each takes some
/// 150 bytes while it is, which the budget does not count.
const PLANNED_BLOCKS: u64 = 1 << 17;
/// And from stretches of at most this fraction of a table.
const GRAINS_PER_TABLE: u64 = 64;

/// How many slices are wanted for so many threads.
pub(crate) fn slices_for(threads: usize) -> usize {
    if threads > 1 { threads.saturating_mul(SLICES_PER_THREAD) } else { 1 }
}

/// Whether a compaction is planned by cells: if the partitioner asks for it, if cuts by size or by
/// prefix are so many that parts are worth it, or where whole tables are parts. Not a matter of
/// free cores: tables must not depend on those.
pub(crate) fn is_sliced(mode: SubCompactions, cut: Cut, input_bytes: u64) -> bool {
    let (partitioner, table_bytes) = cut.cells();
    let is_large = || input_bytes / 2 / TABLES_PER_SLICE >= partitioner.usual_bytes(table_bytes);
    mode == SubCompactions::Components || matches!(cut, Cut::Cells { .. }) || is_large()
}

impl Inner {
    pub(crate) fn run_sliced(
        &self,
        keyspace: &KeyspaceInner,
        version: &Version,
        compaction: &Compaction,
        layout: TableLayout,
    ) -> Result<Compacted> {
        let mode = keyspace.options.load().sub_compactions;
        let inputs = slice_inputs(version, compaction)?;
        let bytes: u64 = inputs.iter().map(|input| input.table.bytes).sum();
        let rule = CellRule::of(compaction, layout.prefixer.as_ref());
        let threads = self.slice_count(bytes, rule.usual_bytes());
        let plan = slices::sub_compactions(mode, &inputs, rule, slices_for(threads));
        self.count_slices(&inputs, &plan, threads);
        let moves: BTreeSet<u64> = plan.moves.iter().copied().collect();
        let cuts: Arc<[CutKey]> = plan.cuts.into();
        let first_id = self.next_file.fetch_add(cuts.len() as u64 + 1, Relaxed);
        let part = |slice: &Slice| -> Result<Compacted> {
            let range = KeyRange { lo: slice.lo.as_deref(), hi: slice.hi.as_deref() };
            let cutter = Cutter::cells(Arc::clone(&cuts), range.lo);
            let output = Output::of_cells(self, layout.clone(), cutter, first_id);
            let sources = compaction_sources(version, compaction, &moves)?;
            let keep = self.liveness(version, compaction);
            merge_streams(sources, range, output, keep, &|| self.check_cancelled(keyspace))
        };
        let parts = run_parts(&plan.slices, threads, &part);
        let mut compacted = self.join(parts)?;
        let moved = inputs.iter().filter(|input| moves.contains(&input.table.id));
        compacted.moved = moved.map(|input| Arc::clone(&input.table)).collect();
        Ok(compacted)
    }

    /// The critical path is that of threads that take the slices in order, each when it is free.
    pub(crate) fn count_slices(&self, inputs: &[SliceInput], plan: &Slices, threads: usize) {
        let tables: Vec<_> = inputs.iter().map(|input| Arc::clone(&input.table)).collect();
        let whole = slices::components(&tables);
        let mut loads = vec![0u64; threads.max(1)];
        for slice in &plan.slices {
            if let Some(least) = loads.iter_mut().min() {
                *least += slice.bytes;
            }
        }
        self.metrics.add_all(&[
            (Counter::compaction_slices, plan.slices.len() as u64),
            (Counter::sliced_bytes, loads.iter().sum()),
            (Counter::slice_critical_bytes, loads.iter().max().copied().unwrap_or(0)),
            (
                Counter::component_critical_bytes,
                whole.compaction_bytes.into_iter().max().unwrap_or(0),
            ),
        ]);
    }

    /// One result of all parts, in key order; or the first error, with nothing left behind.
    fn join(&self, parts: Vec<Result<Compacted>>) -> Result<Compacted> {
        let mut compacted = Compacted::default();
        let mut failed = None;
        for part in parts {
            match part {
                Ok(part) => {
                    compacted.tables.extend(part.tables);
                    compacted.dropped += part.dropped;
                    compacted.dead.extend(part.dead);
                }
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        match failed {
            Some(error) => {
                self.discard(&compacted.tables);
                Err(error)
            }
            None => Ok(compacted),
        }
    }
}

/// So many threads take the slices in order; after an error no more are begun.
fn run_parts(
    slices: &[Slice],
    threads: usize,
    part: &(dyn Fn(&Slice) -> Result<Compacted> + Sync),
) -> Vec<Result<Compacted>> {
    let (next, done) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
    on_threads(threads.min(slices.len()), &|| {
        loop {
            let at = next.fetch_add(1, Relaxed);
            let Some(slice) = slices.get(at) else { break };
            let run = std::panic::AssertUnwindSafe(|| part(slice));
            let outcome = std::panic::catch_unwind(run).unwrap_or_else(|_| Err(panicked()));
            if outcome.is_err() {
                next.fetch_max(slices.len(), Relaxed);
            }
            done.lock().insert(at, outcome);
        }
    });
    done.into_inner().into_values().collect()
}

/// Calls `work` on this thread and on others, so many in all; where there is no thread to be had,
/// the others do its work.
pub(crate) fn on_threads(threads: usize, work: &(dyn Fn() + Sync)) {
    std::thread::scope(|scope| {
        for _ in 1..threads {
            let builder = std::thread::Builder::new().name("runstone-slice".into());
            let _ = builder.spawn_scoped(scope, work);
        }
        work();
    });
}

pub(crate) fn panicked() -> Error {
    Error::invalid("a part of a compaction panicked", "report it; the inputs are untouched")
}

/// The inputs with their blocks, as far as their indexes tell. A separator is at or above the last
/// key of its block and below the first key of the next: as good as either, as a bound.
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

/// Neighbouring blocks are planned as one up to this size: a small part of an output, and nothing
/// where there are few blocks. Follows from the inputs alone, as cells have to.
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
                // Behind a trim: nobody sees the block.
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
