//! The work of a store while nobody writes: it compacts away the garbage that deletes and
//! overwrites left behind. Otherwise this garbage would slow scans and use disk space for ever. Not
//! a policy: this module is called when the policy and the space bound have nothing to do.
//!
//! 1. A *dense* table, at least half of it tombstones, is compacted with all tables that it
//!    overlaps in older layers (runs, or levels of one run). Nothing older is left there, so the
//!    tombstones are dropped.
//! 2. The whole tree is compacted if a quarter of its entries are tombstones. It is also compacted
//!    if, by the estimate of [`super::space`], it uses more than [`IDLE_SPACE_PERCENT`] of its live
//!    bytes.
//!
//! Range deletes may have to stay, however often their table is compacted: they may cover older
//! data beyond the bounds of the table. So at first only other deletes count as tombstones. Range
//! deletes also count when nothing else is left to do. The caller repeats the call only after a
//! change of the tree.
//!
//! The extra writing is bounded. By rule 1 at most [`PUTS_PER_TOMBSTONE`] puts are rewritten for
//! each tombstone that is dropped. By rule 2, at most three puts are rewritten for each, or 200% of
//! the bytes that may be freed. Without snapshots, each rule has nothing more to do after its
//! compaction.

use std::sync::Arc;

use crate::options::PolicyOptions;
use crate::policy::CompactionPolicy;
use crate::policy::range::{input, layers, meet};
use crate::policy::space::{bound_plan, live_bytes};
use crate::policy::whole::whole_compaction;
use crate::shape::plan::{Busy, Compaction, CompactionInput, Plan};
use crate::shape::{Run, RunSlot, Shape, Table};

/// The most space that an idle tree uses, as a percentage of its live bytes.
pub const IDLE_SPACE_PERCENT: u32 = 150;
/// The most puts that are rewritten for each tombstone of a dense table.
pub const PUTS_PER_TOMBSTONE: u64 = 4;
/// Fewer tombstones cost a scan less than a tenth of a millisecond, so stores leave them alone.
pub const LEAST_TOMBSTONES: u64 = 1000;

/// The next compaction of an idle tree. Fewer than `least` tombstones are left alone. This takes
/// O(tables), and the union of their sketches.
pub fn idle_plan(
    policy: &dyn CompactionPolicy,
    shape: &Shape,
    busy: &Busy,
    options: &PolicyOptions,
    least: u64,
) -> Option<Plan> {
    if !busy.tables.is_empty() || !busy.ranges.is_empty() || shape.pending.is_some() {
        return None;
    }
    let all: Count = |table| table.tombstones;
    dense_plan(policy, shape, options, least, deletes)
        .or_else(|| littered_plan(policy, shape, options, least, deletes))
        .or_else(|| bound_plan(policy, shape, busy, options, IDLE_SPACE_PERCENT, live_bytes))
        .or_else(|| littered_plan(policy, shape, options, least, all))
        .or_else(|| dense_plan(policy, shape, options, least, all))
}

/// Which of the tombstones of a table count.
type Count = fn(&Table) -> u64;

/// The tombstones of a table that are not range deletes.
fn deletes(table: &Table) -> u64 {
    table.tombstones.saturating_sub(table.range_deletes)
}

/// Rule 1, with the tombstones that `count` counts.
fn dense_plan(
    policy: &dyn CompactionPolicy,
    shape: &Shape,
    options: &PolicyOptions,
    least: u64,
    count: Count,
) -> Option<Plan> {
    let layers = layers(shape, policy, options)?;
    let is_dense = |table: &Table| count(table) >= least && count(table) * 2 >= table.entries;
    layers.iter().enumerate().find_map(|(at, (_, run))| {
        let mut dense = run.tables.iter().filter(|table| is_dense(table));
        dense.find_map(|table| {
            let compaction = sink(policy, shape, options, &layers[at..], table)?;
            let (id, level) = (table.id, compaction.output_level);
            let (tombstones, entries) = (table.tombstones, table.entries);
            let found = format!("table {id} holds {tombstones} tombstones in {entries} entries");
            let why = format!("idle: {found}, with all it meets into L{level}");
            Some(Plan { compactions: vec![compaction], why, ..Plan::default() })
        })
    })
}

/// Compacts a table of the first layer with the tables that it overlaps in older layers, into the
/// oldest of these layers. `None` if that would rewrite too much.
fn sink(
    policy: &dyn CompactionPolicy,
    shape: &Shape,
    options: &PolicyOptions,
    layers: &[(u32, &Run)],
    table: &Arc<Table>,
) -> Option<Compaction> {
    let (&(level, run), older) = layers.split_first()?;
    let met = meet(older, (&table.min_key, &table.max_key));
    let puts = |table: &Arc<Table>| table.entries - table.tombstones;
    let met_puts: u64 = met.iter().flat_map(|(_, _, tables)| *tables).map(puts).sum();
    let puts = puts(table) + met_puts;
    // Usually each tombstone deletes one put.
    if puts > table.tombstones.saturating_mul(PUTS_PER_TOMBSTONE + 1) {
        return None;
    }
    let first = CompactionInput { level, tables: vec![table.id] };
    let inputs = std::iter::once(first).chain(met.iter().map(input)).collect();
    let (output_level, run) = met.last().map_or((level, run), |(level, run, _)| (*level, *run));
    let (_, cut) = policy.whole_output(shape, output_level, options);
    Some(Compaction { inputs, output_level, slot: RunSlot::Join(run.id), cut })
}

/// Rule 2, by tombstones.
fn littered_plan(
    policy: &dyn CompactionPolicy,
    shape: &Shape,
    options: &PolicyOptions,
    least: u64,
    count: Count,
) -> Option<Plan> {
    let sum = |of: fn(&Table) -> u64| shape.tables().map(|(_, table)| of(table)).sum::<u64>();
    let (tombstones, entries) = (sum(count), sum(|table| table.entries));
    if tombstones < least || tombstones.saturating_mul(4) < entries {
        return None;
    }
    let compaction = whole_compaction(shape, policy, options)?;
    let level = compaction.output_level;
    let why = format!("idle: {tombstones} tombstones in {entries} entries: all into L{level}");
    Some(Plan { compactions: vec![compaction], why, ..Plan::default() })
}
