//! What a store does while nobody writes: it compacts what deletes and overwrites left behind.
//! Scans would pass it and the disk would hold it for ever. Not a policy: it is asked where the
//! policy and the space bound have nothing to do.
//!
//! 1. A *dense* table, at least half of it tombstones, is compacted with all that it meets in older
//!    layers (runs, or levels of one run). Nothing older is left there, so the tombstones end.
//! 2. All of a tree is compacted if a quarter of its entries are tombstones, or if by the estimate
//!    of [`super::space`] it takes more than [`IDLE_SPACE_PERCENT`] of what is live.
//!
//! Extra writing is bounded. By rule 1 at most [`PUTS_PER_TOMBSTONE`] puts are rewritten for each
//! tombstone that ends; by rule 2 at most three, or 200% of the bytes that it may free. Without
//! snapshots each rule leaves a tree in which it finds nothing.

use std::sync::Arc;

use crate::options::PolicyOptions;
use crate::policy::CompactionPolicy;
use crate::policy::space::{bound_plan, live_bytes};
use crate::policy::whole::whole_compaction;
use crate::shape::plan::{Busy, Compaction, CompactionInput, Plan};
use crate::shape::{Level, Run, RunSlot, Shape, Table, bounds};

/// The most that an idle tree takes, in percent of what is live.
pub const IDLE_SPACE_PERCENT: u32 = 150;
/// The most puts that are rewritten for each tombstone of a dense table.
pub const PUTS_PER_TOMBSTONE: u64 = 4;
/// Fewer tombstones cost a walk less than a tenth of a millisecond, so stores leave them alone.
pub const LEAST_TOMBSTONES: u64 = 1000;

/// The next compaction of an idle tree. Fewer tombstones than `least` do not matter. O(tables), and
/// the union of their sketches.
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
    dense_plan(policy, shape, options, least)
        .or_else(|| littered_plan(policy, shape, options, least))
        .or_else(|| bound_plan(policy, shape, busy, options, IDLE_SPACE_PERCENT, live_bytes))
}

/// Rule 1.
fn dense_plan(
    policy: &dyn CompactionPolicy,
    shape: &Shape,
    options: &PolicyOptions,
    least: u64,
) -> Option<Plan> {
    // The runs of a stack stand for intervals of flushes, and take part as a whole or not at all.
    let is_stack = policy.targets(shape, options).get(1).is_some_and(|below| below.max_runs == 0);
    let layers = layers(shape).filter(|_| !is_stack)?;
    let is_dense =
        |table: &Table| table.tombstones >= least && table.tombstones * 2 >= table.entries;
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

/// The runs, newest first, with their levels; `None` if a level's tables overlap.
fn layers(shape: &Shape) -> Option<Vec<(u32, &Run)>> {
    let mut layers = Vec::new();
    for (number, level) in (0u32..).zip(&shape.levels) {
        match level {
            Level::Runs(runs) => layers.extend(runs.iter().map(|run| (number, run))),
            Level::Overlapping(tables) if tables.is_empty() => {}
            Level::Overlapping(_) => return None,
        }
    }
    Some(layers)
}

/// The compaction of a table of the first layer with what it meets in the older ones, into the
/// oldest of them; `None` if that would rewrite too much.
///
/// The hull grows from layer to layer, so nothing that is older than any input stays between it and
/// the output (I1).
fn sink(
    policy: &dyn CompactionPolicy,
    shape: &Shape,
    options: &PolicyOptions,
    layers: &[(u32, &Run)],
    table: &Arc<Table>,
) -> Option<Compaction> {
    let (&(level, run), older) = layers.split_first()?;
    let mut inputs = vec![CompactionInput { level, tables: vec![table.id] }];
    let (mut output_level, mut output_run) = (level, run.id);
    let (mut min_key, mut max_key) = (&*table.min_key, &*table.max_key);
    let mut puts = table.entries - table.tombstones;
    for &(level, run) in older {
        let met = run.overlapping(min_key, max_key);
        let Some((least, largest)) = bounds(met.iter()) else { continue };
        (min_key, max_key) = (min_key.min(least), max_key.max(largest));
        puts += met.iter().map(|table| table.entries - table.tombstones).sum::<u64>();
        let tables = met.iter().map(|table| table.id).collect();
        inputs.push(CompactionInput { level, tables });
        (output_level, output_run) = (level, run.id);
    }
    // Each tombstone takes a put with it, as a rule.
    if puts > table.tombstones.saturating_mul(PUTS_PER_TOMBSTONE + 1) {
        return None;
    }
    let (_, cut) = policy.whole_output(shape, output_level, options);
    Some(Compaction { inputs, output_level, slot: RunSlot::Join(output_run), cut })
}

/// Rule 2, by tombstones.
fn littered_plan(
    policy: &dyn CompactionPolicy,
    shape: &Shape,
    options: &PolicyOptions,
    least: u64,
) -> Option<Plan> {
    let sum = |of: fn(&Table) -> u64| shape.tables().map(|(_, table)| of(table)).sum::<u64>();
    let (tombstones, entries) = (sum(|table| table.tombstones), sum(|table| table.entries));
    if tombstones < least || tombstones.saturating_mul(4) < entries {
        return None;
    }
    let compaction = whole_compaction(shape, policy, options)?;
    let level = compaction.output_level;
    let why = format!("idle: {tombstones} tombstones in {entries} entries: all into L{level}");
    Some(Plan { compactions: vec![compaction], why, ..Plan::default() })
}
