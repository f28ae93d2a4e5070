//! Compactions of a range of keys: all tables that overlap the range are compacted into the oldest
//! layer that contains any of them.

use std::sync::Arc;

use crate::options::PolicyOptions;
use crate::policy::CompactionPolicy;
use crate::policy::whole::full_plan;
use crate::shape::plan::{Compaction, CompactionInput, Plan};
use crate::shape::{Level, Run, RunSlot, Shape, Table, TableId, bounds};

/// The plan of a compaction of the keys from `from` to `to`, or to the end. `None` if these keys
/// are already in one layer without tombstones, and no table is older than `settled_from`. If
/// tables of a level overlap, or the policy requires whole runs, the plan is a full compaction.
/// O(tables).
pub fn range_plan(
    shape: &Shape,
    policy: &dyn CompactionPolicy,
    options: &PolicyOptions,
    settled_from: TableId,
    (from, to): (&[u8], Option<&[u8]>),
) -> Option<Plan> {
    let Some(layers) = layers(shape, policy, options) else {
        return full_plan(shape, policy, options, settled_from);
    };
    let (_, largest) = bounds(shape.tables().map(|(_, table)| table))?;
    let met = meet(&layers, (from, to.unwrap_or(largest)));
    let ((level, run, _), tables) = (met.last()?, met.iter().flat_map(|(_, _, tables)| *tables));
    let is_settled = tables.clone().all(|table| table.tombstones == 0 && table.id >= settled_from);
    if met.len() == 1 && is_settled {
        return None;
    }
    let (_, cut) = policy.whole_output(shape, *level, options);
    let bytes: u64 = tables.map(|table| table.bytes).sum();
    Some(Plan {
        why: format!("compaction of a range asked for: {bytes} bytes into level {level}"),
        compactions: vec![Compaction {
            inputs: met.iter().map(input).collect(),
            output_level: *level,
            slot: RunSlot::Join(run.id),
            cut,
        }],
        ..Plan::default()
    })
}

/// A layer, with its level and some of its tables.
pub(super) type Met<'a> = (u32, &'a Run, &'a [Arc<Table>]);

/// The layers of a tree, newest first, with their levels. A layer is a run. `None` if tables of a
/// level overlap, or if the policy requires whole runs: the runs of a stack represent intervals of
/// flushes.
pub(super) fn layers<'a>(
    shape: &'a Shape,
    policy: &dyn CompactionPolicy,
    options: &PolicyOptions,
) -> Option<Vec<(u32, &'a Run)>> {
    if policy.targets(shape, options).get(1).is_some_and(|below| below.max_runs == 0) {
        return None;
    }
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

/// The tables that the range overlaps, by layer. In each layer the range grows by the tables that
/// it overlaps. So between any of these tables and the oldest layer, no older table with its keys
/// is left out (I1).
pub(super) fn meet<'a>(
    layers: &[(u32, &'a Run)],
    (mut min_key, mut max_key): (&'a [u8], &'a [u8]),
) -> Vec<Met<'a>> {
    let mut met = Vec::new();
    for &(level, run) in layers {
        let tables = run.overlapping(min_key, max_key);
        let Some((least, largest)) = bounds(tables.iter()) else { continue };
        (min_key, max_key) = (min_key.min(least), max_key.max(largest));
        met.push((level, run, tables));
    }
    met
}

/// An input that consists of these tables.
pub(super) fn input((level, _, tables): &Met<'_>) -> CompactionInput {
    CompactionInput { level: *level, tables: tables.iter().map(|table| table.id).collect() }
}
